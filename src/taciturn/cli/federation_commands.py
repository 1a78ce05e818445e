"""`taciturn federation`: a study among sites on other machines. Here the coordinator's commands; `site` has the sites'."""

from __future__ import annotations

import importlib.util
import signal
from pathlib import Path
from typing import Any

import rich_click as click
from click.exceptions import Exit

from taciturn import api
from taciturn.cli.options import NearestGroup
from taciturn.cli.output import print_json, print_result, print_sentence, stderr, stdout
from taciturn.cli.progress_display import FederationWatch
from taciturn.cli.site_commands import AUDIT, LOG, TOKEN, serve_vitals, site
from taciturn.core.signals import stop_signals
from taciturn.core.storage import write_text
from taciturn.errors import InputError, TaciturnError
from taciturn.settings.rules import counts, integer, real

IDENTITY = "coordinator.identity"


@click.group(cls=NearestGroup)
def federation() -> None:
    """Train together over a network: one coordinator, an agent at every site.

    Nothing of a site's records leaves it but noisy parameters, sealed for the coordinator, and each site decides for
    itself what it takes part in. What carries the messages is confined, and trusted with nothing
    (docs/howto/deployment.md). The page docs/howto/federate-three-sites.md goes through all of it.

    \b
    Examples:
      taciturn federation demo                               everything on this machine, crashes included
      taciturn federation init --schema schema.toml --sites north=250,south=200 --total-records 400
      taciturn federation enrol federation.toml north north.id
      taciturn federation terms federation.toml              what the study is, and the hash to compare
      taciturn federation provision federation.toml --out kits
      taciturn federation run federation.toml --kits kits
    """


federation.add_command(site)


@federation.command()
@click.argument("file", default="federation.toml", type=click.Path(path_type=Path))
@click.option("--name", default="study", help="what the study is called")
@click.option("--schema", default="", help="schema file of the sites' tables")
@click.option("--data", default="", help="a published data set instead of tables (taciturn data list)")
@click.option("--sites", required=True, metavar="NAME=N,...", help="the sites, each with the most records it may bring")
@click.option("--total-records", required=True, metavar="NUMBER", help="of all sites together, a round number")
@click.option("--total-epsilon", default="1", metavar="NUMBER", help="what the study may spend [default: 1]")
@click.option("--delta", default="1e-6", metavar="NUMBER", help="at this delta [default: 1e-6]")
@click.option("--host", default="localhost", help="how the sites reach the coordinator [default: localhost]")
@click.option("--port", default="8002", metavar="NUMBER", help="on this port [default: 8002]")
def init(file: Path, name: str, schema: str, data: str, **given: Any) -> None:
    """Write the terms of a study, for everybody to read.

    \b
    Examples:
      taciturn federation init --schema schema.toml --sites north=250,south=200,west=200 --total-records 500
      taciturn federation init digits.toml --data mnist14 --sites a=20000,b=20000,c=20000 --total-records 60000
    """
    from taciturn.federation.drafts import draft_terms
    from taciturn.federation.terms import read_terms

    if file.exists():
        raise InputError(f"{file} exists: choose another name")
    if not file.resolve().parent.is_dir():
        raise InputError(f"there is no folder {file.parent} to put {file.name} into")
    if bool(schema) == bool(data):
        raise InputError("give either --schema, of the sites' tables, or --data, a published data set")
    sites = counts("sites", given["sites"]) if "=" in given["sites"] else None
    if not isinstance(sites, dict):
        raise InputError(f"sites is {given['sites']}: it must name them, as in north=250,south=200")
    text = draft_terms(
        name,
        schema,
        data,
        sites,
        integer(1)("total-records", given["total_records"]),
        real(0.0)("total-epsilon", given["total_epsilon"]),
        real(0.0, 1.0)("delta", given["delta"]),
        given["host"],
        integer(1, 65535)("port", given["port"]),
        _own_identity(file.resolve().parent / IDENTITY),
        file.resolve().parent,
    )
    write_text(file, text)
    try:
        read_terms(file)
    except TaciturnError:
        file.unlink()
        raise
    stdout.print(
        f"{file}: read it; 'taciturn federation enrol' puts each site's identity into it, then "
        f"'taciturn federation provision {file}' makes the kits",
        soft_wrap=True,
        highlight=False,
    )


@federation.command()
@click.argument("terms", type=click.Path(path_type=Path))
@click.argument("site")
@click.argument("identity")
def enrol(terms: Path, site: str, identity: str) -> None:
    """Put a site's IDENTITY into the terms: the line that 'taciturn federation site identity' printed, or a file with it.

    Compare the fingerprint with the site by telephone: who can put another line here can answer in the site's name.

    \b
    Examples:
      taciturn federation enrol federation.toml north north.id
      taciturn federation enrol federation.toml north taciturn-id-1:...
    """
    from taciturn.federation.agreement import group_digits
    from taciturn.federation.drafts import insert_identity
    from taciturn.federation.identity import read_public
    from taciturn.federation.terms import read_terms

    public = read_public(identity)
    text = insert_identity(read_terms(terms), site, public)
    before = terms.read_text(encoding="utf-8")
    write_text(terms, text)
    try:
        read = read_terms(terms)
    except TaciturnError:
        write_text(terms, before)
        raise
    stdout.print(f"{site}: fingerprint {public.fingerprint}", soft_wrap=True, highlight=False)
    left = [name for name in read.sites if name not in read.identities]
    rest = (
        f"still without an identity: {', '.join(left)}"
        if left
        else f"complete; their hash is {group_digits(read.digest)}"
    )
    stdout.print(rest, soft_wrap=True, highlight=False)


@federation.command()
@click.argument("terms", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def terms(terms: Path, as_json: bool) -> None:
    """Say what a study is: its plan, its parties, and the hash by which they know that they mean the same.

    The plan is computed from the terms as coordinator and sites compute it. The hash is over all that they must have in
    common, so it is final once every site is enrolled. 'taciturn federation site check' shows the site's own.

    \b
    Examples:
      taciturn federation terms federation.toml
    """
    from taciturn.federation.agreement import (
        describe_terms,
        group_digits,
    )
    from taciturn.federation.terms import read_terms

    found = describe_terms(read_terms(terms))
    if as_json:
        print_json(found)
        return
    parties = {
        name: (one["fingerprint"] or "no identity yet") + ("" if most is None else f"; at most {most:,} records")
        for name, one in found.pop("parties").items()
        for most in (one["records_max"],)
    }
    revoked, missing, digest = (found.pop(name) for name in ("revoked", "missing", "hash"))
    found |= parties | ({"revoked": f"{len(revoked)} identities"} if revoked else {})
    found["hash"] = group_digits(digest) or f"not final: no identity yet of {', '.join(missing) or 'the coordinator'}"
    for name, value in found.items():
        stdout.print(f"[bold]{name:14}[/] {value}", highlight=False, soft_wrap=True)


@federation.command()
@click.argument("terms", type=click.Path(path_type=Path))
@click.option("--out", default="kits", type=click.Path(path_type=Path), help="folder for the kits [default: kits]")
@click.option("--renew", multiple=True, metavar="NAME", help="make this kit again: the old one is worth nothing then")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def provision(terms: Path, out: Path, renew: tuple[str, ...], as_json: bool) -> None:
    """Make a start-up kit for the server and every site.

    A kit is a certificate, its key, the authority's certificate and an address. It lets its owner connect, and nothing
    else. Run again, it adds the kits of new sites and leaves the others alone. The folder kits/authority signs
    certificates: keep it, and keep it secret.

    \b
    Examples:
      taciturn federation provision federation.toml --out kits
      taciturn federation provision federation.toml --out kits --renew north
    """
    from taciturn.federation.kits import provision as make
    from taciturn.federation.terms import read_terms

    made = make(read_terms(terms), out, renew)
    if as_json:
        print_json({name: str(path) for name, path in made.items()})
        return
    for name, path in made.items():
        stdout.print(f"{name:14} {path}", soft_wrap=True, highlight=False)


@federation.command()
@click.argument("terms", type=click.Path(path_type=Path))
@click.option("--kits", default="kits", type=click.Path(path_type=Path), help="folder of the kits [default: kits]")
@click.option("--out", type=click.Path(path_type=Path), help="the run folder [default: runs/federation-NAME]")
@click.option("--identity", type=click.Path(path_type=Path), help="the coordinator's [default: beside the terms]")
@click.option("--without", multiple=True, metavar="SITE", help="go on without this site for good; may be repeated")
@LOG
@AUDIT
@click.option("--json", "as_json", is_flag=True, help="print one JSON object, and nothing else, on stdout")
def run(
    terms: Path,
    kits: Path,
    out: Path | None,
    identity: Path | None,
    without: tuple[str, ...],
    log: Path | None,
    audit: str,
    as_json: bool,
) -> None:
    """Run a study: wait for the sites, train, and go on after whatever happens.

    The same command takes a study up again that was stopped (Ctrl-C) or killed, from its last round; no budget is
    spent twice. A study that has ended is shown. A site that is left out is not asked again, and what it had sent no
    longer counts.

    \b
    Examples:
      taciturn federation run federation.toml --kits kits
      taciturn federation run federation.toml --kits kits --out runs/second --json
      taciturn federation run federation.toml --kits kits --without west
    """
    needs_engine()
    from taciturn.federation.coordinator import FINISHED
    from taciturn.federation.coordinator_process import run_coordinator
    from taciturn.federation.logs import (
        audited,
        check_audit,
        logged,
    )
    from taciturn.federation.run_folder import participation_totals
    from taciturn.federation.terms import read_terms

    read = read_terms(terms)
    own = identity or terms.resolve().parent / IDENTITY
    place = out or Path("runs") / f"federation-{read.name}"
    with (
        logged(log, print_sentence) as say,
        audited(check_audit("--audit", audit), "coordinator") as note,
        stop_signals(say) as stop,
        FederationWatch(stderr, say, lines=log is not None) as watch,
    ):
        folder, outcome = run_coordinator(read, kits, own, place, say, stop, watch.line, without, note)
    if outcome != FINISHED:
        stderr.print("stopped: the same command goes on from here", soft_wrap=True, highlight=False)
        raise Exit(130)
    finished = api.Run(folder)
    if as_json:
        print_json({"outcome": outcome, **participation_totals(folder)._asdict(), **finished.summary})
    else:
        print_result(finished)


@federation.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--listen", default="127.0.0.1:9465", show_default=True, metavar="HOST:PORT", help="the address")
@TOKEN
def serve(run: Path, listen: str, token: str | None) -> None:
    """Serve the health of the command that works in a RUN folder, its metrics for Prometheus, and a live page.

    /health and /metrics are for any program of this machine, the page for those who have the token. On an address that
    is not loopback, everything needs the token, and nothing is encrypted. Ctrl-C ends it.

    \b
    Examples:
      taciturn federation serve runs/federation-study
      curl http://127.0.0.1:9465/metrics
    """
    from taciturn.dashboard.vitals import RunWatch

    serve_vitals(RunWatch(run), listen, token)


@federation.command()
@click.option(
    "--out", type=click.Path(path_type=Path), help="keep everything in this folder [default: a temporary one]"
)
@click.option("--rounds", default="60", metavar="NUMBER", help="of the study [default: 60]")
@click.option("--calm", is_flag=True, help="kill nobody")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object, and nothing else, on stdout")
def demo(out: Path | None, rounds: str, calm: bool, as_json: bool) -> None:
    """A whole federation on this machine: one server, three sites, mutual TLS, a killed site and a killed server.

    The sites' noise comes from a seed, so that the result can be compared with a simulation, number by number.

    \b
    Examples:
      taciturn federation demo
      taciturn federation demo --json --out demo
    """
    needs_engine()
    from taciturn.federation.demo import run_demo

    count = integer(10, 1000)("rounds", rounds)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends it, its processes end with it
    with FederationWatch(stderr) as watch:
        result = run_demo(out, count, calm, watch.say)
    if as_json:
        print_json(result)
        return
    for name, value in result.items():
        stdout.print(f"[bold]{name.replace('_', ' '):24}[/] {value}", highlight=False, soft_wrap=True)


def _own_identity(path: Path) -> str:
    """The coordinator's public identity; its private half is made where there is none."""
    from taciturn.federation.identity import Identity

    return str((Identity.open(path) if path.exists() else Identity.create(path)).public)


def needs_engine() -> None:
    """Say what is missing where the extra is not installed."""
    if importlib.util.find_spec("nvflare") is None:
        raise InputError("a federation needs NVFlare: pip install 'taciturn[federation]'")
