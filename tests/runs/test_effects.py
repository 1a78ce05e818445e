"""Effects of a table's columns: they add up to the model, and their standard errors cover the noise."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taciturn
from taciturn.data import read_schema
from taciturn.errors import InputError
from taciturn.runs.effects import read_effects
from taciturn.runs.folder import RunFolder
from taciturn.runs.model import predict, read_model

SCHEMA = """
[label]
column = "ill"
classes = ["no", "yes"]

[columns.age]
kind = "numeric"
bounds = [0, 100]

[columns.dose]
kind = "numeric"
bounds = [1, 1000]
scale = "log"
missing = "indicator"

[columns.site]
kind = "categorical"
categories = ["a", "b", "c", "d"]

[columns.stage]
kind = "categorical"
categories = ["1", "2", "3"]
ordered = true
"""


def write_table(folder: Path, rows: int = 600) -> dict[str, Any]:
    """Write a table whose columns are correlated, and return the settings of a run on it."""
    rng = np.random.default_rng(5)
    hidden = rng.standard_normal(rows)
    age = np.clip(50 + 18 * hidden + 8 * rng.standard_normal(rows), 0, 100)
    dose = np.exp(np.clip(3.4 + hidden + 0.5 * rng.standard_normal(rows), 0.0, 6.9))
    site = np.array(list("abcd"))[np.clip(np.rint(1.5 + hidden + 0.5 * rng.standard_normal(rows)), 0, 3).astype(int)]
    stage = rng.integers(1, 4, rows)
    ill = rng.random(rows) < 1.0 / (1.0 + np.exp(-(0.05 * (age - 50) + (site == "b") - (stage == 1))))
    with (folder / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("age", "dose", "site", "stage", "ill"))
        for i in range(rows):
            given = "" if i % 9 == 0 else f"{dose[i]:.4g}"
            writer.writerow((f"{age[i]:.4g}", given, site[i], stage[i], "yes" if ill[i] else "no"))
    (folder / "schema.toml").write_text(SCHEMA)
    return {
        "data": str(folder / "table.csv"),
        "schema": str(folder / "schema.toml"),
        "total_records": rows,
        "agents": 3,
        "trust": "server",
        "total_epsilon": 4.0,
        "seed": 0,
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A study of 20 seeds and a reference without noise, on correlated columns."""
    folder = tmp_path_factory.mktemp("effects")
    settings = write_table(folder) | {"total_epsilon": (4.0, np.inf), "seeds": 20, "evaluate_every": 100}
    return taciturn.run(**settings, out=str(folder / "run")).folder


def test_effects_and_intercept_add_up_to_the_models_log_odds(finished: RunFolder) -> None:
    effects, model = read_effects(finished).run(0), read_model(finished, 0)
    table = finished.path.parent / "table.csv"
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))[:40]
    chances = [row["probability_yes"] for row in predict(model, table)][:40]
    for row, chance in zip(rows, chances, strict=True):
        total = effects.intercept[0]
        for column in effects.columns:
            own, text = np.array(column.effect[0]), row[column.column]
            if column.form != "numeric":
                total += own[column.names.index(text)]
            elif not text:
                total += own[-1]
            else:
                stretch = np.log if column.scale == "log" else np.asarray
                knots = stretch(np.array(column.knots))
                total += np.interp(stretch(float(text)), knots, own[: len(knots)])
        assert np.log(chance / (1.0 - chance)) == pytest.approx(total, abs=2e-3)


def test_effects_are_0_on_average_under_their_shares(finished: RunFolder) -> None:
    for run in read_effects(finished).runs:
        for column in run.columns:
            assert sum(column.shares) == pytest.approx(1.0, abs=1e-4)
            assert np.array(column.effect) @ np.array(column.shares) == pytest.approx(0.0, abs=1e-4)


def test_two_standard_errors_cover_the_noise_of_other_seeds(finished: RunFolder) -> None:
    noisy = [run for run in read_effects(finished).runs if run.algorithm == "additive"]
    assert len(noisy) == 20
    curves = np.array([[value for column in run.columns for value in column.effect[0]] for run in noisy])
    errors = np.array([[value for column in run.columns for value in column.error[0]] for run in noisy])  # type: ignore[index]
    apart = np.abs(curves - curves.mean(axis=0)) / np.sqrt(1.0 - 1.0 / len(noisy))
    covered = float((apart <= 1.96 * errors).mean())
    ratio = float(np.median(curves.std(axis=0, ddof=1) / np.sqrt((errors**2).mean(axis=0))))
    assert 0.93 <= covered <= 0.999, covered
    assert 0.5 <= ratio <= 1.05, ratio  # an upper bound, and not a useless one


def test_a_model_without_noise_has_effects_without_errors(finished: RunFolder) -> None:
    (reference,) = [run for run in read_effects(finished).runs if run.algorithm == "optimum"]
    assert all(column.error is None and not column.is_noise() for column in reference.columns)
    assert reference.by_strength()[0].column in {"age", "site", "stage"}


def test_the_file_reads_back_as_it_was_written(finished: RunFolder) -> None:
    stored = json.loads(finished.effects.read_text())
    assert read_effects(finished).to_json() == stored
    names = tuple(rule.name for rule in read_schema(finished.stored_schema()).columns)
    assert all(tuple(column.column for column in run.columns) == names for run in read_effects(finished).runs)


def test_unknown_columns_and_runs_and_other_models_are_refused(finished: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no column 'height'"):
        read_effects(finished).run(0).column("height")
    with pytest.raises(InputError, match="no run 99"):
        read_effects(finished).run(99)
    plain = taciturn.run(**write_table(tmp_path), features="none", rounds=2, algorithm="dpgd", out=str(tmp_path / "p"))
    with pytest.raises(InputError, match="has no effects"):
        read_effects(plain.folder)
