"""The reference without privacy of a table: what it solves, from where, and with how many threads."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_info, threadpool_limits

from taciturn.algorithms import pooled_optimum
from taciturn.algorithms.additive import coordinates
from taciturn.algorithms.base import Agent
from taciturn.algorithms.pooled_optimum import PooledOptimum
from taciturn.algorithms.schedules import Constant
from taciturn.data import apply_feature_map, load, read_schema
from taciturn.data.feature_mapping import schema_shape
from taciturn.data.feature_maps.bins import KNOTS, hat_functions, mapped_blocks
from taciturn.kernels.library import library
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.objectives.passes import COMPILED, CompiledPasses, Passes
from taciturn.privacy.noise import SeededNoise
from taciturn.settings import resolve
from taciturn.types import Array, ColumnBlock, Shard, pool

HEART = Path(__file__).parents[2] / "examples" / "heart"
NUMBER = ColumnBlock("ordered", len(KNOTS), False)


def records(u: Array, y: Array) -> Shard:
    """Records with these numbers in [0, 1], [n, columns], as the map bins returns them, and the intercept."""
    level = 1.0 / np.sqrt(2.0 * u.shape[1])
    hats = [level * hat_functions(column) for column in u.T]
    return Shard(np.column_stack([*hats, np.full(len(u), np.sqrt(0.5))]), y)


def step_from(u: Array) -> Array:
    """One-hot labels that follow the first column."""
    chance = 1.0 / (1.0 + np.exp(-8.0 * (u[:, 0] - 0.5)))
    labels: Array = np.eye(2)[(np.random.default_rng(1).random(len(u)) < chance).astype(int)]
    return labels


def method(shard: Shard, columns: int, passes: Passes = COMPILED) -> PooledOptimum:
    loss = LOSSES["softmax" if shard.y.shape[1] > 1 else "squared"]()
    problem = Problem(loss, REGULARISERS["l2"](), 1e-6, SETS["all"](1.0), len(shard.x), 1, passes)
    step = Constant(1.0, np.ones(1))
    return PooledOptimum(problem, step, step, (NUMBER,) * columns)


def solved(of: PooledOptimum, shard: Shard) -> Array:
    """The optimum of one party's records, [J, K]."""
    zero = np.zeros((shard.x.shape[1], 1, shard.y.shape[1]))
    found: Array = of.agent_step(1, zero, Agent(zero, zero), shard, SeededNoise((1,), 0, 1)).upload.z[:, 0]
    return found


def test_levels_that_no_record_has_are_not_solved() -> None:
    """A number with five values has four contrasts; all else in the column's 63 parameters is 0 at the minimum."""
    u = np.random.default_rng(0).integers(0, 5, (300, 3)) / 4.0
    shard = records(u, step_from(u))
    basis = method(shard, 3)._basis(shard, 1.0)
    assert len(basis.curvatures) <= 3 * 5 + 1
    assert basis.coefficients(np.zeros((len(basis.curvatures), 2))).shape == (3 * len(KNOTS) + 1, 2)


def test_a_column_with_one_level_is_solved() -> None:
    shard = Shard(np.ones((60, 1)), step_from(np.full((60, 1), 0.9)))
    of = replace(method(shard, 1), blocks=(ColumnBlock("categories", 1, False),))
    np.testing.assert_allclose(solved(of, shard), 0.0, atol=1e-12)


def test_straight_lines_are_penalised_less_than_bends() -> None:
    """Where the truth is linear, curves are straight; where it bends, they bend."""
    rng = np.random.default_rng(3)
    u, new = rng.random((1500, 12)), rng.random((3000, 12))
    slopes = rng.normal(size=12)
    bent = replace(records(u, u), y=np.sin(9.0 * u[:, :1]) / 4.0 + 0.5 + 0.1 * rng.normal(size=(1500, 1)))
    line = replace(bent, y=(u - 0.5) @ slopes[:, None] / 4.0 + 0.5 + 0.3 * rng.normal(size=(1500, 1)))
    missed = records(new, new).x @ solved(method(line, 12), line) - ((new - 0.5) @ slopes[:, None] / 4.0 + 0.5)
    assert float(np.sqrt((missed**2).mean())) < 1.3 * 0.3 * math.sqrt(13 / 1500)  # 1: least squares of 13 parameters
    missed = records(new, new).x @ solved(method(bent, 12), bent) - (np.sin(9.0 * new[:, :1]) / 4.0 + 0.5)
    assert float(np.sqrt((missed**2).mean())) < 0.05


@pytest.mark.parametrize("bends", [1.0, 100.0])
def test_it_is_the_minimum_that_another_solver_finds(monkeypatch: pytest.MonkeyPatch, bends: float) -> None:
    """On the patients of heart scikit-learn's logistic regression has the same scores, in the same map and penalty."""
    given = {"data": str(HEART / "heart.csv"), "schema": str(HEART / "schema.toml"), "test_share": 0.25}
    schema, options = read_schema(HEART / "schema.toml"), resolve(given | {"features": "bins"}).data_options(1)
    dataset = apply_feature_map(load(options), options, schema_shape(schema))
    shard, test, blocks = pool(dataset.train), dataset.test, mapped_blocks(schema.blocks)
    assert test is not None
    of, like = replace(method(shard, 1), blocks=blocks), np.zeros((shard.x.shape[1], 2))
    monkeypatch.setattr(pooled_optimum, "BENDS", (bends,))
    scores = test.x @ solved(of, shard)
    ridge = of._chosen(shard, like, 1.0).ridge

    level = coordinates(np.ones(like.shape[0] - 1), blocks, True).level
    code = coordinates(shard.x[:, :-1].mean(axis=0, dtype=np.float64) / level, blocks, True)
    turn = np.eye(len(like))
    for block, rows, part in zip(blocks, code.columns, code.blocks, strict=True):
        if block.kind == "ordered":  # |P^(1/2) v|^2 with P = 1 along the curve that is straight, and bends across it
            levels = block.width - block.missing
            places = KNOTS if levels == len(KNOTS) else np.arange(levels)
            line, steps = np.zeros(block.width), np.arange(levels - 1)
            line[steps] = np.linalg.lstsq(np.diff(part[:levels, : levels - 1], axis=0), np.diff(places), rcond=None)[0]
            across = np.eye(block.width) - np.outer(line, line) / (line @ line)
            across[levels - 1 :] = 0.0  # of a missing value
            turn[rows, rows] = np.linalg.inv(np.eye(block.width) + (math.sqrt(bends) - 1.0) * across)
    turn[-1, -1] = math.sqrt(ridge / pooled_optimum.CONSTANT_RIDGE)
    other = LogisticRegression(C=2.0 / ridge, fit_intercept=False, tol=1e-8, max_iter=10_000)  # half for each class
    other.fit(code.recode(shard.x) @ turn, shard.y[:, 1])
    expected, truth = other.decision_function(code.recode(test.x) @ turn), test.y[:, 1]
    np.testing.assert_allclose(scores[:, 1] - scores[:, 0], expected, atol=0.02)
    assert abs(roc_auc_score(truth, scores[:, 1] - scores[:, 0]) - roc_auc_score(truth, expected)) < 0.002


def test_the_last_fit_starts_from_those_of_the_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[Any] = []
    plain = PooledOptimum._minimum

    def spied(self: PooledOptimum, *given: Any) -> Array:
        starts.append(given[5] if len(given) > 5 else None)
        return plain(self, *given)

    u = np.random.default_rng(0).random((200, 3))
    shard = records(u, step_from(u))
    monkeypatch.setattr(PooledOptimum, "_minimum", spied)
    solved(method(shard, 3), shard)
    assert starts[:5] == [None] * 5 and len(starts) > 10
    assert starts[-1] is not None


@pytest.mark.skipif(library() is None, reason="matrix products have threads where the compiled library is missing")
def test_matrix_products_have_one_thread_while_it_solves() -> None:
    """Threads that wait for the next small product take many times the processor time of the products."""
    seen: set[int] = set()

    class Spy(CompiledPasses):
        def losses_and_sums(self, *given: Any) -> Any:
            seen.update(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
            return super().losses_and_sums(*given)

    u = np.random.default_rng(0).random((60, 1))
    shard = records(u, step_from(u))
    with threadpool_limits(2, user_api="blas"):
        solved(method(shard, 1, Spy()), shard)
    assert seen == {1}
