"""Damaged runs: the list says what is wrong with each, and all other runs are still shown."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from taciturn.dashboard import catalogue
from taciturn.dashboard.replies import Damaged, explain
from taciturn.dashboard.workers import BackgroundCache, Workers
from taciturn.errors import InputError
from taciturn.runs.folder import RunFolder
from tests.dashboard.helpers import ask, dashboard, rows, settled
from tests.dashboard.test_server import DETAILS


def cut(name: str, size: int) -> Callable[[Path], object]:
    return lambda folder: os.truncate(folder / name, size)


def replaced(name: str, text: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(text)


def edited(name: str, old: str, new: str, unfinished: bool = False) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))
        if unfinished:
            (folder / "summary.json").unlink()

    return edit


def gone(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def a_folder_for_a_file(run: Path) -> None:
    (run / "summary.json").unlink()
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").mkdir()


def in_the_middle(folder: Path) -> None:
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join([*lines[:5], '{"run": 0, "algo\n', *lines[5:]]))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut summary": (cut("summary.json", 200), "budgets/summary.json is damaged"),
    "cut start": (cut("start.json", 50), "budgets/start.json is damaged"),
    "cut config": (replaced("config.toml", b'mode = "cert'), "budgets/config.toml is damaged"),
    "no config": (gone("config.toml"), "has no config.toml"),
    "a config without settings": (replaced("config.toml", b""), "are inconsistent: there is no 'mode'"),
    "a number for an object": (replaced("start.json", b'{"data": 7}'), "start.json is damaged"),
    "a list for an object": (replaced("summary.json", b"[]"), "summary.json is damaged"),
    "bytes that are no text": (replaced("config.toml", b"\xff\xfe"), "is damaged"),
    "a folder for a file": (a_folder_for_a_file, "cannot be read"),
    "no rounds": (edited("config.toml", "rounds = 12", "rounds = 0", unfinished=True), "division by zero"),
    "no number": (edited("summary.json", '"test_error": null', '"test_error": NaN'), "a number that is not finite"),
    "a huge number": (edited("summary.json", '"test_error": null', '"test_error": 1e999'), "that is not finite"),
    "a date": (edited("config.toml", 'noise = "seeded"', "noise = 1979-05-27"), "are inconsistent"),
    "lists within lists": (replaced("start.json", b"[" * 100_000), "recursion"),
    "half a letter": (edited("summary.json", '"rounds": 12', '"rounds": "\\ud800"'), "summary.json is damaged"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_run_is_a_row_with_the_reason_and_hides_no_other(runs: Path, kind: str) -> None:
    damage, reason = DAMAGE[kind]
    damage(runs / "budgets")
    app = dashboard(runs)
    found = rows(app)
    assert (found["budgets"]["state"], found["paper"]["state"]) == ("damaged", "finished")
    assert reason in found["budgets"]["reason"]
    assert str(runs) not in found["budgets"]["reason"]
    for detail in DETAILS:
        assert ask(app, f"/api/runs/{found['budgets']['id']}/{detail}").status == 200


def a_file_for_the_checkpoints(run: Path) -> None:
    shutil.rmtree(run / "checkpoint")
    (run / "checkpoint").touch()


def a_folder_for_the_lock(run: Path) -> None:
    (run / "checkpoint" / "lock").unlink(missing_ok=True)
    (run / "checkpoint" / "lock").mkdir()


@pytest.mark.parametrize("damage", [a_file_for_the_checkpoints, a_folder_for_the_lock])
def test_a_run_whose_lock_cannot_be_read_counts_as_stopped(runs: Path, damage: Callable[[Path], None]) -> None:
    (runs / "paper" / "summary.json").unlink()
    damage(runs / "paper")
    assert not RunFolder(runs / "paper").busy
    assert {row["state"] for row in rows(dashboard(runs)).values()} == {"stopped", "finished"}


def test_an_unreadable_run_hides_no_other(runs: Path) -> None:
    (runs / "paper" / "summary.json").unlink()
    (runs / "paper" / "summary.json").symlink_to("x" * 300)  # asking for it fails, as it does without permission
    assert rows(dashboard(runs))["budgets"]["state"] == "finished"


def test_undecodable_bytes_in_a_name_are_escaped(runs: Path) -> None:
    edited("start.json", '"name": "records"', '"name": "records \\ud800"')(runs / "budgets")
    odd = Path(os.fsdecode(os.fsencode(runs) + b"/odd \xff"))
    (runs / "paper").rename(odd)
    (odd / "summary.json").unlink()
    found = rows(dashboard(runs))
    assert (found["budgets"]["data"], found["budgets"]["state"]) == ("records \\ud800", "finished")
    assert found["odd \\udcff"]["resume"] == f"taciturn resume '{runs}/odd \\udcff'"
    (odd / "config.toml").unlink()
    assert rows(dashboard(runs))["odd \\udcff"]["reason"].startswith("odd \\udcff is not a run folder")


def test_details_that_cannot_be_encoded_are_reported(runs: Path) -> None:
    edited("metrics.jsonl", '"objp"', '"\\ud800"')(runs / "paper")
    app = dashboard(runs)
    assert "not valid Unicode" in ask(app, f"/api/runs/{rows(app)['paper']['id']}/curves").json["damaged"]


def test_an_empty_ledger_is_reported(runs: Path) -> None:
    ledger, head = (runs / "paper" / name for name in ("ledger.jsonl", "ledger.head"))
    os.truncate(ledger, 0)
    head.write_text(f'{{"lines": 0, "head": "{"0" * 64}"}}')
    app = dashboard(runs)
    place = f"/api/runs/{rows(app)['paper']['id']}"
    for detail in ("privacy", "ledger"):
        assert "ledger.jsonl is damaged" in settled(app, f"{place}/{detail}")["damaged"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [RuntimeError("/a/secret"), SystemExit(1)])
def test_no_error_ends_a_worker(error: BaseException) -> None:
    done = threading.Event()

    def fail() -> None:
        raise error

    workers = Workers(1)
    workers.submit(fail)
    workers.submit(done.set)
    assert done.wait(60)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failed_computation_is_reported_and_the_next_one_runs() -> None:
    def fail() -> Damaged:
        raise RuntimeError("/a/secret")

    cache = BackgroundCache[Damaged](lambda error: Damaged(type(error).__name__))
    assert cache.get("first", "1", fail) == (None, True)
    cache.get("second", "1", lambda: Damaged("computed"))
    end = time.monotonic() + 60
    while cache.get("second", "1", fail)[1] and time.monotonic() < end:
        time.sleep(0.01)
    assert cache.get("second", "1", fail) == (Damaged("computed"), False)
    assert cache.get("first", "1", fail) == (Damaged("RuntimeError"), False)


def test_a_reply_that_fails_for_an_unforeseen_reason_names_only_the_type(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("/a/secret")

    monkeypatch.setattr(catalogue, "ledger_reply", fail)
    app = dashboard(runs)
    reply = settled(app, f"/api/runs/{rows(app)['paper']['id']}/ledger")
    assert "RuntimeError" in reply["damaged"] and "secret" not in reply["damaged"]


def test_a_reason_names_no_folder_above_the_runs_on_another_host() -> None:
    root = Path("/home/me/my runs")
    error = InputError(f"{root}/a (1)/b/ledger.jsonl has 3 lines, but '/home/me/.state/1.json' knows of 4 / not 3")
    assert explain(error, root, local=False) == "a (1)/b/ledger.jsonl has 3 lines, but '1.json' knows of 4 / not 3"
    assert explain(error, root, local=True).startswith("a (1)/b/ledger.jsonl has 3 lines, but '/home/me/.state/1.json'")


def test_a_damaged_line_is_reported_when_it_is_read(runs: Path) -> None:
    in_the_middle(runs / "budgets")
    app = dashboard(runs)
    place = f"/api/runs/{rows(app)['budgets']['id']}"
    assert ask(app, f"{place}/curves").json == {"damaged": "line 6 of budgets/metrics.jsonl is damaged"}
    assert rows(app)["budgets"]["state"] == "damaged"
    assert rows(app)["budgets"]["reason"] == "line 6 of budgets/metrics.jsonl is damaged"
    assert settled(app, f"{place}/privacy")["headline"].startswith("Simulated:"), "the ledger is whole"


def test_a_ledger_that_somebody_changed_is_shown_as_such(runs: Path) -> None:
    ledger = runs / "sweep" / "hardened" / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"count": 1', '"count": 2', 1))
    app = dashboard(runs)
    place = f"/api/runs/{rows(app)['sweep/hardened']['id']}"
    for detail in ("privacy", "ledger"):
        assert "it was changed" in settled(app, f"{place}/{detail}")["damaged"]
