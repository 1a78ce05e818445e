"""What a site can read of its own: whether its agent is up, its studies, their cost, their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tacit.errors import InputError, no_such
from tacit.federation.at_work import give_back, settle, study_folder
from tacit.federation.final_model import signer
from tacit.federation.journal import Experiment, Journal
from tacit.federation.policy import Site, read_site
from tacit.federation.status import LOCK, Seen, look
from tacit.privacy.totals import ledger_totals
from tacit.results.account import Account
from tacit.results.folder import RunFolder


def site_status(path: Path) -> dict[str, Any]:
    """The agent, the budget over all studies, and every study."""
    site = read_site(path)
    account = Account.open(site.ledger).state()
    experiments: list[Experiment] = []
    answered: dict[str, int] = {}
    if (site.state / "journal.sqlite").is_file():
        with Journal.read(site.state) as journal:
            experiments = journal.experiments()
            answered = {begun.id: sum(1 for _ in journal.answered(begun.id)) for begun in experiments}
    return {
        "site": site.name,
        **agent_status(look(site.state, LOCK)),
        "ledger": str(site.ledger),
        **{name: account[name] for name in ("total_epsilon", "delta", "epsilon_used", "epsilon_next")},
        "budget_left": max(0.0, account["total_epsilon"] - account["epsilon_used"]),
        "studies": [_study(site, begun, answered[begun.id]) for begun in experiments],
    }


def agent_status(seen: Seen) -> dict[str, Any]:
    """The site's agent: a process that has died is neither running nor connected, whatever its file says."""
    return {
        "running": seen.running,
        "pid": seen.life.get("pid") if seen.running else None,
        "started": seen.moment("started"),
        "connected": seen.connected,
        "connected_since": seen.moment("connected") if seen.connected else None,
        "last_heartbeat": seen.moment("heartbeat"),
        "last_question": seen.moment("question"),
        "last_answer": seen.moment("answer"),
        "rounds_answered": seen.count("rounds"),
        "dropped_messages": seen.count("dropped"),
        "engine_restarts": seen.count("restarts"),
        "study_at_work": str(seen.life.get("study", "")) if seen.running else "",
    }


def _study(site: Site, begun: Experiment, rounds: int) -> dict[str, Any]:
    folder = study_folder(site, begun.id)
    spent, planned = 0.0, 0.0
    if rounds or folder.exists():  # a crash may have come before it had one
        ledger = RunFolder.open(folder).read_ledger()
        spent = ledger_totals(ledger)["total_epsilon"]
        planned = next(entry["planned_epsilon"] for entry in ledger if entry["kind"] == "plan")
    return {
        "study": begun.study,
        "experiment": begun.id,
        "begun": begun.begun,
        "closed": begun.closed,
        "broken": begun.broken,
        "non_private": begun.non_private,
        "rounds": rounds,
        "spent_epsilon": spent,
        "planned_epsilon": float(planned),
        "folder": str(folder),
        "model": _model(begun, folder),
    }


def _model(begun: Experiment, folder: Path) -> str:
    """Who signed the model that is in a study's folder; empty where there is no model."""
    if not folder.exists() or not RunFolder.open(folder).finished:
        return ""
    try:
        found = signer(RunFolder.open(folder), begun.id, begun.terms)
    except InputError as error:
        return f"NOT SIGNED: {error}"
    return f"signed by the coordinator {found.fingerprint}" if found else "not signed"


def close_study(path: Path, start: str) -> str:
    """Close the study whose name begins like this."""
    site = read_site(path)
    with Journal.open(site.state, patience=2.0) as journal:
        known = {begun.id: begun for begun in journal.experiments()}
        found = [begun for name, begun in known.items() if name.startswith(start)]
        if not known:
            raise InputError("this site has not taken part in a study yet")
        if len(found) != 1:
            raise no_such("study", start, [name[:8] for name in known])
        if found[0].closed:
            raise InputError(f"the study {start} was closed on {found[0].closed}")
        folder = study_folder(site, found[0].id)
        if journal.last(found[0].id) is None and not folder.exists():
            give_back(site, journal, found[0])
        else:
            settle(site, journal, found[0], RunFolder.open(folder))
    return f"{found[0].study} ({found[0].id[:8]})"
