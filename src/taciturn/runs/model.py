"""Trained models: prediction and evaluation on other records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.data import SOURCES, encode, load_unmapped, read_schema, read_table, source_for
from taciturn.data.dataset_source import pixel_names
from taciturn.data.feature_mapping import mapped_names, mapped_rows
from taciturn.data.feature_maps import NONE
from taciturn.data.table_cells import Table
from taciturn.errors import InputError
from taciturn.objectives import LOSSES, Loss
from taciturn.objectives.metrics import quality_metrics
from taciturn.objectives.passes import scores
from taciturn.runs.folder import RunFolder
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
        return mapped_rows(x, self.settings.features, self.image, self.settings.intercept)

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
    if not 0 <= run < len(w):
        raise InputError(f"there is no run {run} in {folder.path}: its runs are 0 to {len(w) - 1} (taciturn show)")
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


def predict(model: Model, path: Path, keep: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the prediction for each record of a table.

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
        If the table lacks a column, or has values outside the range on which the model was trained.
    """
    table = read_table(path)
    kept = {name: table.texts(name) for name in keep}
    found = model.scores(_features(model, table))
    chances = model.loss.probabilities(found)
    for i, scores_of in enumerate(found):
        row: dict[str, Any] = {name: values[i] for name, values in kept.items()}
        if isinstance(model.target, Range):
            yield row | {"prediction": _digits(model.target.low + _width(model.target) * float(scores_of[0]))}
            continue
        row["prediction"] = model.target.names[scores_of.argmax()]
        if chances is not None:
            row |= {f"probability_{name}": _digits(chances[i, k]) for k, name in enumerate(model.target.names)}
        yield row


def _width(target: Range) -> float:
    return target.high - target.low


def _digits(value: float) -> float:
    """Round to six significant digits."""
    return float(f"{value:.6g}")


def evaluate(model: Model, data: str) -> dict[str, Any]:
    """Return the quality of the model on labelled records.

    Parameters
    ----------
    model
        The model.
    data
        Path of a table with labels, or the name of a data set, whose test records are used.

    Raises
    ------
    InputError
        If the records do not fit the model, or have no labels.
    """
    test = _test_records(model, data) if data in SOURCES else _table(model, data)
    found = np.concatenate([model.scores(block.x) for block in test.blocks()])
    return quality_metrics(found, test.y, model.target, model.loss)


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


def _table(model: Model, data: str) -> Shard:
    source_for(data)  # raises for a name that is neither a data set nor a table
    x, y = _encode(model, read_table(data), with_label=True)
    if y is None:
        raise InputError(f"{data} has no labels")
    return Shard(x, y)


def _test_records(model: Model, data: str) -> Shard:
    """Return the test records of the run's own data set, with the same split, or those of another data set."""
    own = model.settings
    names = ("data_dir", "intercept", "features", "precision")
    chosen = {"data": data} | {name: getattr(own, name) for name in names}
    dataset = load_unmapped((own if data == own.data else resolve(chosen)).data_options())
    columns, image = dataset.features[: len(dataset.features) - own.intercept], SOURCES[data].image
    features = mapped_names(own.features, columns, image, own.intercept)
    fits = (features, dataset.target, image) == (model.features, model.target, model.image)
    if not fits or dataset.test is None:
        width, name = len(model.features), Path(own.data).name
        raise InputError(f"{data} does not fit this model, which has {width} features and was trained on {name}")
    return Shard(model.mapped(dataset.test.x), dataset.test.y)
