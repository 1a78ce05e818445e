"""Audits do not refute certified claims, refute the paper's claim and broken code, and their bound is valid."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn.algorithms.additive import Additive
from taciturn.algorithms.base import Agent
from taciturn.algorithms.hidden_updates import LastIterate
from taciturn.algorithms.iadmm import DpIadmm
from taciturn.algorithms.noisy_gradient import CertifiedGradient, HardenedGradient
from taciturn.audit import Audit, Claim, Game, audit, audit_games, games
from taciturn.audit.epsilon_bound import epsilon_lower, lower_limit, upper_limit
from taciturn.audit.scores import BlockNoise, block_noise, known, release
from taciturn.audit.tradeoff_figure import allowed
from taciturn.errors import InputError
from taciturn.objectives.clipping import NO_CLIPPING, GradientClipping
from taciturn.privacy.events import Discrete, Event, Noise
from taciturn.reporting.figures.style import check_place
from tests.cli.helpers import refused, taciturn, taciturn_json

RELEASES = 30_000
SHARP = 0.01  # a delta at which an attack on Gaussian noise is sharp


def attack(**claim: Any) -> Audit:
    return audit(Claim(**claim), releases=RELEASES, seed=1)


# ---- what holds


@pytest.mark.parametrize("noise", ["seeded", "hardened"])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_the_bound_for_one_update_with_laplace_noise_is_close_to_the_claim(adjacency: str, noise: str) -> None:
    assert 0.8 < attack(mechanism="laplace", adjacency=adjacency, noise=noise).epsilon_lower <= 1.0


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("updates", [1, 10])
def test_gaussian_noise_keeps_its_claim(updates: int, adjacency: str) -> None:
    assert 0.55 < attack(adjacency=adjacency, local_updates=updates, delta=SHARP).epsilon_lower <= 1.0


def test_the_trust_region_keeps_its_claim() -> None:
    assert 0.8 < attack(algorithm="objt", mechanism="laplace").epsilon_lower <= 1.0


def test_hardened_gaussian_noise_keeps_its_claim_over_several_updates() -> None:
    assert 0.3 < attack(local_updates=4, noise="hardened", delta=SHARP).epsilon_lower <= 1.0


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_hidden_updates_keep_their_claim_and_do_not_overpay(adjacency: str) -> None:
    found = attack(algorithm="hidden", adjacency=adjacency, delta=SHARP)
    assert found.claim.local_updates == 10
    assert 0.55 < found.epsilon_lower <= 1.0


def test_the_counts_of_an_additive_model_keep_their_claim() -> None:
    assert 0.55 < attack(algorithm="additive", delta=SHARP).epsilon_lower <= 1.0


# ---- what does not


@pytest.mark.parametrize(("adjacency", "composed"), [("add-remove", 2.4), ("replace-one", 5.0)])
def test_the_papers_ten_updates_cost_more_than_their_nominal_budget(adjacency: str, composed: float) -> None:
    found = attack(mode="paper", local_updates=10, adjacency=adjacency)
    assert found.exceeded
    assert found.epsilon_lower > 3.0
    assert found.findings[0].epsilon_lower > composed  # where both data sets get noise of the same scale


def test_the_scale_of_the_papers_noise_reveals_the_data_in_one_update() -> None:
    found = attack(mode="paper")
    same_scale, by_scale = (finding.epsilon_lower for finding in found.findings)
    assert same_scale <= 1.0
    assert by_scale == found.provable > 5.0  # without a mistake


def halved(events: tuple[Event, ...]) -> tuple[Event, ...]:
    return tuple(replace(event, scale=event.scale / 2) for event in events if isinstance(event, Noise | Discrete))


def half_the_noise(claim: Claim) -> Game:
    game = games(claim)[-1]
    algorithm = game.algorithm
    assert isinstance(algorithm, Additive | DpIadmm | LastIterate)
    assert isinstance(algorithm.release, CertifiedGradient | HardenedGradient)
    mechanism = replace(algorithm.release.mechanism, events=halved(algorithm.release.mechanism.events))
    broken: Any = replace(algorithm.release, mechanism=mechanism)
    return game._replace(algorithm=replace(algorithm, release=broken))


def no_clipping(claim: Claim) -> Game:
    (game,) = games(claim)
    assert isinstance(game.algorithm, DpIadmm)
    assert isinstance(game.algorithm.release, CertifiedGradient)
    return game._replace(
        algorithm=replace(game.algorithm, release=replace(game.algorithm.release, clipping=NO_CLIPPING))
    )


def clipping_in_l2_only(claim: Claim) -> Game:
    """Laplace noise with only the L2 norm bounded: the L1 norm of the canary is sqrt(2) times larger."""
    (game,) = games(claim)
    assert isinstance(game.algorithm, DpIadmm)
    assert isinstance(game.algorithm.release, CertifiedGradient)
    assert isinstance(game.algorithm.release.clipping, GradientClipping)
    limit = replace(game.algorithm.release.clipping, l1=np.array([math.inf]))
    return game._replace(algorithm=replace(game.algorithm, release=replace(game.algorithm.release, clipping=limit)))


def sensitivity_of_removal(claim: Claim) -> Game:
    (game,), (removal,) = games(replace(claim, adjacency="replace-one")), games(claim)
    return game._replace(algorithm=removal.algorithm)


def one_update_charged_for_ten(claim: Claim) -> Game:
    (one,), game = games(claim), games(replace(claim, local_updates=10))[0]
    assert isinstance(one.algorithm, DpIadmm)
    assert isinstance(game.algorithm, DpIadmm)
    return game._replace(algorithm=replace(game.algorithm, release=one.algorithm.release))


@pytest.mark.parametrize(
    ("broken", "claim"),
    [
        (half_the_noise, Claim(mechanism="laplace")),
        (half_the_noise, Claim(delta=SHARP)),
        (half_the_noise, Claim(delta=SHARP, noise="hardened")),
        (half_the_noise, Claim(delta=SHARP, algorithm="hidden")),
        (half_the_noise, Claim(delta=SHARP, algorithm="additive")),
        (no_clipping, Claim(mechanism="laplace")),
        (no_clipping, Claim()),
        (clipping_in_l2_only, Claim(mechanism="laplace")),
        (sensitivity_of_removal, Claim(mechanism="laplace")),
        (sensitivity_of_removal, Claim(delta=SHARP)),
        (sensitivity_of_removal, Claim(delta=SHARP, noise="hardened")),
        (one_update_charged_for_ten, Claim(delta=SHARP)),
        (one_update_charged_for_ten, Claim(mechanism="laplace")),
    ],
)
def test_broken_code_is_caught(broken: Callable[[Claim], Game], claim: Claim) -> None:
    assert audit_games(claim, [broken(claim)], releases=RELEASES, confidence=0.999, seed=1).exceeded


# ---- how it is made


def test_clopper_pearson_against_hand_numbers() -> None:
    assert lower_limit(np.array([0.0, 100.0]), 100, 0.05) == pytest.approx([0.0, 0.05**0.01])
    assert upper_limit(np.array([0.0, 100.0]), 100, 0.05) == pytest.approx([1.0 - 0.05**0.01, 1.0])
    assert lower_limit(np.array([5.0]), 10, 0.025) == pytest.approx([0.18708602844739854])  # the textbook's 5 of 10
    assert upper_limit(np.array([5.0]), 10, 0.025) == pytest.approx([0.8129139715526015])


def test_the_bound_against_hand_numbers() -> None:
    """All of 100 found and no false alarm, 5 % doubt: ln((0.025^(1/100) - delta) / (1 - 0.025^(1/100)))."""
    low = 0.025**0.01
    found = epsilon_lower(np.array(100.0), np.array(0.0), 100, 0.1, 0.05)
    assert float(found) == pytest.approx(math.log((low - 0.1) / (1.0 - low)))
    assert float(epsilon_lower(np.array(50.0), np.array(50.0), 100, 0.0, 0.05)) == 0.0


def test_the_bound_is_seldom_above_the_truth() -> None:
    """Samples of a test with TPR = e FPR: with 10 % doubt, at most about that many bounds exceed epsilon = 1."""
    generator = np.random.default_rng(0)
    true, false = generator.binomial(500, [[0.25 * math.e], [0.25]], size=(2, 2000)).astype(float)
    assert (epsilon_lower(true, false, 500, 0.0, 0.1) > 1.0).mean() < 0.1


def test_the_claims_curve_is_the_definition() -> None:
    """At (ln 2, 0): false negatives fall from 1 with slope -2 to the diagonal, then with slope -1/2."""
    assert allowed(np.array([0.0, 1 / 3, 1.0]), math.log(2.0), 0.0) == pytest.approx([1.0, 1 / 3, 0.0])
    assert allowed(np.array([0.0]), 1.0, 0.25) == pytest.approx([0.75])


@pytest.mark.parametrize("noise", ["seeded", "hardened"])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_the_canary_moves_the_gradient_as_far_as_its_sensitivity(mechanism: str, adjacency: str, noise: str) -> None:
    (game,) = games(Claim(mechanism=mechanism, adjacency=adjacency, noise=noise))
    first, second, _ = known(game)
    moved = (second.mean - first.mean) * (game.rho + 1.0 / game.eta)
    event = game.algorithm.agent_step(1, *state(game), game.scene.arms[0], block_noise(1)).events[0].runs[0]
    assert isinstance(event, Noise | Discrete)
    size, most = float(np.linalg.norm(moved)), event.l2
    if isinstance(event, Noise) and mechanism == "laplace":
        size, most = float(np.abs(moved).sum()), event.l1
    assert most * (1.0 - 1e-5) < size <= most * (1.0 + 1e-9)


def state(game: Game) -> tuple[Any, Any]:
    w = game.scene.w[:, None, :]
    return w, Agent(w, np.zeros_like(w))


def test_releases_are_independent_runs_of_the_step() -> None:
    (game,) = games(Claim())
    z = release(game, 1, 5000, block_noise(3))
    assert z.shape == (3, 5000, 3)
    assert len(np.unique(z[0, :, 0])) == 5000
    assert (z == release(game, 1, 5000, block_noise(3))).all()
    assert (z != release(game, 1, 5000, block_noise(None))).any()


def test_discrete_blocks_take_only_one_scale() -> None:
    noise: BlockNoise = block_noise(1)
    with pytest.raises(ValueError, match="too many"):
        noise.integers(0, "discrete-laplace", np.array([1.0, 2.0]), np.zeros((1, 2, 1)))


# ---- the command


def test_a_claim_that_stands_ends_with_code_0(tmp_path: Path) -> None:
    args = ("audit", "--mechanism", "laplace", "--releases", "20000", "--seed", "1")
    found = taciturn_json(*args, "--plot", tmp_path / "a.png")
    assert 0.7 < found["epsilon_lower"] <= found["claim"] == 1.0
    assert (found["confidence"], found["exceeded"], found["noise"]) == (0.999, False, "seeded")
    assert found["trials"] == 10_000 > found["true_positives"] > found["false_positives"]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_claim_that_is_refuted_ends_with_code_1_and_says_so() -> None:
    args = ("audit", "--mode", "paper", "--local-updates", "10", "--releases", "10000", "--seed", "1")
    done = taciturn(*args, code=1)
    assert "claim    1, nominal, as in the paper, with delta 1e-06: refuted" in done.stdout
    assert "the claim is refuted: epsilon is at least" in done.stderr


def test_what_cannot_be_drawn_is_refused_at_once(tmp_path: Path) -> None:
    assert "a.picture does not end in a picture's format" in refused("audit", "--plot", "a.picture", cwd=tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        check_place(tmp_path / "no" / "a.png")


@pytest.mark.parametrize(
    ("claim", "sentence"),
    [
        ({"mode": "papr"}, "no mode 'papr'"),
        ({"algorithm": "iadmm"}, "no algorithm 'iadmm'"),
        ({"epsilon": math.inf}, "claim is inf"),
        ({"delta": 0.0}, "delta is 0"),
        ({"adjacency": "other"}, "no adjacency 'other'"),
        ({"local_updates": 0}, "local-updates is 0"),
        ({"mode": "paper", "mechanism": "gaussian"}, "gaussian noise needs mode certified"),
        ({"algorithm": "hidden", "noise": "hardened"}, "hidden has no exact noise"),
        ({"algorithm": "hidden", "mode": "paper"}, "hidden is not one of the paper's methods"),
    ],
)
def test_what_cannot_be_audited_is_refused(claim: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        attack(**claim)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [({"releases": 10}, "releases is 10"), ({"confidence": 1.0}, "confidence is 1"), ({"seed": -1}, "seed is -1")],
)
def test_arguments_that_make_no_audit_are_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        audit(Claim(), **given)
