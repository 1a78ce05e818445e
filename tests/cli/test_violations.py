"""A method that releases something without noise: every command stops with exit code 3, and nothing continues."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

import taciturn
from taciturn.algorithms import ALGORITHMS
from taciturn.errors import Interrupted, PrivacyViolation, TaciturnError
from taciturn.planning.noise_plan import RunPlan
from taciturn.privacy.budget import BudgetLedger
from taciturn.reporting.statements import headline
from taciturn.runs.folder import RunFolder
from tests.cli.helpers import CERTIFIED
from tests.cli.helpers import taciturn as command
from tests.cli.test_ranks import begin, end

LEAKY = """
import math

from taciturn.algorithms import ALGORITHMS, AlgorithmSpec
from taciturn.algorithms.iadmm import DpIadmm
from taciturn.privacy.events import non_private


class Leaky(DpIadmm):
    def agent_step(self, t, w, agent, data, noise):
        step = super().agent_step(t, w, agent, data, noise)
        if t < {first} or getattr(noise, "agent", 0) < {agent}:
            return step
        return step._replace(events={events})


def build(r):
    return Leaky(r.problem, r.rho, r.eta, r.release, 1, r.closing)


ALGORITHMS.register("{name}")(AlgorithmSpec("forgets its noise", "z", build, modes=("certified",), hardened=True))
"""
SAID = (
    "leaky released something without noise in round {t}, and its total-epsilon is {budget}: the run stops, and nothing"
)


WITHOUT_NOISE = "[non_private(w.shape[1])]"


@pytest.fixture(autouse=True)
def no_plugin_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests register is gone after them."""
    monkeypatch.setattr(ALGORITHMS, "_items", {name: ALGORITHMS[name] for name in ALGORITHMS})


def plugin(folder: Path, name: str = "leaky", first: int = 3, agent: int = 0, events: str = WITHOUT_NOISE) -> Path:
    """An algorithm whose rounds from `first` on have no noise, and say so; with seeds, from this agent on."""
    file = folder / f"{name}.py"
    file.write_text(LEAKY.format(name=name, first=first, agent=agent, events=events))
    return file


def asked(folder: Path, **more: Any) -> tuple[str, ...]:
    given = {"plugins": plugin(folder), "algorithm": "leaky", "rounds": 6, "noise": "seeded", **more}
    return (
        *CERTIFIED,
        *(str(part) for name, value in given.items() for part in (f"--{name.replace('_', '-')}", value)),
    )


def violated(*args: str | Path, cwd: Path) -> str:
    """Run a command that must end with exit code 3, one sentence and no result."""
    done = command(*args, code=3, cwd=cwd)
    assert done.stdout == ""
    said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(said) == 1, done.stderr
    return said[0]


def check_left(folder: Path, of: str = "") -> None:
    """No model, no summary, no report; the ledger has every draw and why the run stopped."""
    left = {path.name for path in folder.rglob("*")}
    assert not left & {"model.npz", "summary.json", "report.html", "averages.npz"}
    ledger = RunFolder.open(folder).read_ledger()
    *drawn, last = [entry for entry in ledger if entry["kind"] in ("release", "violation")]
    assert (last["kind"], last["round"]) == ("violation", 3)
    assert max(entry["last"] for entry in drawn) == 3 and min(entry["first"] for entry in drawn) == 1
    assert headline(ledger.totals).startswith(f"No guarantee: {of}leaky released something without noise in round 3")


@pytest.mark.parametrize("noise", ["seeded", "hardened"])
def test_run_and_resume_end_with_3_and_leave_no_model(tmp_path: Path, noise: str) -> None:
    said = violated("run", *asked(tmp_path, noise=noise), "--out", "r", cwd=tmp_path)
    assert said.startswith("error: privacy violation: " + SAID.format(t=3, budget=1))
    check_left(tmp_path / "r")
    before = (tmp_path / "r" / "ledger.jsonl").read_bytes()
    again = violated("resume", "r", cwd=tmp_path)
    assert "r cannot continue: leaky released something without noise in round 3" in again
    assert (tmp_path / "r" / "ledger.jsonl").read_bytes() == before


def test_the_ledger_over_studies_counts_what_no_plan_covered(tmp_path: Path) -> None:
    """Without noise there is no finite cost: nothing more fits."""
    command("ledger", "init", "l", "--total-epsilon", "3", "--delta", "1e-6", cwd=tmp_path)
    violated("run", *asked(tmp_path, noise="hardened", ledger="l"), "--out", "r", cwd=tmp_path)
    state = json.loads(command("ledger", "l", "--json", cwd=tmp_path).stdout)
    assert [study["state"] for study in state["studies"]] == ["violated"]
    assert state["epsilon_used"] == "inf" and state["epsilon_next"] == 0.0
    assert "is violated: it spent more" in command("ledger", "l", cwd=tmp_path).stdout
    more = command("run", *CERTIFIED[:-2], "--rounds", "2", "--ledger", "l", "--out", "s", code=2, cwd=tmp_path)
    assert "is exhausted" in more.stderr
    assert "cannot continue" in violated("resume", "r", cwd=tmp_path)
    assert json.loads(command("ledger", "l", "--json", cwd=tmp_path).stdout) == state
    *whole, _ = (tmp_path / "l").read_text().splitlines(keepends=True)  # a crash came before its last line
    (tmp_path / "l").write_text("".join(whole))
    head = Path(os.environ["XDG_STATE_HOME"]) / "taciturn" / "ledgers" / f"{json.loads(whole[0])['id']}.json"
    head.write_text(json.dumps({"lines": len(whole), "head": hashlib.sha256(whole[-1].strip().encode()).hexdigest()}))
    assert "cannot continue" in violated("resume", "r", cwd=tmp_path)
    assert json.loads(command("ledger", "l", "--json", cwd=tmp_path).stdout) == state


def test_a_sweep_ends_with_3_at_the_first_point(tmp_path: Path) -> None:
    over = ("--over", "clip=0.5,1")
    said = violated("sweep", *asked(tmp_path), *over, "--out", "s", cwd=tmp_path)
    assert SAID.format(t=3, budget=1) in said
    runs = sorted(path.parent for path in (tmp_path / "s").rglob("config.toml"))
    assert len(runs) == 1  # the second point has not begun
    check_left(runs[0])
    assert not {path.name for path in (tmp_path / "s").rglob("*")} & {"results.csv", "sweep.md", "sweep.png"}
    assert "cannot continue" in violated("sweep", "--resume", "s", cwd=tmp_path)
    assert len(list((tmp_path / "s").rglob("config.toml"))) == 1


def test_a_frontier_ends_with_3(tmp_path: Path) -> None:
    more = ("--trust", "agents,server", "--total-epsilon", "1", "--seed", "1", "--seeds", "2", "--out", "f")
    said = violated("frontier", *asked(tmp_path), *more, cwd=tmp_path)
    assert SAID.format(t=3, budget=1) in said
    runs = [path.parent for path in (tmp_path / "f").rglob("config.toml")]
    assert len(runs) == 1
    assert not {path.name for path in (tmp_path / "f").rglob("*")} & {"frontier.json", "frontier.md", "model.npz"}
    assert "cannot continue" in violated("frontier", "--resume", "f", cwd=tmp_path)


def test_a_point_that_violates_after_one_that_diverged_stops_all(tmp_path: Path) -> None:
    """A sweep continues after a divergence, and after no other failure."""
    steps = ("--over", "eta=1e300,1", "--rho", "1e-300")
    violated("sweep", *asked(tmp_path), *steps, "--out", "s", cwd=tmp_path)
    first, second = sorted(path.parent for path in (tmp_path / "s").rglob("config.toml"))
    assert all(entry["kind"] != "violation" for entry in RunFolder(first).read_ledger())
    assert RunFolder(second).read_ledger()[-1]["kind"] == "violation"


@pytest.mark.torch
def test_all_ranks_stop_with_3_where_one_of_them_violates(tmp_path: Path) -> None:
    """The third agent is rank 1's; rank 0, which saw nothing wrong, stops in the same round and writes it down."""
    pytest.importorskip("torch")
    plugin(tmp_path, agent=2)
    given = ("--plugins", tmp_path / "leaky.py", "--algorithm", "leaky", "--rounds", "6", "--noise", "seeded")
    stdout, stderr = end(begin("run", *CERTIFIED, *given, "--out", tmp_path / "r"), 3, 3)
    assert stdout == "" and f"error: privacy violation: rank 1: {SAID.format(t=3, budget=1)}" in stderr
    check_left(tmp_path / "r", of="rank 1: ")
    stdout, stderr = end(begin("resume", tmp_path / "r"), 3, 3)
    assert "cannot continue" in stderr


@pytest.mark.parametrize(
    ("events", "words"),
    [("[]", "sent something in round 1 without an event"), ("2 * list(step.events)", "released 2 times in round 1")],
)
def test_a_release_that_only_one_agent_does_not_account_for_is_noticed(tmp_path: Path, events: str, words: str) -> None:
    name = f"leaky_{len(events)}"
    file = plugin(tmp_path, name, first=1, agent=1, events=events)
    with pytest.raises(PrivacyViolation, match=words):
        taciturn.run(
            plugins=str(file), algorithm=name, features="none", agents=2, rounds=2, noise="seeded", out=tmp_path / "r"
        )


def test_no_handler_of_errors_catches_a_violation() -> None:
    assert not issubclass(PrivacyViolation, Exception)
    for kind in (TaciturnError, Interrupted):
        assert not issubclass(PrivacyViolation, kind)


def test_python_gets_the_violation_itself(tmp_path: Path) -> None:
    file = plugin(tmp_path, "leaky_in_python", first=1)
    settings: dict[str, Any] = {"plugins": str(file), "algorithm": "leaky_in_python", "features": "none", "rounds": 2}
    with pytest.raises(PrivacyViolation, match="without noise in round 1"):
        taciturn.run(out=tmp_path / "r", agents=2, **settings)
    with pytest.raises(PrivacyViolation, match="cannot continue"):
        taciturn.resume(tmp_path / "r")
    with pytest.raises(PrivacyViolation):
        taciturn.sweep(over={"clip": [0.5, 1.0]}, agents=2, out=tmp_path / "s", **settings)


CHEAT = """
from dataclasses import replace

from taciturn.algorithms import ALGORITHMS, AlgorithmSpec
from taciturn.algorithms.gradient_descent import DpGd
from taciturn.algorithms.schedules import GradientStep
from taciturn.privacy.events import BatchEvent


class Cheat(DpGd):
    def agent_step(self, t, w, agent, data, noise):
        step = super().agent_step(t, w, agent, data, noise)
        less = [BatchEvent(tuple(replace(one, scale=one.scale / 20) for one in event.runs)) for event in step.events]
        return step._replace(events=tuple(less))


def build(r):
    return Cheat(r.problem, r.rho, r.eta, r.release, r.closing)


SPEC = AlgorithmSpec("less noise than planned", "z", build, modes=("certified",), step_kind=GradientStep)
ALGORITHMS.register("cheat")(SPEC)
"""


@pytest.mark.parametrize("noise", ["seeded", "hardened"])
def test_less_noise_than_planned_is_a_violation(tmp_path: Path, noise: str) -> None:
    (tmp_path / "cheat.py").write_text(CHEAT)
    given: list[str | Path] = [
        "--rounds",
        "3",
        "--noise",
        noise,
        "--plugins",
        tmp_path / "cheat.py",
        "--algorithm",
        "cheat",
    ]
    account = BudgetLedger.create(tmp_path / "l", "patients", 2.0, 1e-6)
    given += ["--ledger", account.path] if noise == "hardened" else []
    done = command("run", *CERTIFIED, *given, "--out", tmp_path / "r", code=3)
    assert "in round 1 with less noise than any release of its plan" in done.stderr
    assert not (tmp_path / "r" / "model.npz").exists()
    if noise == "hardened":  # it stopped in round 1 of 3, and its whole plan stays spent
        assert [one.state for one in account.state().studies] == ["violated"]
        assert account.state().epsilon_used >= 0.999


def test_a_ledger_beyond_its_budget_ends_without_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever got past the checks of single rounds."""
    monkeypatch.setattr(RunPlan, "covers", lambda plan, event: True)
    (tmp_path / "cheat.py").write_text(CHEAT.replace('"cheat"', '"cheater"'))
    table: dict[str, Any] = {"data": CERTIFIED[1], "schema": CERTIFIED[3], "total_records": 600, "agents": 3}
    account = BudgetLedger.create(tmp_path / "l", "patients", 2.0, 1e-6)
    table |= {"plugins": [tmp_path / "cheat.py"], "algorithm": "cheater", "ledger": str(account.path)}
    with pytest.raises(PrivacyViolation, match=r"adds up to epsilon .*, more than its budget of 1"):
        taciturn.run(**table, rounds=3, out=str(tmp_path / "r"))
    assert not (tmp_path / "r" / "model.npz").exists() and not (tmp_path / "r" / "summary.json").exists()
    with pytest.raises(PrivacyViolation, match="cannot continue"):
        taciturn.resume(tmp_path / "r")
    state, spent = account.state(), RunFolder(tmp_path / "r").read_ledger().totals["total_epsilon"]
    assert [study.state for study in state.studies] == ["violated"]
    assert spent > 1.0 and state.epsilon_used == pytest.approx(spent, rel=1e-6)  # the ledger has what was spent
