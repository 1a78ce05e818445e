"""A linear model as a CSV table of coefficients, for encoded features and in the user's own units."""

from __future__ import annotations

import csv
import io

import numpy as np

from taciturn.core.storage import write_text
from taciturn.data import read_schema
from taciturn.data.feature_mapping import INTERCEPT
from taciturn.data.feature_maps import NONE
from taciturn.data.schema import Numeric, Schema
from taciturn.export.target import TARGETS, ExportRequest, Target, requested_model
from taciturn.runs.model import Model
from taciturn.types import Array, Classes

Row = dict[str, str | float]


def coefficient_rows(model: Model) -> list[Row]:
    """Return one row per feature and one for the intercept, with a column per class.

    Parameters
    ----------
    model : Model
        A trained model.

    Returns
    -------
    list of rows
        Columns `encoded:CLASS` multiply features as the model sees them. Columns `units:CLASS`, for a model of a table
        without a feature map, multiply the table's own values (clipped to `low`..`high`; 0 or 1 for a category): their
        sum with the intercept is the score of the class or, for a number, the prediction itself.
    """
    schema = read_schema(model.schema) if model.schema is not None else None
    with_intercept = model.settings.intercept
    w = model.w.astype(np.float64)
    encoded, constant = (w[:-1], w[-1]) if with_intercept else (w, np.zeros(w.shape[1]))
    names = [*(model.features[:-1] if with_intercept else model.features), INTERCEPT]
    columns = {"encoded": np.vstack([encoded, constant])}
    bounds: dict[str, tuple[float, float]] = {}
    if schema is not None and has_units(model):
        columns["units"] = np.vstack(_in_units(model, schema, encoded, constant))
        bounds = {rule.name: (rule.low, rule.high) for rule in schema.columns if isinstance(rule, Numeric)}
    if isinstance(model.target, Classes):
        outputs = model.target.names
    else:
        outputs = (schema.label if schema is not None else "label",)
    rows: list[Row] = []
    for j, name in enumerate(names):
        low, high = bounds.get(name, ("", ""))
        row: Row = {"feature": name}
        if "units" in columns:
            row |= {"low": low, "high": high}
        for kind, values in columns.items():
            row |= {f"{kind}:{output}": float(value) for output, value in zip(outputs, values[j], strict=True)}
        rows.append(row)
    return rows


def has_units(model: Model) -> bool:
    """Return whether coefficients exist in the user's units: for a table that no feature map has changed."""
    return model.schema is not None and model.settings.features == NONE


def _in_units(model: Model, schema: Schema, encoded: Array, constant: Array) -> tuple[Array, Array]:
    """Return coefficients and intercept for the table's own values and, for a number, the label's own unit."""
    pairs = [
        pair
        for rule in schema.columns
        for pair in ([rule.scaling(schema.scale)] if isinstance(rule, Numeric) else [(1.0, 0.0)] * len(rule.features))
    ]
    a, b = (np.array(values)[:, None] for values in zip(*pairs, strict=True))
    slopes, intercept = a * encoded, constant + (b * encoded).sum(axis=0)
    if isinstance(model.target, Classes):
        return slopes, intercept
    width = model.target.high - model.target.low
    return width * slopes, model.target.low + width * intercept


def coefficients_text(model: Model) -> str:
    """Return the table of coefficients as CSV."""
    rows = coefficient_rows(model)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_coefficients(request: ExportRequest) -> list[str]:
    """Write the table of coefficients and return messages about it."""
    model, messages = requested_model(request)
    path = request.output_path("coefficients.csv")
    write_text(path, coefficients_text(model))
    units = "units: columns multiply the table's own values, clipped to low..high; " if has_units(model) else ""
    features = model.settings.features
    seen = "features as the model sees them" if features == NONE else f"records after the feature map {features}"
    return [*messages, f"coefficients of {model.label} in {path}", f"{units}encoded: columns multiply {seen}"]


TARGETS.register("csv")(Target("coefficients, a row for each feature", write_coefficients, frozenset({"out"})))
