"""`taciturn federation site`: what a site's engineer types."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from taciturn.cli.options import NearestGroup
from taciturn.cli.output import print_json, print_sentence, print_table, stderr, stdout
from taciturn.core.signals import stop_signals
from taciturn.errors import InputError
from taciturn.reporting.tables import format_bytes, format_epsilon
from taciturn.settings.rules import real

if TYPE_CHECKING:
    from taciturn.dashboard.station import Watch

SITE = click.argument("site", default="site.toml", type=click.Path(path_type=Path))
TOKEN = click.option(
    "--token",
    envvar="TACITURN_PAGE_TOKEN",
    metavar="TEXT",
    help="what the page asks visitors for [default: a random one]",
)
LOG = click.option(
    "--log", type=click.Path(path_type=Path), help="write to this file, ten of 10 MB at most [default: stderr]"
)
AUDIT = click.option(
    "--audit",
    default="",
    metavar="WHERE",
    help="a line of JSON for everything that happens: 'syslog', or syslog:/a/socket",
)


@click.group(cls=NearestGroup)
def site() -> None:
    """A site's own side: its records, its budget, its agent, and what left the house.

    \b
    Examples:
      taciturn federation site identity north > north.id
      taciturn federation site init north --kit kits/north --terms federation.toml --data north.csv --total-epsilon 3
      taciturn federation site check north/site.toml
      taciturn federation site start north/site.toml
      taciturn federation site status north/site.toml
      taciturn federation site serve north/site.toml
      taciturn federation site transcript north/site.toml
    """


@site.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def identity(folder: Path, as_json: bool) -> None:
    """Make this site's identity, or show the one that is there, for the coordinator to put into the terms.

    The private half stays in FOLDER. Send the line to the coordinator, and compare the fingerprint by telephone.

    \b
    Examples:
      taciturn federation site identity north > north.id
    """
    from taciturn.core.storage import make_folder
    from taciturn.federation.drafts import IDENTITY_FILE
    from taciturn.federation.identity import Identity

    make_folder(folder, exist_ok=True, private=True)
    path = folder / IDENTITY_FILE
    public = (Identity.open(path) if path.exists() else Identity.create(path)).public
    if as_json:
        print_json({"identity": str(public), "fingerprint": public.fingerprint, "file": str(path)})
        return
    stdout.print(str(public), soft_wrap=True, highlight=False)
    stderr.print(f"fingerprint {public.fingerprint}", soft_wrap=True, highlight=False)
    stderr.print(f"{path} is the private half: nobody else gets it", soft_wrap=True, highlight=False)


@site.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--kit", required=True, type=click.Path(path_type=Path), help="the start-up kit")
@click.option("--terms", required=True, type=click.Path(path_type=Path), help="federation.toml, from the coordinator")
@click.option("--data", "table", default="", help="the site's table: a .csv or .parquet file")
@click.option("--total-epsilon", required=True, metavar="NUMBER", help="what all studies on these records may spend")
@click.option("--delta", default="1e-6", metavar="NUMBER", help="at this delta [default: 1e-6]")
@click.option("--ledger", default="", help="the records' ledger, if there is one [default: a new one in FOLDER]")
def init(folder: Path, kit: Path, terms: Path, table: str, total_epsilon: str, delta: str, ledger: str) -> None:
    """Draft site.toml in the site's own FOLDER, and begin the ledger of its records.

    \b
    Examples:
      taciturn federation site init north --kit kits/north --terms federation.toml --data north.csv --total-epsilon 3
    """
    from taciturn.federation.drafts import write_site_draft

    budget = real(0.0)("total-epsilon", total_epsilon), real(0.0, 1.0)("delta", delta)
    path = write_site_draft(folder, kit, terms, table, budget, ledger)
    stdout.print(
        f"{path}: go through it, then 'taciturn federation site check {path}'", soft_wrap=True, highlight=False
    )


@site.command()
@SITE
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def check(site: Path, as_json: bool) -> None:
    """Check everything there is before anything is released: files, schema, records, budget, identity, kit.

    \b
    Examples:
      taciturn federation site check north/site.toml
    """
    from taciturn.federation.agreement import group_digits
    from taciturn.federation.site_operations import check_site

    found = check_site(site)
    if as_json:
        print_json(found)
        return
    for name, value in (found | {"hash": group_digits(found["hash"])}).items():
        stdout.print(f"[bold]{name.replace('_', ' '):22}[/] {value}", highlight=False, soft_wrap=True)
    stdout.print("nothing was released; 'taciturn federation site start' takes part", highlight=False, soft_wrap=True)


@site.command()
@SITE
@click.option("--seeded", default=None, metavar="SEED", help="noise from this seed, for tests: IT PROTECTS NOBODY")
@LOG
@AUDIT
def start(site: Path, seeded: str | None, log: Path | None, audit: str) -> None:
    """Start the site's agent, and keep it up until Ctrl-C.

    It connects to the coordinator (nobody connects to it), answers what site.toml allows, and refuses the rest.

    \b
    Examples:
      taciturn federation site start north/site.toml
      taciturn federation site start north/site.toml --log /var/log/taciturn/north.log --audit syslog
    """
    from taciturn.cli.federation_commands import needs_engine

    needs_engine()
    from taciturn.federation.agreement import (
        StudyLoader,
        find_objections,
    )
    from taciturn.federation.logs import (
        audited,
        check_audit,
        logged,
    )
    from taciturn.federation.site_operations import load_site_setup
    from taciturn.federation.vault import run_vault
    from taciturn.settings.rules import integer

    seed = None if seeded is None else integer(0, 2**62)("seeded", seeded)
    where = check_audit("--audit", audit)
    prepared = StudyLoader()
    own, agreement, _ = load_site_setup(site, prepared)
    with (
        logged(log, print_sentence) as say,
        audited(where or own.audit, own.name) as note,
        stop_signals(lambda sentence: say("stopping")) as stop,
    ):
        for reason in find_objections(own, agreement, reserved=True):
            say(f"the study will be refused: {reason}")
        if seed is not None:
            say("noise comes from a seed: this agent protects nobody (non_private: seeded)")
        run_vault(own, prepared, seed, say, stop, note)


@site.command()
@SITE
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def status(site: Path, as_json: bool) -> None:
    """Whether the agent is up and connected, and the studies: what each spent, where its ledger and report are.

    \b
    Examples:
      taciturn federation site status north/site.toml
    """
    from taciturn.federation.site_operations import site_status

    found = site_status(site)
    if as_json:
        print_json(found)
        return
    stdout.print(
        f"{found['site']}: epsilon {format_epsilon(found['epsilon_used'])} of {found['total_epsilon']:g} used or set "
        f"aside, {format_epsilon(found['budget_left'])} left at delta {found['delta']:g} ({found['ledger']})",
        soft_wrap=True,
        highlight=False,
    )
    stdout.print(_agent(found), soft_wrap=True, highlight=False)
    headings = ("study", "experiment", "begun", "ended", "rounds", "ε spent", "of")
    rows = [
        (
            study["study"] + (f" ({study['non_private']})" if study["non_private"] else ""),
            study["experiment"][:8],
            study["begun"][:10],
            (study["closed"] or ("BROKEN" if study["broken"] else "open"))[:10],
            str(study["rounds"]),
            format_epsilon(study["spent_epsilon"]),
            format_epsilon(study["planned_epsilon"]),
        )
        for study in found["studies"]
    ]
    print_table(headings, rows, left=4)
    for study in found["studies"]:
        stdout.print(f"{study['experiment'][:8]}  {study['folder']}", soft_wrap=True, highlight=False)
        if study["model"]:
            stdout.print(f"{'':8}  model {study['model']}", soft_wrap=True, highlight=False)


def _agent(found: dict[str, Any]) -> str:
    """The agent in one line."""
    if not found["running"]:
        last = f"; its last sign of life was at {found['last_heartbeat']}" if found["last_heartbeat"] else ""
        return f"agent: not running{last}"
    line = f"connected since {found['connected_since']}" if found["connected"] else "NOT connected to the coordinator"
    facts = {
        "process": found["pid"],
        "last heartbeat": found["last_heartbeat"] or "none yet",
        "last answer": found["last_answer"] or "none yet",
        "rounds": found["rounds_answered"],
        "dropped messages": found["dropped_messages"],
        "engine restarts": found["engine_restarts"],
    }
    return f"agent: {line}; " + "; ".join(f"{name} {value}" for name, value in facts.items())


@site.command()
@SITE
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def transcript(site: Path, as_json: bool) -> None:
    """List every byte string that left this site, and verify that the ledgers cover all of it.

    \b
    Examples:
      taciturn federation site transcript north/site.toml
      taciturn federation site transcript north/site.toml --json > what-left.json
    """
    from taciturn.federation.policy import read_site
    from taciturn.federation.transcript import read_transcript

    found = read_transcript(read_site(site))
    if as_json:
        lines = [{**line.departure._asdict(), **line._asdict(), "departure": None} for line in found.lines]
        for line in lines:
            del line["departure"]
        told = {"covered": not found.faults, "faults": found.faults, "repeats": found.repeats}
        print_json({**told, "departures": lines})
    else:
        headings = ("", "time", "what", "round", "bytes", "sha-256", "event")
        rows = [
            (
                str(d.number),
                d.time[5:16].replace("T", " "),
                f"{d.kind}, kept back" if line.kept_back else d.kind,
                "–" if d.round is None else str(d.round),
                format_bytes(d.bytes),
                d.sha256[:10],
                line.event,
            )
            for line in found.lines
            for d in (line.departure,)
        ]
        print_table(headings, rows, left=3)
        left = [line.departure.bytes for line in found.lines if not line.kept_back]
        stdout.print(f"{len(left)} byte strings, {format_bytes(sum(left))} in all", highlight=False)
        if found.repeats:
            stdout.print(f"one or another of them left {found.repeats:,} times more", highlight=False)
    if found.faults:
        raise InputError("; ".join(found.faults))
    if not as_json:
        stdout.print("the ledgers cover all of it", highlight=False)


@site.command()
@click.argument("experiment")
@SITE
def close(experiment: str, site: Path) -> None:
    """Close a study whose coordinator never came back: what it did not spend is given back, and it cannot go on.

    Stop the agent first: it keeps the journal open.

    \b
    Examples:
      taciturn federation site close 3f2a9c north/site.toml
    """
    from taciturn.federation.site_operations import close_study

    name = close_study(site, experiment)
    stdout.print(f"{name} is closed: nothing more is answered in it", soft_wrap=True, highlight=False)


@site.command()
@SITE
@click.option("--listen", default="127.0.0.1:9464", show_default=True, metavar="HOST:PORT", help="the address")
@TOKEN
def serve(site: Path, listen: str, token: str | None) -> None:
    """Serve the agent's health, its metrics for Prometheus, and a live page of what this site sends.

    The agent itself opens no network socket. This command reads its files, and a confined program answers: /health and
    /metrics for any program of this machine, and the page for those who have the token. On an address that is not
    loopback, everything needs the token, and nothing is encrypted. Ctrl-C ends it.

    \b
    Examples:
      taciturn federation site serve north/site.toml
      curl http://127.0.0.1:9464/health
    """
    from taciturn.dashboard.vitals import SiteWatch

    serve_vitals(SiteWatch(site), listen, token)


def serve_vitals(watch: Watch, listen: str, token: str | None) -> None:
    """Serve what a watch sees, until Ctrl-C."""
    from taciturn.dashboard.access_control import is_loopback
    from taciturn.dashboard.station import bind_station

    watch.vitals()  # files that cannot be read are an error here
    station = bind_station(watch, listen, token)
    if not is_loopback(station.host):
        print_sentence(
            f"warning: {station.host} is not loopback: other machines can reach it, they need the token, and what they "
            "get is not encrypted"
        )
    stdout.print(f"page     {station.page}", soft_wrap=True, highlight=False)
    stdout.print(f"health   {station.base}/health", soft_wrap=True, highlight=False)
    stdout.print(f"metrics  {station.base}/metrics  (Ctrl-C ends it)", soft_wrap=True, highlight=False)
    sys.stdout.flush()
    with stop_signals(lambda sentence: None) as stop:
        station.serve(stop)
