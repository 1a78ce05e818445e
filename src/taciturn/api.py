"""The Python interface: train, plan and inspect studies with the settings of the command line.

>>> import taciturn
>>> run = taciturn.run(data="mnist14", features="none", rounds=2, out="runs/first")
>>> round(run.summary.privacy.total_epsilon, 3)
1.0
"""

from __future__ import annotations

import logging
import re
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from taciturn.data import fingerprint
from taciturn.errors import InputError, PrivacyViolation, missing_file
from taciturn.planning.dry_run import dry_run_report
from taciturn.planning.plan import drawn_key
from taciturn.planning.study import Study
from taciturn.planning.tradeoffs import PlanReport, plan_report
from taciturn.privacy.budget import BudgetLedger
from taciturn.reporting.report import write_report
from taciturn.runs.folder import RunFolder, existing_folder
from taciturn.runs.records import RunResult, RunSummary, StartRecord
from taciturn.settings import Settings, resolve, resolve_given
from taciturn.settings.resolve import plugin_digests
from taciturn.training.finish import finish, settle, settle_violated, sign
from taciturn.training.loop import Interrupted, Progress, train
from taciturn.training.process_group import SINGLE_PROCESS, ProcessGroup
from taciturn.training.recorder import check_not_violated
from taciturn.training.setup import (
    Reservation,
    initial_files,
    prepare,
    reserve_study,
    select_own_agents,
    sha256,
)
from taciturn.training.torch_backend import check_device
from taciturn.training.torch_process_group import current_process_group
from taciturn.training.upload_replay import ReplayedUploads, replay_uploads
from taciturn.types import Array

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """A finished study, read from its run folder.

    Attributes
    ----------
    folder : RunFolder
        The folder and its files.

    Examples
    --------
    >>> import taciturn
    >>> run = taciturn.open_run("runs/first")
    >>> run.summary.data.name, run.w.shape
    ('mnist14', (196, 10))
    """

    folder: RunFolder

    @property
    def path(self) -> Path:
        """The path of the run folder."""
        return self.folder.path

    @cached_property
    def summary(self) -> RunSummary:
        """The result: what `taciturn run --json` prints.

        Fields are attributes, and also keys: `summary.privacy.total_epsilon` is
        `summary["privacy"]["total_epsilon"]`. `summary.to_json()` returns plain dicts and lists.
        """
        return replace(self.folder.read_summary(), run=str(self.path))

    @property
    def runs(self) -> tuple[RunResult, ...]:
        """The result of each algorithm, epsilon and seed."""
        return self.summary.runs

    @property
    def test_error(self) -> float | None:
        """The test error: the mean over `runs`, or None without a test set."""
        errors = [entry.test_error for entry in self.runs if entry.test_error is not None]
        return sum(errors) / len(errors) if len(errors) == len(self.runs) else None

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
    """Train a study and write its run folder.

    Under torchrun every process makes the same call and works on some of the agents; process 0 writes the folder.

    Parameters
    ----------
    config : str or Path, optional
        A TOML file with settings.
    watch : callable, optional
        Called with a `Progress` after every round.
    stop : callable, optional
        Called after every round; if it returns True, training stops at the next point from which it can be resumed.
    started : callable, optional
        Called with the `RunFolder` before the first round.
    **settings
        Settings by name, with underscores; they override those of the file. `taciturn config init` lists them.

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
    with current_process_group() as group:
        resolved = group.run_on_all(lambda: _resolved(config, settings))
        group.broadcast(lambda: _check_unused(resolved))  # before anything is reserved
        with ExitStack() as held:
            key = group.broadcast(lambda: drawn_key(resolved))
            study, reservation = group.run_on_all(lambda: held.enter_context(reserve_study(resolved, group, key)))
            group.require_equal("the records", lambda: fingerprint(study.dataset))
            name = reservation.name if reservation else ""
            folder = group.broadcast(lambda: initial_files(study, name).create(_output_path(study.settings)))
        logger.info("created %s", folder.path)
        with _released(reservation):
            started(folder)
            study = select_own_agents(study, group)
            return _train_and_close(study, folder, watch, stop, group, reservation)


def plan(config: str | Path | None = None, **settings: Any) -> PlanReport:
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
    resolved = _resolved(config, settings)
    if resolved.mode != "certified":
        raise InputError(f"mode {resolved.mode} has no total budget to plan; use --mode certified")
    return plan_report(resolved)


def dry_run(config: str | Path | None = None, **settings: Any) -> dict[str, Any]:
    """Return what `run` would do and spend. Nothing is written, and nothing is spent.

    In certified mode no private record is read: everything follows from public facts.

    Parameters
    ----------
    config, **settings
        As in `run`.

    Returns
    -------
    dict
        What `taciturn run --dry-run --json` prints.

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
    resolved = _resolved(config, settings)
    _check_unused(resolved)
    if resolved.backend == "torch":
        check_device(resolved.device)
    return {"run": str(_output_path(resolved)), **dry_run_report(resolved).to_json()}


def resume(
    path: str | Path,
    *,
    watch: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    started: Callable[[RunFolder], None] = lambda folder: None,
) -> Run:
    """Continue an interrupted run, with any number of processes.

    Parameters
    ----------
    path : str or Path
        The run folder. A finished run is returned as it is; its report is written where it is missing.
    watch, stop, started
        As in `run`.

    Returns
    -------
    Run
        The finished run.

    Raises
    ------
    InputError
        If the folder, its settings or the records were changed, or it was begun on another machine.
    LedgerTampered
        If the ledger does not verify.
    PrivacyViolation
        If the run was stopped by a privacy violation.

    Examples
    --------
    >>> import taciturn
    >>> taciturn.resume("runs/first").summary.runs[0].rounds  # this run has ended, so it is returned as it is
    2
    """
    with current_process_group() as group:
        folder = group.broadcast(lambda: RunFolder.open(Path(path)))
        started(folder)
        begun = group.broadcast(lambda: _begun(folder))
        if begun is None:
            return Run(folder)
        logger.info("resuming %s", folder.path)
        with _released(group.run_on_all(lambda: _reservation(folder, begun, group))) as reservation:
            study = group.run_on_all(lambda: _rebuilt(folder, begun, group))
            study = select_own_agents(study, group)
            return _train_and_close(study, folder, watch, stop, group, reservation)


def open_run(path: str | Path) -> Run:
    """Return a run from its folder.

    Parameters
    ----------
    path : str or Path
        The run folder.

    Returns
    -------
    Run
        The run; its files are read when they are asked for.

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


def sent(
    path: str | Path,
    *,
    run: int = 0,
    agent: str | None = None,
    round: int = 1,  # noqa: A002  as in the metrics
    watch: Callable[[Progress], None] = lambda progress: None,
) -> ReplayedUploads:
    """Return what an agent sent in a round of a seeded run, with and without the noise, by replaying the run.

    The result is computed from the records without noise: it is for the owner of the records only.

    Parameters
    ----------
    path : str or Path
        The run folder.
    run : int
        Index of the run in the folder.
    agent : str, optional
        Name of the agent; the first by default.
    round : int
        The round, from 1.
    watch : callable, optional
        Called with a `Progress` after every replayed round.

    Raises
    ------
    InputError
        If the noise cannot be drawn again, or the run, agent or round does not exist.
    """
    folder, study = rebuild_study(path)
    return replay_uploads(study, folder, run, agent, round, watch)


def rebuild_study(path: str | Path) -> tuple[RunFolder, Study]:
    """Return a run folder and its study as it began, from the same settings and records.

    Raises
    ------
    InputError
        If the settings or the records were changed, or the records are not on this machine.
    """
    folder = RunFolder.open(Path(path))
    start = folder.read_start()
    if start.records is None:
        raise InputError(
            f"the rounds of {folder.path} cannot be replayed: its records are at the sites of a federation, or its "
            "local-only folder is missing"
        )
    _check_config(folder, start)
    begun = _Begun(folder.read_config(), start.records, folder.read_key(), start.reservation or "")
    return folder, _rebuilt(folder, begun, SINGLE_PROCESS)


def read_config(path: str | Path) -> Mapping[str, Any]:
    """Return the settings of a TOML file, not yet checked.

    Raises
    ------
    InputError
        If the file does not exist, is not TOML, or is the schema of a table.
    """
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise missing_file("config file", Path(path), "'taciturn config init' writes one") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder; give a config file, or resume a run with 'taciturn resume'") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a TOML file: {error}") from error
    if {"label", "columns"} <= found.keys():
        raise InputError(f"{path} is the schema of a table; give it with --schema, and the table with --data")
    return found


def _resolved(config: str | Path | None, settings: Mapping[str, Any]) -> Settings:
    resolved = resolve_given(read_config(config) if config else {}, settings)
    logger.debug("settings: mode %s, data %s, algorithms %s", resolved.mode, resolved.display_name, resolved.algorithm)
    return resolved


class _Begun(NamedTuple):
    """What an interrupted run continues with."""

    config: Mapping[str, Any]
    records: str  # digest
    key: int | None  # of the partition of private records
    reservation: str  # empty: none


def _begun(folder: RunFolder) -> _Begun | None:
    """Return what an interrupted run continues with, after all checks; None if it has ended."""
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
    _check_config(folder, start)
    if settings.ledger:
        BudgetLedger.open(Path(settings.ledger)).check_open(start.reservation or "")
    folder.check_home_machine()
    if settings.plugins and plugin_digests(settings.plugins) != ledger.study.plugins:
        raise InputError(f"{', '.join(settings.plugins)} changed after the run began: start a new run")
    if settings.schema:
        folder.stored_schema()
    if start.records is None:
        raise InputError(f"{folder.local} is missing: a run can be continued only with its local-only folder")
    return _Begun(folder.read_config(), start.records, folder.read_key(), start.reservation or "")


def _check_config(folder: RunFolder, start: StartRecord) -> None:
    if sha256(folder.config.read_text(encoding="utf-8")) != start.config:
        raise InputError(f"{folder.config} was changed after the run began: start a new run with it instead")


def _rebuilt(folder: RunFolder, begun: _Begun, group: ProcessGroup) -> Study:
    """Return the study as it began."""
    settings = resolve(begun.config)
    if settings.schema and folder.schema.is_file():  # another machine may see the table's own schema only
        settings = replace(settings, schema=str(folder.schema))
    study = prepare(settings, group, begun.key)
    if fingerprint(study.dataset) != begun.records:
        raise InputError(f"the records of {settings.data} are not those the run began with: start a new run")
    return study


@contextmanager
def _released(reservation: Reservation | None) -> Iterator[Reservation | None]:
    """Release a reservation when the work under it ends."""
    try:
        yield reservation
    finally:
        if reservation:
            reservation.release()


def _reservation(folder: RunFolder, begun: _Begun, group: ProcessGroup) -> Reservation | None:
    """Return the held reservation of an interrupted run, in process 0."""
    ledger = resolve(begun.config).ledger if group.is_main else ""
    return Reservation(BudgetLedger.open(Path(ledger)), begun.reservation) if ledger else None


def _train_and_close(
    study: Study,
    folder: RunFolder,
    watch: Callable[[Progress], None],
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
    return Run(folder)


def _start(folder: RunFolder, held: ExitStack, reservation: Reservation | None) -> None:
    """Lock the folder, and note in the budget ledger that noise is about to be drawn."""
    held.enter_context(folder.locked())
    if reservation:
        reservation.start(folder.path.resolve())


def _close(study: Study, folder: RunFolder) -> None:
    """Write the model, settle the budget, and write the report."""
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
