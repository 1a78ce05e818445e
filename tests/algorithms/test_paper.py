"""The library agrees with an independent, plain implementation of the paper."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator, Philox

from taciturn.objectives import LOSSES, REGULARISERS, SETS
from taciturn.training.simulate import Round
from taciturn.types import Array
from tests import plain
from tests.random_problems import J, K, build, close, problem, run, shards, varying

ROUNDS = 40


def laplace(seed: int) -> Any:
    """Keyed noise, computed from its definition."""

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
        varying(0.05),
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
        [(part.x, part.y) for part in parts], ROUNDS, varying(0.05), epsilon, 1e-6, normal, level, bound=bound
    )
    assert close(found.w[:, 0], expected["w"], 1e-9)
    assert found.noise[0] == pytest.approx(expected["noise_mean"][-1], rel=1e-9)


PROBLEMS = st.fixed_dictionaries(
    {
        "loss": st.sampled_from(list(LOSSES)),
        "regulariser": st.sampled_from(list(REGULARISERS)),
        "feasible": st.sampled_from(list(SETS)),
        "beta": st.sampled_from([0.0, 0.01, 1.0]),
    }
)


@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4), of=PROBLEMS)
def test_iadmm_is_dp_iadmm_without_noise_and_with_one_update(seed: int, sizes: list[int], of: dict[str, Any]) -> None:
    parts = shards(seed, tuple(sizes))
    shared = problem(parts, **of)
    np.testing.assert_array_equal(
        run(build("iadmm", shared, [math.inf]), parts, (1,), 8).w,
        run(build("objpm", shared, [math.inf], local_updates=1), parts, (1,), 8).w,
    )


@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4), of=PROBLEMS)
def test_batched_runs_equal_single_runs_on_any_problem(seed: int, sizes: list[int], of: dict[str, Any]) -> None:
    """To 1e-12 relative in float64, with identical noise; the hinge's maximiser may flip where scores nearly tie."""
    parts = shards(seed, tuple(sizes))
    shared = problem(parts, **of)
    budgets, seeds = [0.5, math.inf, 2.0], (seed, 7, 8)
    together = run(build("objpm", shared, budgets, local_updates=2), parts, seeds, 4)
    for r in range(3):
        alone = run(build("objpm", shared, [budgets[r]], local_updates=2), parts, (seeds[r],), 4)
        assert close(together.w[:, r], alone.w[:, 0], 1e-12)
        assert together.noise[r] == pytest.approx(alone.noise[0], rel=1e-12)


@pytest.mark.parametrize("epsilon", [math.inf, 0.5])
@pytest.mark.parametrize("radius", ["constant", "decreasing"])
def test_trust_region_follows_its_formula(radius: str, epsilon: float) -> None:
    """z = clip((rho w + lambda - g - xi) / rho, z - d, z + d), round by round, with the noise made here."""
    parts = shards(8)
    of = problem(parts)
    algorithm = build("objt", of, [epsilon], rho=0.5, radius=radius, radius_scale=0.3)
    z: list[Array] = [np.zeros((J, 1, K)) for _ in parts]
    lam: list[Array] = [np.zeros((J, 1, K)) for _ in parts]

    def check(done: Round) -> None:
        rho, d = varying(0.5)(done.t), 0.3 if radius == "constant" else 0.3 / done.t**2
        for p, agent in enumerate(done.state.agents):
            residual = of.loss.residual(np.einsum("nj,jrk->nrk", parts[p].x, z[p]), parts[p].y)
            g, scale = (
                of.gradient(z[p], parts[p]).value,
                plain.sensitivity(parts[p].x, residual[:, 0], of.records) / epsilon,
            )
            xi = scale * laplace(4)(p, done.t, 0, (J, K))[:, None]
            z[p] = np.clip((rho * done.w + lam[p] - g - xi) / rho, z[p] - d, z[p] + d)
            lam[p] = lam[p] + rho * (done.w - z[p])
            np.testing.assert_allclose(agent.z, z[p], rtol=1e-12, atol=1e-15)
            np.testing.assert_allclose(agent.lam, lam[p], rtol=1e-12, atol=1e-15)

    run(algorithm, parts, (4,), 5, watch=check)


def test_averages_are_the_theorems() -> None:
    """The test collects every iterate from the gradient calls, and averages them by definition."""
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
