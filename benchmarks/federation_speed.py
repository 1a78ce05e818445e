"""Time of a round over the network, and memory and CPU at a site: this version and another one alternately.

    taciturn bench federation-speed [--before CHECKOUT] [--repeats 3] [--rounds 60] [--only PLACE] [--out FILE]

Three sites with 12 records of two columns each, real processes with mutual TLS on one machine: on loopback, and through
a line of 100 ms round trip and 1 MB/s (this needs root). The two versions take turns, so that both see the same load of
the machine. Then a study of MNIST (14 x 14). Every result must equal that of one process, to the last bit.

Last, rounds of a secure sum over those of the same method with noise at every site, in turn: three sites, then five,
then five of which one is lost in every round after its upload was asked for, without a wait for it.

Takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.program import ROOT, arguments, read_results, write_results

PLACES: dict[str, tuple[str, ...]] = {
    "small table": ("--table",),
    "small table, 100 ms and 1 MB/s": ("--table", "--delay", "0.05", "--rate", "1e6"),
    "mnist14": (),
}


SUMS = "secure sum"
PLAIN, SUMMED = ("--algorithm", "dpgd"), ("--algorithm", "dpgd", "--trust", "secure-sum")
VARIANTS: dict[str, tuple[str, ...]] = {
    "3 sites, plain": PLAIN,
    "3 sites, secure sum": SUMMED,
    "5 sites, plain": (*PLAIN, "--sites", "5"),
    "5 sites, secure sum": (*SUMMED, "--sites", "5", "--missing", "1"),
    "5 sites, secure sum, one lost": (*SUMMED, "--sites", "5", "--missing", "1", "--losing", "site-04"),
}


def played(checkout: Path, *words: str) -> dict[str, Any]:
    """A study of `federation_play` with the Taciturn of a checkout, in a state folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "study"
        root.mkdir()
        one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        places = os.pathsep.join((str(checkout / "src"), str(ROOT)))  # its package, and the programs of this checkout
        environment = os.environ | one | {"PYTHONPATH": places, "XDG_STATE_HOME": f"{folder}/state"}
        command = [sys.executable, "-m", "benchmarks.federation_play", str(root), *words]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            said = "\n".join(path.read_text(errors="replace")[-2000:] for path in root.glob("*.txt"))
            raise SystemExit(f"{checkout}: {said}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def side_by_side(given: argparse.Namespace, words: tuple[str, ...]) -> dict[str, Any]:
    """Play the versions in turn; return the runs of each, and the median over them."""
    checkouts = {"before": given.before.resolve()} if given.before else {}
    checkouts["now"] = ROOT
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in checkouts}
    for _ in range(given.repeats):
        for name, checkout in checkouts.items():
            runs[name].append(played(checkout, *words, "--rounds", str(given.rounds)))
            shown = {key: value for key, value in runs[name][-1].items() if not isinstance(value, dict)}
            print(name, *words, shown, flush=True)
    found: dict[str, Any] = {name: statistics.median(run["median_ms"] for run in rows) for name, rows in runs.items()}
    if "before" in found:
        found["ratio"] = round(found["now"] / found["before"], 3)
    return {"median_ms": found, "load": [round(load, 1) for load in os.getloadavg()], "runs": runs}


def sums(repeats: int, rounds: int, variants: Mapping[str, Sequence[str]] = VARIANTS) -> dict[str, Any]:
    """Play plain federations and secure sums in turn; return medians, and ratios to the plain one of as many sites."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in variants}
    for _ in range(repeats):
        for name, words in variants.items():
            runs[name].append(played(ROOT, *words, "--rounds", str(rounds)))
            print(
                name, {key: value for key, value in runs[name][-1].items() if not isinstance(value, dict)}, flush=True
            )
    medians = {name: statistics.median(run["median_ms"] for run in rows) for name, rows in runs.items()}
    plain = {name.split(",")[0]: name for name in variants if name.endswith("plain")}
    ratios = {
        name: round(medians[name] / medians[plain[name.split(",")[0]]], 2)
        for name in variants
        if not name.endswith("plain")
    }
    return {"median_ms": medians, "ratios": ratios, "load": [round(load, 1) for load in os.getloadavg()], "runs": runs}


def comparison(description: str | None, name: str, repeats: int, rounds: int) -> argparse.ArgumentParser:
    """Return the parser of a program that compares two versions."""
    parser = arguments(description, name)
    parser.add_argument("--before", type=Path, help="a checkout of the version to compare with")
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--rounds", type=int, default=rounds)
    return parser


def main() -> None:
    """Compare at every place."""
    parser = comparison(__doc__, "federation_speed", repeats=3, rounds=60)
    parser.add_argument("--only", choices=(*PLACES, SUMS), help="measure this alone; the other results stay")
    given = parser.parse_args()
    found: dict[str, Any] = read_results(given.out) if given.out.exists() else {}
    for place, words in PLACES.items():
        if given.only in (None, place):
            found[place] = side_by_side(given, words)
            write_results(given.out, found)
    if given.only in (None, SUMS):
        found[SUMS] = sums(given.repeats, given.rounds)
        write_results(given.out, found)


if __name__ == "__main__":
    main()
