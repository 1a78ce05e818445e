"""An audit: many releases in every game, an attack for each, the largest epsilon that is proved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from taciturn.audit.epsilon_bound import Attack, Counts, TradeoffCurve, choose, curves, epsilon_lower, judge
from taciturn.audit.games import Claim, Game, games
from taciturn.audit.scores import KnownRelease, block_noise, known, release, scores_for
from taciturn.errors import InputError
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array

CHUNK = 20_000  # releases at a time
FEWEST = 100
LARGEST_SEED = 2**62
Watch: TypeAlias = Callable[[int, int], None]
"""(releases made, releases in all)"""


class AuditFinding(NamedTuple):
    """What one game showed."""

    game: str
    c: float
    rho: float
    eta: float
    epsilon_lower: float
    attack: Attack
    counts: Counts
    curves: tuple[TradeoffCurve, TradeoffCurve]

    def entry(self) -> dict[str, Any]:
        """Its part of the summary."""
        return {
            "game": self.game,
            "c": self.c,
            "rho": self.rho,
            "eta": self.eta,
            "epsilon_lower": self.epsilon_lower,
            "score": self.attack.score,
            **self.counts._asdict(),
        }


@dataclass(frozen=True)
class Audit:
    """What is claimed, and what is proved."""

    claim: Claim
    releases: int  # of each data set, in every game
    confidence: float  # that epsilon is at least epsilon_lower, over all games
    seed: int | None
    findings: tuple[AuditFinding, ...]

    @property
    def strongest(self) -> AuditFinding:
        """The game that proves most."""
        return max(self.findings, key=lambda finding: finding.epsilon_lower)

    @property
    def epsilon_lower(self) -> float:
        """No smaller epsilon is true of these releases, with the confidence."""
        return self.strongest.epsilon_lower

    @property
    def provable(self) -> float:
        """What attacks without a mistake would prove: the most that so many releases can show."""
        trials, alpha = self.strongest.counts.trials, (1.0 - self.confidence) / len(self.findings)
        return float(epsilon_lower(np.array(float(trials)), np.array(0.0), trials, self.claim.delta, alpha))

    @property
    def exceeded(self) -> bool:
        """Whether the claim is refuted."""
        return self.epsilon_lower > self.claim.epsilon

    def summary(self) -> dict[str, Any]:
        """All of it as plain values."""
        claim = self.claim
        return {
            "epsilon_lower": self.epsilon_lower,
            "claim": claim.epsilon,
            "confidence": self.confidence,
            "exceeded": self.exceeded,
            "provable": self.provable,
            "mode": claim.mode,
            "algorithm": claim.algorithm,
            "mechanism": claim.mechanism,
            "adjacency": claim.adjacency,
            "local_updates": claim.local_updates,
            "sampling_rate": claim.sampling_rate,
            "delta": claim.delta,
            "noise": claim.noise,
            "trust": claim.trust,
            "agents": claim.agents,
            "honest": claim.honest,
            "releases": self.releases,
            "seed": self.seed,
            **self.strongest.counts._asdict(),
            "games": [finding.entry() for finding in self.findings],
        }


def audit(
    claim: Claim,
    *,
    releases: int = 200_000,
    confidence: float = 0.999,
    seed: int | None = None,
    watch: Watch | None = None,
) -> Audit:
    """Put a claim to the test against the code that `taciturn run` uses."""
    return audit_games(claim, games(claim), releases=releases, confidence=confidence, seed=seed, watch=watch)


def audit_games(
    claim: Claim,
    played: Sequence[Game],
    *,
    releases: int,
    confidence: float,
    seed: int | None = None,
    watch: Watch | None = None,
) -> Audit:
    """The same with games of one's own; the doubt is shared among them, so that the best of them may be taken."""
    if releases < FEWEST:
        raise InputError(f"releases is {releases}: it must be at least {FEWEST}")
    if not 0.5 <= confidence < 1.0:
        raise InputError(f"confidence is {confidence:g}: it must be at least 0.5 and below 1")
    if seed is not None and not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"seed is {seed}: it must be a whole number from 0 to 2^62")
    noise = block_noise(seed)
    total = 2 * releases * len(played)
    findings = []
    for i, game in enumerate(played):
        step = _step(watch, 2 * releases * i, total)
        findings.append(_finding(game, claim, noise, releases, (1.0 - confidence) / len(played), step))
    return Audit(claim.filled(), releases, confidence, seed, tuple(findings))


def _finding(
    game: Game, claim: Claim, noise: NoiseSource, releases: int, alpha: float, step: Callable[[int], None]
) -> AuditFinding:
    told = known(game)
    first, second = (play(game, told, arm, noise, releases, step) for arm in (0, 1))
    half = releases // 2
    attack = choose(_part(first, slice(half)), _part(second, slice(half)), claim.delta, alpha)
    rest = _part(first, slice(half, None)), _part(second, slice(half, None))
    counts = judge(attack, *rest)
    bound = epsilon_lower(
        np.array(counts.true_positives), np.array(counts.false_positives), counts.trials, claim.delta, alpha
    )
    return AuditFinding(
        game.scene.name, game.c, game.rho, game.eta, float(bound), attack, counts, curves(attack, *rest)
    )


def play(
    game: Game, told: KnownRelease, arm: int, noise: NoiseSource, releases: int, step: Callable[[int], None]
) -> dict[str, Array]:
    """The scores of many releases from one of the data sets, by name, [releases] each."""
    scores = scores_for(game)
    parts: dict[str, list[Array]] = {name: [] for name in scores}
    for began in range(0, releases, CHUNK):
        z = release(game, arm, min(CHUNK, releases - began), noise)
        for name, score in scores.items():
            parts[name].append(score(z, told))
        step(z.shape[1])
    return {name: np.concatenate(found) for name, found in parts.items()}


def _part(scores: Mapping[str, Array], which: slice) -> dict[str, Array]:
    return {name: values[which] for name, values in scores.items()}


def _step(watch: Watch | None, done: int, total: int) -> Callable[[int], None]:
    """Adds up what was made, and tells whoever watches."""

    def step(made: int) -> None:
        nonlocal done
        done += made
        if watch is not None:
            watch(done, total)

    return step
