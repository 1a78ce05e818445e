"""Ledgers that are checked on another machine: signatures, countersignatures, forgeries, moves and copies."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import taciturn
from taciturn.errors import Interrupted, LedgerTampered
from taciturn.privacy.signatures import own_key
from taciturn.runs.folder import RunFolder
from taciturn.training.finish import signable
from tests.cli import warm
from tests.cli.helpers import CERTIFIED, EXAMPLE, TABLE, environment

SMALL = ("--rounds", "3", "--total-epsilon", "3", "--noise", "hardened")


class Machine:
    """A state folder of its own, as every machine has."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir()

    @property
    def state(self) -> Path:
        return self.home / "state" / "taciturn"

    def taciturn(self, *args: str | Path, code: int = 0) -> str:
        words, env = ["-m", "taciturn", *map(str, args)], environment(XDG_STATE_HOME=str(self.home / "state"))
        done = warm.run(words, self.home, env, pictures=False)
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return " ".join(f"{done.stdout} {done.stderr}".split())

    def refused(self, *args: str | Path) -> str:
        return self.taciturn(*args, code=2)

    def request(self, name: str) -> Path:
        """What it asks for a ledger with."""
        self.taciturn("ledger", "request", "--out", name)
        return self.home / name

    def key(self, name: str) -> Path:
        """The public half of its key, as a file that can be carried about."""
        self.taciturn("ledger", "key", "--out", name)
        return self.home / name


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory, own_state_folder: None) -> tuple[Machine, Path, Path]:
    """A hospital, a certified run of it, and its public key."""
    hospital = Machine(tmp_path_factory.mktemp("signed") / "hospital")
    hospital.taciturn("run", *CERTIFIED, *SMALL, "--out", "r")
    return hospital, hospital.home / "r", hospital.key("hospital.pub")


@pytest.fixture
def run(signed: tuple[Machine, Path, Path], tmp_path: Path) -> Path:
    """A copy of the run's public files, as an officer gets it."""
    return Path(shutil.copytree(signed[1], tmp_path / "r", ignore=shutil.ignore_patterns("local-only", "checkpoint")))


@pytest.fixture
def officer(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "office")


def rewrite(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """What a forger does: change lines, hash all of them again, write the head."""
    last, lines = "0" * 64, []
    for text in (run / "ledger.jsonl").read_text().splitlines():
        row = json.loads(text)
        change(row)
        row["previous"] = last
        lines.append(json.dumps(row, ensure_ascii=False))
        last = hashlib.sha256(lines[-1].encode()).hexdigest()
    (run / "ledger.jsonl").write_text("\n".join(lines) + "\n")
    (run / "ledger.head").write_text(json.dumps({"lines": len(lines), "head": last}) + "\n")


def quieter(row: dict[str, Any]) -> None:
    """All scales times 9.3, in plan and releases, and a plan to match."""
    for event in (row, *row.get("events", ())):
        if "scale" in event:
            event["scale"] *= 9.3
    row |= {name: row[name] / 10.0 for name in ("epsilon", "total_epsilon", "planned_epsilon") if name in row}


def test_an_officer_elsewhere_verifies_a_run(signed: tuple[Machine, Path, Path], run: Path, officer: Machine) -> None:
    hospital, _, key = signed
    said = officer.taciturn("ledger", "verify", run, "--key", key)
    assert "Every record is protected with total epsilon 3" in said and "verified: all" in said
    assert "does not show that the run did what they say" in said
    found = json.loads(officer.taciturn("ledger", "verify", run, "--key", key, "--json"))
    assert found["verified"]["organisation"] in hospital.taciturn("ledger", "key")
    assert found["total_epsilon"] == pytest.approx(3.0, rel=1e-3)
    assert "is signed by key" in officer.refused("ledger", "verify", run, "--key", officer.key("mine.pub"))


def test_only_the_owner_can_read_the_private_key(signed: tuple[Machine, Path, Path], officer: Machine) -> None:
    hospital, _, public = signed
    private = hospital.state / "keys" / "ledger.key"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600 and stat.S_IMODE(private.parent.stat().st_mode) == 0o700
    assert str(private) in hospital.taciturn("ledger", "key")
    assert "PRIVATE" not in public.read_text()
    shared = officer.state / "keys" / "ledger.key"
    officer.taciturn("ledger", "key")
    shared.chmod(0o644)
    assert "chmod 600" in officer.refused("ledger", "key")


def test_a_forged_run_is_refused(signed: tuple[Machine, Path, Path], run: Path, officer: Machine) -> None:
    """Epsilon 3 becomes 0.3 in ten lines, and the chain is whole; only the key tells."""
    _, _, key = signed
    rewrite(run, quieter)
    said = officer.taciturn("ledger", run)
    assert "Every record is protected with total epsilon 0.3" in said
    assert "not verified" in said and "anyone can compute such a chain" in said
    assert "is not what the organisation signed" in officer.refused("ledger", "verify", run, "--key", key)
    lines = [json.loads(line) for line in (run / "ledger.sig").read_text().splitlines()]
    head = json.loads((run / "ledger.head").read_text())
    forged = "".join(json.dumps(line | head) + "\n" for line in lines)
    (run / "ledger.sig").write_text(forged)
    assert "signature is invalid" in officer.refused("ledger", "verify", run, "--key", key)
    (run / "ledger.sig").unlink()
    assert "has no signature" in officer.refused("ledger", "verify", run, "--key", key)
    officer.taciturn("ledger", "key")
    for content in (b"\xff\n", b"[]\n", b'{"role": 3}\n', b"[" * 5000):
        (run / "ledger.sig").write_bytes(content)
        assert "is not a signature" in officer.refused("ledger", "verify", run, "--key", key)


@pytest.mark.parametrize("change", ["line", "cut", "id", "role"])
def test_any_change_is_refused(signed: tuple[Machine, Path, Path], run: Path, officer: Machine, change: str) -> None:
    ledger, start, signatures = run / "ledger.jsonl", run / "start.json", run / "ledger.sig"
    if change == "line":
        ledger.write_text(ledger.read_text().replace('"count": 1', '"count": 2', 1))
    elif change == "cut":
        ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:-1]))
    elif change == "id":
        start.write_text(json.dumps(json.loads(start.read_text()) | {"id": "ab" * 16}))
    else:
        signatures.write_text(signatures.read_text().replace('"organisation"', '"officer"'))
    arguments = ("--officer", signed[2]) if change == "role" else ()
    officer.refused("ledger", "verify", run, "--key", signed[2], *arguments)


def test_an_operator_signs_again_and_the_officer_notices(
    signed: tuple[Machine, Path, Path], run: Path, officer: Machine, tmp_path: Path
) -> None:
    hospital, _, key = signed
    stamp = officer.key("officer.pub")
    both = ("--key", key, "--officer", stamp)
    assert "has no signature of the officer" in officer.refused("ledger", "verify", run, *both)
    officer.taciturn("ledger", "countersign", run, "--key", key)
    assert "countersigned by" in officer.taciturn("ledger", "verify", run, *both)
    rewrite(run, quieter)
    shutil.copytree(
        hospital.state / "keys", tmp_path / "operator" / "state" / "taciturn" / "keys", copy_function=shutil.copy2
    )
    operator = Machine.__new__(Machine)
    operator.home = tmp_path / "operator"
    (operator.state / "ledgers").mkdir()
    identity = json.loads((run / "start.json").read_text())["id"]
    shutil.copy(run / "ledger.head", operator.state / "ledgers" / f"{identity}.json")
    operator.taciturn("ledger", "sign", run)
    assert "total epsilon 0." in operator.taciturn(
        "ledger", "verify", run, "--key", key
    )  # a signature does not show more
    assert "not what the officer signed" in operator.refused("ledger", "verify", run, *both)
    assert "is not the ledger that" in officer.refused("ledger", "verify", run, "--key", key)
    assert "is not the ledger that" in officer.refused("ledger", "countersign", run, "--key", key)


def test_a_countersignature_by_a_key_in_a_file(signed: tuple[Machine, Path, Path], run: Path, officer: Machine) -> None:
    hospital, _, key = signed
    stamp = officer.key("officer.pub")
    private = officer.state / "keys" / "ledger.key"
    other = Machine(officer.home / "other")
    other.taciturn("ledger", "countersign", run, "--with", private)
    other.taciturn("ledger", "verify", run, "--key", key, "--officer", stamp)
    own = hospital.state / "keys" / "ledger.key"
    assert "an officer needs another key" in other.refused("ledger", "countersign", run, "--with", own)
    assert "is not an Ed25519 private key" in other.refused("ledger", "countersign", run, "--with", key)
    assert "is a private key" in other.refused("ledger", "verify", run, "--key", own)
    assert "there is no key" in other.refused("ledger", "verify", run, "--key", "none.pub")
    assert "was started on another machine" in other.refused("ledger", "sign", run)


LEDGER = ("ledger.jsonl", "ledger.head", "ledger.sig")


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory, own_state_folder: None) -> tuple[Path, Path, Path]:
    """A run that paused and then finished, the same run truncated to its pause, and the public key."""
    folder = tmp_path_factory.mktemp("paused")
    given: dict[str, Any] = {"data": TABLE[1], "schema": TABLE[3], "total_records": 600, "agents": 3, "rounds": 5}
    with pytest.raises(Interrupted):
        taciturn.run(out=str(folder / "whole"), stop=lambda: True, **given)
    at_pause = {name: (folder / "whole" / name).read_bytes() for name in LEDGER}
    taciturn.resume(folder / "whole")
    shutil.copytree(folder / "whole", folder / "cut", ignore=shutil.ignore_patterns("local-only", "checkpoint"))
    for name, content in at_pause.items():
        (folder / "cut" / name).write_bytes(content)
    (folder / "key.pub").write_text(own_key().public.pem)
    return folder / "whole", folder / "cut", folder / "key.pub"


def test_a_paused_run_is_signed_up_to_its_last_line(paused: tuple[Path, Path, Path]) -> None:
    whole, cut, _ = paused
    assert signable(RunFolder.open(whole)).verify(own_key().public, None) == "ended"
    signed = [json.loads(line) for line in (whole / "ledger.sig").read_text().splitlines()]
    assert [one["state"] for one in signed] == ["paused", "ended"]
    assert signed[0]["lines"] < signed[1]["lines"] == len(RunFolder.open(whole).chain.hashes()) - 1
    with pytest.raises(LedgerTampered, match="truncated"):
        RunFolder.open(cut).read_ledger()  # on the machine that made it, the head kept apart knows


def test_a_ledger_truncated_to_its_pause_does_not_verify_as_complete(
    paused: tuple[Path, Path, Path], officer: Machine
) -> None:
    whole, cut, key = paused
    said = officer.taciturn("ledger", "verify", cut, "--key", key, code=1)
    assert said.startswith("NOT COMPLETE") and "verified: all" not in said
    found = officer.taciturn("ledger", "verify", cut, "--key", key, "--json", code=1)
    assert json.loads(found)["verified"]["at_end"] is False
    said = officer.taciturn("ledger", "verify", cut, "--key", key, "--unfinished")
    assert "NOT COMPLETE" in said and "verified so far: the first" in said
    assert "NOT COMPLETE" in officer.taciturn("ledger", "countersign", cut, "--key", key)
    states = [json.loads(line)["state"] for line in (cut / "ledger.sig").read_text().splitlines()]
    assert states == ["paused", "paused"]  # there is a summary beside it, and still nobody says that it had ended
    (cut / "ledger.sig").write_text((cut / "ledger.sig").read_text().splitlines(keepends=True)[0])
    said = officer.taciturn("ledger", "verify", whole, "--key", key)
    assert "verified: all" in said and "NOT COMPLETE" not in said


def test_an_officer_who_saw_more_lines_notices_that_a_run_was_truncated(
    paused: tuple[Path, Path, Path], officer: Machine
) -> None:
    whole, cut, key = paused
    assert "This machine remembers these" in officer.taciturn("ledger", "verify", whole, "--key", key)
    for use in (("verify", cut, "--unfinished"), ("countersign", cut)):
        said = officer.refused("ledger", *use, "--key", key)
        assert "/verified/" in said and "truncated" in said
    assert stat.S_IMODE((officer.state / "verified").stat().st_mode) == 0o700
    officer.taciturn("ledger", "verify", whole, "--key", key)


def test_signatures_of_more_lines_reveal_a_truncation(
    paused: tuple[Path, Path, Path], officer: Machine, tmp_path: Path
) -> None:
    whole, cut, key = paused
    forged = Path(shutil.copytree(cut, tmp_path / "forged"))
    shutil.copy(whole / "ledger.sig", forged / "ledger.sig")
    said = officer.refused("ledger", "verify", forged, "--key", key, "--unfinished")
    assert "truncated" in said and "the organisation signed" in said


def test_a_budget_ledger_truncated_to_an_older_signature_is_noticed_on_machines_that_saw_more(
    officer: Machine, tmp_path: Path
) -> None:
    """Its first reader cannot know; the operator's machine does, and an officer who saw more of it does."""
    hospital, stranger = Machine(tmp_path / "hospital"), Machine(tmp_path / "stranger")
    files, key = ("l", "l.sig"), hospital.key("hospital.pub")
    hospital.taciturn("ledger", "init", "l", "--total-epsilon", "2")
    hospital.taciturn("ledger", "sign", "l")
    early = {name: (hospital.home / name).read_bytes() for name in files}
    hospital.taciturn(*RESERVE, "--out", "a")
    hospital.taciturn("ledger", "sign", "l")
    for name in files:
        shutil.copy(hospital.home / name, officer.home / name)
    said = officer.taciturn("ledger", "verify", "l", "--key", key)
    assert "has no last line" in said and "This machine remembers these 4 lines" in said
    for machine in (hospital, officer, stranger):
        for name, content in early.items():
            (machine.home / name).write_bytes(content)
    assert "truncated" in hospital.refused("ledger", "verify", "l", "--key", key)
    for use in ("verify", "countersign"):
        assert "counts 4" in officer.refused("ledger", use, "l", "--key", key)
    said = stranger.taciturn("ledger", "verify", "l", "--key", key)
    assert "a first check cannot detect" in said and "Only a countersignature" in said and said.endswith(".")


def test_a_ledger_over_studies_is_signed_and_countersigned_too(officer: Machine, tmp_path: Path) -> None:
    hospital = Machine(tmp_path / "hospital")
    hospital.taciturn("ledger", "init", "l", "--total-epsilon", "4")
    hospital.taciturn("run", *CERTIFIED, *SMALL, "--ledger", "l", "--out", "r")
    key, stamp = hospital.key("hospital.pub"), officer.key("officer.pub")
    assert "not verified" in hospital.taciturn("ledger", "l")
    hospital.taciturn("ledger", "sign", "l")
    for name in ("l", "l.sig"):
        shutil.copy(hospital.home / name, officer.home / name)
    said = officer.taciturn("ledger", "verify", "l", "--key", key)
    assert "used or reserved at delta 1e-06" in said and "all 4 lines are signed" in said
    officer.taciturn("ledger", "countersign", "l", "--key", key)
    said = officer.taciturn("ledger", "verify", "l", "--key", key, "--officer", stamp)
    assert "would need the officer's countersignature too." in said and "Only a countersignature" not in said
    hospital.taciturn(
        "run", *CERTIFIED, "--rounds", "2", "--total-epsilon", "0.1", *SMALL[-2:], "--ledger", "l", "--out", "s"
    )
    shutil.copy(hospital.home / "l", officer.home / "l")
    said = officer.refused("ledger", "verify", "l", "--key", key)
    assert "has grown since the organisation signed it" in said


RESERVE = ("run", *CERTIFIED, "--rounds", "2", "--total-epsilon", "0.3", "--noise", "hardened", "--ledger", "l")


def test_a_ledger_moves_and_is_never_in_two_places(tmp_path: Path) -> None:
    old, new, third = (Machine(tmp_path / name) for name in ("old", "new", "third"))
    old.taciturn("ledger", "init", "l", "--total-epsilon", "2")
    old.taciturn(*RESERVE, "--out", "a")
    shutil.copy(old.home / "l", new.home / "l")
    assert "was not handed over" in new.refused("ledger", "adopt", "l")  # a copy from before
    assert "is this machine" in old.refused("ledger", "hand-over", "l", "--to", old.request("old.request"))
    assert "is not a request" in old.refused("ledger", "hand-over", "l", "--to", old.key("old.pub"))
    asked = new.request("new.request")
    old.taciturn("ledger", "hand-over", "l", "--to", asked)
    assert "handed over to key" in old.taciturn("ledger", "l")
    for use in (RESERVE, ("ledger", "hand-over", "l", "--to", asked)):
        assert "handed over to key" in old.refused(*use, *(("--out", "b") if use is RESERVE else ()))
    assert "from this machine" in old.refused("ledger", "adopt", "l")
    for machine in (new, third):
        shutil.copy(old.home / "l", machine.home / "l")
    third.taciturn("ledger", "key")
    assert "was handed over to key" in third.refused("ledger", "adopt", "l")
    assert "handed over by key" in new.refused("ledger", "adopt", "l", "--key", third.key("third.pub"))
    new.taciturn("ledger", "adopt", "l", "--key", old.home / "old.pub")
    new.taciturn(*RESERVE, "--out", "b")
    shutil.copy(old.home / "l", new.home / "again")
    assert "truncated" in new.refused("ledger", "adopt", "again")  # the same hand-over, a second time
    shutil.copy(new.home / "l", old.home / "l")  # it continues over there: this is a copy
    assert "belongs to machine" in old.refused(*RESERVE, "--out", "c")
    new.taciturn("ledger", "hand-over", "l", "--to", old.home / "old.request")
    shutil.copy(new.home / "l", old.home / "l")
    old.taciturn("ledger", "adopt", "l")
    old.taciturn(*RESERVE, "--out", "c")
    state = json.loads(old.taciturn("ledger", "l", "--json"))
    assert len(state["studies"]) == 3 and len(state["adopted"]) == 2 and state["lost_machines"] == []


def test_two_machines_with_one_key_do_not_both_adopt_a_hand_over(tmp_path: Path) -> None:
    old, new, twin = (Machine(tmp_path / name) for name in ("old", "new", "twin"))
    old.taciturn("ledger", "init", "l", "--total-epsilon", "2")
    asked = new.request("new.request")
    private = Path("keys") / "ledger.key"
    (twin.state / "keys").mkdir(parents=True, mode=0o700)
    shutil.copy2(new.state / private, twin.state / private)
    assert twin.key("t.pub").read_bytes() == new.key("n.pub").read_bytes()
    old.taciturn("ledger", "hand-over", "l", "--to", asked)
    for machine in (new, twin):
        shutil.copy(old.home / "l", machine.home / "l")
    said = twin.refused("ledger", "adopt", "l")
    assert "was handed over to machine" in said
    new.taciturn("ledger", "adopt", "l")
    assert "was handed over to machine" in twin.refused("ledger", "adopt", "l")
    (head,) = (new.state / "ledgers").glob("*.json")
    head.unlink()  # even so, one hand-over is adopted once
    shutil.copy(old.home / "l", new.home / "l")
    assert "already adopted" in new.refused("ledger", "adopt", "l")


def test_a_copied_state_folder_is_another_machine(tmp_path: Path) -> None:
    """Neither before nor after an adoption does the copy have a budget of its own."""
    old, new = (Machine(tmp_path / name) for name in ("old", "new"))
    old.taciturn("ledger", "init", "l", "--total-epsilon", "2")
    asked = new.request("new.request")
    before = Machine.__new__(Machine)
    before.home = Path(shutil.copytree(new.home, tmp_path / "before"))
    old.taciturn("ledger", "hand-over", "l", "--to", asked)
    for machine in (new, before):
        shutil.copy(old.home / "l", machine.home / "l")
    new.taciturn("ledger", "adopt", "l")
    assert "was handed over to machine" in before.refused("ledger", "adopt", "l")
    after = Machine.__new__(Machine)
    after.home = Path(shutil.copytree(new.home, tmp_path / "after"))
    new.taciturn(*RESERVE, "--out", "a")
    for use in ((*RESERVE, "--out", "a"), ("ledger", "hand-over", "l", "--to", old.request("old.request"))):
        assert "belongs to machine" in after.refused(*use)
    assert "WARNING: taken over from a lost machine" in after.taciturn("ledger", "adopt", "l", "--lost-machine")
    secret = list((new.state / "keys").glob("machine-*.key"))
    assert [stat.S_IMODE(path.stat().st_mode) for path in secret] == [0o600]
    name = json.loads(asked.read_text())["machine"]
    assert name in new.taciturn("ledger", "machine") and name not in after.taciturn("ledger", "machine")
    assert secret[0].read_bytes().hex()[:8] not in asked.read_text()


def test_a_state_folder_that_machines_share_has_one_name(tmp_path: Path) -> None:
    """As a folder on a network has: another path is what another machine looks like."""
    one = Machine(tmp_path / "one")
    one.taciturn("ledger", "init", "l", "--total-epsilon", "2")
    shown = Machine.__new__(Machine)
    shown.home = tmp_path / "shown"
    one.home.rename(shown.home)
    said = shown.refused("ledger", "l")
    assert "belongs to machine" in said and "'taciturn ledger machine --shared'" in said
    shown.home.rename(one.home)
    name = one.taciturn("ledger", "machine")
    assert name.strip() in one.taciturn("ledger", "machine", "--shared")
    one.home.rename(shown.home)
    assert shown.taciturn("ledger", "machine") == name
    shown.taciturn("ledger", "l")


def test_the_ledger_names_a_lost_machine_permanently(tmp_path: Path) -> None:
    old, new = (Machine(tmp_path / name) for name in ("old", "new"))
    old.taciturn("ledger", "init", "l", "--total-epsilon", "2")
    shutil.copy(old.home / "l", new.home / "l")
    assert "WARNING: taken over from a lost machine" in new.taciturn("ledger", "adopt", "l", "--lost-machine")
    for _ in range(2):
        assert "what was reserved or spent after this copy was made is not known" in new.taciturn("ledger", "l")
    assert len(json.loads(new.taciturn("ledger", "l", "--json"))["lost_machines"]) == 1
    new.taciturn("run", *CERTIFIED, "--rounds", "2", *SMALL[-2:], "--ledger", "l", "--out", "r")
    assert "old copy without a hand-over" in (new.home / "r" / "report.html").read_text()


def test_a_second_ledger_for_the_same_records_is_noticed(tmp_path: Path) -> None:
    here = Machine(tmp_path / "here")
    header, *rows = (EXAMPLE / "records.csv").read_text().splitlines()
    (here.home / "sorted.csv").write_text("\n".join([header, *sorted(rows)]) + "\n")
    (here.home / "edited.csv").write_text("\n".join([header, *rows[1:], rows[1]]) + "\n")
    terms = (*CERTIFIED[2:], "--rounds", "2", "--total-epsilon", "0.3", "--noise", "hardened")
    same, mixed, edited = (("run", "--data", name, *terms) for name in (TABLE[1], "sorted.csv", "edited.csv"))
    for name, further in (("l", ()), ("m", ()), ("n", ("--further",))):
        here.taciturn("ledger", "init", name, "--total-epsilon", "2", *further)
    here.taciturn(*same, "--ledger", "l", "--out", "a")
    for other in (same, mixed):
        said = here.refused(*other, "--features", "unit", "--ledger", "m", "--out", "b")
        assert "already have a budget ledger, l (" in said and "--further" in said
    assert json.loads(here.taciturn("ledger", "m", "--json"))["epsilon_used"] == 0.0  # given back
    assert "note: this run is not charged to the ledger l of these records (" in here.taciturn(*mixed, "--out", "c")
    assert "note:" not in here.taciturn(*edited, "--out", "d")
    here.taciturn(*mixed, "--ledger", "n", "--out", "e")
    assert "--further" in here.taciturn("ledger", "n")
    assert "these records may have one in addition" in (here.home / "e" / "report.html").read_text()
    here.taciturn(*edited, "--ledger", "m", "--out", "f")  # one edited row evades it
    keys = here.state / "keys" / "records.key"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600 and len(keys.read_bytes()) == 32
    ties = {path.stem for path in (here.state / "records").iterdir()}
    for file in (path for name in "acdef" for path in (here.home / name).rglob("*") if path.is_file()):
        assert not any(tie.encode() in file.read_bytes() for tie in ties), file
