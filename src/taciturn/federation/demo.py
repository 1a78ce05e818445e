"""The demonstration: a federation on this machine, with a killed site and server, compared with a simulation."""

from __future__ import annotations

import contextlib
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from taciturn.errors import InputError
from taciturn.federation.agreement import derive_agreement
from taciturn.federation.coordinator import round_milliseconds
from taciturn.federation.local_cluster import LocalFederation, local_federation
from taciturn.federation.run_folder import participation_totals, read_rounds
from taciturn.federation.site_operations import site_status
from taciturn.federation.terms import Terms
from taciturn.runs.folder import RunFolder

Say = Callable[[str], None]

SITES = {"north": 20_000, "south": 20_000, "west": 20_000}
STUDY = {"features": "none", "algorithm": "objpm", "local_updates": 5, "total_epsilon": 3.0}


def run_demo(out: Path | None, rounds: int, calm: bool, say: Say) -> dict[str, object]:
    """Provision and run a federation, and compare its result with a simulation.

    Parameters
    ----------
    out : Path or None
        A new folder for all files; None for a temporary one.
    rounds : int
        Number of rounds.
    calm : bool
        Whether to skip the crashes.
    say : callable
        Gets sentences about the progress.

    Returns
    -------
    dict
        The result, as JSON.
    """
    study = STUDY | {"rounds": rounds}
    running = {"answer_seconds": 5, "ready_seconds": 20}
    with _demo_folder(out, say) as root, local_federation(root, "mnist14", SITES, study, running) as demo:
        terms = demo.prepare()
        say(f"created identities and kits for {', '.join(SITES)}")
        for site in SITES:
            demo.start_agent(site)
        demo.start_coordinator()
        say("started one server and three agents, with mutual TLS on loopback")
        demo.wait_for_round(1)
        away = {} if calm else _disturb(demo, rounds, say)
        demo.wait_for_end()
        say("finished; comparing with a simulation in one process")
        return _result(demo, terms) | {"restarts": 0 if calm else 2, "away": away, "folder": str(root) if out else ""}


def _disturb(demo: LocalFederation, rounds: int, say: Say) -> dict[str, float]:
    """Kill a site and then the server, and return how long the site was away."""
    demo.wait_for_round(rounds // 6)
    demo.agents["south"].send_signal(signal.SIGKILL)
    killed, began = demo.rounds_done, time.monotonic()
    say(f"killed the agent of south after round {killed}")
    demo.start_agent("south")
    back = _wait_for_return(demo, "south", killed, rounds - 5)
    missed = sum("south" in line.missing for line in read_rounds(RunFolder.open(demo.run)))
    away = {"rounds": missed, "seconds": round(time.monotonic() - began, 1)}
    outcome = "it is back" if back else "it is not back yet"
    say(f"restarted it; {outcome} after {away['seconds']:g} s and {missed} rounds without it")
    demo.kill_coordinator()
    say(f"killed the server after round {demo.rounds_done}, and restarted it")
    demo.start_coordinator()
    return away


def _wait_for_return(demo: LocalFederation, site: str, killed: int, latest: int) -> bool:
    """Return whether a site that was missing after a round answers again before round `latest`."""
    while demo.rounds_done < latest:
        demo.wait_for_round(demo.rounds_done)
        lines = [line for line in read_rounds(RunFolder.open(demo.run)) if line.round > killed]
        if any(site in line.missing for line in lines) and site in lines[-1].answered:
            return True
        time.sleep(0.1)
    return False


def _result(demo: LocalFederation, terms: Terms) -> dict[str, object]:
    folder = RunFolder.open(demo.run)
    totals = participation_totals(folder)
    spent = {site: site_status(demo.site(site))["studies"][0]["spent_epsilon"] for site in SITES}
    return {
        "rounds": totals.rounds,
        "sites": len(SITES),
        "test_error": folder.read_summary().runs[0].test_error,
        "identical_to_simulation": demo.matches_simulation(),
        "duals_equal": demo.duals_match(),
        "ms_per_round": statistics.median(round_milliseconds(folder)),
        "budget_spent": max(spent.values()),
        "budget_planned": derive_agreement(terms).plan.bound.epsilon,
        "answered": totals.answered,
        "spent_by_site": spent,
        "ledgers_cover_uploads": all(demo.charged_rounds(site) >= totals.answered.get(site, 0) for site in SITES),
        "non_private": folder.read_ledger().non_private,
    }


@contextlib.contextmanager
def _demo_folder(out: Path | None, say: Say) -> Iterator[Path]:
    """Yield the folder for all files; a temporary one is deleted unless the demonstration fails."""
    if out is not None:
        if out.exists():
            raise InputError(f"{out} exists; choose another folder")
        out.mkdir(parents=True, mode=0o700)
    root = Path(tempfile.mkdtemp(prefix="taciturn-demo-")) if out is None else out.resolve()
    say(f"all files, and the output of every process, are in {root}")
    keep = out is not None
    try:
        yield root
    except Exception:  # not Ctrl-C
        keep = True
        say(f"the demonstration failed; its files stay in {root}, and the output of its processes in {root}/*.txt")
        raise
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)
