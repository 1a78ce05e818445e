"""Methods with aggregate noise: their steps, what their sums reveal, and how far a step may go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from taciturn.algorithms import ALGORITHMS, Algorithm, AlgorithmConfig
from taciturn.algorithms.noisy_gradient import CertifiedGradient
from taciturn.algorithms.schedules import Constant
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.objectives.clipping import GradientClipping
from taciturn.privacy.accountants.gdp import gdp
from taciturn.privacy.events import NON_PRIVATE, Noise
from taciturn.privacy.mechanisms import Calibrated
from taciturn.privacy.noise import NoiseSource, SeededNoise
from taciturn.training.simulate import Round, simulate, start
from taciturn.types import Array, Shard
from tests.random_problems import J, K, build, problem, run, shards, varying

SUMMED = [name for name in ALGORITHMS if ALGORITHMS[name].allows_aggregate_noise]


def test_only_these_methods_allow_noise_on_the_sum() -> None:
    assert {"additive", "dpgd", "objw", "dpsgd"} == set(SUMMED)


# ---- the steps, written by hand


def by_hand(name: str, parts: list[Shard], seed: int, rounds: int) -> tuple[Array, Array]:
    """w and every z of the last round, with softmax gradients record by record."""
    w = np.zeros((J, K))
    records, beta, bound, std = sum(len(part.x) for part in parts), 0.01, 1.5, 0.02
    z, lam = np.zeros((len(parts), J, K)), np.zeros((len(parts), J, K))
    for t in range(1, rounds + 1):
        rho, eta = varying(0.5)(t), 1.0 / np.sqrt(t)
        w = (z - lam / rho).mean(axis=0)
        for p, part in enumerate(parts):
            g = 2.0 * beta / len(parts) * w
            for x, y in zip(part.x, part.y, strict=True):
                short = x * min(1.0, bound / np.linalg.norm(x))
                h = np.exp(short @ w) / np.exp(short @ w).sum()
                g = g + np.outer(short, h - y) / records
            noisy = g + SeededNoise((seed,), p, t).continuous(0, "gaussian", np.array([std]), np.zeros((J, 1, K)))[:, 0]
            if name == "dpgd":
                z[p] = w - eta * noisy
            else:
                z[p] = (rho * w + lam[p] + z[p] / eta - noisy) / (rho + 1.0 / eta)
                lam[p] = lam[p] + rho * (w - z[p])
    return w, z


@pytest.mark.parametrize("name", ["dpgd", "objw"])
def test_each_method_follows_its_equation(name: str) -> None:
    parts = shards(3)
    done = run(build(name, problem(parts), [0.5]), parts, (7,), 9)
    w, z = by_hand(name, parts, 7, 9)
    np.testing.assert_allclose(done.w[:, 0], w, rtol=1e-10)
    np.testing.assert_allclose(done.state.server.z[:, :, 0], z, rtol=1e-10)


def test_dpgd_without_noise_is_gradient_descent_on_all_records() -> None:
    """Of P agents with step eta, and of one with all records and eta / P."""
    parts = shards(4)
    whole = [Shard(np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts]))]
    apart = run(build("dpgd", problem(parts), [np.inf], eta=3.0), parts, (1,), 20)
    pooled = run(build("dpgd", problem(whole), [np.inf], eta=1.0), whole, (1,), 20)
    np.testing.assert_allclose(apart.w, pooled.w, rtol=1e-10)


# ---- what sums tell, exactly: transcripts of a linear step with Gaussian noise are Gaussian

LITTLE = 1e-7  # impulses that leave every gradient on its own side of the clip


@dataclass(frozen=True)
class Impulse:
    """Every run has the noise of one agent in one round, and nothing else."""

    agent: int
    round: int
    agents: int

    def continuous(self, update: int, mechanism: str, scale: Array, like: Array) -> Array:
        xi = np.zeros_like(like)
        if like.shape[1] > 1:
            xi[0, (self.round - 1) * self.agents + self.agent, 0] = LITTLE
        return xi


@dataclass(frozen=True)
class Example:
    """Agents with squared losses of curvature h, and one that has only the canary, which the clip holds on to."""

    name: str
    agents: int = 10  # P
    rounds: int = 10  # T
    rho: float = 0.02
    eta: float = 2.0
    records: int = 1000  # I
    clip: float = 1.0

    def sums(self, canary: int, runs: int) -> Array:
        """The sum of what is sent in every round, [T, R]."""
        others = (self.records - 1) // (self.agents - 1)  # 111, each of length 3: h = 0.999
        parts = [Shard(np.ones((canary, 1)), np.full((canary, 1), 1e3))]
        parts += [Shard(np.full((others, 1), 3.0), np.zeros((others, 1)))] * (self.agents - 1)
        before = start(parts, runs, "sums", averages=False)
        played = simulate(self.algorithm(runs), parts, self.noise, self.rounds, before)
        return np.array([done.state.server.z[0, :, 0] for done in played])

    def algorithm(self, runs: int) -> Algorithm:
        one = np.ones(runs)
        of = Problem(LOSSES["squared"](), REGULARISERS["l2"](), 0.0, SETS["all"](1.0), self.records, self.agents)
        limit = GradientClipping(self.clip * one, np.inf * one)
        release = CertifiedGradient(limit, Calibrated("gaussian", (Noise("gaussian", 1.0, 1.0, 1.0),) * runs))
        return ALGORITHMS[self.name].build(
            AlgorithmConfig(of, one, Constant(self.rho, one), Constant(self.eta, one), release)
        )

    def noise(self, agent: int, t: int) -> NoiseSource:
        return Impulse(agent, t, self.agents)  # type: ignore[return-value]

    def undercount(self) -> float:
        """The true mu of all sums over what T releases of one sum are charged, with shares of 1 / sqrt(P)."""
        quiet = self.sums(0, 1)
        apart = (self.sums(1, 1) - quiet)[:, 0]
        heard = (self.sums(0, self.agents * self.rounds) - quiet) / LITTLE
        mu = np.sqrt(apart @ np.linalg.solve(heard @ heard.T / self.agents, apart))
        return float(mu / (np.sqrt(self.rounds) * self.clip / self.records))


@pytest.mark.parametrize(
    ("name", "eta", "undercount"), [("dpgd", 0.5, 1.0), ("dpgd", 2.0, 1.0), ("objw", 0.5, 1.0), ("objp", 0.5, 2.287)]
)
def test_with_the_gradient_at_w_sums_reveal_exactly_what_is_charged(name: str, eta: float, undercount: float) -> None:
    assert Example(name, eta=eta).undercount() == pytest.approx(undercount, abs=1e-3)


def test_sums_of_objp_reveal_almost_three_times_what_composition_charges() -> None:
    """The page's example, with total epsilon 1 at delta 1e-6."""
    undercount = Example("objp").undercount()
    assert undercount == pytest.approx(2.809, abs=1e-3)
    assert epsilon(42.246) == pytest.approx(1.0, abs=1e-3)
    assert epsilon(42.246 / undercount) == pytest.approx(3.09, abs=0.01)


def epsilon(multiplier: float) -> float | None:
    return gdp({Noise("gaussian", multiplier, 1.0, 1.0): 100}, 1e-6)


# ---- how far a step may go


def test_the_mean_of_objw_takes_its_gradient_one_step_ahead() -> None:
    """m⁺ = m - g(w) / (rho + 1 / eta), and w is m and its last step once more, times rho of that step over rho now."""
    parts = shards(5)
    of = problem(parts)
    seen: list[Round] = []
    run(build("objw", of, [np.inf], eta=0.7), parts, (1,), 12, watch=seen.append)
    means = [np.zeros((J, 1, K)), *(done.state.server.z.mean(axis=0) for done in seen)]
    for t, done in enumerate(seen, 1):
        rho, before = varying(0.5)(t), varying(0.5)(t - 1)
        ahead = means[t - 1] + (before / rho if t > 1 else 0.0) * (means[t - 1] - means[max(t - 2, 0)])
        np.testing.assert_allclose(done.w, ahead, rtol=1e-9, atol=1e-14)
        g = sum(of.gradient(done.w, bounded(part)).value for part in parts) / len(parts)
        stepped = means[t - 1] - g / (rho + np.sqrt(t) / 0.7)
        np.testing.assert_allclose(means[t], stepped, rtol=1e-9, atol=1e-14)


def bounded(part: Shard) -> Shard:
    return Shard(part.x * np.minimum(1.0, 1.5 / part.norm2)[:, None], part.y)


@pytest.mark.parametrize(("name", "reach"), [("objw", 2.0 / 3.0), ("dpgd", 2.0)])
@pytest.mark.parametrize("share", [0.97, 1.03])
def test_on_a_quadratic_objw_is_stable_up_to_a_third_of_the_step_of_gradient_descent(
    name: str, reach: float, share: float
) -> None:
    parts = [Shard(np.ones((n, 1)), np.full((n, 1), y)) for n, y in ((2, 1.0), (5, -1.0), (3, 0.5))]
    of = Problem(LOSSES["squared"](), REGULARISERS["l2"](), 0.0, SETS["all"](1.0), 10, 3)
    step, one = share * reach * 3.0, np.ones(1)  # the mean over three agents of curvatures that add up to 1 is 1/3
    rho, eta = (0.25 / step, step / 0.75) if name == "objw" else (1.0, step)  # 1 / (rho + 1 / eta) = step
    release = CertifiedGradient(GradientClipping(1e9 * one, np.inf * one), Calibrated("gaussian", (NON_PRIVATE,)))
    algorithm = ALGORITHMS[name].build(AlgorithmConfig(of, one, Constant(rho, one), Constant(eta, one), release))
    far = [abs(float(done.w[0, 0, 0]) + 0.15) for done in list(rounds(algorithm, parts))]
    assert (far[-1] < 1e-3 * far[0]) == (share < 1.0) and (far[-1] > 1e3 * far[0]) == (share > 1.0)


def rounds(algorithm: Algorithm, parts: list[Shard]) -> list[Round]:
    return list(simulate(algorithm, parts, lambda p, t: SeededNoise((1,), p, t), 300, start(parts, 1, "full", False)))
