"""Schedules against their formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from taciturn.algorithms.schedules import Constant, DynamicRho, LevelEta, NonsmoothEta, SmoothEta, StrongEta

EPSILON = np.array([0.05, 1.0, np.inf])


@pytest.mark.parametrize("t", [1, 9999, 10000, 20000, 123456])
def test_dynamic_rho_is_the_papers(t: int) -> None:
    rho = DynamicRho(EPSILON)(t)
    expected = [min(1e9, 2 * 1.2 ** (t // 10000) + 5 / e) for e in EPSILON]
    assert rho.shape == (3, 1)
    np.testing.assert_allclose(rho[:, 0], expected, rtol=1e-14)


def test_dynamic_rho_never_overflows() -> None:
    assert DynamicRho(EPSILON, tc=1)(10**6).tolist() == [[1e9]] * 3


def test_etas_are_the_theorems() -> None:
    t = 7
    np.testing.assert_allclose(
        SmoothEta(EPSILON, 3.0, 2.0)(t)[:, 0], [2 / (3 + math.sqrt(t) / e) for e in EPSILON], rtol=1e-14
    )
    np.testing.assert_allclose(NonsmoothEta(EPSILON, 2.0)(t)[:, 0], 2 / math.sqrt(t), rtol=1e-14)
    np.testing.assert_allclose(StrongEta(EPSILON, 0.5, 2.0)(t)[:, 0], 2 * 2 / (0.5 * 9), rtol=1e-14)
    assert Constant(3.0, EPSILON)(t).tolist() == [[3.0]] * 3


def test_every_run_may_have_its_own_schedule() -> None:
    assert Constant([1.0, 2.0, 3.0], EPSILON)(7).tolist() == [[1.0], [2.0], [3.0]]
    level = LevelEta(EPSILON, 120, [1.0, 2.0, 4.0])  # it falls over the last sixty rounds
    assert level(1).tolist() == level(61).tolist() == [[1.0], [2.0], [4.0]]
    np.testing.assert_allclose(level(91)[:, 0], [0.5, 1.0, 2.0], rtol=1e-14)
    np.testing.assert_allclose(LevelEta(EPSILON, 8, 4.0)(7)[:, 0], 1.0, rtol=1e-14)  # of few rounds all the time
    assert LevelEta(EPSILON, 20, 2.0)(21).tolist() == LevelEta(EPSILON, 20, 2.0)(20).tolist()  # after the last as in it


@pytest.mark.parametrize(
    "schedule",
    [
        Constant(1.0, EPSILON.astype(np.float32)),
        LevelEta(EPSILON.astype(np.float32), 9, [1.0, 2.0, 4.0]),
        DynamicRho(EPSILON.astype(np.float32)),
        SmoothEta(EPSILON.astype(np.float32), 1.0),
        NonsmoothEta(EPSILON.astype(np.float32)),
        StrongEta(EPSILON.astype(np.float32), 1.0),
    ],
)
def test_schedules_keep_the_runs_precision(schedule: Constant) -> None:
    assert schedule(3).dtype == np.float32
