"""`taciturn run --backend torch` agrees with numpy up to rounding, can be resumed, and rejects what it cannot do."""

from __future__ import annotations

import json
import signal
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn import run as taciturn_run
from tests.cli.helpers import (
    CERTIFIED,
    CLINICS,
    PAPER,
    PATIENCE,
    TABLE,
    refused,
    taciturn,
    taciturn_json,
    wait_for_rows,
)
from tests.cli.test_interrupted import LONG, begin, same_end

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

DIGITS: dict[str, Any] = {"data": "mnist14", "features": "none", "rounds": 3, "agents": 5, "seeds": 2}
BIOPSIES: dict[str, Any] = {
    "data": TABLE[1], "schema": TABLE[3], "test_share": 0.25, "partition_key": 0, "noise": "seeded", "rounds": 3,
    "seeds": 2,
}  # fmt: skip
ROUNDED = {"test_error", "train_objective", "consensus_residual", "noise", "rho", "eta"}


def rows(folder: Path) -> list[dict[str, Any]]:
    """Metrics, and what is local-only."""
    files = [path for path in (folder / "metrics.jsonl", folder / "local-only" / "metrics.jsonl") if path.is_file()]
    read = [[json.loads(line) for line in path.read_text().splitlines()] for path in files]
    return [{name: value for part in parts for name, value in part.items()} for parts in zip(*read, strict=True)]


@pytest.mark.parametrize(
    "more",
    [
        {"mode": "paper", "algorithm": "objpm,outp", "epsilon": "1,inf", "local_updates": 3, "server": "full"},
        {"algorithm": "objp", "total_epsilon": "1,inf", "mechanism": "laplace"},
        {"algorithm": "hidden", "local_updates": 3, "averages": False, "total_records": 600, "agents": 3},
    ],
)
def test_it_is_numpys_run_to_rounding(tmp_path: Path, more: dict[str, Any]) -> None:
    records = DIGITS if more["algorithm"] == "objp" else BIOPSIES
    for backend in ("numpy", "torch"):
        taciturn_run(**records, **more, backend=backend, out=str(tmp_path / backend))
    expected, found = (rows(tmp_path / backend) for backend in ("numpy", "torch"))
    for a, b in zip(expected, found, strict=True):
        for name in set(a) - {"seconds"}:
            assert b[name] == (pytest.approx(a[name], rel=1e-9) if name in ROUNDED else a[name]), name
    models = [np.load(tmp_path / backend / "model.npz")["w"] for backend in ("numpy", "torch")]
    assert models[0].dtype == models[1].dtype
    np.testing.assert_allclose(models[1], models[0], rtol=0, atol=1e-9 * np.abs(models[0]).max())
    ledgers = [(tmp_path / backend / "ledger.jsonl").read_text() for backend in ("numpy", "torch")]
    assert ledgers[0] == ledgers[1]


def test_single_precision_stays_single(tmp_path: Path) -> None:
    method: dict[str, Any] = {"mode": "paper", "algorithm": "objp", "epsilon": 0.05, "precision": "float32"}
    taciturn_run(**DIGITS, **method, backend="torch", out=str(tmp_path / "r"))
    assert np.load(tmp_path / "r" / "model.npz")["w"].dtype == np.float32
    released = [json.loads(line) for line in (tmp_path / "r" / "ledger.jsonl").read_text().splitlines()]
    assert {entry["epsilon"] for entry in released if entry["kind"] == "release"} == {0.05}


def test_stopped_and_resumed_it_ends_in_the_same_bytes(tmp_path: Path) -> None:
    fewer = ("--rounds", "60", "--backend", "torch")
    taciturn(*LONG, *fewer, "--out", tmp_path / "straight", torch=True)
    process = begin(tmp_path / "r", *fewer)
    wait_for_rows(tmp_path / "r", 20)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    process.communicate()
    assert tomllib.loads((tmp_path / "r" / "config.toml").read_text())["backend"] == "torch"
    taciturn("resume", tmp_path / "r", torch=True)
    same_end(tmp_path / "r", tmp_path / "straight")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("--backend", "torch", "--algorithm", "admm", *PAPER), "admm supports only numpy"),
        (("--backend", "torch", "--noise", "hardened"), "hardened noise is added to exact integer sums"),
        (("--backend", "numpy", "--device", "cuda"), "backend numpy supports only cpu: use --backend torch"),
        (("--backend", "torch", "--tf32"), "it needs --device cuda and --precision float32"),
        (
            ("--backend", "torch", "--features", "none", "--memory", "1kB", "--rounds", "1"),
            "torch needs them in memory",
        ),
        (("--device", "cuda:99"), "device is cuda:99, but torch"),
    ],
)
def test_what_it_cannot_do_is_refused(tmp_path: Path, args: tuple[str, ...], sentence: str) -> None:
    assert sentence in refused("run", *args, cwd=tmp_path, torch=True)
    assert list(tmp_path.iterdir()) == []


def test_without_torch_or_its_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run cannot start or continue, and says why; trained models can still be read and used, and runs planned."""
    taciturn("run", *CLINICS, "--rounds", "2", "--backend", "torch", "--out", tmp_path / "done", torch=True)
    process = begin(tmp_path / "r", "--backend", "torch")
    wait_for_rows(tmp_path / "r", 5)
    process.kill()
    process.communicate()
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "torch.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    sentence = "--backend torch needs torch, which is not installed: pip install 'taciturn[torch]'"
    assert refused("run", *CLINICS, "--backend", "torch", "--out", tmp_path / "new") == sentence
    assert refused("resume", tmp_path / "r") == sentence
    assert not (tmp_path / "new").exists()
    assert taciturn_json("evaluate", tmp_path / "done", CLINICS[1])["records"] == 569
    assert "objpm" in taciturn("show", tmp_path / "done").stdout
    (tmp_path / "gpu.toml").write_text('device = "cuda"\n')
    assert taciturn_json("plan", tmp_path / "gpu.toml", *CERTIFIED)["algorithm"] in ("additive", "dpgd")
    assert taciturn_json("run", *CLINICS, "--rounds", "1", "--out", tmp_path / "numpy")["runs"]
