"""The Python interface: train, plan and inspect studies with the settings of the command line.

>>> import taciturn
>>> run = taciturn.run(data="mnist14", features="none", rounds=2, out="runs/first")
>>> round(run.summary.privacy.total_epsilon, 3)
1.0
"""

from __future__ import annotations

import logging
import os
import re
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, Unpack

from rich.console import Console

from taciturn.data import fingerprint
from taciturn.data.frames import Frames
from taciturn.errors import InputError, Interrupted, PrivacyViolation, kind_of, missing_file
from taciturn.planning.dry_run import DryRunReport, dry_run_report
from taciturn.planning.plan import drawn_key
from taciturn.planning.study import Study
from taciturn.planning.tradeoffs import PlanReport, plan_report
from taciturn.privacy.budget import BudgetLedger
from taciturn.progress import REPORT, report_progress
from taciturn.reporting.report import write_report
from taciturn.result import Run
from taciturn.runs.folder import RunFolder, existing_folder
from taciturn.settings import Settings, resolve, resolve_given
from taciturn.settings.frame_names import frames_again, frames_named
from taciturn.settings.keywords import SettingKeywords
from taciturn.settings.resolve import plugin_digests
from taciturn.training.finish import finish, settle, settle_violated, sign
from taciturn.training.loop import TrainingProgress, train
from taciturn.training.process_group import ProcessGroup
from taciturn.training.recorder import check_not_violated
from taciturn.training.setup import (
    Reservation,
    ResumeState,
    check_config,
    initial_files,
    rebuild,
    reserve_study,
    select_own_agents,
)
from taciturn.training.torch_backend import check_device
from taciturn.training.torch_process_group import current_process_group
from taciturn.training_display import OwnersNotes, TrainingDisplay

Watch: TypeAlias = Callable[[TrainingProgress], None]
"""Called after every round of a study."""
logger = logging.getLogger(__name__)
owners_logger = logging.getLogger("taciturn.records")  # what depends on the records, only for the person who runs this
if not owners_logger.handlers:  # the command line has its own
    owners_logger.addHandler(OwnersNotes())


def run(
    config: str | Path | None = None,
    *,
    watch: Watch | None = None,
    stop: Callable[[], bool] = lambda: False,
    started: Callable[[RunFolder], None] = lambda folder: None,
    progress: bool | None = None,
    **settings: Unpack[SettingKeywords],
) -> Run:
    """Train a study and write its run folder.

    Under torchrun every process makes the same call and works on some of the agents; process 0 writes the folder.

    Parameters
    ----------
    config : str or Path, optional
        A TOML file with settings.
    watch : callable, optional
        Called with a `TrainingProgress` after every round.
    stop : callable, optional
        Called after every round; if it returns True, training stops at the next point from which it can be resumed.
    started : callable, optional
        Called with the `RunFolder` before the first round.
    progress : bool, optional
        Whether to show progress on stderr; by default on a terminal and in a notebook, unless there is a `watch`.
    **settings
        Settings by name, with underscores; they override those of the file. `taciturn config init` lists them. `data`
        and `test` may also be data frames of pandas or polars: one, or a list or dict of frames, one for each party.
        `schema` may also be a `Schema`, or one that `Schema.from_frame` began. A frame is never written to disk.

    Returns
    -------
    Run
        The finished study.

    Raises
    ------
    InputError
        If a setting or input file is wrong, or the folder exists.
    BudgetExhausted
        If the study does not fit into the budget ledger.
    TrainingDiverged
        If the numbers of a run are no longer finite.
    Interrupted
        If `stop` returned True; continue with `resume`.
    PrivacyViolation
        If an algorithm released something that its plan does not cover.

    Examples
    --------
    >>> import taciturn
    >>> run = taciturn.run(data="mnist14", features="none", rounds=2, total_epsilon=1.0)
    >>> run.test_error < 0.5
    True
    """
    with current_process_group() as group, frames_named(settings, lambda: _schema_of(config)) as named:
        resolved = group.run_on_all(lambda: _resolved(config, named))
        group.broadcast(lambda: _check_unused(resolved))  # before anything is reserved
        with _display(watch, progress, group) as shown:
            with ExitStack() as held:
                key = group.broadcast(lambda: drawn_key(resolved))
                study, reservation = group.run_on_all(lambda: held.enter_context(reserve_study(resolved, group, key)))
                group.require_equal("the records", lambda: fingerprint(study.dataset))
                name = reservation.name if reservation else ""
                folder = group.broadcast(lambda: initial_files(study, name).create(_output_path(study.settings)))
            logger.info("created %s", folder.path)
            with _released(reservation):
                started(folder)
                for remark in study.dataset.remarks if group.is_main else ():
                    owners_logger.warning("%s", remark)
                study = select_own_agents(study, group)
                finished = _train_and_close(study, folder, shown, stop, group, reservation)
    return replace(finished, frames=_frames_in(settings.get("data"), settings.get("test")))


def plan(config: str | Path | None = None, **settings: Unpack[SettingKeywords]) -> PlanReport:
    """Return what a certified run with these settings would spend, and on what. Nothing is spent.

    Only public facts are used: no record is read.

    Parameters
    ----------
    config, **settings
        As in `run`.

    Returns
    -------
    PlanReport
        The plan of one algorithm and budget, with alternatives.

    Raises
    ------
    InputError
        If a setting is wrong, or the mode is not `certified`.

    Examples
    --------
    >>> import taciturn
    >>> report = taciturn.plan(data="mnist14", features="none", total_epsilon=1.0)
    >>> report.proposal.rounds
    300
    """
    with frames_named(settings, lambda: _schema_of(config)) as named:
        resolved = _resolved(config, named)
        if resolved.mode != "certified":
            raise InputError(f"mode {resolved.mode} has no total budget to plan; use --mode certified")
        return plan_report(resolved)


def dry_run(config: str | Path | None = None, **settings: Unpack[SettingKeywords]) -> DryRunReport:
    """Return what `run` would do and spend. Nothing is written, and nothing is spent.

    In certified mode no private record is read: everything follows from public facts.

    Parameters
    ----------
    config, **settings
        As in `run`.

    Returns
    -------
    DryRunReport
        What `taciturn run --dry-run --json` prints. It is read by attribute or by key.

    Raises
    ------
    InputError, BudgetExhausted
        As `run` would.

    Examples
    --------
    >>> import taciturn
    >>> forecast = taciturn.dry_run(data="mnist14", features="none", rounds=20, total_epsilon=1.0)
    >>> round(forecast["runs"][0]["spends"], 3)
    1.0
    """
    with frames_named(settings, lambda: _schema_of(config)) as named:
        resolved = _resolved(config, named)
        _check_unused(resolved)
        if resolved.backend == "torch":
            check_device(resolved.device)
        return dry_run_report(resolved, str(_output_path(resolved)))


def resume(
    path: str | Path,
    *,
    data: Frames | None = None,
    test: Frames | None = None,
    watch: Watch | None = None,
    stop: Callable[[], bool] = lambda: False,
    started: Callable[[RunFolder], None] = lambda folder: None,
    progress: bool | None = None,
) -> Run:
    """Continue an interrupted run, with any number of processes.

    Parameters
    ----------
    path : str or Path
        The run folder. A finished run is returned unchanged; its report is written if it is missing.
    data, test : DataFrame, optional
        The same data frames again, if the run began with data frames, which are in no file.
    watch, stop, started, progress
        As in `run`.

    Returns
    -------
    Run
        The finished run.

    Raises
    ------
    InputError
        If the folder, its settings or the records were changed, or the run was started on another machine.
    LedgerTampered
        If the ledger does not verify.
    PrivacyViolation
        If the run was stopped by a privacy violation.

    Examples
    --------
    >>> import taciturn
    >>> taciturn.resume("runs/first").summary.runs[0].rounds  # this run has ended, so it is returned unchanged
    2
    """
    with current_process_group() as group:
        folder = group.broadcast(lambda: RunFolder.open(Path(path)))
        started(folder)
        begun = group.broadcast(lambda: _begun(folder))
        if begun is None:
            return Run(folder, _frames_in(data, test))
        logger.info("resuming %s", folder.path)
        with (
            frames_again(folder.read_config(), folder.schema, data=data, test=test),
            _display(watch, progress, group) as shown,
            _released(group.run_on_all(lambda: _reservation(begun, group))) as reservation,
        ):
            study = group.run_on_all(lambda: rebuild(folder, begun, group))
            study = select_own_agents(study, group)
            finished = _train_and_close(study, folder, shown, stop, group, reservation)
    return replace(finished, frames=_frames_in(data, test))


def open_run(path: str | Path) -> Run:
    """Return a run from its folder.

    Parameters
    ----------
    path : str or Path
        The run folder.

    Returns
    -------
    Run
        The run; its files are read on demand.

    Raises
    ------
    InputError
        If there is no run folder at `path`. A run that has not ended raises when its summary is read.

    Examples
    --------
    >>> import taciturn
    >>> taciturn.open_run("runs/first").summary.mode
    'certified'
    """
    return Run(RunFolder.open(Path(path)))


def read_config(path: str | Path) -> Mapping[str, object]:
    """Return the settings of a TOML file, not yet checked.

    Raises
    ------
    InputError
        If the file does not exist, is not TOML, or is the schema of a table.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"config is {kind_of(path)}: it must be the path of a file with settings; data is a keyword")
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise missing_file(
            "config file", Path(path), "'taciturn config init' writes one; --data names a data set"
        ) from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder; give a config file, or resume a run with 'taciturn resume'") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a TOML file: {error}") from error
    if {"label", "columns"} <= found.keys():
        raise InputError(f"{path} is the schema of a table; give it with --schema, and the table with --data")
    return found


def _frames_in(data: str | Path | Frames | None, test: str | Path | Frames | None) -> dict[str, Frames]:
    """Return the data frames among the settings, which a run keeps in memory so that it can be evaluated."""
    given = {"data": data, "test": test}
    return {name: value for name, value in given.items() if not isinstance(value, str | os.PathLike | None)}


@contextmanager
def _display(watch: Watch | None, progress: bool | None, group: ProcessGroup) -> Iterator[Watch]:
    """Yield what is called after every round: `watch`, and a display on stderr if there is to be one."""
    console = Console(stderr=True)
    by_default = watch is None and (console.is_terminal or console.is_jupyter)
    if not (by_default if progress is None else progress) or not group.is_main:
        yield watch or (lambda progress: None)
        return
    with TrainingDisplay(console) as display:

        def both(progress: TrainingProgress) -> None:
            display(progress)
            if watch is not None:
                watch(progress)

        yield both


def _schema_of(config: str | Path | None) -> str:
    """Return the schema that a config file names, or an empty string."""
    return "" if config is None else str(read_config(config).get("schema", ""))


def _resolved(config: str | Path | None, settings: Mapping[str, object]) -> Settings:
    resolved = resolve_given({} if config is None else read_config(config), settings)
    logger.debug("settings: mode %s, data %s, algorithms %s", resolved.mode, resolved.display_name, resolved.algorithm)
    return resolved


def _begun(folder: RunFolder) -> ResumeState | None:
    """Return everything that is needed to continue an interrupted run, after all checks; None if it has ended."""
    if folder.finished and folder.model.is_file():
        if not folder.report.is_file():
            if folder.on_home_machine:  # a crash may have come before the reservation was settled
                _settle(resolve(folder.read_config()), folder)
            write_report(folder)
        return None
    start, settings = folder.read_start(), resolve(folder.read_config())
    if folder.on_home_machine:  # a crash may have come before the violation reached the budget ledger
        settle_violated(settings.ledger, folder)
    ledger = folder.read_ledger()
    check_not_violated(folder, ledger)
    check_config(folder, start)
    if settings.ledger:
        BudgetLedger.open(Path(settings.ledger)).check_open(start.reservation or "")
    folder.check_home_machine()
    if settings.plugins and plugin_digests(settings.plugins) != ledger.study.plugins:
        raise InputError(f"{', '.join(settings.plugins)} changed after the run began: start a new run")
    if settings.schema:
        folder.stored_schema()
    if start.records is None:
        raise InputError(f"{folder.local} is missing: a run can be continued only with its local-only folder")
    return ResumeState(folder.read_config(), start.records, folder.read_key(), start.reservation or "")


@contextmanager
def _released(reservation: Reservation | None) -> Iterator[Reservation | None]:
    """Release a reservation when the work under it ends."""
    try:
        yield reservation
    finally:
        if reservation:
            reservation.release()


def _reservation(begun: ResumeState, group: ProcessGroup) -> Reservation | None:
    """Return the held reservation of an interrupted run, in process 0."""
    ledger = resolve(begun.config).ledger if group.is_main else ""
    return Reservation(BudgetLedger.open(Path(ledger)), begun.reservation) if ledger else None


def _train_and_close(
    study: Study,
    folder: RunFolder,
    watch: Watch,
    stop: Callable[[], bool],
    group: ProcessGroup,
    reservation: Reservation | None,
) -> Run:
    with ExitStack() as held:
        group.broadcast(lambda: _start(folder, held, reservation))
        try:
            train(study, folder, watch, stop, group)
            group.broadcast(lambda: _close(study, folder))
        except Interrupted:
            logger.info("interrupted: %s can be resumed", folder.path)
            if group.is_main and study.settings.mode == "certified":
                sign(folder)
                folder.reset_file_times()
            raise
        except PrivacyViolation:
            logger.error("stopped by a privacy violation: %s", folder.path)
            if reservation:
                settle_violated(study.settings.ledger, folder)
            raise
    logger.info("finished %s", folder.path)
    for warning in study.dataset.warnings if group.is_main else ():
        owners_logger.warning("%s", warning)
    return Run(folder)


def _start(folder: RunFolder, held: ExitStack, reservation: Reservation | None) -> None:
    """Lock the folder, and note in the budget ledger that noise is about to be drawn."""
    held.enter_context(folder.locked())
    if reservation:
        reservation.start(folder.path.resolve())


def _close(study: Study, folder: RunFolder) -> None:
    """Write the model, settle the budget, and write the report."""
    report_progress(REPORT, 0, 1)
    finish(study, folder)
    _settle(study.settings, folder)
    write_report(folder)
    if study.settings.mode == "certified":
        folder.reset_file_times()


def _settle(settings: Settings, folder: RunFolder) -> None:
    """Sign the ledger, and settle the reservation in the budget ledger; a second call changes nothing."""
    if settings.mode == "certified":
        sign(folder)
    settle(settings.ledger, folder)


def _check_unused(settings: Settings) -> None:
    if settings.out and Path(settings.out).exists():
        raise existing_folder(Path(settings.out))


def _output_path(settings: Settings) -> Path:
    """Return --out, or a new path in runs/ from the time and the data."""
    if settings.out:
        return Path(settings.out)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = Path("runs") / f"{stamp}-{re.sub(r'[^A-Za-z0-9._-]+', '_', settings.display_name)}"
    candidates = (path if i == 1 else path.with_name(f"{path.name}-{i}") for i in range(1, 1000))
    return next(candidate for candidate in candidates if not candidate.exists())
