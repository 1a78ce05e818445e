"""`report.html`: one self-contained page about a run."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from taciturn.core.storage import write_text
from taciturn.data import SOURCES
from taciturn.privacy.signatures import OFFICER, ORGANISATION, Signable
from taciturn.privacy.trust import AGENTS
from taciturn.reporting.curves import full_label, run_label
from taciturn.reporting.narrative import is_declared, result_sentences
from taciturn.reporting.statements import guarantee, statement
from taciturn.reporting.tables import (
    GROUP_HEADINGS,
    format_epsilon,
    format_setting,
    group_rows,
    has_seeds,
    result_table,
)
from taciturn.runs.folder import RunFolder, public_config

CONFUSION_LIMIT = 20  # classes; a larger table helps nobody


def write_report(folder: RunFolder) -> None:
    """Make the page from the run folder alone; what is local-only goes into a page of its own, in its own folder."""
    if folder.has_local:
        write_text(folder.local / folder.report.name, render(folder, local=True))
    write_text(folder.report, render(folder, local=False))  # last: where it is, nothing is missing


def render(folder: RunFolder, local: bool) -> str:
    """The page as text."""
    summary = folder.read_summary(local)
    headings, rows = result_table(summary["runs"])
    return _page().render(
        name=summary["federation"]["title"] if "federation" in summary else folder.path.resolve().name,
        folder_name=folder.path.resolve().name,
        federation=summary.get("federation"),
        local=local and folder.has_local,
        seeded=folder.read_config()["noise"] == "seeded",
        alone=folder.read_config().get("trust", AGENTS) == AGENTS,
        summary=summary,
        declared=is_declared(summary["data"]),
        published=folder.read_config()["data"] in SOURCES,
        features_by=folder.read_config()["features"],
        sentences=result_sentences(summary),
        headings=headings,
        rows=rows,
        group_headings=GROUP_HEADINGS,
        groups=group_rows(summary["runs"]) if has_seeds(summary["runs"]) else [],
        picture=_picture(folder, local),
        evidence=_evidence(folder, "federation" in summary),
        privacy=_certified(folder, summary) if summary["mode"] == "certified" else _paper(folder, summary),
        quality=_quality(summary),
        config=_config(folder, local),
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


def _certified(folder: RunFolder, summary: dict[str, Any]) -> dict[str, Any]:
    """The guarantee, with runs by name; seeds of one setting cost equally much and are shown once."""
    made = guarantee(folder.read_ledger(), summary["privacy"])
    names = [run_label(entry["algorithm"], entry["epsilon"]) for entry in summary["runs"]]
    rows = {names[row["run"]]: row for row in reversed(made["runs"])}
    data = folder.read_config()["data"]
    own = [SOURCES[data].unprotected] if data in SOURCES and SOURCES[data].unprotected else []
    audits = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.path.glob("audit*.json"))]
    pure = any(row["pure"] is not None for row in made["runs"])
    return made | {
        "has_pure": pure,
        "runs": dict(reversed(rows.items())),
        "unprotected": [*own, *made["unprotected"]],
        "audits": audits,
    }


def _evidence(folder: RunFolder, federated: bool) -> list[str]:
    """Where the run's cost was charged, and who signed its ledger; the page itself proves neither."""
    ledger, started = folder.read_config().get("ledger", ""), folder.read_start(local=False)
    charged = f"Charged to the ledger over studies {Path(ledger).name}, as reservation {started.get('reservation')}."
    apart = "Charged to no ledger over studies: what other studies spend on these records comes on top."
    signed = Signable(folder.chain, "run", started.get("id", ""), "").final_signatures()
    roles = {ORGANISATION: "signed for the organisation by key", OFFICER: "countersigned by the officer's key"}
    by = ", ".join(dict.fromkeys(f"{roles[one.statement.role]} {one.key.id}" for one in signed))
    whose = f"ledger.jsonl is {by or 'not signed; `taciturn ledger sign` signs it'}."
    return [*([] if federated else [charged if ledger else apart]), whose]


def _paper(folder: RunFolder, summary: dict[str, Any]) -> dict[str, Any]:
    """The statement, with runs by name; seeds of one setting release equally much."""
    made = statement(folder.read_ledger(), step_from_data=folder.read_config()["eta"] == "smooth")
    names = [run_label(entry["algorithm"], entry["epsilon"]) for entry in summary["runs"]]
    return made | {
        "nominal": {names[run]: f"{total:,.6g}" for run, total in made["nominal_sums"].items()},
        "without_noise": sorted({names[run] for run in made["without_noise"]}),
    }


def _quality(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Recall and confusion of the first seed of every setting."""
    first: dict[str, dict[str, Any]] = {}
    for entry in summary["runs"]:
        if "confusion" in entry.get("quality", {}):
            first.setdefault(run_label(entry["algorithm"], entry["epsilon"]), entry)
    return [
        {
            "label": full_label(entry),
            **entry["quality"],
            "show_confusion": len(entry["quality"]["confusion"]) <= CONFUSION_LIMIT,
        }
        for entry in first.values()
    ]


def _config(folder: RunFolder, local: bool) -> list[tuple[str, str]]:
    """Every setting; of paths only the last part where anybody may look."""
    found = folder.read_config()
    if not local:
        found = public_config(found)
    return [(key.replace("_", "-"), format_setting(value)) for key, value in found.items()]
