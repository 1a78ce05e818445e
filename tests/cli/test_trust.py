"""A secure sum from plan to audit: every page says what its number takes for granted."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.helpers import CERTIFIED, refused, taciturn, taciturn_json

SUM = (*CERTIFIED, "--trust", "secure-sum", "--algorithm", "dpgd", "--rounds", "6", "--total-epsilon", "3")
TOLD = "at most one agent tells the server what it knows"


def test_a_secure_sum_from_plan_to_audit(tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.toml", tmp_path / "r"
    said = taciturn("plan", *SUM, "--out", plan).stdout
    assert TOLD in said and "on every update's gradient, summed over all agents" in said
    foreseen = taciturn("run", plan, "--out", out, "--dry-run").stdout
    assert f"trust    only sums of what all agents send are seen, by the server too, and {TOLD}" in foreseen
    told = taciturn("run", plan, "--out", out).stdout
    assert "if only sums of what all parties send are seen and at most one party tells the server" in told
    assert json.loads((out / "ledger.jsonl").read_text().splitlines()[0])["colluders"] == 1
    audited = taciturn_json("audit", "--run", out, "--releases", "1000", "--seed", "1")
    assert (audited["trust"], audited["agents"], audited["honest"], audited["exceeded"]) == ("secure-sum", 3, 2, False)
    report = (out / "report.html").read_text().replace("&#39;", "'")
    assert "Nobody may see what a single party sent" in report
    assert "those of any 2 of the 3 come to all of it" in report
    assert "the sum over 2 agents whose noise nobody knows" in report
    assert "one share of the noise is too little" in report
    assert "trust is secure-sum" in refused(
        "plot", out, "--what", "sent", "--out", tmp_path / "sent.png"
    )


def test_a_trusted_server_is_named(tmp_path: Path) -> None:
    told = taciturn("run", *SUM, "--trust", "server", "--out", tmp_path / "r").stdout
    assert "against all but the server, which is trusted with what every party sends" in told
    report = (tmp_path / "r" / "report.html").read_text()
    assert "by the server, to the sum over all parties" in report
    assert "Against the server: it sees what every party sends without noise." in report
