"""Models of tables in ONNX: every key of a schema means there what it means for `taciturn predict`."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn.data import read_schema
from taciturn.data.feature_mapping import mapped_names, schema_shape
from taciturn.data.schema import Categorical, Numeric
from taciturn.errors import InputError
from taciturn.export.coefficients import coefficient_rows
from taciturn.export.onnx_model import onnx_model
from taciturn.runs.model import Model, predict
from taciturn.settings import resolve
from taciturn.types import Range

SCHEMA = """
scale = "{scale}"
[label]
column = "y"
{target}
[columns.age]
kind = "numeric"
bounds = [20, 90]
[columns.dose]
kind = "numeric"
bounds = [0.01, 1000]
scale = "log"
missing = "low"
[columns.balance]
kind = "numeric"
bounds = [-5000, 100000]
scale = "asinh"
step = 10
missing = "indicator"
[columns.sex]
kind = "categorical"
categories = ["f", "m"]
missing = "indicator"
[columns.code]
kind = "categorical"
categories = ["1", "02", "-3", "1e1", "x"]
unknown = "other"
missing = "indicator"
[columns.grade]
kind = "categorical"
categories = ["low", "middle", "high"]
ordered = true
missing = "middle"
"""
PAIRS = """
[[interactions]]
columns = ["dose", "balance"]
[[interactions]]
columns = ["code", "age"]
[[interactions]]
columns = ["sex", "code"]
"""
TARGETS = {"classes": 'classes = ["no", "maybe", "yes"]', "number": "bounds = [-50, 250]"}
NUMBERS = ["", "nan", "inf", "-inf", "-1e9", "1e9", "0", "20", "90", "0.01", "-5000", "55"]
TEXTS = {
    "sex": ["f", "m", "", "NA", "nan", "NaN", "nobody", "F"],
    "code": ["1", "1.0", "01", "+1", "2", "02", "2.00", "-3", "-3.0", "10", "10.0", "x", "X", "7", "1.5", "", "Null"],
    "grade": ["low", "middle", "high", "", "higher"],
}


def table_model(folder: Path, features: str, target: str, **changes: Any) -> Model:
    """Return a model of the table with random parameters."""
    pairs = PAIRS if features == "bins" else ""
    (folder / "s.toml").write_text(SCHEMA.format(scale=changes.pop("scale", "unit"), target=TARGETS[target]) + pairs)
    schema = read_schema(folder / "s.toml")
    loss = "softmax" if target == "classes" else "squared"
    settings = resolve(
        {"mode": "paper", "data": "t.csv", "schema": str(folder / "s.toml"), "features": features, "loss": loss}
        | changes
    )
    names = mapped_names(features, schema.features, schema_shape(schema), settings.intercept)
    w = 3.0 * np.random.default_rng(2).normal(size=(len(names), schema.target.width))
    return Model(w.astype(settings.precision), names, schema.target, settings, folder / "s.toml", "a model")


def random_rows(count: int, model: Model) -> list[dict[str, str]]:
    """Return random cells: within the bounds, on them, outside, missing, and texts that are in no schema."""
    drawn = np.random.default_rng(3)
    assert model.schema is not None
    rows = []
    for _ in range(count):
        row = {}
        for rule in read_schema(model.schema).columns:
            if isinstance(rule, Categorical):
                row[rule.name] = str(drawn.choice(TEXTS[rule.name]))
            else:
                value = float(rule.unstretched(np.array(drawn.uniform(-0.05, 1.05))))
                row[rule.name] = repr(value) if drawn.random() < 0.7 else str(drawn.choice(NUMBERS))
        rows.append(row)
    return rows


def as_inputs(rows: list[dict[str, str]], model: Model) -> dict[str, Any]:
    assert model.schema is not None
    return {
        rule.name: np.array([[float(row[rule.name] or "nan")] for row in rows])
        if isinstance(rule, Numeric)
        else np.array([[row[rule.name]] for row in rows], dtype=object)
        for rule in read_schema(model.schema).columns
    }


@pytest.mark.parametrize(
    ("features", "target", "changes"),
    [
        ("none", "classes", {"scale": "symmetric"}),
        ("none", "number", {}),
        ("bins", "classes", {}),
        ("bins", "number", {"scale": "symmetric"}),
        ("bins", "classes", {"precision": "float32", "intercept": False}),
    ],
)
def test_a_runtime_predicts_what_taciturn_predicts(
    features: str, target: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    model = table_model(tmp_path, features, target, **changes)
    rows = random_rows(400, model)
    with (tmp_path / "t.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    expected = list(predict(model, tmp_path / "t.csv"))
    session = runtime.InferenceSession(onnx_model(onnx, model, "run", "private").SerializeToString())
    found = session.run(None, as_inputs(rows, model))
    if target == "number":
        numbers = np.array([row["prediction"] for row in expected])
        assert isinstance(model.target, Range) and {model.target.low, model.target.high} & set(numbers)  # some are cut
        assert model.target.low <= numbers.min() < numbers.max() <= model.target.high
        np.testing.assert_allclose(found[0][:, 0], numbers, rtol=1e-5, atol=1e-4)
        return
    labels, chances = found
    assert labels.tolist() == [row["prediction"] for row in expected] and len(set(labels)) == 3
    wanted = [[row[f"probability_{name}"] for name in model.target.names] for row in expected]  # type: ignore[union-attr]
    np.testing.assert_allclose(chances, wanted, rtol=1e-5, atol=1e-6)


def test_a_hashed_column_has_no_form_in_onnx(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = table_model(tmp_path, "none", "classes")
    text = (tmp_path / "s.toml").read_text()
    (tmp_path / "s.toml").write_text(text.replace('categories = ["f", "m"]', "buckets = 2"))
    with pytest.raises(InputError, match=r"column 'sex' has buckets: ONNX cannot hash strings; use taciturn predict"):
        onnx_model(onnx, model, "run", "private")


def test_coefficients_have_units_only_on_linear_scales(tmp_path: Path) -> None:
    model = table_model(tmp_path, "none", "number")
    assert not any(key.startswith("units:") for key in coefficient_rows(model)[0])
    linear = (tmp_path / "s.toml").read_text()
    for line in ('scale = "log"\n', 'scale = "asinh"\nstep = 10\n'):
        linear = linear.replace(line, "")
    (tmp_path / "s.toml").write_text(linear)
    rows = {row["feature"]: row for row in coefficient_rows(model)}
    indicator, balance = rows["balance=missing"], rows["balance"]
    assert indicator["units:y"] == pytest.approx(300.0 * float(indicator["encoded:y"]))
    assert balance["units:y"] == pytest.approx(300.0 * float(balance["encoded:y"]) / 105_000.0)
