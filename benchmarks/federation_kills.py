"""Ten studies, each with one process killed (SIGKILL) at a random moment: is the model the same, is every ledger right?

    python -m benchmarks.federation_kills [--studies 10] [--out FILE]

Three sites on embedded data, E = 5, 30 rounds, seeded, all three needed for a round. Whoever is killed is started again
by the same command; processes below it come back by themselves. The model and every dual are compared with one process,
bit by bit; every site's ledger must hold each of the 30 rounds once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from tacit.federation.flare.local import LocalFederation, local_federation

from tacit.federation.agreement import agree
from tacit.federation.site_status import site_status
from tacit.federation.terms import read_terms

ROUNDS = 30
SITES = dict.fromkeys(("north", "south", "west"), 20_000)
STUDY = {"algorithm": "objpm", "local_updates": 5, "total_epsilon": 3.0, "rounds": ROUNDS}
RUNNING = {"quorum": 3, "answer_seconds": 4, "ready_seconds": 20}
RESULTS = Path(__file__).parent / "results" / "federation_kills.json"
ROLES = (
    *((site, depth) for site in SITES for depth in range(3)),  # the command, the engine's client, its job
    *(("coordinator", depth) for depth in range(3)),
)
NAMES = {0: "command", 1: "engine", 2: "job"}


def play(role: tuple[str, int], moment: float, root: Path) -> dict[str, Any]:
    with local_federation(root, "mnist14", SITES, STUDY, RUNNING, patience=240.0) as federation:
        federation.prepare()
        for site in SITES:
            federation.start_agent(site)
        federation.start_coordinator()
        federation.wait(1 + int(moment * (ROUNDS - 3)))
        time.sleep(random.random() * 0.3)
        at, killed = federation.done, kill(federation, *role)
        federation.finish()
        return {
            "killed": f"{role[0]}, {NAMES[role[1]]}",
            "found": killed,
            "after_round": at,
            "identical": federation.same_as_simulation(),
            "duals_equal": federation.duals_equal(),
            "rounds_charged": {site: federation.releases(site) for site in SITES},
            "spent_epsilon": {site: spent(federation, site) for site in SITES},
            "planned_epsilon": agree(read_terms(federation.terms)).plan.bound.epsilon,
        }


def kill(federation: LocalFederation, who: str, depth: int) -> bool:
    """Kill a process; a command is given again, as its owner would."""
    command = federation.coordinator if who == "coordinator" else federation.agents[who]
    assert command is not None
    family = [command.pid]
    for _ in range(depth):
        children = psutil.Process(family[-1]).children()
        if not children:
            return False
        family.append(children[-1].pid)
    os.kill(family[-1], signal.SIGKILL)
    if depth == 0:
        command.wait()
        if who == "coordinator":
            federation.start_coordinator()
        else:
            federation.start_agent(who)
    return True


def spent(federation: LocalFederation, site: str) -> float:
    return float(site_status(federation.site(site))["studies"][0]["spent_epsilon"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    random.seed(2026)
    roles = random.sample(ROLES, min(arguments.studies, len(ROLES)))
    rows = []
    for number, role in enumerate(roles):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            row = play(role, random.random(), Path(folder))
        rows.append(row | {"seconds": round(time.monotonic() - began, 1)})
        print(number + 1, rows[-1], flush=True)
    exact = all(row["identical"] and row["duals_equal"] for row in rows)
    charged = all(count == ROUNDS for row in rows for count in row["rounds_charged"].values())
    summary = {"studies": len(rows), "all_identical": exact, "all_rounds_charged_once": charged, "rows": rows}
    arguments.out.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
