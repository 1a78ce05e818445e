"""Training on records in memory, without a run folder: the model, and the ledger of what was released."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import numpy as np

from taciturn.planning.study import Study
from taciturn.privacy.events import BatchEvent
from taciturn.runs.ledger import RunLedger, release_entries
from taciturn.training.central import charge_all_agents, dataset_for
from taciturn.training.loop import check_finite, first_state, numbers_to_check, on_backend, training_rounds
from taciturn.training.process_group import SINGLE_PROCESS
from taciturn.training.recorder import check_covered
from taciturn.training.setup import plan_entries, study_header
from taciturn.training.simulate import Round
from taciturn.types import Array


class TrainedModel(NamedTuple):
    """The result of training in memory."""

    w: Array  # [J, K]
    rounds: int
    ledger: RunLedger  # as a run folder would hold it


def train_in_memory(study: Study, tolerance: float) -> TrainedModel:
    """Train a study of one run.

    Parameters
    ----------
    study
        A study with one batch of one run.
    tolerance
        Stop a run without noise once its model changes, and the agents differ from it, by at most this share of its
        largest parameter. A run with noise never stops early: when it stopped would reveal a private figure.

    Raises
    ------
    TrainingDiverged
        If the numbers are no longer finite.
    PrivacyViolation
        If the algorithm released something that its plan does not cover.
    """
    (part,) = study.parts
    if part.measure is not None:
        raise TypeError("training in memory makes no private evaluation")
    dataset, may_stop = dataset_for(study, part), math.isinf(part.batch.budgets[0])
    state = first_state(study, part, dataset.train, averages=False)
    events: Counter[tuple[int, BatchEvent]] = Counter()
    w, rounds = np.full((), np.inf), 0
    with on_backend(study, SINGLE_PROCESS) as placed, np.errstate(over="ignore", invalid="ignore"):
        for done in training_rounds(placed, part, dataset_for(placed, part).train, part.rounds, state):
            check_covered(part.batch, part.plans, done.t, done.events, done.senders)
            check_finite(numbers_to_check(done), part, done.t)
            events += charge_all_agents(study, part, done).events
            converged = may_stop and _converged(done, w, len(dataset.agents), tolerance)
            w, rounds = done.w, done.t
            if converged:
                break
    drawn = release_entries(events, part.batch.labels(), study.dataset.agents, first=1, last=rounds)
    return TrainedModel(w[:, 0], rounds, RunLedger((study_header(study), *plan_entries(study), *drawn)))


def _converged(done: Round, before: Array, agents: int, tolerance: float) -> bool:
    """Return whether the model hardly changed, and the agents agree on it."""
    size = tolerance * float(np.abs(done.w).max())
    apart = 0.0 if done.residual is None else float(done.residual[0]) / math.sqrt(agents * done.w.size)
    return float(np.abs(done.w - before).max()) <= size and apart <= size
