"""`tacit run` and `tacit resume`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rich_click as click
from click.exceptions import Exit

from tacit import api, study
from tacit.cli.forecast import print_forecast
from tacit.cli.options import GROUPS, given_settings, setting_flags
from tacit.cli.output import print_json, print_result, stderr
from tacit.cli.watch import Watcher
from tacit.data.draft import READ_OFF, is_draft
from tacit.engine.team import rank_here
from tacit.errors import InputError
from tacit.kernels.library import library
from tacit.results.folder import RunFolder
from tacit.stopping import stop_signals
from tacit.telling import listening


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

    CONFIG is a TOML file (tacit config init, or what tacit plan wrote). Flags win over it, both win over the data
    set's own preset, and that wins over the defaults below. The whole run keeps --total-epsilon at --delta; what is
    not set comes from public facts, as tacit plan shows. Records of your own get noise from the operating system;
    --seed makes a simulation, which can be repeated and protects nobody.

    \b
    Examples:
      tacit run
      tacit run --total-epsilon 1 --delta 1e-6 --seeds 5
      tacit run --data patients.csv --schema schema.toml --total-records 600 --agents 3 --test-share 0.2
      tacit run --data mnist --total-epsilon 3 --noise hardened
      tacit run --mode paper --algorithm objp,objpm --epsilon 0.1,1,inf --seeds 5
      tacit run study.toml --total-epsilon 0.5 --out runs/half
      tacit run study.toml --dry-run
    """
    given = given_settings(flags)
    _warn_of_a_draft(given.get("schema") or (api.read_config(config).get("schema", "") if config else ""))
    if dry_run:
        foreseen = api.dry_run(config, **given)
        print_json(foreseen) if as_json else print_forecast(foreseen)
        return
    if library() is None and given.get("backend", "auto") == "auto" and "device" not in given:
        stderr.print(
            "note: the compiled part of Tacit was not built (is there a C compiler?): numpy takes longer",
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
      tacit resume runs/20260101-120000-mnist14-objpm
    """
    with _watching() as (watch, stop, started):
        finished = api.resume(run, watch=watch, stop=stop, started=started)
    _show(finished, as_json)


def _warn_of_a_draft(schema: str) -> None:
    """Say so where a schema is still as `tacit data schema` drafted it: what is read off records is not public."""
    path = Path(schema).expanduser()
    if schema and path.is_file() and is_draft(path):
        stderr.print(
            f"note: {path} still has values marked '{READ_OFF}': they tell of the records, and no guarantee covers "
            "that; replace them by what is known without looking",
            soft_wrap=True,
            highlight=False,
        )


def _show(finished: api.Run, as_json: bool) -> None:
    if rank_here() > 0:
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
        with stop_signals(stderr.print) as stop, listening(watcher.told):
            yield watcher, stop, started
    except (study.Interrupted, KeyboardInterrupt):
        watcher.close()
        place = f": continue with 'tacit resume {places[0].path}'" if places else ""
        stderr.print(f"stopped{place}", soft_wrap=True, highlight=False)
        raise Exit(130) from None
    except OSError as error:
        if not places:
            raise
        where = f"when writing to {places[0].path}: {error.strerror or error}"
        raise InputError(f"stopped {where}; mend that, then 'tacit resume {places[0].path}'") from None
    finally:
        watcher.close()
