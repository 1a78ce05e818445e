"""The demonstration: a federation on this machine, with killed processes, compared with a simulation."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from taciturn.errors import InputError
from taciturn.federation.agreement import derive_agreement
from taciturn.federation.coordinator import round_milliseconds
from taciturn.federation.journal import LEFT, PENDING
from taciturn.federation.local_cluster import LocalFederation, local_federation
from taciturn.federation.run_folder import participation_totals, read_rounds
from taciturn.federation.site_operations import site_status
from taciturn.federation.terms import Terms
from taciturn.privacy.trust import AGENTS, SECURE_SUM
from taciturn.reporting.evaluation_tables import estimate_words, last_evaluations
from taciturn.runs.folder import RunFolder

Say = Callable[[str], None]

SITES = {"north": 20_000, "south": 20_000, "west": 20_000}
HELD_OUT = {"test_share": 0.2, "evaluations": 2}
STUDY = {
    "features": "none",
    "algorithm": "objpm",
    "local_updates": 5,
    "total_epsilon": 3.0,
    "trust": AGENTS,
    **HELD_OUT,
}
SUM_SITES = dict.fromkeys(("north", "east", "south", "west", "centre"), 12_000)
SUM_STUDY = {"features": "none", "algorithm": "dpgd", "total_epsilon": 3.0, "trust": SECURE_SUM}
RUNNING = {"answer_seconds": 10, "ready_seconds": 30}
HOLD_SECONDS = 0.3  # without news from a site, after which it waits for another one
CATCHES = 200  # rounds in which a site may be caught with an upload that has not left


class KilledSite(NamedTuple):
    """A site whose agent was killed in a slot of a secure sum."""

    site: str
    when: str
    slot: str


class Accident(NamedTuple):
    """The outcome of a slot in which a site was killed."""

    site: str
    when: str
    slot: str
    charged: bool  # at the site
    in_the_sum: bool


class Absence(NamedTuple):
    """How long a killed site was away."""

    rounds: int
    seconds: float


class DemoSite(NamedTuple):
    """A site of the demonstration."""

    name: str
    answered: int  # rounds
    charged: int  # uploads
    spent_epsilon: float


@dataclass(frozen=True)
class DemoResult:
    """The outcome of a demonstration, for people and as JSON."""

    trust: str
    rounds: int
    test_error: float | None
    measured_with_noise: str  # the last private evaluation in words; "" if there was none
    ms_per_round: float
    sites: tuple[DemoSite, ...]
    budget_planned: float
    identical_to_simulation: bool
    ledgers_cover_uploads: bool
    duals_equal: bool | None  # None: a secure sum, whose server keeps no duals
    slots_asked: int
    slots_opened: int
    accidents: tuple[Accident, ...]  # in slots of a secure sum
    away: Absence | None
    restarts: int
    non_private: str | None
    folder: str  # "" if it was temporary

    @property
    def budget_spent(self) -> float:
        """The largest epsilon that a site has spent."""
        return max(site.spent_epsilon for site in self.sites)

    def to_json(self) -> dict[str, object]:
        """Return the result as JSON."""
        own = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return own | {
            "budget_spent": self.budget_spent,
            "sites": [site._asdict() for site in self.sites],
            "accidents": [one._asdict() for one in self.accidents],
            "away": self.away._asdict() if self.away else None,
        }


def run_demo(
    out: Path | None, rounds: int, calm: bool, trust: str, say: Say, watch: Callable[[int], None]
) -> DemoResult:
    """Provision and run a federation, and compare its result with a simulation.

    Parameters
    ----------
    out : Path or None
        A new folder for all files; None for a temporary one.
    rounds : int
        Number of rounds.
    calm : bool
        Whether to skip the crashes.
    trust : str
        "agents", or "secure-sum" with five sites.
    say : callable
        Gets sentences about the progress.
    watch : callable
        Gets the number of finished rounds, several times a second.

    Returns
    -------
    DemoResult
        What happened, and whether everything agrees.
    """
    summed = trust == SECURE_SUM
    sites, study = (SUM_SITES, SUM_STUDY) if summed else (SITES, STUDY)
    with (
        _demo_folder(out, say) as root,
        local_federation(root, "mnist14", sites, study | {"rounds": rounds}, RUNNING) as demo,
    ):
        demo.watch = watch
        terms = demo.prepare()
        say(f"created identities and kits for {', '.join(sites)}")
        for site in sites:
            demo.start_agent(site)
        demo.start_coordinator()
        say(f"started one server and {len(sites)} agents, with mutual TLS on loopback")
        demo.wait_for_round(1)
        away = None if calm or summed else _disturb(demo, rounds, say)
        killed = _disturb_sums(demo, rounds, say) if summed and not calm else []
        demo.wait_for_end()
        say("finished; comparing with a simulation in one process")
        restarts, folder = 0 if calm else 2, str(root) if out else ""
        return _result(demo, terms, _accidents(demo, killed), away, restarts, folder)


def _disturb(demo: LocalFederation, rounds: int, say: Say) -> Absence:
    """Kill a site and then the server, and return how long the site was away."""
    demo.wait_for_round(rounds // 6)
    demo.agents["south"].send_signal(signal.SIGKILL)
    killed, began = demo.rounds_done, time.monotonic()
    say(f"killed the agent of south after round {killed}")
    demo.start_agent("south")
    back = _wait_for_return(demo, "south", killed, rounds - 5)
    missed = sum("south" in line.missing for line in read_rounds(RunFolder.open(demo.run)))
    away = Absence(missed, round(time.monotonic() - began, 1))
    outcome = "it is back" if back else "it is not back yet"
    say(f"restarted it; {outcome} after {away.seconds:g} s and {missed} rounds without it")
    demo.kill_coordinator()
    say(f"killed the server after round {demo.rounds_done}, and restarted it")
    demo.start_coordinator()
    return away


def _disturb_sums(demo: LocalFederation, rounds: int, say: Say) -> list[KilledSite]:
    """Kill a site in an upload, and another one between its upload and its shares."""
    demo.wait_for_round(rounds // 6)
    slot = _kill_in_upload(demo, "south")
    say(f"killed the agent of south before its upload of slot {slot} had left it")
    _bring_back(demo, "south", rounds, say)
    later = _kill_before_shares(demo, "west", "centre")
    say(f"killed the agent of west after its upload of slot {later}, before its shares")
    _bring_back(demo, "west", rounds, say)
    return [KilledSite("south", "in its upload", slot), KilledSite("west", "before its shares", later)]


def _kill_in_upload(demo: LocalFederation, site: str) -> str:
    """Kill a site that has stored an upload which has not left, and return the upload's slot."""
    agent = demo.agents[site]
    with demo.journal(site) as journal:
        for _ in range(CATCHES):
            demo.watch(demo.rounds_done)
            slot = newest = journal.newest_slot(demo.experiment)
            while slot == newest:
                demo.check_running()
                time.sleep(0.0005)
                slot = journal.newest_slot(demo.experiment)
            agent.send_signal(signal.SIGSTOP)
            if journal.newest_departures(1)[0].fate == PENDING:
                break
            agent.send_signal(signal.SIGCONT)
        agent.send_signal(signal.SIGKILL)
    return slot


def _kill_before_shares(demo: LocalFederation, site: str, slow: str) -> str:
    """Stop one site, so that the others wait for its upload; kill another one whose upload has left."""
    waiting, agent, other = "", demo.agents[site], demo.agents[slow]
    with demo.journal(site) as journal, demo.journal(slow) as behind:
        while not waiting:
            demo.watch(demo.rounds_done)
            other.send_signal(signal.SIGSTOP)
            time.sleep(HOLD_SECONDS)
            slot, last = journal.newest_slot(demo.experiment), journal.newest_departures(1)[0]
            if last.kind == "sum upload" and last.fate == LEFT and behind.newest_slot(demo.experiment) != slot:
                waiting = slot
                agent.send_signal(signal.SIGKILL)
            other.send_signal(signal.SIGCONT)
            demo.check_running()
            time.sleep(HOLD_SECONDS / 10)
    return waiting


def _bring_back(demo: LocalFederation, site: str, rounds: int, say: Say) -> None:
    """Start a killed agent again, and wait until it answers."""
    demo.agents[site].wait()
    killed, began = demo.rounds_done, time.monotonic()
    demo.start_agent(site)
    back = _wait_for_return(demo, site, killed, rounds - 5)
    say(f"restarted it; {'it is back' if back else 'it is not back yet'} after {time.monotonic() - began:.1f} s")


def _wait_for_return(demo: LocalFederation, site: str, killed: int, latest: int) -> bool:
    """Return whether a site that was missing after a round answers again before round `latest`."""
    while demo.rounds_done < latest:
        demo.wait_for_round(demo.rounds_done)
        lines = [line for line in read_rounds(RunFolder.open(demo.run)) if line.round > killed]
        if any(site in line.missing for line in lines) and site in lines[-1].answered:
            return True
        time.sleep(0.1)
    return False


def _measured(folder: RunFolder) -> str:
    """Return the error of the last private evaluation, with its standard error; empty if there was none."""
    rows = last_evaluations(folder.read_evaluations())
    return estimate_words(rows[0].quality) if rows and rows[0].quality else ""


def _accidents(demo: LocalFederation, killed: Sequence[KilledSite]) -> tuple[Accident, ...]:
    """Return the outcomes of the slots in which sites were killed."""
    opened = {line.slot: line.answered for line in read_rounds(RunFolder.open(demo.run))}
    return tuple(
        Accident(*one, charged=one.slot in demo.charges(one.site), in_the_sum=one.site in opened.get(one.slot, []))
        for one in killed
    )


def _result(
    demo: LocalFederation,
    terms: Terms,
    accidents: tuple[Accident, ...],
    away: Absence | None,
    restarts: int,
    folder: str,
) -> DemoResult:
    run = RunFolder.open(demo.run)
    totals, ledger, summed = participation_totals(run), run.read_ledger(), terms.settings.trust == SECURE_SUM
    sites = tuple(
        DemoSite(
            site,
            totals.answered.get(site, 0),
            len(demo.charges(site)),
            site_status(demo.site(site))["studies"][0]["spent_epsilon"],
        )
        for site in terms.agents
    )
    return DemoResult(
        trust=terms.settings.trust,
        rounds=totals.rounds,
        test_error=run.read_summary().runs[0].test_error,
        measured_with_noise=_measured(run),
        ms_per_round=statistics.median(round_milliseconds(run)),
        sites=sites,
        budget_planned=derive_agreement(terms).plan.bound.epsilon,
        identical_to_simulation=demo.matches_simulation(),
        ledgers_cover_uploads=all(site.charged >= site.answered for site in sites),
        duals_equal=None if summed else demo.duals_match(),
        slots_asked=len({entry.slot for entry in ledger.releases}) if summed else 0,
        slots_opened=len({line.slot for line in read_rounds(run)}) if summed else 0,
        accidents=accidents,
        away=away,
        restarts=restarts,
        non_private=ledger.non_private,
        folder=folder,
    )


@contextlib.contextmanager
def _demo_folder(out: Path | None, say: Say) -> Iterator[Path]:
    """Yield the folder for all files; a temporary one is deleted unless the demonstration fails."""
    if out is not None:
        if out.exists():
            raise InputError(f"{out} exists; choose another folder")
        out.mkdir(parents=True, mode=0o700)
    root = Path(tempfile.mkdtemp(prefix="taciturn-demo-")) if out is None else out.resolve()
    fate = "" if out else ", deleted at the end; --out DIR keeps them"
    say(f"all files, and the output of every process, are in {root}{fate}")
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
