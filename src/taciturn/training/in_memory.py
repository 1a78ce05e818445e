"""A study of records in memory that leaves no folder: its model, and the ledger of what was released."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import numpy as np

from taciturn.planning.study import Study
from taciturn.privacy.events import BatchEvent
from taciturn.runs.ledger import RunLedger, release_entries
from taciturn.training.central import charged_to_all, records_of
from taciturn.training.loop import check_finite, placed, rounds_of
from taciturn.training.process_group import SINGLE_PROCESS
from taciturn.training.recorder import refuse_uncovered
from taciturn.training.setup import plan_entries, study_header
from taciturn.training.simulate import Round, start
from taciturn.types import Array


class Trained(NamedTuple):
    """What a study comes to."""

    w: Array  # [J, K]
    rounds: int
    ledger: RunLedger  # as a run folder would hold it


def train_in_memory(study: Study, tolerance: float = 0.0) -> Trained:
    """Train the study's only run; one without noise ends once its model moves by less than `tolerance` of its size."""
    (part,) = study.parts
    dataset, stops = records_of(study, part), math.isinf(part.batch.budgets[0])  # a private figure ends no other
    state = start(dataset.train, part.batch.size, study.settings.server, averages=False)
    events: Counter[tuple[int, BatchEvent]] = Counter()
    w, done = np.full((), np.inf), 0
    with placed(study, SINGLE_PROCESS) as there, np.errstate(over="ignore", invalid="ignore"):
        for made in rounds_of(there, part, records_of(there, part).train, part.rounds, state):
            refuse_uncovered(part.batch, part.plans, made.t, made.events, len(made.state.agents))
            check_finite(made.residual, part, made.t)
            events += charged_to_all(study, part, made).events
            resting = stops and _rests(made, w, len(dataset.agents), tolerance)
            w, done = made.w, made.t
            if resting:
                break
    drawn = release_entries(events, part.batch.labels(), study.dataset.agents, first=1, last=done)
    return Trained(w[:, 0], done, RunLedger((study_header(study), *plan_entries(study), *drawn)))


def _rests(made: Round, before: Array, agents: int, tolerance: float) -> bool:
    """Whether the model hardly moved, and the agents agree on it."""
    size = tolerance * float(np.abs(made.w).max())
    apart = float(made.residual[0]) / math.sqrt(agents * made.w.size)
    return float(np.abs(made.w - before).max()) <= size and apart <= size
