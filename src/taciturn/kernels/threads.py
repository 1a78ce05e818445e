"""Work side by side on the processor's cores, its results in the order it was asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from typing import NamedTuple, TypeVar

A = TypeVar("A")
B = TypeVar("B")


class Share(NamedTuple):
    """What a piece of work may use."""

    threads: int
    total: int  # of all the pieces it is one of
    depth: int = 0  # how many larger pieces of work it is a piece of


_share: ContextVar[Share | None] = ContextVar("share", default=None)


def cores() -> int:
    """How many cores this process may use: those it is bound to, no more than OMP_NUM_THREADS says."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    said = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(bound, int(said))) if said.isdecimal() else bound


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Within it, work uses so many threads."""
    token = _share.set(Share(count, count))
    try:
        yield
    finally:
        _share.reset(token)


def side_by_side(function: Callable[[A], B], items: Sequence[A]) -> Iterator[B]:
    """function of every item; what takes the time must let go of Python's lock.

    Threads that the items leave over are for what each of them does side by side itself.
    """
    if len(items) < 2:
        return map(function, items)
    own = _share.get() or Share(cores(), cores())
    workers = min(own.threads, len(items))
    if workers < 2:
        return map(function, items)
    share = Share(own.threads // workers, own.total, own.depth + 1)

    def work(item: A) -> B:
        _share.set(share)
        return function(item)

    contexts = [copy_context() for _ in items]  # numpy's errstate holds in the threads too
    return _pool(own.depth, own.total).map(lambda context, item: context.run(work, item), contexts, items)


@cache
def _pool(depth: int, total: int) -> ThreadPoolExecutor:
    """A pool for each depth, so that no piece of work waits for a thread that waits for it."""
    return ThreadPoolExecutor(total, thread_name_prefix=f"taciturn-{depth}")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not outlive a fork
