from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from taciturn.data import SOURCES, DataOptions, data_folder, describe, load, source_for
from taciturn.errors import InputError
from taciturn.settings import resolve

from .helpers import write


def test_there_are_four_sources() -> None:
    assert list(SOURCES) == ["femnist", "mnist", "mnist14", "table"]
    for name in SOURCES:
        source = SOURCES[name]
        assert source.name == name and source.summary and source.attribution
        assert "\n" not in source.summary
    assert [name for name in SOURCES if SOURCES[name].fetch] == ["mnist"]
    assert [name for name in SOURCES if "agents" not in SOURCES[name].takes] == ["femnist"]
    assert [name for name in SOURCES if SOURCES[name].published] == ["femnist", "mnist", "mnist14"]


def test_presets_apply_in_every_mode_and_the_papers_only_in_mode_paper() -> None:
    assert {name: dict(SOURCES[name].preset) for name in SOURCES} == {
        "femnist": {},
        "mnist": {},
        "mnist14": {},
        "table": {"intercept": True},
    }
    for name in SOURCES:
        assert all(key == "rounds" or key.startswith(("rho", "eta")) for key in SOURCES[name].paper)
    assert [name for name in SOURCES if not SOURCES[name].paper] == ["table"]


@pytest.mark.parametrize("name", [*SOURCES])
def test_images_are_mapped_unless_told_otherwise_and_never_in_mode_paper(name: str) -> None:
    usual = "scattering" if SOURCES[name].image else "bins"
    assert resolve({"data": name}).features == usual
    assert resolve({"data": name, "mode": "paper"}).features == "none"
    assert resolve({"data": name, "features": "unit"}).features == "unit"


@pytest.mark.parametrize("data", ["a/b", "x.csv", "X.PARQUET", "./mnist"])
def test_paths_are_tables(data: str) -> None:
    assert source_for(data) is SOURCES["table"]


def test_folders_are_tables_but_names_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sites").mkdir()
    (tmp_path / "mnist").mkdir()
    assert source_for("sites") is SOURCES["table"]
    assert source_for("mnist") is SOURCES["mnist"]


def test_unknown_names() -> None:
    with pytest.raises(
        InputError, match=r"^no data set 'mnits' \(did you mean 'mnist'\?\): there are femnist, mnist, "
    ):
        load(DataOptions(data="mnits"))
    with pytest.raises(InputError, match=r"^no data set '': "):
        load(DataOptions(data=""))
    with pytest.raises(InputError, match=r"^table is not a table: give a \.csv or \.parquet file"):
        load(DataOptions(data="table"))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"precision": "float23"},
            r"^no precision 'float23' \(did you mean 'float32'\?\): there are float32, float64$",
        ),
        (
            {"partition": "inorder"},
            r"^no partition 'inorder' \(did you mean 'in-order'\?\): there are column, dirichlet",
        ),
        ({"partition": "column"}, r"^partition 'column' needs a column that names each record's agent"),
        ({"test_share": 1.0}, r"^test-share is 1\.0: it must be at least 0 and below 1$"),
        ({"test_share": -0.1}, r"^test-share is -0\.1: "),
        ({"sample_fraction": 0.0}, r"^sample-fraction is 0\.0: it must be above 0 and at most 1$"),
        ({"train_share": 1.0}, r"^train-share is 1\.0: it must be above 0 and below 1$"),
        ({"train_share": float("nan")}, r"^train-share is nan: "),
        ({"partition_key": -1}, r"^partition-key is -1: it must be 0 or more$"),
        ({"agents": 0}, r"^agents is 0: it must be at least 1 and at most the number of records$"),
    ],
)
def test_wrong_options(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        load(DataOptions(**changes))


def test_the_folder_of_the_data_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACITURN_DATA", "/from/env")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("HOME", "/home/me")
    assert data_folder("/given") == Path("/given")
    assert data_folder() == Path("/from/env")
    monkeypatch.delenv("TACITURN_DATA")
    assert data_folder() == Path("/xdg/taciturn")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == Path("/home/me/.cache/taciturn")


def test_describe(tmp_path: Path) -> None:
    schema = '[label]\ncolumn="y"\nclasses=["n","p"]\n[agent]\ncolumn="s"\n[columns.a]\nkind="numeric"\nbounds=[0,1]\n'
    table = write(tmp_path / "t.csv", "a,s,y\n0,u,n\n1,u,n\n5,v,p\n0.5,v,n\n")
    options = DataOptions(data=str(table), schema=str(write(tmp_path / "s.toml", schema)))
    assert describe(load(options)) == {
        "name": "t",
        "agents": {"u": 2, "v": 2},
        "records": 4,
        "test_records": 0,
        "features": 1,
        "nonzero_share": 0.75,
        "classes": {"n": 3, "p": 1},
        "test_classes": {},
        "notes": ["a: 1 value outside [0, 1] was clipped (line 4 of t.csv)"],
        "warnings": [],
    }
    write(tmp_path / "s.toml", schema.replace('column="y"', 'column="v"').replace('classes=["n","p"]', "bounds=[0, 9]"))
    write(table, "a,s,v\n0,u,1\n1,u,2\n")
    assert describe(load(options))["bounds"] == [0.0, 9.0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"data": "mnist14", "test_share": 0.2},
            r"^test-share has no effect on mnist14: it supports",
        ),
        ({"data": "mnist14", "schema": "s.toml"}, r"^schema has no effect on mnist14"),
        ({"data": "femnist", "agents": 5}, r"^agents has no effect on femnist"),
        ({"data": "x.csv", "sample_fraction": 0.2}, r"^sample-fraction has no effect on x\.csv"),
    ],
)
def test_options_without_effect_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        load(DataOptions(**changes))
