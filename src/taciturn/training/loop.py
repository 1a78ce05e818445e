"""Training with everything written down: metrics, ledger, checkpoints; stopped at any moment, it can go on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from taciturn.core.arrays import to_numpy
from taciturn.core.storage import flushed_size, read_arrays
from taciturn.errors import BudgetExhausted, InputError, TrainingDiverged
from taciturn.kernels.library import library
from taciturn.kernels.threads import threads
from taciturn.objectives.metrics import test_error
from taciturn.planning.study import Batch, Study, StudyPart
from taciturn.privacy.noise import SYSTEM_NOISE, NoiseSource, SeededNoise
from taciturn.runs.folder import RunFolder, append_lines
from taciturn.runs.records import MetricsRow
from taciturn.training.central import bytes_sent, charged_to_all, records_of
from taciturn.training.process_group import SINGLE_PROCESS, ProcessGroup, Requests
from taciturn.training.recorder import Recorder
from taciturn.training.simulate import Round, SimulationState, simulate, start
from taciturn.training.torch_backend import matrix_products, on_device
from taciturn.types import Array, Shard

FLUSH = 1.0  # seconds, after which rounds with fresh noise are charged, written and shown


class Progress(NamedTuple):
    """How far a study is, for whoever watches."""

    batch: Batch
    t: int
    rounds: int
    test_error: Array | None  # [R], of the last evaluation


class Evaluation(NamedTuple):
    """What a round was found to be worth."""

    error: Array  # [R]
    rows: list[MetricsRow]


class Interrupted(Exception):
    """Training was asked to stop; everything done is on the disk."""


def train(
    study: Study,
    folder: RunFolder,
    watch: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    group: ProcessGroup = SINGLE_PROCESS,
) -> None:
    """Run every batch to its end, from the folder's checkpoints where there are any.

    In a group the study has the records of this process's agents only, and the first process alone is watched.
    """
    group.broadcast(lambda: _rewind(folder, [part.batch for part in study.parts]))
    with placed(study, group) as there:
        for part in there.parts:
            _train_part(there, folder, part, watch if group.is_main else _unwatched, stop, group)
    group.broadcast(lambda: _flush(folder))


def _flush(folder: RunFolder) -> None:
    """The metrics are on the disk before a summary says that they are complete."""
    for path in (folder.metrics, folder.local_metrics):
        if path.exists():
            flushed_size(path)


def _unwatched(progress: Progress) -> None:
    """Nobody looks."""


@contextmanager
def placed(study: Study, group: ProcessGroup) -> Iterator[Study]:
    """The study where its settings want it computed."""
    settings = study.settings
    if settings.backend != "torch":
        plain = settings.backend == "numpy" or library() is None  # numpy's matrix products have threads of their own
        with threads(1 if plain else group.cores() if settings.threads == "auto" else int(settings.threads)):
            yield study
        return
    place = group.device(settings.device)
    parts = [part._replace(algorithm=on_device(part.algorithm, place)) for part in study.parts]
    with matrix_products(settings.tf32):
        yield study._replace(dataset=on_device(study.dataset, place), parts=parts)


def _train_part(
    study: Study,
    folder: RunFolder,
    part: StudyPart,
    watch: Callable[[Progress], None],
    stop: Callable[[], bool],
    group: ProcessGroup,
) -> None:
    settings, dataset, batch, own = study.settings, study.dataset, part.batch, records_of(study, part)
    fresh = settings.noise == "hardened"  # noise drawn anew cannot be drawn again: it is charged before it is seen
    every = min(FLUSH, settings.checkpoint_seconds) if fresh else settings.checkpoint_seconds
    recorder = Recorder(folder, batch, dataset.agents, every, fresh, group, part.plans)
    state = start(own.train, batch.size, settings.server, settings.averages, len(own.agents))
    state = recorder.resumed(state)
    rounds = recorder.begin(state.round, part.rounds, limited=any(np.isfinite(batch.budgets)))
    if rounds < 1 and state.round == 0:
        raise BudgetExhausted(
            f"{folder.path}: its whole budget went into rounds that a crash lost; there is no model", collective=True
        )
    if recorder.unwritten:  # a crash came between the checkpoint and the metrics
        _write_rows(study, folder, recorder.unwritten)
    error: Array | None = None  # of the last evaluation that may be shown
    waiting: list[Evaluation] = []  # not to be shown before the ledger has their rounds
    watch(Progress(batch, state.round, rounds, error))
    group = group.with_requests(
        lambda: Requests(stop(), group.is_main and time.monotonic() >= recorder.due), alarm=recorder.alarming
    )
    for done in _timed(recorder, rounds_of(study, part, own.train, rounds, state, group)):
        recorder.charge(charged_to_all(study, part, done), group.alarm_raised())
        _check_numbers(recorder, done.residual, part, done.t)
        requests, last = group.requests(), done.t == rounds
        stopping = requests.stop and not last
        # where a fresh run is left off may turn out to be its end, so it is left off only where it was evaluated
        evaluated = last or done.t % settings.evaluate_every == 0 or (fresh and stopping)
        if evaluated:
            objective = to_numpy(group.all_reduce(study.problem.total(done.w, dataset.train)))
            if study.facts is None:  # a private figure must not decide whether a certified run goes on
                _check_numbers(recorder, objective, part, done.t)
            if group.is_main:
                found = test_error(done.w, dataset.test, dataset.target)
                waiting.append(Evaluation(found, _rows(study, part, done, recorder.seconds, found, objective)))
        saving = last or stopping or (requests.save and (evaluated or not fresh))
        rows = [row for evaluation in waiting for row in evaluation.rows]
        if fresh and saving:
            recorder.checkpoint(done, rows)
        if last or stopping or (fresh and saving):
            recorder.write_ledger()
        if waiting and (saving or not fresh):
            _write_rows(study, folder, rows)
            error = waiting[-1].error
            waiting.clear()
        if saving and not fresh:
            recorder.checkpoint(done)
        watch(Progress(batch, done.t, rounds, error))
        if stopping:
            raise Interrupted


def _check_numbers(recorder: Recorder, values: Array, part: StudyPart, t: int) -> None:
    """Stop a run whose numbers are none; that it stopped tells of its rounds, so they are charged first."""
    if not np.isfinite(values).all():
        recorder.write_ledger()
    check_finite(values, part, t)


def rounds_of(
    study: Study,
    part: StudyPart,
    shards: Sequence[Shard],
    rounds: int,
    state: SimulationState,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Iterator[Round]:
    """The rounds of one batch on these records, with the noise its settings name."""
    return simulate(part.algorithm, shards, noise_of(study, part), rounds, state, group=group)


def noise_of(study: Study, part: StudyPart) -> Callable[[int, int], NoiseSource]:
    """The noise of an agent in a round, as the settings name it."""

    def noise(agent: int, t: int) -> NoiseSource:
        if study.settings.noise == "hardened":
            return SYSTEM_NOISE
        streams = part.batch.streams if study.settings.mode == "certified" else ()  # the paper compares on one noise
        return SeededNoise(part.batch.seeds, agent, t, streams)

    return noise


def _write_rows(study: Study, folder: RunFolder, rows: Sequence[MetricsRow]) -> None:
    """Metrics; in certified mode what is computed from private records without noise goes into the local-only file."""
    private = study.private_metrics
    if private:
        append_lines(folder.local_metrics, [{name: row[name] for name in ("run", "round", *private)} for row in rows])
        hidden: dict[str, Any] = dict.fromkeys(private)
        rows = [replace(row, **hidden) for row in rows]
    append_lines(folder.metrics, rows)


def _timed(recorder: Recorder, rounds: Iterator[Round]) -> Iterator[Round]:
    """The rounds themselves count as training time; evaluating and writing do not."""
    while True:
        began = time.perf_counter()
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is found by others, and said
            done = _read(next(rounds, None))
        recorder.seconds += time.perf_counter() - began
        if done is None:
            return
        yield done


def _read(done: Round | None) -> Round | None:
    """The round with its figures in numpy; what a GPU is still working at is waited for."""
    if done is None:
        return None
    return done._replace(residual=to_numpy(done.residual), rho=to_numpy(done.rho), eta=to_numpy(done.eta))


def check_finite(values: Array, part: StudyPart, t: int) -> None:
    """Stop a run whose numbers are none."""
    if not np.isfinite(values).all():
        raise TrainingDiverged(
            f"{part.batch.algorithm} diverged in round {t}: its numbers are no longer finite; "
            "a larger rho, a smaller eta or less noise makes smaller steps",
            collective=True,
        )


def _rows(
    study: Study, part: StudyPart, done: Round, seconds: float, error: Array, objective: Array
) -> list[MetricsRow]:
    up, down = bytes_sent(study, part, done)
    return [
        MetricsRow(
            **label,
            round=done.t,
            test_error=error[r],
            train_objective=objective[r],
            consensus_residual=done.residual[r],
            noise=done.noise[r],
            rho=done.rho[r],
            eta=done.eta[r],
            seconds=round(seconds, 4),
            bytes_up=up,
            bytes_down=down,
        )
        for r, label in enumerate(part.batch.labels())
    ]


def _rewind(folder: RunFolder, plan: list[Batch]) -> None:
    """Cut the metrics to where the newest checkpoint left them: what came after will be made again."""
    place = [0, 0]
    for batch in plan:
        file = folder.checkpoints / f"{batch.algorithm}.npz"
        if file.exists():
            place = [int(size) for size in read_arrays(file)["place"]]
    for path, size in zip((folder.metrics, folder.local_metrics), place, strict=True):
        if not path.exists() and size == 0:
            continue
        if path.stat().st_size < size:
            raise InputError(f"{path} is shorter than its checkpoint says: the run folder was changed by hand")
        os.truncate(path, size)
