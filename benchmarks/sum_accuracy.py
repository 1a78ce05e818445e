"""The error of models trained on secure sums, with the numbers that a federation's protocol adds.

    taciturn bench sum-accuracy [--only mnist,femnist]

Every run is hardened: agents add shares of exact integer noise for c colluders and d missing agents, and only whole
numbers are summed, so a federation in which nobody is missing opens the same sums. Method, feature map, rounds, clip
and steps are the planner's; precision is float64, as in a federation. MNIST is partitioned among ten agents with
SPLITS keys, and every run draws its noise from the operating system, so another start gives slightly other errors.
FEMNIST has 195 agents, its writers, and is run once. Needs MNIST and FEMNIST. Finished runs in runs/sum-accuracy are
not run again. Writes benchmarks/results/sum_accuracy.json.

Takes a minute for each run of MNIST on an idle core, of which there are 25, and three minutes for FEMNIST.
"""

from __future__ import annotations

import math
import shutil
from typing import Any, NamedTuple

from benchmarks.program import RUNS, arguments, rounded, spread, write_results

import taciturn
from taciturn.reporting.intervals import interval
from taciturn.runs.folder import RunFolder
from taciturn.secure_sum.parameters import default_reserve

SPLITS = 5


class Cell(NamedTuple):
    """One setting, and the mean error in percent that it was asked for, if it was."""

    total_epsilon: float
    colluders: int
    missing: int
    at_most: float | None = None


MNIST = (Cell(1, 1, 2, 1.50), Cell(1, 1, 0), Cell(0.5, 1, 2), Cell(3, 1, 2), Cell(8, 1, 2))
FEMNIST = (Cell(1, 9, 15, 23.0),)
DATA: dict[str, tuple[int, tuple[Cell, ...], list[dict[str, Any]]]] = {  # agents, cells, settings of every run
    "mnist": (10, MNIST, [{"partition": "shuffled", "partition_key": key} for key in range(SPLITS)]),
    "femnist": (195, FEMNIST, [{}]),
}


def trained(data: str, agents: int, cell: Cell, number: int, split: dict[str, Any]) -> taciturn.Run:
    """Return one run, which may be there already."""
    epsilon, c, d, _ = cell
    place = RUNS / "sum-accuracy" / f"{data}-{epsilon:g}-{c}-{d}-{number}"
    if place.exists() and RunFolder.open(place).finished:
        return taciturn.open_run(place)
    shutil.rmtree(place, ignore_errors=True)  # a run that was interrupted
    sums: dict[str, Any] = {"trust": "secure-sum", "noise": "hardened", "colluders": c, "missing": d}
    reserve = default_reserve(taciturn.plan(data=data, total_epsilon=epsilon, **sums).proposal.rounds)
    own: dict[str, Any] = {} if data == "femnist" else {"agents": agents}
    return taciturn.run(
        data=data, total_epsilon=epsilon, reserve=reserve, evaluate_every=10**6, out=place, **sums, **own, **split
    )


def measure(data: str) -> list[dict[str, Any]]:
    """Return the errors of every cell of a data set."""
    agents, cells, splits = DATA[data]
    found = []
    for cell in cells:
        runs = [trained(data, agents, cell, number, split) for number, split in enumerate(splits)]
        errors = [100.0 * entry.test_error for run in runs for entry in run.runs if entry.test_error is not None]
        settings = dict(runs[0].folder.read_config())
        honest = agents - cell.colluders - cell.missing
        mean: dict[str, Any] = {**spread(errors)}
        known = interval(errors)  # of 95 %, over splits and noise
        found.append(
            cell._asdict()
            | {name: settings[name] for name in ("delta", "rounds", "reserve", "clip", "algorithm", "features")}
            | {
                "noise_over_a_trusted_server": round(math.sqrt(agents / honest), 3),
                "noise_at_every_agent_over_a_trusted_server": round(math.sqrt(agents), 3),
                "spent_epsilon": max(run.summary.privacy.total_epsilon for run in runs),
                "test_error_percent": rounded(mean | {"interval": [known.low, known.high]}, 4),
                "runs": len(errors),
                "met": None if cell.at_most is None else mean["mean"] <= cell.at_most,
            }
        )
        print(data, found[-1], flush=True)
    return found


def main() -> None:
    """Train and write."""
    parser = arguments(__doc__, "sum_accuracy")
    parser.add_argument("--only", default=",".join(DATA), help="some of these, with commas between")
    options = parser.parse_args()
    found = {name: measure(name) for name in options.only.split(",")}
    if set(found) == set(DATA):
        write_results(options.out, {"what": __doc__.splitlines()[0] if __doc__ else "", **found})


if __name__ == "__main__":
    main()
