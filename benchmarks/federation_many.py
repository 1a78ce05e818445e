"""Do many sites hold? 30 on one machine, 20 rounds, all of them answering: this version and the one before, in turn.

python -m benchmarks.federation_many [--before CHECKOUT] [--sites 30] [--rounds 20] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.federation_speed import HERE, side_by_side

RESULTS = HERE / "results" / "federation_many.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="a checkout of the version to compare with")
    parser.add_argument("--sites", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--pause", type=float, default=10.0, help="seconds between two groups of sites that start")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    checkouts = {"before": given.before.resolve()} if given.before else {}
    checkouts["now"] = HERE.parent
    words = ("--table", "--sites", str(given.sites), "--rounds", str(given.rounds), "--pause", str(given.pause))
    given.out.write_text(json.dumps(side_by_side(checkouts, given.repeats, words), indent=1) + "\n")


if __name__ == "__main__":
    main()
