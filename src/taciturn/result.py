"""A run as Python sees it: its results, its model applied to other records, and its pictures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from taciturn.data import read_schema, source_for
from taciturn.data.feature_maps.feature_map import keeps_positions
from taciturn.data.frames import PREDICTION, TESTING, Frames, column_kinds, is_frame, needed_columns, read_frame
from taciturn.data.memory_names import is_in_memory
from taciturn.data.table_cells import Table
from taciturn.data.table_io import read_table
from taciturn.errors import InputError, kind_of, unknown_name
from taciturn.reporting.curves import full_label
from taciturn.reporting.report import write_report
from taciturn.runs.effects import read_effects
from taciturn.runs.folder import RunFolder
from taciturn.runs.ledger import RunLedger
from taciturn.runs.model import LabelledRecords, Model, Predictions, evaluate, predictions, read_model
from taciturn.runs.quality import Quality
from taciturn.runs.records import RunResult, RunSummary
from taciturn.settings.frame_names import frames_again
from taciturn.training.loop import TrainingProgress
from taciturn.training.setup import rebuild_study
from taciturn.training.upload_replay import ReplayedUploads, replay_uploads
from taciturn.types import Array, Classes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = ("curves", "sent", "effects")


@dataclass(frozen=True)
class Run:
    """A finished study, read from its run folder.

    Attributes
    ----------
    folder : RunFolder
        The folder and its files.
    frames : mapping
        The data frames from which the run was trained in this process, by the names of their settings, `data` and
        `test`. They are in memory only: a run that is opened again has none.

    Examples
    --------
    >>> import taciturn
    >>> run = taciturn.run(data="mnist14", features="none", rounds=2, out="runs/second")
    >>> run.summary.data.name, run.w.shape, run.ledger.study.mode
    ('mnist14', (196, 10), 'certified')
    >>> run.evaluate().error < 0.5
    True

    A run on a data frame:

    >>> import pandas
    >>> patients = pandas.DataFrame({"age": range(200), "ill": ["no"] * 100 + ["yes"] * 100})
    >>> schema = taciturn.Schema.from_frame(patients).declare(age=(0, 200), label="ill", ill=["no", "yes"])
    >>> chosen = {"schema": schema, "total_records": 200, "total_epsilon": 8, "test_share": 0.2, "out": "runs/patients"}
    >>> taciturn.run(data=patients, **chosen).evaluate().error < 0.2
    True
    """

    folder: RunFolder
    frames: Mapping[str, Frames] = field(default_factory=dict, repr=False, compare=False)

    def __repr__(self) -> str:
        """Return how to open the run, Run('runs/first')."""
        return f"Run({str(self.path)!r})"

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

    @property
    def ledger(self) -> RunLedger:
        """The study, the plan of every run, and all releases, after the hash chain was verified."""
        return self.folder.read_ledger()

    @cached_property
    def classes(self) -> NDArray[Any]:
        """The classes, in the order of the columns of `predict_proba`, [K]; empty if the label is a number.

        Whole numbers are integers, and false and true are booleans, as in a frame; other names are strings.
        """
        target = read_model(self.folder).target
        return _label_values(target.names) if isinstance(target, Classes) else np.empty(0)

    def predict(self, data: str | Path | Frames, *, run_index: int = 0) -> NDArray[Any]:
        """Predict the label of every record.

        Parameters
        ----------
        data : DataFrame or path
            Records with the columns of the schema; the label is not needed.
        run_index : int
            Which run of the folder, if it has several budgets, algorithms or seeds.

        Returns
        -------
        NDArray, [n]
            Values of `classes`, or numbers.

        Raises
        ------
        InputError
            If a column is missing, or there is no such run.

        Examples
        --------
        >>> import pandas, taciturn
        >>> taciturn.open_run("runs/patients").predict(pandas.DataFrame({"age": [25, 175]}))
        array(['no', 'yes'], dtype='<U3')
        """
        model = read_model(self.folder, run_index)
        target, values = model.target, _predictions(model, data).values
        if not isinstance(target, Classes):
            return np.array(values, dtype=np.float64)
        places = {name: k for k, name in enumerate(target.names)}
        return _label_values(target.names)[[places[name] for name in values]]

    def predict_proba(self, data: str | Path | Frames, *, run_index: int = 0) -> Array:
        """Predict the probability of every class for every record.

        Parameters
        ----------
        data : DataFrame or path
            Records with the columns of the schema; the label is not needed.
        run_index : int
            Which run of the folder, if it has several budgets, algorithms or seeds.

        Returns
        -------
        Array, [n, K]
            Probabilities; the columns are in the order of `classes`.

        Raises
        ------
        InputError
            If the label is a number, or the loss gives no probabilities; otherwise as `predict`.

        Examples
        --------
        >>> import pandas, taciturn
        >>> taciturn.open_run("runs/patients").predict_proba(pandas.DataFrame({"age": [25, 175]})).shape
        (2, 2)
        """
        found = _predictions(read_model(self.folder, run_index), data)
        if found.probabilities is None:
            raise InputError("this model has no probabilities: they need classes, and the loss softmax")
        return found.probabilities

    def evaluate(
        self,
        data: str | Path | Frames | None = None,
        *,
        run_index: int = 0,
        threshold: float | None = None,
        positive: str | int | None = None,
        held_out: bool = False,
    ) -> Quality:
        """Return the quality of the model on labelled records: what `taciturn evaluate --json` prints.

        It is computed from these records without noise: if they are private, it is for their owner only. Each party is
        measured too if the records name it in the schema's agent column, or are a list or dict of frames.

        Parameters
        ----------
        data : DataFrame, path or str, optional
            Records with labels; or the name of a data set, whose test records are used. By default the test records of
            the study: those it held out, or those of its test table.
        run_index : int
            Which run of the folder.
        threshold : float, optional
            Predict the positive class where its probability is at least this, instead of the likelier class.
        positive : str or int, optional
            The positive class of two, as in `classes`; by default the second.
        held_out : bool, default False
            Whether `data` are the data frames on which the run was trained; only the rows that it held out are then
            used. This is for a run that was opened again, because its frames are in no file.

        Returns
        -------
        ClassificationQuality or RegressionQuality
            The measures with 95 % intervals, and those of a baseline. Fields are attributes, and also keys.

        Raises
        ------
        InputError
            If a column is missing, a record has no label that the schema allows, or there are no records; or if the
            model cannot have that threshold or positive class.

        Examples
        --------
        >>> import taciturn
        >>> quality = taciturn.open_run("runs/second").evaluate()
        >>> quality.error < 0.5, quality.baseline.error > 0.8
        (True, True)
        """
        model = read_model(self.folder, run_index)
        found: str | Table | LabelledRecords
        if data is None or held_out:
            found = self._test_records(data)
        else:
            found = os.fspath(data) if isinstance(data, str | os.PathLike) else _read(model, data, TESTING)
        return evaluate(model, found, threshold, positive)

    def _test_records(self, given: Any) -> LabelledRecords:
        """Return the test records of the study, from its frames if it had any: those given, or those still here."""
        config = self.folder.read_config()
        frames = self.frames if given is None else {"data": given}
        missing = [name for name in ("data", "test") if is_in_memory(config[name]) and name not in frames]
        if missing:
            advice = {
                "data": "evaluate(frame, held_out=True) takes the same frame again, for the rows held out",
                "test": "evaluate(frame) takes the test frame",
            }
            raise InputError(f"{self.path} was trained on data frames, which are in no file: {advice[missing[-1]]}")
        with frames_again(config, self.folder.schema, **frames):
            data = rebuild_study(self.folder).dataset
        if data.test is None:
            why = "held out no record" if config["test_share"] else "has no test records"
            advice_of = "" if config["test_share"] else ", or train with --test-share"
            raise InputError(f"{self.path} {why}: give a labelled table{advice_of}")
        return LabelledRecords(data.test, data.test_parties)

    def plot(
        self,
        what: str = "curves",
        *,
        run_index: int = 0,
        agent: str | None = None,
        round: int = 1,  # noqa: A002  as in the metrics
        data: Frames | None = None,
        test: Frames | None = None,
    ) -> Figure:
        """Draw the run; save the figure with its method `savefig`.

        Parameters
        ----------
        what : str
            "curves": test error, objective, residual and noise against rounds. "sent": what an agent sends in one
            round, with and without noise, by repeating the run from its seeds and records. "effects": the effect of
            every column of a table on the model.
        run_index : int
            For "sent" and "effects": which run of the folder.
        agent : str, optional
            For "sent": which agent; the first by default.
        round : int
            For "sent": which round, from 1.
        data, test : DataFrame, optional
            For "sent" of a run on frames that was opened again: the same frames.

        Returns
        -------
        matplotlib.figure.Figure
            The figure. It may show what was computed from private records without noise: "sent" always does, "curves"
            does in a folder that has its local-only part. It is then for the owner of the records only.

        Raises
        ------
        InputError
            If there is no such picture, run, agent or round, the noise cannot be drawn again, or the model is not one
            of a table.

        Examples
        --------
        >>> import taciturn
        >>> taciturn.open_run("runs/second").plot("curves").savefig("curves.png")
        """
        from taciturn.reporting.figures.effects_figure import effects_figure
        from taciturn.reporting.figures.run_figure import figure

        if not isinstance(what, str):
            raise InputError(f"what is {kind_of(what)}: it must be one of {', '.join(PICTURES)}")
        if what not in PICTURES:
            raise unknown_name("picture", what, PICTURES)
        if what == "curves":
            return figure([self.folder])
        if what == "effects":
            return effects_figure(read_effects(self.folder).run(run_index))
        sent = self.sent(run_index=run_index, agent=agent, round=round, data=data, test=test)
        return draw_sent(self.folder, sent)

    def sent(
        self,
        *,
        run_index: int = 0,
        agent: str | None = None,
        round: int = 1,  # noqa: A002  as in the metrics
        data: Frames | None = None,
        test: Frames | None = None,
        watch: Callable[[TrainingProgress], None] = lambda progress: None,
    ) -> ReplayedUploads:
        """Return what an agent sent in a round of a seeded run, with and without the noise, by replaying the run.

        The result is computed from the records without noise: it is for the owner of the records only.

        Parameters
        ----------
        run_index : int
            Which run of the folder.
        agent : str, optional
            Which agent; the first by default.
        round : int
            Which round, from 1.
        data, test : DataFrame, optional
            The same data frames again, if a run on frames was opened again.
        watch : callable, optional
            Called with a `TrainingProgress` after every replayed round.

        Returns
        -------
        ReplayedUploads

        Raises
        ------
        InputError
            If the noise cannot be drawn again, or the run, agent or round does not exist.

        Examples
        --------
        >>> import taciturn
        >>> taciturn.open_run("runs/second").sent(round=2).agent
        'agent-1'
        """
        given = {name: frame for name, frame in (("data", data), ("test", test)) if frame is not None}
        with frames_again(self.folder.read_config(), self.folder.schema, **{**self.frames, **given}):
            return replay_uploads(rebuild_study(self.folder), self.folder, run_index, agent, round, watch)

    def report(self) -> Path:
        """Return the path of the report, a web page, and write it if it is missing.

        Returns
        -------
        Path
            `report.html` in the run folder. It contains nothing that was computed from private records without noise.

        Raises
        ------
        CorruptFile
            If a file of the run is missing or damaged.

        Examples
        --------
        >>> import taciturn
        >>> taciturn.open_run("runs/second").report().name
        'report.html'
        """
        if not self.folder.report.is_file():
            write_report(self.folder)
        return self.folder.report


def _predictions(model: Model, data: Any) -> Predictions:
    from_file = isinstance(data, str | os.PathLike)
    return predictions(model, read_table(Path(data)) if from_file else _read(model, data, PREDICTION))


def _read(model: Model, data: Any, use: str) -> Table:
    """Return frames as a table with the columns that the model needs."""
    if model.schema is None:
        return read_frame("data", data, dict.fromkeys(model.columns))
    schema = read_schema(model.schema)
    needed = dict(needed_columns(schema, use))
    if use == TESTING and schema.agent and all(schema.agent in column_kinds(frame) for frame in _each_frame(data)):
        needed[schema.agent] = None  # so that each party is measured, too
    return read_frame("data", data, needed)


def _each_frame(data: Any) -> list[Any]:
    """Return the frames that an argument holds; none if it holds anything else, which reading it refuses."""
    given = data.values() if isinstance(data, Mapping) else data if isinstance(data, list | tuple) else [data]
    frames = list(given)
    return frames if frames and all(map(is_frame, frames)) else []


def _label_values(names: tuple[str, ...]) -> NDArray[Any]:
    """Return class names as a frame has them: integers, booleans or strings.

    Examples
    --------
    >>> _label_values(("0", "1")).dtype.kind, _label_values(("False", "True")).dtype.kind, _label_values(("no", "yes"))
    ('i', 'b', array(['no', 'yes'], dtype='<U3'))
    """
    if all(name.lower() in ("false", "true") for name in names):
        return np.array([name.lower() == "true" for name in names])
    whole = [int(name) if name.removeprefix("-").isdecimal() and name.isascii() else None for name in names]
    if all(value is not None and str(value) == name for value, name in zip(whole, names, strict=True)):
        return np.array(whole, dtype=np.int64)
    return np.array(names)


def draw_sent(folder: RunFolder, found: ReplayedUploads) -> Figure:
    """Return the figure of what an agent sent, with and without noise: for the owner of the records only."""
    from taciturn.reporting.figures.summary_figures import Weights, sent_figure

    config = folder.read_config()
    image = source_for(config["data"]).image if keeps_positions(config["features"]) else None
    weights = Weights(found.clean, found.noisy, found.model, found.features, found.classes)
    title = f"What {found.agent} sends in round {found.round} of {found.last}"
    return sent_figure(weights, image, title, _caption(found))


def _caption(found: ReplayedUploads) -> str:
    before = "; the rounds before had theirs" if found.round > 1 else ""
    silent = " This run has no noise." if (found.clean == found.noisy).all() else ""
    if found.differs is None:
        check = f"The run has not finished: w is the model of round {found.last}, computed again."
    elif found.differs == 0.0:
        check = f"All {found.last} rounds were computed again, and w is identical to the run's model."
    else:
        limit = f"{found.differs:.1g}"
        check = f"All {found.last} rounds were computed again; w differs from the run's model by at most {limit}."
    return (
        f"Computed without noise: for the owner of the records only. {full_label(found.label)}. Without noise means "
        f"without that of this round{before}.{silent} {check}"
    )
