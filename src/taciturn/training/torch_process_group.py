"""Simulation on several processes (ranks) that torchrun started, by torch.distributed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, partial
from importlib import import_module
from itertools import count, pairwise
from typing import Any, TypeAlias, TypeVar

import numpy as np

from taciturn.algorithms.base import Step
from taciturn.algorithms.server import Received
from taciturn.core.arrays import as_like, double, namespace, to_numpy
from taciturn.errors import InputError, PeerLost, PrivacyViolation, TaciturnError
from taciturn.kernels.threads import cores
from taciturn.training.process_group import (
    SINGLE_PROCESS,
    Alarm,
    ProcessGroup,
    ReducedUpdates,
    Requests,
    no_alarm,
    world_size,
)
from taciturn.types import Array

T = TypeVar("T")

RANK_LOST = "a rank has ended, and the others cannot continue without it; continue with 'taciturn resume'"
TIMEOUT = timedelta(minutes=30)  # for the slowest rank, which may be loading data or writing the report
Failure: TypeAlias = tuple[type[TaciturnError | PrivacyViolation], str]
NO_REQUESTS = Requests()
_groups_joined = count()


@contextmanager
def current_process_group() -> Iterator[ProcessGroup]:
    """Join the process group that torchrun started, or use a single process.

    Yields
    ------
    ProcessGroup
        `SINGLE_PROCESS` where torchrun did not start this process.

    Raises
    ------
    PeerLost
        If the ranks cannot connect to each other.
    InputError
        If torch is not installed.
    """
    if world_size() < 2:
        yield SINGLE_PROCESS
        return
    torch, dist = _torch()
    if torch.cuda.is_available():
        torch.cuda.set_device(_local("RANK", 0) % torch.cuda.device_count())
    with _peer_errors("the ranks could not connect: the launcher must start all of them at the same address"):
        store, rank, size = _meeting_place()
        store = dist.PrefixStore(f"taciturn-{next(_groups_joined)}", store)  # a script may run several studies
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    try:
        yield TorchProcessGroup(dist, rank, size)
    finally:
        dist.destroy_process_group()


@cache
def _meeting_place() -> tuple[Any, int, int]:
    """Return the store of all ranks, this rank and their number.

    The store is kept until the process ends. If rank 0 closed it and opened another one for the next group, a faster
    rank could still reach the first.
    """
    _, dist = _torch()
    store, rank, size = next(dist.rendezvous("env://", timeout=TIMEOUT))
    return store, rank, size


@dataclass
class TorchProcessGroup:
    """One of several processes that each work on a block of agents; a round needs one all-reduce."""

    dist: Any  # torch.distributed, initialised
    rank: int
    size: int
    own: Callable[[], Requests] = Requests
    alarm: Alarm = no_alarm
    last_requests: Requests = NO_REQUESTS

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def partition(self, agents: int) -> Sequence[range]:
        """Return blocks of agents in their order, whose sizes differ by one at most."""
        if agents < self.size:
            raise InputError(
                f"there are {self.size} ranks, but only {agents} agents: start at most one rank an agent",
                collective=True,
            )
        ends = [agents * rank // self.size for rank in range(self.size + 1)]
        return [range(first, last) for first, last in pairwise(ends)]

    def run_on_all(self, work: Callable[[], T]) -> T:
        done: list[T] = []
        failure = None
        try:
            done.append(work())
        except (TaciturnError, PrivacyViolation) as error:
            failure = type(error), str(error)
        failures = [(rank, *one) for rank, one in enumerate(self._all_gather(failure)) if one is not None]
        for rank, kind, message in sorted(failures, key=lambda one: one[1] is not PrivacyViolation):  # that first
            raise _collective(kind, message if rank == 0 else f"rank {rank}: {message}")
        return done[0]

    def broadcast(self, work: Callable[[], T]) -> T:
        return self.scatter(lambda: [work()] * self.size)

    def scatter(self, work: Callable[[], Sequence[T]]) -> T:
        items: list[tuple[Failure | None, Any]] | None = None
        if self.is_main:
            try:
                items = [(None, item) for item in work()]
            except (TaciturnError, PrivacyViolation) as error:
                items = [((type(error), str(error)), None)] * self.size
        received: list[Any] = [None]
        with _peer_errors():
            self.dist.scatter_object_list(received, items, src=0)
        failure, item = received[0]
        if failure is not None:
            raise _collective(*failure)
        own: T = item
        return own

    def gather(self, own: T) -> list[T]:
        found: list[Any] = [None] * self.size
        with _peer_errors():
            self.dist.gather_object(own, found if self.is_main else None, dst=0)
        return found if self.is_main else []

    def require_equal(self, what: str, work: Callable[[], Any]) -> None:
        first, *others = self._all_gather(work())
        for rank, other in enumerate(others, 1):
            if other != first:
                raise InputError(
                    f"{what} of rank {rank} are not those of rank 0: every rank needs the same", collective=True
                )

    def all_reduce(self, values: Array) -> Array:
        return self._sums(values)[0]

    def reduce_updates(self, w: Array, steps: Mapping[int, Step]) -> ReducedUpdates:
        """Reduce the uploads, the figures for residual and noise, and all requests in one all-reduce."""
        own = Received.of({p: step.upload for p, step in steps.items()})
        squares = sum((double(upload.z - w) ** 2).sum(axis=(0, 2)) for upload in own.uploads.values())
        noise = np.sum([step.noise for step in steps.values()], axis=0)
        requests = self.own()._replace(alarm=self.alarm(steps))
        figures = as_like(np.concatenate([noise, [own.answered, *requests]]), own.total.z)
        *fields, squares, figures = self._sums(*own.total, squares, figures)
        *sizes, agents, stop, save, alarm = to_numpy(figures)
        self.last_requests = Requests(bool(stop), bool(save), bool(alarm))
        received = Received(own.uploads, type(own.total)(*fields), int(agents))
        return ReducedUpdates(received, np.array(sizes) / agents, partial(_residual, w, received, squares))

    def with_requests(self, own: Callable[[], Requests], alarm: Alarm = no_alarm) -> TorchProcessGroup:
        return replace(self, own=own, alarm=alarm, last_requests=NO_REQUESTS)

    def requests(self) -> Requests:
        return self.last_requests

    def alarm_raised(self) -> bool:
        return self.last_requests.alarm

    def device(self, name: str) -> str:
        """Return the GPU of this rank: each rank of a machine has its own."""
        if name not in ("cpu", "cuda"):
            raise InputError(f"--device is {name}, but every rank uses its own GPU; use --device cuda")
        return name if name == "cpu" else f"cuda:{_local('RANK', 0)}"

    def cores(self) -> int:
        """Return this rank's share of the cores; torchrun's OMP_NUM_THREADS is already a share."""
        return cores() if "OMP_NUM_THREADS" in os.environ else max(1, cores() // _local("WORLD_SIZE", 1))

    def _all_gather(self, own: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        with _peer_errors():
            self.dist.all_gather_object(found, own)
        return found

    def _sums(self, *own: Array) -> list[Array]:
        """Return the sums over all ranks of several arrays, in one all-reduce."""
        flat = namespace(own[0]).concatenate([part.reshape(-1) for part in own])
        with _peer_errors():
            self.dist.all_reduce(import_module("torch").as_tensor(flat))
        ends = np.cumsum([math.prod(part.shape) for part in own])
        return [
            flat[end - math.prod(part.shape) : end].reshape(part.shape) for part, end in zip(own, ends, strict=True)
        ]


def _collective(kind: type[TaciturnError | PrivacyViolation], message: str) -> TaciturnError | PrivacyViolation:
    """Return the error that every rank raises where one of them raised an error of this kind."""
    return kind(message, collective=True) if issubclass(kind, TaciturnError) else kind(message)


def _residual(w: Array, received: Received, squares: Array, model: Array) -> Array:
    """Return ||A m - z|| from sums over the agents, where d = m - w.

    sum ||z_p - m||^2 = sum ||z_p - w||^2 - 2 <d, sum (z_p - w)> + P ||d||^2
    """
    xp, agents, change = namespace(w), received.answered, double(model) - double(w)
    apart = squares - 2.0 * (change * (received.total.z - agents * double(w))).sum(axis=(0, 2))
    residual: Array = xp.sqrt(xp.clip(apart + agents * (change**2).sum(axis=(0, 2)), 0.0, None))
    return residual


def _torch() -> tuple[Any, Any]:
    try:
        return import_module("torch"), import_module("torch.distributed")
    except ImportError as error:
        raise InputError("several ranks need torch, which is not installed: pip install 'taciturn[torch]'") from error


def _local(name: str, default: int) -> int:
    """Return torchrun's variable LOCAL_{name}, about the ranks of this machine."""
    return int(os.environ.get(f"LOCAL_{name}", default))


@contextmanager
def _peer_errors(message: str = RANK_LOST) -> Iterator[None]:
    """Raise PeerLost for the RuntimeError by which torch reports a lost rank."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(f"{message} ({str(error).splitlines()[0]})", collective=True) from error
