"""The processes that run one simulation: one process, or several that exchange sums once a round."""

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
    """What processes ask for after a round."""

    stop: bool = False
    save: bool = False  # a checkpoint is due
    alarm: bool = False  # a step released something that no plan covers


Alarm: TypeAlias = Callable[[Mapping[int, Step]], bool]
"""Whether the steps of some agents, by index, must stop all processes."""


def no_alarm(steps: Mapping[int, Step]) -> bool:
    """Return False: no step is checked."""
    return False


class ReducedUpdates(NamedTuple):
    """The updates of all agents, summed over all processes."""

    received: Received
    noise: Array  # [R]  mean |xi| over the agents
    residual: Callable[[Array], Array]  # model [J, R, K] -> consensus residual [R]


class ProcessGroup(Protocol):
    """The processes of one simulation. All of them make the same calls in the same order."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""

    @property
    def is_main(self) -> bool:
        """Whether this is process 0, which writes files, evaluates and reports."""

    def partition(self, agents: int) -> Sequence[range]:
        """Return the block of agents of each process.

        Raises
        ------
        InputError
            If there are more processes than agents.
        """

    def run_on_all(self, work: Callable[[], T]) -> T:
        """Run `work` in every process and return its result here; an error of one process is raised in all."""

    def broadcast(self, work: Callable[[], T]) -> T:
        """Run `work` in process 0 and return its result, or raise its error, in all."""

    def scatter(self, work: Callable[[], Sequence[T]]) -> T:
        """Run `work` in process 0 and return item i of its result in process i."""

    def gather(self, own: T) -> list[T]:
        """Return the values of all processes in process 0, and an empty list in the others."""

    def require_equal(self, what: str, work: Callable[[], Any]) -> None:
        """Raise InputError if `work` has different results in two processes; `what` names it in the message."""

    def all_reduce(self, values: Array) -> Array:
        """Return the sum of the values of all processes."""

    def reduce_updates(self, w: Array, steps: Mapping[int, Step]) -> ReducedUpdates:
        """Combine the steps of the agents of this process with those of the others.

        Parameters
        ----------
        w
            The model [J, R, K] that the server sent.
        steps
            The steps of this process's agents, by their index.
        """

    def with_requests(self, own: Callable[[], Requests], alarm: Alarm = no_alarm) -> ProcessGroup:
        """Return the same group, in which this process states its requests, and checks its steps, in every round."""

    def requests(self) -> Requests:
        """Return what any process requested in the last round."""

    def alarm_raised(self) -> bool:
        """Return whether the steps of the last round must be checked before anything of it is used."""

    def device(self, name: str) -> str:
        """Return the device of this process in a run on device `name`."""

    def cores(self) -> int:
        """Return how many cores this process may use."""


@dataclass(frozen=True)
class SingleProcess:
    """A group of one process, which works on all agents."""

    own: Callable[[], Requests] = Requests
    rank: ClassVar[int] = 0
    is_main: ClassVar[bool] = True

    def partition(self, agents: int) -> Sequence[range]:
        return (range(agents),)

    def run_on_all(self, work: Callable[[], T]) -> T:
        return work()

    def broadcast(self, work: Callable[[], T]) -> T:
        return work()

    def scatter(self, work: Callable[[], Sequence[T]]) -> T:
        return work()[0]

    def gather(self, own: T) -> list[T]:
        return [own]

    def require_equal(self, what: str, work: Callable[[], Any]) -> None:
        """Do nothing: there is no other process."""

    def all_reduce(self, values: Array) -> Array:
        return values

    def reduce_updates(self, w: Array, steps: Mapping[int, Step]) -> ReducedUpdates:
        received = Received.of({p: step.upload for p, step in steps.items()})
        noise = np.mean([step.noise for step in steps.values()], axis=0)
        z = [upload.z for upload in received.uploads.values()]
        return ReducedUpdates(received, noise, lambda model: consensus_residual(model, z))

    def with_requests(self, own: Callable[[], Requests], alarm: Alarm = no_alarm) -> SingleProcess:
        return SingleProcess(own)

    def requests(self) -> Requests:
        return self.own()

    def alarm_raised(self) -> bool:
        """Return True: the steps have not been checked yet."""
        return True

    def device(self, name: str) -> str:
        return name

    def cores(self) -> int:
        return cores()


SINGLE_PROCESS = SingleProcess()


def current_rank() -> int:
    """Return the number of this process among those that torchrun started; 0 if torchrun did not start it."""
    return int(os.environ["RANK"]) if world_size() > 1 else 0


def world_size() -> int:
    """Return how many processes torchrun started; 1 if torchrun did not start this one."""
    started = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()
    return int(os.environ["WORLD_SIZE"]) if started else 1
