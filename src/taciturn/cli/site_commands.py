"""`taciturn federation site`: the commands of a site."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from taciturn.cli.options import SuggestingGroup
from taciturn.cli.output import JSON, PATH, note, print_fields, print_json, print_table, say
from taciturn.core.signals import stop_signals
from taciturn.core.storage import format_bytes
from taciturn.errors import InputError
from taciturn.privacy.budget_state import room_in_words
from taciturn.reporting.tables import format_epsilon
from taciturn.settings.rules import integer, real

if TYPE_CHECKING:
    from taciturn.dashboard.monitor_server import Monitor
    from taciturn.federation.status import AgentReport

SITE = click.argument("site", default="site.toml", type=PATH)
TOKEN = click.option(
    "--token", envvar="TACITURN_PAGE_TOKEN", metavar="TEXT", help="token of the page [default: a random one]"
)
LOG = click.option("--log", type=PATH, help="log file; at most ten files of 10 MB are kept [default: stderr]")
AUDIT = click.option(
    "--audit", default="", metavar="WHERE", help="write a JSON line for every event: 'syslog', or syslog:/a/socket"
)


@click.group(cls=SuggestingGroup)
def site() -> None:
    """Manage a site: its records, its budget, its agent, and what it has sent.

    SITE is the path of the site's own file site.toml; without it, site.toml in the current folder is meant.

    \b
    Examples:
      taciturn federation site identity north > north.id
      taciturn federation site init north --kit kits/north --terms federation.toml --data north.csv --total-epsilon 3
      taciturn federation site verify north/site.toml south "3f2a 9c01 77de 0b4c 5521 8e90 a6d3 14f8"
      taciturn federation site check north/site.toml
      taciturn federation site start north/site.toml
      taciturn federation site status north/site.toml
      taciturn federation site serve north/site.toml
      taciturn federation site transcript north/site.toml
    """


@site.command()
@click.argument("folder", type=PATH)
@JSON
def identity(folder: Path, as_json: bool) -> None:
    """Create this site's identity, or show the existing one, for the coordinator to add to the terms.

    The private key stays in FOLDER. Send the line to the coordinator, and compare the fingerprint by telephone: with
    the coordinator, and in a study with a secure sum with every other site, which types it into 'site verify'.

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
    say(str(public))
    note(f"fingerprint {public.fingerprint}")
    note(f"{path} is the private key: do not give it to anyone")


@site.command()
@click.argument("folder", type=PATH)
@click.option("--kit", required=True, type=PATH, help="the start-up kit")
@click.option("--terms", required=True, type=PATH, help="federation.toml, from the coordinator")
@click.option("--data", "table", default="", help="the site's table: a .csv or .parquet file")
@click.option("--total-epsilon", required=True, metavar="NUMBER", help="what all studies on these records may spend")
@click.option("--delta", default="1e-6", metavar="NUMBER", help="delta of the total [default: 1e-6]")
@click.option("--ledger", default="", help="the records' ledger, if there is one [default: a new one in FOLDER]")
def init(folder: Path, kit: Path, terms: Path, table: str, total_epsilon: str, delta: str, ledger: str) -> None:
    """Draft site.toml in the site's FOLDER, and create the ledger of its records.

    site.toml is the site's policy: which records, which budget, and what a study may ask for. Only this file decides,
    so read it before the agent starts. The total epsilon of the ledger cannot be raised later.

    \b
    Examples:
      taciturn federation site init north --kit kits/north --terms federation.toml --data north.csv --total-epsilon 3
    """
    from taciturn.federation.drafts import write_site_draft
    from taciturn.federation.policy import read_site
    from taciturn.federation.site_operations import read_peers_report

    budget = real(0.0)("total-epsilon", total_epsilon), real(0.0, 1.0)("delta", delta)
    path = write_site_draft(folder, kit, terms, table, budget, ledger)
    say(f"{path}: review it, then run 'taciturn federation site check {path}'")
    if (found := read_peers_report(read_site(path))) is not None and not found["enough"]:
        say(
            f"the study has a secure sum: before that, verify the other sites: 'taciturn federation site verify {path}'"
        )


@site.command()
@SITE
@JSON
def check(site: Path, as_json: bool) -> None:
    """Check files, schema, records, budget, peers, identity and kit before anything is released.

    If the site would refuse the study, the command fails and lists all reasons. Compare the hash that it shows with the
    coordinator by telephone. In a study with a secure sum it also lists the other sites that nobody here has verified
    yet: they count as colluders ('taciturn federation site verify').

    \b
    Examples:
      taciturn federation site check north/site.toml
    """
    from taciturn.federation.identity import group_digits
    from taciturn.federation.site_operations import check_site

    found = check_site(site)
    if as_json:
        print_json(found)
        return
    shown = found | {"hash": group_digits(str(found["hash"]))}
    print_fields({name.replace("_", " "): value for name, value in shown.items()}, 22)
    say("nothing was released; 'taciturn federation site start' takes part")


@site.command()
@SITE
@click.argument("peer", default="")
@click.argument("fingerprint", default="")
@JSON
def verify(site: Path, peer: str, fingerprint: str, as_json: bool) -> None:
    """Record that an identity in the terms really belongs to that site, or list who is verified and who is not.

    Call PEER on a number that you know, not one from the terms, and ask for the FINGERPRINT that 'taciturn federation
    site identity' shows there. In a secure sum, a site with a false identity and the coordinator could together read
    what you send. So a site that you have not verified counts as a colluder. If there are more of these than the study
    allows for, your site refuses the study. Without PEER nothing is recorded.

    \b
    Examples:
      taciturn federation site verify north/site.toml
      taciturn federation site verify north/site.toml south "3f2a 9c01 77de 0b4c 5521 8e90 a6d3 14f8"
    """
    from taciturn.federation.policy import read_site
    from taciturn.federation.site_operations import describe_peers, list_peers, verify_peer
    from taciturn.federation.terms import read_terms

    if peer and not fingerprint:
        raise InputError(f"give the fingerprint that {peer} reads out: 32 digits, in quotation marks")
    if peer:
        found = verify_peer(site, peer, fingerprint)
    else:
        own = read_site(site)
        found = list_peers(own, read_terms(own.study))
    if as_json:
        print_json(found)
        return
    rows = [
        (name, "yes" if one["verified"] else "NO", one["fingerprint"] or "no identity in the terms yet")
        for name, one in found["peers"].items()
    ]
    print_table(("site", "verified", "fingerprint in the terms"), rows, left=3, wrap=True)
    say(f"peers: {describe_peers(found)}")
    if not found["enough"]:
        say(f"{found['site']} refuses the study {found['study']} until more of them are verified")
    if found["needed"] and not all(one["verified"] for one in found["peers"].values()):
        say(f"call each of them, and type what they read out: taciturn federation site verify {site} NAME 'DIGITS'")


@site.command()
@SITE
@click.option("--seeded", default=None, metavar="SEED", help="noise from this seed, for tests: IT PROTECTS NO ONE")
@LOG
@AUDIT
def start(site: Path, seeded: str | None, log: Path | None, audit: str) -> None:
    """Start the site's agent and keep it running until Ctrl-C.

    It connects to the coordinator (no one connects to it), answers what site.toml allows, and refuses everything else.

    \b
    Examples:
      taciturn federation site start north/site.toml
      taciturn federation site start north/site.toml --log /var/log/taciturn/north.log --audit syslog
    """
    from taciturn.cli.federation_commands import check_engine

    check_engine()
    from taciturn.federation.agreement import StudyLoader, find_objections
    from taciturn.federation.logs import audited, check_audit, logged
    from taciturn.federation.site_operations import load_site_setup
    from taciturn.federation.vault import run_vault

    seed = None if seeded is None else integer(0, 2**62)("seeded", seeded)
    where = check_audit("--audit", audit)
    loader = StudyLoader()
    own, agreement, _ = load_site_setup(site, loader)
    with (
        logged(log, note) as log_line,
        audited(where or own.audit, own.name) as audit_line,
        stop_signals(lambda sentence: log_line("stopping")) as stop,
    ):
        for reason in find_objections(own, agreement, reserved=True):
            log_line(f"the study will be refused: {reason}")
        if seed is not None:
            log_line("noise comes from a seed: this agent protects no one (non_private: seeded)")
        run_vault(own, loader, seed, stop, audit_line)


@site.command()
@SITE
@JSON
def status(site: Path, as_json: bool) -> None:
    """Show whether the agent is running and connected, and what each study spent.

    \b
    Examples:
      taciturn federation site status north/site.toml
    """
    from taciturn.federation.site_operations import describe_peers, site_status

    found = site_status(site)
    if as_json:
        print_json(found)
        return
    say(
        f"{found['site']}: epsilon {format_epsilon(found['epsilon_used'])} of {found['total_epsilon']:g} used or "
        f"reserved at delta {found['delta']:g}; {room_in_words(found['epsilon_next'])} ({found['ledger']})"
    )
    say(_describe_agent(found))
    if found["peers"] is not None and found["peers"]["needed"]:
        say(f"peers of the study {found['peers']['study']}: {describe_peers(found['peers'])}")
    rows = [
        (
            study["study"] + (f" ({study['non_private']})" if study["non_private"] else ""),
            study["experiment"][:8],
            study["begun"][:10],
            (study["closed"] or ("BROKEN" if study["broken"] else "open"))[:10],
            str(study["rounds"]),
            str(study["uploads"]),
            format_epsilon(study["spent_epsilon"]),
            format_epsilon(study["planned_epsilon"]),
        )
        for study in found["studies"]
    ]
    print_table(("study", "experiment", "begun", "ended", "rounds", "uploads", "ε spent", "of"), rows, left=4)
    for study in found["studies"]:
        say(f"{study['experiment'][:8]}  {study['folder']}")
        if study["slot"]:
            lost = study["uploads"] - study["rounds"]
            say(f"{'':8}  newest slot {study['slot']}; uploads whose round was retried: {lost}")
        if study["model"]:
            say(f"{'':8}  model {study['model']}")


def _describe_agent(found: AgentReport) -> str:
    if not found["running"]:
        last = f"; its last heartbeat was at {found['last_heartbeat']}" if found["last_heartbeat"] else ""
        return f"agent: not running{last}"
    connection = (
        f"connected since {found['connected_since']}" if found["connected"] else "NOT connected to the coordinator"
    )
    facts = {
        "process": found["pid"],
        "last heartbeat": found["last_heartbeat"] or "none yet",
        "last answer": found["last_answer"] or "none yet",
        "rounds": found["rounds_answered"],
        "dropped messages": found["dropped_messages"],
        "engine restarts": found["engine_restarts"],
    }
    return f"agent: {connection}; " + "; ".join(f"{name} {value}" for name, value in facts.items())


@site.command()
@SITE
@JSON
def transcript(site: Path, as_json: bool) -> None:
    """List every message that left this site, and verify that the ledgers account for all of them.

    \b
    Examples:
      taciturn federation site transcript north/site.toml
      taciturn federation site transcript north/site.toml --json > what-left.json
    """
    from taciturn.federation.policy import read_site
    from taciturn.federation.transcript import read_transcript

    found = read_transcript(read_site(site))
    if as_json:
        lines = [{**line.departure._asdict(), **line._asdict()} for line in found.lines]
        for line in lines:
            del line["departure"]
        verdict = {"covered": not found.faults, "faults": found.faults, "repeats": found.repeats}
        print_json({**verdict, "departures": lines})
    else:
        rows = [
            (
                str(d.number),
                d.time[5:16].replace("T", " "),
                f"{what}, kept back" if kept_back else what,
                "–" if d.round is None else str(d.round),
                format_bytes(d.bytes),
                d.sha256[:10],
                event,
            )
            for d, what, kept_back, event in (
                (line.departure, line.what, line.kept_back, line.event) for line in found.lines
            )
        ]
        print_table(("", "time", "what", "round", "bytes", "sha-256", "event"), rows, left=3, spare=(5,))
        sent = [line.departure.bytes for line in found.lines if not line.kept_back]
        say(f"{len(sent)} messages, {format_bytes(sum(sent))} in all")
        if found.repeats:
            say(f"some of them were sent again, {found.repeats:,} times in all")
    if found.faults:
        raise InputError("; ".join(found.faults))
    if not as_json:
        say("the ledgers cover all of it")


@site.command()
@click.argument("experiment")
@SITE
def close(experiment: str, site: Path) -> None:
    """Close a study whose coordinator never returned. Its unspent budget is given back; the study cannot continue.

    Stop the agent first, because it keeps the journal open.

    \b
    Examples:
      taciturn federation site close 3f2a9c north/site.toml
    """
    from taciturn.federation.site_operations import close_study

    say(f"{close_study(site, experiment)} is closed; the site no longer answers in it")


@site.command()
@SITE
@click.option("--listen", default="127.0.0.1:9464", show_default=True, metavar="HOST:PORT", help="the address")
@TOKEN
def serve(site: Path, listen: str, token: str | None) -> None:
    """Serve the agent's health, its metrics for Prometheus, and a live page of what this site sends.

    The agent itself opens no network socket. This command reads its files, and a confined program answers. Any program
    on this machine can read /health and /metrics; the page needs the token. On an address that is not loopback,
    everything needs the token, and nothing is encrypted. Ctrl-C stops it.

    \b
    Examples:
      taciturn federation site serve north/site.toml
      curl http://127.0.0.1:9464/health
    """
    from taciturn.dashboard.monitoring import SiteMonitor

    serve_monitor(SiteMonitor(site), listen, token)


def serve_monitor(monitor: Monitor, listen: str, token: str | None) -> None:
    """Serve the health, metrics and page of a run or site until Ctrl-C.

    Parameters
    ----------
    monitor : Monitor
        Reads the files of the run or site.
    listen : str
        HOST:PORT.
    token : str or None
        The page's token; None chooses a random one.
    """
    from taciturn.dashboard.access_control import is_loopback
    from taciturn.dashboard.monitor_server import bind_monitor

    monitor.report()  # raises if its files cannot be read
    server = bind_monitor(monitor, listen, token)
    if not is_loopback(server.host):
        note(
            f"warning: {server.host} is not loopback: other machines can connect; they need the token, and the "
            "connection is not encrypted"
        )
    say(f"page     {server.page}")
    say(f"health   {server.base}/health")
    say(f"metrics  {server.base}/metrics  (Ctrl-C stops it)")
    sys.stdout.flush()
    with stop_signals(lambda sentence: None) as stop:
        server.serve(stop)
