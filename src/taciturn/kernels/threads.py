"""Parallel map over threads, with results in order and nested calls sharing the cores."""

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


class ThreadShare(NamedTuple):
    """The threads that a task may use."""

    threads: int
    total: int  # of the outermost parallel map
    depth: int = 0  # how many parallel maps the task is nested in


_share: ContextVar[ThreadShare | None] = ContextVar("share", default=None)


def cores() -> int:
    """Return the number of cores this process may use: those it is bound to, at most OMP_NUM_THREADS."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(bound, int(limit))) if limit.isdecimal() else bound


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let parallel maps within the block use this many threads."""
    token = _share.set(ThreadShare(count, count))
    try:
        yield
    finally:
        _share.reset(token)


def parallel_map(function: Callable[[A], B], items: Sequence[A]) -> Iterator[B]:
    """Apply a function to every item in threads and yield the results in order.

    The function should release Python's global lock, as numpy and the compiled library do. If there are fewer items
    than threads, parallel maps inside the function share the remaining threads.

    Examples
    --------
    >>> list(parallel_map(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    if len(items) < 2:
        return map(function, items)
    own = _share.get() or ThreadShare(cores(), cores())
    workers = min(own.threads, len(items))
    if workers < 2:
        return map(function, items)
    share = ThreadShare(own.threads // workers, own.total, own.depth + 1)

    def work(item: A) -> B:
        _share.set(share)
        return function(item)

    contexts = [copy_context() for _ in items]  # so that numpy's errstate applies in the threads
    return _pool(own.depth, own.total).map(lambda context, item: context.run(work, item), contexts, items)


@cache
def _pool(depth: int, total: int) -> ThreadPoolExecutor:
    """Return the pool of a nesting depth; one pool per depth avoids a deadlock between nested tasks."""
    return ThreadPoolExecutor(total, thread_name_prefix=f"taciturn-{depth}")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not outlive a fork
