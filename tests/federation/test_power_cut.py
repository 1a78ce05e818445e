"""Every operation on the disks of a federated study is interrupted, at the coordinator and at all sites.

The power is cut after each of them, or in the middle of a write, everywhere at once; or it fails, for a disk is full or
broken for a moment. SQLite's writes, flushes and cuts are operations like the others. Then everybody is started again,
and the study is brought to its end. Nothing here takes fsync away: the disk's model keeps count of it.
"""

from __future__ import annotations

import errno
import gc
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from taciturn.algorithms import Upload
from taciturn.algorithms.server import Received
from taciturn.core import locks
from taciturn.core import storage as files
from taciturn.core.storage import read_arrays, state_folder
from taciturn.errors import TaciturnError
from taciturn.federation import agent as agent_module
from taciturn.federation import agreement as agreement_module
from taciturn.federation import coordinator_process
from taciturn.federation import messages as wire
from taciturn.federation.agreement import derive_agreement, load_site_dataset
from taciturn.federation.coordinator import FINISHED, site_events_path
from taciturn.federation.messages import Answer
from taciturn.federation.policy import read_site
from taciturn.federation.server_state import initial_state
from taciturn.federation.terms import read_terms
from taciturn.federation.transcript import read_transcript
from taciturn.privacy import budget as account
from taciturn.privacy import hash_chain as chain
from taciturn.privacy.budget_state import RESERVED
from taciturn.runs.folder import read_lines
from tests.core.disk import DATA, LOST, WAYS, Disk
from tests.federation import helpers
from tests.federation.helpers import LIMIT, Federation, Local, check_like_replay, conducted, make_federation

SITES, ROUNDS = ("north", "south"), 2
pytestmark = pytest.mark.linux
SPREAD = 25  # of the failing operations every so many are tried, unless all are asked for
Left = dict[str, list[bytes]]  # what left every site


@pytest.fixture(autouse=True)
def quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute once what depends only on files that never change."""

    def once(function: Callable[..., Any]) -> Callable[..., Any]:
        known: dict[Any, Any] = {}

        def found(first: Any, *more: Any) -> Any:
            key = getattr(first, "path", first)  # of a site's file or the terms
            if key not in known:
                known[key] = function(first, *more)
            return known[key]

        return found

    for name, cached in (
        ("read_site", once(read_site)),
        ("read_terms", once(read_terms)),
        ("derive_agreement", once(derive_agreement)),
    ):
        for module in (agent_module, agreement_module, coordinator_process, helpers):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, cached)
    monkeypatch.setattr(agreement_module, "load_site_dataset", once(load_site_dataset))


def made(root: Path, patch: pytest.MonkeyPatch) -> tuple[Federation, tuple[Path, Path]]:
    """Return a federation and the folders of all its files."""
    work, state = root / "work", root / "state"
    state.mkdir()
    patch.setenv("XDG_STATE_HOME", str(state))
    place = state_folder()
    for module in (account, chain, files, locks):
        patch.setattr(module, "state_folder", lambda: place)
    evaluated = {"test_share": 0.4, "partition_key": 1, "evaluations": 1}
    changes = {"study": {"rounds": ROUNDS, **evaluated}, "sites": {"west": None}}
    return make_federation(work, changes, only=SITES), (work, state)


def recorded(
    root: Path, patch: pytest.MonkeyPatch, deaf: Callable[[Path], bool] = lambda path: False, ways: Sequence[str] = WAYS
) -> tuple[Federation, Disk]:
    """Run a whole study with hardened noise on a recorded disk."""
    federation, tops = made(root, patch)
    engine = Local({})
    disk = Disk(tops, lambda: {site: list(left) for site, left in engine.left.items()}, deaf, ways=ways)
    with disk.attached(), federation.agents(None) as agents:
        engine.agents = agents
        assert conducted(federation.coordinator(), engine, tries=1) == FINISHED
    disk.check_complete()
    return federation, disk


def go_on(federation: Federation, before: Left) -> None:
    """Restart every process, and run the study to its end."""
    for site, data in before.items():
        if answers(data):
            assert federation.account(site).state().studies[0].state != RESERVED, f"{site} could be given back"
    with federation.agents(None) as agents:
        engine = Local(agents)
        coordinator = federation.coordinator()
        assert conducted(coordinator, engine, tries=2) == FINISHED
    left = {site: [*before.get(site, []), *engine.left.get(site, [])] for site in SITES}
    check(federation, left)


def check(federation: Federation, left: Left) -> None:
    """Check that uploads are charged once, no round has two, and the model follows from them bit for bit."""
    coordinator = federation.coordinator()
    assert coordinator.folder.finished
    uploads = {site: answers(left[site]) for site in SITES}
    for site in SITES:
        released = federation.released(site, coordinator.experiment)
        charged = [(row["first"], row["upload"]) for row in released if not row.held_out]
        measured = [row["first"] for row in released if row.held_out]
        assert measured in ([], [ROUNDS]), f"{site} charged the evaluation as {measured}"  # it may have refused it
        assert {(t, wire.digest(data)) for t, data in uploads[site]} <= set(charged), (
            f"{site} sent what it did not charge"
        )
        assert [t for t, _ in charged] == list(range(1, ROUNDS + 1)), f"{site} charged {charged}"
        (study,) = federation.account(site).state().studies
        assert coordinator.experiment in study.study and study.state == "settled"
        assert asdict(study.cost) == pytest.approx(asdict(federation.agreement.plan.cost), rel=1e-12)
        assert read_transcript(federation.site(site)).faults == []
        assert federation.folder(site, coordinator.experiment).read_metrics()
    rows = coordinator.folder.read_ledger().releases
    assert Counter((row.agent, row.first) for row in rows if not row.held_out) == {
        (site, t): 1 for site in SITES for t in range(1, ROUNDS + 1)
    }
    assert Counter((row.agent, row.first) for row in rows if row.held_out) == {(site, ROUNDS): 1 for site in SITES}
    assert [row.round for row in coordinator.folder.read_evaluations()] == [ROUNDS]
    assert [row["round"] for row in coordinator.folder.read_metrics()] == list(range(1, ROUNDS + 1))
    assert list(read_lines(site_events_path(coordinator.folder)))
    kept = read_arrays(coordinator.folder.model)["w"]
    if all(len(uploads[site]) == ROUNDS for site in SITES):
        assert model_of(federation, uploads).tobytes() == coordinator.state.w.tobytes()
    assert kept.tobytes() == coordinator.state.w.tobytes()


def answers(left: list[bytes]) -> set[tuple[int, bytes]]:
    """Return round and bytes of the uploads among what left a site."""
    found = [(wire.decode_reply(data, LIMIT), data) for data in left]
    return {(reply.round, data) for reply, data in found if isinstance(reply, Answer)}


def model_of(federation: Federation, uploads: dict[str, set[tuple[int, bytes]]]) -> Any:
    """Return the model that follows from the uploads."""
    algorithm, server = federation.agreement.algorithm, initial_state(federation.agreement.zero, SITES).server
    w = federation.agreement.zero
    for t in range(1, ROUNDS + 1):
        server, w = algorithm.server_send(t, server)
        sent = [wire.decode_reply(dict(uploads[site])[t], LIMIT) for site in SITES]
        received = {p: Upload(reply.z) for p, reply in enumerate(sent) if isinstance(reply, Answer)}
        server = algorithm.server_receive(t, w, server, Received.of(received))
        w = algorithm.model(t, w, server)
    return w


def go_through(federation: Federation, disk: Disk) -> None:
    gc.freeze()
    for cut in disk.cuts.values():
        disk.restore(cut.image)
        try:
            go_on(federation, cut.seen)
        except Exception as error:
            raise AssertionError(f"after {cut.after}, {cut.way}: {error!r}") from error


@pytest.mark.timeout(900)  # on a machine that does much else
def test_a_power_cut_everywhere_loses_no_release_and_charges_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation, disk = recorded(tmp_path, monkeypatch)
    assert disk.operations > 700 and disk.images > 3000
    go_through(federation, disk)


@pytest.mark.parametrize("folders", [False, True], ids=["no fsync", "no fsync of folders"])
def test_without_fsync_it_would_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: bool) -> None:
    def deaf(path: Path) -> bool:
        return ".sqlite" not in path.name and (path.is_dir() or not folders)

    federation, disk = recorded(tmp_path, monkeypatch, deaf, (LOST, DATA))
    with pytest.raises((AssertionError, TaciturnError)):
        go_through(federation, disk)


def bring_to_its_end(federation: Federation, restart: bool) -> Left:
    """Run a study with seeded noise; restart it, and on request the sites, after a disk error."""
    left: Left = {site: [] for site in SITES}
    for _ in range(3):
        try:
            with federation.agents() as agents:
                for _ in range(1 if restart else 3):
                    engine = Local(agents)
                    try:
                        if conducted(federation.coordinator(), engine, tries=1) == FINISHED and closed(federation):
                            return left
                    except (OSError, TaciturnError):
                        continue
                    finally:
                        for site in SITES:
                            left[site] += engine.left.get(site, [])
        except (OSError, TaciturnError, sqlite3.Error):
            continue
    raise AssertionError("the study does not come to its end")


def closed(federation: Federation) -> bool:
    """Return whether all sites have settled the study."""
    return all(federation.account(site).state().studies[0].state == "settled" for site in SITES)


@pytest.mark.timeout(7200)  # with --all-states
@pytest.mark.filterwarnings("ignore::taciturn.errors.LedgerWarning")  # a run is not lost where it is not signed
def test_every_operation_may_fail_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The disk is full or broken for a moment; the sites' processes continue or restart."""
    federation, tops = made(tmp_path, monkeypatch)
    before, failed, number = Disk(tops).image(), True, 0
    step = 1 if request.config.getoption("all_states") else SPREAD
    while failed:
        operation = 1 + number * step
        errors = (errno.ENOSPC, errno.EIO) if step == 1 else ((errno.ENOSPC, errno.EIO)[number % 2],)
        for error in errors:
            restart = bool((number // 2 + (error == errno.EIO)) % 2)
            disk = Disk(tops, fail_at=operation, error=error, cutting=False)
            disk.restore(before)
            try:
                with disk.attached():
                    left = bring_to_its_end(federation, restart)
                check(federation, left)
                check_like_replay(federation, federation.coordinator())
            except Exception as fault:
                raise AssertionError(f"operation {operation}, {disk.failed}, {error}, {restart}: {fault!r}") from fault
            failed = bool(disk.failed)
        number += 1
    assert operation > 700
