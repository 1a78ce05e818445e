"""No cell of X, y or the other arguments of the estimators occurs in what a mistake says, its causes included."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taciturn
from taciturn.errors import InputError
from taciturn.sklearn import TaciturnClassifier, TaciturnRegressor
from tests.api.helpers import MARK, NUMBER, SCHEMA, patients

pandas = pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

KNOWN: dict[str, Any] = {
    "bounds": {"age": (0, 120), "visits": (0, 20)},
    "categories": {"sex": ["f", "m"]},
    "classes": ["no", "yes"],
    "total_records": 200,
    "rounds": 4,
    "random_state": 1,
}
NUMBERS: dict[str, Any] = {"bounds": (0, 1), "classes": ["no", "yes"], "total_records": 200, "random_state": 1}
VALUES: dict[str, Any] = {"bounds": (0, 1), "label_bounds": (0, 1), "total_records": 200, "random_state": 1}
FRAME = patients().fillna({"age": 50.0})
X, Y = FRAME[["age", "sex", "visits"]], FRAME["ill"]
TEXTS, ONES = np.array([f"{MARK}-{i}" for i in range(120)]), np.ones((120, 2))


class Unreadable:
    """A cell that cannot become text, and says why with itself in the message."""

    def __str__(self) -> str:
        raise ValueError(f"cannot show {MARK}")


def classify(x: Any = X, y: Any = Y, /, sample_weight: Any = None, agents: Any = None, **changes: Any) -> Any:
    return TaciturnClassifier(1.0, **(KNOWN | changes)).fit(x, y, sample_weight=sample_weight, agents=agents)


def numeric(x: Any, y: Any = Y) -> Any:
    return TaciturnClassifier(1.0, **NUMBERS).fit(x, y)


def fitted() -> Any:
    return TaciturnClassifier(1.0, **NUMBERS).fit(pandas.DataFrame(ONES, columns=["a", "b"]), Y)


def headless(frame: Any) -> Any:
    """Return a frame whose columns have the cells of its first row for names."""
    return frame.set_axis([f"{MARK}{cell}" for cell in frame.iloc[0]], axis=1)


MISTAKES: dict[str, Callable[[], Any]] = {
    "a label that is no class": lambda: classify(X, TEXTS),
    "texts in an array": lambda: numeric(TEXTS.reshape(60, 2)[:, :]),
    "a text among objects": lambda: numeric(np.array([[MARK, 1.0]] * 120, dtype=object)),
    "texts in lists": lambda: numeric([[MARK, "1"]] * 120),
    "one dimension": lambda: numeric(list(TEXTS)),
    "complex numbers": lambda: numeric(ONES * (NUMBER + 1j)),
    "texts as weights": lambda: classify(sample_weight=TEXTS, sample_weight_max=3),
    "texts as values": lambda: TaciturnRegressor(1.0, **VALUES).fit(ONES, TEXTS),
    "texts as values of a frame": lambda: TaciturnRegressor(1.0, **VALUES).fit(ONES, pandas.Series(TEXTS)),
    "texts for numbers": lambda: classify(X.assign(age=TEXTS)),
    "cells without a text": lambda: classify(X.assign(sex=[Unreadable() for _ in range(120)])),
    "a header that is a record": lambda: classify(headless(X)),
    "a header that is a record, all texts": lambda: classify(headless(X), bounds=(0, 1), categories=None),
    "a header that is a record, wrong bounds": lambda: numeric(headless(X[["age", "visits"]] * np.nan)),
    "a header that is a record, pairs": lambda: classify(headless(X[["age"]]), bounds=(1, 0), categories=None),
    "a header that is a record, a schema": lambda: TaciturnClassifier(1.0, schema=SCHEMA).fit(headless(X), Y),
    "bounds by other names": lambda: classify(headless(X[["age", "visits"]]), categories=None),
    "names of two levels": lambda: classify(pandas.concat({MARK: X}, axis=1)),
    "a column twice": lambda: classify(headless(pandas.concat([X, X[["sex"]]], axis=1))),
    "declared by a frame": lambda: classify(bounds=FRAME),
    "declared by a column": lambda: classify(categories={"sex": FRAME["name"].tolist() * 2}),
    "categories as a frame": lambda: classify(categories=FRAME["name"]),
    "a range of records": lambda: TaciturnRegressor(1.0, **(VALUES | {"label_bounds": list(TEXTS)})).fit(
        ONES, ONES[:, 0]
    ),
    "predict texts": lambda: fitted().predict(np.array([[MARK, "1"]])),
    "predict one dimension": lambda: fitted().predict(list(TEXTS)),
    "predict other columns": lambda: fitted().predict(headless(pandas.DataFrame({"a": ONES[:, 0], "b": 2.0}))),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_show_no_records(mistake: str) -> None:
    with pytest.raises(ValueError) as caught:
        MISTAKES[mistake]()
    said = ["".join(traceback.format_exception(caught.value))]
    seen: list[BaseException] = [caught.value]
    for one in seen:
        said += [str(one), repr(one.args)]
        seen += [other for other in (one.__cause__, one.__context__) if other is not None and other not in seen]
    assert [text for text in said if MARK in text or "77123456" in text] == []
    assert isinstance(caught.value, InputError)


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("a column twice", "columns 2 and 4 of X have the same name"),
        ("names of two levels", "X has several levels of column names: give every column one name, a string"),
        ("a label that is no class", "y has a label that is not among the classes: no, yes"),
        ("texts as weights", "sample_weight has text that is not a number"),
        ("predict other columns", "feature_names_in_ lists them"),
    ],
)
def test_mistakes_say_what_is_wrong(mistake: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        MISTAKES[mistake]()


def test_a_row_of_an_agent_that_is_not_declared_is_left_out() -> None:
    """As in `taciturn.run`: one record must not decide whether a model is trained. All declared agents exist."""
    builder = taciturn.Schema.from_frame(X.assign(clinic="a", ill=Y)).declare(age=(0, 120), visits=(0, 20))
    schema = builder.declare(sex=["f", "m"], label="ill", ill=["no", "yes"], agent="clinic", clinic=["a", "b", "c"])
    frame = X.assign(clinic=np.where(np.arange(120) < 60, "a", "b"))
    frame.loc[3, "clinic"], frame.loc[4, "clinic"] = MARK, None
    model = TaciturnClassifier(1.0, schema=schema.build(), total_records=200, rounds=4, random_state=1)
    with pytest.warns(UserWarning, match="2 of 120 rows were left out: their agent or unit is missing"):
        model.fit(frame, Y)
    assert model.n_iter_ == 4
    kept = TaciturnClassifier(1.0, schema=schema.build(), total_records=200, rounds=4, random_state=1)
    rows = frame.index.difference([3, 4])
    np.testing.assert_array_equal(kept.fit(frame.loc[rows], Y.loc[rows])._w, model._w)
