"""Test error of a real federation on MNIST: ten sites over NVFlare, with noise at every site and with a secure sum.

    taciturn bench federation-accuracy [--seeds 5] [--sites 10] [--trust secure-sum]

Every seed is another partition of the training images among the sites. Noise is hardened, the feature map and the plan
are the defaults, total epsilon is 1 at delta 1e-6. One site may collude and two may be missing from a sum. Needs
TACITURN_DATA.

Takes half an hour for five seeds of a secure sum, on two cores that have nothing else to do.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.program import RUNS, arguments, read_results, write_results

from taciturn.data import data_folder
from taciturn.federation.local_cluster import local_federation
from taciturn.federation.run_folder import read_rounds
from taciturn.runs.folder import RunFolder

RECORDS = 60_000
STUDY: dict[str, Any] = {"total_epsilon": 1.0, "delta": 1e-6, "partition": "shuffled"}
SUMS: dict[str, Any] = {"trust": "secure-sum", "algorithm": "dpgd", "colluders": 1, "missing": 2}
UPLOADS: dict[str, Any] = {"trust": "agents", "algorithm": "dpgd"}
PATIENCE = 6 * 3600.0


def study_of(seed: int, trust: str, sites: int, root: Path) -> dict[str, Any]:
    """Run one federated study, and return what it found."""
    shutil.rmtree(root, ignore_errors=True)
    records = dict.fromkeys((f"site-{n:02}" for n in range(1, sites + 1)), RECORDS // sites)
    study = STUDY | (SUMS if trust == "secure-sum" else UPLOADS) | {"partition_key": seed}
    running = {"answer_seconds": 60, "ready_seconds": 300}
    root.mkdir(parents=True)
    with local_federation(root, "mnist", records, study, running, seed=None, patience=PATIENCE) as federation:
        terms = federation.prepare()
        for site in records:
            federation.start_agent(site)
        federation.start_coordinator()
        federation.wait_for_end()
        folder = RunFolder.open(federation.run)
        summary, lines = folder.read_summary(), read_rounds(folder)
        plan = next(iter(folder.read_ledger().plans.values()))
        return {
            "seed": seed,
            "test_error": summary.runs[0].test_error,
            "rounds": len(lines),
            "answered": min(len(line.answered) for line in lines),
            "planned_epsilon": plan.planned_epsilon,
            "non_private": folder.read_ledger().non_private,
            "colluders": terms.settings.colluders,
            "missing": terms.settings.missing,
            "reserve": terms.settings.reserve,
        }


def main() -> None:
    """Run the studies that the file of results does not have yet."""
    parser = arguments(__doc__, "federation_accuracy")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sites", type=int, default=10)
    parser.add_argument("--trust", choices=["agents", "secure-sum"], default="secure-sum")
    options = parser.parse_args()
    if not (data_folder() / "mnist").is_dir():
        sys.exit("set TACITURN_DATA to a folder that holds mnist/")
    found: dict[str, Any] = read_results(options.out) if options.out.exists() else {"studies": {}}
    name = f"{options.trust}, {options.sites} sites"
    done: list[dict[str, Any]] = found["studies"].get(name, {}).get("runs", [])
    for seed in range(options.seeds):
        if any(one["seed"] == seed for one in done):
            continue
        done.append(study_of(seed, options.trust, options.sites, (RUNS / "federation-accuracy").resolve()))
        errors = [one["test_error"] for one in done]
        found["what"] = "test error of MNIST in a federation of real processes, total epsilon 1, delta 1e-6"
        deviation = statistics.stdev(errors) if len(errors) > 1 else None
        found["studies"][name] = {"mean": statistics.fmean(errors), "deviation": deviation, "runs": done}
        write_results(options.out, found)
        print(f"{name}, seed {seed}: {100 * errors[-1]:.2f} %, mean {100 * statistics.fmean(errors):.2f} %", flush=True)


if __name__ == "__main__":
    main()
