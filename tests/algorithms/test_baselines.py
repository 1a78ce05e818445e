"""The baselines that the paper names, tested against known properties of each."""

from __future__ import annotations

from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import minimize

from taciturn.algorithms import ALGORITHMS, Agent, Algorithm, AlgorithmConfig
from taciturn.algorithms.noisy_gradient import PaperGradient
from taciturn.algorithms.privacy_costs import PublicParameters
from taciturn.algorithms.schedules import Constant
from taciturn.objectives import Problem
from taciturn.objectives.clipping import GradientClipping, RecordScaling
from taciturn.privacy.accountants import tightest
from taciturn.privacy.mechanisms import LaplaceDataDependent
from taciturn.privacy.noise import SeededNoise
from taciturn.privacy.sensitivity import Sensitivity
from taciturn.types import Array, Shard
from tests.random_problems import J, K, noise_config_for, problem, release_for, run, shards

INF = np.array([np.inf])


def build(name: str, of: Problem, rho: float, eta: float, certified: bool = False, **changes: Any) -> Algorithm:
    """Build the method without noise, with clipping that has no effect, and constant rho and eta."""
    method = ALGORITHMS[name]
    wide = {
        "clipping": RecordScaling(100.0)
        if method.scales_records
        else GradientClipping(np.full(1, 100.0), np.full(1, np.inf))
    }
    made = {"local_updates": method.local_updates or 1, "closing": True} | noise_config_for(name, INF) | wide | changes
    release = release_for("hidden" if certified else name, INF)
    return method.build(AlgorithmConfig(of, INF, Constant(rho, INF), Constant(eta, INF), release, **made))


def pooled_optimum(of: Problem, parts: list[Shard]) -> tuple[Array, float]:
    def objective(flat: Array) -> tuple[float, Array]:
        w = flat.reshape(J, 1, K)
        gradient: Array = sum(of.gradient(w, part).value for part in parts)  # type: ignore[assignment]
        return float(of.total(w, parts)[0]), gradient.ravel()

    found = minimize(objective, np.zeros(J * K), jac=True, method="L-BFGS-B", options={"ftol": 1e-16, "gtol": 1e-12})
    return found.x.reshape(J, 1, K), float(found.fun)


@pytest.mark.parametrize("updates", [1, 3])
def test_fedavg_of_one_agent_is_gradient_descent_to_the_bit(updates: int) -> None:
    parts = shards(3, (11,))
    of = problem(parts)
    done = run(build("fedavg", of, 1.0, 0.7, local_updates=updates), parts, (1,), 20)
    w = np.zeros((J, 1, K))
    for _ in range(20 * updates):
        w = w - 0.7 * of.gradient(w, parts[0]).value
    assert done.w.tobytes() == w.tobytes()


def test_fedavg_with_one_full_step_is_gradient_descent_on_all_records_to_the_bit() -> None:
    """Without rounding: small multiples of powers of two, eight records, four unequal agents."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(-2, 3, (8, J)).astype(float), np.eye(K)[rng.integers(0, K, 8)]
    parts = [Shard(x[a:b], y[a:b]) for a, b in ((0, 1), (1, 4), (4, 6), (6, 8))]
    of = problem(parts, loss="squared", beta=0.25)
    done = run(build("fedavg", of, 1.0, 0.5, local_updates=1), parts, (1,), 5)
    w = np.zeros((J, 1, K))
    whole = Problem(of.loss, of.regulariser, of.beta, of.feasible, 8, 1)
    for _ in range(5):
        w = w - 0.5 / 4.0 * whole.gradient(w, Shard(x, y)).value
    assert np.abs(w).max() > 0.0
    assert done.w.tobytes() == w.tobytes()


@pytest.mark.parametrize(
    ("name", "rho", "eta", "rounds", "changes", "close"),
    [
        ("fedavg", 1.0, 3.0, 800, {"local_updates": 1}, 1e-9),  # gradient descent: linear convergence
        ("fedprox", 0.05, 3.0, 800, {"local_updates": 1}, 1e-9),
        ("iadmm", 0.1, 3.0, 800, {}, 1e-9),
        ("admm", 0.1, 1.0, 80, {}, 1e-9),
        ("ceadmm", 0.3, 3.0, 400, {"local_updates": 5}, 1e-9),
        ("objpm", 0.1, 3.0, 800, {"local_updates": 3}, 1e-9),
        ("outp", 0.1, 3.0, 800, {"certified": True}, 1e-9),
        ("dp-fedavg", 1.0, 2.0, 800, {"local_updates": 1}, 1e-9),
        ("dp-fedprox", 0.05, 2.0, 800, {"local_updates": 1}, 1e-9),
        ("dpsgd", 1.0, 3.0, 800, {"sampling": 1.0}, 1e-9),
        ("admm-outp", 0.1, 1.0, 80, {}, 1e-9),
        ("admm-objp", 0.1, 1.0, 80, {}, 1e-9),
    ],
)
def test_without_noise_each_reaches_the_pooled_optimum(
    name: str, rho: float, eta: float, rounds: int, changes: dict[str, Any], close: float
) -> None:
    parts = shards(5)
    of = problem(parts, beta=0.05)
    built = build(name, of, rho, eta, **changes)
    best = pooled_optimum(of, parts)[1]
    done = run(built, parts, (1,), rounds)
    assert float(of.total(done.w, parts)[0]) - best < close


@pytest.mark.parametrize("updates", [2, 10])
def test_fedavg_with_many_local_steps_ends_near_the_optimum_and_fedprox_ends_nearer(updates: int) -> None:
    """Agents drift towards their own optima, the more the longer they train (Li et al. 2020)."""
    parts = shards(5)
    of = problem(parts, beta=0.05)
    least = pooled_optimum(of, parts)[1]

    def gap(name: str, rho: float = 1.0) -> float:
        done = run(build(name, of, rho, 3.0, local_updates=updates), parts, (1,), 300)
        return float(of.total(done.w, parts)[0]) - least

    drift, pulled = gap("fedavg"), gap("fedprox", 1.0)
    assert 1e-8 < drift < 0.05
    assert pulled < 0.6 * drift


@pytest.mark.parametrize("name", ["erm-outp", "erm-objp"])
def test_a_curator_solves_the_whole_problem_at_once(name: str) -> None:
    parts = shards(5)
    whole = [Shard(np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]))]
    of = problem(whole, beta=0.05)
    done = run(build(name, of, 1e-9, 1.0, tolerance=1e-9), whole, (1,), 1)
    w, least = pooled_optimum(of, whole)
    assert float(of.total(done.w, whole)[0]) - least < 1e-9
    np.testing.assert_allclose(done.w, w, atol=1e-6)


@pytest.mark.parametrize(("rate", "multiplier", "rounds"), [(0.01, 1.1, 1000), (0.1, 4.0, 300), (1.0, 30.0, 50)])
def test_dpsgd_epsilon_equals_dp_accounting(rate: float, multiplier: float, rounds: int) -> None:
    public = PublicParameters("gaussian", Sensitivity(1.0, 0.01), 1, lambda t: 1.0, lambda t: 1.0, sampling=rate)
    events = ALGORITHMS["dpsgd"].privacy_cost(public, multiplier, rounds)
    theirs = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    renyi = RdpAccountant().compose(theirs, rounds).get_epsilon(1e-6)
    pld = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-4).compose(theirs, rounds).get_epsilon(1e-6)
    ours = tightest(events, 1e-6).epsilon
    assert ours == pytest.approx(pld, rel=2e-3)
    assert ours <= renyi * (1.0 + 1e-9)


def test_each_record_is_sampled_with_the_given_rate_and_the_mean_is_the_gradient() -> None:
    parts = shards(1, (40,))
    of = problem(parts)
    tight = GradientClipping(np.full(1, 0.5), np.full(1, np.inf))
    built = build("dpsgd", of, 1.0, 1.0, clipping=tight)
    w = np.full((J, 1, K), 0.1)
    zero = np.zeros_like(w)
    steps = [
        w - built.agent_step(t, w, Agent(zero, zero), parts[0], SeededNoise((7,), 0, t)).upload.z
        for t in range(1, 1501)
    ]
    clipped = of.gradient(w, parts[0], tight).value
    spread = np.std(steps, axis=0) / np.sqrt(len(steps))
    assert spread.min() > 0.0
    assert (np.abs(np.mean(steps, axis=0) - clipped) < 5.0 * spread).all()


def test_ceadmm_sends_the_agents_dual_and_mode_paper_charges_every_update() -> None:
    parts = shards(2)
    of = problem(parts)
    budget = np.array([0.5])
    config = AlgorithmConfig(
        of, budget, Constant(1.0, budget), Constant(1.0, budget), PaperGradient(LaplaceDataDependent(budget)),
        local_updates=3,
    )  # fmt: skip
    done = run(ALGORITHMS["ceadmm"].build(config), parts, (1,), 4)
    for p, agent in enumerate(done.state.agents):
        np.testing.assert_array_equal(done.state.server.lam[p], agent.lam)
    assert sum(done.events.values()) == 3 * len(parts)
