"""A study without a folder."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tacit.algorithms.base import Agent
from tacit.algorithms.server import Sums
from tacit.engine.simulate import Round, State
from tacit.study.memory import _rests


def test_a_model_rests_when_it_hardly_moves_and_the_agents_agree_on_it() -> None:
    w = np.full((2, 1, 3), 10.0)
    state = State(1, Sums(w, w, 2), (Agent(w, w),) * 2, None)

    def rests(before: float, residual: float) -> bool:
        figure = np.zeros(1)
        made = Round(1, state, w, np.array([residual]), figure, figure, figure, Counter())
        return _rests(made, np.full_like(w, before), agents=2, tolerance=0.01)

    assert rests(before=10.05, residual=0.3)
    assert not rests(before=10.15, residual=0.3)
    assert not rests(before=10.05, residual=0.4)  # 0.1 times the root of 12 is 0.35
