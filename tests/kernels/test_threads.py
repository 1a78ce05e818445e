"""Parallel maps: the order of results, the share of threads, and the context."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from taciturn.kernels.threads import cores, parallel_map, threads


def test_results_come_in_order() -> None:
    with threads(4):
        assert list(parallel_map(lambda i: i * i, range(50))) == [i * i for i in range(50)]


@pytest.mark.parametrize(("count", "items", "inner"), [(4, 2, 2), (4, 8, 1), (1, 3, 1), (8, 1, 8), (6, 4, 1)])
def test_threads_left_over_are_shared_out(count: int, items: int, inner: int) -> None:
    """Return the number of distinct threads that work inside each item at once."""

    def outer(_: int) -> int:
        barrier = threading.Barrier(inner)

        def waiting(_: int) -> str:
            barrier.wait(timeout=60)  # fails unless `inner` of them are here at the same time
            return threading.current_thread().name

        return len(set(parallel_map(waiting, range(inner))))

    with threads(count):
        assert list(parallel_map(outer, range(items))) == [inner] * items


def test_an_error_in_a_thread_is_raised() -> None:
    with threads(2), pytest.raises(ZeroDivisionError):
        list(parallel_map(lambda i: 1 // i, range(3)))


def test_numpys_error_state_holds_in_the_threads() -> None:
    with threads(2), np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        list(parallel_map(lambda i: np.ones(3) / np.zeros(3), range(3)))


def test_omp_num_threads_limits_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert cores() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")
    assert cores() >= 1
