"""The benchmarks of a checkout: how they are found, and that pages and results name them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from benchmarks.program import RESULTS, read_results, results_file, rounded, spread, write_results

from taciturn.research.bench import BENCHMARKS
from taciturn.research.bench.repository import CHECKOUT, repository_programs
from tests.cli.helpers import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = repository_programs()
DOCUMENT = """
[project]
name = "other"
"""


def test_they_are_found_in_a_checkout_alone(tmp_path: Path) -> None:
    assert CHECKOUT == ROOT and {"frontier", "tables"} <= set(PROGRAMS)
    folder = tmp_path / "benchmarks"
    (folder / "big").mkdir(parents=True)
    (folder / "some_speed.py").write_text(
        '"""How fast it is.\n\nNeeds nothing.\nTakes two minutes\non a GPU. Writes."""\n'
    )
    (folder / "big" / "__main__.py").write_text('"""All of it.\n\nTakes hours."""\n')
    (folder / "shared.py").write_text('"""What programs share."""\n')
    assert repository_programs(tmp_path) == {}
    (tmp_path / "pyproject.toml").write_text(DOCUMENT)
    found = repository_programs(tmp_path)
    assert found["some-speed"] == ("benchmarks.some_speed", "How fast it is", "two minutes on a GPU")
    assert found["big"] == ("benchmarks.big", "All of it", "hours")
    assert list(found) == ["big", "some-speed"]


def test_names_are_unique() -> None:
    assert not set(PROGRAMS) & set(BENCHMARKS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_results_of_a_program_are_committed(name: str) -> None:
    assert read_results(results_file(name.replace("-", "_")))


def test_results_without_a_program_do_not_exist() -> None:
    assert {path.stem.replace("_", "-") for path in RESULTS.glob("*.json")} == set(PROGRAMS)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_pages_name_benchmarks_that_exist(page: Path) -> None:
    text = page.read_text()
    named = set(re.findall(r"taciturn bench ([a-z][a-z-]+)", text))
    assert named <= {*PROGRAMS, *BENCHMARKS}
    assert "python -m benchmarks" not in text


def frontier(trust: str, features: str = "scattering") -> list[str]:
    """Errors of gradient descent on MNIST at the four budgets, as pages write them."""
    points = [
        point
        for group in ("mnist", "mnist-pixels")
        for point in read_results(results_file("frontier"))[group]["points"]
    ]
    asked = {"trust": trust, "features": features, "algorithm": "dpgd"}
    found = [point for point in points if asked.items() <= point.items()]
    assert [point["total_epsilon"] for point in found] == [0.5, 1, 3, 8]
    return [f"{100 * point['test_error']:.1f} %" for point in found]


def rows(page: Path, first: str) -> list[list[str]]:
    """The cells of the table of a page whose head begins with some text."""
    lines = page.read_text().split(first)[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_readme_shows_the_measured_frontier() -> None:
    columns = [*zip(*rows(ROOT / "README.md", "| total ε |"), strict=True)]
    assert columns == [("0.5", "1", "3", "8"), tuple(frontier("agents")), tuple(frontier("secure-sum"))]
    sites = read_results(results_file("federation_accuracy"))["studies"]["secure-sum, 10 sites"]
    assert f"reach {100 * sites['mean']:.1f} % at ε = 1" in " ".join((ROOT / "README.md").read_text().split())


def test_the_page_of_the_frontier_shows_what_was_measured() -> None:
    columns = [*zip(*rows(ROOT / "docs" / "explanation" / "frontier.md", "| total ε | raw pixels |"), strict=True)]
    kinds = [("agents", "none"), ("agents", "pixels"), ("agents", "scattering"), ("secure-sum", "scattering")]
    assert columns[1:] == [tuple(frontier(*kind)) for kind in kinds]


METHODS = {  # of the page about tables, and their budget in the results
    "Taciturn, one party": ("taciturn-one", 1.0),
    "Taciturn, noise at every party": ("taciturn-parties", 1.0),
    "Taciturn, secure sum": ("taciturn-secure-sum", 1.0),
    "DP-EBM, central": ("dp-ebm", 1.0),
    "diffprivlib, central": ("diffprivlib", 1.0),
    "no privacy: logistic or ridge regression": ("linear", "inf"),
    "no privacy: `--total-epsilon inf`": ("taciturn-one", "inf"),
}


def test_the_page_about_tables_shows_what_was_measured() -> None:
    points = {
        (p["table"], p["method"], p["epsilon"]): p["mean"] for p in read_results(results_file("tables"))["points"]
    }
    shown = rows(ROOT / "docs" / "explanation" / "tables.md", "| ε = 1 |")
    assert [method for method, *_ in shown] == list(METHODS)
    for method, *cells in shown:
        means = [points[table, *METHODS[method]] for table in ("adult", "telco", "heart", "housing")]
        *areas, error = (mean.get("auroc", mean.get("rmse")) for mean in means)
        for cell, area in zip(cells, areas, strict=False):
            assert float(cell) == pytest.approx(area, abs=6e-4)
        assert float(cells[-1].replace(",", "")) == pytest.approx(error, abs=1)


def test_results_are_written_as_they_are_read(tmp_path: Path) -> None:
    document = {"what": "ε", "rows": [1, 0.5, None]}
    write_results(tmp_path / "found.json", document)
    assert read_results(tmp_path / "found.json") == document
    assert "ε" in (tmp_path / "found.json").read_text(encoding="utf-8")
    with pytest.raises(ValueError):
        write_results(tmp_path / "found.json", {"error": float("nan")})


def test_numbers_are_rounded_everywhere() -> None:
    value = {"a": [1.23456, (float("inf"), 2)], "b": {"c": 123456.0}, "d": "text", "e": None}
    assert rounded(value, 3) == {"a": [1.23, ["inf", 2]], "b": {"c": 123000.0}, "d": "text", "e": None}
    assert json.dumps(rounded(value, 3), allow_nan=False)
    assert spread([1.0, 2.0, 6.0]) == {"mean": 3.0, "min": 1.0, "max": 6.0}
