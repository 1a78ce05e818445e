"""A whole federation on one machine, with a site and the server killed on the way, and compared with a simulation."""

from __future__ import annotations

import contextlib
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from taciturn.errors import InputError
from taciturn.federation.agreement import agree
from taciturn.federation.coordinator import round_times
from taciturn.federation.local_cluster import LocalFederation, local_federation
from taciturn.federation.run_folder import federated
from taciturn.federation.status import site_status
from taciturn.federation.terms import Terms
from taciturn.runs.folder import RunFolder, read_lines

Say = Callable[[str], None]

SITES = {"north": 20_000, "south": 20_000, "west": 20_000}
STUDY = {"features": "none", "algorithm": "objpm", "local_updates": 5, "total_epsilon": 3.0}


def run_demo(out: Path | None, rounds: int, calm: bool, say: Say) -> dict[str, Any]:
    """Provision, start, kill, finish, compare; what came of it."""
    study = STUDY | {"rounds": rounds}
    with (
        _place(out, say) as root,
        local_federation(root, "mnist14", SITES, study, {"answer_seconds": 5, "ready_seconds": 20}) as demo,
    ):
        terms = demo.prepare()
        say(f"made identities and kits for {', '.join(SITES)}")
        for site in SITES:
            demo.start_agent(site)
        demo.start_coordinator()
        say("started one server and three agents, with mutual TLS on loopback")
        demo.wait(1)
        away = {} if calm else _disturb(demo, rounds, say)
        demo.finish()
        say("finished; comparing with a simulation in one process")
        return _result(demo, terms) | {"restarts": 0 if calm else 2, "away": away, "folder": str(root) if out else ""}


def _disturb(demo: LocalFederation, rounds: int, say: Say) -> dict[str, float]:
    """Kill a site, then the server, each at once and without a word; how long the site was away."""
    demo.wait(rounds // 6)
    demo.agents["south"].send_signal(signal.SIGKILL)
    killed, began = demo.done, time.monotonic()
    say(f"killed the agent of south after round {killed}")
    demo.start_agent("south")
    back = _wait_for_return(demo, "south", killed, rounds - 5)
    missed = sum("south" in row["missing"] for row in read_lines(demo.run / "rounds.jsonl"))
    away = {"rounds": missed, "seconds": round(time.monotonic() - began, 1)}
    seen = "it is back" if back else "it is not back yet"
    say(f"started it again; {seen} after {away['seconds']:g} s and {missed} rounds without it")
    demo.kill_coordinator()
    say(f"killed the server after round {demo.done}, and gave its command again")
    demo.start_coordinator()
    return away


def _wait_for_return(demo: LocalFederation, site: str, killed: int, latest: int) -> bool:
    """Whether a site that was missed after a round answers again before nearly all rounds are over."""
    while demo.done < latest:
        demo.wait(demo.done)
        rows = [row for row in read_lines(demo.run / "rounds.jsonl") if row["round"] > killed]
        if any(site in row["missing"] for row in rows) and site in rows[-1]["answered"]:
            return True
        time.sleep(0.1)
    return False


def _result(demo: LocalFederation, terms: Terms) -> dict[str, Any]:
    folder = RunFolder.open(demo.run)
    figures = federated(folder)
    spent = {site: site_status(demo.site(site))["studies"][0]["spent_epsilon"] for site in SITES}
    return {
        "rounds": figures["rounds"],
        "sites": len(SITES),
        "test_error": folder.read_summary().runs[0].test_error,
        "identical_to_simulation": demo.same_as_simulation(),
        "duals_equal": demo.duals_equal(),
        "ms_per_round": statistics.median(round_times(folder)),
        "budget_spent": max(spent.values()),
        "budget_planned": agree(terms).plan.bound.epsilon,
        "answered": figures["answered"],
        "spent_by_site": spent,
        "ledgers_cover_uploads": all(demo.releases(site) >= figures["answered"].get(site, 0) for site in SITES),
        "non_private": folder.read_ledger().non_private,
    }


@contextlib.contextmanager
def _place(out: Path | None, say: Say) -> Iterator[Path]:
    """A folder for everything; a temporary one stays where the demonstration fails, for somebody to look into."""
    if out is not None:
        if out.exists():
            raise InputError(f"{out} exists: choose another folder")
        out.mkdir(parents=True, mode=0o700)
    root = Path(tempfile.mkdtemp(prefix="taciturn-demo-")) if out is None else out.resolve()
    say(f"all files, and what every process says, are in {root}")
    try:
        yield root
    except Exception:
        say(f"it failed: the files stay in {root}; {root}/*.txt is what its processes said")
        raise
    except BaseException:  # Ctrl-C
        if out is None:
            shutil.rmtree(root, ignore_errors=True)
        raise
    if out is None:
        shutil.rmtree(root, ignore_errors=True)
