"""Who works at a simulation's agents: this process alone, or several processes that meet once a round."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from taciturn.algorithms.base import Step
from taciturn.algorithms.server import Received
from taciturn.algorithms.steps import consensus_residual
from taciturn.kernels.threads import cores
from taciturn.types import Array

T = TypeVar("T")


class Requests(NamedTuple):
    """What is to happen after the round at hand."""

    stop: bool = False
    save: bool = False  # a checkpoint is due
    alarm: bool = False  # somebody's steps released what no plan covers


Alarm: TypeAlias = Callable[[Mapping[int, Step]], bool]
"""Whether the steps of some agents, by number, must stop everybody."""


def calm(steps: Mapping[int, Step]) -> bool:
    """No steps alarm anybody."""
    return False


class ReducedUpdates(NamedTuple):
    """What the answers of all agents come to, whoever works at them."""

    received: Received
    noise: Array  # [R]  mean |xi| over the agents
    residual: Callable[[Array], Array]  # of the model: the consensus residual, [R]


class ProcessGroup(Protocol):
    """The processes that work at one simulation; all of them make the same calls in the same order."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        ...

    @property
    def leads(self) -> bool:
        """Whether this process is the first, which writes, evaluates and speaks for all."""
        ...

    def parts(self, agents: int) -> Sequence[range]:
        """Which of so many agents each process works at."""
        ...

    def together(self, work: Callable[[], T]) -> T:
        """Every process does the work; what is refused in one of them is refused in all."""
        ...

    def told(self, work: Callable[[], T]) -> T:
        """The first process does the work, and all get its result."""
        ...

    def dealt(self, work: Callable[[], Sequence[T]]) -> T:
        """The first process does the work, and each gets its own item of the result."""
        ...

    def collected(self, own: T) -> list[T]:
        """The first process gets what each of them has, in order; the others get nothing."""
        ...

    def alike(self, what: str, work: Callable[[], Any]) -> None:
        """Refuse to go on where the work gives two processes different results."""
        ...

    def summed(self, values: Array) -> Array:
        """The sum over all processes."""
        ...

    def meet(self, w: Array, steps: Mapping[int, Step]) -> ReducedUpdates:
        """Put the steps of the agents here, by number, together with those of the others."""
        ...

    def heeding(self, wish: Callable[[], Requests], alarm: Alarm = calm) -> ProcessGroup:
        """The same team, in which this process has wishes, and looks at the steps made here."""
        ...

    def alarmed(self) -> bool:
        """Whether the last round needs a look before anything of it is used: some process found an alarming step."""
        ...

    def wishes(self) -> Requests:
        """What all heed: what any of them wished for when they last met."""
        ...

    def device(self, name: str) -> str:
        """The device that this process takes where a run is to be on `name`."""
        ...

    def cores(self) -> int:
        """How many cores this process may use."""
        ...


@dataclass(frozen=True)
class SingleProcess:
    """One process works at all agents."""

    wish: Callable[[], Requests] = Requests
    rank: ClassVar[int] = 0
    leads: ClassVar[bool] = True

    def parts(self, agents: int) -> Sequence[range]:
        """All of them."""
        return (range(agents),)

    def together(self, work: Callable[[], T]) -> T:
        """Done here."""
        return work()

    def told(self, work: Callable[[], T]) -> T:
        """Done here."""
        return work()

    def dealt(self, work: Callable[[], Sequence[T]]) -> T:
        """The only item."""
        return work()[0]

    def collected(self, own: T) -> list[T]:
        """The only one there is."""
        return [own]

    def alike(self, what: str, work: Callable[[], Any]) -> None:
        """There is nobody to differ from."""

    def summed(self, values: Array) -> Array:
        """The values themselves."""
        return values

    def meet(self, w: Array, steps: Mapping[int, Step]) -> ReducedUpdates:
        """All steps are here."""
        received = Received.of({p: step.upload for p, step in steps.items()})
        noise = np.mean([step.noise for step in steps.values()], axis=0)
        z = [upload.z for upload in received.uploads.values()]
        return ReducedUpdates(received, noise, lambda model: consensus_residual(model, z))

    def heeding(self, wish: Callable[[], Requests], alarm: Alarm = calm) -> SingleProcess:
        """Its own wishes."""
        return SingleProcess(wish)

    def alarmed(self) -> bool:
        """Every round needs the look: nobody has looked before."""
        return True

    def wishes(self) -> Requests:
        """As of now."""
        return self.wish()

    def device(self, name: str) -> str:
        """The one named."""
        return name

    def cores(self) -> int:
        """All there are."""
        return cores()


SINGLE_PROCESS = SingleProcess()


def rank_here() -> int:
    """The number of this process among those that torchrun started; 0 where it was not torchrun."""
    return int(os.environ["RANK"]) if ranks_here() > 1 else 0


def ranks_here() -> int:
    """How many processes torchrun started; 1 where it was not torchrun."""
    started = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()
    return int(os.environ["WORLD_SIZE"]) if started else 1
