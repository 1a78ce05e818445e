"""The library against an independent plain reading of the paper."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator, Philox

from tacit.types import Array
from tests import plain
from tests.random_problems import J, K, build, close, problem, run, shards

ROUNDS = 40


def laplace(seed: int) -> Any:
    """The keyed noise, made here from its definition."""

    def draw(p: int, t: int, e: int, shape: tuple[int, ...]) -> Array:
        return Generator(Philox(key=[seed, p], counter=[0, 0, e, t])).laplace(size=shape)

    return draw


@pytest.mark.parametrize("epsilon", [math.inf, 0.5])
@pytest.mark.parametrize("box", [None, 0.05])
@pytest.mark.parametrize(("name", "updates"), [("objp", 1), ("objpm", 10)])
def test_algorithm_1_equals_the_plain_implementation(
    name: str, updates: int, box: float | None, epsilon: float
) -> None:
    parts = shards(7, (40, 30, 50))
    of = problem(parts, beta=1e-6, feasible="box" if box else "all", size=box or 1.0)
    found = run(build(name, of, [epsilon], rho=0.05, eta=2.0), parts, (11,), ROUNDS)
    expected = plain.dp_iadmm(
        [(part.x, part.y) for part in parts],
        ROUNDS,
        updates,
        lambda t: 0.05,
        lambda t: 2.0 / math.sqrt(t),
        epsilon,
        laplace(11),
        box=(-box, box) if box else None,
    )
    assert close(found.w[:, 0], expected["w"], 1e-9)
    for p, agent in enumerate(found.state.agents):
        assert close(agent.lam[:, 0], expected["lam"][p], 1e-9)
    assert found.noise[0] == pytest.approx(expected["noise_mean"][-1], rel=1e-9)
    assert found.state.averages is not None
    assert close(found.state.averages.w_plain[:, 0], expected["w_average"], 1e-9)


@pytest.mark.parametrize("epsilon", [math.inf, 0.5])
@pytest.mark.parametrize("level", ["published", "published-formula", "calibrated"])
def test_outp_equals_the_plain_implementation(level: str, epsilon: float) -> None:
    parts = shards(7, (40, 30, 50))
    bound = math.sqrt(J)
    of = problem(parts, beta=1e-6)
    found = run(build("outp", of, [epsilon], rho=0.05, outp_noise=level, record_bound=bound), parts, (11,), ROUNDS)

    def normal(p: int, t: int, shape: tuple[int, ...]) -> Array:
        return Generator(Philox(key=[11, p], counter=[0, 0, 0, t])).standard_normal(shape)

    expected = plain.outp(
        [(part.x, part.y) for part in parts], ROUNDS, lambda t: 0.05, epsilon, 1e-6, normal, level, bound=bound
    )
    assert close(found.w[:, 0], expected["w"], 1e-9)
    assert found.noise[0] == pytest.approx(expected["noise_mean"][-1], rel=1e-9)


def test_iadmm_is_dp_iadmm_without_noise_and_with_one_update() -> None:
    parts = shards(8)
    for feasible in ("all", "box", "l2-ball"):
        of = problem(parts, feasible=feasible)
        np.testing.assert_array_equal(
            run(build("iadmm", of, [math.inf]), parts, (1,), 50).w,
            run(build("objpm", of, [math.inf], local_updates=1), parts, (1,), 50).w,
        )


def test_trust_region_follows_its_formula() -> None:
    """By hand for one round from zero: z = clip((rho w + lambda - g) / rho, -d, d), with both radii."""
    parts = shards(8)
    of = problem(parts)
    for radius, d in (("constant", [0.01] * 3), ("decreasing", [0.01 / t**2 for t in (1, 2, 3)])):
        algorithm = build("objt", of, [math.inf], rho=0.5, radius=radius, radius_scale=0.01)
        before: list[Array] = [np.zeros((J, 1, K)) for _ in parts]
        lam: list[Array] = [np.zeros((J, 1, K)) for _ in parts]

        def check(done: Any, d: list[float] = d, before: list[Array] = before, lam: list[Array] = lam) -> None:
            for p, agent in enumerate(done.state.agents):
                g = of.gradient(before[p], parts[p]).value
                z = np.clip((0.5 * done.w + lam[p] - g) / 0.5, before[p] - d[done.t - 1], before[p] + d[done.t - 1])
                np.testing.assert_allclose(agent.z, z, rtol=1e-14, atol=1e-18)
                before[p], lam[p] = agent.z, agent.lam

        run(algorithm, parts, (1,), 3, watch=check)


def test_averages_are_the_theorems() -> None:
    """Every iterate is collected through the gradient it is asked for, and averaged here by definition."""
    parts = shards(9)
    of = problem(parts)
    updates, rounds = 4, 6
    seen: list[Array] = []

    class Spy:
        def __getattr__(self, name: str) -> Any:
            return getattr(of, name)

        def gradient(self, z: Array, shard: Any) -> Any:
            seen.append(z)
            return of.gradient(z, shard)

    spy: Any = Spy()
    models: list[Array] = []
    algorithm = build("objpm", spy, [0.7], local_updates=updates)
    last = run(algorithm, parts, (3,), rounds, watch=lambda done: models.append(done.w))
    iterates = np.array(seen).reshape(rounds, len(parts), updates, J, 1, K)  # z^{t,e}
    ends = np.array([agent.z for agent in last.state.agents])
    after = np.concatenate([iterates[:, :, 1:], np.concatenate([iterates[1:, :, :1], ends[None, :, None]])], axis=2)
    t = np.arange(1, rounds + 1)
    weights = 2 * t / (rounds * (rounds + 1))
    averages = last.state.averages
    assert averages is not None
    np.testing.assert_allclose(averages.w_plain, np.mean(models, axis=0), rtol=1e-12)
    np.testing.assert_allclose(averages.w_weighted, np.tensordot(weights, np.array(models), 1), rtol=1e-12)
    np.testing.assert_allclose(averages.z_smooth, after.mean(axis=(0, 2)), rtol=1e-12)
    np.testing.assert_allclose(averages.z_nonsmooth, iterates.mean(axis=(0, 2)), rtol=1e-12)
    np.testing.assert_allclose(averages.z_strong, np.tensordot(weights, iterates.mean(axis=2), 1), rtol=1e-12)
