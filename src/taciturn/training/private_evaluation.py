"""Private evaluations of a simulation: all agents measure the model on their held-out records, and the sum is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.algorithms.measure_release import MeasureRelease
from taciturn.errors import PrivacyViolation
from taciturn.planning.evaluation_plan import EvaluationPlan, evaluation_rounds
from taciturn.planning.study import StudyPart
from taciturn.privacy.events import BatchEvent
from taciturn.privacy.noise import NoiseSource
from taciturn.runs.private_quality import NoisySums, PrivateQuality, estimate_quality
from taciturn.runs.records import EvaluationRow, RunLabel
from taciturn.types import Array, Shard, Target


class MeasuredSum(NamedTuple):
    """What is known of one evaluation after its sum was opened."""

    total: NDArray[np.int64]  # [D, R]
    answered: tuple[int, ...]
    events: Counter[tuple[int, BatchEvent]]


def measure_held_out(
    measure: MeasureRelease, w: Array, shards: Mapping[int, Shard], noise: Callable[[int], NoiseSource]
) -> MeasuredSum:
    """Return the sum of the noisy measures of the models w [J, R, K] over agents.

    Parameters
    ----------
    measure
        What an agent releases.
    w
        The models.
    shards
        The held-out records of the agents that answer.
    noise
        Returns the noise source of an agent.
    """
    total = np.zeros((measure.layout.size, len(measure.bits)), np.int64)
    events: Counter[tuple[int, BatchEvent]] = Counter()
    for p, shard in shards.items():
        released = measure(w, shard, noise(p))
        total += released.integers
        events[p, released.event] += 1
    return MeasuredSum(total, tuple(shards), events)


def private_quality(
    measure: MeasureRelease, total: NDArray[np.int64], run: int, agents: int, target: Target
) -> PrivateQuality:
    """Return what the sum [D, R] over some agents says about the model of a run."""
    values = total[:, run] / 2.0 ** measure.bits[run]
    return estimate_quality(NoisySums(measure.layout, values, measure.deviation(run, agents)), target)


def evaluation_rows(
    measure: MeasureRelease, labels: Sequence[RunLabel], t: int, measured: MeasuredSum, target: Target
) -> list[EvaluationRow]:
    """Return one row for each run of a batch."""
    agents = len(measured.answered)
    return [
        EvaluationRow(
            **vars(label), round=t, agents=agents, quality=private_quality(measure, measured.total, r, agents, target)
        )
        for r, label in enumerate(labels)
    ]


def check_measured(plans: Sequence[EvaluationPlan], events: Mapping[tuple[int, BatchEvent], int]) -> None:
    """Raise PrivacyViolation unless every agent drew exactly the planned event, once."""
    planned = tuple(plan.event for plan in plans)
    by_agent = Counter(p for p, _ in events)
    for (p, event), count in events.items():
        if event.runs != planned or not event.held_out or count != 1 or by_agent[p] != 1:
            raise PrivacyViolation(
                f"an evaluation drew {count} times {event.runs}; its plan has {planned} once: nothing may be shown"
            )


@dataclass
class EvaluationSchedule:
    """When a run is evaluated. What a crash or a lost sum has spent comes out of the reserve, then of earlier rounds.

    Attributes
    ----------
    rounds
        The rounds after which an evaluation is planned.
    paid
        How many evaluations the plan pays for.
    used
        How many are spent.
    """

    rounds: tuple[int, ...]
    paid: int
    used: int = 0

    @classmethod
    def of(cls, part: StudyPart, used: int = 0) -> EvaluationSchedule:
        """Return the schedule of a batch, of which some evaluations are spent."""
        plans = evaluation_plans(part)
        count = plans[0].count if plans else 0
        return cls(evaluation_rounds(part.rounds, count), min((plan.charges for plan in plans), default=0), used)

    @property
    def left(self) -> int:
        """How many evaluations are not spent."""
        return self.paid - self.used

    def is_due(self, t: int, last: bool) -> bool:
        """Return whether the model is evaluated after round t; `last`: no round follows."""
        later = sum(planned > t for planned in self.rounds)
        return self.left > 0 if last else t in self.rounds and self.left > later


def evaluation_plans(part: StudyPart) -> list[EvaluationPlan]:
    """Return the plans of the evaluations of every run; none if there are no evaluations."""
    return [plan.evaluation for plan in part.plans if plan.evaluation is not None]
