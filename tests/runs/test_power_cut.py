"""The power is cut after every operation of a run, and every operation fails once: what was seen is charged, once."""

from __future__ import annotations

import errno
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from taciturn import api
from taciturn.errors import TaciturnError
from taciturn.planning.plan import StudyPlan, plan_study
from taciturn.privacy import budget as account_module
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.budget_state import RESERVED
from taciturn.reporting import report
from taciturn.runs.folder import RunFolder
from taciturn.settings import Settings
from taciturn.training import setup as begin
from taciturn.training.loop import TrainingProgress
from taciturn.training.recorder import Recorder
from tests.core.disk import Disk

pytestmark = pytest.mark.linux
SPREAD = 5  # of the failing operations every so many are tried, unless all are asked for
ROUNDS = 5
SCHEMA = """\
[label]
column = "ill"
classes = ["no", "yes"]
[columns.age]
kind = "numeric"
bounds = [0, 100]
"""
OUTLINES: dict[str, StudyPlan] = {}
Seen = tuple[frozenset[tuple[int, int]], bool]  # session and round of what was shown; whether the run has ended


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what takes time and is no matter of files: the same plan over and over, and reports."""
    monkeypatch.setattr(begin, "plan_study", _outline)
    for name in [name for name in vars(account_module) if name.endswith(("_budget", "_epsilon"))]:
        monkeypatch.setattr(account_module, name, _once(getattr(account_module, name)))
    monkeypatch.setattr(report, "_render", lambda folder, *_, local: f"a report {folder.read_summary(local)}")
    monkeypatch.setattr(Recorder, "schedule", _always_due)


@cache
def _once(pure: Callable[..., float]) -> Callable[..., float]:
    return cache(pure)


def _outline(settings: Settings) -> StudyPlan:
    places: dict[str, Any] = {name: getattr(settings, name) for name in ("ledger", "out", "data", "schema")}
    nowhere: dict[str, Any] = dict.fromkeys(places, "")
    key = repr(replace(settings, **nowhere))
    if key not in OUTLINES:
        OUTLINES[key] = plan_study(settings)
    return OUTLINES[key]._replace(settings=replace(OUTLINES[key].settings, **places))


def _always_due(self: Recorder, cost: float = 0.0) -> None:
    self.next_checkpoint = 0.0


class Place:
    """A table, its ledger over studies and a run, on a disk of their own; the state folder is on it too."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.work, self.state, self.data = root / "work", root / "state", root / "data"
        for folder in (self.work, self.state, self.data):
            folder.mkdir()
        patch.setenv("XDG_STATE_HOME", str(self.state))
        rows = "".join(f"{20 + i},{'yes' if i % 3 else 'no'}\n" for i in range(12))
        (self.data / "t.csv").write_text("age,ill\n" + rows)
        (self.data / "s.toml").write_text(SCHEMA)
        self.ledger = self.work / "c.ledger"
        BudgetLedger.create(self.ledger, "c", 3.0, 1e-6)
        self.shown: set[tuple[int, int]] = set()

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.work / "runs" / "r")

    def begin(self) -> None:
        """Two rounds are charged and shown at a time, and one at the end."""
        api.run(
            data=str(self.data / "t.csv"), schema=str(self.data / "s.toml"), total_records=12, agents=2, rounds=ROUNDS,
            algorithm="dpgd", noise="hardened", total_epsilon=1.0, evaluate_every=2, ledger=str(self.ledger),
            test_share=0.4, partition_key=1, evaluations=2, out=str(self.run.path), watch=self.watch,
        )  # fmt: skip

    def watch(self, progress: TrainingProgress) -> None:
        """The rounds of an error are visible on the terminal."""

    def seen(self) -> Seen:
        """The rounds in public metrics now; the ledger at that moment says which session they belong to."""
        rows = _rows(self.run.metrics)
        session = max((row["session"] for row in _rows(self.run.ledger) if row["kind"] == "release"), default=0)
        self.shown |= {(session, row["round"]) for row in rows if (1, row["round"]) not in self.shown or session == 1}
        return frozenset(self.shown), self.run.finished

    def charged(self) -> Counter[tuple[int, int]]:
        """How often each round was charged to the first agent, by session and round; the chain is checked."""
        rows = [row for row in self.run.read_ledger().releases if row.agent == "agent-1"]
        assert all(row["first"] == row["last"] for row in rows)
        measured = Counter(row["first"] for row in rows if row.held_out)
        shown = [row.round for row in self.run.read_evaluations()]
        assert len(set(shown)) == len(shown) <= measured.total() <= 2 and set(shown) <= set(measured)
        return Counter((row["session"], row["first"]) for row in rows if not row.held_out)

    def check(self, image_of: str, seen: Seen) -> None:
        """Continue from the disk: everything that was visible is charged once, and never more than planned."""
        shown, ended = seen
        reservations = BudgetLedger.open(self.ledger).state().studies
        assert len(reservations) <= 1
        if shown:
            assert shown <= set(self.charged()), f"seen and not charged after {image_of}"
            assert reservations[0].state != RESERVED, f"drawn and not started after {image_of}"
        try:
            api.resume(self.run.path)
        except TaciturnError as error:
            assert not shown and not ended, f"{error} after {image_of}"  # it had not begun
            return
        charged = self.charged()
        assert shown <= set(charged) and set(charged.values()) == {1}, f"after {image_of}"
        assert len(charged) <= ROUNDS
        (study,) = BudgetLedger.open(self.ledger).state().studies
        ledger = self.run.read_ledger()
        assert study.settled and (study.cost, study.held_out) == (ledger.cost, ledger.held_out_cost)
        assert self.run.model.is_file() and self.run.report.is_file() and (self.run.local / "report.html").is_file()
        rounds = [row["round"] for row in self.run.read_metrics()]
        assert rounds == sorted(set(rounds)) and rounds[-1] == self.run.read_summary()["runs"][0]["rounds"]


def _rows(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes() if path.is_file() else b""
    return [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]


def recorded(root: Path, deaf: Callable[[Path], bool] = lambda path: False) -> tuple[Place, Disk]:
    """A run whose every operation is followed by a power cut, in thought."""
    with pytest.MonkeyPatch.context() as patch:
        place = Place(root, patch)
        disk = Disk((place.work, place.state), place.seen, deaf)
        with disk.attached():
            place.begin()
        disk.check_complete()
    return place, disk


def go_through(place: Place, disk: Disk) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(place.state))
        for cut in disk.cuts.values():
            disk.restore(cut.image)
            place.check(f"{cut.after}, {cut.way}", cut.seen)
    return len(disk.cuts)


def test_a_power_cut_after_any_operation_loses_no_release_and_charges_none_twice(tmp_path: Path) -> None:
    place, disk = recorded(tmp_path)
    tried = go_through(place, disk)
    assert disk.operations > 100 and tried > 100
    assert {cut.way for cut in disk.cuts.values()} >= {"all lost", "all kept", "torn"}


MUTATIONS: dict[str, Callable[[Path], bool]] = {
    "no fsync at all": lambda path: True,
    "no fsync of folders": lambda path: path.is_dir(),
    "no fsync of the run's ledger": lambda path: path.name == "ledger.jsonl",
    "no fsync of the ledger over studies": lambda path: path.name == "c.ledger",
    "no fsync of checkpoints": lambda path: path.name.startswith(".dpgd.npz"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_without_its_fsyncs_it_would_fail(tmp_path: Path, name: str) -> None:
    place, disk = recorded(tmp_path, MUTATIONS[name])
    with pytest.raises((AssertionError, TaciturnError)):
        go_through(place, disk)


@pytest.mark.timeout(7200)  # with --all-states
@pytest.mark.filterwarnings("ignore::taciturn.errors.LedgerWarning")  # a run is not lost where it is not signed
def test_every_operation_may_fail_once(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The disk is full, or broken, for a moment: the run stops, and continues when it is started again."""
    both = request.config.getoption("all_states")
    step = 1 if both else SPREAD
    with pytest.MonkeyPatch.context() as patch:
        place = Place(tmp_path, patch)
        tops = (place.work, place.state)
        before, failed, number = Disk(tops).image(), True, 1 - step
        while failed:
            number += step
            for error in (errno.EIO, errno.ENOSPC) if both else ((errno.ENOSPC, errno.EIO)[number % 2],):
                place.shown.clear()
                disk = Disk(tops, fail_at=number, error=error, cutting=False)
                disk.restore(before)
                failed = fails(place, disk)
                place.check(f"error {error} at operation {number}, {disk.failed}", place.seen())
    assert number > 100


def fails(place: Place, disk: Disk) -> bool:
    """Whether a run was stopped by the failing operation."""
    with disk.attached():
        try:
            place.begin()
        except OSError as error:
            assert error.errno == disk.error
            return True
        except TaciturnError:
            return True
    return bool(disk.failed)
