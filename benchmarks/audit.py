"""What attacks prove about the releases of one round that claims epsilon 1: `taciturn audit` over its whole grid.

    taciturn bench audit

Writes benchmarks/results/audit.json: for every setting the epsilon that the releases have at least (confidence 0.999
each), the errors it follows from, and the most that so many releases can prove. Certified settings must stay at or
below 1; what the paper claims does not.

Takes three minutes.
"""

from __future__ import annotations

from itertools import product

from benchmarks.program import arguments, rounded, write_results

from taciturn.audit import Claim, audit
from taciturn.privacy.mechanisms import MECHANISMS
from taciturn.privacy.noise import SOURCES
from taciturn.privacy.sensitivity import ADJACENCIES

RELEASES, CONFIDENCE, SEED = 200_000, 0.999, 1
UPDATES = (1, 10)
SHARP = 0.01  # a delta at which attacks on Gaussian noise are sharper
OWN_NOISE = ("outp", "dp-fedavg", "dp-fedprox", "admm-outp", "admm-objp")
NOISES = (("gaussian", Claim.delta), ("gaussian", SHARP), ("laplace", Claim.delta))
RATES = (0.1, 0.5)


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
    return certified + sharp + hidden + uploads + sampled + both + paper


def main() -> None:
    """Audit every claim."""
    given = arguments(__doc__, "audit").parse_args()
    rows = []
    for claim in claims():
        found = audit(claim, releases=RELEASES, confidence=CONFIDENCE, seed=SEED)
        rows.append(rounded(found.summary(), 4))
        name = [claim.mode, *(str(rows[-1][key]) for key in ("algorithm", "local_updates", "adjacency", "mechanism"))]
        print(*name, claim.noise, f"delta {claim.delta:g}:", f"{found.epsilon_lower:.3f}", flush=True)
    certified = [row["epsilon_lower"] for row in rows if row["mode"] == "certified"]
    result = {
        "what": f"epsilon of one round's releases is at least this, at claim 1 (taciturn audit, seed {SEED})",
        "largest_certified": max(certified),
        "smallest_paper": min(row["epsilon_lower"] for row in rows if row["mode"] == "paper"),
        "audits": rows,
    }
    write_results(given.out, result)


if __name__ == "__main__":
    main()
