"""The algorithm of a stage with the paper's parameters, and two engines: step by step in numpy, or fused on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import numpy as np

from taciturn.algorithms import ALGORITHMS, Algorithm, AlgorithmConfig
from taciturn.algorithms.iadmm import DpIadmm
from taciturn.algorithms.noisy_gradient import PaperGradient
from taciturn.algorithms.outp import OutputPerturbation
from taciturn.algorithms.schedules import Constant, DynamicRho, NonsmoothEta, Schedule
from taciturn.core.arrays import namespace
from taciturn.errors import InputError
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.objectives.metrics import mistakes
from taciturn.objectives.passes import scores
from taciturn.privacy.events import Event
from taciturn.privacy.mechanisms import LaplaceDataDependent
from taciturn.privacy.noise import SeededNoise
from taciturn.research.reproduction.paper_runs import DYNAMIC, PaperCase, PaperConstants, Stage
from taciturn.training import checkpoint, simulate
from taciturn.training.torch_backend import matmul_precision, on_device
from taciturn.types import Array, Dataset, Shard

BETA, DELTA = 1e-6, 1e-6


def build_problem(dataset: Dataset) -> Problem:
    """Return multiclass logistic regression with beta = 10^-6 and no constraint."""
    return Problem(
        LOSSES["softmax"](), REGULARISERS["l2"](), BETA, SETS["all"](1.0), dataset.records, len(dataset.agents)
    )


def build_algorithm(stage: Stage, constants: PaperConstants, dataset: Dataset, precision: str) -> Algorithm:
    """Return OutP, ObjP or ObjPM for all cases of a stage."""
    epsilon = np.array([case.epsilon for case in stage.cases], precision)
    recipe = AlgorithmConfig(
        build_problem(dataset),
        epsilon,
        rho=_beside(stage, epsilon, lambda case, mine: _rho(case, constants, mine)),
        eta=_beside(stage, epsilon, lambda case, mine: NonsmoothEta(mine, case.eta_scale)),
        release=PaperGradient(LaplaceDataDependent(epsilon)),
        local_updates=stage.local_updates,
        delta=DELTA,
        outp_noise=stage.outp_noise or "published",
        record_bound=_record_bound(dataset),
    )
    return ALGORITHMS[stage.algorithm].build(recipe)


@dataclass(frozen=True, eq=False)
class ConcatenatedSchedule:
    """The schedules of several groups of runs, concatenated."""

    groups: tuple[Schedule, ...]

    def __call__(self, t: int) -> Array:
        """Return the numbers of all runs, group after group, [R, 1]."""
        parts = [group(t) for group in self.groups]
        return parts[0] if len(parts) == 1 else namespace(parts[0]).concatenate(parts)


def _beside(stage: Stage, epsilon: Array, schedule: Callable[[PaperCase, Array], Schedule]) -> Schedule:
    """Return one schedule for each range of cases that differ only in epsilon and seed."""
    stretches = [list(cases) for _, cases in groupby(stage.cases, key=lambda case: (case.penalty, case.eta_scale))]
    parts = np.split(epsilon, np.cumsum([len(cases) for cases in stretches])[:-1])
    return ConcatenatedSchedule(tuple(schedule(cases[0], part) for cases, part in zip(stretches, parts, strict=True)))


def _rho(case: PaperCase, constants: PaperConstants, epsilon: Array) -> Schedule:
    """Return rho-hat^t, a part of it, or a constant."""
    dynamic, _, divisor = case.penalty.partition("/")
    if dynamic != DYNAMIC:
        return Constant(float(case.penalty), epsilon)
    part = 1.0 / float(divisor or 1)
    return DynamicRho(epsilon, part * constants.c1, part * constants.c2, constants.tc, cap=part * 1e9)


def _record_bound(dataset: Dataset) -> float:
    """Return sqrt(J), a public bound on the length of a record: every pixel is between 0 and 1."""
    return math.sqrt(len(dataset.features))


def events(algorithm: Algorithm) -> tuple[Event, ...]:
    """Return the privacy event of every local update of each run, [R]: a nominal budget, or no noise."""
    if isinstance(algorithm, OutputPerturbation):
        return algorithm.mechanism.event.runs
    if isinstance(algorithm, DpIadmm) and isinstance(algorithm.release, PaperGradient):
        return algorithm.release.mechanism.event.runs
    raise TypeError(f"no events of {type(algorithm).__name__} are known")


PRODUCTS = ("half", "tf32", "float32")


class ComputedRound(NamedTuple):
    """A round that has been computed; its results must be requested before the next one."""

    t: int
    measure: Callable[
        [], tuple[Any, Any]
    ]  # test error [R], nan where w is not finite, and mean |xi| [R], wherever they are
    check: Callable[[], None]  # that every noise so far was drawn as its event says; waits for a GPU
    arrays: Callable[[], dict[str, Array]]  # the state from which the stage continues


class StageEngine(Protocol):
    """Computes the rounds of a stage."""

    @property
    def place(self) -> str:
        """The machine and its arithmetic, in words."""
        ...

    @property
    def precision(self) -> str:
        """The precision of the algorithms."""
        ...

    def compute_rounds(
        self, algorithm: Algorithm, seeds: tuple[int, ...], rounds: int, saved: Mapping[str, Array] | None
    ) -> Iterator[ComputedRound]:
        """Yield the remaining rounds, from z = lambda = 0 or from a checkpoint."""
        ...


@dataclass(frozen=True, eq=False)
class PlainEngine:
    """The simulation in numpy, which is the reference."""

    dataset: Dataset
    place: str = "CPU, float32"
    precision: str = "float32"

    def compute_rounds(
        self, algorithm: Algorithm, seeds: tuple[int, ...], rounds: int, saved: Mapping[str, Array] | None
    ) -> Iterator[ComputedRound]:
        """Yield the remaining rounds."""
        state = simulate.start(self.dataset.train, len(seeds), "sums", averages=False)
        if saved is not None:
            state = checkpoint.from_arrays(saved, state)
        planned = events(algorithm)
        for done in simulate.simulate(
            algorithm, self.dataset.train, lambda p, t: SeededNoise(seeds, p, t), rounds, state
        ):
            if any(event.runs != planned for _, event in done.events):
                raise _silent(done.t)
            yield self._played(done)

    def _played(self, done: simulate.Round) -> ComputedRound:
        return ComputedRound(
            done.t,
            lambda: (_error(done.w, self.dataset.test), done.noise),
            lambda: None,  # every round was checked before it was yielded
            lambda: checkpoint.to_arrays(done.state),
        )


@dataclass(frozen=True, eq=False)
class FusedEngine:
    """All agents and runs at once on a GPU, with matrix products in half precision, TF32 or float32."""

    dataset: Dataset
    device: str = "cuda"
    products: str = "half"
    precision: str = "float64"  # schedules are made on the host

    @property
    def place(self) -> str:
        """The GPU and the precision of its matrix products."""
        import torch

        return f"{torch.cuda.get_device_name(self.device)}, {self.products} products"

    @cached_property
    def stack(self) -> Any:
        """The records on the device."""
        from taciturn.research.gpu import stack

        return stack(self.dataset.train, self.device, half=self.products == "half")

    @cached_property
    def _test(self) -> Shard | None:
        return on_device(self.dataset.test, self.device)

    def compute_rounds(
        self, algorithm: Algorithm, seeds: tuple[int, ...], rounds: int, saved: Mapping[str, Array] | None
    ) -> Iterator[ComputedRound]:
        """Yield the remaining rounds, queued on the device."""
        from taciturn.research import gpu as fused

        with _kernels_on(self.device), matmul_precision(self.products == "tf32"):
            batch = fused.DeviceBatch(self.stack, seeds)
            state = fused.start(batch) if saved is None else fused.from_arrays(saved, batch)
            for done in fused.simulate(algorithm, batch, rounds, state):
                yield self._played(done)

    def _played(self, done: Any) -> ComputedRound:
        from taciturn.research.gpu import to_arrays

        def check() -> None:
            if int(done.state.silent):
                raise _silent(done.t)

        return ComputedRound(
            done.t, lambda: (_error(done.model(), self._test), done.noise()), check, lambda: to_arrays(done.state)
        )


def _kernels_on(device: str) -> AbstractContextManager[object]:
    """Return a context in which kernels that name no device run on this one."""
    if device == "cpu":
        return nullcontext()
    import torch

    found: AbstractContextManager[object] = torch.cuda.device(device)
    return found


def _silent(t: int) -> InputError:
    return InputError(
        f"by round {t} an agent's sensitivity was 0, so that its update got no noise and epsilon is not kept:"
        " 'taciturn run --mode paper' can run this, and its ledger says which updates these were"
    )


def _error(w: Any, test: Shard | None) -> Any:
    """Return the share of misclassified records of every run; NaN for a model that is not finite."""
    if test is None:
        raise InputError("the data set has no test records, so there is nothing to compare")
    return mistakes(scores(w, test.x), test) / len(test.x) + 0.0 * w.sum(axis=(0, 2))
