"""A run's guarantee in words, for a privacy officer to check against the ledger."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from taciturn.privacy.accountants import EXPLAINED
from taciturn.privacy.events import NOMINAL_HEADLINE, Discrete, Hidden
from taciturn.privacy.ledger import nominal_sums
from taciturn.privacy.trust import condition, onlookers, summed, uncovered, where_added

LITTLE = " (an epsilon above 10 protects little in practice)"
SIMULATED = "Simulated: nobody is protected, because the noise comes from a known seed."
PROVEN = {  # by mechanism, or by mechanism and accountant
    Hidden.mechanism: ", of rounds bounded as docs/explanation/hidden-state.md proves",
    f"{Discrete.mechanism} gdp": ", of exact integers as docs/explanation/discrete-gaussian.md proves",
}

NEIGHBOURS = {
    "add-remove": "two data sets are neighbours when one of them has one {unit} more than the other",
    "replace-one": "two data sets are neighbours when one {unit} of one of them is another one in the other",
}

DOUBTS = {  # about the schema, the ledger over studies that a study is in, and what carries its messages
    "drafted": "What the schema was read off: it still has bounds or categories that were drafted from the records "
    "themselves. They tell of single records, and no budget covers that.",
    "lost-machine": "What studies spent before on a machine that was lost: the ledger of these records was taken over "
    "from an old copy without a hand-over, and does not know.",
    "further": "What studies spent in another ledger: these records may have one beside the ledger of this study, and "
    "what both allow adds up.",
    "carried": "When a site's messages went over the network, and how long they were: what carries them sees that, and "
    "nothing of what is in them (docs/howto/deployment.md).",
}


def guarantee(ledger: Sequence[Mapping[str, Any]], totals: Mapping[str, Any]) -> dict[str, Any]:
    """The certified mode's statement, from the ledger and its totals alone."""
    study = next(entry for entry in ledger if entry["kind"] == "study")
    unit = _unit(study["public"]["unit"])
    return {
        "headline": headline(totals),
        "good": holds(totals),
        "protected": _protected(study, totals, unit),
        "runs": [_run_row(run, totals) for run in totals["runs"] if run["agents"]],
        "together": _together(totals),
        "public": public_facts(study),
        "unprotected": _unprotected(study, totals, unit),
    }


def holds(totals: Mapping[str, Any]) -> bool:
    """Whether every run keeps a finite budget with noise that protects."""
    finite = [float(totals["total_epsilon"]), *(float(run["total_epsilon"]) for run in totals["runs"])]
    broken = totals["non_private"] or totals.get("violation") or any(map(overspent, totals["runs"]))
    return all(map(math.isfinite, finite)) and totals["noise"] == "hardened" and not broken


def headline(totals: Mapping[str, Any]) -> str:
    """The guarantee in one sentence."""
    unit = _unit(totals["unit"])
    if totals.get("violation"):
        return f"No guarantee: {totals['violation']}."
    budgets, kept = [float(run["total_epsilon"]) for run in totals["runs"]], _budgets(totals)
    if not kept:
        return "No guarantee: the run was made without noise, so its total epsilon is infinite."
    if totals["non_private"]:
        return (
            f"No guarantee (non_private: {totals['non_private']}): noise came from a seed that somebody knows; "
            f"the total epsilon {' or '.join(f'{b:g}' for b in kept)} is nominal."
        )
    over = [run for run in totals["runs"] if overspent(run)]
    if over:
        worst = max(float(run["spent_epsilon"]) for run in over)
        return (
            f"No guarantee as planned: the ledger adds up to epsilon {worst:.4g}, more than the budget "
            f"{float(over[0]['total_epsilon']):g}; what was released is not what was planned."
        )
    each = " in each run by itself" if len(budgets) > 1 else ""
    shown = " or ".join(f"{b:g}" for b in kept)
    but = condition(totals)
    but += " (the run without noise protects nobody)" if len(kept) < len(set(budgets)) else ""
    but += LITTLE if max(kept) > 10.0 else ""
    if totals["central"]:
        but += f" ({', '.join(totals['central'])}: against all but the curator that holds every record)"
    promised = f"with total epsilon {shown} at delta {totals['delta']:g}{each}{but}"
    if totals["noise"] == "hardened":
        return f"Every {unit} is protected {promised}."
    return f"{SIMULATED} With exact noise from the operating system the same run would protect every {unit} {promised}."


def overspent(run: Mapping[str, Any]) -> bool:
    """Whether a run spent more than its budget, beyond rounding."""
    budget = float(run["total_epsilon"])
    return math.isfinite(budget) and float(run.get("spent_epsilon", 0.0)) > budget * (1.0 + 1e-6)


def public_facts(study: Mapping[str, Any]) -> list[str]:
    """Everything the run assumed to be public."""
    p = study["public"]
    most = p["records_max"]
    most = f"{max(most.values()):,} (each agent its own)" if isinstance(most, Mapping) else f"{most:,}"
    source = "the published data set's own sizes" if p["published"] else "declared by the parties, not counted"
    labels = f"{p['outputs']} classes" if p["classes"] else "bounds of the label"
    facts = [
        f"The {p['agents']} parties, their names, and that they take part.",
        _features(p, labels),
        f"total_records {p['total_records']:,} and records_max {most}: {source}. "
        "The first is only a normaliser, the second a bound.",
        "All settings: rounds, local updates, clip, penalty rho and step eta, which come from these facts alone.",
    ]
    if p["test"] == "public":
        facts.append("The test records: a file of their own, whose owner vouches that nobody protected here is in it.")
    return facts


def _features(public: Mapping[str, Any], labels: str) -> str:
    """What the model is linear in."""
    width, made_by = public["features"], public["features_by"]
    if made_by == "none":
        return f"The {width} features with their bounds or categories, and the {labels} (the schema)."
    return (
        f"What is recorded, with its bounds or categories, and the {labels} (the schema); and the feature map "
        f"{made_by}, which makes {width} features of each record by itself."
    )


def _unit(name: str) -> str:
    return "record" if name == "record" else f"{name} (its records at one party)"


def _protected(study: Mapping[str, Any], totals: Mapping[str, Any], unit: str) -> list[str]:
    if not _budgets(totals):
        return [f"Nobody: {WITHOUT_NOISE}"]
    p = study["public"]
    bounded = f": of its records at most {p['max_records']} are used, and further ones are not"
    simulated = [] if totals["noise"] == "hardened" else [NOBODY]
    return [
        *simulated,
        f"Protected: every single {unit} of every party{'' if p['unit'] == 'record' else bounded}.",
        *_against(study, totals),
        f"Neighbours ({study['adjacency']}): {NEIGHBOURS[study['adjacency']].format(unit=unit)}.",
        f"Meaning: whatever somebody concludes from all of it, they would be almost as likely to conclude without that "
        f"{unit}: odds change by at most a factor e^epsilon, except with probability delta.",
        *(f"How{who}: {words}" for who, words in _how(study)),
    ]


def _budgets(totals: Mapping[str, Any]) -> list[float]:
    """The finite budgets of the runs: without one, no noise was added."""
    return sorted({b for run in totals["runs"] if math.isfinite(b := float(run["total_epsilon"]))})


WITHOUT_NOISE = "no noise was added. Anyone who sees what was sent can learn about single records."
NOBODY = (
    "Nobody: this was a simulation. Its seed is written in this folder, and often follows from the model alone; who "
    "has it can take the noise off again. What follows is what the same run would promise with exact noise from the "
    "operating system."
)


def _against(study: Mapping[str, Any], totals: Mapping[str, Any]) -> list[str]:
    """Who may look, of methods without and with a curator."""
    central, lines = totals["central"], []
    if len(central) < len(study["methods"]):
        everybody = f"the server, all other parties together, and whoever sees {_seen(totals)}"
        lines.append(onlookers(totals) if summed(totals) else everybody)
    if central:
        who = "" if not lines else f" ({', '.join(central)})"
        lines.append(f"everybody who sees the model, but not the curator, to whom every party gives its records{who}")
    return [f"Against: {line}." for line in lines]


def _seen(totals: Mapping[str, Any]) -> str:
    """All that an attacker may see while the figures hold."""
    if len(totals["runs"]) > 1:
        return "all that one run sent and its model; whoever sees several, as in this folder, is told of below"
    return "everything that was sent, the model and this folder (without local-only and checkpoint)"


def _how(study: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(of which methods, where there are several ways, and in words)."""
    ways: dict[str, list[str]] = {}
    for name, method in study["methods"].items():
        ways.setdefault(_way(study, method), []).append(name)
    return [("" if len(ways) == 1 else f" ({', '.join(names)})", words) for words, names in ways.items()]


def _way(study: Mapping[str, Any], method: Mapping[str, Any]) -> str:
    unit, kind = _unit(study["public"]["unit"]), {"gaussian": "Gaussian", "laplace": "Laplace"}[study["mechanism"]]
    noise = f"discrete {kind}" if study["noise"] == "hardened" else kind
    bounded = f"every record is scaled to length {float(study['record_bound']):.4g} at most"
    clipped = f"the gradient of every record is clipped to length {float(study['clip']):.4g}"
    moved, added, charged = NOISE_ON[method["noise_on"]]
    where = (
        "by the curator, who holds all records, before anything is sent" if method["central"] else where_added(study)
    )
    return (
        f"{bounded if method['bounded'] else clipped}, so that one {unit} moves {moved} by a known amount at most; "
        f"{noise} noise scaled to that amount is added {added}{where}, and {charged}."
    )


NOISE_ON = {
    "gradients": ("the sum of gradients", "", "every local update of every round is charged"),
    "hidden": (
        "the sum of gradients",
        "",
        "every round is charged as its hidden updates deserve (docs/explanation/hidden-state.md)",
    ),
    "uploads": ("what is sent", "to it ", "everything that is sent is charged"),
    "samples": (
        "the sum of gradients of a random sample",
        "to it ",
        "every sample is charged with what its randomness hides (docs/explanation/objective-perturbation.md)",
    ),
    "objectives": (
        "the gradient of what is minimised",
        "to it ",
        "every minimiser that is sent is charged (docs/explanation/objective-perturbation.md)",
    ),
}
"""What one unit moves, where its noise goes, and what is charged."""


def _run_row(run: Mapping[str, Any], totals: Mapping[str, Any]) -> dict[str, Any]:
    worst = max(run["agents"], key=lambda agent: float(agent["epsilon"]))
    mechanisms = dict.fromkeys(event["mechanism"] for event in totals["events"] if event["run"] == run["run"])
    proofs = (PROVEN.get(name) or PROVEN.get(f"{name} {run['accountant']}", "") for name in mechanisms)
    return {
        "run": run["run"],
        "budget": float(run["total_epsilon"]),
        "spent": float(run["spent_epsilon"]),
        "planned": float(run["planned_epsilon"]),
        "accountant": EXPLAINED[run["accountant"]] + "".join(proofs),
        "by_delta": worst["by_delta"],
        "pure": worst["pure_epsilon"],
    }


def _together(totals: Mapping[str, Any]) -> str:
    total, count = float(totals["all_runs_epsilon"]), len(totals["runs"])
    if count < 2:
        return ""
    cost = f"costs epsilon {total:.4g} at delta {totals['delta']:g}"
    shown = "has no finite total epsilon" if math.isinf(total) else cost
    return f"The figures hold for each run by itself; showing somebody the models of all {count} runs {shown}."


def _unprotected(study: Mapping[str, Any], totals: Mapping[str, Any], unit: str) -> list[str]:
    by_record, on_sum = unit == "record", summed(totals)
    several = (
        "A person with several records: each record by itself is protected, all of them together are not. "
        "A unit column in the schema protects persons."
        if by_record
        else "Whoever several parties know: each party's budget counts by itself, and for such a person they add up."
    )
    lines = [
        *([several] if by_record or not on_sum else []),  # of a sum, `uncovered` says it
        "What is true of the population: a model is made to learn that, and it may be unwelcome news about a person.",
        "That a party takes part, and the public facts above.",
        "Which party holds which record: that is taken as given, except where a private table is dealt out among "
        "simulated parties. There it follows from each record and a key, and a record more or less changes one party's "
        "uploads.",
        "The folders local-only, which is computed without noise, and checkpoint: do not let them out of your hands.",
    ]
    if study.get("plugins"):
        lines.insert(
            0,
            f"Against mistakes in {', '.join(study['plugins'])}: these components are not Taciturn's own, and that they "
            "keep what they say of themselves is their author's word. The ledger has the files' SHA-256.",
        )
    lines = [*(DOUBTS[doubt] for doubt in study.get("doubts", ())), *lines]
    if on_sum:
        lines = [*uncovered(totals, by_record), *lines]
    if totals["central"]:
        if unit != "record":
            lines.append(
                f"Whoever several parties know, in {', '.join(totals['central'])}: all their records are in one "
                "release, which protects them as several, not as one."
            )
        lines.insert(
            0,
            f"Against the curator of {', '.join(totals['central'])}: a reference in which one trusted party holds all "
            "records, for comparison with what the parties can do without one.",
        )
    if not _budgets(totals):
        lines.insert(0, f"Anybody, in this run: {WITHOUT_NOISE}")
    elif totals["noise"] != "hardened":
        lines.insert(0, "Anybody, in this run: it was a simulation. --noise hardened protects records.")
    return lines


PAPER_HEADLINE = NOMINAL_HEADLINE

BY_MECHANISM = {
    "laplace-data-dependent": (
        "The scale of the Laplace noise is read off the private records themselves, so the noise tells of them."
    ),
    "gaussian-published": (
        "outp's noise is the published code's: it takes a variance for a standard deviation, "
        "and no bound on a record stands behind it."
    ),
    "gaussian-classic": (
        "outp's noise follows the classic Gaussian formula, which holds for one release with epsilon at most 1; "
        "the releases are not added up."
    ),
    "none": "Runs without noise protect nobody: whoever sees what was sent can learn about single records.",
}


STEP_FROM_DATA = "The step size uses the smoothness of the private records, which was computed from them."


def statement(ledger: Sequence[Mapping[str, Any]], step_from_data: bool = False) -> dict[str, Any]:
    """The paper mode's statement, with what its ledger adds up to by basic composition."""
    sums = nominal_sums(ledger)
    used = {entry["mechanism"] for entry in ledger if entry["kind"] == "release"}
    private = {run: total for run, total in sums.items() if math.isfinite(total)}
    return {
        "headline": PAPER_HEADLINE,
        "good": False,
        "reasons": [
            "Epsilon is nominal and counts for one local update of one agent alone; a run makes many.",
            *(reason for mechanism, reason in BY_MECHANISM.items() if mechanism in used),
            *([STEP_FROM_DATA] if step_from_data else []),
            "Every party's records stay in its house; it sends parameters only, and the dual is never sent.",
            "Use this mode to study the method, not to release a model trained on records that must stay private.",
        ],
        "total_epsilon": math.inf,
        "nominal_sums": private,
        "without_noise": sorted(run for run in sums if run not in private),
    }
