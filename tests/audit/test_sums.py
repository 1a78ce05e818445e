"""Audits of sums over agents: shares of the noise keep the claim, and smaller shares are detected."""

from __future__ import annotations

from dataclasses import replace

import pytest

from taciturn.algorithms.gradient_descent import DpGd
from taciturn.algorithms.iadmm import IadmmAtW
from taciturn.algorithms.noisy_gradient import CertifiedGradient, SummedGradient
from taciturn.audit import Audit, Claim, Game, audit_games, games
from taciturn.errors import InputError
from tests.cli.helpers import refused, taciturn_json

SHARP = 0.1  # a delta at which attacks on Gaussian noise are sharp
SUM = Claim(algorithm="dpgd", trust="secure-sum", delta=SHARP)


def attack(claim: Claim, *played: Game, releases: int = 30_000) -> Audit:
    return audit_games(claim, played or games(claim), releases=releases, confidence=0.999, seed=1)


@pytest.mark.parametrize(
    ("claim", "honest"),
    [
        (SUM, 2),
        (replace(SUM, algorithm="objw", trust="server", agents=3), 3),
        (replace(SUM, colluders=3, agents=4), 1),
        (replace(SUM, adjacency="replace-one", colluders=0), 2),
    ],
)
def test_the_bound_for_shares_is_close_to_the_claim(claim: Claim, honest: int) -> None:
    found = attack(claim)
    assert 0.7 < found.epsilon_lower <= 1.0
    assert found.to_json()["honest"] == honest


def test_sums_of_samples_are_worth_their_claim() -> None:
    """So few releases prove 1.3 to 1.5, as they do of single uploads."""
    claim = replace(SUM, algorithm="dpsgd", sampling_rate=0.5, epsilon=2.0)
    assert 1.0 < attack(claim, releases=6_000).epsilon_lower <= 2.0


def with_share(game: Game, share: float) -> Game:
    algorithm = game.algorithm
    assert isinstance(algorithm, DpGd) and isinstance(algorithm.release, CertifiedGradient)
    mechanism = replace(algorithm.release.mechanism, share=share)
    return game._replace(algorithm=replace(algorithm, release=replace(algorithm.release, mechanism=mechanism)))


@pytest.mark.parametrize("share", [1.0 / 3.0, 3.0**-0.5])
def test_shares_that_are_too_small_are_refuted(share: float) -> None:
    """sigma / P, which is enough only without colluders."""
    (game,) = games(SUM)
    assert attack(SUM, with_share(game, share)).exceeded


def test_a_single_upload_is_not_covered_by_its_share() -> None:
    claim = replace(SUM, agents=4)
    (game,) = games(claim)
    assert attack(claim, game._replace(honest=1)).exceeded


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"algorithm": "objp"}, "not proven to be enough for objp"),
        ({"trust": "agents", "agents": 3}, "with trust agents every upload is a release"),
        ({"agents": 0}, "agents is 0"),
        ({"agents": 2, "colluders": 2}, "colluders is 2, but there are 2 agents"),
    ],
)
def test_claims_without_a_game_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        games(replace(SUM, **changes))  # type: ignore[arg-type]


# ---- sums of whole numbers, as a protocol opens them

HARDENED = Claim(algorithm="dpgd", trust="secure-sum", noise="hardened", delta=0.01, agents=10)


def with_small_shares(game: Game, share: float) -> Game:
    algorithm = game.algorithm
    assert isinstance(algorithm, DpGd | IadmmAtW) and isinstance(algorithm.release, SummedGradient)
    hardened = algorithm.release.hardened
    mechanism = replace(hardened.mechanism, share=share)
    release = replace(algorithm.release, hardened=replace(hardened, mechanism=mechanism))
    return game._replace(algorithm=replace(algorithm, release=release))


@pytest.mark.parametrize(
    "claim",
    [
        replace(HARDENED, colluders=8),
        replace(HARDENED, colluders=2, missing=3),
        replace(HARDENED, colluders=1, agents=4, algorithm="objw"),
    ],
)
def test_the_bound_for_integer_shares_is_close_to_the_claim(claim: Claim) -> None:
    """The attacker knows everything but the canary, and the integers of all colluders."""
    found = attack(claim, releases=200_000)
    assert 0.85 < found.epsilon_lower <= 1.0
    assert found.to_json()["honest"] == claim.honest == (claim.agents or 0) - claim.colluders - claim.missing


@pytest.mark.parametrize(("colluders", "missing"), [(8, 0), (2, 3)])
def test_integer_shares_for_all_sites_instead_of_the_honest_ones_are_refuted(colluders: int, missing: int) -> None:
    """sigma / sqrt(P): enough only if every site is honest and in the sum."""
    claim = replace(HARDENED, colluders=colluders, missing=missing)
    (game,) = games(claim)
    assert attack(claim, with_small_shares(game, 10**-0.5)).exceeded


def test_integer_sums_from_the_command_line() -> None:
    words = ("--algorithm", "dpgd", "--trust", "secure-sum", "--noise", "hardened", "--delta", "0.1", "--seed", "1")
    found = taciturn_json("audit", *words, "--agents", "7", "--missing", "2", "--releases", "20000")
    assert found["honest"] == 4 and 0.5 < found["epsilon_lower"] <= 1.0 and found["exceeded"] is False
    assert "at most 2 may be missing" in refused("audit", *words, "--agents", "7", "--missing", "4")
