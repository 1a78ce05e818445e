"""Models with a feature map: an ONNX runtime predicts what `taciturn predict` does from the same input."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn.data import SOURCES
from taciturn.data.dataset_source import pixel_names
from taciturn.data.feature_mapping import mapped_names
from taciturn.data.feature_maps import MAPS, FeatureMap, InputShape
from taciturn.data.feature_maps.images import strokes
from taciturn.errors import InputError
from taciturn.export import TARGETS, ExportRequest
from taciturn.export.onnx_model import onnx_model
from taciturn.runs.folder import RunFolder
from taciturn.runs.model import Model, predict, read_model
from taciturn.settings import resolve
from taciturn.types import Classes
from tests.cli.helpers import CERTIFIED, EXAMPLE, taciturn, taciturn_json

DIGITS = Classes(tuple("0123456789"))


def model_of_images(features: str, intercept: bool) -> Model:
    """Return a model with random parameters."""
    image = SOURCES["mnist14"].image
    assert image is not None
    names = mapped_names(features, pixel_names(image), InputShape(image[0] * image[1], image), intercept)
    w = 20.0 * np.random.default_rng(1).normal(size=(len(names), 10))
    w[-1] *= 0.01
    return Model(
        w, names, DIGITS, resolve({"loss": "softmax", "features": features, "intercept": intercept}), None, "a model"
    )


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("features", [name for name in MAPS if not MAPS[name].tables])
def test_a_graph_takes_pixels_and_maps_them(features: str, intercept: bool, tmp_path: Path) -> None:
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    model, x = model_of_images(features, intercept), strokes(14)[:40]
    made = onnx_model(onnx, model, "run", "private")
    labels, chances = runtime.InferenceSession(made.SerializeToString()).run(None, {"features": x})
    with (tmp_path / "pixels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([pixel_names((14, 14)), *x.tolist()])
    expected = list(predict(model, tmp_path / "pixels.csv"))
    assert labels.tolist() == [row["prediction"] for row in expected]
    assert len(set(labels)) > 2  # strokes that a model cannot tell apart would check little
    wanted = [[row[f"probability_{name}"] for name in DIGITS.names] for row in expected]
    np.testing.assert_allclose(chances, wanted, atol=1e-5)
    assert len(made.SerializeToString()) < 3e6


def test_a_map_without_a_graph_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    MAPS["unit"]
    own = {"halves": FeatureMap("half", lambda raw: raw.width, lambda raw: lambda x: x / 2, keeps=True)}
    monkeypatch.setattr(MAPS, "_items", MAPS._items | own)
    with pytest.raises(InputError, match="feature map halves has no form in ONNX"):
        onnx_model(onnx, model_of_images("halves", True), "run", "private")


def test_a_mapped_table_from_training_to_export(tmp_path: Path) -> None:
    """Train with Fourier features, read the report, predict, evaluate, export: all through the command line."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    run, table = tmp_path / "run", EXAMPLE / "records.csv"
    taciturn("run", *CERTIFIED, "--features", "fourier", "--rounds", "20", "--total-epsilon", "50", "--out", run)
    assert (
        "Public feature map fourier: it is part of Taciturn and not fitted to these records"
        in (run / "report.html").read_text()
    )
    taciturn("predict", run, table, "--out", tmp_path / "p.csv")
    with (tmp_path / "p.csv").open() as file:
        predicted = list(csv.DictReader(file))
    with table.open() as file:
        rows = list(csv.DictReader(file))
    model = read_model(RunFolder.open(run))
    assert model.schema is not None
    label = next(name for name in rows[0] if set(model.target.names) >= {row[name] for row in rows})  # type: ignore[union-attr]
    wrong = np.mean([row[label] != said["prediction"] for row, said in zip(rows, predicted, strict=True)])
    assert taciturn_json("evaluate", run, table)["error"] == pytest.approx(wrong, abs=1e-9)
    assert wrong < 0.4
    said = taciturn("export", run, "--to", "csv", "--out", tmp_path / "c.csv").stdout
    assert "records after the feature map fourier" in " ".join(said.split()) and "units:" not in said
    with (tmp_path / "c.csv").open() as file:
        coefficients = list(csv.DictReader(file))
    assert [row["feature"] for row in coefficients] == [*(f"fourier_{j}" for j in range(1000)), "intercept"]
    assert not [key for key in coefficients[0] if key.startswith("units:") or key in {"low", "high"}]
    TARGETS["onnx"].write(ExportRequest(RunFolder.open(run), tmp_path / "m.onnx"))
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    labels, chances = session.run(None, {entry.name: column(rows, entry) for entry in session.get_inputs()})
    assert labels.tolist() == [row["prediction"] for row in predicted]
    first = model.target.names[0]  # type: ignore[union-attr]
    np.testing.assert_allclose(chances[:, 0], [float(row[f"probability_{first}"]) for row in predicted], atol=1e-5)
    picture = taciturn("plot", run, "--what", "sent").stdout
    assert "sent.png" in picture and (run / "local-only" / "sent.png").is_file()


def column(rows: list[dict[str, str]], entry: Any) -> Any:
    cells = [[row[entry.name]] for row in rows]
    return np.array(cells) if "string" in entry.type else np.array([[float(cell or "nan")] for (cell,) in cells])
