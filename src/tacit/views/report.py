"""`report.html`: one self-contained page about a run."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from tacit.privacy.statement import statement
from tacit.results.files import write_text
from tacit.results.folder import RunFolder
from tacit.views.curves import run_label
from tacit.views.plots import figure, to_svg
from tacit.views.sentences import result_sentences
from tacit.views.tables import GROUP_HEADINGS, HEADINGS, format_setting, group_rows, has_seeds, result_rows

CONFUSION_LIMIT = 20  # classes; a larger table helps nobody


def write_report(folder: RunFolder) -> None:
    """Make the page from the run folder alone."""
    write_text(folder.report, render(folder))


def render(folder: RunFolder) -> str:
    """The page as text."""
    summary = folder.read_summary()
    environment = Environment(loader=PackageLoader("tacit.views"), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("report.html").render(
        name=folder.path.resolve().name,
        summary=summary,
        sentences=result_sentences(summary),
        headings=HEADINGS,
        rows=result_rows(summary["runs"]),
        group_headings=GROUP_HEADINGS,
        groups=group_rows(summary["runs"]) if has_seeds(summary["runs"]) else [],
        picture=to_svg(figure([folder])),
        privacy=_privacy(folder, summary),
        quality=_quality(summary),
        config=_config(folder),
    )


def _privacy(folder: RunFolder, summary: dict[str, Any]) -> dict[str, Any]:
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
            "label": f"{label}, seed {entry['seed']}",
            **entry["quality"],
            "show_confusion": len(entry["quality"]["confusion"]) <= CONFUSION_LIMIT,
        }
        for label, entry in first.items()
    ]


def _config(folder: RunFolder) -> list[tuple[str, str]]:
    return [(key.replace("_", "-"), format_setting(value)) for key, value in folder.read_config().items()]
