"""Evaluating a model, for its owner: on the rows a run held out, on other tables, and what becomes public of it."""

from __future__ import annotations

import json
import re
import shutil
import stat
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import taciturn as package
from taciturn.runs.quality import ClassificationQuality
from tests.cli.helpers import CERTIFIED, DECLARED, EXAMPLE, TABLE, refused, taciturn, taciturn_json

RECORDS = EXAMPLE / "records.csv"


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certified run with held-out rows."""
    path = tmp_path_factory.mktemp("evaluate") / "r"
    taciturn("run", *CERTIFIED, "--rounds", "5", "--out", path)
    return path


def figures(value: Any) -> Iterator[float]:
    """Yield every number with six digits or more that is no simple fraction: nothing else gives it by chance."""
    match value:
        case dict():
            for item in value.values():
                yield from figures(item)
        case list():
            for item in value:
                yield from figures(item)
        case float() if len(repr(value)) > 8 and abs(Fraction(value).limit_denominator(60) - value) > 1e-6:
            yield value


def test_the_held_out_rows_alone_are_evaluated_by_default(private: Path) -> None:
    done = taciturn("evaluate", private, "--json")
    assert "for the owner of the records only" in done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((private / "local-only" / "summary.json").read_text())["runs"][0]["quality"]
    assert found["records"] < 250
    assert set(found["parties"]) == {"north", "south", "west"}
    assert sum(own["records"] for own in found["parties"].values()) == found["records"]
    assert found["baseline"]["auroc"] == 0.5
    python = package.open_run(private).evaluate()
    assert isinstance(python, ClassificationQuality)
    assert python.to_json() == found


def test_no_figure_of_held_out_rows_leaves_the_owners_folder(private: Path) -> None:
    quality = json.loads((private / "local-only" / "summary.json").read_text())["runs"][0]["quality"]
    known = {repr(value)[:8] for value in figures(quality)} | {f"{100.0 * quality['error']:.2f} %"}
    assert len(known) > 50
    public = [path for path in private.iterdir() if path.is_file()]
    assert {"summary.json", "report.html", "metrics.jsonl"} <= {path.name for path in public}
    for path in public:
        text = path.read_bytes().decode(errors="replace")
        assert not {number for number in known if re.search(rf"(?<!\d){re.escape(number)}", text)}, path.name
        assert "Brier" not in text and "brier" not in text, path.name
    own = (private / "local-only" / "report.html").read_text()
    assert "Brier score" in own and "Reliability: predicted and observed shares" in own


def test_a_public_test_table_gives_public_quality(tmp_path: Path) -> None:
    shutil.copy(RECORDS, tmp_path / "public.csv")
    taciturn("run", *TABLE, "--test", tmp_path / "public.csv", *DECLARED, "--rounds", "3", "--out", tmp_path / "r")
    shared = json.loads((tmp_path / "r" / "summary.json").read_text())["runs"][0]["quality"]
    assert shared["records"] == 569
    assert "Brier score" in (tmp_path / "r" / "report.html").read_text()
    done = taciturn("evaluate", tmp_path / "r", "--json")
    assert "owner" not in done.stderr
    assert json.loads(done.stdout) == shared


def test_a_table_is_evaluated_for_people(private: Path, tmp_path: Path) -> None:
    done = taciturn("evaluate", private, RECORDS, "--threshold", "0.3", "--out", tmp_path / "p.png")
    assert "the model was trained on rows of" in done.stderr and "only the held-out rows" in done.stderr
    for words in ("569 records", "95 % interval", "baseline", "log loss", "Brier score", "AUROC", "F1, malignant",
                  "threshold", "specificity", "observed", "north"):  # fmt: skip
        assert words in done.stdout, words
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"
    assert stat.S_IMODE((tmp_path / "p.png").stat().st_mode) == 0o600
    chosen = taciturn_json("evaluate", private, RECORDS, "--threshold", "0.3", "--positive", "benign")
    assert (chosen["threshold"], chosen["positive"]) == (0.3, "benign")
    row = next(row for row in chosen["thresholds"] if row["threshold"] == 0.3)
    assert row["flagged"] == sum(counts[0] for counts in chosen["confusion"])


def test_a_folder_with_a_file_for_each_party_is_evaluated_by_party(private: Path, tmp_path: Path) -> None:
    header, *lines = RECORDS.read_text().splitlines()
    place = header.split(",").index("clinic")
    cells = [line.split(",") for line in lines]
    for name in ("north", "south"):
        kept = [",".join(c for i, c in enumerate(row) if i != place) for row in cells if row[place] == name]
        head = ",".join(c for i, c in enumerate(header.split(",")) if i != place)
        (tmp_path / f"{name}.csv").write_text("\n".join([head, *kept]) + "\n")
    by_file = taciturn_json("evaluate", private, tmp_path)
    by_column = taciturn_json("evaluate", private, RECORDS)
    assert set(by_file["parties"]) == {"north", "south"}
    assert all(by_file["parties"][name] == by_column["parties"][name] for name in by_file["parties"])


def test_one_class_in_the_table_is_enough(private: Path, tmp_path: Path) -> None:
    header, *lines = RECORDS.read_text().splitlines()
    kept = [line for line in lines if line.endswith("benign")]
    (tmp_path / "benign.csv").write_text("\n".join([header, *kept]) + "\n")
    found = taciturn_json("evaluate", private, tmp_path / "benign.csv")
    assert found["auroc"] is None and found["classes"]["malignant"]["recall"] is None
    assert "AUROC" not in taciturn("evaluate", private, tmp_path / "benign.csv").stdout.split("Rows are")[0]


def test_what_cannot_be_evaluated_is_refused(private: Path, tmp_path: Path) -> None:
    assert "threshold is 2" in refused("evaluate", private, "--threshold", "2")
    assert "'x'" in refused("evaluate", private, "--positive", "x")
    assert "picture's format" in refused("evaluate", private, "--out", tmp_path / "p.xyz")
    taciturn("run", *TABLE, *DECLARED, "--rounds", "2", "--loss", "hinge", "--out", tmp_path / "none")
    assert "has no test records" in refused("evaluate", tmp_path / "none")
    assert "probabilities" in refused("evaluate", tmp_path / "none", EXAMPLE / "records.csv", "--threshold", "0.5")


def test_numbers_are_evaluated_in_their_unit_next_to_the_mean(tmp_path: Path) -> None:
    schema = (EXAMPLE / "schema.toml").read_text()
    schema = schema.replace(
        'column = "diagnosis"\nclasses = ["benign", "malignant"]', 'column = "area"\nbounds = [0.0, 2500.0]'
    ).replace('[columns.area]\nkind = "numeric"\nbounds = [0.0, 2500.0]\n', "")
    (tmp_path / "s.toml").write_text(schema)
    given = ("--data", RECORDS, "--schema", tmp_path / "s.toml", "--test-share", "0.25", *DECLARED)
    taciturn("run", *given, "--rounds", "5", "--out", tmp_path / "r")
    found = taciturn_json("evaluate", tmp_path / "r")
    assert found["baseline"]["r2"] == pytest.approx(0.0, abs=1e-9)
    assert 100.0 < found["baseline"]["rmse"] < 1000.0  # square millimetres, not shares of the range
    assert set(found["intervals"]) == {"rmse", "mae", "r2"}
    printed = taciturn("evaluate", tmp_path / "r").stdout
    assert "RMSE" in printed and "MAE" in printed and "R²" in printed and "west" in printed
    assert "RMSE" in (tmp_path / "r" / "local-only" / "report.html").read_text().split("How good")[1]
    assert "needs classes" in refused("evaluate", tmp_path / "r", RECORDS, "--out", tmp_path / "p.png")
