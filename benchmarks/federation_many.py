"""A round with 30 sites on one machine: this version, and another one in turn.

    taciturn bench federation-many [--before CHECKOUT] [--sites 30] [--rounds 20] [--out FILE]

All sites must answer in every round. Writes benchmarks/results/federation_many.json.

Takes minutes.
"""

from __future__ import annotations

from benchmarks.federation_speed import comparison, side_by_side
from benchmarks.program import write_results


def main() -> None:
    """Compare."""
    parser = comparison(__doc__, "federation_many", repeats=1, rounds=20)
    parser.add_argument("--sites", type=int, default=30)
    parser.add_argument("--pause", type=float, default=10.0, help="seconds between two groups of sites that start")
    given = parser.parse_args()
    words = ("--table", "--sites", str(given.sites), "--pause", str(given.pause))
    write_results(given.out, side_by_side(given, words))


if __name__ == "__main__":
    main()
