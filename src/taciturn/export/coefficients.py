"""A model as a CSV table: of coefficients, or of the effects of an additive model's columns."""

from __future__ import annotations

import numpy as np

from taciturn.core.storage import write_text
from taciturn.data import read_schema
from taciturn.data.feature_mapping import INTERCEPT
from taciturn.data.feature_maps import NONE
from taciturn.data.schema import Numeric, Schema, feature_scaling
from taciturn.export.target import TARGETS, ExportRequest, ExportTarget, requested_model
from taciturn.reporting.tables import csv_text
from taciturn.runs.effects import RunEffects, read_effects
from taciturn.runs.folder import RunFolder
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
        without a feature map and with linear scales, multiply the table's own values (clipped to `low`..`high`; 0 or 1
        for a category): their sum with the intercept is the score of the class or, for a number, the prediction, which
        is then cut to the label's bounds.
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
    """Return whether coefficients exist in the user's units: for a table that neither a map nor a scale has changed."""
    if model.schema is None or model.settings.features != NONE:
        return False
    rules = read_schema(model.schema).columns
    return all(rule.scale == Numeric.scale for rule in rules if isinstance(rule, Numeric))


def _in_units(model: Model, schema: Schema, encoded: Array, constant: Array) -> tuple[Array, Array]:
    """Return coefficients and intercept for the table's own values and, for a number, the label's own unit."""
    a, b = (values[:, None] for values in feature_scaling(schema))
    slopes, intercept = a * encoded, constant + (b * encoded).sum(axis=0)
    if isinstance(model.target, Classes):
        return slopes, intercept
    width = model.target.high - model.target.low
    return width * slopes, model.target.low + width * intercept


def level_rows(effects: RunEffects) -> list[Row]:
    """Return one row for each output, column and level of an additive model, and one for each intercept.

    A prediction is the intercept plus the effect of every column; between two knots of a numeric column the effect is
    interpolated, linearly on the column's scale.
    """
    rows: list[Row] = []
    for k, output in enumerate(effects.outputs):
        fixed: Row = {"output": output}
        for column in effects.columns:
            values: tuple[str | float, ...] = column.names
            if column.knots:
                values = (*column.knots, *(("missing",) if column.missing else ()))
            for i, value in enumerate(values):
                error: str | float = "" if column.error is None else column.error[k][i]
                row: Row = {"column": column.column, "value": value, "share": column.shares[i]}
                rows.append(fixed | row | {"effect": column.effect[k][i], "standard_error": error})
        row = {"column": INTERCEPT, "value": "", "share": "", "effect": effects.intercept[k], "standard_error": ""}
        rows.append(fixed | row)
    return rows


def coefficients_text(folder: RunFolder, model: Model, run: int) -> str:
    """Return the effects of an additive model, or else the table of coefficients, as CSV."""
    rows = level_rows(read_effects(folder).run(run)) if folder.effects.is_file() else coefficient_rows(model)
    return csv_text(rows)


def write_coefficients(request: ExportRequest) -> list[str]:
    """Write the table of coefficients and return messages about it."""
    model, messages = requested_model(request)
    path = request.output_path("coefficients.csv")
    write_text(path, coefficients_text(request.folder, model, request.run or 0))
    if request.folder.effects.is_file():
        about = "effects are added up to a score; standard_error is that of the privacy noise alone"
        return [*messages, f"effects of the columns in {model.label} in {path}", about]
    units = "units: columns multiply the table's own values, clipped to low..high; " if has_units(model) else ""
    features = model.settings.features
    seen = "features as the model sees them" if features == NONE else f"records after the feature map {features}"
    return [*messages, f"coefficients of {model.label} in {path}", f"{units}encoded: columns multiply {seen}"]


TARGETS.register("csv")(ExportTarget(write_coefficients, frozenset({"out"})))
