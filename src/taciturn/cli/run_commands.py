"""`taciturn run` and `taciturn resume`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rich_click as click
from click.exceptions import Exit

from taciturn import api
from taciturn.cli.options import GROUPS, given_settings, setting_flags
from taciturn.cli.output import map_words, print_json, print_result, print_table, stderr, stdout
from taciturn.cli.progress_display import Watcher
from taciturn.core.signals import stop_signals
from taciturn.data.schema_draft import READ_OFF, is_draft
from taciturn.errors import InputError
from taciturn.kernels.library import library
from taciturn.privacy.accountants import EXPLAINED
from taciturn.progress import subscribe
from taciturn.reporting.curves import run_label
from taciturn.reporting.statements import PAPER_HEADLINE
from taciturn.reporting.tables import format_bytes, format_epsilon
from taciturn.runs.folder import RunFolder
from taciturn.training.loop import Interrupted
from taciturn.training.process_group import current_rank

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


@click.command("run", context_settings={"show_default": True})
@click.argument("config", required=False, type=click.Path(path_type=Path))
@setting_flags(groups=GROUPS)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="print one JSON object, and nothing else, on stdout",
    panel="Output settings",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="say what would happen and what it would spend; nothing is written or spent",
    panel="Output settings",
)
def train(config: Path | None, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Train a model; with no argument, on embedded data with a total epsilon of 1.

    CONFIG is a TOML file (taciturn config init, or what taciturn plan wrote). Flags win over it, both win over the data
    set's own preset, and that wins over the defaults below. The whole run keeps --total-epsilon at --delta; what is
    not set comes from public facts, as taciturn plan shows. Records of your own get noise from the operating system;
    --seed makes a simulation, which can be repeated and protects nobody.

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
    _warn_of_a_draft(given.get("schema") or (api.read_config(config).get("schema", "") if config else ""))
    if dry_run:
        foreseen = api.dry_run(config, **given)
        print_json(foreseen) if as_json else print_forecast(foreseen)
        return
    if library() is None and given.get("backend", "auto") == "auto" and "device" not in given:
        stderr.print(
            "note: the compiled part of Taciturn was not built (is there a C compiler?): numpy takes longer",
            soft_wrap=True,
        )
    with _watching() as (watch, stop, started):
        finished = api.run(config, watch=watch, stop=stop, started=started, **given)
    _show(finished, as_json)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="print one JSON object, and nothing else, on stdout")
def resume(run: Path, as_json: bool) -> None:
    """Go on with a run that was interrupted or killed; it ends as if nothing had happened.

    With hardened noise, lost rounds are drawn again. Those that the ledger has stay charged: if an old checkpoint was
    put back, the run ends that many rounds earlier.

    \b
    Examples:
      taciturn resume runs/20260101-120000-mnist14-objpm
    """
    with _watching() as (watch, stop, started):
        finished = api.resume(run, watch=watch, stop=stop, started=started)
    _show(finished, as_json)


def _warn_of_a_draft(schema: str) -> None:
    """Say so where a schema is still as `taciturn data schema` drafted it: what is read off records is not public."""
    path = Path(schema).expanduser()
    if schema and path.is_file() and is_draft(path):
        stderr.print(
            f"note: {path} still has values marked '{READ_OFF}': they tell of the records, and no guarantee covers "
            "that; replace them by what is known without looking",
            soft_wrap=True,
            highlight=False,
        )


def _show(finished: api.Run, as_json: bool) -> None:
    if current_rank() > 0:
        return
    if as_json:
        print_json(finished.summary)
    else:
        print_result(finished)


@contextmanager
def _watching() -> Iterator[tuple[Watcher, Callable[[], bool], Callable[[RunFolder], None]]]:
    """Progress on stderr, and a first Ctrl-C that ends the round before it stops."""
    places: list[RunFolder] = []

    def started(folder: RunFolder) -> None:
        places.append(folder)
        if folder.finished:
            stderr.print(f"{folder.path} has ended already", soft_wrap=True, highlight=False)

    watcher = Watcher(stderr)
    try:
        with stop_signals(stderr.print) as stop, subscribe(watcher.told):
            yield watcher, stop, started
    except (Interrupted, KeyboardInterrupt):
        watcher.close()
        place = f": continue with 'taciturn resume {places[0].path}'" if places else ""
        stderr.print(f"stopped{place}", soft_wrap=True, highlight=False)
        raise Exit(130) from None
    except OSError as error:
        if not places:
            raise
        where = f"when writing to {places[0].path}: {error.strerror or error}"
        raise InputError(f"stopped {where}; mend that, then 'taciturn resume {places[0].path}'") from None
    finally:
        watcher.close()
