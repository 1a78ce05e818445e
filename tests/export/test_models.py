"""Exported models predict what `taciturn predict` does: from the table of coefficients, and in an ONNX runtime."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taciturn
from taciturn.errors import InputError
from taciturn.export import TARGETS, ExportRequest
from taciturn.runs.folder import RunFolder
from taciturn.runs.model import predict, read_model

SCHEMA = """
scale = "{scale}"
[label]
column = "{label}"
{target}
[columns.age]
kind = "numeric"
bounds = [20, 90]
missing = "middle"
[columns.sex]
kind = "categorical"
categories = ["f", "m"]
[columns.dose]
kind = "numeric"
bounds = [-1.5, 4]
[columns.site]
kind = "categorical"
categories = ["left", "right", "both"]
missing = "both"
"""


def table(path: Path, records: int) -> Path:
    """Write records with missing values, values outside their bounds, and labels that depend on them."""
    drawn = np.random.default_rng(5)
    lines = ["age,sex,dose,site,ill,cost"]
    for i in range(records):
        age, dose = drawn.uniform(10, 100), drawn.uniform(-2, 5)
        sex, site = drawn.choice(["f", "m"]), drawn.choice(["left", "right", "both", ""])
        ill = "yes" if age / 50 + dose - (sex == "m") > 2 else "no"
        lines.append(f"{'' if i % 7 == 3 else round(age, 3)},{sex},{dose:.4f},{site},{ill},{10 + age + 20 * dose:.3f}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three models: of classes on the symmetric scale, of a number, and of images."""
    folder = tmp_path_factory.mktemp("models")
    data = table(folder / "t.csv", 80)
    targets = {"ill": 'classes = ["yes", "no"]', "cost": "bounds = [-50, 250]"}
    for label, scale in (("ill", "symmetric"), ("cost", "unit")):
        text = SCHEMA.format(scale=scale, label=label, target=targets[label])
        (folder / f"{label}.toml").write_text(text)
        asked: dict[str, Any] = {"data": data, "schema": folder / f"{label}.toml", "agents": 2, "rounds": 20}
        taciturn.run(**asked, mode="paper", epsilon="5,inf", rho=1.0, eta=0.5, out=folder / label)
    plain: dict[str, Any] = {
        "mode": "paper",
        "loss": "hinge",
        "intercept": True,
        "rounds": 2,
        "epsilon": "inf",
        "averages": False,
    }
    taciturn.run(**plain, precision="float32", out=folder / "digits")
    return folder


def predictions(place: Path, name: str, run: int) -> list[dict[str, Any]]:
    return list(predict(read_model(RunFolder.open(place / name), run), place / "t.csv"))


def records(place: Path) -> list[dict[str, str]]:
    with (place / "t.csv").open() as file:
        return list(csv.DictReader(file))


def by_hand(rows: list[dict[str, str]], record: dict[str, str], output: str) -> float:
    """Return the score computed from the table of coefficients; missing values are filled as in the schema."""
    total = 0.0
    for row in rows:
        name, _, category = row["feature"].partition("=")
        value = record.get(name, "")
        if name == "intercept":
            at = 1.0
        elif category:
            at = float((value or "both") == category)
        else:
            at = min(max(float(value or 55.0), float(row["low"])), float(row["high"]))
        total += at * float(row[f"units:{output}"])
    return total


def test_coefficients_are_applied_by_hand(place: Path, tmp_path: Path) -> None:
    for name, run in (("ill", 1), ("cost", 0)):
        said = TARGETS["csv"].write(ExportRequest(RunFolder.open(place / name), tmp_path / f"{name}.csv", run))
        assert f"using run {run} of 2" in said[0] and str(tmp_path / f"{name}.csv") in said[1]
        with (tmp_path / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [row["feature"] for row in rows] == [
            "age", "sex=f", "sex=m", "dose", "site=left", "site=right", "site=both", "intercept",
        ]  # fmt: skip
        w = RunFolder.open(place / name).read_model()["w"][run]
        encoded = [[float(row[key]) for key in row if key.startswith("encoded:")] for row in rows]
        assert encoded == w.tolist()
        for record, expected in zip(records(place), predictions(place, name, run), strict=True):
            if name == "cost":
                assert abs(expected["prediction"]) < 1e3  # the model is no nonsense
                assert by_hand(rows, record, "cost") == pytest.approx(expected["prediction"], rel=1e-5)
                continue
            scores = np.array([by_hand(rows, record, output) for output in ("no", "yes")])
            chances = np.exp(scores) / np.exp(scores).sum()
            assert chances == pytest.approx([expected["probability_no"], expected["probability_yes"]], abs=1e-6)
            assert ("no", "yes")[scores.argmax()] == expected["prediction"]


def columns(place: Path) -> dict[str, Any]:
    """Return the table as input of an ONNX runtime: NaN for missing numbers, texts unchanged."""
    found, rows = {}, records(place)
    for name in ("age", "sex", "dose", "site"):
        cells = [row[name] for row in rows]
        numbers = name in ("age", "dose")
        found[name] = (
            np.array([[float(cell or "nan")] for cell in cells]) if numbers else np.array([[c] for c in cells])
        )
    return found


def test_an_onnx_runtime_predicts_the_same(place: Path, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    for name in ("ill", "cost"):
        TARGETS["onnx"].write(ExportRequest(RunFolder.open(place / name), tmp_path / f"{name}.onnx"))
    session = runtime.InferenceSession(str(tmp_path / "ill.onnx"))
    labels, chances = session.run(["label", "probabilities"], columns(place))
    expected = predictions(place, "ill", 0)
    assert labels.tolist() == [row["prediction"] for row in expected]
    wanted = [[row["probability_no"], row["probability_yes"]] for row in expected]
    np.testing.assert_allclose(chances, wanted, atol=1e-6, rtol=0)
    facts = session.get_modelmeta().custom_metadata_map
    assert "No end-to-end guarantee" in facts["taciturn.privacy"] and facts["taciturn.run"] == "ill"
    assert json.loads(facts["taciturn.classes"]) == ["no", "yes"] and "site=both" in json.loads(
        facts["taciturn.features"]
    )
    values = runtime.InferenceSession(str(tmp_path / "cost.onnx")).run(["prediction"], columns(place))[0]
    wanted = [[row["prediction"]] for row in predictions(place, "cost", 0)]
    np.testing.assert_allclose(values, wanted, rtol=1e-5)


def test_an_invalid_value_counts_as_missing(place: Path, tmp_path: Path) -> None:
    """An unknown category, a missing number, an infinite one: `taciturn predict` treats them the same."""
    runtime = pytest.importorskip("onnxruntime")
    TARGETS["onnx"].write(ExportRequest(RunFolder.open(place / "ill"), tmp_path / "m.onnx"))
    given = {name: cells[:3].copy() for name, cells in columns(place).items()}
    given = {name: cells.astype(object) if cells.dtype.kind == "U" else cells for name, cells in given.items()}
    given["site"][0], given["sex"][1], given["dose"][2] = "nowhere", "nobody", np.inf
    labels, chances = runtime.InferenceSession(str(tmp_path / "m.onnx")).run(["label", "probabilities"], given)
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([list(given), *zip(*(cells[:, 0] for cells in given.values()), strict=True)])
    expected = list(predict(read_model(RunFolder.open(place / "ill")), tmp_path / "t.csv"))
    assert labels.tolist() == [row["prediction"] for row in expected]
    wanted = [[row["probability_no"], row["probability_yes"]] for row in expected]
    np.testing.assert_allclose(chances, wanted, atol=1e-6, rtol=0)


def test_an_onnx_model_of_a_data_set_takes_its_features(place: Path, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = read_model(RunFolder.open(place / "digits"))
    TARGETS["onnx"].write(ExportRequest(RunFolder.open(place / "digits"), tmp_path / "m.onnx"))
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    x = np.random.default_rng(1).random((20, 196))
    labels, scores = session.run(["label", "scores"], {"features": x})  # the hinge loss has no probabilities
    assert np.abs(model.w[-1]).min() > 0.0  # the intercept
    expected = model.scores(np.column_stack([x, np.ones(20)]))
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert labels.tolist() == [model.target.names[k] for k in expected.argmax(axis=1)]  # type: ignore[union-attr]


def test_refusals(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder.open(place / "ill")
    TARGETS["csv"].write(ExportRequest(folder, tmp_path / "a.csv"))
    with pytest.raises(InputError, match="exists: choose another --out"):
        TARGETS["csv"].write(ExportRequest(folder, tmp_path / "a.csv"))
    with pytest.raises(InputError, match="there is no run 2 in"):
        TARGETS["csv"].write(ExportRequest(folder, tmp_path / "b.csv", 2))
    with pytest.raises(InputError, match=r"no export 'onxx' \(did you mean 'onnx'"):
        TARGETS["onxx"]
    for package in ("onnx", "mlflow", "tensorboard"):
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
        with pytest.raises(InputError, match=rf"needs {package}: pip install 'taciturn\[{package}\]'"):
            TARGETS[package].write(ExportRequest(folder))
    assert not {"model.onnx", "tensorboard"} & {path.name for path in folder.path.iterdir()}
