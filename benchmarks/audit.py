"""What attacks prove about the releases of one round that claims epsilon 1: `taciturn audit` over its whole grid.

    taciturn bench audit

Writes benchmarks/results/audit.json: for every setting the epsilon that the releases have at least (confidence 0.999
each), the errors it follows from, and the most that so many releases can prove. Certified settings must stay at or
below 1; what the paper claims does not, and neither do sums in which every site's share of the noise is for all sites
instead of the honest ones that are surely in the sum.

Takes three minutes.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from benchmarks.program import arguments, rounded, write_results
from tests.audit.test_sums import with_small_shares

from taciturn.audit import Audit, Claim, Game, audit_games, games
from taciturn.privacy.mechanisms import MECHANISMS
from taciturn.privacy.noise import HARDENED, SOURCES
from taciturn.privacy.sensitivity import ADJACENCIES
from taciturn.privacy.trust import SECURE_SUM

RELEASES, CONFIDENCE, SEED = 200_000, 0.999, 1
UPDATES = (1, 10)
SHARP = 0.01  # a delta at which attacks on Gaussian noise are sharper
OWN_NOISE = ("outp", "dp-fedavg", "dp-fedprox", "admm-outp", "admm-objp")
NOISES = (("gaussian", Claim.delta), ("gaussian", SHARP), ("laplace", Claim.delta))
RATES = (0.1, 0.5)
SITES, LOST = 10, ((1, 2), (8, 0))  # of a secure sum; colluders and missing ones


def claims() -> list[Claim]:
    """The grid."""
    certified = [
        Claim(mechanism=mechanism, adjacency=adjacency, local_updates=updates, noise=noise)
        for updates, adjacency, mechanism, noise in product(UPDATES, ADJACENCIES, MECHANISMS, SOURCES)
    ]
    sharp = [Claim(adjacency=adjacency, local_updates=n, delta=SHARP) for n, adjacency in product(UPDATES, ADJACENCIES)]
    hidden = [
        Claim(algorithm="hidden", adjacency=adjacency, delta=delta)
        for adjacency, delta in product(ADJACENCIES, (Claim.delta, SHARP))
    ]
    uploads = [
        Claim(algorithm=algorithm, adjacency=adjacency, mechanism=mechanism, delta=delta)
        for algorithm, adjacency, (mechanism, delta) in product(OWN_NOISE, ADJACENCIES, NOISES)
    ]
    sampled = [
        Claim(algorithm="dpsgd", sampling_rate=rate, delta=delta)
        for rate, delta in product(RATES, (Claim.delta, SHARP))
    ]
    both = [Claim(algorithm="ceadmm", local_updates=n, delta=SHARP) for n in (1, 2, 10)]
    paper = [
        Claim(mode="paper", adjacency=adjacency, local_updates=n) for n, adjacency in product(UPDATES, ADJACENCIES)
    ]
    return certified + sharp + hidden + uploads + sampled + both + sums() + paper


def sums() -> list[Claim]:
    """Sums of whole numbers, as the protocol of a federation opens them."""
    return [
        Claim(algorithm=algorithm, trust=SECURE_SUM, noise=HARDENED, delta=SHARP, agents=SITES, colluders=c, missing=d)
        for algorithm, (c, d) in product(("dpgd", "objw"), LOST)
    ]


def undersized(claim: Claim) -> list[Game]:
    """Return the games of a sum in which a share is sigma / sqrt(P), as if every site were honest and in the sum."""
    return [with_small_shares(game, SITES**-0.5) for game in games(claim)]


def row(claim: Claim, played: list[Game]) -> dict[str, Any]:
    """Audit a claim, print what is found in one line, and return all of it."""
    found: Audit = audit_games(claim, played, releases=RELEASES, confidence=CONFIDENCE, seed=SEED)
    summary: dict[str, Any] = rounded(found.to_json(), 4)
    if claim.trust == SECURE_SUM:
        summary |= {"colluders": claim.colluders, "missing": claim.missing}
    name = [claim.mode, *(str(summary[key]) for key in ("algorithm", "local_updates", "adjacency", "mechanism"))]
    print(*name, claim.noise, f"delta {claim.delta:g}:", f"{found.epsilon_lower:.3f}", flush=True)
    return summary


def main() -> None:
    """Audit every claim."""
    given = arguments(__doc__, "audit").parse_args()
    rows = [row(claim, games(claim)) for claim in claims()]
    small = [row(claim, undersized(claim)) for claim in sums()]
    certified = [one["epsilon_lower"] for one in rows if one["mode"] == "certified"]
    result = {
        "what": f"epsilon of one round's releases is at least this, at claim 1 (taciturn audit, seed {SEED})",
        "largest_certified": max(certified),
        "smallest_paper": min(one["epsilon_lower"] for one in rows if one["mode"] == "paper"),
        "smallest_undersized": min(one["epsilon_lower"] for one in small),
        "audits": rows,
        "undersized": small,
    }
    write_results(given.out, result)


if __name__ == "__main__":
    main()
