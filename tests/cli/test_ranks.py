"""`torchrun -m taciturn run`: several processes give the result of one, and any number of them can continue a run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.helpers import (
    CERTIFIED,
    CLINICS,
    EXAMPLE,
    PATIENCE,
    environment,
    messages,
    ranks,
    started,
    taciturn,
    taciturn_json,
    wait_for_rows,
)
from tests.cli.test_interrupted import METHODS, ledger_counts, read
from tests.cli.warm import Process

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

FEW = ("--averages", "--rounds", "4")
LONG = ("run", *CLINICS, *METHODS, "--rounds", "200")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "taciturn")
ROUNDED = {"test_error", "train_objective", "consensus_residual", "noise"}


def begin(*args: str | Path) -> list[Process]:
    return ranks("taciturn", *map(str, args))


def end(processes: list[Process], *codes: int) -> tuple[str, str]:
    """Wait for all ranks; return the output of the first, with progress removed. The others must print nothing."""
    said = [process.communicate(timeout=PATIENCE) for process in processes]
    assert [process.returncode for process in processes] == list(codes), said
    assert all(words == ("", "") for words in said[1:]), said
    stdout, stderr = said[0]
    return stdout, "\n".join(messages(stderr))


def same(folder: Path, straight: Path, relative: float = 1e-6) -> None:
    """Check that the run equals that of one process up to rounding: its model, averages, metrics and ledger."""
    for name in ("model.npz", "averages.npz"):
        found, expected = (np.load(place / name) for place in (folder, straight))
        for key in expected:
            if expected[key].dtype.kind == "f" and key != "epsilon":
                assert np.abs(found[key] - expected[key]).max() <= relative * np.abs(expected[key]).max(), key
    for name in ("metrics.jsonl", "local-only/metrics.jsonl"):
        if (straight / name).exists():
            for a, b in zip(read(folder / name), read(straight / name), strict=True):
                rounded(a, b)
    assert ledger_counts(folder) == ledger_counts(straight)


def rounded(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for key in set(expected) - {"seconds"}:
        value = expected[key]
        close = key in ROUNDED and value is not None
        assert found[key] == (pytest.approx(value, rel=1e-6, abs=1e-9) if close else value), key


@pytest.mark.parametrize(
    "more",
    [
        (*CLINICS, "--algorithm", "objp,objpm,outp,iadmm", "--epsilon", "1,inf", "--local-updates", "3"),
        (*CERTIFIED, "--algorithm", "objp,hidden", "--total-epsilon", "1,inf", "--local-updates", "3"),
    ],
    ids=["paper", "certified"],
)
def test_ranks_write_what_one_process_writes(tmp_path: Path, more: tuple[str, ...]) -> None:
    taciturn("run", *more, *FEW, "--out", tmp_path / "one")
    stdout, stderr = end(begin("run", *more, *FEW, "--out", tmp_path / "two", "--json"), 0, 0)
    assert json.loads(stdout)["run"] == str(tmp_path / "two")
    assert stderr == ""
    same(tmp_path / "two", tmp_path / "one")
    files = [sorted(path.name for path in (tmp_path / name).rglob("*")) for name in ("one", "two")]
    assert files[0] == files[1]
    for name in ("ledger.jsonl", "config.toml", "start.json"):
        assert (tmp_path / "two" / name).read_text() == (tmp_path / "one" / name).read_text(), name


def test_ranks_keep_the_weights_of_their_records(tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    text = (EXAMPLE / "schema.toml").read_text()
    schema.write_text(text.replace("[label]", "[label]\nweights = { malignant = 5 }"))
    more = [*CERTIFIED, "--algorithm", "objp", "--local-updates", "3"]
    taciturn("run", *more, *FEW, "--out", tmp_path / "none")
    more[more.index("--schema") + 1] = str(schema)
    taciturn("run", *more, *FEW, "--out", tmp_path / "one")
    end(begin("run", *more, *FEW, "--out", tmp_path / "two", "--json"), 0, 0)
    same(tmp_path / "two", tmp_path / "one")
    one, none = (np.load(tmp_path / name / "model.npz")["w"] for name in ("one", "none"))
    assert np.abs(one - none).max() > 1e-3


def test_stopped_and_resumed_with_any_number_of_ranks(tmp_path: Path) -> None:
    """Ctrl-C at torchrun, then two ranks of which one is killed, then one process to the end."""
    out = tmp_path / "r"
    taciturn(*LONG, "--out", tmp_path / "straight")
    launched = subprocess.Popen(
        [*TORCHRUN, *LONG, "--out", str(out)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_rows(out, 20)
    launched.send_signal(signal.SIGINT)
    stdout, stderr = launched.communicate(timeout=PATIENCE)
    assert launched.returncode != 0
    assert stdout == ""
    assert stderr.count(f"stopped: continue with 'taciturn resume {out}'") == 1
    done = len(read(out / "metrics.jsonl"))
    assert int(np.load(out / "checkpoint" / "objpm.npz")["round"]) == done // 2  # two budgets: nothing was lost

    first, second = begin("resume", out)
    wait_for_rows(out, done + 20)
    second.kill()
    second.communicate()
    stdout, stderr = first.communicate(timeout=PATIENCE)
    assert (first.returncode, stdout) == (2, "")
    assert messages(stderr)[0].startswith("error: a rank has ended")
    assert "Traceback" not in stderr

    assert taciturn_json("resume", out)["run"] == str(out)
    same(out, tmp_path / "straight")


def test_one_process_hands_over_to_ranks(tmp_path: Path) -> None:
    """With noise of the operating system: every round is charged for every agent, once in each session."""
    out = tmp_path / "r"
    settings = ("--rounds", "100000", "--noise", "hardened", "--noise-multiplier", "2500", "--evaluate-every", "10")
    process = started("run", *CERTIFIED, *settings, "--out", out)
    wait_for_rows(out, 20)
    process.kill()
    process.communicate()
    resumed = begin("resume", out)
    before = len(read(out / "metrics.jsonl"))
    wait_for_rows(out, before + 20)
    resumed[1].send_signal(signal.SIGTERM)  # all ranks stop, whichever gets the signal
    _, stderr = end(resumed, 130, 130)
    assert f"continue with 'taciturn resume {out}'" in stderr
    released = [entry for entry in read(out / "ledger.jsonl") if entry["kind"] == "release"]
    assert {entry["session"] for entry in released} == {1, 2}
    for session in (1, 2):
        rounds: dict[str, list[int]] = {}
        for entry in released:
            if entry["session"] == session:
                assert (entry["first"], entry["count"]) == (entry["last"], 1)
                rounds.setdefault(entry["agent"], []).append(entry["first"])
        first, *others = rounds.values()
        assert len(others) == 2
        assert first == list(range(first[0], first[-1] + 1))
        assert all(other == first for other in others)
    assert int(np.load(out / "checkpoint" / "additive-0.npz")["round"]) == first[-1]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (
            (*CLINICS, "--server", "full"),
            "use --server sums, or one process",
        ),
        ((*CLINICS, "--loss", "squared", "--eta", "1e9", "--rho", "1e-9", "--rounds", "300"), "diverged in round"),
    ],
)
def test_a_refusal_is_printed_once(tmp_path: Path, args: tuple[str, ...], sentence: str) -> None:
    _, stderr = end(begin("run", *args, "--out", tmp_path / "r"), 2, 2)
    assert sentence in stderr
    assert stderr.startswith("error: ")
    assert len(stderr.strip().splitlines()) == 1
