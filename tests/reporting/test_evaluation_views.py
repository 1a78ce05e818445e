"""What people see of private evaluations: reports, curves, the terminal, plans and both ledgers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import taciturn
from taciturn.privacy.budget import BudgetLedger
from taciturn.reporting.evaluation_tables import (
    REACH,
    confusion_table,
    evaluation_points,
    evaluation_sentence,
    evaluation_table,
    last_evaluations,
    reliability_table,
)
from taciturn.reporting.figures.evaluation_figure import evaluation_figure, text_alternative
from taciturn.reporting.narrative import result_sentences
from taciturn.reporting.statements import guarantee
from taciturn.runs.folder import RunFolder
from taciturn.runs.private_quality import Estimate, PrivateClassification, PrivateRegression
from taciturn.runs.records import EvaluationRow
from tests.cli.helpers import CERTIFIED, EXAMPLE, TABLE, refused, taciturn_json
from tests.cli.helpers import taciturn as command
from tests.dashboard.helpers import ask, dashboard

SETTINGS: dict[str, Any] = {
    "data": str(EXAMPLE / "records.csv"), "schema": str(EXAMPLE / "schema.toml"), "total_records": 600, "agents": 3,
    "test_share": 0.4, "partition_key": 0, "noise": "seeded", "rounds": 6, "evaluations": 3, "features": "none",
    "algorithm": "dpgd", "total_epsilon": "4,8", "seeds": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> taciturn.Run:
    return taciturn.run(**SETTINGS, out=str(tmp_path_factory.mktemp("views") / "r"))


def row(quality: Any, t: int = 3, run: int = 0, epsilon: float = 1.0) -> EvaluationRow:
    return EvaluationRow(run=run, algorithm="dpgd", epsilon=epsilon, round=t, agents=5, quality=quality)


RECORDS = Estimate(value=10_000.4, noise=7.3)
GOOD = PrivateClassification(records=RECORDS, error=Estimate(value=0.05, noise=0.003, sampling=0.004))


def test_a_report_shows_the_curve_and_the_tables_on_both_pages(run: taciturn.Run) -> None:
    for page in (run.folder.report, run.folder.local / "report.html"):
        text = page.read_text()
        assert 'id="evaluation"' in text and "± sampling" in text and "Held-out error, with noise" in text
        (last, other) = last_evaluations(run.folder.read_evaluations())
        assert evaluation_sentence(last) in text and evaluation_sentence(other) in text
    public = run.folder.read_summary(local=False)
    assert public.runs[0].test_error is None and public.runs[0].private_quality is not None
    error = public.runs[0].private_quality
    assert isinstance(error, PrivateClassification) and error.error is not None
    shown = f"{100 * error.error.value:.2f} ± {100 * error.error.error:.2f} %"
    assert shown in result_sentences(public)[1] or "ε = 8" in result_sentences(public)[1]
    assert shown in run.folder.report.read_text()
    assert f"trained {len(public.runs)} models together in" in result_sentences(public)[0]


def test_the_statement_says_who_is_charged_for_evaluations(run: taciturn.Run, tmp_path: Path) -> None:
    ledger = run.folder.read_ledger()
    said = " ".join(guarantee(ledger.study, ledger.totals).protected)
    assert "the model was measured on them 3 times" in said and "larger of what the two sides spent" in said
    replaced = taciturn.run(**SETTINGS | {"adjacency": "replace-one", "seeds": 1, "rounds": 3}, out=str(tmp_path / "r"))
    ledger = replaced.folder.read_ledger()
    assert "added up" in " ".join(guarantee(ledger.study, ledger.totals).protected)
    without = taciturn.run(**SETTINGS | {"evaluations": 0, "seeds": 1, "rounds": 3}, out=str(tmp_path / "w"))
    ledger = without.folder.read_ledger()
    assert "Held-out records" not in " ".join(guarantee(ledger.study, ledger.totals).protected)
    assert 'id="evaluation"' not in without.folder.report.read_text()


def test_a_curve_has_the_first_seed_of_each_setting_with_its_errors(run: taciturn.Run) -> None:
    rows = run.folder.read_evaluations()
    points = evaluation_points(rows)
    assert list(points) == ["dpgd, ε = 4", "dpgd, ε = 8"]
    assert [t for t, _ in points["dpgd, ε = 4"]] == [2, 4, 6]
    drawn = evaluation_figure(rows)
    (axes,) = drawn.axes
    assert len(axes.collections) == 4  # of both settings: noise alone, and noise and sampling
    assert text_alternative(rows).count("in round 6") == 2
    assert evaluation_figure([row(None)]).axes[0].texts[0].get_text() == "too few held-out records"


def test_the_dashboard_draws_it_with_a_band(run: taciturn.Run) -> None:
    for local in (True, False):
        app = dashboard(run.folder.path, local=local)
        identity = ask(app, "/api/runs").json["runs"][0]["id"]
        charts = ask(app, f"/api/runs/{identity}/curves").json["charts"]
        lines = charts["private_error"]["lines"]
        assert charts["private_error"]["local"] is False and [line["label"] for line in lines] == list(
            evaluation_points(run.folder.read_evaluations())
        )
        first, (_, estimate) = lines[0], evaluation_points(run.folder.read_evaluations())["dpgd, ε = 4"][-1]
        assert first["rounds"] == [2, 4, 6]
        assert first["mean"][-1] == pytest.approx(estimate.value, rel=1e-4)
        assert first["high"][-1] == pytest.approx(estimate.value + REACH * estimate.error, rel=1e-4)
        assert all(low >= 0.0 for low in first["low"])


def test_sentences_and_tables_of_every_kind() -> None:
    assert "5.00 ± 0.50 %" in evaluation_sentence(row(GOOD)) and "10,000" in evaluation_sentence(row(GOOD))
    assert "was not evaluated" in evaluation_sentence(row(None))
    few = PrivateClassification(records=Estimate(value=-3.0, noise=7.0), error=None)
    assert "too few held-out records" in evaluation_sentence(row(few)) and "about 0 " in evaluation_sentence(row(few))
    number = PrivateRegression(records=RECORDS, rmse=Estimate(value=3.2, noise=0.1, sampling=0.2))
    assert "root mean squared error" in evaluation_sentence(row(number))
    assert evaluation_table(number).rows[1] == ("RMSE", "3.2", "0.1", "0.2", "")
    assert evaluation_table(few).rows == [("held-out records", "-3", "7", "", "")]
    assert confusion_table(number, ()) is None and reliability_table(number) is None
    assert confusion_table(GOOD, ("a", "b")) is None
    assert last_evaluations([row(GOOD, 1), row(GOOD, 2), row(None, 3), row(GOOD, 9, run=1)])[0].round == 2


def test_the_command_line_evaluates_and_says_so(tmp_path: Path) -> None:
    given = (*CERTIFIED, "--rounds", "4", "--evaluations", "2", "--total-epsilon", "4", "--features", "none")
    done = command("run", *given, "--out", tmp_path / "r").stdout
    assert re.search(r"measured +The error of the model after round 4 is [\d.]+ ± [\d.]+ %", done)
    shown = taciturn_json("show", tmp_path / "r")
    assert shown["runs"][0]["private_quality"]["error"]["sampling"] > 0.0
    rows = [json.loads(line) for line in (tmp_path / "r" / "evaluations.jsonl").read_text().splitlines()]
    assert [one["round"] for one in rows] == [2, 4]
    ledger = RunFolder(tmp_path / "r").read_ledger()
    assert [entry.held_out for entry in ledger.releases].count(True) == 6
    assert "no records are held out" in refused("run", *TABLE, "--total-records", "600", "--evaluations", "2")
    assert "4 rounds" in refused("run", *given, "--evaluations", "5", "--out", tmp_path / "other")


def test_a_plan_says_what_an_evaluation_will_show() -> None:
    table = ("--data", TABLE[1], "--schema", str(EXAMPLE / "without_agents.toml"))
    given = (*table, "--total-records", "50000", "--agents", "10", "--test-share", "0.2", "--evaluations", "1")
    found = taciturn_json("plan", *given)["evaluations"]
    assert (found["records"], found["evaluations"], found["epsilon"]) == (10_000, 1, 1.0)
    by_trust = {option["trust"]: option for option in found["options"]}
    assert 100.0 * by_trust["server"]["alone"] == pytest.approx(0.042, abs=0.0005)  # points: one count, a trusted sum
    assert 100.0 * by_trust["server"]["noise"] == pytest.approx(0.073, abs=0.0005)  # with all that is measured
    assert by_trust["agents"]["chosen"] and by_trust["agents"]["noise"] > by_trust["secure-sum"]["noise"]
    text = command("plan", *given).stdout
    assert "0.073" in text and "0.042" in text and "held-out records" in text
    assert taciturn_json("plan", *given[:-2])["evaluations"] is None


def test_the_budget_ledger_shows_both_sides(tmp_path: Path) -> None:
    path = tmp_path / "c.ledger"
    account = BudgetLedger.create(path, "clinics", 4.0, 1e-6)
    given = (*CERTIFIED[:-2], "--noise", "hardened", "--rounds", "2", "--evaluations", "1", "--features", "none")
    command("run", *given, "--evaluation-epsilon", "0.5", "--ledger", path, "--out", tmp_path / "r")
    found = taciturn_json("ledger", path)
    assert found["split"] == account.state().split != ""
    assert 0.0 < found["used_held_out"]["gdp"] < found["used"]["gdp"] == found["studies"][0]["cost"]["gdp"]
    assert "training records have used 1" in command("ledger", path).stdout
    forecast = taciturn_json("run", *given, "--evaluation-epsilon", "0.5", "--ledger", path, "--dry-run")["ledger"]
    other = taciturn_json("run", *given, "--ledger", path, "--dry-run", "--partition-key", "9")["ledger"]
    assert forecast["used_after"] < other["used_after"]  # with another key both sides are charged for both
