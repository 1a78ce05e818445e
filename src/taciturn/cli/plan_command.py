"""`taciturn plan`: show what a budget buys before anything is spent."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import rich_click as click
import tomli_w

from taciturn import api
from taciturn.algorithms import ALGORITHMS, AlgorithmSpec
from taciturn.algorithms.schedules import ExactStep
from taciturn.cli.options import given_settings, setting_flags
from taciturn.cli.output import JSON, PATH, check_new, describe_map, print_json, print_table, save_figure, say
from taciturn.core.storage import format_bytes, write_text
from taciturn.planning.plan import noise_meaning
from taciturn.planning.tradeoffs import PlanFacts, PlanReport, plan_facts, planned_settings
from taciturn.privacy.accountants import NO_ACCOUNTANT, describe_accountant
from taciturn.privacy.calibration import delta_condition
from taciturn.privacy.trust import AGENTS, SECURE_SUM, SERVER
from taciturn.reporting.tables import format_epsilon
from taciturn.settings.checks import COLLUDERS

SUMMABLE = "dpgd"  # the method that a hint names to those whose own has no secure sum
NOISE_ON = {
    "gradients": "every update's gradient",
    "hidden": "every update's gradient",
    "uploads": "what is sent in the first round",
    "samples": "every sample's gradient",
    "objectives": "the gradient of the objective",
}


@click.command()
@click.argument("config", required=False, type=PATH)
@setting_flags(groups=("Data", "Problem", "Algorithm", "Privacy"))
@click.option("--out", type=PATH, help="write a config file for 'taciturn run'")
@click.option("--plot", type=PATH, help="draw the trade-offs (.png, .svg, .pdf)")
@JSON
def plan(config: Path | None, out: Path | None, plot: Path | None, as_json: bool, **flags: Any) -> None:
    """Propose rounds, local updates, clip, rho and eta for a total budget, from public facts alone.

    Nothing is spent and no private record is read. Settings that you give are kept; the planner chooses the others, and
    'taciturn run' uses the same values by default.

    \b
    Examples:
      taciturn plan --total-epsilon 1 --delta 1e-6
      taciturn plan --data mnist --total-epsilon 3 --plot plan.png --out plan.toml
      taciturn plan --data patients.csv --schema schema.toml --total-records 600 --agents 3 --total-epsilon 2
      taciturn run plan.toml
    """
    given = given_settings(flags)
    view = api.plan(config, **given)
    facts = plan_facts(view)
    check_new(out)
    if plot is not None:
        from taciturn.reporting.figures.summary_figures import plan_figure

        save_figure(plan_figure(view), plot)
    if out is not None:
        write_text(out, _config_text(view, config, given))
    if as_json:
        print_json(facts)
        return
    _print(view, facts)
    if out is not None:
        say(f"\n{out}: run it with 'taciturn run {out}'")


def _config_text(view: PlanReport, config: Path | None, given: dict[str, object]) -> str:
    names = {*given, *(api.read_config(config) if config else {})}
    meaning = noise_meaning(view.study.settings)
    comment = f"# Written by taciturn plan, from public facts alone.\n# A run of it has {meaning}.\n"
    return comment + tomli_w.dumps(planned_settings(view, names))


def _print(view: PlanReport, facts: PlanFacts) -> None:
    public = view.study.facts
    features = f"{public.features} features{describe_map(public.features_by)}"
    declared = "" if public.published else " (as declared)"
    condition = delta_condition(facts["delta"], public.total_records)
    accountant = "" if facts["accountant"] == NO_ACCOUNTANT else f", by {describe_accountant(facts['accountant'])}"
    learned = f"{public.outputs} classes" if public.classes else "a number to predict"
    for line in (
        f"{public.name}: {public.agents} agents, {public.total_records:,} records{declared}, {features}, "
        f"{learned}; protected: one {public.unit}",
        f"total epsilon {facts['total_epsilon']:g} at delta {facts['delta']:g}: {facts['algorithm']}, "
        f"{_count(facts['rounds'], 'round')}, {_count(facts['local_updates'], 'local update')} each",
        *([f"note: {condition}"] if condition and facts["total_epsilon"] < math.inf else []),
        _noise(ALGORITHMS[facts["algorithm"]], facts, view.study.settings.trust),
        noise_meaning(view.study.settings),
        f"trust: {facts['trust']}",
        f"noise to signal of the model {facts['noise_to_signal']:.2g}: {facts['verdict']}; "
        f"the run will spend {format_epsilon(facts['planned_epsilon'])}{accountant}",
        "",
    ):
        say(line)
    budgets = [
        (_mark(b.chosen, f"{b.total_epsilon:g}"), f"{b.noise_to_signal:.2g}", b.verdict, *b.if_rare.values())
        for b in view.budgets
    ]
    rare = [f"if a class has {100.0 * float(share):g} %" for share in view.budgets[0].if_rare]
    print_table(("total ε", "noise to signal", "what to expect", *rare), budgets)
    if rare:
        say("'what to expect' is for classes of similar size, the columns after it for a rarest class with that share")
    _print_trust(view)
    _print_evaluations(view)
    if not view.rounds_options:
        return
    say()
    paces = [
        (_mark(p.chosen, str(p.rounds)), str(p.local_updates), f"{p.noise_multiplier:.4g}", f"{p.agent_noise:.3g}",
         format_bytes(p.bytes_up))
        for p in view.rounds_options
    ]  # fmt: skip
    print_table(("rounds", "local updates", "noise multiplier", "noise of an update", "sent by an agent"), paces)
    say("▸ the plan; noise of an update: its norm over the largest norm of its gradient")


def _print_trust(view: PlanReport) -> None:
    """Print what colluders, missing agents and the reserve of a secure sum cost, or what a secure sum would buy."""
    options, settings = view.trust_options, view.study.settings
    if not options:
        return
    say()
    if settings.trust == AGENTS:
        summed, alone = options
        method = ALGORITHMS[settings.algorithm[0]]
        other = "" if method.allows_aggregate_noise else f" --algorithm {SUMMABLE}"
        missing = summed.spare - COLLUDERS
        flags = f"--trust {SECURE_SUM}{f' --missing {missing}' if missing else ''}{other}"
        say(
            f"a secure sum ({flags}) would have {summed.noise / alone.noise:.2g} times the noise: noise to signal "
            f"{summed.noise_to_signal:.2g}, {summed.verdict}"
        )
        return
    names = {SERVER: "a trusted server", AGENTS: "every agent by itself"}
    rows = [
        (
            _mark(option.chosen, names.get(option.trust) or f"a secure sum, c + d = {option.spare}"),
            f"{option.noise:.2f}",
            f"{option.noise_to_signal:.2g}",
            option.verdict,
        )
        for option in options
    ]
    print_table(("noise by", "in a sum", "noise to signal", "what to expect"), rows)
    say("c: colluders, d: missing agents; in a sum: its noise relative to that of a trusted server")
    if settings.reserve:
        price = 100.0 * (math.sqrt(1.0 + settings.reserve / view.part.rounds) - 1.0)
        say(f"the reserve of {settings.reserve} uploads beyond {view.part.rounds} rounds adds {price:.2g} % of noise")


def _print_evaluations(view: PlanReport) -> None:
    """Print what private evaluations will show."""
    found, facts = view.evaluations, view.study.facts
    if found is None:
        return
    say()
    what, unit = ("error", "points") if facts.classes else ("mean absolute error", "% of the label's range")
    say(
        f"evaluations: {found.evaluations} on about {found.records:,} held-out records, with at most epsilon "
        f"{found.epsilon:g} for all of them; how far the noise moves the measured {what} (standard error, in {unit}):"
    )
    names = {SERVER: "a trusted server", SECURE_SUM: "a secure sum", AGENTS: "every agent by itself"}
    rows = [
        (_mark(one.chosen, names[one.trust]), f"{100 * one.noise:.3f}", f"{100 * one.alone:.3f}")
        for one in found.options
    ]
    print_table(("noise by", "with all measures", "the error alone"), rows)
    if facts.classes:
        say(f"sampling that many records adds {100 * found.sampling:.2g} points at an error of 5 %")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number > 1)}"


def _noise(method: AlgorithmSpec, facts: PlanFacts, trust: str) -> str:
    """Describe clipping, step sizes and noise in one line."""
    limit = f"records scaled to {facts['record_bound']:.4g}" if method.scales_records else f"clip {facts['clip']:.4g}"
    steps = f"penalty rho {facts['rho']:.4g}"
    if not issubclass(method.step_kind, ExactStep):
        steps += f", step eta {facts['eta']:.4g} to {facts['eta_last']:.3g}"
    summed = "" if trust == AGENTS or method.central else ", summed over all agents"
    place = f"{NOISE_ON[method.noise_on]}{summed}"
    return f"{limit}, {steps}; noise of standard deviation {facts['noise']['std']:.3g} on {place}"


def _mark(chosen: bool, text: str) -> str:
    return f"▸ {text}" if chosen else f"  {text}"
