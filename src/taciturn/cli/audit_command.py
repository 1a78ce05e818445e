"""`taciturn audit`: try to refute a privacy claim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import rich_click as click
from click.core import ParameterSource
from click.exceptions import Exit

from taciturn.audit import Audit, Claim
from taciturn.audit import audit as run_audit
from taciturn.audit.auditor import AuditFinding
from taciturn.audit.games import AUDITED, takes_samples
from taciturn.cli.output import JSON, PATH, check_figure, note, print_json, print_table, save_figure, say, stderr
from taciturn.core.storage import to_json, write_text
from taciturn.errors import InputError
from taciturn.planning.study import local_updates, sampling_rate
from taciturn.privacy.trust import AGENTS, SECURE_SUM
from taciturn.progress import subscribe
from taciturn.reporting.report import write_report
from taciturn.runs.folder import RunFolder
from taciturn.settings import Settings, resolve
from taciturn.training_display import StatusLine

MAX_HONEST = 4  # agents behind a sum that an audit of a run simulates; more change nothing
NUMBERS = ("rho", "eta", "true pos.", "false pos.", "epsilon >=")


@click.command(context_settings={"show_default": True})
@click.option("--mode", default="certified", metavar="VALUE", help="certified, or paper")
@click.option("--algorithm", metavar="VALUE", help=f"{', '.join(AUDITED)}; by default objp, for several updates objpm")
@click.option("--mechanism", metavar="VALUE", help="gaussian or laplace; by default gaussian, in mode paper laplace")
@click.option("--adjacency", default="add-remove", metavar="VALUE", help="add-remove or replace-one")
@click.option("--local-updates", type=int, metavar="NUMBER", help="E; by default that of the algorithm, else 1")
@click.option("--sampling-rate", type=float, metavar="NUMBER", help="q of dpsgd; by default that of the algorithm")
@click.option("--claim", default=1.0, metavar="NUMBER", help="claimed epsilon; in mode paper, that of one update")
@click.option("--delta", default=1e-6, metavar="NUMBER", help="claimed delta")
@click.option("--noise", default="seeded", metavar="VALUE", help="seeded (floating point) or hardened (exact integers)")
@click.option("--trust", default="agents", metavar="VALUE", help="agents, secure-sum or server; for dpgd, dpsgd, objw")
@click.option("--colluders", default=1, metavar="NUMBER", help="secure-sum: agents that reveal what they know")
@click.option("--missing", default=0, metavar="NUMBER", help="secure-sum: agents that may be missing from the sum")
@click.option("--agents", type=int, metavar="NUMBER", help="P, the agents in a sum; by default 2 of them are honest")
@click.option("--releases", default=200_000, metavar="NUMBER", help="releases from each data set, in every game")
@click.option("--confidence", default=0.999, metavar="NUMBER", help="confidence of the lower bound")
@click.option("--seed", type=int, metavar="NUMBER", help="seed, to repeat an audit; by default none")
@click.option("--run", "folder", type=PATH, metavar="RUN", help="audit the settings of this run; its report shows it")
@click.option("--plot", type=PATH, metavar="FILE", help="draw the trade-off of errors to this file")
@JSON
def audit(
    claim: float,
    releases: int,
    confidence: float,
    seed: int | None,
    folder: Path | None,
    plot: Path | None,
    as_json: bool,
    **claimed: Any,
) -> None:
    """Attack the releases of one agent's round, and report the epsilon that this proves.

    The release code of 'taciturn run' runs many times on each of two data sets that differ in one record. An attacker
    who knows everything except which data set was used tries to tell the releases apart. The attacker's error rates
    give a lower bound on epsilon. A smaller claim is refuted (exit code 1); a larger one is not refuted, but not proved
    either.

    Against Gaussian noise the attack is sharper at a larger delta, for which there is less noise: --delta 0.01.

    \b
    Examples:
      taciturn audit
      taciturn audit --mechanism laplace --noise hardened
      taciturn audit --local-updates 10 --delta 0.01 --plot audit.png
      taciturn audit --algorithm hidden --json
      taciturn audit --algorithm dpsgd --sampling-rate 0.5 --delta 0.1 --releases 20000
      taciturn audit --algorithm dpgd --trust secure-sum --noise hardened --delta 0.01 --agents 10 --missing 2
      taciturn audit --mode paper --local-updates 10    the paper's claim: refuted
      taciturn audit --run runs/a                       the settings of a run; its report shows the outcome
    """
    check_figure(plot)
    if folder is None:
        tested = Claim(epsilon=claim, **{name: value for name, value in claimed.items() if value is not None})
    else:
        tested = _claim_of(RunFolder.open(folder), (*claimed, "claim"))
    line = StatusLine(stderr, unit="releases")
    try:
        with subscribe(line):
            found = run_audit(tested, releases=releases, confidence=confidence, seed=seed)
    finally:
        line.close()
    if plot is not None:
        from taciturn.audit.tradeoff_figure import tradeoff

        save_figure(tradeoff(found), plot)
    if folder is not None:
        write_text(folder / "audit.json", to_json(found.to_json()) + "\n")
        write_report(RunFolder.open(folder))
    if as_json:
        print_json(found.to_json())
    else:
        _print(found, plot)
    if found.exceeded:
        note(f"the claim is refuted: epsilon is at least {_bound(found)}, and {found.claim.epsilon:g} was claimed")
        raise Exit(1)


def _claim_of(folder: RunFolder, own: Sequence[str]) -> Claim:
    """Return what a finished run claims for its smallest budget; flags that would change the claim are refused."""
    context = click.get_current_context()
    for name in own:
        if context and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InputError(f"--{name.replace('_', '-')} cannot be given with --run, which takes it from the run")
    folder.read_summary()
    settings = resolve(folder.read_config())
    if settings.pooled_sums:
        raise InputError(
            f"{folder.path} was run with --simulate sums, so it has no releases of single agents to audit: "
            "audit a run with --simulate agents"
        )
    budgets = settings.total_epsilon if settings.mode == "certified" else settings.epsilon
    if math.isinf(min(budgets)):
        raise InputError(f"{folder.path} has no noise, so there is no claim to audit")
    algorithm = settings.algorithm[0]
    claim = Claim(
        epsilon=min(budgets),
        delta=settings.delta,
        mode=settings.mode,
        algorithm=algorithm,
        mechanism=settings.mechanism if settings.mode == "certified" else "laplace",
        adjacency=settings.adjacency,
        local_updates=local_updates(settings, algorithm),
        sampling_rate=sampling_rate(settings, algorithm) if takes_samples(algorithm) else None,
        noise=settings.noise,
    )
    return claim if settings.trust == AGENTS else _with_trust(claim, folder, settings)


def _with_trust(claim: Claim, folder: RunFolder, settings: Settings) -> Claim:
    """Return the claim with the run's trust model; few honest agents are simulated: more make no difference."""
    lost = settings.colluders + settings.missing if settings.trust == SECURE_SUM else 0
    honest = max(MAX_HONEST, settings.missing + 1)  # a sum needs more honest agents than may be missing
    simulated = lost + min(folder.read_ledger().study.facts.agents - lost, honest)
    return replace(
        claim, trust=settings.trust, colluders=settings.colluders, missing=settings.missing, agents=simulated
    )


def _print(found: Audit, plot: Path | None) -> None:
    claim = found.claim
    sampled = f", q = {claim.sampling_rate:g}" if takes_samples(claim.algorithm) else ""
    summed = f", {claim.trust} of {claim.agents} agents, {claim.honest} of them honest" if claim.trust != AGENTS else ""
    say(
        f"{claim.mode} {claim.algorithm}, E = {claim.local_updates}{sampled}, {claim.noise} {claim.mechanism} noise"
        f"{summed}, {claim.adjacency}, {found.releases:,} releases of each data set\n"
    )
    print_table(("game", "score", *NUMBERS), [_row(finding) for finding in found.findings], left=2)
    nominal = "nominal, as in the paper, " if claim.mode == "paper" else ""
    limit = "; this many releases cannot prove more" if found.epsilon_lower == found.provable else ""
    say(f"\nepsilon  at least {_bound(found)}{limit}")
    verdict = "refuted" if found.exceeded else "not refuted"
    say(f"claim    {claim.epsilon:g}, {nominal}with delta {claim.delta:g}: {verdict}")
    if plot is not None:
        say(f"plot     {plot}")


def _row(finding: AuditFinding) -> tuple[str, ...]:
    true, false = (f"{100.0 * n / finding.counts.trials:.3g} %" for n in finding.counts[:2])
    steps = f"{finding.rho:.3g}", f"{finding.eta:.3g}"
    return finding.game, finding.attack.score, *steps, true, false, f"{finding.epsilon_lower:.3f}"


def _bound(found: Audit) -> str:
    return f"{found.epsilon_lower:.3f}, with confidence {100.0 * found.confidence:g} %"
