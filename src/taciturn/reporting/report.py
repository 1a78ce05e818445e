"""The report of a run: one self-contained web page."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from taciturn.core.storage import write_text
from taciturn.privacy.accountants import NO_ACCOUNTANT, describe_accountant
from taciturn.privacy.signatures import OFFICER, ORGANISATION, Signable
from taciturn.reporting.curves import first_of_labels, full_label, run_label
from taciturn.reporting.evaluation_tables import (
    ABOUT,
    confusion_table,
    evaluation_sentence,
    evaluation_table,
    last_evaluations,
    reliability_table,
)
from taciturn.reporting.narrative import result_sentences
from taciturn.reporting.quality_tables import TextTable, baseline_words, shown_tables
from taciturn.reporting.statements import Guarantee, RunGuarantee, guarantee, paper_statement
from taciturn.reporting.tables import (
    GROUP_HEADINGS,
    NO_ERROR,
    NOTHING,
    SPREAD,
    format_epsilon,
    format_setting,
    group_rows,
    has_seeds,
    result_table,
)
from taciturn.runs.effects import read_effects
from taciturn.runs.folder import RunFolder, public_config
from taciturn.runs.ledger import RunLedger
from taciturn.runs.private_quality import PrivateClassification
from taciturn.runs.quality import ClassificationQuality, Quality
from taciturn.runs.records import EvaluationRow, RunSummary, SourceFacts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EFFECTS_LIMIT = 4  # settings whose effects are drawn
RELIABILITY_PANELS = 3  # settings in one reliability diagram
logger = logging.getLogger(__name__)


def write_report(folder: RunFolder) -> None:
    """Write the report of a finished run, and a second one with the owner's figures into its local-only folder.

    Raises
    ------
    LedgerTampered
        If the ledger does not verify.
    """
    ledger, effects = folder.read_ledger(), _effects(folder)
    if folder.has_local:
        write_text(folder.local / folder.report.name, _render(folder, ledger, effects, local=True))
    write_text(folder.report, _render(folder, ledger, effects, local=False))  # last: everything is written then
    logger.info("wrote %s", folder.report)


def _render(folder: RunFolder, ledger: RunLedger, effects: list[tuple[str, str]], local: bool) -> str:
    """Return the page as HTML.

    Parameters
    ----------
    folder
        A finished run.
    ledger
        Its ledger, verified.
    effects
        Labels and pictures of the effects, which are the same on both pages.
    local
        Whether to include what only the owner of the records may see.
    """
    summary, config = folder.read_summary(local), folder.read_config()
    headings, rows = _without_empty(*result_table(summary.runs))
    group_headings, groups = _without_empty(GROUP_HEADINGS, group_rows(summary.runs))
    methods = {entry.algorithm: ledger.study.method_facts.get(entry.algorithm) for entry in summary.runs}
    labels = [run_label(entry.algorithm, entry.epsilon) for entry in summary.runs]
    source, own_name = ledger.study.source, folder.path.resolve().name
    certified = guarantee(ledger.study, summary.privacy) if summary.mode == "certified" else None
    paper = None if certified else paper_statement(ledger, step_from_data=config["eta"] == "smooth")
    totals = _totals(certified, labels) if certified else {}
    return _page().render(
        name=summary.federation.title if summary.federation else own_name,
        folder_name=own_name,
        federation=summary.federation,
        local=local and folder.has_local,
        seeded=ledger.study.noise == "seeded",
        noise_at_agents=not ledger.study.noise_on_sum,
        summary=summary,
        published=source is not None and source.built_in,
        features_by=config["features"],
        sentences=result_sentences(summary),
        methods={name: method.summary for name, method in methods.items() if method and method.summary},
        headings=headings,
        rows=rows,
        group_headings=group_headings,
        groups=groups if has_seeds(summary.runs) else [],
        picture=_curves(folder, local) if any(run.rounds > 1 for run in summary.runs) else "",
        evaluations=_evaluations(folder, summary),
        evaluation_curve=_evaluation_curve(folder),
        about_evaluations=ABOUT,
        effects=effects,
        evidence=_evidence(folder, config.get("ledger", ""), summary.federation is not None),
        privacy=certified or paper,
        totals=totals,
        bounds=_bounds(totals.values()),
        unprotected=_unprotected(certified, source) if certified else [],
        nominal={labels[run]: f"{total:,.6g}" for run, total in paper.nominal_sums.items()} if paper else {},
        without_noise=sorted({labels[run] for run in paper.without_noise}) if paper else [],
        audits=[json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.path.glob("audit*.json"))],
        quality=_quality(summary),
        reliability=_reliability(summary),
        config=_config(config if local else public_config(config)),
    )


def _without_empty(
    headings: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return a table without the columns in which no run has a figure that may be shown.

    The mean test error stays, because it says why there is none.
    """
    kept = [
        i
        for i, name in enumerate(headings)
        if any(row[i] not in ((*NO_ERROR, NOTHING) if name in SPREAD else (NOTHING,)) for row in rows)
    ]
    return tuple(headings[i] for i in kept), [tuple(row[i] for i in kept) for row in rows]


def _picture(draw: Callable[[], Figure], title: str, words: str) -> str:
    """Return a figure as part of the page, with a text alternative."""
    from taciturn.reporting.figures.style import to_svg

    return to_svg(draw(), title, words)


def _curves(folder: RunFolder, local: bool) -> str:
    """Return the curves of error and objective; empty if neither may be shown."""
    from taciturn.reporting.figures.run_figure import RESULTS, figure, text_alternative

    if all(getattr(row, metric) is None for row in folder.read_metrics(local) for metric in RESULTS):
        return ""
    words = text_alternative([folder], local, RESULTS)
    return _picture(lambda: figure([folder], local, RESULTS), "Training, round by round", words)


class _ShownEvaluation(NamedTuple):
    """What a page shows of the last private evaluation of one setting."""

    label: str
    sentence: str
    tables: Sequence[tuple[str, TextTable]]


def _evaluations(folder: RunFolder, summary: RunSummary) -> list[_ShownEvaluation]:
    """Return the last private evaluation of the first seed of every setting."""
    rows = last_evaluations(folder.read_evaluations())
    return [_shown_evaluation(row, summary.data.target.names or ()) for row in rows]


def _shown_evaluation(row: EvaluationRow, names: Sequence[str]) -> _ShownEvaluation:
    if row.quality is None:
        raise TypeError("an evaluation that was lost has no tables")
    tables: list[tuple[str, TextTable | None]] = [("Measures", evaluation_table(row.quality))]
    if (confusion := confusion_table(row.quality, names)) is not None:
        noise = (row.quality.confusion_noise if isinstance(row.quality, PrivateClassification) else None) or 0.0
        tables.append(
            (f"Confusion matrix: rows are true classes; every count is ± {noise:.1f} by the noise", confusion)
        )
    tables.append(("Predicted probabilities, and how often they came true", reliability_table(row.quality)))
    return _ShownEvaluation(full_label(row), evaluation_sentence(row), [(w, table) for w, table in tables if table])


def _evaluation_curve(folder: RunFolder) -> str:
    """Return the curve of the private evaluations; empty if there is one at most."""
    rows = folder.read_evaluations()
    if len({row.round for row in rows if row.quality is not None}) < 2:
        return ""
    from taciturn.reporting.figures.evaluation_figure import evaluation_figure, text_alternative

    return _picture(lambda: evaluation_figure(rows), "Held-out error, with noise", text_alternative(rows))


def _effects(folder: RunFolder) -> list[tuple[str, str]]:
    """Return label and picture of the effects of the first run of every setting; none if there are no effects."""
    if not folder.effects.is_file():
        return []
    from taciturn.reporting.figures.effects_figure import effects_figure, text_alternative

    shown = first_of_labels(read_effects(folder).runs)[:EFFECTS_LIMIT]
    title = "The effect of every column"
    return [(full_label(run), _picture(partial(effects_figure, run), title, text_alternative(run))) for run in shown]


@cache
def _page() -> Template:
    environment = Environment(loader=PackageLoader("taciturn.reporting"), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"epsilon": format_epsilon}
    return environment.get_template("report.html")


def _totals(certified: Guarantee, labels: Sequence[str]) -> dict[str, RunGuarantee]:
    """Return the totals by label; runs that differ in their seed alone cost the same and are shown once."""
    first = {labels[row.run]: row for row in reversed(certified.runs)}
    return dict(reversed(first.items()))


def _bounds(rows: Collection[RunGuarantee]) -> list[str]:
    """Return the bounds that gave the totals, in words."""
    finite = list(dict.fromkeys(row.accountant for row in rows if math.isfinite(row.spent)))
    if all(math.isfinite(row.spent) for row in rows):
        return finite
    return [*finite, "the runs without noise have no finite bound"] if finite else [describe_accountant(NO_ACCOUNTANT)]


def _unprotected(certified: Guarantee, source: SourceFacts | None) -> list[str]:
    return [*([source.unprotected] if source and source.unprotected else []), *certified.unprotected]


def _evidence(folder: RunFolder, ledger: str, federated: bool) -> list[str]:
    """Return where the run's cost was charged, and who signed its ledger; the page itself proves neither."""
    started = folder.read_start(local=False)
    charged = "Not charged to a budget ledger: the cost of other studies on these records is additional."
    if ledger:
        charged = f"Charged to the budget ledger {Path(ledger).name}, as reservation {started.reservation}."
    signed = Signable(folder.chain, "run", started.id or "", "").final_signatures()
    roles = {ORGANISATION: "signed for the organisation by key", OFFICER: "countersigned by the officer's key"}
    by = ", ".join(dict.fromkeys(f"{roles[one.statement.role]} {one.key.id}" for one in signed))
    signatures = f"ledger.jsonl is {by or 'not signed; `taciturn ledger sign` signs it'}."
    return [signatures] if federated else [charged, signatures]


class _ShownModel(NamedTuple):
    """What a page shows of the quality of one model."""

    label: str
    records: int
    note: str
    tables: Sequence[tuple[str, TextTable]]


def _first_seeds(summary: RunSummary) -> dict[str, tuple[str, Quality]]:
    """Return label and quality of the first seed of every setting, by the setting."""
    found: dict[str, tuple[str, Quality]] = {}
    for entry in summary.runs:
        if entry.quality is not None:
            found.setdefault(run_label(entry.algorithm, entry.epsilon), (full_label(entry), entry.quality))
    return found


def _quality(summary: RunSummary) -> list[_ShownModel]:
    return [
        _ShownModel(label, quality.records, baseline_words(quality), shown_tables(quality))
        for label, quality in _first_seeds(summary).values()
    ]


def _reliability(summary: RunSummary) -> str:
    """Return the reliability diagram of the first settings that have probabilities; empty if none has."""
    models = {
        label: quality
        for label, (_, quality) in _first_seeds(summary).items()
        if isinstance(quality, ClassificationQuality) and quality.reliability
    }
    if not models:
        return ""
    from taciturn.reporting.figures.calibration_figure import reliability_figure, text_alternative

    shown = dict(list(models.items())[:RELIABILITY_PANELS])
    return _picture(
        lambda: reliability_figure(shown), "Reliability: predicted and observed shares", text_alternative(shown)
    )


def _config(config: Mapping[str, object]) -> list[tuple[str, str]]:
    return [(key.replace("_", "-"), format_setting(value)) for key, value in config.items()]
