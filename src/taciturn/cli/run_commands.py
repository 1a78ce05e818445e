"""`taciturn run` and `taciturn resume`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rich_click as click
from click.exceptions import Exit

from taciturn import api
from taciturn.cli.options import GROUPS, given_settings, setting_flags
from taciturn.cli.output import (
    JSON,
    JSON_HELP,
    PATH,
    describe_map,
    note,
    print_json,
    print_result,
    print_table,
    say,
    stderr,
)
from taciturn.core.signals import stop_signals
from taciturn.core.storage import format_bytes
from taciturn.data.schema_draft import READ_OFF, is_draft
from taciturn.errors import InputError, Interrupted
from taciturn.kernels.library import library
from taciturn.planning.dry_run import DataForecast, DryRunReport, RunForecast
from taciturn.privacy.accountants import describe_accountant
from taciturn.privacy.calibration import delta_condition
from taciturn.reporting.curves import run_label
from taciturn.reporting.statements import PAPER_HEADLINE
from taciturn.reporting.tables import format_epsilon
from taciturn.result import Run
from taciturn.runs.folder import RunFolder
from taciturn.training.process_group import current_rank
from taciturn.training_display import TrainingDisplay

DRY_RUN_HEADINGS = ("run", "seeds", "rounds", "local updates", "noise, std", "spends ε")
LIMITS = {
    "clip": "every record's gradient clipped at {:.4g}",
    "record_bound": "every record scaled to a length of at most {:.4g}",
}


def print_dry_run(report: DryRunReport) -> None:
    """Print what a run would do: its data, noise, rounds, privacy cost, ledger, traffic and folder."""
    untouched = "" if report.reads_records else "; no record was read"
    _say_field("dry run", f"nothing was trained, written or spent{untouched}")
    _say_field("data", _describe_data(report.data))
    if report.mode == "certified":
        noise = report.noise
        limits = (words.format(at) for name, words in LIMITS.items() if (at := getattr(noise, name)) is not None)
        _say_field("noise", f"{noise.mechanism}, {' or '.join(limits)}; {noise.meaning}")
        _say_field("trust", report.trust or "")
    say()
    print_table(DRY_RUN_HEADINGS, _dry_run_rows(report.runs))
    say()
    _say_field("privacy", _describe_privacy(report))
    if ledger := report.ledger:
        used, after = format_epsilon(ledger.used), format_epsilon(ledger.used_after)
        total = f"ε {used} of {ledger.total_epsilon:g} is used now, and {after} would be"
        _say_field("ledger", f"{ledger.file}: {total} (two budgets together cost less than their sum)")
    rounds, sent = max(run.rounds for run in report.runs), report.bytes_up
    traffic = (
        f"{format_bytes(sent)} by an agent in a round of one run, {format_bytes(rounds * sent)} in {rounds} rounds"
    )
    _say_field("sent", traffic if sent else "all records to the curator, once")
    _say_field("folder", report.run)


def _say_field(name: str, text: str) -> None:
    say(f"{name:8} {text}")


def _describe_data(data: DataForecast) -> str:
    features = f"{data.features} features{describe_map(data.features_by)}"
    declared = "" if data.published else " (as declared)"
    return (
        f"{data.name}: {data.agents} agents, {data.records:,} records{declared}, {features}, "
        f"{data.outputs} outputs; protected: one {data.unit}"
    )


def _dry_run_rows(runs: Sequence[RunForecast]) -> list[tuple[str, ...]]:
    """Return one row for each algorithm and budget; its seeds spend the same."""
    groups: dict[str, list[RunForecast]] = {}
    for run in runs:
        groups.setdefault(run_label(run.algorithm, run.epsilon), []).append(run)
    rows: list[tuple[str, ...]] = []
    for label, group in groups.items():
        first = group[0]
        std = "–" if first.noise_std is None else f"{first.noise_std:.3g}"
        counts = (str(len(group)), str(first.rounds), str(first.local_updates))
        rows.append((label, *counts, std, format_epsilon(first.spends)))
    return rows


def _describe_privacy(report: DryRunReport) -> str:
    if report.mode == "paper":
        return PAPER_HEADLINE
    runs = report.runs
    accountants = dict.fromkeys(run.accountant for run in runs if math.isfinite(run.spends))
    words = f"ε at delta {report.delta:g}"
    if accountants:
        condition = delta_condition(report.delta, report.data.records)
        words += f" ({condition})" if condition else ""
        words += f", by {'; '.join(describe_accountant(name) for name in accountants if name)}"
    if len(runs) > 1:
        total = format_epsilon(report.all_runs_epsilon)
        words += f"; total ε for an observer who sees all {len(runs)} runs: {total}"
    return words


@click.command("run", context_settings={"show_default": True})
@click.argument("config", required=False, type=PATH)
@setting_flags(groups=GROUPS)
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP, panel="Output settings")
@click.option(
    "--dry-run", is_flag=True, help="show what a run would do and spend; write nothing", panel="Output settings"
)
def train(config: Path | None, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Train a model; without arguments, on bundled data with a total epsilon of 1.

    CONFIG is a TOML file (from 'taciturn config init' or 'taciturn plan --out'). Flags override it, both override the
    data set's preset, and that overrides the defaults below. The whole run spends at most --total-epsilon at --delta.
    What is not set is computed from public facts, as 'taciturn plan' shows. Noise for your own records comes from the
    operating system; --seed makes a simulation instead, which can be repeated and protects no one.

    \b
    Examples:
      taciturn run
      taciturn run --total-epsilon 1 --delta 1e-6 --seeds 5
      taciturn run --data patients.csv --schema schema.toml --total-records 600 --agents 3 --test-share 0.2
      taciturn run --data mnist --total-epsilon 3 --noise hardened
      taciturn run --mode paper --algorithm objp,objpm --epsilon 0.1,1,inf --seeds 5
      taciturn run study.toml --total-epsilon 0.5 --out runs/half
      taciturn run study.toml --dry-run
    """
    given = given_settings(flags)
    _warn_about_draft(str(given.get("schema") or (api.read_config(config).get("schema", "") if config else "")))
    if dry_run:
        report = api.dry_run(config, **given)
        print_json(report) if as_json else print_dry_run(report)
        return
    if library() is None and given.get("backend", "auto") == "auto" and "device" not in given:
        note("note: the compiled part of Taciturn is not built (is there a C compiler?); numpy is slower")
    with _training() as (display, stop, started):
        finished = api.run(config, watch=display, stop=stop, started=started, progress=False, **given)
    _show(finished, as_json)


@click.command()
@click.argument("run", type=PATH)
@JSON
def resume(run: Path, as_json: bool) -> None:
    """Continue a run that was interrupted or killed; the result is the same as without the interruption.

    With hardened noise, lost rounds are drawn again. Rounds that the ledger records stay charged: if an old checkpoint
    was restored, the run ends that many rounds earlier.

    \b
    Examples:
      taciturn resume runs/20260101-120000-mnist14-objpm
    """
    with _training() as (display, stop, started):
        finished = api.resume(run, watch=display, stop=stop, started=started, progress=False)
    _show(finished, as_json)


def _warn_about_draft(schema: str) -> None:
    """Print a note if a schema still has values that `taciturn data schema` read from the records."""
    path = Path(schema).expanduser()
    if schema and path.is_file() and is_draft(path):
        note(
            f"note: {path} still has values marked '{READ_OFF}': they reveal facts about the records, which no "
            "guarantee covers; replace them by what is known without looking at the data"
        )


def _show(finished: Run, as_json: bool) -> None:
    if current_rank() > 0:
        return
    if as_json:
        print_json(finished.summary)
    else:
        print_result(finished)


@contextmanager
def _training() -> Iterator[tuple[TrainingDisplay, Callable[[], bool], Callable[[RunFolder], None]]]:
    """Show progress on stderr; a first Ctrl-C finishes the round, and the message says how to continue."""
    folders: list[RunFolder] = []

    def started(folder: RunFolder) -> None:
        folders.append(folder)
        if folder.finished:
            note(f"{folder.path} has finished already")

    try:
        with TrainingDisplay(stderr) as display, stop_signals(stderr.print) as stop:
            yield display, stop, started
    except (Interrupted, KeyboardInterrupt) as error:
        note(f"stopped: continue with 'taciturn resume {folders[0].path}'" if folders else "stopped")
        raise Exit(130) from error
    except OSError as error:
        if not folders:
            raise
        path = folders[0].path
        raise InputError(
            f"stopped when writing to {path}: {error.strerror or error}; fix that, then run 'taciturn resume {path}'"
        ) from error
