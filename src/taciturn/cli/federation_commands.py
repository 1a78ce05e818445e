"""`taciturn federation`: the coordinator's commands of a study over a network; `site` has those of a site."""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click
from click.exceptions import Exit

from taciturn.cli.options import SuggestingGroup
from taciturn.cli.output import (
    JSON,
    PATH,
    check_new,
    note,
    print_evaluation,
    print_fields,
    print_json,
    print_result,
    print_table,
    say,
    stderr,
)
from taciturn.cli.progress_display import FederationDisplay
from taciturn.cli.site_commands import AUDIT, LOG, TOKEN, serve_monitor, site
from taciturn.core.signals import stop_signals
from taciturn.core.storage import require_folder, write_text
from taciturn.errors import InputError, TaciturnError
from taciturn.privacy.trust import SECURE_SUM
from taciturn.result import Run
from taciturn.settings.rules import counts, integer, one_of, real

if TYPE_CHECKING:
    from taciturn.federation.demo import DemoResult
    from taciturn.federation.terms import Terms
    from taciturn.runs.folder import RunFolder

F = TypeVar("F", bound=Callable[..., Any])
IDENTITY = "coordinator.identity"
TERMS = click.argument("terms", type=PATH)
TRUSTED = "trust model: every site adds all the noise to its own uploads, or only sums over sites can be read"


def with_sites(command: F) -> F:
    """Add the arguments of a command that talks to the sites of a study."""
    for add in reversed(
        (
            TERMS,
            click.option("--kits", default="kits", type=PATH, help="folder of the kits [default: kits]"),
            click.option("--out", type=PATH, help="the run folder [default: runs/federation-NAME]"),
            click.option("--identity", type=PATH, help="the coordinator's identity [default: next to the terms]"),
            click.option("--without", multiple=True, metavar="SITE", help="exclude this site permanently; repeatable"),
            LOG,
            AUDIT,
            JSON,
        )
    ):
        command = add(command)
    return command


@click.group(cls=SuggestingGroup)
def federation() -> None:
    """Train together over a network: one coordinator, and an agent at every site.

    Only numbers with noise leave a site, encrypted for the coordinator, and each site decides which studies it joins.
    With five sites or more they are masked as well, so that nobody can read what a single site sent
    (docs/howto/federate-five-sites.md). The program that carries the messages is confined and not trusted
    (docs/howto/deployment.md). The page docs/howto/federate-four-sites.md shows every step. The commands below are the
    coordinator's; 'taciturn federation site' has those of a site.

    \b
    Examples:
      taciturn federation demo                               everything on this machine, including crashes
      taciturn federation init --schema schema.toml --sites north=250,south=200 --total-records 400
      taciturn federation enrol federation.toml north north.id
      taciturn federation terms federation.toml              the plan, and the hash that all parties compare
      taciturn federation provision federation.toml --out kits
      taciturn federation run federation.toml --kits kits
      taciturn federation evaluate federation.toml --kits kits
    """


federation.add_command(site)


@federation.command()
@click.argument("file", default="federation.toml", type=PATH)
@click.option("--name", default="study", help="the name of the study")
@click.option("--schema", default="", help="schema file of the sites' tables")
@click.option("--data", default="", help="a published data set instead of tables (taciturn data list)")
@click.option("--sites", required=True, metavar="NAME=N,...", help="the sites, each with its maximum number of records")
@click.option("--total-records", required=True, metavar="NUMBER", help="of all sites together, a round number")
@click.option("--total-epsilon", default="1", metavar="NUMBER", help="what the study may spend [default: 1]")
@click.option("--delta", default="1e-6", metavar="NUMBER", help="delta of the total [default: 1e-6]")
@click.option("--trust", default="", metavar="VALUE", help="secure-sum or agents [default: secure-sum from 5 sites on]")
@click.option("--colluders", default="1", metavar="NUMBER", help="secure-sum: sites that may collude [default: 1]")
@click.option("--missing", default="", metavar="NUMBER", help="secure-sum: sites that may be missing from a sum")
@click.option("--host", default="localhost", help="the coordinator's address for the sites [default: localhost]")
@click.option("--port", default="8002", metavar="NUMBER", help="the coordinator's port [default: 8002]")
def init(
    file: Path,
    name: str,
    schema: str,
    data: str,
    sites: str,
    total_records: str,
    total_epsilon: str,
    delta: str,
    trust: str,
    colluders: str,
    missing: str,
    host: str,
    port: str,
) -> None:
    """Write the terms of a study, for all parties to read.

    With five sites or more the study has a secure sum: sites mask what they send, and only sums over nearly all of them
    can be read, so each site adds only a share of the noise (docs/explanation/secure-sum.md). --missing is by default a
    tenth of the sites, at least one. With fewer sites, every site adds all of the noise itself (--trust agents).

    \b
    Examples:
      taciturn federation init --schema schema.toml --sites north=250,south=200,west=200 --total-records 500
      taciturn federation init --schema schema.toml --sites a=90,b=90,c=90,d=90,e=90 --total-records 400 --colluders 2
      taciturn federation init digits.toml --data mnist14 --sites a=20000,b=20000,c=20000 --total-records 60000
    """
    from taciturn.federation.drafts import draft_terms
    from taciturn.federation.identity import Identity
    from taciturn.federation.policy import FEDERATED_TRUST
    from taciturn.federation.terms import read_terms

    check_new(file)
    require_folder(file)
    folder = file.resolve().parent
    if bool(schema) == bool(data):
        raise InputError("give either --schema for the sites' tables, or --data for a published data set")
    most = counts("sites", sites) if "=" in sites else None
    if not isinstance(most, dict):
        raise InputError(f"--sites is {sites}; it must name the sites, as in north=250,south=200")
    records, budget = integer(1)("total-records", total_records), real(0.0)("total-epsilon", total_epsilon)
    delta_value, port_number = real(0.0, 1.0)("delta", delta), integer(1, 65535)("port", port)
    model = one_of("trust", lambda: FEDERATED_TRUST)("trust", trust) if trust else ""
    collude = integer(0)("colluders", colluders)
    gone = integer(0)("missing", missing) if missing else None
    own = folder / IDENTITY
    public = (Identity.open(own) if own.exists() else Identity.create(own)).public
    text = draft_terms(
        name, schema, data, most, records, budget, delta_value, host, port_number, str(public), folder,
        trust=model, colluders=collude, missing=gone,
    )  # fmt: skip
    write_text(file, text)
    try:
        read = read_terms(file)
    except TaciturnError:
        file.unlink()
        raise
    say(
        f"{file}: read it; 'taciturn federation enrol' adds each site's identity, then "
        f"'taciturn federation provision {file}' makes the kits"
    )
    if read.settings.trust == SECURE_SUM:
        say("it has a secure sum: every site checks the others by telephone, with 'taciturn federation site verify'")


@federation.command()
@TERMS
@click.argument("site")
@click.argument("identity")
def enrol(terms: Path, site: str, identity: str) -> None:
    """Add a site's IDENTITY to the terms: the line that 'taciturn federation site identity' prints, or a file with it.

    Compare the fingerprint with the site by telephone: an attacker who replaces the line can answer in the site's name.

    \b
    Examples:
      taciturn federation enrol federation.toml north north.id
      taciturn federation enrol federation.toml north taciturn-id-1:...
    """
    from taciturn.federation.drafts import insert_identity
    from taciturn.federation.identity import group_digits, read_public
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
    say(f"{site}: fingerprint {public.fingerprint}")
    left = [name for name in read.sites if name not in read.identities]
    say(
        f"sites without an identity: {', '.join(left)}"
        if left
        else f"complete; the hash is {group_digits(read.digest)}"
    )


@federation.command()
@TERMS
@JSON
def terms(terms: Path, as_json: bool) -> None:
    """Show a study's plan and parties, and the hash by which they check that they agree.

    Coordinator and sites compute the plan from the terms in the same way. The hash covers everything that they must
    agree on, so it is final once every site is enrolled. 'taciturn federation site check' shows the site's hash.

    \b
    Examples:
      taciturn federation terms federation.toml
    """
    from taciturn.federation.agreement import describe_terms
    from taciturn.federation.identity import group_digits
    from taciturn.federation.terms import read_terms

    found = describe_terms(read_terms(terms))
    if as_json:
        print_json(found)
        return
    shown = {name: value for name, value in found.items() if isinstance(value, str) and value and name != "hash"}
    for name, party in found["parties"].items():
        limit = "" if party["records_max"] is None else f"; at most {party['records_max']:,} records"
        shown[name] = (party["fingerprint"] or "no identity yet") + limit
    if found["revoked"]:
        shown["revoked"] = f"{len(found['revoked'])} identities"
    missing = ", ".join(found["missing"]) or "the coordinator"
    shown["hash"] = group_digits(found["hash"]) or f"not final; missing identities: {missing}"
    print_fields(shown, 14)


@federation.command()
@TERMS
@click.option("--out", default="kits", type=PATH, help="folder for the kits [default: kits]")
@click.option("--renew", multiple=True, metavar="NAME", help="replace this kit; the old one becomes invalid")
@JSON
def provision(terms: Path, out: Path, renew: tuple[str, ...], as_json: bool) -> None:
    """Make a start-up kit for the server and every site.

    A kit contains a certificate, its key, the authority's certificate and an address. It only allows its owner to
    connect. Run again, the command adds the kits of new sites and keeps the others. The folder kits/authority signs
    certificates: keep it, and keep it secret.

    \b
    Examples:
      taciturn federation provision federation.toml --out kits
      taciturn federation provision federation.toml --out kits --renew north
    """
    from taciturn.federation.kits import provision as make_kits
    from taciturn.federation.terms import read_terms

    kits = make_kits(read_terms(terms), out, renew)
    if as_json:
        print_json({name: str(path) for name, path in kits.items()})
        return
    for name, path in kits.items():
        say(f"{name:14} {path}")
    say(f"send each site its kit, like a password, with {terms}; {out / 'server'} and {out / 'authority'} stay here")


@federation.command()
@with_sites
def run(terms: Path, out: Path | None, as_json: bool, **running: Any) -> None:
    """Run a study: wait for the sites, train, and recover from failures.

    The same command continues a study that was stopped (Ctrl-C) or killed, from its last round; no budget is spent
    twice. For a finished study it shows the result. An excluded site is not asked again, and what it sent no longer
    counts, except in sums that a secure sum has opened already.

    \b
    Examples:
      taciturn federation run federation.toml --kits kits
      taciturn federation run federation.toml --kits kits --out runs/second --json
      taciturn federation run federation.toml --kits kits --without west
    """
    check_engine()
    from taciturn.federation.coordinator import FINISHED
    from taciturn.federation.run_folder import participation_totals
    from taciturn.federation.terms import read_terms

    read = read_terms(terms)
    folder, outcome = _coordinate(read, _study_folder(read, out), **running)
    if outcome != FINISHED:
        note("stopped: the same command continues from here")
        raise Exit(130)
    finished = Run(folder)
    if as_json:
        print_json({"outcome": outcome, **participation_totals(folder)._asdict(), **finished.summary})
    else:
        print_result(finished)


@federation.command()
@with_sites
def evaluate(terms: Path, out: Path | None, as_json: bool, **running: Any) -> None:
    """Measure the current model of a study, with noise, on the records that the sites hold out.

    The command waits for the sites, uses one of the evaluations that the terms pay for, and otherwise leaves the study
    as it was: 'taciturn federation run' continues it. Stop that command first. A model is evaluated only once; if you
    repeat the command, or if the study has finished, it shows the recorded result.

    \b
    Examples:
      taciturn federation evaluate federation.toml --kits kits
      taciturn federation evaluate federation.toml --kits kits --out runs/second --json
    """
    check_engine()
    from taciturn.federation.coordinator import STOPPED
    from taciturn.federation.coordinator_process import begin_study
    from taciturn.federation.terms import read_terms

    read = read_terms(terms)
    place = _study_folder(read, out)
    if not place.exists():
        raise InputError(f"there is no study in {place}; 'taciturn federation run {terms}' begins one")
    folder, outcome = _coordinate(read, place, evaluate=True, **running)
    if outcome == STOPPED:
        note("stopped: nothing was measured")
        raise Exit(130)
    schedule, rows = begin_study(read, place.resolve()).schedule, folder.read_evaluations()
    if as_json:
        print_json({"ended": folder.finished, "paid": schedule.paid, "left": schedule.left, "evaluations": rows})
        return
    if not rows:
        raise InputError(f"{folder.path} ended without an evaluation; its sites no longer respond")
    print_evaluation(rows[-1], folder.read_start(local=False).data.target.names or ())
    if folder.finished:
        say("the study has ended; its sites no longer respond")
    else:
        say(f"{schedule.left} of {schedule.paid} evaluations are left; 'taciturn federation run {terms}' continues")


def _study_folder(terms: Terms, out: Path | None) -> Path:
    return out or Path("runs") / f"federation-{terms.name}"


def _coordinate(
    terms: Terms,
    place: Path,
    *,
    kits: Path,
    identity: Path | None,
    without: tuple[str, ...],
    log: Path | None,
    audit: str,
    evaluate: bool = False,
) -> tuple[RunFolder, str]:
    """Run the coordinator, and show its rounds."""
    from taciturn.federation.coordinator_process import run_coordinator
    from taciturn.federation.logs import audited, check_audit, logged

    own = identity or terms.path.resolve().parent / IDENTITY
    with (
        logged(log, note) as log_line,
        audited(check_audit("--audit", audit), "coordinator") as audit_line,
        stop_signals(log_line) as stop,
        FederationDisplay(stderr, log_line, lines=log is not None) as display,
    ):
        return run_coordinator(terms, kits, own, place, stop, display.show, without, audit_line, evaluate=evaluate)


@federation.command()
@click.argument("run", type=PATH)
@click.option("--listen", default="127.0.0.1:9465", show_default=True, metavar="HOST:PORT", help="the address")
@TOKEN
def serve(run: Path, listen: str, token: str | None) -> None:
    """Serve the health and Prometheus metrics of the coordinator of a RUN folder, and a live page.

    Any program on this machine can read /health and /metrics; the page needs the token. On an address that is not
    loopback, everything needs the token, and nothing is encrypted. Ctrl-C stops it.

    \b
    Examples:
      taciturn federation serve runs/federation-study
      curl http://127.0.0.1:9465/metrics
    """
    from taciturn.dashboard.monitoring import CoordinatorMonitor

    serve_monitor(CoordinatorMonitor(run), listen, token)


@federation.command()
@click.option("--out", type=PATH, help="keep all files in this folder [default: a temporary one]")
@click.option("--rounds", default="60", metavar="NUMBER", help="rounds of the study [default: 60]")
@click.option("--calm", is_flag=True, help="do not kill any process")
@click.option("--trust", type=click.Choice(["agents", "secure-sum"]), default="agents", show_default=True, help=TRUSTED)
@JSON
def demo(out: Path | None, rounds: str, calm: bool, trust: str, as_json: bool) -> None:
    """Run a whole federation on this machine: a server and three sites with mutual TLS; a site and the server crash.

    With --trust secure-sum there are five sites: one is killed during its upload, another before it sends its shares.
    The sites' noise comes from a seed, so that the result can be compared with a simulation, number by number.

    \b
    Examples:
      taciturn federation demo
      taciturn federation demo --trust secure-sum
      taciturn federation demo --json --out demo
    """
    check_engine()
    from taciturn.federation.demo import run_demo

    count = integer(10, 1000)("rounds", rounds)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its child processes end with it
    with stderr.status("starting") as status:

        def watch(done: int) -> None:
            status.update(f"round {done} of {count}" if done else "waiting for the first round")

        result = run_demo(out, count, calm, trust, note, watch)
    if as_json:
        print_json(result.to_json())
    else:
        _print_demo(result)


def _print_demo(result: DemoResult) -> None:
    """Print the sites as a table, then what was checked, one line each."""
    rows = [
        (site.name, f"{site.answered} of {result.rounds}", str(site.charged), f"{site.spent_epsilon:.4g}")
        for site in result.sites
    ]
    print_table(("site", "rounds answered", "uploads charged", "ε spent"), rows)
    error = "" if result.test_error is None else f"test error {result.test_error:.2%}; "
    equal, covered = ("yes" if ok else "NO" for ok in (result.identical_to_simulation, result.ledgers_cover_uploads))
    fields = {"model": f"{error}{result.rounds} rounds, {result.ms_per_round:.0f} ms each (median)"}
    if result.measured_with_noise:
        fields["measured"] = result.measured_with_noise
    fields["same as one process"] = f"{equal}, bit for bit"
    if result.duals_equal is not None:
        fields["duals at both ends"] = "equal" if result.duals_equal else "NOT equal"
    fields["ledgers cover all"] = covered
    fields["budget"] = f"ε {result.budget_spent:.4g} spent (maximum over sites), {result.budget_planned:.4g} planned"
    if result.slots_asked:
        fields["slots"] = f"{result.slots_asked} asked, {result.slots_opened} opened"
    for one in result.accidents:
        fate = f"{'charged' if one.charged else 'NOT charged'}, {'in the sum' if one.in_the_sum else 'not in the sum'}"
        fields[f"{one.site} was killed"] = f"{one.when}, slot {one.slot}: {fate}"
    if result.away:
        fields["south was away"] = f"{result.away.rounds} rounds, {result.away.seconds:g} s"
    if result.non_private:
        fields["protection"] = "none: the noise comes from a known seed, so that the runs can be compared"
    if result.folder:
        fields["folder"] = result.folder
    say()
    print_fields(fields, 20)


def check_engine() -> None:
    """Raise if the optional package that carries the messages is not installed."""
    if importlib.util.find_spec("nvflare") is None:
        raise InputError("a federation needs NVFlare; install it with: pip install 'taciturn[federation]'")
