"""Coefficients as a CSV file."""

from __future__ import annotations

import csv
import io

from tacit.data.maps import NONE
from tacit.export.base import TARGETS, Request, Target
from tacit.export.coefficients import coefficient_rows, has_units
from tacit.export.model import chosen_model
from tacit.results.files import write_text
from tacit.study.use import Model


def coefficients_text(model: Model) -> str:
    """The model as CSV."""
    rows = coefficient_rows(model)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_coefficients(request: Request) -> list[str]:
    """Write the table."""
    model, said = chosen_model(request)
    path = request.place("coefficients.csv")
    write_text(path, coefficients_text(model))
    units = "units: columns multiply the table's own values, clipped to low..high; " if has_units(model) else ""
    features = model.settings.features
    seen = "what the model sees" + ("" if features == NONE else f": records after the feature map {features}")
    return [*said, f"coefficients of {model.label} in {path}", f"{units}encoded: columns multiply {seen}"]


TARGETS.register("csv")(Target("coefficients, a row for each feature", write_coefficients, frozenset({"out"})))
