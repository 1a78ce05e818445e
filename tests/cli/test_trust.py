"""Trust models from plan to audit: plan, dry run, ledger and audit agree on who is trusted."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.helpers import CERTIFIED, refused, taciturn, taciturn_json

SUM = (*CERTIFIED, "--trust", "secure-sum", "--algorithm", "dpgd", "--rounds", "6", "--total-epsilon", "3")


def test_a_secure_sum_from_plan_to_audit(tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.toml", tmp_path / "r"
    planned = taciturn_json("plan", *SUM, "--out", plan)
    assert planned["trust"] in taciturn("plan", *SUM).stdout
    assert taciturn_json("run", plan, "--out", out, "--dry-run")["trust"] == planned["trust"]
    taciturn("run", plan, "--out", out)
    study = json.loads((out / "ledger.jsonl").read_text().splitlines()[0])
    assert (study["trust"], study["colluders"]) == ("secure-sum", 1)
    audited = taciturn_json("audit", "--run", out, "--releases", "1000", "--seed", "1")
    assert (audited["trust"], audited["agents"], audited["honest"], audited["exceeded"]) == ("secure-sum", 3, 2, False)
    assert "the sum over 2 agents" in (out / "report.html").read_text()
    assert "secure-sum" in refused("plot", out, "--what", "sent", "--out", tmp_path / "sent.png")


def test_a_trusted_server_is_named(tmp_path: Path) -> None:
    shown = taciturn("run", *SUM, "--trust", "server", "--out", tmp_path / "r").stdout
    study = json.loads((tmp_path / "r" / "ledger.jsonl").read_text().splitlines()[0])
    assert study["trust"] == "server" and "server" in shown
