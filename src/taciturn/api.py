"""Taciturn from Python: what the command line does, as functions."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from taciturn.data import fingerprint
from taciturn.errors import InputError, PrivacyViolation, missing_file
from taciturn.planning.dry_run import dry_run_report
from taciturn.planning.plan import drawn_key
from taciturn.planning.study import Study
from taciturn.planning.tradeoffs import PlanReport, plan_report
from taciturn.privacy.budget import BudgetLedger
from taciturn.reporting.report import write_report
from taciturn.runs.folder import RunFolder, taken
from taciturn.settings import Settings, resolve, resolve_given
from taciturn.settings.resolve import digests
from taciturn.training.finish import finish, settle, settle_violated, sign
from taciturn.training.loop import Interrupted, Progress, train
from taciturn.training.process_group import SINGLE_PROCESS, ProcessGroup
from taciturn.training.recorder import refuse_stopped
from taciturn.training.setup import Reservation, beginning, digest, own_part, prepare, reserved
from taciturn.training.torch_backend import check_device
from taciturn.training.torch_process_group import current_process_group
from taciturn.training.upload_replay import ReplayedUploads, replay_uploads
from taciturn.types import Array


@dataclass(frozen=True)
class Run:
    """A finished run, read from its folder."""

    folder: RunFolder

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.folder.path

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Everything `taciturn run --json` prints."""
        return {"run": str(self.path), **self.folder.read_summary()}

    @property
    def runs(self) -> list[dict[str, Any]]:
        """One entry for each algorithm, epsilon and seed."""
        entries: list[dict[str, Any]] = self.summary["runs"]
        return entries

    @property
    def test_error(self) -> float | None:
        """The test error of the only run, or the mean over all of them (see `runs`); None without a test set."""
        errors = [entry["test_error"] for entry in self.runs]
        return None if None in errors else float(sum(errors) / len(errors))

    @cached_property
    def w(self) -> Array:
        """The parameters, [J, K], or [R, J, K] for several runs."""
        return self.folder.read_model()["w"]


def run(
    config: str | Path | None = None,
    *,
    watch: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    started: Callable[[RunFolder], None] = lambda folder: None,
    **settings: Any,
) -> Run:
    """Train: settings from a file, from keywords, or both (keywords win); see `taciturn config init` for their names.

    Started by torchrun, every process calls it alike, and works at some of the agents; the first writes the run folder.
    """
    with current_process_group() as team:
        resolved = team.together(lambda: resolve_given(read_config(config) if config else {}, settings))
        team.told(lambda: _check_free(resolved))  # before anything is set aside
        with ExitStack() as held:
            key = team.told(lambda: drawn_key(resolved))
            study, reservation = team.together(lambda: held.enter_context(reserved(resolved, team, key)))
            team.alike("the records", lambda: fingerprint(study.dataset))
            name = reservation.name if reservation else ""
            folder = team.told(lambda: RunFolder.create(_place(study.settings), **beginning(study, name)))
        with _released(reservation):
            started(folder)
            study = own_part(study, team)
            return _work(study, folder, watch, stop, team, reservation)


def plan(config: str | Path | None = None, **settings: Any) -> PlanReport:
    """What a run with these settings would spend and on what, from public facts alone; nothing is spent."""
    resolved = resolve_given(read_config(config) if config else {}, settings)
    if resolved.mode != "certified":
        raise InputError("mode paper has no total budget to plan: use --mode certified")
    return plan_report(resolved)


def dry_run(config: str | Path | None = None, **settings: Any) -> dict[str, Any]:
    """What `run` would do with these settings and what it would spend; nothing is written, and nothing is spent.

    In certified mode no private record is read either: all of it follows from public facts.
    """
    resolved = resolve_given(read_config(config) if config else {}, settings)
    _check_free(resolved)
    place = _place(resolved)
    if resolved.backend == "torch":
        check_device(resolved.device)
    return {"run": str(place), **dry_run_report(resolved).to_json()}


def resume(
    path: str | Path,
    *,
    watch: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    started: Callable[[RunFolder], None] = lambda folder: None,
) -> Run:
    """Go on with a run that was interrupted; one that has ended is returned, made whole where a file is missing.

    It goes on with any number of processes, whatever it began with.
    """
    with current_process_group() as team:
        folder = team.told(lambda: RunFolder.open(Path(path)))
        started(folder)
        begun = team.told(lambda: _begun(folder))
        if begun is None:
            return Run(folder)
        with _released(team.together(lambda: _reservation(folder, team))) as reservation:
            study = team.together(lambda: _again(folder, *begun, team))
            study = own_part(study, team)
            return _work(study, folder, watch, stop, team, reservation)


def open_run(path: str | Path) -> Run:
    """A run that is already there."""
    return Run(RunFolder.open(Path(path)))


def sent(
    path: str | Path,
    *,
    run: int = 0,
    agent: str | None = None,
    round: int = 1,  # noqa: A002  what it is called everywhere
    watch: Callable[[Progress], None] = lambda progress: None,
) -> ReplayedUploads:
    """What an agent of a run with seeded noise sent in a round, with and without that noise: the run is made again.

    It is computed from the records without noise, and for their owner alone.
    """
    folder, study = made_again(path)
    return replay_uploads(study, folder, run, agent, round, watch)


def made_again(path: str | Path) -> tuple[RunFolder, Study]:
    """A run's folder and its study as it began, from the same settings and records."""
    folder = RunFolder.open(Path(path))
    config, begun = folder.read_config(), folder.read_start()
    if "records" not in begun:
        raise InputError(
            f"{folder.path} has no records to make its rounds again with: they are at a federation's sites, "
            "or its local-only folder is gone"
        )
    _check_unchanged(folder, begun)
    return folder, _again(folder, config, begun["records"], folder.read_key(), SINGLE_PROCESS)


def read_config(path: str | Path) -> Mapping[str, Any]:
    """The settings of a TOML file."""
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise missing_file("config file", Path(path), "'taciturn config init' writes one") from None
    except IsADirectoryError:
        raise InputError(
            f"{path} is a folder: give a config file, or 'taciturn resume' for a run that stopped"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a TOML file: {error}") from None
    if {"label", "columns"} <= found.keys():
        raise InputError(f"{path} is the schema of a table: give it with --schema, and the table with --data")
    return found


def _begun(folder: RunFolder) -> tuple[dict[str, Any], str, int | None] | None:
    """The configuration of a run that can go on, its records' digest and their key; None where it has ended."""
    if folder.finished and folder.model.is_file():
        if not folder.report.is_file():
            if folder.at_home:  # a crash may have come before the reservation was settled
                _settle(resolve(folder.read_config()), folder)
            write_report(folder)
        return None
    config, begun = folder.read_config(), folder.read_start()
    settings = resolve(config)
    if folder.at_home:  # a crash may have come before the ledger over studies knew
        settle_violated(settings.ledger, folder)
    refuse_stopped(folder)
    _check_unchanged(folder, begun)
    if settings.ledger:
        BudgetLedger.open(Path(settings.ledger)).check_open(begun["reservation"])
    folder.check_at_home()
    if settings.plugins and digests(settings.plugins) != folder.read_ledger()[0]["plugins"]:
        raise InputError(f"{', '.join(settings.plugins)} changed after the run began: start a new run with it instead")
    if settings.schema:
        folder.kept_schema()
    if "records" not in begun:
        raise InputError(f"{folder.local} is gone: a run goes on only where its local-only folder is")
    return config, begun["records"], folder.read_key()


def _check_unchanged(folder: RunFolder, begun: Mapping[str, Any]) -> None:
    if digest(folder.config.read_text(encoding="utf-8")) != begun["config"]:
        raise InputError(f"{folder.config} was changed after the run began: start a new run with it instead")


def _again(folder: RunFolder, config: Mapping[str, Any], records: str, key: int | None, team: ProcessGroup) -> Study:
    """The study as it began."""
    settings = resolve(config)
    if settings.schema and folder.schema.is_file():  # another machine may see the table's own schema only
        settings = replace(settings, schema=str(folder.schema))
    study = prepare(settings, team, key)
    if fingerprint(study.dataset) != records:
        raise InputError(f"the records of {settings.data} are not those the run began with: start a new run")
    return study


@contextmanager
def _released(reservation: Reservation | None) -> Iterator[Reservation | None]:
    """Let a reservation go when the work under it ends."""
    try:
        yield reservation
    finally:
        if reservation:
            reservation.release()


def _reservation(folder: RunFolder, team: ProcessGroup) -> Reservation | None:
    """The reservation a run goes on under, held."""
    ledger = resolve(folder.read_config()).ledger if team.leads else ""
    return Reservation(BudgetLedger.open(Path(ledger)), folder.read_start()["reservation"]) if ledger else None


def _work(
    study: Study,
    folder: RunFolder,
    watch: Callable[[Progress], None],
    stop: Callable[[], bool],
    team: ProcessGroup,
    reservation: Reservation | None,
) -> Run:
    with ExitStack() as held:
        team.told(lambda: _start(folder, held, reservation))
        try:
            train(study, folder, watch, stop, team)
            team.told(lambda: _close(study, folder))
        except Interrupted:
            if team.leads and study.settings.mode == "certified":
                sign(folder)
                folder.hide_times()
            raise
        except PrivacyViolation:
            if reservation:
                settle_violated(study.settings.ledger, folder)
            raise
    return Run(folder)


def _start(folder: RunFolder, held: ExitStack, reservation: Reservation | None) -> None:
    """Have the folder for oneself; that noise is about to be drawn is in the ledger over studies before it is."""
    held.enter_context(folder.locked())
    if reservation:
        reservation.start(folder.path.resolve())


def _close(study: Study, folder: RunFolder) -> None:
    """The model, the books and the page for people."""
    finish(study, folder)
    _settle(study.settings, folder)
    write_report(folder)
    if study.settings.mode == "certified":
        folder.hide_times()


def _settle(settings: Settings, folder: RunFolder) -> None:
    """Sign the ledger, and say in the one over studies what it adds up to; done again, it changes nothing."""
    if settings.mode == "certified":
        sign(folder)
    settle(settings.ledger, folder)


def _check_free(settings: Settings) -> None:
    """Refuse a folder that is there already."""
    if settings.out and Path(settings.out).exists():
        raise taken(Path(settings.out))


def _place(settings: Settings) -> Path:
    if settings.out:
        return Path(settings.out)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return _free(Path("runs") / f"{stamp}-{re.sub(r'[^A-Za-z0-9._-]+', '_', settings.called)}")


def _free(path: Path) -> Path:
    """The path, or with a number behind it where two runs begin in the same second."""
    candidates = (path if i == 1 else path.with_name(f"{path.name}-{i}") for i in range(1, 1000))
    return next(candidate for candidate in candidates if not candidate.exists())
