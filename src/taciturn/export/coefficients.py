"""A linear model as a table of coefficients, in the units of the encoding and of the user, and as CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np

from taciturn.core.storage import write_text
from taciturn.data import read_schema
from taciturn.data.feature_mapping import INTERCEPT
from taciturn.data.feature_maps import NONE
from taciturn.data.schema import Numeric, Schema
from taciturn.export.target import TARGETS, ExportRequest, Target, chosen_model
from taciturn.runs.model import Model
from taciturn.types import Array, Classes

Rows = list[dict[str, Any]]


def coefficient_rows(model: Model) -> Rows:
    """One row for each feature and one for the intercept, a column for each class.

    `encoded` columns multiply features as the model sees them. `units` columns, of a model of a table without a feature
    map, multiply the table's own values (clipped to low..high; 0 or 1 for a category): their sum with the intercept is
    the class's score, or, for a number, the prediction itself.
    """
    schema = read_schema(model.schema) if model.schema is not None else None
    own = schema if has_units(model) else None
    outputs = output_names(model, schema)
    features = model.features[:-1] if model.settings.intercept else model.features
    w = model.w.astype(np.float64)
    encoded = w[:-1] if model.settings.intercept else w
    constant = w[-1] if model.settings.intercept else np.zeros(w.shape[1])
    in_units, shift = _units(model, own, encoded, constant) if own is not None else (None, None)
    bounds = _bounds(own)
    rows = [
        _row(name, bounds.get(name), outputs, encoded[j], None if in_units is None else in_units[j])
        for j, name in enumerate(features)
    ]
    return [*rows, _row(INTERCEPT, None, outputs, constant, shift)]


def has_units(model: Model) -> bool:
    """Whether coefficients can be said in the user's own units: those of a table that no feature map has changed."""
    return model.schema is not None and model.settings.features == NONE


def output_names(model: Model, schema: Schema | None) -> tuple[str, ...]:
    """What the scores are of: the classes, or the label."""
    if isinstance(model.target, Classes):
        return model.target.names
    return (schema.label if schema is not None else "label",)


def _units(model: Model, schema: Schema, encoded: Array, constant: Array) -> tuple[Array, Array]:
    """Coefficients and intercept for the table's own values; for a number, of the prediction in its own unit."""
    pairs = [
        pair
        for rule in schema.columns
        for pair in ([rule.scaling(schema.scale)] if isinstance(rule, Numeric) else [(1.0, 0.0)] * len(rule.features))
    ]
    a, b = (np.array(values)[:, None] for values in zip(*pairs, strict=True))
    own, shift = a * encoded, constant + (b * encoded).sum(axis=0)
    if isinstance(model.target, Classes):
        return own, shift
    width = model.target.high - model.target.low
    return width * own, model.target.low + width * shift


def _bounds(schema: Schema | None) -> dict[str, tuple[float, float]]:
    rules = schema.columns if schema is not None else ()
    return {rule.name: (rule.low, rule.high) for rule in rules if isinstance(rule, Numeric)}


def _row(
    name: str, bounds: tuple[float, float] | None, outputs: tuple[str, ...], encoded: Array, units: Array | None
) -> dict[str, Any]:
    row: dict[str, Any] = {"feature": name}
    if units is not None:
        row |= {"low": bounds[0] if bounds else "", "high": bounds[1] if bounds else ""}
    row |= {f"encoded:{output}": float(value) for output, value in zip(outputs, encoded, strict=True)}
    if units is not None:
        row |= {f"units:{output}": float(value) for output, value in zip(outputs, units, strict=True)}
    return row


def coefficients_text(model: Model) -> str:
    """The model as CSV."""
    rows = coefficient_rows(model)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_coefficients(request: ExportRequest) -> list[str]:
    """Write the table."""
    model, said = chosen_model(request)
    path = request.place("coefficients.csv")
    write_text(path, coefficients_text(model))
    units = "units: columns multiply the table's own values, clipped to low..high; " if has_units(model) else ""
    features = model.settings.features
    seen = "what the model sees" + ("" if features == NONE else f": records after the feature map {features}")
    return [*said, f"coefficients of {model.label} in {path}", f"{units}encoded: columns multiply {seen}"]


TARGETS.register("csv")(Target("coefficients, a row for each feature", write_coefficients, frozenset({"out"})))
