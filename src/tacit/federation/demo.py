"""A whole federation on one machine, with a site and the server killed on the way, and compared with a simulation."""

from __future__ import annotations

import contextlib
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tacit.errors import InputError
from tacit.federation.agreement import agree
from tacit.federation.coordinator import round_times
from tacit.federation.local_cluster import LocalFederation, local_federation
from tacit.federation.site_status import site_status
from tacit.federation.summary import federated
from tacit.federation.terms import Terms
from tacit.privacy.totals import ledger_totals
from tacit.results.folder import RunFolder, read_lines

Say = Callable[[str], None]

SITES = {"north": 20_000, "south": 20_000, "west": 20_000}
STUDY = {"features": "none", "algorithm": "objpm", "local_updates": 5, "total_epsilon": 3.0}


def run_demo(out: Path | None, rounds: int, calm: bool, say: Say) -> dict[str, Any]:
    """Provision, start, kill, finish, compare; what came of it."""
    study = STUDY | {"rounds": rounds}
    with (
        _place(out) as root,
        local_federation(root, "mnist14", SITES, study, {"answer_seconds": 5, "ready_seconds": 20}) as demo,
    ):
        terms = demo.prepare()
        say(f"provisioned kits for {', '.join(SITES)} in {root}")
        for site in SITES:
            demo.start_agent(site)
        demo.start_coordinator()
        say("started one server and three agents, with mutual TLS on loopback")
        demo.wait(1)
        restarts = 0 if calm else _disturb(demo, rounds, say)
        demo.finish()
        say("finished; comparing with a simulation in one process")
        return _result(demo, terms, restarts)


def _disturb(demo: LocalFederation, rounds: int, say: Say) -> int:
    """Kill a site, then the server, each at once and without a word."""
    demo.wait(rounds // 6)
    demo.agents["south"].send_signal(signal.SIGKILL)
    say(f"killed the agent of south after round {demo.done}")
    demo.start_agent("south")
    _wait_for_return(demo, "south", rounds - 5)
    say(f"started it again; it takes part again in round {demo.done}")
    demo.kill_coordinator()
    say(f"killed the server after round {demo.done}, and gave its command again")
    demo.start_coordinator()
    return 2


def _wait_for_return(demo: LocalFederation, site: str, latest: int) -> None:
    """Wait until a site answers again after it was missed, or nearly all rounds are over."""
    missed = False
    while demo.done < latest:
        demo.wait(demo.done)
        rows = list(read_lines(demo.run / "rounds.jsonl"))
        missed = missed or site in rows[-1]["missing"]
        if missed and site in rows[-1]["answered"]:
            return
        time.sleep(0.1)


def _result(demo: LocalFederation, terms: Terms, restarts: int) -> dict[str, Any]:
    folder = RunFolder.open(demo.run)
    figures = federated(folder)
    spent = {site: site_status(demo.site(site))["studies"][0]["spent_epsilon"] for site in SITES}
    return {
        "rounds": figures["rounds"],
        "sites": len(SITES),
        "test_error": folder.read_summary()["runs"][0]["test_error"],
        "identical_to_simulation": demo.same_as_simulation(),
        "duals_equal": demo.duals_equal(),
        "ms_per_round": statistics.median(round_times(folder)),
        "budget_spent": max(spent.values()),
        "budget_planned": agree(terms).plan.bound.epsilon,
        "restarts": restarts,
        "answered": figures["answered"],
        "spent_by_site": spent,
        "ledgers_cover_uploads": all(demo.releases(site) >= figures["answered"].get(site, 0) for site in SITES),
        "non_private": ledger_totals(folder.read_ledger())["non_private"],
        "folder": str(demo.root),
    }


@contextlib.contextmanager
def _place(out: Path | None) -> Iterator[Path]:
    if out is None:
        with tempfile.TemporaryDirectory(prefix="tacit-demo-") as folder:
            yield Path(folder)
        return
    if out.exists():
        raise InputError(f"{out} exists: choose another folder")
    out.mkdir(parents=True, mode=0o700)
    yield out.resolve()
