"""Computing the stages of a plan into its folder; an interrupted computation continues from its checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from taciturn.core.arrays import to_numpy
from taciturn.core.storage import read_arrays, to_json, write_arrays
from taciturn.errors import TrainingDiverged
from taciturn.research.reproduction.paper_runs import DATA, ReproductionPlan, Stage
from taciturn.research.reproduction.results import ReproductionFolder
from taciturn.research.reproduction.stages import ComputedRound, StageEngine, build_algorithm, events
from taciturn.types import Array, Dataset

CHECKPOINT_SECONDS = 120.0
LOOK_SECONDS = 0.5  # between two reports of progress


class ReproductionInterrupted(Exception):
    """The computation was asked to stop; everything done is on disk."""


class ReproductionProgress(NamedTuple):
    """How far a reproduction is."""

    stage: Stage
    t: int
    rounds: int
    test_error: Array | None  # [R], of the last evaluation


@dataclass
class Traces:
    """The numbers of a stage so far."""

    rounds: list[int] = field(default_factory=list)
    numbers: list[tuple[Any, Any]] = field(default_factory=list)  # test error [R] and noise [R] of each

    def add(self, t: int, error: Any, noise: Any) -> None:
        """Add an evaluated round."""
        self.rounds.append(t)
        self.numbers.append((error, noise))

    def arrays(self) -> dict[str, Array]:
        """Return the traces as arrays to write; waits for the GPU."""
        self.numbers = [(to_numpy(error), to_numpy(noise)) for error, noise in self.numbers]
        error, noise = (np.array(column, np.float32) for column in zip(*self.numbers, strict=True))
        finite = np.isfinite(error + noise).all(axis=1)
        if not finite.all():
            first = self.rounds[int(finite.argmin())]
            raise TrainingDiverged(f"diverged by round {first}: its numbers are no longer finite")
        return {"rounds": np.array(self.rounds), "test_error": error, "noise": noise}


def compute(
    plan: ReproductionPlan,
    dataset: Dataset,
    engine: StageEngine,
    folder: ReproductionFolder,
    watch: Callable[[ReproductionProgress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Run every stage that has not finished, from its checkpoint if there is one."""
    for stage in plan.stages:
        if not folder.traces(stage.name).is_file():
            _play(plan, stage, dataset, engine, folder, watch, stop)


def _play(
    plan: ReproductionPlan,
    stage: Stage,
    dataset: Dataset,
    engine: StageEngine,
    folder: ReproductionFolder,
    watch: Callable[[ReproductionProgress], None],
    stop: Callable[[], bool],
) -> None:
    algorithm = build_algorithm(stage, DATA[plan.data], dataset, engine.precision)
    clock = _Clock(stage, plan.rounds, folder)
    evaluated = set(plan.evaluations())
    watch(ReproductionProgress(stage, clock.done, plan.rounds, None))
    seeds = tuple(case.seed for case in stage.cases)
    for played in engine.compute_rounds(algorithm, seeds, plan.rounds, clock.saved):
        if played.t in evaluated:
            clock.traces.add(played.t, *played.measure())
        stopping = stop() and played.t < plan.rounds
        clock.look(played, watch, stopping)
        if stopping:
            raise ReproductionInterrupted
    kept = {"seconds": np.array(clock.seconds()), "events": np.array([to_json(asdict(e)) for e in events(algorithm)])}
    folder.end_stage(stage.name, clock.traces.arrays() | kept)


class _Clock:
    """Decides when to report a stage's numbers and when to write a checkpoint."""

    def __init__(self, stage: Stage, rounds: int, folder: ReproductionFolder) -> None:
        self.stage, self.rounds, self.folder = stage, rounds, folder
        self.traces, self.before, self.done = Traces(), 0.0, 0
        self.saved = self._read()
        self.began = self.looked = self.written = time.monotonic()

    def _read(self) -> dict[str, Array] | None:
        file = self.folder.checkpoint(self.stage.name)
        if not file.is_file():
            return None
        saved = read_arrays(file)
        self.traces.rounds = [int(t) for t in saved["rounds"]]
        self.traces.numbers = list(zip(saved["test_error"], saved["noise"], strict=True))
        self.before, self.done = float(saved["seconds"]), int(saved["round"])
        return saved

    def seconds(self) -> float:
        """How long the stage has been running, over all sessions."""
        return self.before + time.monotonic() - self.began

    def look(self, played: ComputedRound, watch: Callable[[ReproductionProgress], None], stopping: bool) -> None:
        """Report progress every few seconds, and write a checkpoint when one is due."""
        now, last = time.monotonic(), played.t == self.rounds
        if not (last or stopping or now - self.looked > LOOK_SECONDS):
            return
        played.check()
        traces = self.traces.arrays() if self.traces.rounds else {}
        error = traces["test_error"][-1] if traces else None
        if stopping or (now - self.written > CHECKPOINT_SECONDS and not last):
            arrays = played.arrays() | traces | {"seconds": np.array(self.seconds())}
            write_arrays(self.folder.checkpoint(self.stage.name), arrays)
            self.written = time.monotonic()
        watch(ReproductionProgress(self.stage, played.t, self.rounds, error))
        self.looked = time.monotonic()
