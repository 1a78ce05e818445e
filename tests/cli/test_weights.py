"""Weights of classes and of records from the schema to the model, and where they are refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.helpers import refused, taciturn

LABEL = '[label]\ncolumn = "ill"\nclasses = ["no", "yes"]\n'
COLUMNS = """
[agent]
column = "site"
names = ["a", "b"]
[columns.age]
kind = "numeric"
bounds = [0, 100]
[columns.dose]
kind = "numeric"
bounds = [0, 5]
"""
WEIGHT = '[weight]\ncolumn = "survey"\nmax = 2\n'
FEW = ("--rounds", "40", "--total-epsilon", "4", "--total-records", "3000", "--noise", "seeded", "--seed", "1")


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One patient in ten is ill. The survey counts only the young ones, whose dose is lower."""
    folder, rng, n = tmp_path_factory.mktemp("weights"), np.random.default_rng(0), 3000
    age, ill = rng.integers(20, 80, n), rng.random(n) < 0.1
    age = np.where(ill, np.minimum(age + 12, 99), age)
    dose = np.clip(np.where(age < 50, 1.0, 3.0) + rng.normal(0, 0.3, n), 0, 5)
    survey = np.where(age < 50, "1.73921", np.where(rng.random(n) < 0.5, "", "0"))
    rows = zip(age, dose, np.where(rng.random(n) < 0.5, "a", "b"), np.where(ill, "yes", "no"), survey, strict=True)
    lines = [f"{a},{d:.2f},{s},{i},{w}" for a, d, s, i, w in rows]
    (folder / "t.csv").write_text("\n".join(["age,dose,site,ill,survey", *lines, ""]))
    (folder / "plain.toml").write_text(LABEL + COLUMNS)
    (folder / "ones.toml").write_text(LABEL + "weights = { no = 3, yes = 3 }\n" + COLUMNS)
    (folder / "classes.toml").write_text(LABEL + "weights = { no = 1, yes = 9 }\n" + COLUMNS)
    dosed = COLUMNS.split("[columns.dose]", maxsplit=1)[0]
    for name, more in (("dose", ""), ("survey", WEIGHT)):
        (folder / f"{name}.toml").write_text(f'[label]\ncolumn = "dose"\nbounds = [0, 5]\n{dosed}{more}')
    return folder


def run(clinic: Path, schema: str, out: Path, *more: str) -> Path:
    taciturn("run", "--data", clinic / "t.csv", "--schema", clinic / f"{schema}.toml", *FEW, *more, "--out", out)
    return out


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.npz").read_bytes()).hexdigest()


def test_class_weights_raise_the_recall_of_a_rare_class(clinic: Path, tmp_path: Path) -> None:
    plain, weighted = (run(clinic, name, tmp_path / name) for name in ("plain", "classes"))
    said = [(folder / "report.html").read_text() for folder in (plain, weighted)]
    assert ["How much records count" in page for page in said] == [False, True]
    assert "How much records count: class no 1, yes 9 (the schema)." in said[1]
    recalls = []
    for folder in (plain, weighted):
        found = json.loads(taciturn("evaluate", folder, clinic / "t.csv", "--positive", "yes", "--json").stdout)
        recalls.append(found["recall"])
    assert recalls[1] > recalls[0] + 0.2
    spent = [taciturn("ledger", folder, "--json").stdout for folder in (plain, weighted)]
    assert json.loads(spent[0])["runs"] == json.loads(spent[1])["runs"]


@pytest.mark.parametrize(
    "more", [(), ("--features", "none", "--algorithm", "dpgd"), ("--algorithm", "dpgd", "--precision", "float32")]
)
def test_equal_class_weights_change_no_bit(clinic: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    plain, ones, weighted = (run(clinic, name, tmp_path / name, *more) for name in ("plain", "ones", "classes"))
    assert digest(ones) == digest(plain) != digest(weighted)


def test_a_column_of_weights_changes_what_is_learned_and_is_shown_nowhere(clinic: Path, tmp_path: Path) -> None:
    plain, weighted = (run(clinic, name, tmp_path / name, "--loss", "squared") for name in ("dose", "survey"))
    (tmp_path / "new.csv").write_text("age\n65\n70\n")
    high, low = (
        float(taciturn("predict", folder, tmp_path / "new.csv").stdout.splitlines()[1].split(",")[-1])
        for folder in (plain, weighted)
    )
    assert high > 2.5 > low
    for path in weighted.iterdir():
        if path.is_file() and path.suffix in (".json", ".jsonl", ".html"):
            assert "1.73921" not in path.read_text(), path.name
    assert "missing weights became 0" in (weighted / "local-only" / "start.json").read_text()
    assert "missing weight" not in (weighted / "start.json").read_text()


def test_the_theorems_are_not_checked_on_weighted_records(clinic: Path, tmp_path: Path) -> None:
    given = ("--mode", "paper", "--algorithm", "objp", "--set", "box", "--rounds", "3", "--epsilon", "1")
    out = tmp_path / "r"
    taciturn("run", "--data", clinic / "t.csv", "--schema", clinic / "classes.toml", *given, "--out", out)
    assert "the theorems are about losses without" in refused("theory", out)
