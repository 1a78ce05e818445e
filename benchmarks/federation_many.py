"""A round with many sites on one machine: this version and another one alternately, and a secure sum.

    taciturn bench federation-many [--before CHECKOUT] [--sites 30] [--rounds 20] [--sums 50] [--only sums] [--out FILE]

All sites must answer in every round. Then a study with noise at every site, and one with a secure sum from which three
sites are killed after the first rounds, with --sums sites each. Writes benchmarks/results/federation_many.json.

Takes minutes.
"""

from __future__ import annotations

from typing import Any

from benchmarks.federation_speed import PLAIN, SUMMED, SUMS, comparison, side_by_side, sums
from benchmarks.program import read_results, write_results

KILLED = 3


def main() -> None:
    """Compare."""
    parser = comparison(__doc__, "federation_many", repeats=1, rounds=20)
    parser.add_argument("--sites", type=int, default=30)
    parser.add_argument("--pause", type=float, default=10.0, help="seconds between two groups of sites that start")
    parser.add_argument("--sums", type=int, default=50, help="sites of the secure sum; 0: none")
    parser.add_argument("--only", choices=("sums",), help="measure this alone; the other results stay")
    given = parser.parse_args()
    found: dict[str, Any] = read_results(given.out) if given.out.exists() else {}
    words = ("--table", "--pause", str(given.pause))
    if given.only is None:
        found = side_by_side(given, (*words, "--sites", str(given.sites))) | {SUMS: found.get(SUMS)}
        write_results(given.out, found)
    if given.sums:
        many = (*words, "--sites", str(given.sums))
        missing, killed = str(given.sums // 10), min(KILLED, given.sums // 10)
        variants = {
            f"{given.sums} sites, plain": (*many, *PLAIN),
            f"{given.sums} sites, secure sum, {killed} killed": (
                *many, *SUMMED, "--missing", missing, "--killed", str(killed),
            ),
        }  # fmt: skip
        write_results(given.out, found | {SUMS: sums(given.repeats, given.rounds, variants)})


if __name__ == "__main__":
    main()
