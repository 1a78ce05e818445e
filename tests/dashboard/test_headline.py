"""The dashboard's headline equals the report's, for every kind of run and at every stage."""

from __future__ import annotations

from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import taciturn
from taciturn.dashboard.privacy_view import privacy_reply
from taciturn.reporting.statements import guarantee
from taciturn.runs.folder import RunFolder
from taciturn.runs.ledger import RunLedger
from taciturn.runs.records import LedgerEntry, NonPrivateEntry, ViolationEntry
from tests.dashboard.conftest import DECLARED, TABLE

SEEDED: dict[str, Any] = {"noise": "seeded"}
RUNS: dict[str, dict[str, Any]] = {
    "agents": SEEDED,
    "hardened": {"noise": "hardened"},
    "secure-sum": {**SEEDED, "trust": "secure-sum", "colluders": 1},
    "server": {**SEEDED, "trust": "server", "algorithm": ["objw"]},
    "central": {**SEEDED, "algorithm": ["erm-objp"]},
    "central beside agents": {**SEEDED, "algorithm": ["objp", "erm-outp"]},
    "without noise": {**SEEDED, "total_epsilon": "inf"},
    "with and without noise": {**SEEDED, "total_epsilon": "1,inf"},
    "little": {"noise": "hardened", "total_epsilon": 20},
}
SAID = {
    "server": "against all but the server, which is trusted with what every party sends",
    "secure-sum": "if only sums of what all parties send are seen",
    "central": "against all but the curator",
    "without noise": "No guarantee: the run was made without noise",
    "with and without noise": "(the run without noise protects nobody)",
    "little": "(an epsilon above 10 protects little in practice)",
}


@pytest.fixture(scope="module", params=RUNS)
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, RunFolder]:
    name = request.param
    out = tmp_path_factory.mktemp("headline") / "r"
    return name, taciturn.run(**TABLE, **DECLARED, rounds=2, out=out, **RUNS[name]).folder


def read(ledger: Sequence[LedgerEntry]) -> tuple[str, bool]:
    """Return the dashboard's headline, after checking that the report's statement has the same."""
    lines = RunLedger(tuple(ledger))
    shown, stated = privacy_reply(lines, {}), guarantee(lines.study, lines.totals)
    assert (shown.headline, shown.good) == (stated.headline, stated.good)
    return shown.headline, shown.good


def test_the_headline_is_that_of_the_report_during_and_after_a_run(finished: tuple[str, RunFolder]) -> None:
    name, folder = finished
    ledger = folder.read_ledger()
    planned = [entry for entry in ledger if entry["kind"] != "release"]
    begun = ledger[: len(planned) + 1]
    found = {read(part) for part in (planned, begun, ledger)}
    assert len(found) == 1, "what a run promises does not change while it keeps it"
    ((sentence, good),) = found
    assert f">{sentence}<" in unescape(folder.report.read_text()) and SAID.get(name, "") in sentence
    assert good == (name in ("hardened", "little"))


def test_a_run_that_overspent_says_so(finished: tuple[str, RunFolder]) -> None:
    ledger = finished[1].read_ledger()
    releases = [entry for entry in ledger if entry["kind"] == "release"]
    sentence, good = read([*ledger, *releases, *releases])
    if finished[0] != "without noise":
        assert sentence.startswith("No guarantee as planned: the ledger adds up to epsilon") and not good


def test_non_private_lines_in_the_ledger_withdraw_the_guarantee(made: Path) -> None:
    ledger = RunFolder.open(made / "sweep" / "hardened").read_ledger()
    assert read(ledger)[1]
    sentence, good = read([*ledger, NonPrivateEntry(agent="north", reason="noise from a seed")])
    assert "noise from a seed" in sentence and not good
    stopped = ViolationEntry(algorithm="dpgd", round=3, reason="dpgd sent something without an event")
    assert read([*ledger, stopped]) == ("No guarantee: dpgd sent something without an event.", False)
