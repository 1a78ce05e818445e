"""Certified runs from the command line: plan, run, ledger, audit and report, and invalid requests."""

from __future__ import annotations

import json
import math
import os
import signal
import tomllib
from pathlib import Path

import pytest
from dp_accounting.gaussian_mechanism import get_epsilon_gaussian

from taciturn.privacy.signatures import own_key
from tests.cli.helpers import (
    CERTIFIED,
    DECLARED,
    EXAMPLE,
    PATIENCE,
    TABLE,
    refused,
    started,
    taciturn,
    taciturn_json,
    wait_for_rows,
)
from tests.settings.test_default_noise import with_a_seed


def test_your_own_table_is_protected_by_default(tmp_path: Path) -> None:
    """Nothing is set except the table and its public facts."""
    asked = (*TABLE, *DECLARED)
    for shown in (taciturn("plan", *asked).stdout, taciturn("run", *asked, "--dry-run").stdout):
        assert "hardened" in shown and "seeded" not in shown and "times one over" not in shown
    large = (*asked, "--delta", "0.001")
    for shown in (taciturn("plan", *large).stdout, taciturn("run", *large, "--dry-run").stdout):
        assert "delta 0.001 is 0.6 times one over 600 records: it should be far smaller" in shown
    shown = taciturn("run", *asked, "--out", tmp_path / "r").stdout
    assert "total epsilon 1 at delta 1e-06" in shown
    assert "Simulated" not in shown and "seed" not in shown
    assert tomllib.loads((tmp_path / "r" / "config.toml").read_text())["noise"] == "hardened"
    assert with_a_seed(tmp_path / "r") == []
    assert "total epsilon 1 at delta 1e-06" in taciturn("ledger", tmp_path / "r").stdout
    for words in (("show",), ("compare",), ("export", "--to", "csv")):
        assert "seed " not in taciturn(words[0], tmp_path / "r", *words[1:]).stdout
    said = refused("plot", tmp_path / "r", "--what", "sent", "--out", tmp_path / "sent.png")
    assert "hardened noise" in said and "--seed N" in said
    taciturn("resume", tmp_path / "r")

    taciturn("plan", *asked, "--out", tmp_path / "plan.toml")
    assert tomllib.loads((tmp_path / "plan.toml").read_text())["noise"] == "hardened"
    simulated = taciturn("run", *asked, "--seed", "1", "--rounds", "3", "--out", tmp_path / "s").stdout
    assert "Simulated" in simulated


def test_the_whole_journey(tmp_path: Path) -> None:
    """Plan a budget, run the plan, read the ledger, audit the setting, hand over the report."""
    planned = taciturn(
        "plan", *CERTIFIED, "--total-epsilon", "2", "--out", "plan.toml", "--plot", "plan.png", cwd=tmp_path
    )
    assert "total epsilon 2 at delta 1e-06: additive" in planned.stdout
    assert "noise to signal" in planned.stdout
    assert (tmp_path / "plan.png").read_bytes()[1:4] == b"PNG"
    config = tomllib.loads((tmp_path / "plan.toml").read_text())
    assert config["noise"] == "seeded" and "seed 1" in (tmp_path / "plan.toml").read_text().splitlines()[1]
    assert {"rounds", "clip", "rho", "eta", "eta_scale", "total_epsilon", "delta", "total_records"} <= set(config)

    done = taciturn("run", "plan.toml", "--out", "r", cwd=tmp_path)
    assert "total epsilon 2 at delta 1e-06" in done.stdout
    spent = taciturn_json("ledger", "r", cwd=tmp_path)
    assert {"total_epsilon", "delta", "planned_epsilon", "agents", "events"} <= set(spent)
    assert 1.998 <= spent["total_epsilon"] <= 2.0
    assert spent["total_epsilon"] == pytest.approx(spent["planned_epsilon"])
    event = spent["events"][0]
    independent = get_epsilon_gaussian(event["scale"] / event["l2"] / math.sqrt(event["count"]), 1e-6)
    assert spent["total_epsilon"] == pytest.approx(independent, rel=1e-6)
    assert {agent["agent"] for agent in spent["agents"]} == {"north", "south", "west"}
    assert "north, south, west" in taciturn("ledger", "r", cwd=tmp_path).stdout

    assert "has not been audited" in (tmp_path / "r" / "report.html").read_text()
    found = taciturn_json("audit", "--run", "r", "--releases", "4000", "--seed", "1", cwd=tmp_path)
    assert found["claim"] == 2.0 and not found["exceeded"]
    assert found["epsilon_lower"] <= found["claim"] and found["confidence"] == 0.999
    report = (tmp_path / "r" / "report.html").read_text()
    assert "has not been audited" not in report and "Gaussian composition" in report
    assert "--adjacency" in refused("audit", "--run", "r", "--adjacency", "replace-one", cwd=tmp_path)


def test_the_plan_is_what_a_run_does_by_default(tmp_path: Path) -> None:
    plan = taciturn_json("plan", *CERTIFIED, "--total-epsilon", "2")
    run = taciturn_json("run", *CERTIFIED, "--total-epsilon", "2", "--out", tmp_path / "r")
    assert run["runs"][0]["rounds"] == plan["rounds"]
    assert run["runs"][0]["rho"] == pytest.approx(plan["rho"])
    assert run["privacy"]["events"][0]["scale"] == pytest.approx(plan["noise"]["scale"])
    assert [budget["total_epsilon"] for budget in plan["budgets"] if budget["chosen"]] == [2.0]


def test_the_ledger_over_studies(tmp_path: Path) -> None:
    run = ("run", *CERTIFIED, "--rounds", "3", "--noise", "hardened", "--ledger", "l")
    taciturn("ledger", "init", "l", "--total-epsilon", "1.3", cwd=tmp_path)
    taciturn(*run, "--out", "a", cwd=tmp_path)
    report, reservation = (
        (tmp_path / "a" / "report.html").read_text(),
        taciturn_json("ledger", "l", cwd=tmp_path)["studies"],
    )
    assert f"Charged to the budget ledger l, as reservation {reservation[0]['reservation']}." in report
    assert f"signed for the organisation by key {own_key().public.id}." in report
    assert "taciturn ledger verify a --key KEY.pub" in report and str(tmp_path) not in report
    assert "used or reserved" in taciturn("ledger", "l", cwd=tmp_path).stdout
    assert "is exhausted" in refused(*run, "--out", "b", cwd=tmp_path)
    state = taciturn_json("ledger", "l", cwd=tmp_path)
    taciturn(*run, "--out", "b", "--total-epsilon", str(0.99 * state["epsilon_next"]), cwd=tmp_path)
    assert taciturn_json("ledger", "l", cwd=tmp_path)["epsilon_used"] <= 1.3


def test_a_ledger_that_was_tampered_with_is_found(tmp_path: Path) -> None:
    out = tmp_path / "r"
    taciturn("run", *CERTIFIED, "--rounds", "3", "--out", out)
    text = (out / "ledger.jsonl").read_text()
    (out / "ledger.jsonl").write_text(text.replace('"count": 3', '"count": 1', 1))
    assert "was changed" in refused("ledger", out)
    (out / "ledger.jsonl").write_text("".join(text.splitlines(keepends=True)[:-1]))
    assert "truncated" in refused("ledger", out)


HARDENED = ("run", *CERTIFIED, "--rounds", "400", "--noise", "hardened")


def test_killed_hardened_runs_continue_within_their_budget(tmp_path: Path) -> None:
    """kill -9, twice: what was drawn and lost is charged, the total never exceeds the plan, the ledger only grows."""
    out = tmp_path / "r"
    process = started(*HARDENED, "--out", out)
    for target in (30, 60):
        wait_for_rows(out, target)
        process.kill()
        process.communicate()
        before = (out / "ledger.jsonl").read_text()
        process = started("resume", out)
    assert process.wait(timeout=PATIENCE) == 0
    assert (out / "ledger.jsonl").read_text().startswith(before.rpartition("\n")[0])
    spent = taciturn_json("ledger", out)
    assert spent["total_epsilon"] <= 1.0
    assert spent["total_epsilon"] == pytest.approx(1.0, rel=0.02)
    assert taciturn_json("show", out)["runs"][0]["rounds"] >= 398  # a round for each kill at most


def test_a_stopped_certified_run_ends_in_the_same_bytes(tmp_path: Path) -> None:
    run = ("run", *CERTIFIED, "--averages", "--rounds", "400", "--total-epsilon", "1,3")
    taciturn(*run, "--out", tmp_path / "a")
    process = started(*run, "--out", tmp_path / "b", "--checkpoint-seconds", "0.1")
    wait_for_rows(tmp_path / "b", 100)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    taciturn("resume", tmp_path / "b")
    for name in ("model.npz", "averages.npz"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    totals = [taciturn_json("ledger", tmp_path / name) for name in "ab"]
    assert totals[0]["events"] == totals[1]["events"]


GARBAGE = ("--data", "t.csv", "--schema", str(EXAMPLE / "schema.toml"), "--noise", "seeded")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("--total-epsilom", "1", *DECLARED), "no such option '--total-epsilom'"),
        (("--total-epsilon", "0", *DECLARED), "total-epsilon is 0: it must be above 0, or inf"),
        (("--total-epsilon", "-2", *DECLARED), "total-epsilon is -2: it must be above 0, or inf"),
        (("--delta", "0", *DECLARED), "delta is 0: it must be above 0 and below 1"),
        (("--delta", "1", *DECLARED), "delta is 1: it must be above 0 and below 1"),
        (("--clip", "0", *DECLARED), "clip is 0: it must be above 0"),
        (("--agents", "3"), "a private table needs total_records (--total-records), the total number"),
        (("--noise-multiplier", "0.1", *DECLARED), "the budget is exhausted before the first round"),
        (("--algorithm", "hidden", "--noise", "hardened", *DECLARED), "hidden has no exact noise"),
        (("--algorithm", "dpsgd", "--adjacency", "replace-one", *DECLARED), "dpsgd needs adjacency add-remove"),
        (("--algorithm", "dpsgd", "--mechanism", "laplace", *DECLARED), "dpsgd needs mechanism gaussian"),
        (("--algorithm", "dp-fedavg", "--eta", "100", *DECLARED), "dp-fedavg needs eta L <= 2"),
        (("--algorithm", "admm-objp", "--loss", "squared", *DECLARED), "admm-objp needs a smooth loss with bounded"),
        (("--algorithm", "erm-outp", "--set", "box", *DECLARED), "erm-outp needs set all"),
        (("--algorithm", "admm-outp", "--precision", "float32", *DECLARED), "admm-outp needs precision float64"),
        (("--algorithm", "dp-fedavg", "--precision", "float32", *DECLARED), "dp-fedavg needs precision float64"),
        (("--algorithm", "dpsgd", "--sampling-rate", "1e-9", "--rounds", "9", *DECLARED), "above delta / rounds"),
        (("--algorithm", "outp", "--rounds", "200000", *DECLARED), "at most 100,000"),
        (("--algorithm", "admm-objp", "--rho", "1e-9", *DECLARED), "cost epsilon"),
        (("--algorithm", "erm-objp", "--loss", "hinge", *DECLARED), "erm-objp needs a smooth loss"),
        (("--sampling-rate", "0.1", *DECLARED), "additive uses all records: dpsgd, fedavg, fedprox support it"),
        (("--algorithm", "fedavg", *DECLARED), "fedavg adds no noise and cannot keep it"),
        (("--algorithm", "hidden", "--mechanism", "laplace", *DECLARED), "hidden needs mechanism gaussian"),
        (("--algorithm", "hidden", "--eta", "100", *DECLARED), "hidden needs eta L <= 2"),
        (("--algorithm", "hidden", "--loss", "squared", *DECLARED), "hidden needs a smooth loss with bounded gradient"),
        (("--algorithm", "hidden", "--loss", "hinge", *DECLARED), "hidden needs a smooth loss"),
        (("--mechanism", "laplace", "--clip-l1", "inf", *DECLARED), "clip-l1 is inf, but laplace noise is scaled"),
        (("--ledger", "none", "--noise", "hardened", *DECLARED), "there is no ledger none"),
        (("--epsilon", "1", *DECLARED), "certified mode takes --total-epsilon"),
    ],
)
def test_invalid_settings_are_refused_before_a_record_is_read(
    tmp_path: Path, args: tuple[str, ...], sentence: str
) -> None:
    """The table is no table at all: had it been read, the sentence would be about that."""
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe\x00 garbage")
    assert sentence in refused("run", *GARBAGE, *args, cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_a_table_without_public_bounds(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe\x00 garbage")
    assert "needs a schema" in refused("run", "--data", "t.csv", *DECLARED, cwd=tmp_path)
    bounded = '[columns.radius]\nkind = "numeric"\nbounds = [0.0, 30.0]\n'
    schema = (EXAMPLE / "schema.toml").read_text()
    (tmp_path / "s.toml").write_text(schema.replace(bounded, '[columns.radius]\nkind = "numeric"\n'))
    assert "[columns.radius] needs the key bounds" in refused(
        "run", "--data", "t.csv", "--schema", "s.toml", *DECLARED, cwd=tmp_path
    )


def test_a_misspelt_privacy_key_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('adjacensy = "replace-one"\n')
    assert "no setting 'adjacensy' (did you mean 'adjacency'?)" in refused("run", "c.toml", cwd=tmp_path)


def test_an_exhausted_ledger_stops_before_reading(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe\x00 garbage")
    taciturn("ledger", "init", "l", "--total-epsilon", "0.5", cwd=tmp_path)
    sentence = refused("run", *GARBAGE, *DECLARED, "--noise", "hardened", "--ledger", "l", cwd=tmp_path)
    assert "the budget of l is exhausted" in sentence
    assert "does not fit" not in sentence


def test_plan_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    assert "mode paper has no total budget" in refused("plan", "--mode", "paper")
    (tmp_path / "p.toml").write_text("")
    assert "p.toml exists" in refused("plan", *TABLE, *DECLARED, "--out", "p.toml", cwd=tmp_path)
    assert "picture's format" in refused("plan", *TABLE, *DECLARED, "--plot", "p.txt", cwd=tmp_path)


def test_the_paper_modes_ledger_is_infinite(tmp_path: Path) -> None:
    taciturn("run", *TABLE, "--mode", "paper", "--rounds", "2", "--out", tmp_path / "r")
    assert taciturn_json("ledger", tmp_path / "r")["total_epsilon"] == "inf"
    assert "No end-to-end guarantee" in taciturn("ledger", tmp_path / "r").stdout
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["privacy"]["total_epsilon"] == "inf"
