"""The journal is private, has one writer, survives any crash, and deletes states that no round can start from."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from taciturn.algorithms.base import Agent
from taciturn.errors import InputError
from taciturn.federation.journal import Journal, RoundRecord, place_of
from taciturn.federation.messages import array_digest, digest
from taciturn.privacy.events import Discrete
from taciturn.runs.records import ReleaseEntry

ZERO = np.zeros((3, 1, 2))
NAME = "0123456789abcdef"


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path / "state", patience=0.0) as found:
        found.begin(NAME, "tiny", "terms", "reservation", "")
        yield found


def state(t: int) -> Agent:
    return Agent(ZERO + t, ZERO - t)


def release(t: int, held_out: bool | None = None, slot: str | None = None) -> ReleaseEntry:
    event = Discrete(scale=0.2, l2=0.1, sigma=5000.0, coordinates=12)
    return ReleaseEntry(
        run=0, agent="north", event=event, count=1, first=t, last=t, session=1, held_out=held_out, slot=slot
    )


def test_an_upload_belongs_to_its_round_or_evaluation_or_slot() -> None:
    places = [place_of(release(3)), place_of(release(3, held_out=True)), place_of(release(3, slot="0/2"))]
    assert places == [3, "evaluation 3", "0/2"]


def write(journal: Journal, t: int, base: int, name: str = NAME) -> None:
    row = RoundRecord(t, base, f"w{t}", (release(t),), b"upload %d" % t)
    put(journal, row, state(t), name)


def put(journal: Journal, row: RoundRecord, agent: Agent, name: str = NAME) -> None:
    with journal.exclusive():
        journal.claim_round(name, row.round, row.base, row.w)
        journal.write_round(name, row, agent)


def kept(journal: Journal, rounds: int, name: str = NAME) -> list[int]:
    """Return the rounds whose state is stored."""
    return [t for t in range(1, rounds + 1) if journal.agent_state(name, t, ZERO) is not None]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_nobody_else_can_read_it(tmp_path: Path, journal: Journal) -> None:
    write(journal, 1, 0)
    folder = tmp_path / "state"
    assert mode(folder) == 0o700
    assert mode(folder / "journal.sqlite") == 0o600
    assert mode(folder / "journal.sqlite-wal") == 0o600
    assert mode(folder / "journal.sqlite-shm") == 0o600
    with Journal.read(folder):
        assert mode(folder / "journal.sqlite-wal") == 0o600


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with Journal.open(tmp_path / "state"):
            pass
        (tmp_path / "state" / "journal.sqlite").chmod(0o644)
        with Journal.open(tmp_path / "state"):
            assert mode(tmp_path / "state" / "journal.sqlite") == 0o600
            assert mode(tmp_path / "state") == 0o700
    finally:
        os.umask(old)


def test_a_folder_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    with Journal.open(tmp_path / "state"):
        assert mode(tmp_path / "state") == 0o700


def test_only_one_agent_works_with_it(tmp_path: Path, journal: Journal) -> None:
    with pytest.raises(InputError, match="in use by another agent of this site"), Journal.open(tmp_path / "state", 0.0):
        pass
    with Journal.read(tmp_path / "state") as reader:  # its owner may look at any time
        assert [begun.id for begun in reader.experiments()] == [NAME]


def test_the_next_agent_opens_it_when_the_first_has_ended(tmp_path: Path) -> None:
    for _ in range(2):
        with Journal.open(tmp_path / "state", patience=0.0) as journal:
            assert journal.experiments() == []


def test_without_a_journal_there_is_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has not taken part in a study yet"), Journal.read(tmp_path):
        pass


def test_a_study_is_noted_once(journal: Journal) -> None:
    begun = journal.experiment(NAME)
    assert begun is not None and begun.closed_at is None
    assert (begun.study, begun.terms, begun.reservation, begun.non_private) == ("tiny", "terms", "reservation", "")
    assert journal.experiment("other") is None
    with pytest.raises(Exception, match="UNIQUE"):
        journal.begin(NAME, "another", "", "", "")
    assert journal.experiments() == [begun]


NUMBERS = arrays("float64", (3, 1, 2))


@given(NUMBERS, NUMBERS, st.sampled_from(["float32", "float64"]))
def test_a_state_comes_back_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory, z: object, lam: object, dtype: str
) -> None:
    with np.errstate(over="ignore"):
        agent = Agent(np.asarray(z).astype(dtype), np.asfortranarray(lam).astype(dtype))
    with Journal.open(tmp_path_factory.mktemp("j") / "state") as journal:
        journal.begin(NAME, "tiny", "", "", "")
        put(journal, RoundRecord(1, 0, "w", (), b"u"), agent)
        found = journal.agent_state(NAME, 1, ZERO.astype(dtype))
    assert found is not None
    for one, other in zip(found, agent, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def test_before_the_first_round_the_state_is_zero(journal: Journal) -> None:
    found = journal.agent_state(NAME, 0, ZERO)
    assert found is not None and not found.z.any() and not found.lam.any()
    assert journal.agent_state(NAME, 1, ZERO) is None and journal.last_round(NAME) is None


def test_a_round_comes_back_as_it_was_written(journal: Journal) -> None:
    write(journal, 1, 0)
    write(journal, 2, 1)
    last = journal.last_round(NAME)
    assert last == RoundRecord(2, 1, "w2", (release(2),), b"upload 2")
    assert [row.round for row in journal.rounds(NAME)] == [1, 2]
    assert [(d.kind, d.round, d.sha256, d.bytes) for d in journal.departures()] == [
        ("answer", t, digest(b"upload %d" % t), 8) for t in (1, 2)
    ]


def test_only_the_base_and_the_new_state_are_kept(journal: Journal) -> None:
    for t, base in ((1, 0), (2, 1), (3, 2)):
        write(journal, t, base)
        assert kept(journal, t) == [b for b in (base, t) if b]
    write(journal, 4, 2)  # round 3 was never accepted
    assert kept(journal, 4) == [2, 4]
    write(journal, 7, 4)  # and the site was not asked in rounds 5 and 6
    assert kept(journal, 7) == [4, 7]
    write(journal, 8, 4)
    assert kept(journal, 8) == [4, 8]
    uploads = {row.round: row.upload for row in journal.rounds(NAME)}
    assert {t for t, upload in uploads.items() if upload is not None} == {4, 8}


def test_what_is_deleted_is_not_on_the_disk(tmp_path: Path) -> None:
    secret = np.full((3, 1, 2), 123.456789)
    with Journal.open(tmp_path) as journal:
        journal.begin(NAME, "tiny", "", "", "")
        put(journal, RoundRecord(1, 0, "w", (), b"the first upload"), Agent(secret, secret))
        write(journal, 2, 1)
        write(journal, 3, 2)
    found = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert secret.tobytes() not in found and b"the first upload" not in found
    assert state(3).z.tobytes() in found


def test_what_is_deleted_is_not_on_the_disk_while_the_agent_is_at_work(tmp_path: Path, journal: Journal) -> None:
    secret = np.full((3, 1, 2), 123.456789)
    put(journal, RoundRecord(1, 0, "w", (), b"the first upload"), Agent(secret, secret))
    write(journal, 2, 1)
    write(journal, 3, 2)
    assert secret.tobytes() not in b"".join(path.read_bytes() for path in (tmp_path / "state").iterdir())


def test_at_the_end_of_a_study_nothing_of_it_is_on_the_disk(tmp_path: Path, journal: Journal) -> None:
    secret = np.full((3, 1, 2), 123.456789)
    put(journal, RoundRecord(1, 0, "w", (), b"the first upload"), Agent(secret, secret))
    journal.close(NAME)
    found = b"".join(path.read_bytes() for path in (tmp_path / "state").iterdir())
    assert secret.tobytes() not in found and b"the first upload" not in found


def test_other_studies_are_left_alone(journal: Journal) -> None:
    journal.begin("other", "o", "", "", "")
    write(journal, 1, 0)
    write(journal, 1, 0, "other")
    write(journal, 2, 1)
    journal.close(NAME)
    assert kept(journal, 2, "other") == [1]


def test_what_cannot_be_written_changes_nothing(journal: Journal) -> None:
    write(journal, 1, 0)
    write(journal, 2, 1)
    departed = journal.departures()
    with pytest.raises(Exception, match="UNIQUE"):
        write(journal, 2, 0)
    assert kept(journal, 2) == [1, 2] and journal.departures() == departed


def test_the_hash_of_a_dual_outlives_it(journal: Journal) -> None:
    for t in (1, 2, 3):
        write(journal, t, t - 1)
    journal.close(NAME)
    assert [journal.dual_digest(NAME, t) for t in (1, 2, 3)] == [array_digest(state(t).lam) for t in (1, 2, 3)]
    assert journal.dual_digest(NAME, 4) is None and journal.dual_digest("other", 1) is None


def test_the_end_of_a_study_strikes_out_everything(journal: Journal) -> None:
    write(journal, 1, 0)
    write(journal, 2, 1)
    journal.close(NAME)
    begun = journal.experiment(NAME)
    assert begun is not None and begun.closed_at
    assert kept(journal, 2) == []
    assert [(row.round, row.upload) for row in journal.rounds(NAME)] == [(1, None), (2, None)]
    assert len(journal.departures()) == 2  # what left is known for ever


def test_departures_are_known_by_their_bytes(journal: Journal) -> None:
    assert not journal.has_departure(digest(b"x"))
    journal.record_departure(NAME, "ready", None, b"x")
    assert journal.has_departure(digest(b"x")) and not journal.has_departure(digest(b"y"))


PROGRAM = """
import sys, time
from pathlib import Path
import numpy as np
from taciturn.algorithms.base import Agent
from taciturn.federation.journal import RoundRecord, Journal

where, do = Path(sys.argv[1]), sys.argv[2]
zero = np.zeros((3, 1, 2))

def put(journal, row, agent):
    with journal.exclusive():
        journal.claim_round("e", row.round, row.base, row.w)
        journal.write_round("e", row, agent)

with Journal.open(where) as journal:
    journal.begin("e", "tiny", "", "", "")
    put(journal, RoundRecord(1, 0, "w1", (), b"one"), Agent(zero + 1, zero))
    if do == "during":  # the transaction is open, and not committed
        journal.record_departure = lambda *args: (print("now", flush=True), time.sleep(60))
    elif do == "before":
        print("now", flush=True)
        time.sleep(60)
    put(journal, RoundRecord(2, 1, "w2", (), b"two"), Agent(zero + 2, zero))
    print("now", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(("when", "rounds"), [("before", [1]), ("during", [1]), ("after", [1, 2])])
def test_a_round_is_there_once_it_was_written_and_not_before(tmp_path: Path, when: str, rounds: list[int]) -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, tmp_path, when], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    with pytest.raises(InputError, match="in use"), Journal.open(tmp_path, patience=0.0):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with Journal.open(tmp_path, patience=0.0) as journal:
        assert [row.round for row in journal.rounds("e")] == rounds
        assert [departure.round for departure in journal.departures()] == rounds
        found = journal.agent_state("e", rounds[-1], ZERO)
        assert found is not None and (found.z == rounds[-1]).all()
