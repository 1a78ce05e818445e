"""The noise of hardened runs over the closed form of the continuous Gaussian, as their ledgers have it.

    taciturn bench hardened-noise

Needs MNIST and FEMNIST. Writes benchmarks/results/hardened_noise.json. For each budget, `over_closed_form` is the
noise multiplier of the plan's events over get_sigma_gaussian(epsilon, delta) * sqrt(T): at most 1.0001.
The runs of mnist14 really begin: some of their rounds are in the ledger, and their events must be the plan's.

Takes half a minute.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.program import arguments, results_file, write_results
from dp_accounting.gaussian_mechanism import get_sigma_gaussian

import taciturn
from taciturn.errors import Interrupted
from taciturn.planning.plan import plan_study
from taciturn.privacy.accountants.gdp import slack_of
from taciturn.privacy.events import Discrete, event_of
from taciturn.runs.folder import RunFolder
from taciturn.settings import resolve
from taciturn.training.loop import TrainingProgress

RESULTS = results_file("hardened_noise")
EPSILONS, DELTAS = (0.5, 1.0, 3.0, 8.0), (1e-6, 1e-9)
MOST = 1.0001
DRAWN = 5  # rounds that are really made
PLANNED: Mapping[str, Mapping[str, Any]] = {
    "mnist14": {"data": "mnist14"},
    "mnist, scattering": {"data": "mnist", "features": "scattering"},
    "femnist, scattering": {"data": "femnist", "features": "scattering"},
}

BEGUN: Mapping[str, Any] = {"data": "mnist14", "rounds": 300}


def compared(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A plan, as a ledger has it, beside the closed form."""
    (row,) = entry["events"]
    event, count = event_of(row), int(row["count"])
    if not isinstance(event, Discrete):
        raise TypeError(f"{event.mechanism} is no hardened Gaussian noise")
    epsilon, delta = float(entry["total_epsilon"]), float(entry["delta"])
    slack = slack_of(event) * count
    return {
        "epsilon": epsilon,
        "delta": delta,
        "releases": count,
        "coordinates": event.coordinates,
        "sigma_in_integers": float(f"{event.sigma:.4g}"),
        "over_closed_form": event.scale / event.l2 / (get_sigma_gaussian(epsilon, delta) * math.sqrt(count)),
        "slack_of_epsilon": float(f"{slack.above + slack.below:.3g}"),
        "planned_epsilon": float(entry["planned_epsilon"]),
        "accountant": entry["accountant"],
    }


def planned(given: Mapping[str, Any], delta: float, epsilons: Iterable[float] = EPSILONS) -> list[dict[str, Any]]:
    """The plans of runs that are not made; one at a time, for runs of one study share their integers."""
    asked = {"mode": "certified", "noise": "hardened", "rounds": 300, "delta": delta}
    studies = (plan_study(resolve(asked | {"total_epsilon": (epsilon,)}, given)) for epsilon in epsilons)
    parts = [study.parts[0] for study in studies]
    return [compared(part.plans[0].entry(part.batch.labels()[0])) for part in parts]


def begun(epsilon: float, folder: Path, given: Mapping[str, Any] = BEGUN) -> dict[str, Any]:
    """The plan in the ledger of a run that was stopped after some rounds; what it drew is what it planned."""
    done: list[TrainingProgress] = []
    folders: list[RunFolder] = []
    with suppress(Interrupted):
        taciturn.run(
            **given,
            noise="hardened",
            total_epsilon=epsilon,
            out=folder / f"{epsilon:g}",
            watch=done.append,
            stop=lambda: len(done) >= DRAWN,
            started=folders.append,
        )
    ledger = folders[0].read_ledger()
    plan = next(iter(ledger.plans.values()))
    if {entry.event for entry in ledger.releases} != {planned.event for planned in plan.events}:
        raise RuntimeError("what was drawn is not what was planned")
    return compared(plan) | {"spent": ledger.totals.total_epsilon}


def main() -> None:
    """Compare all plans, and the runs."""
    given = arguments(__doc__, "hardened_noise").parse_args()
    found: dict[str, Any] = {}
    for name, settings in PLANNED.items():
        found[name] = [row for delta in DELTAS for row in planned(settings, delta)]
    with tempfile.TemporaryDirectory() as folder:
        found["mnist14, begun"] = [begun(epsilon, Path(folder)) for epsilon in EPSILONS]
    largest = max(row["over_closed_form"] for rows in found.values() for row in rows)
    result = {"largest_over_closed_form": largest, "asked": MOST, "plans": found}
    write_results(given.out, result, show=True)
    if largest > MOST:
        raise SystemExit(f"{largest} is above {MOST}")


if __name__ == "__main__":
    main()
