"""The power is cut in the middle of a federated study, at the coordinator and at all sites at once.

SQLite flushes by itself, so the sites' journals are taken as they are at that moment; ledgers, heads, run folders and
the coordinator's state are what had been flushed. Nothing here takes fsync away: the disk's model keeps count of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from tacit.errors import InputError
from tacit.federation import wire
from tacit.federation.coordinator import FINISHED
from tacit.federation.messages import Answer
from tests.federation.helpers import LIMIT, Federation, Local, conducted, make_federation
from tests.results.disk import DATA, LOST, Disk

SITES, ROUNDS, TRIED = ("north", "south"), 2, 30
Left = dict[str, list[bytes]]  # what left every site


def recorded(root: Path, patch: pytest.MonkeyPatch, deaf: Callable[[Path], bool]) -> tuple[Federation, Disk]:
    """A whole study with fresh noise, on a disk that remembers."""
    work, state = root / "work", root / "state"
    state.mkdir()
    patch.setenv("XDG_STATE_HOME", str(state))
    changes = {"study": {"rounds": ROUNDS}, "sites": {"west": None}}
    federation = make_federation(work, changes, only=SITES)
    engine = Local({})
    disk = Disk((work, state), lambda: {site: list(left) for site, left in engine.left.items()}, deaf)
    with pytest.MonkeyPatch.context() as inner:
        disk.attach(inner)
        with federation.agents(None) as agents:
            engine.agents = agents
            assert conducted(federation.coordinator(), engine, tries=1) == FINISHED
    return federation, disk


def uploads(left: list[bytes]) -> set[tuple[int, str]]:
    """Rounds and digests of the answers among what left a site."""
    found = [(wire.reply(data, LIMIT), wire.digest(data)) for data in left]
    return {(reply.round, digest) for reply, digest in found if isinstance(reply, Answer)}


def go_on(federation: Federation, before: Left) -> None:
    """Everybody is started again: what left is charged once, and no round has two uploads."""
    with federation.agents(None) as agents:
        engine, coordinator = Local(agents), federation.coordinator()
        if not coordinator.folder.finished:
            assert conducted(coordinator, engine, tries=2) == FINISHED
        for site in SITES:
            left = uploads([*before.get(site, []), *engine.left.get(site, [])])
            charged = [(row["first"], row["upload"]) for row in federation.released(site, coordinator.experiment)]
            assert left <= set(charged), f"{site} has sent what it did not charge"
            assert set(Counter(t for t, _ in charged).values()) == {1} and len(charged) == ROUNDS
            studies = federation.account(site).state()["studies"]
            assert len(studies) == 1 and coordinator.experiment in studies[0]["study"]


def go_through(federation: Federation, disk: Disk, ways: Collection[str] = (), tried: int = TRIED) -> None:
    cuts = [cut for cut in disk.cuts.values() if not ways or cut.way in ways]
    for cut in cuts[:: max(1, len(cuts) // tried)]:
        disk.restore(cut.image)
        try:
            go_on(federation, cut.seen)
        except AssertionError as error:
            raise AssertionError(f"after {cut.after}, {cut.way}: {error}") from error


def test_a_power_cut_everywhere_loses_no_release_and_charges_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation, disk = recorded(tmp_path, monkeypatch, lambda path: False)
    assert disk.operations > 200
    go_through(federation, disk)


@pytest.mark.parametrize("folders", [False, True], ids=["no fsync", "no fsync of folders"])
def test_without_fsync_it_would_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: bool) -> None:
    federation, disk = recorded(tmp_path, monkeypatch, lambda path: path.is_dir() or not folders)
    with pytest.raises((AssertionError, InputError)):
        go_through(federation, disk, (LOST, DATA), tried=1000)
