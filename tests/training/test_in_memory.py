"""A study without a folder."""

from __future__ import annotations

from collections import Counter

import numpy as np

from taciturn.algorithms.base import Agent
from taciturn.algorithms.server import SumsState
from taciturn.training.in_memory import _converged
from taciturn.training.simulate import Round, SimulationState


def test_training_has_converged_when_the_model_hardly_changes_and_the_agents_agree() -> None:
    w = np.full((2, 1, 3), 10.0)
    state = SimulationState(1, SumsState(w, w, 2), (Agent(w, w),) * 2, None)

    def rests(before: float, residual: float) -> bool:
        figure = np.zeros(1)
        made = Round(1, state, w, np.array([residual]), figure, figure, figure, Counter(), 1)
        return _converged(made, np.full_like(w, before), agents=2, tolerance=0.01)

    assert rests(before=10.05, residual=0.3)
    assert not rests(before=10.15, residual=0.3)
    assert not rests(before=10.05, residual=0.4)  # 0.1 times the root of 12 is 0.35
