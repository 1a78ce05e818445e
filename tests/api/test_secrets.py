"""No cell, row or frame occurs in what a mistake says: not in the message, its causes, the log, or the run folder."""

from __future__ import annotations

import io
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import taciturn
from taciturn.errors import InputError

from .helpers import CERTIFIED, MARK, SCHEMA, folder_texts, patients

NUMBER = 77123456.5
MARKS = (MARK, "77123456", "7.71234", "77,123")


class Unreadable:
    """A cell that cannot become text, and says why with itself in the message."""

    def __str__(self) -> str:
        raise ValueError(f"cannot show {MARK}")


def secret() -> pd.DataFrame:
    """Return patients all of whose cells are marked, in columns of the right types."""
    frame = patients(12)
    texts, numbers = [f"{MARK}-{i}" for i in range(12)], NUMBER + np.arange(12)
    return frame.assign(name=texts, age=numbers, sex=texts, visits=numbers.astype(int), ill=texts)


def headless() -> pd.DataFrame:
    """Return what pandas makes of a file without a header: the first row as the names of the columns."""
    frame = secret()
    return pd.read_csv(io.StringIO(frame.to_csv(index=False, header=False)))


def headless_file(folder: Path, twice: bool = False) -> Path:
    """Write a file without a header, or two with different records."""
    parties = folder.with_name(f"{folder.name}-parties")
    parties.mkdir()
    for number in range(1 + twice):
        secret().iloc[number:].to_csv(parties / f"{number}.csv", index=False, header=False)
    return parties if twice else parties / "0.csv"


WRONG_DATA: dict[str, Callable[[], Any]] = {
    "an array": lambda: secret().to_numpy(),
    "a Series": lambda: secret()["name"],
    "a polars Series": lambda: pl.from_pandas(secret())["name"],
    "a lazy frame": lambda: pl.from_pandas(secret()).lazy(),
    "records": lambda: secret().to_dict("records"),
    "columns": lambda: secret().to_dict("list"),
    "rows": lambda: secret().to_numpy().tolist(),
    "one row": lambda: list(secret().iloc[0]),
    "CSV text": lambda: secret().to_csv(index=False),
    "CSV bytes": lambda: secret().to_csv(index=False).encode(),
    "a file object": lambda: io.StringIO(secret().to_csv()),
    "frames and rows": lambda: [secret(), secret().to_numpy()],
    "a dict with other keys": lambda: {(MARK,): secret()},
    "parties with slashes": lambda: {f"a/{MARK}": secret()},
    "the first row as header": headless,
    "the first row as header, polars": lambda: pl.from_pandas(headless()),
    "a missing column": lambda: secret().drop(columns="sex"),
    "a column in capitals": lambda: secret().rename(columns={"sex": "SEX"}),
    "two columns of one name": lambda: pd.concat([secret(), secret()[["sex"]]], axis=1),
    "lists in cells": lambda: secret().assign(sex=[[f"{MARK}"]] * 12),
    "lists in cells, polars": lambda: pl.from_pandas(secret()).with_columns(sex=pl.lit([MARK])),
    "dates for numbers": lambda: secret().assign(age=pd.date_range("1977-12-31", periods=12)),
    "booleans for other classes": lambda: secret().assign(ill=True),
    "cells without a text": lambda: secret().assign(sex=[Unreadable() for _ in range(12)]),
    "complex numbers": lambda: secret().assign(age=lambda frame: frame.age + 1j),
}
WRONG_CALLS: dict[str, Callable[[Path], Any]] = {
    "a header that is a record, undeclared": lambda out: (
        taciturn.Schema.from_frame(headless()).declare(label=headless().columns[-1]).build()
    ),
    "a header that is a record, declared": lambda out: taciturn.Schema.from_frame(headless()).declare(age=(0, 100)),
    "a header that is a record, as a file": lambda out: taciturn.run(
        data=headless_file(out.parent), schema=SCHEMA, out=out, **CERTIFIED
    ),
    "a file with a record for a header, and another": lambda out: taciturn.run(
        data=headless_file(out.parent, twice=True), schema=SCHEMA, out=out, **CERTIFIED
    ),
    "no schema": lambda out: taciturn.run(data=secret(), total_records=10),
    "as the config file": lambda out: taciturn.run(secret()),
    "several parties in paper mode without labels": lambda out: taciturn.run(
        data=[secret(), secret()], schema=SCHEMA, mode="paper", rounds=2, out=out
    ),
    "no labels in paper mode": lambda out: taciturn.run(
        data=secret().assign(ill=None), schema=SCHEMA, mode="paper", rounds=2, out=out
    ),
    "a sweep": lambda out: taciturn.sweep(data=secret(), schema=SCHEMA, over={"clip": [1, 2]}, out=out),
    "a sweep over frames": lambda out: taciturn.sweep(over={"data": [secret(), secret()]}, out=out),
    "a frontier": lambda out: taciturn.frontier(data=secret(), schema=SCHEMA, out=out),
    "a frame from an array": lambda out: taciturn.Schema.from_frame(secret().to_numpy()),
    "declared by a column": lambda out: taciturn.Schema.from_frame(secret()).declare(sex=secret()["sex"]),
    "declared by all cells": lambda out: taciturn.Schema.from_frame(secret()).declare(
        sex=[*secret()["sex"], *secret()["sex"]]
    ),
    "declared by a row": lambda out: taciturn.Schema.from_frame(secret()).declare(age=secret().to_numpy()[0]),
    "declared by arrays in a dict": lambda out: taciturn.Schema.from_frame(secret()).declare(
        age={"bounds": secret()["age"].to_numpy()}
    ),
    "declared by cells in a list": lambda out: taciturn.Schema.from_frame(secret()).declare(age=list(secret()["age"])),
    "declared by cells as bounds": lambda out: taciturn.Schema.from_frame(secret()).declare(
        age={"bounds": list(secret()["age"])}
    ),
    "declared by cells as categories": lambda out: taciturn.Schema.from_frame(secret()).declare(
        age={"categories": list(secret()["age"])}
    ),
    "a frame for the label": lambda out: taciturn.Schema.from_frame(secret()).declare(label=secret()),
    "a Series for the unit": lambda out: taciturn.Schema.from_frame(secret()).declare(unit=secret()["name"]),
    "a Series for max_records": lambda out: taciturn.Schema.from_frame(secret()).declare(
        unit="name", max_records=secret()["age"]
    ),
    "a frame for a column name": lambda out: taciturn.Schema.from_frame(secret()).drop(secret()),
    "identifiers drafted": lambda out: taciturn.Schema.from_frame(big()).draft(big(), "name"),
    "values too far apart drafted": lambda out: taciturn.Schema.from_frame(apart()).draft(apart(), "age"),
    "undeclared columns": lambda out: taciturn.run(
        data=secret(), schema=taciturn.Schema.from_frame(secret()), total_records=10, out=out
    ),
}
SETTINGS: tuple[str, ...] = (
    "schema",
    "test",
    "total_epsilon",
    "algorithm",
    "records_max",
    "out",
    "name",
    "ledger",
    "rounds",
    "clip",
)
SETTINGS += ("intercept", "mode", "plugins", "memory", "device", "rho")
LISTS = {(name, "a row") for name in ("total_epsilon", "algorithm", "plugins")}  # lists: every item is a value
WRONG_VALUES: dict[str, Callable[[], Any]] = {
    "a frame": secret,
    "a list of frames": lambda: [secret()],
    "a dict of frames": lambda: {"a": secret()},
    "a Series": lambda: secret()["name"],
    "a row": lambda: tuple(secret().iloc[0]),
    "a text": lambda: secret().to_csv(),
    "an array": lambda: np.array(secret()["sex"]),
}


def big() -> pd.DataFrame:
    return pd.concat([secret().assign(name=lambda f, i=i: f.name + str(i)) for i in range(9)])


def apart() -> pd.DataFrame:
    return secret().assign(age=1.77123456e308 * np.sign(np.arange(12) - 6.5))


def everything_said(error: BaseException) -> Iterator[str]:
    """Yield the words of an exception, of its causes and contexts, and of the traceback that Python prints."""
    yield "".join(traceback.format_exception(error))
    seen: list[BaseException] = [error]
    for one in seen:
        yield from (str(one), repr(one), repr(one.args), repr(getattr(one, "__notes__", "")))
        seen += [other for other in (one.__cause__, one.__context__) if other is not None and other not in seen]


def refused(attempt: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> str:
    """Make a mistake, and return what it says, in which nothing is marked."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(InputError) as caught:
        attempt()
    said = [*everything_said(caught.value), *caplog.messages]
    assert [mark for mark in MARKS for text in said if mark in text] == []
    return str(caught.value)


@pytest.mark.parametrize("which", ["data", "test"])
@pytest.mark.parametrize("mistake", WRONG_DATA)
def test_wrong_records(mistake: str, which: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given: dict[str, Any] = {"data": patients(), "schema": SCHEMA, "out": tmp_path / "run", **CERTIFIED}
    said = refused(lambda: taciturn.run(**given | {which: WRONG_DATA[mistake]()}), caplog)
    assert said.startswith(which)
    assert folder_texts(tmp_path) == {}


@pytest.mark.parametrize("mistake", WRONG_CALLS)
def test_wrong_calls(mistake: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    refused(lambda: WRONG_CALLS[mistake](tmp_path / "run"), caplog)
    assert [name for name, content in folder_texts(tmp_path).items() if MARK.encode() in content] == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [(one, other) for one in SETTINGS for other in WRONG_VALUES if (one, other) not in LISTS],
)
def test_records_in_the_wrong_place(setting: str, value: str, caplog: pytest.LogCaptureFixture) -> None:
    given: dict[str, Any] = {"data": patients(), "schema": SCHEMA, **CERTIFIED}
    if (setting, value) in {("test", "a frame"), ("test", "a list of frames"), ("test", "a dict of frames")}:
        given["mechanism"] = "none"  # that is where frames belong: another mistake
    said = refused(lambda: taciturn.plan(**given | {setting: WRONG_VALUES[value]()}), caplog)
    assert setting.replace("_", "-") in said or "mechanism" in said


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> taciturn.Run:
    out = tmp_path_factory.mktemp("trained") / "run"
    return taciturn.run(data=patients(), schema=SCHEMA, agents=2, out=out, **CERTIFIED)


WRONG_USES: dict[str, Callable[[taciturn.Run], Any]] = {
    "predict an array": lambda run: run.predict(secret().to_numpy()),
    "predict a missing column": lambda run: run.predict(secret().drop(columns="sex")),
    "predict a missing column, polars": lambda run: run.predict_proba(pl.from_pandas(secret()).drop("sex")),
    "predict without a header": lambda run: run.predict(headless()),
    "evaluate unknown labels": lambda run: run.evaluate(secret()),
    "evaluate missing labels": lambda run: run.evaluate(secret().assign(ill=None)),
    "evaluate without labels": lambda run: run.evaluate(secret().drop(columns="ill")),
    "resume with others": lambda run: run.sent(data=secret()),
    "draw with others": lambda run: run.plot("sent", data=secret()),
    "draw a frame": lambda run: run.plot(secret()),
    "a frame for the run's number": lambda run: run.predict(patients(), run_index=secret()),
    "a frame for the run that is drawn": lambda run: run.plot("effects", run_index=secret()),
    "a frame for the threshold": lambda run: run.evaluate(patients(), threshold=secret()),
    "a column for the threshold": lambda run: run.evaluate(patients(), threshold=secret()["age"]),
    "a frame for the positive class": lambda run: run.evaluate(patients(), positive=secret()),
}


@pytest.mark.parametrize("mistake", WRONG_USES)
def test_wrong_uses_of_a_model(mistake: str, trained: taciturn.Run, caplog: pytest.LogCaptureFixture) -> None:
    refused(lambda: WRONG_USES[mistake](trained), caplog)


def test_cells_that_do_not_fit_stop_no_run_and_are_not_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    run = taciturn.run(data=secret(), schema=SCHEMA, agents=2, out=tmp_path / "run", progress=True, **CERTIFIED)
    said = [*caplog.messages, *capfd.readouterr(), repr(run), repr(run.summary), repr(run.ledger)]
    said += [content.decode("latin-1") for content in folder_texts(tmp_path).values()]
    assert [mark for mark in MARKS for text in said if mark in text] == []
