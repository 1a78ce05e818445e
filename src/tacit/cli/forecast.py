"""`tacit run --dry-run` in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.cli.output import map_words, print_table, stdout
from tacit.privacy.accounting import EXPLAINED
from tacit.privacy.statement import PAPER_HEADLINE
from tacit.views.curves import run_label
from tacit.views.tables import format_bytes, format_epsilon

HEADINGS = ("run", "seeds", "rounds", "local updates", "noise, std", "spends ε")


def print_forecast(foreseen: Mapping[str, Any]) -> None:
    """The study, what each run would spend, what all would, and where it would be written."""
    _say(
        "dry run", f"nothing was trained, written or spent{'' if foreseen['reads_records'] else '; no record was read'}"
    )
    _say("data", _data(foreseen["data"]))
    if foreseen["mode"] == "certified":
        _say("noise", _noise(foreseen["noise"]))
        _say("trust", foreseen["trust"])
    stdout.print()
    print_table(HEADINGS, _rows(foreseen["runs"]))
    stdout.print()
    _say("privacy", _privacy(foreseen))
    if foreseen["ledger"]:
        _say("ledger", _ledger(foreseen["ledger"]))
    rounds = max(run["rounds"] for run in foreseen["runs"])
    sent = format_bytes(foreseen["bytes_up"]), format_bytes(rounds * foreseen["bytes_up"])
    words = f"{sent[0]} by an agent in a round of one run, {sent[1]} in {rounds} rounds"
    _say("sent", words if foreseen["bytes_up"] else "all records to the curator, once")
    _say("folder", foreseen["run"])


def _say(what: str, words: str) -> None:
    stdout.print(f"{what:8} {words}", soft_wrap=True, highlight=False)


def _data(data: Mapping[str, Any]) -> str:
    features = f"{data['features']} features{map_words(data['features_by'])}"
    declared = "" if data["published"] else " (as declared)"
    return (
        f"{data['name']}: {data['agents']} agents, {data['records']:,} records, {features}, "
        f"{data['outputs']} outputs{declared}; protected: one {data['unit']}"
    )


def _noise(noise: Mapping[str, Any]) -> str:
    limits = [words.format(noise[name]) for name, words in LIMITS.items() if name in noise]
    return f"{noise['mechanism']}, {' or '.join(limits)}; {noise['meaning']}"


LIMITS = {
    "clip": "every record's gradient clipped at {:.4g}",
    "record_bound": "every record scaled to a length of at most {:.4g}",
}


def _rows(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """One row for each algorithm and budget; its seeds spend the same."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        groups.setdefault(run_label(run["algorithm"], run["epsilon"]), []).append(run)
    return [
        (
            label,
            str(len(group)),
            str(group[0]["rounds"]),
            str(group[0]["local_updates"]),
            "–" if group[0]["noise_std"] is None else f"{group[0]['noise_std']:.3g}",
            format_epsilon(group[0]["spends"]),
        )
        for label, group in groups.items()
    ]


def _privacy(foreseen: Mapping[str, Any]) -> str:
    if foreseen["mode"] == "paper":
        return PAPER_HEADLINE
    bounds = dict.fromkeys(run["accountant"] for run in foreseen["runs"] if math.isfinite(run["spends"]))
    words = f"ε at delta {foreseen['delta']:g}"
    if bounds:
        words += f", by {'; '.join(EXPLAINED[bound] for bound in bounds)}"
    if len(foreseen["runs"]) > 1:
        words += (
            f"; all {len(foreseen['runs'])} runs shown to the same eyes: {format_epsilon(foreseen['all_runs_epsilon'])}"
        )
    return words


def _ledger(ledger: Mapping[str, Any]) -> str:
    before, after = format_epsilon(ledger["used"]), format_epsilon(ledger["used_after"])
    budget = f"{ledger['file']}: ε {before} of {ledger['total_epsilon']:g} is used now"
    return f"{budget}, {after} would be (two budgets add up to less than their sum)"
