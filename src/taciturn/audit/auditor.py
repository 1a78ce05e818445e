"""An audit: many releases in every game, an attack for each, and the largest epsilon that is proved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np

from taciturn.audit.epsilon_bound import Attack, AttackCounts, TradeoffCurve, choose, curves, epsilon_lower, judge
from taciturn.audit.games import Claim, Game, games
from taciturn.audit.scores import block_noise, known, release, scores_for
from taciturn.errors import InputError
from taciturn.privacy.noise import NoiseSource
from taciturn.progress import report_progress
from taciturn.types import Array

CHUNK = 20_000  # releases at a time
MIN_RELEASES = 100
LARGEST_SEED = 2**62


class AuditFinding(NamedTuple):
    """The result of one game.

    Parameters
    ----------
    game : str
        The name of its scene.
    c, rho, eta : float
        Its step sizes; see `Game`.
    epsilon_lower : float
        The bound that the attack proves.
    attack : Attack
        The attack.
    counts : AttackCounts
        How often each event happened.
    curves : tuple of TradeoffCurve
        For either null.
    """

    game: str
    c: float
    rho: float
    eta: float
    epsilon_lower: float
    attack: Attack
    counts: AttackCounts
    curves: tuple[TradeoffCurve, TradeoffCurve]

    def to_json(self) -> dict[str, object]:
        """Return the finding as a JSON object."""
        numbers = {name: getattr(self, name) for name in ("game", "c", "rho", "eta", "epsilon_lower")}
        return {**numbers, "score": self.attack.score, **self.counts._asdict()}


@dataclass(frozen=True)
class Audit:
    """What is claimed, and what is proved.

    Parameters
    ----------
    claim : Claim
        With all defaults filled in.
    releases : int
        Of each data set, in every game.
    confidence : float
        That epsilon is at least `epsilon_lower`, over all games.
    seed : int or None
        The seed of the noise; None uses the operating system.
    findings : tuple of AuditFinding
        One for each game.
    """

    claim: Claim
    releases: int
    confidence: float
    seed: int | None
    findings: tuple[AuditFinding, ...]

    @property
    def strongest(self) -> AuditFinding:
        """The game with the largest bound."""
        return max(self.findings, key=lambda finding: finding.epsilon_lower)

    @property
    def epsilon_lower(self) -> float:
        """The largest bound: with the audit's confidence, the releases have no smaller epsilon."""
        return self.strongest.epsilon_lower

    @property
    def provable(self) -> float:
        """The bound of an attack without a mistake: the most that this number of releases can prove."""
        trials, alpha = self.strongest.counts.trials, (1.0 - self.confidence) / len(self.findings)
        return float(epsilon_lower(np.array(float(trials)), np.array(0.0), trials, self.claim.delta, alpha))

    @property
    def exceeded(self) -> bool:
        """Whether the claim is refuted."""
        return self.epsilon_lower > self.claim.epsilon

    def to_json(self) -> dict[str, object]:
        """Return the audit as a JSON object."""
        claim = asdict(self.claim)
        for name in ("epsilon", "colluders", "missing"):
            claim.pop(name)
        return {
            "epsilon_lower": self.epsilon_lower,
            "claim": self.claim.epsilon,
            "confidence": self.confidence,
            "exceeded": self.exceeded,
            "provable": self.provable,
            **claim,
            "honest": self.claim.honest,
            "releases": self.releases,
            "seed": self.seed,
            **self.strongest.counts._asdict(),
            "games": [finding.to_json() for finding in self.findings],
        }


def audit(
    claim: Claim,
    *,
    releases: int = 200_000,
    confidence: float = 0.999,
    seed: int | None = None,
) -> Audit:
    """Test a claim against the code that `taciturn run` uses.

    Parameters
    ----------
    claim : Claim
        The claim under audit.
    releases : int, default 200000
        Of each data set, in every game.
    confidence : float, default 0.999
        From 0.5 to 1.
    seed : int, optional
        The seed of the noise; None uses the operating system.

    Returns
    -------
    Audit

    Raises
    ------
    InputError
        If an argument is out of range, or the claim cannot be audited.

    Examples
    --------
    >>> audit(Claim(epsilon=1.0), releases=1000, seed=1).exceeded
    False
    """
    return audit_games(claim, games(claim), releases=releases, confidence=confidence, seed=seed)


def audit_games(
    claim: Claim,
    played: Sequence[Game],
    *,
    releases: int,
    confidence: float,
    seed: int | None = None,
) -> Audit:
    """Test a claim with the given games; see `audit`. The games share the allowed error probability."""
    if releases < MIN_RELEASES:
        raise InputError(f"releases is {releases}; it must be at least {MIN_RELEASES}")
    if not 0.5 <= confidence < 1.0:
        raise InputError(f"confidence is {confidence:g}; it must be at least 0.5 and below 1")
    if seed is not None and not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"seed is {seed}; it must be an integer from 0 to 2^62")
    noise, alpha = block_noise(seed), (1.0 - confidence) / len(played)
    total, done = 2 * releases * len(played), 0

    def report(made: int) -> None:
        nonlocal done
        done += made
        report_progress("auditing", done, total)

    findings = tuple(_play(game, claim, noise, releases, alpha, report) for game in played)
    return Audit(claim.filled(), releases, confidence, seed, findings)


def _play(
    game: Game, claim: Claim, noise: NoiseSource, releases: int, alpha: float, report: Callable[[int], None]
) -> AuditFinding:
    first, second = _scores(game, noise, releases, report)
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


def _scores(game: Game, noise: NoiseSource, releases: int, report: Callable[[int], None]) -> Iterator[dict[str, Array]]:
    """Yield the scores of many releases from each of the data sets, by name, [releases] each."""
    knowledge, scores = known(game), scores_for(game)
    for arm in (0, 1):
        parts: dict[str, list[Array]] = {name: [] for name in scores}
        for start in range(0, releases, CHUNK):
            z = release(game, arm, min(CHUNK, releases - start), noise)
            for name, score in scores.items():
                parts[name].append(score(z, knowledge))
            report(z.shape[1])
        yield {name: np.concatenate(values) for name, values in parts.items()}


def _part(scores: Mapping[str, Array], which: slice) -> dict[str, Array]:
    return {name: values[which] for name, values in scores.items()}
