"""A simulation on several processes: the ranks that torchrun started, which meet by torch.distributed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
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
    calm,
    ranks_here,
)
from taciturn.types import Array

T = TypeVar("T")

LOST = "a rank has ended, and the others cannot go on without it: 'taciturn resume' goes on from the last checkpoint"
PATIENCE = timedelta(minutes=30)  # for the slowest rank: it may be loading, or writing the report
NOTHING = Requests()
Reason: TypeAlias = tuple[type[TaciturnError | PrivacyViolation], str]
_joined = count()


@contextmanager
def current_process_group() -> Iterator[ProcessGroup]:
    """The ranks this process is one of, where torchrun started it; else it works alone."""
    if ranks_here() < 2:
        yield SINGLE_PROCESS
        return
    torch, dist = _torch()
    if torch.cuda.is_available():
        torch.cuda.set_device(_local("RANK", 0) % torch.cuda.device_count())
    with _lost("the ranks did not come together: the launcher must start all of them at the same address"):
        store, rank, size = next(dist.rendezvous("env://", timeout=PATIENCE))
        store = dist.PrefixStore(f"taciturn-{next(_joined)}", store)  # a script may run one study after the other
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    try:
        yield TorchProcessGroup(dist, rank, size)
    finally:
        dist.destroy_process_group()


@dataclass
class TorchProcessGroup:
    """One of several processes that work at the agents in blocks; they meet in one all-reduce a round."""

    dist: Any  # torch.distributed, joined
    rank: int
    size: int
    wish: Callable[[], Requests] = Requests
    alarm: Alarm = calm
    heard: Requests = NOTHING

    @property
    def leads(self) -> bool:
        """Whether this is the first rank."""
        return self.rank == 0

    def parts(self, agents: int) -> Sequence[range]:
        """Blocks of agents in their order, whose sizes differ by one at most."""
        if agents < self.size:
            raise InputError(
                f"there are {self.size} ranks, but only {agents} agents: start at most one rank an agent",
                collective=True,
            )
        ends = [agents * rank // self.size for rank in range(self.size + 1)]
        return [range(first, last) for first, last in pairwise(ends)]

    def together(self, work: Callable[[], T]) -> T:
        """The work, or the first rank's reason against it."""
        done: list[T] = []
        said = None
        try:
            done.append(work())
        except (TaciturnError, PrivacyViolation) as error:
            said = type(error), str(error)
        found = [(rank, *one) for rank, one in enumerate(self._exchanged(said)) if one is not None]
        for rank, kind, sentence in sorted(found, key=lambda one: one[1] is not PrivacyViolation):  # that one first
            raise _collective(kind, sentence if rank == 0 else f"rank {rank}: {sentence}")
        return done[0]

    def told(self, work: Callable[[], T]) -> T:
        """What rank 0 found, or its reason against it."""
        return self.dealt(lambda: [work()] * self.size)

    def dealt(self, work: Callable[[], Sequence[T]]) -> T:
        """Rank 0's item for this rank, or its reason against it."""
        items: list[tuple[Reason | None, Any]] | None = None
        if self.leads:
            try:
                items = [(None, item) for item in work()]
            except (TaciturnError, PrivacyViolation) as error:
                items = [((type(error), str(error)), None)] * self.size
        own: list[Any] = [None]
        with _lost():
            self.dist.scatter_object_list(own, items, src=0)
        said, item = own[0]
        if said is not None:
            kind, sentence = said
            raise _collective(kind, sentence)
        dealt: T = item
        return dealt

    def collected(self, own: T) -> list[T]:
        """What every rank has, at rank 0."""
        found: list[Any] = [None] * self.size
        with _lost():
            self.dist.gather_object(own, found if self.leads else None, dst=0)
        return found if self.leads else []

    def alike(self, what: str, work: Callable[[], Any]) -> None:
        """Rank 0's result is the measure."""
        first, *others = self._exchanged(work())
        for rank, other in enumerate(others, 1):
            if other != first:
                raise InputError(
                    f"{what} of rank {rank} are not those of rank 0: every rank needs the same", collective=True
                )

    def summed(self, values: Array) -> Array:
        """One all-reduce."""
        return self._added(values)[0]

    def meet(self, w: Array, steps: Mapping[int, Step]) -> ReducedUpdates:
        """The one all-reduce of a round: sums of uploads, figures for residual and noise, and everybody's wishes."""
        own = Received.of({p: step.upload for p, step in steps.items()})
        squares = sum((double(upload.z - w) ** 2).sum(axis=(0, 2)) for upload in own.uploads.values())
        noise = np.sum([step.noise for step in steps.values()], axis=0)
        wishes = self.wish()._replace(alarm=self.alarm(steps))
        figures = as_like(np.concatenate([noise, [own.answered, *wishes]]), own.total.z)
        *fields, squares, figures = self._added(*own.total, squares, figures)
        *sizes, agents, stop, save, alarm = to_numpy(figures)
        self.heard = Requests(bool(stop), bool(save), bool(alarm))
        received = Received(own.uploads, type(own.total)(*fields), int(agents))
        return ReducedUpdates(received, np.array(sizes) / agents, partial(_residual, w, received, squares))

    def heeding(self, wish: Callable[[], Requests], alarm: Alarm = calm) -> TorchProcessGroup:
        """With this rank's wishes."""
        return replace(self, wish=wish, alarm=alarm, heard=NOTHING)

    def alarmed(self) -> bool:
        """Whether any rank found an alarming step in the last all-reduce."""
        return self.heard.alarm

    def wishes(self) -> Requests:
        """Those any rank had in the last all-reduce."""
        return self.heard

    def device(self, name: str) -> str:
        """Every rank of a machine has a GPU of its own."""
        if name not in ("cpu", "cuda"):
            raise InputError(f"device is {name}, but every rank takes a GPU of its own: use --device cuda")
        return name if name == "cpu" else f"cuda:{_local('RANK', 0)}"

    def cores(self) -> int:
        """Its share of the machine's; torchrun's OMP_NUM_THREADS is one already."""
        return cores() if "OMP_NUM_THREADS" in os.environ else max(1, cores() // _local("WORLD_SIZE", 1))

    def _exchanged(self, own: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        with _lost():
            self.dist.all_gather_object(found, own)
        return found

    def _added(self, *own: Array) -> list[Array]:
        """The sums over all ranks of several arrays, in one all-reduce."""
        flat = namespace(own[0]).concatenate([part.reshape(-1) for part in own])
        with _lost():
            self.dist.all_reduce(import_module("torch").as_tensor(flat))
        ends = np.cumsum([math.prod(part.shape) for part in own])
        return [
            flat[end - math.prod(part.shape) : end].reshape(part.shape) for part, end in zip(own, ends, strict=True)
        ]


def _collective(kind: type[TaciturnError | PrivacyViolation], message: str) -> TaciturnError | PrivacyViolation:
    """The error that every rank raises where one of them raised this."""
    return kind(message, collective=True) if issubclass(kind, TaciturnError) else kind(message)


def _residual(w: Array, received: Received, squares: Array, model: Array) -> Array:
    """||A m - z|| from sums over the agents: sum ||z_p - m||^2 = sum ||z_p - w||^2 - 2 <d, sum (z_p - w)> + P ||d||^2.

    d = m - w is how far the model has moved from the w that was sent.
    """
    xp, agents, moved = namespace(w), received.answered, double(model) - double(w)
    apart = squares - 2.0 * (moved * (received.total.z - agents * double(w))).sum(axis=(0, 2))
    residual: Array = xp.sqrt(xp.clip(apart + agents * (moved**2).sum(axis=(0, 2)), 0.0, None))
    return residual


def _torch() -> tuple[Any, Any]:
    try:
        return import_module("torch"), import_module("torch.distributed")
    except ImportError:
        raise InputError("ranks meet by torch, which is not installed: pip install 'taciturn[torch]'") from None


def _local(name: str, default: int) -> int:
    """What torchrun says of this machine's ranks."""
    return int(os.environ.get(f"LOCAL_{name}", default))


@contextmanager
def _lost(sentence: str = LOST) -> Iterator[None]:
    """Say in a sentence that a rank is gone; torch tells it in its own way."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(f"{sentence} ({str(error).splitlines()[0]})", collective=True) from error
