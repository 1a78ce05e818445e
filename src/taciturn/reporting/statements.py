"""Privacy statements in words: what a run guarantees, to whom, and what it does not protect.

Everything is derived from the ledger, so that a privacy officer can check it there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from taciturn.privacy.accountants import describe_accountant
from taciturn.privacy.calibration import delta_condition
from taciturn.privacy.events import Discrete, Hidden
from taciturn.privacy.trust import PAPER_HEADLINE, SECURE_SUM, SERVER, SIMULATED_SUM, Caveat, collusion, opened_sums
from taciturn.runs.ledger import RunLedger
from taciturn.runs.records import MethodFacts, PrivacyTotals, PublicFacts, RunTotals, StudyHeader

__all__ = ["PAPER_HEADLINE", "Guarantee", "PaperStatement", "guarantee", "headline", "holds", "paper_statement"]

LARGE_EPSILON = 10.0
SIMULATED = "Simulated: nobody is protected, because the noise comes from a known seed."
PROOFS = {  # by mechanism, or by mechanism and accountant
    Hidden.mechanism: ", of rounds bounded as the page 'Hidden local updates' proves",
    f"{Discrete.mechanism} gdp": ", of exact integers as the page 'Discrete Gaussian noise' proves",
}

NEIGHBOURS = {
    "add-remove": "two data sets are neighbours if one of them has one {unit} more than the other",
    "replace-one": "two data sets are neighbours if they differ in one {unit}",
}

CAVEATS = {  # about the schema, the budget ledger of the study, and the transport of its messages
    Caveat.DRAFTED: "What the schema was drafted from: it still has bounds or categories that were read off the "
    "records themselves. They reveal information about single records, and no budget covers that.",
    Caveat.LOST_MACHINE: "What earlier studies spent on a machine that was lost: the budget ledger was recovered from "
    "an old copy without a hand-over, and may not include it.",
    Caveat.FURTHER: "What studies spent in another budget ledger: these records may have one in addition to the ledger "
    "of this study, and the budgets of both add up.",
    Caveat.CARRIED: "When the messages of a site were sent and how long they were: the transport sees that, but not "
    "their content (the page 'Deploy a federation').",
}
WITHOUT_NOISE = "no noise was added. Anyone who sees what was sent can learn about single records."
NOT_PROTECTED = (
    "No one: this was a simulation. Its seed is written in this folder, and can often be derived from the model alone; "
    "anyone who has it can remove the noise. The lines below say what the same run would guarantee with exact noise "
    "from the operating system."
)


@dataclass(frozen=True)
class RunGuarantee:
    """One run of a certified study: its budget, and what it spent."""

    run: int
    budget: float
    spent: float
    planned: float
    accountant: str  # the bound that gave `spent`, in words
    by_delta: Mapping[str, float]  # epsilon by delta, of the agent that spent most
    pure: float | None  # epsilon at delta 0


@dataclass(frozen=True)
class Guarantee:
    """The statement of a certified run."""

    headline: str
    good: bool  # whether every run keeps a finite budget with noise that protects
    protected: list[str]
    runs: list[RunGuarantee]
    together: str  # the total over all runs; empty where there is one run
    public: list[str]
    unprotected: list[str]


@dataclass(frozen=True)
class PaperStatement:
    """The statement of a run in mode paper, which guarantees nothing in total."""

    headline: str
    good: bool
    reasons: list[str]
    nominal_sums: dict[int, float]  # by run: the sum of the nominal epsilons
    without_noise: list[int]  # the runs without noise


def guarantee(study: StudyHeader, totals: PrivacyTotals) -> Guarantee:
    """Return the statement of a certified run.

    Parameters
    ----------
    study
        The header of its ledger.
    totals
        The totals of the same ledger.
    """
    unit = _unit_words(study.facts.unit)
    return Guarantee(
        headline=headline(totals),
        good=holds(totals),
        protected=_protected(study, totals, unit),
        runs=[_run_guarantee(run, totals) for run in totals.runs if run.agents],
        together=_together(totals),
        public=[*public_facts(study.facts), *_weights(study)],
        unprotected=_unprotected(study, totals),
    )


def holds(totals: PrivacyTotals) -> bool:
    """Return whether every run keeps a finite budget with noise that protects."""
    finite = [totals.total_epsilon, *(run.total_epsilon for run in totals.runs)]
    broken = totals.non_private or totals.violation or any(run.overspent for run in totals.runs)
    return all(map(math.isfinite, finite)) and totals.noise == "hardened" and not broken


def headline(totals: PrivacyTotals) -> str:
    """Return the guarantee of a certified run in one sentence."""
    if totals.violation:
        return f"No guarantee: {totals.violation}."
    kept = totals.budgets
    shown = " or ".join(f"{budget:g}" for budget in kept)
    if not kept:
        return "No guarantee: the run was made without noise, so its total epsilon is infinite."
    if totals.non_private:
        return (
            f"No guarantee (non_private: {totals.non_private}): the noise came from a seed that someone knows; "
            f"the total epsilon {shown} is nominal."
        )
    over = [run for run in totals.runs if run.overspent]
    if over:
        worst = max(run.spent_epsilon for run in over)
        return (
            f"No guarantee as planned: the ledger adds up to epsilon {worst:.4g}, more than the budget "
            f"{over[0].total_epsilon:g}; what was released is not what was planned."
        )
    conditions = _trust_condition(totals)
    if len(kept) < len({run.total_epsilon for run in totals.runs}):
        conditions += " (the run without noise protects nobody)"
    if too_large := delta_condition(totals.delta, totals.total_records):
        conditions += f" ({too_large})"
    if max(kept) > LARGE_EPSILON:
        conditions += " (an epsilon above 10 protects little in practice)"
    if central := [name for name in totals.central if name in _protecting(totals)]:
        conditions += f" ({', '.join(central)}: against all but the curator, who holds every record)"
    each = " in each run separately" if len(totals.runs) > 1 else ""
    unit = _unit_words(totals.unit)
    promise = f"with total epsilon {shown} at delta {totals.delta:g}{each}{conditions}"
    if totals.noise == "hardened":
        return f"Every {unit} is protected {promise}."
    return f"{SIMULATED} With exact noise from the operating system the same run would protect every {unit} {promise}."


def public_facts(facts: PublicFacts) -> list[str]:
    """Return everything that the run assumed to be public, one sentence each."""
    most = f"{facts.largest:,}" + ("" if isinstance(facts.records_max, int) else " (each agent its own)")
    source = "the sizes of the published data set" if facts.published else "declared by the parties, not counted"
    labels = f"{facts.outputs} classes" if facts.classes else "bounds of the label"
    features = f"The {facts.features} features with their bounds or categories, and the {labels} (the schema)."
    if facts.features_by != "none":
        features = (
            f"The recorded columns with their bounds or categories, and the {labels} (the schema); and the feature map "
            f"{facts.features_by}, which computes {facts.features} features from each record separately."
        )
    lines = [
        f"The {facts.agents} parties, their names, and that they take part.",
        features,
        f"total_records {facts.total_records:,} and records_max {most}: {source}. "
        "The first is only a normaliser, the second a bound.",
        "All settings: rounds, local updates, clip, penalty rho and step eta, which follow from these facts alone.",
    ]
    if facts.test == "public":
        lines.append("The test records: a separate file, whose owner states that no one in it is protected here.")
    return lines


def paper_statement(ledger: RunLedger, step_from_data: bool = False) -> PaperStatement:
    """Return the statement of a run in mode paper, with the sums of its nominal epsilons.

    Parameters
    ----------
    ledger
        The ledger of the run.
    step_from_data
        Whether the step size was computed from the private records.
    """
    sums = ledger.nominal_sums
    used = {entry.event.mechanism for entry in ledger.releases}
    private = {run: total for run, total in sums.items() if math.isfinite(total)}
    return PaperStatement(
        headline=PAPER_HEADLINE,
        good=False,
        reasons=[
            "Epsilon is nominal and applies to one local update of one agent; a run makes many.",
            *(reason for mechanism, reason in PAPER_MECHANISMS.items() if mechanism in used),
            *([STEP_FROM_DATA] if step_from_data else []),
            "Every party keeps its records; it sends parameters only, and never the dual variable.",
            "Use this mode to study the method, not to release a model trained on records that must stay private.",
        ],
        nominal_sums=private,
        without_noise=sorted(run for run in sums if run not in private),
    )


PAPER_MECHANISMS = {
    "laplace-data-dependent": (
        "The scale of the Laplace noise is computed from the private records, so the noise reveals facts about them."
    ),
    "gaussian-published": (
        "The output noise is that of the published code: it uses a variance as a standard deviation, and is not based "
        "on a bound on a record."
    ),
    "gaussian-classic": (
        "The output noise follows the classic Gaussian formula, which holds for one release with epsilon at most 1; "
        "the releases are not added up."
    ),
    "none": "Runs without noise protect no one: anyone who sees what was sent can learn about single records.",
}
POOLED_SUMS = (
    "How it was simulated: every round drew the sum of all parties' noise at once (--simulate sums). The model has the "
    "distribution that it would have with a draw for every party; what a single party would send was never computed."
)
STEP_FROM_DATA = "The step size uses the smoothness of the private records, which was computed from them."


def _weights(study: StudyHeader) -> list[str]:
    weights = study.source.weights if study.source else None
    meaning = "Objective and probabilities are those of the weighted records; test results count every record alike."
    return [f"How much records count: {weights} (the schema). {meaning}"] if weights else []


def _protecting(totals: PrivacyTotals) -> set[str]:
    """Return the algorithms of the runs with a finite budget; the others protect nobody."""
    return {run.algorithm for run in totals.runs if math.isfinite(run.total_epsilon)}


def _unit_words(name: str) -> str:
    return "record" if name == "record" else f"{name} (all its records at one party)"


def _trust_condition(totals: PrivacyTotals) -> str:
    """Return what the headline assumes of the server and the parties; empty where no one is trusted."""
    if not totals.noise_on_sum:
        return ""
    if totals.trust == SERVER:
        return ", against all but the server, which is trusted with what every party sends"
    if totals.sum_protocol:
        return f", if {collusion(totals.colluders, 'party')}"
    return f", if only sums of what all parties send are seen and {collusion(totals.colluders, 'party')}"


def _protected(study: StudyHeader, totals: PrivacyTotals, unit: str) -> list[str]:
    if not totals.budgets:
        return [f"No one: {WITHOUT_NOISE}"]
    facts, adjacency = study.facts, study.adjacency or ""
    protected = "Protected" if totals.noise == "hardened" else "It would protect"
    limit = "" if facts.unit == "record" else f"; at most {facts.max_records} of its records are used"
    return [
        *([] if totals.noise == "hardened" else [NOT_PROTECTED]),
        *([POOLED_SUMS] if study.pooled_sums else []),
        f"{protected}: every single {unit} of every party{limit}.",
        *_adversaries(study, totals),
        f"Neighbours ({adjacency}): {NEIGHBOURS[adjacency].format(unit=unit)}.",
        "Meaning: whatever someone concludes from all of it, they would have concluded with nearly the same "
        f"probability without that {unit}: odds change by at most a factor e^epsilon, except with probability delta.",
        *_explanations(study, _protecting(totals)),
        *_evaluations(totals, adjacency, unit),
    ]


def _evaluations(totals: PrivacyTotals, adjacency: str, unit: str) -> list[str]:
    """Return how private evaluations are charged, if there were any."""
    made = max((one.count for one in totals.events if one.held_out), default=0)
    if not made:
        return []
    times = "once" if made == 1 else f"{made} times"
    apart = f"Every {unit} either trains or is held out, so its total is the larger of what the two sides spent"
    if adjacency != "add-remove":
        apart = f"A {unit} that is replaced may change sides, so what the two sides spent is added up"
    return [
        f"Held-out records: the model was measured on them {times}, by a vector of counts and clipped losses with its "
        f"own discrete Gaussian noise. Whether a {unit} is held out depends only on it and a key. {apart}."
    ]


def _adversaries(study: StudyHeader, totals: PrivacyTotals) -> list[str]:
    """Return who may look, for methods without and with a curator."""
    protecting = _protecting(totals)
    lines, central = [], [name for name in totals.central if name in protecting]
    if len(central) < len(protecting):
        lines.append(_observers(study, totals))
    if central:
        which = f" ({', '.join(central)})" if lines else ""
        lines.append(f"everyone who sees the model, but not the curator, who receives every party's records{which}")
    return [f"Against: {line}." for line in lines]


def _observers(study: StudyHeader, totals: PrivacyTotals) -> str:
    if totals.trust == SERVER:
        return (
            "all parties and anyone who sees the model of one run, but not the server, which is trusted: it sees what "
            "every party sends, and no one else may"
        )
    if totals.sum_protocol:
        opened = opened_sums(study.facts.agents, totals.missing, "party")
        return (
            "the server and anyone who sees everything that was sent, the opened sums and the model, provided that "
            f"{collusion(totals.colluders, 'party')}. What a single party sent was masked: {opened} "
            "(the page 'A secure sum')"
        )
    if totals.noise_on_sum:
        return (
            "the server and anyone who sees the sums over all parties in one run and its model, provided that "
            f"{collusion(totals.colluders, 'party')}. No one may see what a single party sent; {SIMULATED_SUM}"
        )
    seen = "everything that was sent, the model and this folder (without local-only and checkpoint)"
    if len(totals.runs) > 1:
        seen = "everything that one run sent and its model; for observers of several runs, see below"
    return f"the server, all other parties together, and anyone who sees {seen}"


def _explanations(study: StudyHeader, protecting: set[str]) -> list[str]:
    """Return how the noise is added and charged, once for all methods that do it in the same way."""
    ways: dict[str, list[str]] = {}
    for name, method in study.method_facts.items():
        if name in protecting:
            ways.setdefault(_explanation(study, method), []).append(name)
    if len(ways) == 1:
        return [f"How: {words}" for words in ways]
    return [f"How ({', '.join(names)}): {words}" for words, names in ways.items()]


def _explanation(study: StudyHeader, method: MethodFacts) -> str:
    kind = {"gaussian": "Gaussian", "laplace": "Laplace"}[study.mechanism or ""]
    noise = f"discrete {kind}" if study.noise == "hardened" else kind
    bound = f"the gradient of every record is clipped to length {float(study.clip or 0.0):.4g}"
    if method.scales_records:
        bound = f"every record is scaled to length {float(study.record_bound or 0.0):.4g} at most"
    changed, target, charged = NOISE_ON[method.noise_on]
    if method.counts_first:
        bound = (
            "first noisy counts of every column (and of the classes, if there are two) are released, then noisy "
            "gradients: the counts of every record are "
            f"scaled, and its gradient is clipped, to length {float(study.clip or 0.0):.4g}"
        )
        changed = "every sum"
    where = "by the curator, who holds all records, before anything is sent" if method.central else _noise_place(study)
    return (
        f"{bound}, so that one {_unit_words(study.facts.unit)} changes {changed} by at most a known amount; "
        f"{noise} noise scaled to that amount is added {target}{where}, and {charged}."
    )


NOISE_ON = {  # what one unit changes, what the noise is added to, and what is charged
    "gradients": ("the sum of gradients", "", "every local update of every round is charged"),
    "hidden": (
        "the sum of gradients",
        "",
        "every round is charged by the bound for its hidden updates (the page 'Hidden local updates')",
    ),
    "uploads": ("what is sent", "to it ", "everything that is sent is charged"),
    "samples": (
        "the sum of gradients of a random sample",
        "to it ",
        "every sample is charged, amplified by its randomness (the page 'Perturbed objectives')",
    ),
    "objectives": (
        "the gradient of what is minimised",
        "to it ",
        "every minimiser that is sent is charged (the page 'Perturbed objectives')",
    ),
}


def _noise_place(study: StudyHeader) -> str:
    """Return who adds the noise of a method without a curator."""
    if not study.noise_on_sum:
        return "at the party before anything is sent"
    if study.trust == SERVER:
        return "by the server, to the sum over all parties, before anyone else sees it"
    parties, spare = study.facts.agents, (study.colluders or 0) + (study.missing or 0)
    enough = f"any {parties - spare} of the {parties}" if spare else "all of them"
    return f"in shares: every party adds its share before it sends, and the shares of {enough} add up to all of it"


def _run_guarantee(run: RunTotals, totals: PrivacyTotals) -> RunGuarantee:
    worst = max(run.agents, key=lambda agent: agent.epsilon)
    mechanisms = dict.fromkeys(one.event.mechanism for one in totals.events if one.run == run.run)
    proofs = (PROOFS.get(name) or PROOFS.get(f"{name} {run.accountant}", "") for name in mechanisms)
    return RunGuarantee(
        run=run.run,
        budget=run.total_epsilon,
        spent=run.spent_epsilon,
        planned=run.planned_epsilon,
        accountant=describe_accountant(run.accountant) + "".join(proofs),
        by_delta=worst.by_delta,
        pure=worst.pure_epsilon,
    )


def _together(totals: PrivacyTotals) -> str:
    total, count = totals.all_runs_epsilon, len(totals.runs)
    if count < 2:
        return ""
    cost = "infinite" if math.isinf(total) else f"{total:.4g} at delta {totals.delta:g}"
    return f"The figures hold for each run separately; the total epsilon for an observer of all {count} runs is {cost}."


def _unprotected(study: StudyHeader, totals: PrivacyTotals) -> list[str]:
    """Return what the guarantee does not cover, the most important first."""
    by_record, central = study.facts.unit == "record", ", ".join(totals.central)
    lines = []
    if not totals.budgets:
        lines.append(f"Anyone, in this run: {WITHOUT_NOISE}")
    elif totals.noise != "hardened":
        lines.append("Anyone, in this run: it was a simulation. --noise hardened protects records.")
    if central:
        lines.append(
            f"Against the curator of {central}: a reference in which one trusted party holds all records, for "
            "comparison with what the parties can do without one."
        )
    if totals.noise_on_sum:
        lines += _unprotected_sum(totals)
        if not by_record:
            lines.append(
                "People with records at several parties: all their records are in one sum, which protects them as "
                "several units, not as one."
            )
    lines += [CAVEATS[Caveat(caveat)] for caveat in study.doubts or ()]
    if study.plugins:
        lines.append(
            f"Against mistakes in {', '.join(study.plugins)}: these components are not part of Taciturn, and their "
            "author is responsible for what they claim. The ledger has the SHA-256 of the files."
        )
    if by_record:
        lines.append(
            "A person with several records: each record is protected separately, but not all of them together. "
            "A unit column in the schema protects persons."
        )
    elif not totals.noise_on_sum:
        lines.append(
            "People with records at several parties: each party's epsilon applies separately, and their total loss is "
            "the sum."
        )
    lines += [
        "Facts about the population: learning them is the purpose of a model, even if they are unwelcome to a person.",
        "That a party takes part, and the public facts above.",
        "Which party holds which record: that is taken as given, except where a private table is partitioned among "
        "simulated parties. There it follows from each record and a key, and adding or removing a record changes the "
        "uploads of one party only.",
        "The folders local-only, which is computed without noise, and checkpoint: do not share them.",
    ]
    if central and not by_record:
        lines.append(
            f"People with records at several parties, in {central}: all their records are in one release, which "
            "protects them as several units, not as one."
        )
    return lines


def _unprotected_sum(totals: PrivacyTotals) -> list[str]:
    """Return what noise on the sum does not protect against."""
    if totals.trust != SECURE_SUM:
        return ["Against the server: it sees what every party sends without noise."]
    if totals.sum_protocol:
        return [
            "If more parties collude with the server than stated above, or if someone breaks the masks: they rest on "
            "X25519, ChaCha20, HKDF with SHA-256 and Ed25519, and a quantum computer could remove masks that "
            "someone has recorded. What a single party sent has one share of the noise, which is not enough.",
            "The model against a dishonest party: nobody sees what a single party sends, so one party can spoil the "
            "sum, and with it the model, without being noticed.",
        ]
    lines = [
        "If someone sees what a single party sends, or more parties collude with the server than stated above: one "
        f"share of the noise is not enough. Nothing in this run prevents it: {SIMULATED_SUM}."
    ]
    if totals.colluders == 0:
        lines.append(
            "Against the parties themselves: each knows its own share, and those of the others are not enough."
        )
    return lines
