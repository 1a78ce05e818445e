"""The parts of benchmarks: timing, the machine, lower bounds, and the plain round."""

from __future__ import annotations

import math
import os
import sys

import numpy as np
import pytest

from taciturn.research.bench.inputs import DENSITY, dense, sparse
from taciturn.research.bench.machine import Machine, observed
from taciturn.research.bench.measured_rounds import grid, plain_rounds, products, read, stored_bytes
from taciturn.research.bench.programs import start_up
from taciturn.research.bench.programs.growth import exponent
from taciturn.research.bench.timing import Options, fastest, time_interleaved
from tests import plain


def test_candidates_take_turns() -> None:
    called: list[str] = []
    said: list[str] = []
    work = {name: (lambda name=name: called.append(name)) for name in "ab"}
    timings = time_interleaved(work, Options(repeats=2, watch=said.append), burst=2, pause=0.0)
    assert "".join(called) == "ab" + "aabb" * 2
    assert [timing.calls for timing in timings.values()] == [4, 4]
    assert all(0.0 <= timing.best <= timing.median for timing in timings.values())
    assert said[0] == "warming up: a" and said[-1] == "turn 2 of 2: b"
    assert fastest(timings, "a", "absent") == timings["a"].best


def test_a_busy_machine_is_named_as_such() -> None:
    assert not Machine(load=0.0).warning()
    assert "load 99.0" in Machine(load=99.0).warning()
    assert "others used 40 %" in Machine(load=0.0, others=0.4).warning()
    with observed() as machine:
        sum(range(10**5))
    assert machine.others is None or machine.others >= 0.0


def test_the_plain_round_reads_the_paper_as_the_tests_do() -> None:
    given = dense(120, features=7, agents=3, classes=4)
    shards = [(np.asarray(shard.x, np.float64), np.asarray(shard.y, np.float64)) for shard in given.shards]
    play = plain_rounds(shards, math.inf)
    for _ in range(4):
        w = play()
    expected = plain.dp_iadmm(
        shards,
        4,
        1,
        lambda t: 2.0,
        lambda t: 1.0 / math.sqrt(t),
        math.inf,
        lambda *_: np.zeros((7, 4)),
    )
    np.testing.assert_allclose(w, expected["w"], rtol=1e-12, atol=1e-15)


def test_the_plain_round_adds_the_papers_noise() -> None:
    """The noise of the first round is Laplace of scale Delta / epsilon: its mean size tells."""
    given = dense(400, features=200, agents=1)
    x, y = np.asarray(given.x, np.float64), np.asarray(given.shards[0].y, np.float64)
    noisy, quiet = plain_rounds([(x, y)], 1e-3), plain_rounds([(x, y)], math.inf)
    for play in (noisy, quiet):
        play()
    _, residual = plain.softmax_gradient(np.zeros((200, 10)), x, y, len(x), 1, 1e-6)
    scale = plain.sensitivity(x, residual, len(x)) / 1e-3
    rho = 2.0 + 5.0 / 1e-3  # w^2 = z^1 - lambda^1 / rho = 2 z^1 up to the gradient, z^1 = -xi / (rho + 1)
    assert np.abs(noisy()).mean() == pytest.approx(2.0 * scale / (rho + 1.0), rel=0.1)


def test_synthetic_records_are_as_dense_as_mnist() -> None:
    given = sparse(500)
    assert (given.x > 0).mean() == pytest.approx(DENSITY, abs=0.005)
    assert given.x.max() <= 1.0 and np.array_equal(np.rint(255 * given.x), 255 * given.x)
    assert given.shape == (10, 500, 784, 10)
    assert 0 < stored_bytes(given.shards) <= given.x.nbytes
    assert stored_bytes(dense(90, 8).shards) == 90 * 8 * 4


def test_floors_do_the_work_they_stand_for() -> None:
    x = np.ones((6, 4), np.float32)
    for work in products(x, 3).values():
        scores, gradient = work()
        assert scores.shape == (6, 3) and gradient.shape == (4, 3)
    assert sum(len(np.atleast_1d(part)) for part in read(8000)()) >= 1


def test_growth_is_a_power() -> None:
    assert exponent((1, 2, 4), (3.0, 12.0, 48.0)) == pytest.approx(2.0)
    assert grid((1.0, 2.0), 2) == ([1.0, 1.0, 2.0, 2.0], [1, 2, 1, 2])


def test_the_memory_of_a_command_is_its_own() -> None:
    """Not that of the process which starts it: Linux carries the peak over to a new program."""
    held = bytearray(400_000_000)
    held[::4096] = b"x" * len(held[::4096])
    found = start_up._measured((sys.executable, "-c", "pass"), dict(os.environ))
    assert 5e6 < found.peak_bytes < 100e6 < len(held)
