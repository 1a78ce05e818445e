"""Training with everything written down: metrics, ledger, checkpoints; stopped at any moment, it can go on."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit.algorithms import Algorithm
from tacit.engine.checkpoint import from_arrays, to_arrays
from tacit.engine.evaluate import test_error
from tacit.engine.simulate import Round, State, simulate, start
from tacit.errors import InputError
from tacit.privacy.events import BatchEvent
from tacit.privacy.ledger import entries
from tacit.privacy.noise import SeededNoise
from tacit.results.files import read_arrays, write_arrays
from tacit.results.folder import RunFolder, append_lines, flushed_size
from tacit.study.batches import Batch
from tacit.study.build import Study
from tacit.types import Array


class Progress(NamedTuple):
    """How far a study is, for whoever watches."""

    batch: Batch
    t: int
    rounds: int
    test_error: Array | None  # [R], of the last evaluation


class Interrupted(Exception):
    """Training was asked to stop; everything done is on the disk."""


@dataclass
class Recorder:
    """The books of one batch: what is known since the last checkpoint, and where the files stood then."""

    folder: RunFolder
    batch: Batch
    agents: tuple[str, ...]
    every: float  # seconds between two checkpoints
    seconds: float = 0.0
    events: Counter[tuple[int, BatchEvent]] = field(default_factory=Counter)
    due: float = 0.0  # when the next checkpoint is to be written

    @property
    def file(self) -> Path:
        """The batch's checkpoint."""
        return self.folder.checkpoints / f"{self.batch.algorithm}.npz"

    def checkpoint(self, done: Round) -> None:
        """The ledger first, then the state that knows how long the files were: a crash in between loses nothing."""
        began = time.monotonic()
        append_lines(self.folder.ledger, entries(self.events, self.batch.labels(), self.agents))
        self.events.clear()
        place = [flushed_size(self.folder.metrics), flushed_size(self.folder.ledger)]
        books = {"seconds": np.array(self.seconds), "place": np.array(place), "w": done.w}
        write_arrays(self.file, to_arrays(done.state) | books)
        self.schedule(time.monotonic() - began)

    def schedule(self, cost: float = 0.0) -> None:
        """The next checkpoint, so that writing large states takes at most a tenth of the time."""
        self.due = time.monotonic() + max(self.every, 10.0 * cost)


def train(
    study: Study,
    folder: RunFolder,
    watch: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Run every batch to its end, from the folder's checkpoints where there are any."""
    _rewind(folder, [batch for batch, _ in study.plan])
    for batch, algorithm in study.plan:
        _train_batch(study, folder, batch, algorithm, watch, stop)


def _train_batch(
    study: Study,
    folder: RunFolder,
    batch: Batch,
    algorithm: Algorithm,
    watch: Callable[[Progress], None],
    stop: Callable[[], bool],
) -> None:
    settings, dataset = study.settings, study.dataset
    recorder = Recorder(folder, batch, dataset.agents, settings.checkpoint_seconds)
    recorder.schedule()
    state = start(dataset.train, batch.size, settings.server, settings.averages)
    if recorder.file.exists():
        arrays = read_arrays(recorder.file)
        state, recorder.seconds = from_arrays(arrays, state), float(arrays["seconds"])
    error: Array | None = None
    watch(Progress(batch, state.round, settings.rounds, error))
    for done in _timed(recorder, _rounds(study, batch, algorithm, state)):
        recorder.events += done.events
        last = done.t == settings.rounds
        if last or done.t % settings.evaluate_every == 0:
            error = test_error(done.w, dataset.test, dataset.target)
            objective = study.problem.total(done.w, dataset.train)
            _check_finite(objective, recorder, done)
            append_lines(folder.metrics, _rows(done, batch, recorder.seconds, error, objective))
        stopping = stop() and not last
        if last or stopping or time.monotonic() >= recorder.due:
            recorder.checkpoint(done)
        watch(Progress(batch, done.t, settings.rounds, error))
        if stopping:
            raise Interrupted


def _rounds(study: Study, batch: Batch, algorithm: Algorithm, state: State) -> Iterator[Round]:
    def noise(agent: int, t: int) -> SeededNoise:
        return SeededNoise(batch.seeds, agent, t)

    return simulate(algorithm, study.dataset.train, noise, study.settings.rounds, state)


def _timed(recorder: Recorder, rounds: Iterator[Round]) -> Iterator[Round]:
    """The rounds themselves count as training time; evaluating and writing do not."""
    while True:
        began = time.perf_counter()
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is found below, and said
            done = next(rounds, None)
        recorder.seconds += time.perf_counter() - began
        if done is None:
            return
        _check_finite(done.residual, recorder, done)
        yield done


def _check_finite(values: Array, recorder: Recorder, done: Round) -> None:
    if not np.isfinite(values).all():
        raise InputError(
            f"{recorder.batch.algorithm} diverged in round {done.t}: its numbers are no longer finite; "
            "a larger rho, a smaller eta or less noise makes smaller steps"
        )


def _rows(done: Round, batch: Batch, seconds: float, error: Array, objective: Array) -> list[dict[str, Any]]:
    parameters = done.w[:, 0].size * done.w.itemsize * len(done.state.agents) * done.t
    return [
        {
            **label,
            "round": done.t,
            "test_error": error[r],
            "train_objective": objective[r],
            "consensus_residual": done.residual[r],
            "noise": done.noise[r],
            "rho": done.rho[r],
            "eta": done.eta[r],
            "seconds": round(seconds, 4),
            "bytes_up": parameters,
            "bytes_down": parameters,
        }
        for r, label in enumerate(batch.labels())
    ]


def _rewind(folder: RunFolder, plan: list[Batch]) -> None:
    """Cut metrics and ledger to where the newest checkpoint left them: what came after will be made again."""
    place = [0, 0]
    for batch in plan:
        file = folder.checkpoints / f"{batch.algorithm}.npz"
        if file.exists():
            place = [int(size) for size in read_arrays(file)["place"]]
    for path, size in zip((folder.metrics, folder.ledger), place, strict=True):
        if path.stat().st_size < size:
            raise InputError(f"{path} is shorter than its checkpoint says: the run folder was changed by hand")
        os.truncate(path, size)
