"""`report.html`: one self-contained page about a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from taciturn.core.storage import write_text
from taciturn.privacy.signatures import OFFICER, ORGANISATION, Signable
from taciturn.reporting.curves import full_label, run_label
from taciturn.reporting.narrative import result_sentences
from taciturn.reporting.statements import Guarantee, RunGuarantee, guarantee, paper_statement
from taciturn.reporting.tables import (
    GROUP_HEADINGS,
    format_epsilon,
    format_setting,
    group_rows,
    has_seeds,
    result_table,
)
from taciturn.runs.folder import RunFolder, public_config
from taciturn.runs.records import ClassificationQuality, RunSummary, SourceFacts

CONFUSION_LIMIT = 20  # classes; a larger table helps nobody


def write_report(folder: RunFolder) -> None:
    """Make the page from the run folder alone; what is local-only goes into a page of its own, in its own folder."""
    if folder.has_local:
        write_text(folder.local / folder.report.name, render(folder, local=True))
    write_text(folder.report, render(folder, local=False))  # last: where it is, nothing is missing


def render(folder: RunFolder, local: bool) -> str:
    """Return the page as HTML; `local` includes what only the owner of the records may see."""
    summary, config, ledger = folder.read_summary(local), folder.read_config(), folder.read_ledger()
    headings, rows = result_table(summary.runs)
    labels = [run_label(entry.algorithm, entry.epsilon) for entry in summary.runs]
    source, own_name = ledger.study.source, folder.path.resolve().name
    certified = guarantee(ledger.study, summary.privacy) if summary.mode == "certified" else None
    paper = None if certified else paper_statement(ledger, step_from_data=config["eta"] == "smooth")
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
        headings=headings,
        rows=rows,
        group_headings=GROUP_HEADINGS,
        groups=group_rows(summary.runs) if has_seeds(summary.runs) else [],
        picture=_picture(folder, local),
        evidence=_evidence(folder, config.get("ledger", ""), summary.federation is not None),
        privacy=certified or paper,
        totals=_totals(certified, labels) if certified else {},
        unprotected=_unprotected(certified, source) if certified else [],
        nominal={labels[run]: f"{total:,.6g}" for run, total in paper.nominal_sums.items()} if paper else {},
        without_noise=sorted({labels[run] for run in paper.without_noise}) if paper else [],
        audits=_audits(folder),
        quality=_quality(summary),
        config=_config(config if local else public_config(config)),
    )


def _picture(folder: RunFolder, local: bool) -> str:
    from taciturn.reporting.figures.run_figure import (
        figure,
        in_words,
    )
    from taciturn.reporting.figures.style import to_svg

    return to_svg(figure([folder], local), "Training, round by round", in_words([folder], local))


@cache
def _page() -> Template:
    environment = Environment(loader=PackageLoader("taciturn.reporting"), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"epsilon": format_epsilon}
    return environment.get_template("report.html")


def _totals(certified: Guarantee, labels: Sequence[str]) -> dict[str, RunGuarantee]:
    """Return the totals by label; runs that differ in their seed alone cost the same and are shown once."""
    first = {labels[row.run]: row for row in reversed(certified.runs)}
    return dict(reversed(first.items()))


def _unprotected(certified: Guarantee, source: SourceFacts | None) -> list[str]:
    return [*([source.unprotected] if source and source.unprotected else []), *certified.unprotected]


def _audits(folder: RunFolder) -> list[Any]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.path.glob("audit*.json"))]


def _evidence(folder: RunFolder, ledger: str, federated: bool) -> list[str]:
    """Return where the run's cost was charged, and who signed its ledger; the page itself proves neither."""
    started = folder.read_start(local=False)
    charged = "Not charged to a budget ledger: what other studies spend on these records comes on top."
    if ledger:
        charged = f"Charged to the budget ledger {Path(ledger).name}, as reservation {started.reservation}."
    signed = Signable(folder.chain, "run", started.id or "", "").at_the_end()
    roles = {ORGANISATION: "signed for the organisation by key", OFFICER: "countersigned by the officer's key"}
    by = ", ".join(dict.fromkeys(f"{roles[one.statement.role]} {one.key.id}" for one in signed))
    signatures = f"ledger.jsonl is {by or 'not signed; `taciturn ledger sign` signs it'}."
    return [signatures] if federated else [charged, signatures]


def _quality(summary: RunSummary) -> list[tuple[str, ClassificationQuality, bool]]:
    """Return label, quality and whether to show the confusion matrix, for the first seed of every setting."""
    first: dict[str, tuple[str, ClassificationQuality, bool]] = {}
    for entry in summary.runs:
        if isinstance(entry.quality, ClassificationQuality):
            shown = len(entry.quality.confusion) <= CONFUSION_LIMIT
            first.setdefault(run_label(entry.algorithm, entry.epsilon), (full_label(entry), entry.quality, shown))
    return list(first.values())


def _config(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key.replace("_", "-"), format_setting(value)) for key, value in config.items()]
