"""Signatures of a ledger's head, so that somebody on another machine can tell whose lines they are.

A signature shows that the key's holder stood by these lines. It does not show that the run did what the lines say, nor
that there is no other ledger: its holder can write another one and sign that. Nor does it show that these are all
lines: anybody can cut a ledger back to an older signature. A machine that verifies or countersigns remembers how far
each ledger went, and refuses what is shorter, or does not go on from there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from tacit.errors import InputError
from tacit.results.chain import Chain, read_head
from tacit.results.files import make_folder, write_text
from tacit.results.keys import PublicKey, SigningKey, own_key
from tacit.state import state_folder
from tacit.version import VERSION

HEAD_DOMAIN = b"tacit: head of a ledger, version 1\n"
ORGANISATION, OFFICER = "organisation", "officer"
HEX = {name: re.compile(rf"[0-9a-f]{{{digits}}}") for name, digits in (("key", 64), ("signature", 128), ("head", 64))}
NAME = re.compile(r"[0-9a-f]{32}")  # it becomes part of a file's name
MOST_LINES, LONGEST_LINE = 10_000, 2**12  # of a file of signatures


class Statement(NamedTuple):
    """What is signed; totals follow from the lines, and are not in it."""

    role: str  # organisation or officer
    ledger: str  # run or studies
    id: str  # of the run or the ledger; a run with seeded noise has none
    lines: int
    head: str  # the hash of the last line
    state: str  # ended or paused, of a run; open, of a ledger over studies
    tacit: str

    @property
    def message(self) -> bytes:
        """The bytes that are signed."""
        return HEAD_DOMAIN + canonical(self._asdict())


class Signature(NamedTuple):
    """A statement, and who signed it."""

    statement: Statement
    key: PublicKey
    signature: bytes

    @property
    def line(self) -> str:
        """As it stands in a file of signatures."""
        signed = {"key": self.key.raw.hex(), "signature": self.signature.hex()}
        return json.dumps(self.statement._asdict() | signed) + "\n"

    @property
    def valid(self) -> bool:
        """Whether the key it names signed it."""
        return self.key.signed(self.statement.message, self.signature)


@dataclass(frozen=True)
class Signable:
    """A ledger and the file with its signatures."""

    chain: Chain
    ledger: str  # run or studies
    id: str
    state: str

    @property
    def file(self) -> Path:
        """ledger.sig beside a run's ledger.jsonl; patients.ledger.sig beside patients.ledger."""
        path = self.chain.path
        return path.with_suffix(".sig") if self.ledger == "run" else path.with_name(f"{path.name}.sig")

    def statement(self, role: str, said: Statement | None = None) -> Statement:
        """The statement about the ledger as it stands; state and version are those of `said`, where that is given."""
        hashes = self.chain.hashes()
        state, version = (self.state, VERSION) if said is None else (said.state, said.tacit)
        return Statement(role, self.ledger, self.id, len(hashes) - 1, hashes[-1], state, version)

    def signatures(self) -> list[Signature]:
        """What the file holds; nothing of it is verified."""
        if not self.file.is_file():
            return []
        with self.file.open("rb") as file:
            lines = list(islice(iter(partial(file.readline, LONGEST_LINE), b""), MOST_LINES))
        return [_parsed(self.file, number, line) for number, line in enumerate(lines, 1)]

    def at_the_end(self) -> list[Signature]:
        """The signatures of the last line, by whichever keys; what is not one of ours, or is false, is left out."""
        end = self.statement(ORGANISATION)[1:5]
        found = [one for one in self.signatures() if one.statement.role in (ORGANISATION, OFFICER)]
        return [one for one in found if one.statement[1:5] == end and one.valid]

    def sign(self) -> Signature:
        """Sign the ledger as it stands with this machine's key; once is enough."""
        return self._add(self.statement(ORGANISATION), own_key())

    def countersign(self, officer: SigningKey, organisation: PublicKey | None) -> Signature:
        """Sign, as an officer, what the organisation has signed, and remember it on this machine."""
        signed = self.check(ORGANISATION, organisation)
        self.check_remembered()
        if officer.public == signed.key:
            raise InputError(f"key {officer.public.id} signed it for the organisation: an officer needs another key")
        added = self._add(self.statement(OFFICER, signed.statement), officer)
        self.remember()
        return added

    def verify(self, organisation: PublicKey, officer: PublicKey | None) -> str:
        """Refuse a ledger that is not, to its last line, what the holders of these keys signed; the state it had then.

        One that was signed when its run had paused may have been cut back to that line: the run can have gone on. A
        ledger over studies has no end, and may have been cut back to any signature. So this machine remembers how far
        it went, and refuses a shorter one afterwards.
        """
        signed = self.check(ORGANISATION, organisation)
        if officer is not None:
            self.check(OFFICER, officer)
        self.check_remembered()
        self.remember()
        return signed.statement.state

    def check(self, role: str, key: PublicKey | None) -> Signature:
        """The signature of the ledger's last line in a role, by this key, or by whichever it names."""
        path, found = self.chain.path, [s for s in self.signatures() if s.statement.role == role]
        if not found:
            advice = "'tacit ledger sign' signs it" if role == ORGANISATION else "'tacit ledger countersign' does"
            raise InputError(
                f"{path} has no signature of the {role}: nothing of it is verified; {advice} where its key is"
            )
        mine = [s for s in found if key is None or s.key == key]
        if key is not None and not mine:
            others = ", ".join(dict.fromkeys(s.key.id for s in found))
            raise InputError(f"{path} is signed by key {others}, and not by the {role}'s key {key.id}")
        self._refuse_cut(role, mine)
        for one in reversed(mine):
            if one.valid and one.statement == self.statement(role, one.statement):
                return one
        if not any(one.valid for one in mine):
            raise InputError(f"{path}: the {role}'s signature is false: this was not signed by key {mine[-1].key.id}")
        last, count = mine[-1].statement, len(self.chain.hashes()) - 1
        if mine[-1].valid and last.lines < count and self.chain.hashes()[last.lines] == last.head:
            raise InputError(
                f"{path} has grown since the {role} signed it: {last.lines} lines are signed by key {mine[-1].key.id}, "
                f"and {count - last.lines} came later; 'tacit ledger sign' signs it as it stands"
            )
        raise InputError(
            f"{path} is not what the {role} signed: the signature by key {mine[-1].key.id} is of {last.lines} lines "
            f"that end with {last.head[:12]}…, and there are {count} that end with {self.chain.hashes()[-1][:12]}…"
        )

    def _refuse_cut(self, role: str, found: Sequence[Signature]) -> None:
        """Refuse a ledger of which more lines were signed than there are."""
        count = len(self.chain.hashes()) - 1
        longer = [s for s in found if s.statement.lines > count and s.statement[1:3] == (self.ledger, self.id)]
        if cut := next((s for s in longer if s.valid), None):
            raise InputError(
                f"{self.chain.path} was cut off: it has {count} lines, and the {role} signed {cut.statement.lines} of "
                f"it with key {cut.key.id}"
            )

    def _add(self, statement: Statement, key: SigningKey) -> Signature:
        added = Signature(statement, key.public, key.sign(statement.message))
        known = self.signatures()
        if not any(one.statement == statement and one.key == added.key and one.valid for one in known):
            write_text(self.file, "".join(one.line for one in [*known, added]))
        return added

    @property
    def memory(self) -> Path:
        """Where this machine remembers how far it has seen the ledger."""
        return state_folder() / "verified" / f"{self.id}.json"

    def remember(self) -> None:
        """Keep the ledger's head, of a ledger that has a name; a run with seeded noise has none."""
        if self.id:
            make_folder(self.memory.parent, exist_ok=True)
            hashes = self.chain.hashes()
            write_text(self.memory, json.dumps({"lines": len(hashes) - 1, "head": hashes[-1]}) + "\n")

    def check_remembered(self) -> None:
        """Refuse a ledger that is shorter than what was verified or countersigned on this machine, or another one."""
        if not (self.id and self.memory.is_file()):
            return
        (count, head), hashes = read_head(self.memory), self.chain.hashes()
        if len(hashes) <= count:
            raise InputError(
                f"{self.chain.path} has {len(hashes) - 1} lines, and this machine has verified or countersigned "
                f"{count} of it before ({self.memory}): its tail was cut off, or it is an old copy, even if its "
                "signature is valid"
            )
        if hashes[count] != head:
            raise InputError(
                f"{self.chain.path} is not the ledger that was verified or countersigned on this machine "
                f"({self.memory}): its first {count} lines are others now, no matter who signed them"
            )


def _parsed(path: Path, number: int, line: bytes) -> Signature:
    try:
        row = json.loads(line)
        texts = {name: row[name] for name in ("role", "ledger", "id", "head", "state", "tacit", "key", "signature")}
        if not (line.endswith(b"\n") and type(row["lines"]) is int and all(type(t) is str for t in texts.values())):
            raise ValueError
        if not all(pattern.fullmatch(texts[name]) for name, pattern in HEX.items()):
            raise ValueError
        statement = Statement(*(row[name] for name in Statement._fields))
        return Signature(statement, PublicKey(bytes.fromhex(row["key"])), bytes.fromhex(row["signature"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"line {number} of {path} is not a signature: it was damaged or changed") from None


def canonical(value: Mapping[str, Any]) -> bytes:
    """The one way to write what is signed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
