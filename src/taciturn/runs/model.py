"""Trained models: prediction and evaluation on other records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from taciturn.data import SOURCES, encode, load_unmapped, read_schema, read_table, source_for
from taciturn.data.dataset_source import pixel_names
from taciturn.data.feature_mapping import mapped_names, mapped_rows, schema_shape
from taciturn.data.feature_maps import NONE, InputShape
from taciturn.data.table_cells import Table
from taciturn.errors import InputError, shown
from taciturn.objectives import LOSSES, Loss
from taciturn.objectives.passes import scores
from taciturn.runs.folder import RunFolder
from taciturn.runs.quality import Parties, Quality, measure_quality
from taciturn.settings import Settings, resolve
from taciturn.types import Array, Classes, Range, Shard, Target


@dataclass(frozen=True, eq=False)
class Model:
    """The parameters of one run, with the names of its features and classes."""

    w: Array  # [J, K]
    features: tuple[str, ...]
    target: Target
    settings: Settings
    schema: Path | None  # None: the run was not on a table
    label: str  # name of the run

    @property
    def loss(self) -> Loss:
        """The loss with which it was trained."""
        return LOSSES[self.settings.loss]()

    @property
    def image(self) -> tuple[int, int] | None:
        """Rows and columns of an image; None if its records are not images."""
        return SOURCES[self.settings.data].image if self.settings.data in SOURCES else None

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns before the feature map, without the intercept: encoded columns, or pixels."""
        own = self.settings
        if own.features == NONE:
            return self.features[: len(self.features) - own.intercept]
        if self.schema is not None:
            return read_schema(self.schema).features
        if self.image is None:
            raise InputError(
                f"the columns of {own.data} before the feature map {own.features} are not known; evaluate the model "
                "on a data set"
            )
        return pixel_names(self.image)

    def mapped(self, x: Array) -> Array:
        """Apply the feature map to encoded records x [n, columns], which include the intercept."""
        return mapped_rows(x, self.settings.features, self.shape, self.settings.intercept)

    @property
    def shape(self) -> InputShape:
        """What is public about the features before the map."""
        if self.schema is not None:
            return schema_shape(read_schema(self.schema))
        return InputShape(len(self.columns), self.image)

    def scores(self, x: Array) -> Array:
        """Return the scores [n, K] of mapped records x [n, J]."""
        return scores(self.w[:, None, :], x)[:, 0]


def read_model(folder: RunFolder, run: int = 0) -> Model:
    """Return the model of one run of a folder.

    Parameters
    ----------
    folder
        A finished study.
    run
        Index of the run.

    Raises
    ------
    InputError
        If the study has not ended, or there is no such run.
    CorruptFile
        If a file of the folder is damaged.
    """
    stored = folder.read_model()
    w = stored["w"] if stored["w"].ndim == 3 else stored["w"][None]
    if not isinstance(run, int | np.integer) or not 0 <= run < len(w):
        raise InputError(
            f"there is no run {shown(run)} in {folder.path}: its runs are 0 to {len(w) - 1} (taciturn show)"
        )
    target = (
        Classes(tuple(map(str, stored["classes"])))
        if stored["classes"].size
        else Range(*map(float, stored["label_range"]))
    )
    settings = resolve(folder.read_config())
    label = f"{stored['algorithm'][run]}, epsilon {stored['epsilon'][run]:g}"
    label += f", seed {stored['seed'][run]}" if "seed" in stored else ""
    schema = folder.stored_schema() if settings.schema else None
    return Model(w[run], tuple(map(str, stored["feature_names"])), target, settings, schema, label)


class Predictions(NamedTuple):
    """What a model predicts for each record of a table."""

    values: Sequence[Any]  # [n] names of classes, or numbers
    probabilities: Array | None  # [n, K]; None where the loss has none


def predictions(model: Model, table: Table) -> Predictions:
    """Return the prediction for each record of a table.

    Raises
    ------
    InputError
        If the table lacks a column, or has values outside the range on which the model was trained.
    """
    found = model.scores(_features(model, table))
    if isinstance(model.target, Range):
        return Predictions(model.target.predicted(found[:, 0]).tolist(), None)
    names = model.target.names
    return Predictions([names[k] for k in found.argmax(axis=1)], model.loss.probabilities(found))


def predict(model: Model, path: Path, keep: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the prediction for each record of a table in a file.

    Parameters
    ----------
    model
        The model.
    path
        The table.
    keep
        Columns of the table to copy into each row.

    Yields
    ------
    dict
        The kept columns, "prediction" and, where the loss has them, "probability_<class>" for each class.

    Raises
    ------
    InputError
        As `predictions`.
    """
    table = read_table(path)
    kept = {name: table.texts(name) for name in keep}
    found = predictions(model, table)
    for i, value in enumerate(found.values):
        row: dict[str, Any] = {name: values[i] for name, values in kept.items()}
        row["prediction"] = _digits(value) if isinstance(value, float) else value
        if found.probabilities is not None and isinstance(model.target, Classes):
            chances = zip(model.target.names, found.probabilities[i], strict=True)
            row |= {f"probability_{name}": _digits(chance) for name, chance in chances}
        yield row


def _digits(value: float) -> float:
    """Round to six significant digits."""
    return float(f"{value:.6g}")


class LabelledRecords(NamedTuple):
    """Mapped records on which a model can be evaluated."""

    shard: Shard
    parties: Parties | None = None  # None: nothing says which party's they are


def evaluate(
    model: Model, data: str | Table | LabelledRecords, threshold: float | None = None, positive: str | int | None = None
) -> Quality:
    """Return the quality of the model on labelled records.

    Parameters
    ----------
    model
        The model.
    data
        A table with labels or its path, the name of a data set, whose test records are used, or the records themselves.
        Where the table names its parties, in the schema's agent column or by a file each, each is measured too.
    threshold, positive
        As in `measure_quality`.

    Raises
    ------
    InputError
        If the records do not fit the model or have no labels, or the model cannot have that threshold.
    """
    if not isinstance(data, LabelledRecords):
        known = isinstance(data, str) and data in SOURCES
        data = LabelledRecords(_test_records(model, str(data))) if known else _table(model, data)
    shard, parties = data
    if not len(shard.x):
        raise InputError("there are no records to evaluate the model on: give at least one row with a label")
    found = np.concatenate([model.scores(block.x) for block in shard.blocks()])
    return measure_quality(
        found, shard.y, model.target, model.loss, parties=parties, threshold=threshold, positive=positive
    )


def _features(model: Model, table: Table) -> Array:
    if model.schema is not None:
        return _encode(model, table, with_label=False)[0]
    x = np.column_stack([table.numbers(name) for name in model.columns]).astype(model.w.dtype)
    if not ((x >= 0.0) & (x <= 1.0)).all():
        raise InputError("the table has values that are missing or outside [0, 1], the range the model was trained on")
    x = np.column_stack([x, np.ones(len(x), x.dtype)]) if model.settings.intercept else x
    return model.mapped(x)


def _encode(model: Model, table: Table, with_label: bool) -> tuple[Array, Array | None]:
    if model.schema is None:
        raise InputError("this model was not trained on a table: evaluate it on a data set")
    schema, own = read_schema(model.schema), model.settings
    x, y = encode(table, schema, own.intercept, own.precision, with_label)
    return model.mapped(x), y


def _table(model: Model, table: str | Table) -> LabelledRecords:
    if isinstance(table, str):
        source_for(table)  # raises for a name that is neither a data set nor a table
        table = read_table(table)
    x, y = _encode(model, table, with_label=True)
    if y is None:
        raise InputError("the table has no labels")
    agent = read_schema(model.schema).agent if model.schema else None
    return LabelledRecords(Shard(x, y), _parties(table, agent))


def _parties(table: Table, agent: str | None) -> Parties | None:
    """Return the rows of each party, by the agent column or by file; None if the table names none."""
    if agent is not None and agent in table.columns:
        names, codes = table.column(agent).factorized
        return {name: np.flatnonzero(codes == k) for k, name in enumerate(names) if name is not None}
    if not table.folder:
        return None
    owners = np.repeat([part.agent for part in table.parts], [part.rows for part in table.parts])
    return {name: np.flatnonzero(owners == name) for name in dict.fromkeys(part.agent for part in table.parts)}


def _test_records(model: Model, data: str) -> Shard:
    """Return the test records of the run's own data set, with the same split, or those of another data set."""
    own = model.settings
    names = ("data_dir", "intercept", "features", "precision")
    chosen = {"data": data} | {name: getattr(own, name) for name in names}
    dataset = load_unmapped((own if data == own.data else resolve(chosen)).data_options())
    columns, image = dataset.features[: len(dataset.features) - own.intercept], SOURCES[data].image
    features = mapped_names(own.features, columns, InputShape(len(columns), image), own.intercept)
    fits = (features, dataset.target, image) == (model.features, model.target, model.image)
    if not fits or dataset.test is None:
        width, name = len(model.features), Path(own.data).name
        raise InputError(f"{data} does not fit this model, which has {width} features and was trained on {name}")
    return dataset.test.with_features(model.mapped(dataset.test.x))
