"""What a round takes over the network, and what a site needs for it: this version and the one before, side by side.

    python -m benchmarks.federation_speed [--before CHECKOUT] [--repeats 3] [--rounds 60] [--out FILE]

Three sites with 12 records of two columns each, real processes with mutual TLS on one machine: on loopback, and through
a line of 100 ms round trip and 1 MB/s (for which it must be root). The two versions play in turn, so that both see the
same load of the machine. Then a study of MNIST (14 x 14). Every result must be that of one process, to the last bit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "federation_speed.json"
PLACES: dict[str, tuple[str, ...]] = {
    "small table": ("--table",),
    "small table, 100 ms and 1 MB/s": ("--table", "--delay", "0.05", "--rate", "1e6"),
    "mnist14": (),
}


def played(checkout: Path, *words: str) -> dict[str, Any]:
    """A study of `federation_play` with the Taciturn of a checkout, in a state folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "study"
        root.mkdir()
        one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment = os.environ | one | {"PYTHONPATH": str(checkout / "src"), "XDG_STATE_HOME": f"{folder}/state"}
        command = [sys.executable, str(HERE / "federation_play.py"), str(root), *words]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            said = "\n".join(path.read_text(errors="replace")[-2000:] for path in root.glob("*.txt"))
            raise SystemExit(f"{checkout}: {said}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def side_by_side(
    checkouts: dict[str, Path], repeats: int, words: tuple[str, ...], mean: str = "median_ms"
) -> dict[str, Any]:
    """The versions in turn; of each its runs, and the median over them."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in checkouts}
    for _ in range(repeats):
        for name, checkout in checkouts.items():
            runs[name].append(played(checkout, *words))
            shown = {key: value for key, value in runs[name][-1].items() if not isinstance(value, dict)}
            print(name, *words, shown, flush=True)
    found: dict[str, Any] = {name: statistics.median(run[mean] for run in rows) for name, rows in runs.items()}
    if "before" in found:
        found["ratio"] = round(found["now"] / found["before"], 3)
    return {f"{mean}": found, "load": [round(load, 1) for load in os.getloadavg()], "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="a checkout of the version to compare with")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    checkouts = {"before": given.before.resolve()} if given.before else {}
    checkouts["now"] = HERE.parent
    common = ("--rounds", str(given.rounds))
    found: dict[str, Any] = {}
    for place, words in PLACES.items():
        found[place] = side_by_side(checkouts, given.repeats, (*words, *common))
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
