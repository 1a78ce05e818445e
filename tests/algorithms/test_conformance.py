"""Properties of every registered algorithm; a new one is tested without editing this file."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from taciturn.algorithms import ALGORITHMS, Agent, Upload
from taciturn.algorithms.base import AdmmServer, AveragingServer
from taciturn.algorithms.ceadmm import PrimalDual
from taciturn.algorithms.privacy_costs import PublicParameters
from taciturn.errors import InputError
from taciturn.privacy.events import NON_PRIVATE, Nominal
from taciturn.privacy.noise import SeededNoise
from taciturn.privacy.sensitivity import Sensitivity
from taciturn.training.simulate import Round
from taciturn.types import Array
from tests.random_problems import build, close, problem, run, shards

NAMES = [name for name in ALGORITHMS if ALGORITHMS[name].batched]  # tests/algorithms/test_additive.py has the other
MIXED = [0.5, 2.0, np.inf]


PUBLIC = PublicParameters("gaussian", Sensitivity(1.0, 1.0), 4, lambda t: 0.5, lambda t: 1.0, trace=1.0)
EXACT = [name for name in NAMES if ALGORITHMS[name].backends == ("numpy",)]  # they solve, and take their time
NOISE_ON_Z = {"outp", "dp-fedavg", "dp-fedprox"}  # it comes after the projection, so what is sent may lie outside


def test_all_algorithms_that_the_paper_names_are_registered() -> None:
    assert {"admm", "iadmm", "objp", "objpm", "objt", "outp"} <= set(NAMES)
    assert {"fedavg", "fedprox", "ceadmm", "dpsgd", "dp-fedavg", "dp-fedprox"} <= set(NAMES)
    assert {"admm-outp", "admm-objp", "erm-outp", "erm-objp"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_has_a_summary_and_a_guarantee(name: str) -> None:
    method = ALGORITHMS[name]
    for words in (method.summary, method.equation, method.promise, method.reference):
        assert len(words.splitlines()) == 1
    assert ("no noise" in method.promise) != method.noisy
    if "certified" in method.modes and method.noisy:
        assert "in total" in method.promise


@pytest.mark.parametrize("name", NAMES)
def test_only_what_its_upload_type_says_leaves_an_agent(name: str) -> None:
    assert Upload._fields == ("z",)
    assert ALGORITHMS[name].upload is (PrimalDual if name == "ceadmm" else Upload)
    parts = shards(0)
    algorithm = build(name, problem(parts), MIXED)
    seen = run(algorithm, parts, (1, 2, 3), 2)
    result = algorithm.agent_step(3, seen.w, seen.state.agents[0], parts[0], SeededNoise((1, 2, 3), 0, 3))
    assert all(field.shape == seen.w.shape for field in result.upload)
    assert type(result.upload) is ALGORITHMS[name].upload


@pytest.mark.parametrize("name", NAMES)
def test_every_draw_has_an_event_and_no_noise_is_an_infinite_one(name: str) -> None:
    parts = shards(0)
    done = run(build(name, problem(parts), MIXED, local_updates=4), parts, (1, 2, 3), 3)
    method = ALGORITHMS[name]
    public = PUBLIC if method.local_updates else PUBLIC._replace(updates=1)
    planned = (
        method.privacy_cost(public, 1.0, 1) if method.noisy else {NON_PRIVATE: 1}
    )  # what a round is planned to cost
    assert sum(done.events.values()) == len(parts) * sum(planned.values())
    for _, event in done.events:
        for r, run_event in enumerate(event.runs):
            noisy = done.noise[r] > 0
            assert noisy == (ALGORITHMS[name].noisy and MIXED[r] != np.inf)
            assert noisy != (run_event.mechanism == "none")
            if isinstance(run_event, Nominal):
                assert run_event.epsilon == (MIXED[r] if noisy else np.inf)
            else:
                assert type(run_event) in {type(event) for event in planned} and 0.0 < run_event.scale < np.inf


class Silence:
    """A noise source without noise."""

    def continuous(self, update: int, mechanism: str, scale: Array, like: Array) -> Array:
        return np.zeros_like(like)

    def poisson_sample(self, update: int, rate: float, records: int, like: Array) -> NDArray[np.bool_]:
        return SeededNoise((1, 2, 3), 0, 2).poisson_sample(update, rate, records, like)

    def integers(self, update: int, mechanism: str, scale: Array, like: Array) -> NDArray[np.int64]:
        return np.zeros(like.shape, np.int64)


@pytest.mark.parametrize("name", NAMES)
def test_every_field_that_is_sent_has_the_noise_that_its_event_claims(name: str) -> None:
    parts = shards(0)
    algorithm = build(name, problem(parts), MIXED)
    w = np.full((4, 3, 3), 0.1)
    agent = Agent(w, w)
    loud = algorithm.agent_step(2, w, agent, parts[0], SeededNoise((1, 2, 3), 0, 2))
    quiet = algorithm.agent_step(2, w, agent, parts[0], Silence())
    for r in range(3):
        claimed = all(event.runs[r].mechanism != "none" for event in loud.events)
        for sent, without in zip(loud.upload, quiet.upload, strict=True):
            assert claimed == (sent[:, r] != without[:, r]).all()


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_pure(name: str) -> None:
    """The same arguments give the same bytes, and no argument is changed."""
    parts = shards(0)
    algorithm = build(name, problem(parts), MIXED)
    kept: list[tuple[Array, ...]] = []
    copied: list[tuple[Array, ...]] = []

    def keep(done: Round) -> None:
        arrays = (done.w, *(array for agent in done.state.agents for array in agent))
        kept.append(arrays)
        copied.append(tuple(array.copy() for array in arrays))

    first = run(algorithm, parts, (1, 2, 3), 5, watch=keep)
    for before, after in zip(copied, kept, strict=True):
        for a, b in zip(before, after, strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(first.w, run(algorithm, parts, (1, 2, 3), 5).w)


@pytest.mark.parametrize("name", NAMES)
def test_batched_runs_equal_single_runs(name: str) -> None:
    """To 1e-12 relative in float64, with identical noise."""
    parts = shards(1)
    together = run(build(name, problem(parts), MIXED), parts, (4, 4, 9), 20)
    for r, (epsilon, seed) in enumerate(zip(MIXED, (4, 4, 9), strict=True)):
        alone = run(build(name, problem(parts), [epsilon]), parts, (seed,), 20)
        assert close(together.w[:, r], alone.w[:, 0], 1e-7 if name in EXACT else 1e-12)
        assert together.noise[r] == pytest.approx(alone.noise[0], rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_precision_is_kept(name: str) -> None:
    parts = shards(1, dtype=np.float32)
    done = run(build(name, problem(parts), MIXED, dtype=np.float32), parts, (1, 2, 3), 3)
    assert {done.w.dtype, done.state.server.z.dtype, done.state.server.lam.dtype} == {np.dtype(np.float32)}
    assert {agent.z.dtype for agent in done.state.agents} == {np.dtype(np.float32)}


@pytest.mark.parametrize("epsilon", [0.5, np.inf])
@pytest.mark.parametrize("name", NAMES)
def test_both_copies_of_the_dual_stay_bit_identical(name: str, epsilon: float) -> None:
    """Server and agent update it from what was sent; it is never sent. (Exact ADMM is slow: fewer rounds.)"""
    parts = shards(2)
    algorithm = build(name, problem(parts), [epsilon])
    long = isinstance(algorithm, AdmmServer) and not isinstance(algorithm, AveragingServer)
    many = 1000 if epsilon < np.inf and ALGORITHMS[name].local_updates in (None, 1) else 200
    rounds = many if long and name not in (*EXACT, "ceadmm") else 30  # ceadmm's dual outruns a z of ever shorter steps

    def same(done: Round) -> None:
        for p, agent in enumerate(done.state.agents):
            assert agent.lam.tobytes() == done.state.server.lam[p].tobytes(), f"agent {p}, round {done.t}"

    done = run(algorithm, parts, (5,), rounds, watch=same)
    assert (np.abs(done.state.server.lam).max() > 0) != isinstance(algorithm, AveragingServer)


@pytest.mark.parametrize("name", NAMES)
def test_the_sums_are_enough_for_the_server(name: str) -> None:
    parts = shards(2)
    full = run(build(name, problem(parts), MIXED), parts, (1, 2, 3), 30)
    sums = run(build(name, problem(parts), MIXED), parts, (1, 2, 3), 30, server="sums")
    assert close(sums.w, full.w, 1e-6 if name in EXACT else 1e-12)
    assert sums.state.server.z.shape == full.w.shape


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOISE_ON_Z])
def test_iterates_stay_in_the_set(name: str) -> None:
    parts = shards(2)
    if name in EXACT and (ALGORITHMS[name].noisy or name == "optimum"):
        with pytest.raises(InputError, match="needs set all"):
            build(name, problem(parts, feasible="box", size=0.05), MIXED)
        return
    done = run(build(name, problem(parts, feasible="box", size=0.05), MIXED), parts, (1, 2, 3), 10)
    for agent in done.state.agents:
        assert np.abs(agent.z).max() <= 0.05 * (1 + 1e-12)
