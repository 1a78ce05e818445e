"""A trained model at work: predicting and being assessed on other records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data import encode, is_table_path, load, read_schema, read_table
from tacit.errors import InputError
from tacit.problems import LOSSES, Loss
from tacit.problems.problem import scores
from tacit.problems.quality import assess
from tacit.results.folder import RunFolder
from tacit.settings import Settings, resolve
from tacit.types import Array, Classes, Range, Target


@dataclass(frozen=True, eq=False)
class Model:
    """One run's parameters with what they mean."""

    w: Array  # [J, K]
    features: tuple[str, ...]
    target: Target
    settings: Settings
    schema: Path  # exists for a run on a table

    @property
    def loss(self) -> Loss:
        """The loss it was trained with."""
        return LOSSES[self.settings.loss]()

    def scores(self, x: Array) -> Array:
        """x [n, J] -> [n, K]."""
        return scores(self.w[:, None, :], x)[:, 0]


def read_model(folder: RunFolder, run: int = 0) -> Model:
    """The model of one run of a folder, by its index."""
    stored = folder.read_model()
    w = stored["w"] if stored["w"].ndim == 3 else stored["w"][None]
    if not 0 <= run < len(w):
        raise InputError(f"there is no run {run} in {folder.path}: its runs are 0 to {len(w) - 1} (tacit show)")
    target = (
        Classes(tuple(map(str, stored["classes"])))
        if stored["classes"].size
        else Range(*map(float, stored["label_range"]))
    )
    return Model(w[run], tuple(map(str, stored["feature_names"])), target, resolve(folder.read_config()), folder.schema)


def predict(model: Model, table: Path) -> Iterator[dict[str, Any]]:
    """One row for each record: the predicted class with its probabilities, or the predicted value."""
    found = model.scores(_features(model, table))
    if isinstance(model.target, Range):
        width = model.target.high - model.target.low
        yield from ({"prediction": model.target.low + width * float(value)} for value in found[:, 0])
        return
    names, chances = model.target.names, model.loss.probabilities(found)
    for i, best in enumerate(found.argmax(axis=1)):
        row: dict[str, Any] = {"prediction": names[best]}
        if chances is not None:
            row |= {f"probability_{name}": float(chances[i, k]) for k, name in enumerate(names)}
        yield row


def evaluate(model: Model, data: str) -> dict[str, Any]:
    """How good the model is on a labelled table, or on the test records of a data set."""
    x, y = _table(model, data) if is_table_path(data) else _test_records(model, data)
    return assess(model.scores(x), y, model.target, model.loss)


def _features(model: Model, path: Path) -> Array:
    if model.schema.is_file():
        x, _ = encode(
            read_table(path), read_schema(model.schema), model.settings.intercept, model.settings.precision, False
        )
        return x
    table = read_table(path)
    names = model.features[:-1] if model.settings.intercept else model.features
    x = np.column_stack([table.numbers(name) for name in names]).astype(model.w.dtype)
    if not np.isfinite(x).all():
        raise InputError(f"{path} has missing or infinite values: this model takes none")
    return np.column_stack([x, np.ones(len(x), x.dtype)]) if model.settings.intercept else x


def _table(model: Model, data: str) -> tuple[Array, Array]:
    if not model.schema.is_file():
        raise InputError(f"this model was not trained on a table: evaluate it on a data set, not on {data}")
    x, y = encode(read_table(data), read_schema(model.schema), model.settings.intercept, model.settings.precision, True)
    if y is None:
        raise InputError(f"{data} has no labels")
    return x, y


def _test_records(model: Model, data: str) -> tuple[Array, Array]:
    settings = model.settings
    chosen = {
        "data": data,
        "data_dir": settings.data_dir,
        "intercept": settings.intercept,
        "precision": settings.precision,
    }
    dataset = load(resolve(chosen).data_options())
    if dataset.features != model.features or dataset.target != model.target or dataset.test is None:
        raise InputError(
            f"{data} does not fit: the model has {len(model.features)} features and the label of {settings.data}"
        )
    return dataset.test.x, dataset.test.y
