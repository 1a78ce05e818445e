"""Data frames with numbers, texts and missing values: declared by bounds and categories, or by a schema."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score, train_test_split

import taciturn
from taciturn.data.schema import Categorical
from taciturn.data.schema_parser import parse_schema
from taciturn.errors import InputError
from taciturn.runs.model import predict, read_model
from taciturn.sklearn import TaciturnClassifier, TaciturnRegressor
from tests.data.helpers import real_data

pandas = pytest.importorskip("pandas")

SCHEMA = """
[label]
column = "ill"
classes = ["no", "yes"]
[agent]
column = "clinic"
names = ["east", "west"]
[unit]
column = "patient"
max_records = 2
[columns.age]
kind = "numeric"
bounds = [0, 100]
missing = "indicator"
[columns.dose]
kind = "numeric"
bounds = [1, 1000]
scale = "log"
[columns.sex]
kind = "categorical"
categories = ["f", "m"]
missing = "indicator"
"""
KNOWN: dict[str, Any] = {
    "bounds": {"age": (0, 100), "dose": (0, 1000)},
    "categories": {"sex": ["f", "m"]},
    "classes": ["no", "yes"],
    "total_records": 500,
}


def people(n: int = 400, missing: bool = False) -> tuple[Any, NDArray[Any]]:
    """Return a frame with five columns, and who is ill: the old, and women who smoke."""
    random = np.random.default_rng(4)
    frame = pandas.DataFrame(
        {
            "age": random.uniform(0, 100, n).round(2),
            "dose": np.exp(random.uniform(0, 6.9, n)).round(2),
            "sex": random.choice(["f", "m"], n),
            "smokes": random.integers(0, 2, n) == 1,
            "clinic": random.choice(["east", "west"], n),
            "patient": np.arange(n) // 2,
        }
    )
    ill = frame.age + 40 * (frame.sex == "f") + random.normal(0, 8, n) > 70
    if missing:
        frame.loc[::7, "age"] = np.nan
        frame.loc[::9, "sex"] = None
    return frame, np.where(ill, "yes", "no")


def declared(frame: Any) -> Any:
    return frame[["age", "dose", "sex", "smokes"]]


@pytest.mark.parametrize("features", ["bins", "none"])
def test_a_fit_is_the_study_that_a_run_on_a_table_is(tmp_path: Path, features: str) -> None:
    """The same records in a file, the same schema and the same seed: the same predictions."""
    frame, ill = people(missing=True)
    frame.assign(ill=ill).to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "s.toml").write_text(SCHEMA)
    where: Any = {"data": str(tmp_path / "t.csv"), "schema": str(tmp_path / "s.toml"), "out": str(tmp_path / "r")}
    run = taciturn.run(**where, total_epsilon=2, total_records=500, rounds=20, seed=4, features=features)
    model = TaciturnClassifier(
        2.0, schema=tmp_path / "s.toml", total_records=500, rounds=20, random_state=4, features=features
    ).fit(frame, ill)
    rows = list(predict(read_model(run.folder), tmp_path / "t.csv"))
    np.testing.assert_allclose(model.predict_proba(frame)[:, 1], [row["probability_yes"] for row in rows], rtol=1e-5)
    assert model.privacy_spent_.epsilon == run.summary["privacy"]["total_epsilon"]
    assert model.ledger_["unit"] == "patient" and model.schema_.columns == parse_schema(SCHEMA).columns
    assert [party["agent"] for party in model.ledger_["agents"]] == ["east", "west"]


@pytest.mark.parametrize("total_epsilon", [20.0, math.inf])
def test_texts_and_booleans_are_features(total_epsilon: float) -> None:
    frame, ill = people()
    model = TaciturnClassifier(total_epsilon, **KNOWN, random_state=1).fit(declared(frame), ill)
    assert model.score(declared(frame), ill) > 0.85
    woman, man = (model.decision_function(declared(frame).assign(sex=sex)) for sex in ("f", "m"))
    assert (woman > man).all()
    assert model.schema_.columns[3] == Categorical("smokes", ("false", "true"))
    assert not hasattr(model, "coef_") and model.n_features_in_ == 4
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(declared(frame)), model.predict(declared(frame)))
    polars = pytest.importorskip("polars").DataFrame(declared(frame).to_dict("list"))
    np.testing.assert_array_equal(model.predict_proba(polars), model.predict_proba(declared(frame)))


def test_a_value_that_was_not_declared_is_no_category() -> None:
    frame, ill = people()
    model = TaciturnClassifier(math.inf, **KNOWN).fit(declared(frame), ill)
    unknown, absent = (model.decision_function(declared(frame).assign(sex=sex)) for sex in ("x", None))
    np.testing.assert_array_equal(unknown, absent)
    parts = [model.decision_function(declared(frame).assign(sex=sex)) for sex in ("f", "m")]
    assert ((unknown < parts[0]) & (unknown > parts[1])).all()


def test_without_privacy_nothing_needs_to_be_declared() -> None:
    frame, ill = people()
    model = TaciturnClassifier(math.inf).fit(declared(frame).astype({"sex": "category"}), ill)
    assert model.score(declared(frame), ill) > 0.9
    assert np.mean(cross_val_score(clone(model), declared(frame), ill, cv=3)) > 0.85
    values = TaciturnRegressor(math.inf).fit(declared(frame), np.sin(frame.age / 20.0))
    assert values.score(declared(frame), np.sin(frame.age / 20.0)) > 0.99  # a curve, which no line is


def test_a_linear_model_has_a_coefficient_for_each_encoded_column() -> None:
    frame, ill = people()
    model = TaciturnClassifier(math.inf, features="none", **KNOWN).fit(declared(frame), ill)
    assert model.schema_.features == ("age", "dose", "sex=f", "sex=m", "smokes=false", "smokes=true")
    one_hot = pandas.get_dummies(declared(frame).astype({"smokes": str})).astype(float)
    np.testing.assert_allclose(one_hot @ model.coef_[0] + model.intercept_[0], model.decision_function(declared(frame)))
    model.set_params(features="bins").fit(declared(frame), ill)
    assert not hasattr(model, "coef_") and not hasattr(model, "intercept_")


@pytest.mark.parametrize(
    ("changes", "columns", "sentence"),
    [
        ({"categories": None}, None, "categories of column 3 of X is None and total_epsilon is 1"),
        ({"categories": {"sx": ["f"]}}, None, "categories: no column 'sx' among the 4 of X"),
        ({"categories": {"sex": "f"}}, None, "it must be a list of its values"),
        ({"categories": {"sex": ["f", "f"]}}, None, "holds one value twice"),
        ({"categories": {"sex": ["f", None]}}, None, "that is a missing value"),
        ({"categories": ["f", "m"]}, None, "it must be a dict"),
        ({"bounds": None}, None, "bounds is None and total_epsilon is 1"),
        ({"bounds": {"age": (0, 100)}}, None, "bounds lacks 1 of the 2 numeric columns of X"),
        ({"schema": parse_schema(SCHEMA)}, None, "schema and bounds are both given"),
        ({"schema": "absent.toml", "bounds": None, "categories": None, "classes": None}, None, "no schema absent.toml"),
        ({"features": "bin"}, None, r"no feature map 'bin' \(did you mean 'bins'\?\)"),
        ({}, ["age", "dose"], "categories: no column 'sex'"),
    ],
)
def test_what_is_declared_must_fit(changes: dict[str, Any], columns: list[str] | None, sentence: str) -> None:
    frame, ill = people()
    model = TaciturnClassifier(1.0, **(KNOWN | changes), random_state=1)
    with pytest.raises(InputError, match=sentence):
        model.fit(declared(frame) if columns is None else frame[columns], ill)


def test_only_a_schema_says_what_replaces_a_missing_number() -> None:
    frame, ill = people(missing=True)
    with pytest.raises(InputError, match="column 'age' of X has a missing or infinite value"):
        TaciturnClassifier(1.0, **KNOWN, random_state=1).fit(declared(frame), ill)
    with pytest.raises(ValueError, match="NaN"):
        TaciturnClassifier(math.inf).fit(frame[["age", "dose"]], ill)
    with pytest.raises(InputError, match="X must be a data frame"):
        TaciturnClassifier(math.inf, schema=parse_schema(SCHEMA)).fit(frame[["age", "dose"]].to_numpy(), ill)
    with pytest.raises(InputError, match="a regressor needs a number"):
        TaciturnRegressor(math.inf, schema=parse_schema(SCHEMA)).fit(frame, frame.dose)
    with pytest.raises(InputError, match="leave groups None"):
        TaciturnClassifier(math.inf, schema=parse_schema(SCHEMA)).fit(frame, ill, groups=frame.patient)
    assert TaciturnClassifier(math.inf, schema=parse_schema(SCHEMA)).fit(frame, ill).score(frame, ill) > 0.8


@pytest.mark.real_data
def test_probabilities_of_a_private_model_are_far_better_than_the_base_rate() -> None:
    """Adult: the base rate has a log loss of 0.55, logistic regression without privacy one of 0.33."""
    frame = pandas.read_csv(real_data("tables", "adult.csv"))
    label = frame.pop("income-per-year")
    numbers = {
        "age": (16, 96),
        "fnlwgt": (0, 1_500_000),
        "education-num": (1, 16),
        "capital-gain": (0, 100_000),
        "capital-loss": (0, 5_000),
        "hours-per-week": (0, 100),
    }
    texts = {name: sorted(frame[name].unique()) for name in frame if name not in numbers}  # the table is public
    known: Any = {"bounds": numbers, "categories": texts, "classes": ["<=50K", ">50K"], "total_records": 30_000}
    x, test_x, y, test_y = train_test_split(frame, label, random_state=0)
    losses = []
    for epsilon in (1.0, math.inf):
        model = TaciturnClassifier(epsilon, **known, random_state=1).fit(x, y, groups=range(len(x)))
        losses.append(log_loss(test_y, model.predict_proba(test_x)))
    assert losses[1] < losses[0] < 0.33
    assert losses[1] < 0.315
