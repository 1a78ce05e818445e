"""A schema from a frame: its columns, and what the owner declares; nothing from its cells unless asked for."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taciturn
from taciturn.data import parse_schema, read_schema
from taciturn.data.schema_draft import is_draft
from taciturn.errors import InputError
from taciturn.settings.keywords import SettingKeywords
from taciturn.settings.settings import FIELDS, Settings

from .helpers import CERTIFIED, SCHEMA, patients

BUILDER = (
    taciturn.Schema.from_frame(patients())
    .drop("name")
    .declare(age=(0, 100), sex=["f", "m"], visits={"bounds": (0, 20), "missing": "low"}, smoker=[False, True])
    .declare(label="ill")
)


def test_a_schema_says_what_was_declared() -> None:
    assert BUILDER.declare(ill=["no", "yes"]).build() == SCHEMA
    assert parse_schema(SCHEMA.to_toml()) == SCHEMA


def test_pairs_of_columns_are_declared() -> None:
    complete = BUILDER.declare(ill=["no", "yes"])
    paired = complete.declare(interactions=[("age", "sex"), ("sex", "smoker")])
    assert paired.build().interactions == (("age", "sex"), ("sex", "smoker"))
    assert paired.declare(age=(0, 90)).drop("smoker").build().interactions == (("age", "sex"),)
    assert paired.declare(interactions=[]).build() == complete.build()


def test_blanks_around_the_name_of_a_column_do_not_count() -> None:
    """A frame's names are read without them, so a declaration may have them or not."""
    padded = patients().rename(columns=lambda name: f" {name} ")
    builder = taciturn.Schema.from_frame(padded).drop(" name ").declare({" age": (0, 100), "sex ": ["f", "m"]})
    builder = builder.declare({"visits": {"bounds": (0, 20), "missing": "low"}, " smoker ": [False, True]})
    complete = builder.declare({" ill ": ["no", "yes"]}, label=" ill ")
    assert complete.build() == SCHEMA
    assert complete.declare(interactions=[(" age", "sex ")]).interactions == (("age", "sex"),)
    assert builder.draft(padded, " ill ").drafted == {"ill"}
    with pytest.raises(InputError, match="no column 'ag e'"):
        builder.declare({"ag e": (0, 100)})


@given(st.integers(1, 50), st.integers(0, 100))
def test_no_cell_has_an_influence(rows: int, seed: int) -> None:
    assert taciturn.Schema.from_frame(patients(rows, seed)) == taciturn.Schema.from_frame(patients())
    assert taciturn.Schema.from_frame(pl.from_pandas(patients(rows, seed))) == taciturn.Schema.from_frame(patients())


def test_what_is_not_declared_is_named_and_stops_every_use(tmp_path: Path) -> None:
    open_schema = taciturn.Schema.from_frame(patients()).declare(age=(0, 100), label="ill")
    assert open_schema.undeclared == ("name", "sex", "visits", "smoker", "ill")
    for use in (taciturn.run, taciturn.plan, taciturn.dry_run):
        with pytest.raises(
            InputError,
            match=r"^the schema does not declare 5 of the 6 columns of the frame; `undeclared` of the schema "
            "lists them; the label has no classes or bounds yet: ",
        ):
            use(data=patients(), schema=open_schema, **CERTIFIED)
    open_schema.save(tmp_path / "s.toml")
    with pytest.raises(InputError, match=r"s\.toml: \[label\] needs either classes or bounds"):
        read_schema(tmp_path / "s.toml")
    with pytest.raises(InputError, match=r"^the schema has no label"):
        taciturn.Schema.from_frame(patients()).build()


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8).map(str.strip)


@given(st.lists(NAMES.filter(bool), min_size=2, max_size=4, unique=True), st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_any_column_name_survives_the_text(names: list[str], low: float, width: float) -> None:
    frame = pd.DataFrame({name: [0.5] for name in names})
    rules: dict[str, Any] = dict.fromkeys(names[1:], (low, low + width)) | {names[0]: (0, 1)}
    schema = taciturn.Schema.from_frame(frame).declare(rules, label=names[0]).build()
    assert schema.label == names[0] and [rule.name for rule in schema.columns] == names[1:]
    assert {rule.low for rule in schema.columns} == {low}  # type: ignore[union-attr]


def test_a_draft_is_marked_and_a_run_with_it_says_so(tmp_path: Path) -> None:
    drafted = BUILDER.draft(patients())
    assert drafted.undeclared == () and drafted.drafted == {"ill"}
    drafted.save(tmp_path / "draft.toml")
    assert is_draft(tmp_path / "draft.toml")
    run = taciturn.run(data=patients(), schema=drafted, agents=2, out=tmp_path / "run", **CERTIFIED)
    assert run.ledger.study.doubts == ("drafted",)
    declared = drafted.declare(ill=["no", "yes"])
    assert declared.build() == SCHEMA and "read off" not in declared.to_toml()


def test_agents_and_units_are_columns_of_the_frame() -> None:
    frame = patients().assign(clinic="a", patient="p")
    builder = taciturn.Schema.from_frame(frame).drop("name", "sex", "visits", "smoker")
    builder = builder.declare(age=(0, 100), ill=["no", "yes"], label="ill", unit="patient", max_records=3)
    schema = builder.declare({"clinic": ["a", "b"]}, agent="clinic").build()
    assert schema.agent == "clinic" and schema.agents == ("a", "b")
    assert schema.unit is not None and (schema.unit.column, schema.unit.max_records) == ("patient", 3)
    assert builder.declare(agent="clinic").build().agents == ()


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"agee": (0, 1)}, r"^no column 'agee' among the 5 of the frame$"),
        ({"AGE": (0, 1)}, r"^no column 'AGE' among the 5 of the frame: it has 'age'$"),
        ({"age": (0, 1, 2)}, r"^age is declared as a tuple: it must be"),
        ({"age": (0, math.inf)}, r"^age is declared with a number that is not finite"),
        ({"age": "old"}, r"^age is declared as a str: it must be"),
        ({"sex": []}, r"^sex is declared as a list: it must be"),
        ({"sex": ["f", "f"]}, r"^sex is declared with one value twice"),
    ],
)
def test_declarations_of_another_form_are_refused(declared: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        BUILDER.declare(declared)


@pytest.mark.parametrize("pairs", ["age", [("age",)], [("age", "agee")], [patients()]])
def test_pairs_of_another_form_are_refused(pairs: Any) -> None:
    with pytest.raises(InputError, match=r"^(interactions has a|no column 'agee')"):
        BUILDER.declare(interactions=pairs)


def test_the_keywords_are_the_settings() -> None:
    hints = get_type_hints(SettingKeywords)
    assert list(hints) == list(FIELDS)
    for name, kind in get_type_hints(Settings).items():
        taken = get_args(hints[name]) or (hints[name],)
        default = FIELDS[name].default
        if default == "auto":
            assert str in taken or any(get_args(one) and "auto" in get_args(one) for one in taken), name
        for accepted in {int, float, bool} & set(get_args(kind) or (kind,)):
            assert accepted in taken, name


@pytest.mark.parametrize("function", [taciturn.run, taciturn.plan, taciturn.dry_run])
def test_a_type_checker_knows_the_keywords(function: Callable[..., Any]) -> None:
    assert inspect.signature(function).parameters["settings"].annotation == "Unpack[SettingKeywords]"
