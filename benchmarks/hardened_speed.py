"""Time of runs with hardened noise, compared with seeded noise at the same settings, alternately.

    taciturn bench hardened-speed [--repeats 7]

Every run is a separate process, as a user starts it, and the two kinds take turns, so that other load of the machine
affects both. Writes benchmarks/results/hardened_speed.json: medians in seconds, and their ratio. `whole` is the process
from its start to its end, `training` is the time between the first round and the last.

Takes about ten minutes on two cores.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.program import ROOT, arguments, write_results

CLINICS = ROOT / "tests" / "data" / "clinics"
CASES = {
    "mnist14": ["--data", "mnist14"],
    "clinics": [
        "--data", str(CLINICS / "records.csv"), "--schema", str(CLINICS / "schema.toml"), "--total-records", "600",
        "--agents", "3", "--test-share", "0.25",
    ],
}  # fmt: skip
KINDS = ("seeded", "hardened")
TIMED = """
import json, sys, time
from taciturn import api
from taciturn.__main__ import main

inner, spent = api.train, []

def timed(*given):
    began = time.perf_counter()
    inner(*given)
    spent.append(time.perf_counter() - began)

api.train = timed
sys.argv = ["taciturn", *sys.argv[1:]]
try:
    main()
finally:
    print(json.dumps(spent), file=sys.stderr)
"""


def one(case: str, kind: str) -> tuple[float, float]:
    """Seconds of a whole process, and of its training."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = ["--noise", kind, *(["--seed", "1"] if kind == "seeded" else [])]
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", TIMED, "run", *CASES[case], *chosen, "--out", f"{folder}/r"],
            env={**os.environ, "XDG_STATE_HOME": folder}, check=True, capture_output=True, text=True,
        )  # fmt: skip
        whole = time.perf_counter() - began
        return whole, sum(json.loads(done.stderr.splitlines()[-1]))


def main() -> None:
    """Time both kinds of every case."""
    parser = arguments(__doc__, "hardened_speed")
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    found: dict[str, dict[str, object]] = {}
    for case in CASES:
        times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        for _ in range(given.repeats):
            for kind in KINDS:
                times[kind].append(one(case, kind))
        found[case] = {"repeats": given.repeats}
        for number, what in enumerate(("whole", "training")):
            medians = {kind: statistics.median(pair[number] for pair in times[kind]) for kind in KINDS}
            rounded = {f"{kind}_seconds": round(median, 3) for kind, median in medians.items()}
            found[case][what] = rounded | {"ratio": round(medians["hardened"] / medians["seeded"], 3)}
        print(case, json.dumps(found[case]))
    write_results(given.out, found)


if __name__ == "__main__":
    main()
