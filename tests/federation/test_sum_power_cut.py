"""Every operation on the disks of a study with a secure sum is interrupted, as in test_power_cut.py.

An upload is lost on the way, so that sites also sign. Afterwards everybody is started again and the study is brought to
its end: it equals its simulation, no slot is answered twice, and no file of a site has a secret.
"""

from __future__ import annotations

import errno
import gc
import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from taciturn.core import locks
from taciturn.core import storage as files
from taciturn.core.storage import state_folder
from taciturn.errors import TaciturnError
from taciturn.federation import messages as wire
from taciturn.federation import sum_journal
from taciturn.federation.agent import SiteAgent
from taciturn.federation.coordinator import FINISHED, site_events_path
from taciturn.federation.messages import Question
from taciturn.federation.sum_session import SumSession
from taciturn.privacy import budget as account
from taciturn.privacy import hash_chain as chain
from taciturn.privacy.budget_state import RESERVED
from taciturn.runs.folder import read_lines
from tests.core.disk import LOST, TORN, Cut, Disk
from tests.federation.helpers import Local, conducted
from tests.federation.sum_helpers import (
    Secrets,
    SumFederation,
    check_charges,
    check_sums,
    files_of,
    make_sums,
    secrets_of,
    step_of,
)
from tests.federation.test_power_cut import quicker

pytestmark = pytest.mark.linux
SITES = ("s1", "s2", "s3", "s4")
CUTS, FAILURES = 24, 16  # that are tried, unless all are asked for
Left = dict[str, list[bytes]]  # what left every site
__all__ = ["quicker"]  # a fixture


def made(root: Path, patch: pytest.MonkeyPatch) -> tuple[SumFederation, tuple[Path, Path]]:
    """Return a federation of four sites, of which one may be missing, and the folders of all its files."""
    work, state = root / "work", root / "state"
    state.mkdir()
    patch.setenv("XDG_STATE_HOME", str(state))
    place = state_folder()
    for module in (account, chain, files, locks, sum_journal):
        patch.setattr(module, "state_folder", lambda: place)
    return make_sums(work, {"study": {"rounds": 2, "reserve": 12}}, names=SITES, rows=4), (work, state)


class Learning(Local):
    """Loses the first upload of the last site, and remembers the secrets that sites hold.

    As in a site's vault, a refusal because of a disk error does not leave.
    """

    def __init__(self, agents: dict[str, SiteAgent], known: Secrets, lossy: bool = True) -> None:
        super().__init__(agents, self.lose)
        self.known, self.lossy = known, lossy

    def lose(self, site: str, message: Question) -> str:
        lost = self.lossy and site == "s4" and step_of(message) == wire.UPLOAD
        self.lossy = self.lossy and not lost
        self.since[site] += lost
        return "answer" if lost else ""

    def request(self, questions: Any, seconds: float) -> Any:
        replies = super().request(questions, seconds)
        for agent in self.agents.values():
            if isinstance(agent._session, SumSession):
                self.known.update(secrets_of(agent._session))
        return {site: data for site, data in replies.items() if not self.agents[site].disk_error}


def play(federation: SumFederation, known: Secrets, lossy: bool, tries: int) -> Left:
    """Start every process, and run the study to its end."""
    with federation.agents() as agents:
        exchange = Learning(agents, known, lossy)
        for _ in range(tries):
            study = federation.summing()
            if conducted(study, exchange, tries=2) == FINISHED and not study.unclosed_sites:
                return exchange.left
    raise AssertionError("the study does not come to its end")


def check(federation: SumFederation, left: Left, known: Secrets) -> None:
    """Check what holds of every study that has ended, whatever was interrupted."""
    study = federation.summing()
    assert study.folder.finished and study.state.round == 2
    check_sums(federation, study)
    check_charges(federation, study, Local({}, left=left))
    content = b"\0".join(files_of(federation.root / site) for site in SITES)
    assert known and not [place for secret, place in known.items() if secret in content]
    ready = {line["site"] for line in read_lines(site_events_path(study.folder)) if line["event"] == "ready"}
    for site in SITES:
        states = [entry.state for entry in federation.account(site).state().studies]
        assert states == ["settled"] or (site not in ready and states in ([], [RESERVED])), site


@pytest.mark.timeout(7200)  # with --all-states
def test_a_power_cut_everywhere_answers_no_slot_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    federation, tops = made(tmp_path, monkeypatch)
    exchange, known = Local({}), Secrets()
    disk = Disk(tops, lambda: ({site: list(left) for site, left in exchange.left.items()}, dict(known)))
    with disk.attached(), federation.agents() as agents:
        exchange = Learning(agents, known)
        assert conducted(federation.summing(), exchange, tries=1) == FINISHED
    disk.check_complete()
    assert disk.operations > 900
    for cut in some(list(disk.cuts.values()), 0 if request.config.getoption("all_states") else CUTS):
        disk.restore(cut.image)
        left, before = cut.seen
        gc.freeze()
        try:
            secrets = dict(before)
            later = play(federation, secrets, not left, 2)
            check(federation, {site: [*left.get(site, []), *later.get(site, [])] for site in SITES}, secrets)
        except Exception as error:
            raise AssertionError(f"after {cut.after}, {cut.way}: {error!r}") from error


def some(cuts: list[Cut], count: int) -> Collection[Cut]:
    """Return cuts spread over the whole study, of every way; all of them if `count` is 0."""
    if not count:
        return cuts
    ways = {cut.way for cut in cuts}
    assert {LOST, TORN} <= ways
    found = []
    for number, way in enumerate(sorted(ways)):
        mine = [cut for cut in cuts if cut.way == way]
        step = max(1, len(ways) * len(mine) // count)
        found += mine[(number * step) // len(ways) :: step]
    return found


@pytest.mark.timeout(7200)  # with --all-states
@pytest.mark.filterwarnings("ignore::taciturn.errors.LedgerWarning")  # a run is not lost where it is not signed
def test_every_operation_may_fail_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The disk is full or broken for a moment; the processes continue or restart."""
    federation, tops = made(tmp_path, monkeypatch)
    before = Disk(tops).image()
    disk = Disk(tops, cutting=False)
    with disk.attached():
        check(federation, play(federation, known := Secrets(), True, 1), known)
    every = request.config.getoption("all_states")
    step = 1 if every else disk.operations // FAILURES
    for number, operation in enumerate(range(1 + step // 2, disk.operations, step)):
        for error in (errno.ENOSPC, errno.EIO) if every else ((errno.ENOSPC, errno.EIO)[number % 2],):
            disk = Disk(tops, fail_at=operation, error=error, cutting=False)
            disk.restore(before)
            known = Secrets()
            try:
                with disk.attached():
                    left = bring_to_its_end(federation, known, bool(number // 2 % 2))
                check(federation, left, known)
            except Exception as fault:
                raise AssertionError(f"operation {operation}, {disk.failed}, {error}: {fault!r}") from fault


def bring_to_its_end(federation: SumFederation, known: Secrets, restart: bool) -> Left:
    """Run a study; restart the coordinator, and on request the sites, after a disk error."""
    left: Left = {site: [] for site in SITES}
    lossy = True
    for _ in range(6):
        try:
            with federation.agents() as agents:
                for _ in range(1 if restart else 3):
                    exchange = Learning(agents, known, lossy)
                    try:
                        study = federation.summing()
                        ended = conducted(study, exchange, tries=2) == FINISHED and not study.unclosed_sites
                    except (OSError, TaciturnError):
                        continue
                    finally:
                        lossy = exchange.lossy
                        for site in SITES:
                            left[site] += exchange.left.get(site, [])
                    if ended:
                        return left
        except (OSError, TaciturnError, sqlite3.Error):
            continue
    raise AssertionError("the study does not come to its end")
