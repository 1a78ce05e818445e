"""`taciturn audit`: try to refute a privacy claim."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rich_click as click
from click.core import ParameterSource
from click.exceptions import Exit

from taciturn.audit import Audit, Claim
from taciturn.audit import audit as refute
from taciturn.audit.auditor import AuditFinding, AuditProgress
from taciturn.audit.games import AUDITED, takes_samples
from taciturn.cli.output import print_json, print_table, stderr, stdout
from taciturn.core.storage import to_json, write_text
from taciturn.errors import InputError
from taciturn.planning.study import local_updates, sampling_rate
from taciturn.privacy.trust import AGENTS, SECURE_SUM
from taciturn.reporting.report import write_report
from taciturn.runs.folder import RunFolder
from taciturn.settings import Settings, resolve

SHOW_AFTER, LINE_SECONDS = 2.0, 10.0
MOST_HONEST = 4
NUMBERS = ("rho", "eta", "true pos.", "false pos.", "epsilon >=")


@click.command(context_settings={"show_default": True})
@click.option("--mode", default="certified", metavar="VALUE", help="certified, or paper")
@click.option("--algorithm", metavar="VALUE", help=f"{', '.join(AUDITED)}; by default objp, for several updates objpm")
@click.option("--mechanism", metavar="VALUE", help="gaussian or laplace; by default gaussian, in mode paper laplace")
@click.option("--adjacency", default="add-remove", metavar="VALUE", help="add-remove or replace-one")
@click.option("--local-updates", type=int, metavar="NUMBER", help="E; by default the algorithm's own, else 1")
@click.option("--sampling-rate", type=float, metavar="NUMBER", help="q of dpsgd; by default its own")
@click.option("--claim", default=1.0, metavar="NUMBER", help="epsilon that is claimed; in mode paper of one update")
@click.option("--delta", default=1e-6, metavar="NUMBER", help="delta that is claimed")
@click.option("--noise", default="seeded", metavar="VALUE", help="seeded (floating point) or hardened (exact integers)")
@click.option(
    "--trust", default="agents", metavar="VALUE", help="agents, secure-sum or server; of dpgd, dpsgd and objw"
)
@click.option("--colluders", default=1, metavar="NUMBER", help="secure-sum: agents that tell what they know")
@click.option("--agents", type=int, metavar="NUMBER", help="P behind a sum; by default 2 beside those that collude")
@click.option("--releases", default=200_000, metavar="NUMBER", help="releases from each data set, in every game")
@click.option("--confidence", default=0.999, metavar="NUMBER", help="of the lower bound")
@click.option("--seed", type=int, metavar="NUMBER", help="to repeat an audit; by default none")
@click.option(
    "--run", "folder", type=click.Path(path_type=Path), metavar="RUN", help="audit this run's setting, for its report"
)
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="draw the trade-off of errors here")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object, and nothing else, on stdout")
def audit(
    claim: float,
    releases: int,
    confidence: float,
    seed: int | None,
    folder: Path | None,
    plot: Path | None,
    as_json: bool,
    **told: Any,
) -> None:
    """Attack the releases of one agent's round, and say which epsilon that proves.

    Two data sets that differ in one record are released many times by the code that 'taciturn run' uses. An attacker who
    knows everything but which is which tells them apart; from the share of mistakes follows an epsilon that the
    releases have at least. A smaller claim is refuted (exit code 1); a larger one is not thereby proved.

    Against gaussian noise the attack is sharper at a larger delta, for which there is less noise: --delta 0.01.

    \b
    Examples:
      taciturn audit
      taciturn audit --mechanism laplace --noise hardened
      taciturn audit --local-updates 10 --delta 0.01 --plot audit.png
      taciturn audit --algorithm hidden --json
      taciturn audit --algorithm dpsgd --sampling-rate 0.5 --delta 0.1 --releases 20000
      taciturn audit --algorithm dpgd --trust secure-sum --delta 0.01
      taciturn audit --mode paper --local-updates 10    what the paper claims: refuted
      taciturn audit --run runs/a                       the setting of a run; its report tells the outcome
    """
    if plot is not None:
        from taciturn.reporting.figures.style import check_place

        check_place(plot)
    asked = (
        Claim(epsilon=claim, **{name: value for name, value in told.items() if value is not None})
        if folder is None
        else _claim_of(RunFolder.open(folder), (*told, "claim"))
    )
    with _watching() as watch:
        found = refute(asked, releases=releases, confidence=confidence, seed=seed, watch=watch)
    if plot is not None:
        from taciturn.audit.tradeoff_figure import tradeoff
        from taciturn.reporting.figures.style import save

        save(tradeoff(found), plot)
    if folder is not None:
        write_text(folder / "audit.json", to_json(found.summary()) + "\n")
        write_report(RunFolder.open(folder))
    if as_json:
        print_json(found.summary())
    else:
        _print(found, plot)
    if found.exceeded:
        stderr.print(_refuted(found), soft_wrap=True, highlight=False)
        raise Exit(1)


def _claim_of(folder: RunFolder, own: Sequence[str]) -> Claim:
    """What a finished run claims, of its smallest budget; flags that would change it are refused."""
    context = click.get_current_context()
    for name in own:
        if context and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InputError(f"{name.replace('_', '-')} is given, but with --run the run itself says it")
    folder.read_summary()
    settings = resolve(folder.read_config())
    budgets = settings.total_epsilon if settings.mode == "certified" else settings.epsilon
    if math.isinf(min(budgets)):
        raise InputError(f"{folder.path} was made without noise: there is no claim to audit")
    algorithm = settings.algorithm[0]
    return Claim(
        epsilon=min(budgets),
        delta=settings.delta,
        mode=settings.mode,
        algorithm=algorithm,
        mechanism=settings.mechanism if settings.mode == "certified" else "laplace",
        adjacency=settings.adjacency,
        local_updates=local_updates(settings, algorithm),
        sampling_rate=sampling_rate(settings, algorithm) if takes_samples(algorithm) else None,
        noise=settings.noise,
        **_trust_of(folder, settings),
    )


def _trust_of(folder: RunFolder, settings: Settings) -> dict[str, Any]:
    """Who is behind a run's sums; the more there are the longer it takes, and beyond a few nothing changes."""
    if settings.trust == AGENTS:
        return {}
    known = settings.colluders if settings.trust == SECURE_SUM else 0
    agents = next(entry["public"]["agents"] for entry in folder.read_ledger() if entry["kind"] == "study")
    played = known + min(int(agents) - known, MOST_HONEST)
    return {"trust": settings.trust, "colluders": settings.colluders, "agents": played}


def _print(found: Audit, plot: Path | None) -> None:
    claim = found.claim
    sampled = f", q = {claim.sampling_rate:g}" if takes_samples(claim.algorithm) else ""
    summed = f", {claim.trust} of {claim.agents} agents, {claim.honest} of them honest" if claim.trust != AGENTS else ""
    _say(
        f"{claim.mode} {claim.algorithm}, E = {claim.local_updates}{sampled}, {claim.noise} {claim.mechanism} noise"
        f"{summed}, {claim.adjacency}, {found.releases:,} releases of each data set\n"
    )
    print_table(("game", "score", *NUMBERS), [_row(one) for one in found.findings], left=2)
    verdict = "refuted" if found.exceeded else "not refuted"
    named = "nominal, as in the paper, " if claim.mode == "paper" else ""
    most = "; so many releases cannot prove more" if found.epsilon_lower == found.provable else ""
    _say(f"\nepsilon  at least {_shown(found)}{most}")
    _say(f"claim    {claim.epsilon:g}, {named}with delta {claim.delta:g}: {verdict}")
    if plot is not None:
        _say(f"plot     {plot}")


def _say(text: str) -> None:
    stdout.print(text, soft_wrap=True, highlight=False)


def _row(one: AuditFinding) -> tuple[str, ...]:
    true, false = (100.0 * n / one.counts.trials for n in one.counts[:2])
    steps = f"{one.rho:.3g}", f"{one.eta:.3g}"
    return one.game, one.attack.score, *steps, f"{true:.3g} %", f"{false:.3g} %", f"{one.epsilon_lower:.3f}"


def _shown(found: Audit) -> str:
    return f"{found.epsilon_lower:.3f}, with confidence {100.0 * found.confidence:g} %"


def _refuted(found: Audit) -> str:
    claim = found.claim
    return f"the claim is refuted: epsilon is at least {_shown(found)}, and {claim.epsilon:g} was claimed"


@contextmanager
def _watching() -> Iterator[AuditProgress]:
    """Something to look at when it takes longer: a line that changes on a terminal, one now and then in a log."""
    began = spoke = time.monotonic()
    status = stderr.status("auditing")

    def watch(done: int, total: int) -> None:
        nonlocal spoke
        now, text = time.monotonic(), f"auditing: {done:,} of {total:,} releases"
        if stderr.is_terminal and now - began > SHOW_AFTER:
            status.update(text)
            status.start()
        elif not stderr.is_terminal and now - spoke > LINE_SECONDS:
            spoke = now
            stderr.print(text, soft_wrap=True, highlight=False)

    try:
        yield watch
    finally:
        status.stop()
