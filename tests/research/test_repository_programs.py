"""The benchmarks of a checkout: how they are found, and that pages and results name them."""

from __future__ import annotations

import json
import math
import re
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from benchmarks.program import RESULTS, read_results, results_file, rounded, spread, write_results

from taciturn.research.bench import BENCHMARKS
from taciturn.research.bench.repository import CHECKOUT, repository_programs
from tests.cli.helpers import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FRONTIER, CERTIFIED, SECURE_SUM, TABLES = (
    ROOT / "docs" / "explanation" / f"{page}.md" for page in ("frontier", "certified-mode", "secure-sum", "tables")
)
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


def whole(page: Path) -> str:
    """The text of a page, with its lines joined."""
    return " ".join(page.read_text().split())


def areas(table: str, method: str, budget: float | str) -> list[float]:
    """The areas under the curve of a method on each split of a table."""
    (point,) = (
        p
        for p in read_results(results_file("tables"))["points"]
        if (p["table"], p["method"], p["epsilon"]) == (table, method, budget)
    )
    return [split["auroc"] for _, split in sorted(point["splits"].items(), key=lambda entry: int(entry[0]))]


def decimal(share: float, digits: int) -> str:
    """A share as tables write it: .884."""
    return f"{share:.{digits}f}".removeprefix("0")


def test_the_readme_shows_what_was_measured() -> None:
    readme = whole(ROOT / "README.md")
    budgets, heart, *digits = zip(*rows(ROOT / "README.md", "| total ε |"), strict=True)
    assert budgets == ("0.5", "1", "3", "8", "no privacy")
    assert digits == [(*frontier("agents"), ""), (*frontier("secure-sum"), "")]
    measured = [areas("heart", "taciturn-parties", budget)[:5] for budget in (0.5, 1.0, 3.0, 8.0, "inf")]
    assert heart == tuple(decimal(fmean(found), 3) for found in measured)
    errors = [stdev(found) / math.sqrt(5) for found in measured]
    assert f"five random splits, standard errors {decimal(min(errors), 3)} to {decimal(max(errors), 3)}" in readme
    sites = read_results(results_file("federation_accuracy"))["studies"]["secure-sum, 10 sites"]
    assert f"reach {100 * sites['mean']:.1f} % at ε = 1" in readme
    bundled = read_results(results_file("first_run"))["test_error"]["dpgd 1.0"]["mean"]
    assert f"bundled digits reach {100 * bundled:.1f} % at ε = 1" in readme


def test_the_page_about_speed_shows_what_was_measured() -> None:
    def measured(benchmark: str, figure: str) -> float:
        return float(read_results(RESULTS / "bench" / f"{benchmark}.json")[figure])

    page = whole(ROOT / "docs" / "reference" / "speed.md")
    for shown, benchmark, figure in (
        (
            "with the two bare matrix products of the same shapes (numpy, float32) | {:.2f} |",
            "mnist-round",
            "ratio_to_matmul",
        ),
        ("noise, update, dual | products (numpy) | {:.2f} of them", "mnist-round", "ratio_to_matmul"),
        ("whichever takes longer | {:.1f} times as long", "mnist-round", "ratio_to_floor"),
        ("(numpy, float64, a loop over agents) | 1/{:.0f} |", "mnist-round", "speedup_over_plain"),
        ("without zeros | products | {:.2f} of them", "dense-round", "ratio_to_matmul"),
        ("of them; {:.1f} times its lower limit", "dense-round", "ratio_to_floor"),
        ("products of 400 columns | {:.2f} of them", "batch", "ratio_to_matmul"),
        ("100 x 10 | products over all records | {:.0f} times as long", "agents", "ratio_to_matmul"),
        ("`--simulate sums` | products over all records | {:.2f} of them", "agents", "ratio_to_matmul_of_sums"),
        ("which is float64 only | {:.2f};", "femnist-noise", "ratio_to_numpy_float64"),
        ("on both cores {:.2f}.", "femnist-noise", "ratio_on_all_cores"),
        ("numpy's exponential in float32 {:.1f}", "femnist-noise", "ratio_to_numpy_float32"),
        ("| one process on one core | {:.1f} times as fast", "ranks", "speedup_of_two_ranks"),
        ("| `python -c pass` | {:.1f} times as long", "start-up", "help_over_bare_python"),
        ("It peaks at {:.1f} GB", "start-up", "gigabytes_of_first_run"),
    ):
        assert shown.format(measured(benchmark, figure)) in page, (shown, measured(benchmark, figure))


def test_the_page_of_the_frontier_shows_what_was_measured() -> None:
    columns = [*zip(*rows(ROOT / "docs" / "explanation" / "frontier.md", "| total ε | raw pixels |"), strict=True)]
    kinds = [("agents", "none"), ("agents", "pixels"), ("agents", "scattering"), ("secure-sum", "scattering")]
    assert columns[1:] == [tuple(frontier(*kind)) for kind in kinds]


METHODS: dict[str, tuple[str, float | str]] = {  # of the page about tables, and their budget in the results
    "Taciturn, one party": ("taciturn-one", 1.0),
    "Taciturn, noise at every party": ("taciturn-parties", 1.0),
    "Taciturn, secure sum": ("taciturn-secure-sum", 1.0),
    "DP-EBM, central": ("dp-ebm", 1.0),
    "diffprivlib, central": ("diffprivlib", 1.0),
    "no privacy: logistic or ridge regression": ("linear", "inf"),
    "no privacy: `--total-epsilon inf`": ("taciturn-one", "inf"),
}


def test_the_page_about_tables_shows_what_was_measured() -> None:
    """On the five splits that all methods have."""
    points = {
        (p["table"], p["method"], p["epsilon"]): p["splits"] for p in read_results(results_file("tables"))["points"]
    }
    shown = rows(TABLES, "| ε = 1 |")
    assert [method for method, *_ in shown] == list(METHODS)
    for method, *cells in shown:
        found = [points[table, *METHODS[method]] for table in ("adult", "telco", "heart", "housing")]
        *areas, error = (
            fmean(splits[str(number)][metric] for number in range(5))
            for splits, metric in zip(found, ("auroc", "auroc", "auroc", "rmse"), strict=True)
        )
        for cell, area in zip(cells, areas, strict=False):
            assert float(cell) == pytest.approx(area, abs=6e-4)
        assert float(cells[-1].replace(",", "")) == pytest.approx(error, abs=1)


def test_the_page_about_tables_shows_twenty_splits_too() -> None:
    shown = rows(TABLES, "| ε = 1, 20 splits |")
    methods = [method for method in METHODS if method in {row[0] for row in shown}]
    assert [row[0] for row in shown] == methods and len(methods) == 3
    for method, *cells in shown:
        for table, cell in zip(("adult", "telco", "heart"), cells, strict=True):
            found = areas(table, *METHODS[method])
            assert len(found) == 20
            assert cell == f"{decimal(fmean(found), 4)} ± {decimal(stdev(found) / math.sqrt(20), 4)}"
    for table in ("adult", "telco", "heart"):  # "vary less"
        each = [areas(table, *METHODS[method]) for method in methods]
        for one, other in combinations(each, 2):
            assert stdev(a - b for a, b in zip(one, other, strict=True)) < min(stdev(one), stdev(other))
    linear = areas("adult", "linear", "inf")
    hard = (
        "the first five splits of adult are harder than most: logistic regression has {} on them and {} on all twenty"
    )
    assert hard.format(decimal(fmean(linear[:5]), 4), decimal(fmean(linear), 4)) in whole(TABLES)


def test_the_page_of_the_frontier_shows_what_secure_sums_reach() -> None:
    measured = read_results(results_file("sum_accuracy"))
    cells = [(name, cell) for name in ("mnist", "femnist") for cell in measured[name]]
    shown = rows(FRONTIER, "| data | total ε | c, d |")
    assert len(shown) == len(cells)
    for name, cell in cells:
        error, noise = cell["test_error_percent"], cell["noise_over_a_trusted_server"]
        low, high = error["interval"]
        expected = [
            name.upper(),
            f"{cell['total_epsilon']:g}",
            f"{cell['colluders']}, {cell['missing']}",
            f"{noise:.2f}",
            f"{cell['noise_at_every_agent_over_a_trusted_server']:.2f}",
            f"{error['mean']:.2f}{'' if low is None else f' ± {(high - low) / 2:.2f}'} %",
        ]
        assert expected in shown
        assert cell["met"] is not False
    text, points = whole(FRONTIER), read_results(results_file("frontier"))
    asked = {"features": "scattering", "algorithm": "dpgd", "total_epsilon": 1.0}
    (simulated,) = (p for p in points["mnist"]["points"] if (asked | {"trust": "secure-sum"}).items() <= p.items())
    (everywhere,) = (p for p in points["femnist"]["points"] if (asked | {"trust": "agents"}).items() <= p.items())
    wide = 50 * (simulated["high"] - simulated["low"])
    at_one = {
        cell["missing"]: cell["test_error_percent"]["mean"] for cell in measured["mnist"] if cell["total_epsilon"] == 1
    }
    assert f"two missing parties cost {at_one[2] - at_one[0]:.2f} points" in text
    assert f"the {at_one[0]:.2f} % for none from the {100 * simulated['test_error']:.2f} ± {wide:.2f} %" in text
    assert f"FEMNIST at ε = 1 is at {100 * everywhere['test_error']:.2f} %" in text


CERTIFIED_AUDITS: dict[str, dict[str, Any]] = {  # rows of the page, and what they are in the results
    "certified, Laplace, E = 1": {"algorithm": "objp", "mechanism": "laplace"},
    "certified, Laplace, E = 10": {"algorithm": "objpm", "mechanism": "laplace"},
    "certified, Gaussian, E = 1": {"algorithm": "objp"},
    "certified, Gaussian, E = 10": {"algorithm": "objpm"},
    "certified, hidden, E = 10": {"algorithm": "hidden"},
    "`outp`, `dp-fedavg` and `admm-outp`, Gaussian": {"algorithm": ("outp", "dp-fedavg", "admm-outp")},
    "the same with Laplace noise of the Euclidean norm": {
        "algorithm": ("outp", "dp-fedavg", "admm-outp"),
        "mechanism": "laplace",
    },
    "`dp-fedprox`, E = 10, Gaussian": {"algorithm": "dp-fedprox"},
    "`admm-objp`, Gaussian": {"algorithm": "admm-objp"},
    "`admm-objp`, Laplace": {"algorithm": "admm-objp", "mechanism": "laplace"},
    "`dpsgd`, q = 0.1": {"algorithm": "dpsgd", "sampling_rate": 0.1},
    "`dpsgd`, q = 0.5": {"algorithm": "dpsgd", "sampling_rate": 0.5},
    "`ceadmm`, E = 2, both fields seen": {"algorithm": "ceadmm", "local_updates": 2},
}
SUMS = {  # of ten sites: colluders and missing ones
    "one colluder, two sites missing": (1, 2),
    "eight colluders": (8, 0),
}


def found_by(audits: list[dict[str, Any]], wanted: dict[str, Any], delta: float) -> list[float]:
    """The bounds of the audits with some values; a tuple is a choice."""
    asked = {"mode": "certified", "adjacency": "add-remove", "noise": "seeded", "mechanism": "gaussian"} | wanted
    choices = {name: value if isinstance(value, tuple) else (value,) for name, value in asked.items()}
    return [
        audit["epsilon_lower"]
        for audit in audits
        if audit["delta"] == delta and all(audit[name] in values for name, values in choices.items())
    ]


def test_the_page_about_certified_mode_shows_what_audits_found() -> None:
    measured = read_results(results_file("audit"))
    audits, small = measured["audits"], measured["undersized"]
    shown = {label: cells for label, *cells in rows(CERTIFIED, "| what is audited | δ = 10⁻⁶")}
    for label, wanted in CERTIFIED_AUDITS.items():
        for cell, delta in zip(shown.pop(label), (1e-6, 0.01), strict=True):
            if cell:
                assert {f"{bound:.2f}" for bound in found_by(audits, wanted, delta)} == {cell}
    for number, label in enumerate(
        ("paper, E = 1, both arms with noise of one scale", "paper, E = 10, both arms with noise of one scale")
    ):
        first = [audit for audit in audits if audit["mode"] == "paper"][2 * number]["games"][0]
        assert shown.pop(label) == [f"{first['epsilon_lower']:.2f}", ""]
    (published, _), bound = shown.pop("paper, as published: the scale differs between the arms"), measured
    assert published.startswith(f"{bound['smallest_paper']:.2f}, all that")
    assert shown == {}
    certified = [audit["epsilon_lower"] for audit in audits if audit["mode"] == "certified"]
    assert f"the largest certified bound of all {len(certified)} is {max(certified):.3f}" in whole(CERTIFIED)
    sums = {label: cells for label, *cells in rows(CERTIFIED, "| a sum of ten sites |")}
    assert list(sums) == list(SUMS)
    for label, (colluders, missing) in SUMS.items():
        wanted = {"noise": "hardened", "colluders": colluders, "missing": missing, "algorithm": ("dpgd", "objw")}
        of_sums = [audit for audit in audits if audit["trust"] == "secure-sum"]
        honest, right, wrong = sums[label]
        assert honest == str(10 - colluders - missing)
        assert {f"{one:.2f}" for one in found_by(of_sums, wanted, 0.01)} == {right} and 0.85 < float(right) <= 1.0
        assert {f"{one:.2f}" for one in found_by(small, wanted, 0.01)} == {wrong} and float(wrong) > 1.0


def test_the_page_about_secure_sums_shows_what_a_slot_costs() -> None:
    measured = read_results(results_file("secure_sum"))
    expected = []
    for sites in (10, 50, 195):
        for name, costs in measured[f"{sites} sites"].items():
            if isinstance(costs, dict):
                times = ("site_masks_ms", "site_signatures_and_shares_ms", "server_checks_ms", "server_opening_ms")
                sent = ("bytes_up_over_float64", "bytes_up_over_float64_of_a_helper")
                gone = "none" if name == "all there" else name.removeprefix("missing ")
                expected.append([str(sites), gone, *(f"{costs[key]:.1f}" for key in times)])
                expected[-1] += [f"{costs[key]:.3f}" for key in sent]
    assert rows(SECURE_SUM, "| sites | missing | site: masks |") == expected


def test_the_page_about_private_evaluation_shows_what_was_measured() -> None:
    page = ROOT / "docs" / "explanation" / "private-evaluation.md"
    measured = {
        (f"{row['data']}, {row['held_out']:,}", row["trust"], f"{row['total_epsilon']:g}"): row
        for row in read_results(results_file("private_evaluation_accuracy"))["rows"]
    }
    trusts = {"secure sum": "secure-sum", "every site": "agents"}
    shown = rows(page, "| data, held-out records |")
    assert len(shown) >= 4
    for data, trust, epsilon, error, covered, loss, loss_covered in shown:
        row = measured[data.replace("MNIST", "mnist"), trusts[trust], epsilon]
        value, *errors = (float(cell.strip("± %")) for cell in error.split(","))
        assert value == pytest.approx(100.0 * row["error"]["without_noise"], abs=0.051)
        assert errors == pytest.approx(
            [100.0 * row["error"][f"stated_{of}"] for of in ("noise", "sampling")], abs=0.0051
        )
        losses = [row["log_loss"][key] for key in ("without_noise", "stated_noise")]
        assert [float(cell.strip("± ")) for cell in loss.split(",")] == pytest.approx(losses, abs=0.00051)
        for cell, name in ((covered, "error"), (loss_covered, "log_loss")):
            assert float(cell.strip("% ")) == pytest.approx(100.0 * row[name]["covered"], abs=0.51)


def test_the_page_about_deployment_shows_what_was_measured() -> None:
    text = whole(ROOT / "docs" / "howto" / "deployment.md")
    speed, many, kills = (read_results(results_file(f"federation_{name}")) for name in ("speed", "many", "kills"))
    ratios = speed["secure sum"]["ratios"]
    three, five, lost = (
        ratios[name] for name in ("3 sites, secure sum", "5 sites, secure sum", "5 sites, secure sum, one lost")
    )
    assert f"{three:.1f} with three sites, {five:.1f} with five, {lost:.1f} with five of which one is lost" in text
    assert f"| {many['secure sum']['ratios']['50 sites, secure sum, 3 killed']:.1f}, on two cores" in text
    table, slow = speed["small table"]["median_ms"], speed["small table, 100 ms and 1 MB/s"]["median_ms"]
    assert f"median {table['now']:.0f} ms; {table['before']:.0f} ms in the previous version" in text
    assert f"median {slow['now']:.0f} ms; {slow['before']:.0f} ms in the previous version" in text
    median = many["median_ms"]
    assert f"median {median['now'] / 1e3:.1f} s; {median['before'] / 1e3:.1f} s in the previous" in text
    gaps: dict[str, float] = {"site": 0.0, "coordinator": 0.0}
    for accident in (one for row in kills["rows"] for one in row["accidents"] if "kill" in one):
        who = "coordinator" if accident["kill"].startswith("coordinator") else "site"
        gaps[who] = max(gaps[who], accident["longest_gap_seconds"])
    assert f"at most {gaps['site']:.1f} s if a site was hit, {gaps['coordinator']:.1f} s if the coordinator" in text
    assert f"| {kills['kills']} processes killed at random" in text and f"| {kills['full_disks']} full disks" in text
    sums = kills["sums"]
    assert f"| {sums['kills']} processes killed in {sums['studies']} studies of a secure sum" in text
    added = [
        cost["added_cpu_ms"] for cost in read_results(results_file("sum_round")).values() if isinstance(cost, dict)
    ]
    assert "{:.1f} ms with 10 sites, {:.1f} ms with 50, {:.0f} ms with 195".format(*added) in text


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
