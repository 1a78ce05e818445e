"""The training loop: rounds with metrics, ledger and checkpoints, which can be stopped and resumed at any time."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, cast

import numpy as np

from taciturn.algorithms.base import SummableAlgorithm
from taciturn.algorithms.measure_release import MeasureRelease
from taciturn.core.arrays import to_numpy
from taciturn.core.storage import flushed_size, read_arrays
from taciturn.errors import BudgetExhausted, CorruptFile, InputError, Interrupted, TrainingDiverged
from taciturn.kernels.library import library
from taciturn.kernels.threads import threads
from taciturn.objectives.metrics import test_error
from taciturn.planning.study import Batch, Study, StudyPart
from taciturn.privacy.noise import SYSTEM_NOISE, NoiseSource, SeededNoise
from taciturn.runs.folder import RunFolder, append_lines
from taciturn.runs.records import EvaluationRow, MetricsRow
from taciturn.training.central import bytes_sent, charge_all_agents, dataset_for, is_central
from taciturn.training.private_evaluation import (
    EvaluationSchedule,
    MeasuredSum,
    check_measured,
    evaluation_plans,
    evaluation_rows,
    measure_held_out,
)
from taciturn.training.process_group import SINGLE_PROCESS, ProcessGroup, Requests
from taciturn.training.recorder import Recorder
from taciturn.training.simulate import Round, SimulationState, simulate, start
from taciturn.training.simulate_sums import simulate_pooled, simulate_sums, start_sums
from taciturn.training.torch_backend import matmul_precision, on_device
from taciturn.types import Array, Classes, Shard

FLUSH_SECONDS = 1.0  # after which rounds with fresh noise are charged, written and shown
logger = logging.getLogger(__name__)


class TrainingProgress(NamedTuple):
    """The progress of a study, as passed to the `watch` callback."""

    batch: Batch
    t: int  # rounds done
    rounds: int
    test_error: Array | None  # [R], of the last evaluation
    classes: bool = True  # whether it is the share of wrong classes, or else in the label's unit


class Evaluation(NamedTuple):
    """The evaluation of one round."""

    error: Array  # [R]
    rows: list[MetricsRow]


@dataclass
class Unpublished:
    """Evaluations that may not be seen before the ledger has their rounds."""

    study: Study
    folder: RunFolder
    evaluations: list[Evaluation] = field(default_factory=list)
    measured: list[EvaluationRow] = field(default_factory=list)  # of private evaluations
    error: Array | None = None  # [R], the test error of the last evaluation that was published

    @property
    def rows(self) -> list[MetricsRow]:
        """The rows of metrics."""
        return [row for evaluation in self.evaluations for row in evaluation.rows]

    def publish(self) -> None:
        """Write all of them to the run folder."""
        if self.evaluations or self.measured:
            self.folder.add_evaluations(self.measured)
            _write_rows(self.study, self.folder, self.rows)
        if self.evaluations:
            self.error = self.evaluations[-1].error
        self.evaluations, self.measured = [], []


def train(
    study: Study,
    folder: RunFolder,
    watch: Callable[[TrainingProgress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    group: ProcessGroup = SINGLE_PROCESS,
) -> None:
    """Train every batch of a study, from the folder's checkpoints where there are any.

    Parameters
    ----------
    study
        The study, with the records of this process's agents only.
    folder
        Its run folder, locked by process 0.
    watch
        Called after every round, in process 0.
    stop
        Called after every round; True stops the training.
    group
        The processes of the run.

    Raises
    ------
    Interrupted
        If `stop` returned True in any process.
    TrainingDiverged
        If the numbers are no longer finite.
    BudgetExhausted
        If crashes used up the whole budget before the first checkpoint.
    PrivacyViolation
        If an algorithm released something that its plan does not cover.
    """
    group.broadcast(lambda: _rewind(folder, [part.batch for part in study.parts]))
    evaluated = group.is_main and any(part.measure for part in study.parts)
    held_out = study.dataset.held_out_shards if evaluated else ()  # as they are before they move to a device
    shown = watch if group.is_main else lambda progress: None
    with on_backend(study, group) as placed:
        for part in placed.parts:
            _train_part(placed, folder, part, held_out, shown, stop, group)
    group.broadcast(lambda: _flush(folder))


def _flush(folder: RunFolder) -> None:
    """Flush the metrics to the disk, before a summary says that they are complete."""
    for path in folder.line_files:
        if path.exists():
            flushed_size(path)


@contextmanager
def on_backend(study: Study, group: ProcessGroup) -> Iterator[Study]:
    """Set the number of threads, or move the study to its torch device, as its settings say.

    Yields
    ------
    Study
        The study with its arrays on the device.
    """
    settings = study.settings
    if settings.backend != "torch":
        plain = settings.backend == "numpy" or library() is None  # numpy has its own threads for matrix products
        with threads(1 if plain else group.cores() if settings.threads == "auto" else int(settings.threads)):
            yield study
        return
    device = group.device(settings.device)
    parts = [part._replace(algorithm=on_device(part.algorithm, device)) for part in study.parts]
    with matmul_precision(settings.tf32):
        yield study._replace(dataset=on_device(study.dataset, device), parts=parts)


def _train_part(
    study: Study,
    folder: RunFolder,
    part: StudyPart,
    held_out: Sequence[Shard],
    watch: Callable[[TrainingProgress], None],
    stop: Callable[[], bool],
    group: ProcessGroup,
) -> None:
    settings, batch = study.settings, part.batch
    dataset, own = study.dataset, dataset_for(study, part, group)
    fresh = settings.hardened  # such noise cannot be drawn again: it is charged before it is seen
    every = min(FLUSH_SECONDS, settings.checkpoint_seconds) if fresh else settings.checkpoint_seconds
    interval = settings.evaluation_interval(part.rounds)
    recorder = Recorder(folder, batch, dataset.agents, every, fresh, group, part.plans)
    state = recorder.restore(first_state(study, part, own.train, settings.averages, len(own.agents)))
    rounds = recorder.begin(state.round, part.rounds, limited=any(np.isfinite(batch.budgets)))
    logger.info("%s: %d runs, rounds %d to %d", batch.algorithm, batch.size, state.round + 1, rounds)
    if rounds < 1 and state.round == 0:
        raise BudgetExhausted(
            f"{folder.path}: rounds lost in a crash used up its whole budget; there is no model",
            collective=True,
        )
    if recorder.unwritten or recorder.unwritten_evaluations:  # a crash came between the checkpoint and the metrics
        folder.add_evaluations(recorder.unwritten_evaluations)
        _write_rows(study, folder, recorder.unwritten)
    pending = Unpublished(study, folder)
    schedule = EvaluationSchedule.of(part, recorder.evaluations)
    watch(TrainingProgress(batch, state.round, rounds, None, isinstance(dataset.target, Classes)))
    group = group.with_requests(
        lambda: Requests(stop(), group.is_main and time.monotonic() >= recorder.next_checkpoint),
        alarm=recorder.is_uncovered,
    )
    timed = _timed(recorder, training_rounds(study, part, own.train, rounds, state, group))
    for done, private in _evaluated(study, part, timed, schedule, rounds, held_out, group):
        pending.measured += private
        recorder.charge(charge_all_agents(study, part, done), group.alarm_raised())
        _check_numbers(recorder, numbers_to_check(done), part, done.t)
        requests, last = group.requests(), done.t == rounds
        stopping = requests.stop and not last
        # a fresh run is stopped only at an evaluated round, because the stop may turn out to be its end
        evaluated = last or done.t % interval == 0 or (fresh and stopping)
        if evaluated:
            objective = to_numpy(group.all_reduce(_objective(study, part, done.w, own.train)))
            if study.facts is None:  # a private figure must not decide whether a certified run continues
                _check_numbers(recorder, objective, part, done.t)
            if group.is_main:
                found = test_error(done.w, dataset.test, dataset.target)
                pending.evaluations.append(
                    Evaluation(found, _rows(study, part, done, recorder.seconds, found, objective))
                )
        saving = last or stopping or (requests.save and (evaluated or not fresh))
        if not fresh:
            if last or stopping:
                recorder.write_ledger()
            pending.publish()
            if saving:
                recorder.checkpoint(done)
        elif saving:
            recorder.checkpoint(done, pending.rows, pending.measured)
            recorder.write_ledger()
            pending.publish()
        watch(TrainingProgress(batch, done.t, rounds, pending.error, isinstance(dataset.target, Classes)))
        if stopping:
            raise Interrupted


def _evaluated(
    study: Study,
    part: StudyPart,
    rounds: Iterator[Round],
    schedule: EvaluationSchedule,
    last: int,
    held_out: Sequence[Shard],
    group: ProcessGroup,
) -> Iterator[tuple[Round, list[EvaluationRow]]]:
    """Yield each round with its private evaluation, if one is due: with its events, and the rows to write."""
    measure, noise = part.measure, noise_source(study, part)
    for done in rounds:
        if measure is None or not schedule.is_due(done.t, last=done.t == last):
            yield done, []
            continue
        schedule.used += 1
        measured = group.run_on_all(partial(_measure, part, measure, done, held_out, noise))
        rows = evaluation_rows(measure, part.batch.labels(), done.t, measured, study.dataset.target)
        yield done._replace(events=done.events + measured.events), rows if group.is_main else []


def _measure(
    part: StudyPart,
    measure: MeasureRelease,
    done: Round,
    shards: Sequence[Shard],
    noise: Callable[[int, int], NoiseSource],
) -> MeasuredSum:
    """Measure the models of a round on held-out records; only process 0 has any."""
    found = measure_held_out(measure, to_numpy(done.w), dict(enumerate(shards)), lambda p: noise(p, done.t))
    check_measured(evaluation_plans(part), found.events)
    return found


def _check_numbers(recorder: Recorder, values: Array, part: StudyPart, t: int) -> None:
    """Raise if a value is not finite. The stop reveals something of the rounds, so they are charged first."""
    if not np.isfinite(values).all():
        recorder.write_ledger()
    check_finite(values, part, t)


def training_rounds(
    study: Study,
    part: StudyPart,
    shards: Sequence[Shard],
    rounds: int,
    state: SimulationState,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Iterator[Round]:
    """Yield the rounds of one batch on these records, with the noise that the settings name."""
    noise, summable = noise_source(study, part), cast(SummableAlgorithm, part.algorithm)  # sums allow no other
    if study.settings.integer_sums:
        return simulate_sums(summable, shards, noise, rounds, state, sizes=study.declared_sizes)
    if _is_pooled(study, part):
        (records,) = shards
        return simulate_pooled(summable, records, len(study.dataset.agents), noise, rounds, state)
    return simulate(part.algorithm, shards, noise, rounds, state, group=group)


def first_state(
    study: Study, part: StudyPart, shards: Sequence[Shard], averages: bool, agents: int | None = None
) -> SimulationState:
    """Return the state of a batch before round 1; `agents` is P, if some agents are in other processes."""
    if study.settings.integer_sums or _is_pooled(study, part):
        return start_sums(shards, part.batch.size, averages)
    return start(shards, part.batch.size, study.settings.server, averages, agents)


def _objective(study: Study, part: StudyPart, w: Array, pooled: Sequence[Shard]) -> Array:
    """Return sum_p f_p(w) over the agents of this process, [R]."""
    if _is_pooled(study, part):
        return replace(study.problem, agents=1).objective(w, pooled[0])
    return study.problem.total(w, study.dataset.train)


def _is_pooled(study: Study, part: StudyPart) -> bool:
    """Return whether the part is simulated on pooled records; a central reference has one agent anyway."""
    return study.settings.pooled_sums and not is_central(part)


def noise_source(study: Study, part: StudyPart) -> Callable[[int, int], NoiseSource]:
    """Return a function of agent and round that returns the noise source which the settings name."""

    def noise(agent: int, t: int) -> NoiseSource:
        if study.settings.hardened:
            return SYSTEM_NOISE
        # the paper compares algorithms on the same noise
        streams = part.batch.streams if study.settings.mode == "certified" else ()
        return SeededNoise(part.batch.seeds, agent, t, streams)

    return noise


def _write_rows(study: Study, folder: RunFolder, rows: Sequence[MetricsRow]) -> None:
    """Write metrics; what certified mode computes from private records without noise goes into local-only."""
    private = study.private_metrics
    if private:
        append_lines(folder.local_metrics, [{name: row[name] for name in ("run", "round", *private)} for row in rows])
        rows = [row.without(private) for row in rows]
    append_lines(folder.metrics, rows)


def _timed(recorder: Recorder, rounds: Iterator[Round]) -> Iterator[Round]:
    """Yield the rounds with their figures in numpy, and add their time, without evaluation and writing."""
    while True:
        began = time.perf_counter()
        with np.errstate(over="ignore", invalid="ignore"):  # `check_finite` finds overflows
            done = next(rounds, None)
            if done is not None:  # waits for a GPU
                residual = None if done.residual is None else to_numpy(done.residual)
                done = done._replace(residual=residual, rho=to_numpy(done.rho), eta=to_numpy(done.eta))
        recorder.seconds += time.perf_counter() - began
        if done is None:
            return
        yield done


def numbers_to_check(done: Round) -> Array:
    """Return the numbers of a round that must be finite: the residual, or the model where no upload is seen."""
    return to_numpy(done.w) if done.residual is None else done.residual


def check_finite(values: Array, part: StudyPart, t: int) -> None:
    """Raise TrainingDiverged if a value is NaN or infinite."""
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
            **vars(label),
            round=done.t,
            test_error=error[r],
            train_objective=objective[r],
            consensus_residual=None if done.residual is None else done.residual[r],
            noise=done.noise[r],
            rho=done.rho[r],
            eta=done.eta[r],
            seconds=round(seconds, 4),
            bytes_up=up,
            bytes_down=down,
        )
        for r, label in enumerate(part.batch.labels())
    ]


def _rewind(folder: RunFolder, plan: Sequence[Batch]) -> None:
    """Truncate the metrics to their size at the newest checkpoint: later rounds will be computed again."""
    sizes = [0] * len(folder.line_files)
    for batch in plan:
        file = folder.checkpoints / batch.checkpoint
        if file.exists():
            sizes = [int(size) for size in read_arrays(file)["place"]]
            if len(sizes) != len(folder.line_files):
                raise InputError(f"{file} was written by another version of Taciturn; resume the run with that one")
    for path, size in zip(folder.line_files, sizes, strict=True):
        if not path.exists() and size == 0:
            continue
        if path.stat().st_size < size:
            raise CorruptFile(f"{path} is shorter than its checkpoint says: the run folder was changed by hand")
        os.truncate(path, size)
