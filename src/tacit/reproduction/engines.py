"""The two ways to play a stage: the pure steps one agent after the other, and all agents at once on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from tacit.algorithms import Algorithm
from tacit.engine import checkpoint, simulate
from tacit.engine.evaluate import mistakes
from tacit.engine.torch_backend import current, matrix_products, on_device
from tacit.errors import InputError
from tacit.privacy.noise import SeededNoise
from tacit.problems.passes import scores
from tacit.reproduction.build import events
from tacit.types import Array, Dataset, Shard

PRODUCTS = ("half", "tf32", "float32")


class Played(NamedTuple):
    """A round that was played; whoever wants to know what it came to asks before the next one."""

    t: int
    measure: Callable[
        [], tuple[Any, Any]
    ]  # test error [R], nan where w is not finite, and mean |xi| [R], wherever they are
    check: Callable[[], None]  # that every noise so far was drawn as its event says; waits for a GPU
    arrays: Callable[[], dict[str, Any]]  # what the stage goes on from


class Engine(Protocol):
    """Where a stage is played."""

    @property
    def place(self) -> str:
        """The machine and its arithmetic, in words."""
        ...

    @property
    def precision(self) -> str:
        """What algorithms are built in."""
        ...

    def play(
        self, algorithm: Algorithm, seeds: tuple[int, ...], rounds: int, saved: Mapping[str, Array] | None
    ) -> Iterator[Played]:
        """The rounds to come, from z = lambda = 0 or from what was saved."""
        ...


@dataclass(frozen=True, eq=False)
class PlainEngine:
    """The simulation in numpy, which defines what is meant."""

    dataset: Dataset
    place: str = "CPU, float32"
    precision: str = "float32"

    def play(
        self, algorithm: Algorithm, seeds: tuple[int, ...], rounds: int, saved: Mapping[str, Array] | None
    ) -> Iterator[Played]:
        """The rounds to come."""
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

    def _played(self, done: simulate.Round) -> Played:
        return Played(
            done.t,
            lambda: (_error(done.w, self.dataset.test), done.noise),
            lambda: None,  # every round was, before anybody saw it
            lambda: checkpoint.to_arrays(done.state),
        )


@dataclass(frozen=True, eq=False)
class FusedEngine:
    """All agents and runs at once on a GPU, with matrix products in half precision, in TF32 or in float32."""

    dataset: Dataset
    device: str = "cuda"
    products: str = "half"
    precision: str = "float64"  # schedules are made on the host

    @property
    def place(self) -> str:
        """The GPU and what its products are made of."""
        import torch  # noqa: PLC0415

        return f"{torch.cuda.get_device_name(self.device)}, {self.products} products"

    @cached_property
    def stack(self) -> Any:
        """The records on the device."""
        from tacit.engine.fused import stack  # noqa: PLC0415

        return stack(self.dataset.train, self.device, half=self.products == "half")

    @cached_property
    def _test(self) -> Shard | None:
        return on_device(self.dataset.test, self.device)

    def play(
        self, algorithm: Algorithm, seeds: tuple[int, ...], rounds: int, saved: Mapping[str, Array] | None
    ) -> Iterator[Played]:
        """The rounds to come, queued on the device."""
        from tacit.engine import fused  # noqa: PLC0415

        with current(self.device), matrix_products(self.products == "tf32"):
            batch = fused.Batch(self.stack, seeds)
            state = fused.start(batch) if saved is None else fused.from_arrays(saved, batch)
            for done in fused.simulate(algorithm, batch, rounds, state):
                yield self._played(done)

    def _played(self, done: Any) -> Played:
        from tacit.engine.fused import to_arrays  # noqa: PLC0415

        def check() -> None:
            if int(done.state.silent):
                raise _silent(done.t)

        return Played(
            done.t, lambda: (_error(done.model(), self._test), done.noise()), check, lambda: to_arrays(done.state)
        )


def _silent(t: int) -> InputError:
    return InputError(
        f"by round {t} an agent's sensitivity was 0, so that its update got no noise and epsilon is not kept:"
        " 'tacit run --mode paper' can run this, and its ledger says which updates these were"
    )


def _error(w: Any, test: Shard | None) -> Any:
    """The share of wrong classes of every run; a model that is not finite has none, whatever its scores point to."""
    if test is None:
        raise InputError("the data set has no test records: without them there is nothing to compare")
    return mistakes(scores(w, test.x), test) / len(test.x) + 0.0 * w.sum(axis=(0, 2))
