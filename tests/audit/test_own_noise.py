"""Audits of noise on uploads, on samples and in objectives, and of uploads with two fields."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click import Context

import taciturn
from taciturn.algorithms.admm import AdmmObjp, AdmmOutp
from taciturn.algorithms.base import Agent, Upload
from taciturn.algorithms.ceadmm import CommunicationEfficientAdmm
from taciturn.algorithms.fedavg import DpFedAvg
from taciturn.algorithms.gradient_descent import DpSgd
from taciturn.algorithms.outp import CertifiedOutput
from taciturn.algorithms.schedules import Constant
from taciturn.algorithms.subproblem import Solver, scale_records
from taciturn.audit import Audit, Claim, Game, audit_games, games
from taciturn.audit.games import curved_scene
from taciturn.audit.minimisers import hessian, log_density
from taciturn.audit.scores import RecordingNoise, block_noise, known, release
from taciturn.cli.audit_command import _claim_of
from taciturn.cli.audit_command import audit as command
from taciturn.errors import InputError
from taciturn.objectives.clipping import NO_CLIPPING
from taciturn.privacy.events import Noise
from tests.cli.helpers import EXAMPLE

MANY, FEW = 100_000, 10_000  # releases
SHARP, SHARPER = 0.01, 0.1  # deltas at which attacks on Gaussian noise are sharp
SAMPLED = Claim(algorithm="dpsgd", epsilon=2.0, delta=SHARPER, sampling_rate=0.5)
SEVEN_TENTHS = 0.7
Breaking = Callable[[Claim], Game]


@cache
def played(claim: Claim) -> list[Game]:
    return games(claim)


def attack(claim: Claim, *broken: Game, releases: int = MANY) -> Audit:
    return audit_games(claim, broken or played(claim), releases=releases, confidence=0.999, seed=1)


# ---- what holds


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("noise", "releases"), [({"delta": SHARPER}, 3 * FEW), ({"mechanism": "laplace"}, MANY)])
@pytest.mark.parametrize("algorithm", ["outp", "dp-fedavg", "dp-fedprox", "admm-outp"])
def test_the_bound_for_noise_on_uploads_is_close_to_the_claim(
    algorithm: str, noise: dict[str, Any], releases: int, adjacency: str
) -> None:
    claim = Claim(algorithm=algorithm, adjacency=adjacency, **noise)
    assert SEVEN_TENTHS < attack(claim, played(claim)[-1], releases=releases).epsilon_lower <= 1.0


def test_a_sample_hides_what_it_is_charged_for() -> None:
    assert SEVEN_TENTHS < attack(SAMPLED, releases=FEW).epsilon_lower / SAMPLED.epsilon <= 1.0


@pytest.mark.parametrize("noise", [{"delta": SHARP}, {"mechanism": "laplace"}])
def test_perturbed_objectives_keep_their_claim(noise: dict[str, Any]) -> None:
    """The Gaussian's charge takes b for as long as K numbers make it: the attack sees one of them."""
    gradient, curvature = attack(Claim(algorithm="admm-objp", **noise), releases=2 * FEW).findings
    assert 0.4 < gradient.epsilon_lower <= 1.0
    assert 0.1 < curvature.epsilon_lower <= 1.0


def test_primal_and_dual_together_keep_their_claim() -> None:
    """Two updates can be worked out of two fields; the last z alone tells less."""
    claim = Claim(algorithm="ceadmm", local_updates=2, delta=SHARPER)
    both, alone = (
        attack(claim, *some, releases=3 * FEW).epsilon_lower
        for some in (played(claim)[:1], [sending(played(claim)[0], lambda upload, clean: Upload(upload.z))])
    )
    assert SEVEN_TENTHS < both <= 1.0
    assert alone < both - 0.1


# ---- what does not


def without_the_factor(claim: Claim) -> Game:
    """Noise for one local step instead of E."""
    game = played(claim)[-1]
    assert isinstance(game.algorithm, DpFedAvg)
    return game._replace(
        algorithm=replace(game.algorithm, sensitivity=game.algorithm.sensitivity / game.algorithm.local.updates)
    )


def records_of_any_length(claim: Claim) -> Game:
    """The canary is three times as long as the bound, and is not scaled down."""
    game = played(claim)[-1]
    first, second = game.scene.arms
    scene = game.scene._replace(arms=(first, replace(second, x=3.0 * second.x)))
    if isinstance(game.algorithm, AdmmOutp):
        return game._replace(
            scene=scene, algorithm=replace(game.algorithm, solver=replace(game.algorithm.solver, clipping=NO_CLIPPING))
        )
    assert isinstance(game.algorithm, DpFedAvg)
    local = replace(game.algorithm.local, clipping=NO_CLIPPING)
    return game._replace(scene=scene, algorithm=replace(game.algorithm, local=local))


def no_clipping(claim: Claim) -> Game:
    game = played(claim)[-1]
    assert isinstance(game.algorithm, CertifiedOutput)
    return game._replace(algorithm=replace(game.algorithm, clipping=NO_CLIPPING))


def convexity_that_is_not_there(claim: Claim) -> Game:
    """The noise of a solution with twice its rho."""
    game = played(claim)[-1]
    assert isinstance(game.algorithm, AdmmOutp)
    return game._replace(algorithm=replace(game.algorithm, sensitivity=game.algorithm.sensitivity / 2.0))


def another_rate(claim: Claim) -> Game:
    """Every record is in the sample, and the noise is that of half of them."""
    game = played(claim)[-1]
    assert isinstance(game.algorithm, DpSgd)
    return game._replace(algorithm=replace(game.algorithm, sampling=1.0))


def noise_divided_once_more(claim: Claim) -> Game:
    """Noise for the sum, on the mean that divides by q."""
    game = played(claim)[-1]
    assert isinstance(game.algorithm, DpSgd)
    noise = replace(game.algorithm.noise, multiplier=game.algorithm.noise.multiplier * game.algorithm.sampling)
    return game._replace(algorithm=replace(game.algorithm, noise=noise))


def no_determinant(claim: Claim) -> Game:
    """A penalty so small that the determinant reveals more than the claim, and b calibrated without it."""
    game, rho = played(claim)[0], 3e-5
    assert isinstance(game.algorithm, AdmmObjp)
    algorithm = replace(game.algorithm, rho=Constant(rho, np.ones(1)))
    return game._replace(scene=curved_scene(), rho=rho, algorithm=algorithm)


def one_update_charged_for_two(claim: Claim) -> Game:
    game, one = played(claim)[-1], played(replace(claim, local_updates=1))[0]
    assert isinstance(game.algorithm, CommunicationEfficientAdmm)
    assert isinstance(one.algorithm, CommunicationEfficientAdmm)
    return game._replace(algorithm=replace(game.algorithm, release=one.algorithm.release))


def a_dual_without_noise(claim: Claim) -> Game:
    """The dual of the noiseless step is sent with a noisy z."""
    (game,) = played(replace(claim, local_updates=1))
    return sending(game, lambda upload, clean: upload._replace(lam=clean.lam))


def sending(game: Game, what: Callable[[Any, Any], Any]) -> Game:
    """The same game, with the upload and one without noise combined before it is sent."""

    class Altered:
        def agent_step(self, t: int, w: Any, agent: Any, shard: Any, noise: Any) -> Any:
            step, clean = (
                game.algorithm.agent_step(t, w, agent, shard, source) for source in (noise, RecordingNoise())
            )
            return step._replace(upload=what(step.upload, clean.upload))

    altered: Any = Altered()
    return game._replace(algorithm=altered)


@pytest.mark.parametrize(
    ("broken", "claim", "releases"),
    [
        (without_the_factor, Claim(algorithm="dp-fedavg", delta=SHARPER), 3 * FEW),
        (without_the_factor, Claim(algorithm="dp-fedprox", mechanism="laplace"), 3 * FEW),
        (records_of_any_length, Claim(algorithm="dp-fedprox", delta=SHARPER), 3 * FEW),
        (records_of_any_length, Claim(algorithm="admm-outp", delta=SHARPER), 3 * FEW),
        (no_clipping, Claim(algorithm="outp", mechanism="laplace"), 3 * FEW),
        (convexity_that_is_not_there, Claim(algorithm="admm-outp", mechanism="laplace"), 3 * FEW),
        (another_rate, SAMPLED, FEW // 2),
        (noise_divided_once_more, SAMPLED, FEW // 2),
        (no_determinant, Claim(algorithm="admm-objp", delta=SHARP), FEW),
        (no_determinant, Claim(algorithm="admm-objp", mechanism="laplace"), FEW),
        (one_update_charged_for_two, Claim(algorithm="ceadmm", local_updates=2, delta=SHARPER), 3 * FEW),
        (a_dual_without_noise, Claim(algorithm="ceadmm", local_updates=2, delta=SHARPER), FEW),
    ],
)
def test_broken_code_is_caught(broken: Breaking, claim: Claim, releases: int) -> None:
    assert attack(claim, broken(claim), releases=releases).exceeded


# ---- how it is made


@pytest.mark.parametrize("algorithm", ["outp", "dp-fedavg", "dp-fedprox", "admm-outp"])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_the_canary_moves_what_is_sent_as_far_as_it_is_charged(algorithm: str, adjacency: str) -> None:
    for game in played(Claim(algorithm=algorithm, adjacency=adjacency)):
        first, second, _ = known(game)
        step = game.algorithm.agent_step(1, *state(game), game.scene.arms[0], block_noise(1))
        ((event,),) = (batch.runs for batch in step.events)
        assert isinstance(event, Noise)
        assert 0.99 * event.l2 < np.linalg.norm(second.mean - first.mean) <= event.l2 * (1.0 + 1e-9)


def state(game: Game) -> tuple[Any, Any]:
    w = game.scene.w[:, None, :]
    return w, Agent(w, np.zeros_like(w))


def test_minimisers_that_are_solved_together_equal_those_of_the_solver() -> None:
    """From the same noise, and their density adds up to one."""
    game = played(Claim(algorithm="admm-objp", mechanism="laplace"))[-1]
    algorithm, shard, w = game.algorithm, game.scene.arms[1], game.scene.w[:, None, :]
    assert isinstance(algorithm, AdmmObjp)
    quick = algorithm.perturbed.solver
    slow = Solver(quick.problem, quick.tolerance, quick.clipping)
    plain = game._replace(algorithm=replace(algorithm, perturbed=replace(algorithm.perturbed, solver=slow)))
    z = release(game, 1, 20, block_noise(4))
    assert np.abs(z - release(plain, 1, 20, block_noise(4))).max() < 5.0 * float(slow.error(np.array([game.rho]))[0])
    side = np.linspace(-60.0, 60.0, 601)
    grid = (
        w + np.stack(np.meshgrid(side, side)).reshape(2, -1).T[None] * algorithm.perturbed.sensitivity / game.rho / 3.0
    )
    scale = known(game).second.scale
    density = np.exp(log_density(algorithm, w, shard, scale, grid)) / (2.0 * math.pi * scale**2)
    assert density.sum() * (side[1] - side[0]) ** 2 * (
        algorithm.perturbed.sensitivity / game.rho / 3.0
    ) ** 2 == pytest.approx(1.0, rel=0.01)
    of, own = slow.problem, scale_records(shard, slow.clipping)
    ahead, behind = (of.gradient(z + h, own).value for h in (1e-5, -1e-5))
    along = hessian(slow, 0.0, z, own).sum(axis=2)
    assert along == pytest.approx(((ahead - behind) / 2e-5).swapaxes(0, 1).reshape(20, -1), abs=1e-10)


@pytest.mark.parametrize(
    ("claim", "sentence"),
    [
        ({"algorithm": "dpsgd", "adjacency": "replace-one"}, "dpsgd needs adjacency add-remove"),
        ({"algorithm": "dpsgd", "mechanism": "laplace"}, "dpsgd needs mechanism gaussian"),
        ({"algorithm": "dpsgd", "sampling_rate": 1.5}, "sampling-rate is 1.5"),
        ({"algorithm": "dp-fedavg", "sampling_rate": 0.5}, "dp-fedavg takes no samples"),
        ({"algorithm": "dp-fedavg", "noise": "hardened"}, "dp-fedavg has no exact noise"),
        ({"algorithm": "outp", "mode": "paper"}, "outp can be audited in mode certified"),
        ({"algorithm": "admm-outp", "local_updates": 3}, "local-updates is given"),
    ],
)
def test_what_cannot_be_audited_is_refused(claim: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        games(Claim(**claim))


def test_an_audit_of_a_run_uses_its_sampling_rate(tmp_path: Path) -> None:
    run = taciturn.run(
        data=str(EXAMPLE / "records.csv"), schema=str(EXAMPLE / "schema.toml"), total_records=600, agents=3, rounds=1,
        algorithm="dpsgd", sampling_rate=0.5, seed=1, noise_multiplier=3.0, total_epsilon=8.0, out=str(tmp_path / "r"),
    )  # fmt: skip
    with Context(command):
        claim = _claim_of(run.folder, ())
    assert claim == Claim(algorithm="dpsgd", mechanism="gaussian", local_updates=1, sampling_rate=0.5, epsilon=8.0)
