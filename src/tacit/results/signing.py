"""Signatures of a ledger's head, so that somebody on another machine can tell whose lines they are.

A signature shows that the key's holder stood by these lines. It does not show that the run did what the lines say, nor
that there is no other ledger: its holder can write another one and sign that. What an officer countersigned, or
remembers, he would have to sign again.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from tacit.errors import InputError
from tacit.results.chain import Chain
from tacit.results.files import make_folder, write_text
from tacit.results.keys import PublicKey, SigningKey, own_key
from tacit.state import state_folder
from tacit.version import VERSION

HEAD_DOMAIN = b"tacit: head of a ledger, version 1\n"
HAND_OVER_DOMAIN = b"tacit: hand-over of a ledger, version 1\n"
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
        return HEAD_DOMAIN + _canonical(self._asdict())


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

    def sign(self) -> Signature:
        """Sign the ledger as it stands with this machine's key; once is enough."""
        return self._add(self.statement(ORGANISATION), own_key())

    def countersign(self, officer: SigningKey, organisation: PublicKey | None) -> Signature:
        """Sign, as an officer, what the organisation has signed, and remember it on this machine."""
        signed = self.check(ORGANISATION, organisation)
        self._check_remembered()
        if officer.public == signed.key:
            raise InputError(f"key {officer.public.id} signed it for the organisation: an officer needs another key")
        added = self._add(self.statement(OFFICER), officer)
        self._remember()
        return added

    def verify(self, organisation: PublicKey, officer: PublicKey | None) -> str:
        """Refuse a ledger that is not, to its last line, what the holders of these keys signed; the state it had then.

        One that was signed when its run had paused may have been cut back to that line: the run can have gone on.
        """
        signed = self.check(ORGANISATION, organisation)
        if officer is not None:
            self.check(OFFICER, officer)
        self._check_remembered()
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

    def _add(self, statement: Statement, key: SigningKey) -> Signature:
        added = Signature(statement, key.public, key.sign(statement.message))
        known = self.signatures()
        if not any(one.statement == statement and one.key == added.key and one.valid for one in known):
            write_text(self.file, "".join(one.line for one in [*known, added]))
        return added

    @property
    def _memory(self) -> Path:
        return state_folder() / "countersigned" / f"{self.id}.json"

    def _remember(self) -> None:
        if self.id:
            make_folder(self._memory.parent, exist_ok=True)
            now = self.statement(OFFICER)
            write_text(self._memory, json.dumps({"lines": now.lines, "head": now.head}) + "\n")

    def _check_remembered(self) -> None:
        """Refuse a ledger that does not go on from what was countersigned on this machine."""
        if not (self.id and self._memory.is_file()):
            return
        kept, hashes = json.loads(self._memory.read_text(encoding="utf-8")), self.chain.hashes()
        if len(hashes) <= kept["lines"] or hashes[kept["lines"]] != kept["head"]:
            raise InputError(
                f"{self.chain.path} is not the ledger that was countersigned on this machine: its first "
                f"{kept['lines']} lines are others now, no matter who signed them"
            )


class HandOver(NamedTuple):
    """The line that closes a ledger on one machine for another to go on with."""

    nonce: str
    lines: int  # before it
    head: str  # of those
    to: str  # the id of the other machine's key
    key: str  # of the machine that hands it over, in hexadecimal digits
    signature: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> HandOver:
        """The line as it was read."""
        return cls(*(row.get(name, "") for name in cls._fields))

    def row(self) -> dict[str, Any]:
        """The line as it is written."""
        return {"kind": "handed-over", **self._asdict()}

    def message(self, ledger: str) -> bytes:
        """The bytes that are signed."""
        stated = self._asdict() | {"ledger": ledger}
        return HAND_OVER_DOMAIN + _canonical({name: stated[name] for name in stated if name != "signature"})


def signed_hand_over(ledger: str, hashes: Sequence[str], to: str) -> HandOver:
    """The line that hands a ledger with these hashes over to the machine whose key has this id."""
    key = own_key()
    if key.public.id == to:
        raise InputError(f"key {to} is this machine's own: give the key of the machine that the ledger moves to")
    bare = HandOver(secrets.token_hex(16), len(hashes) - 1, hashes[-1], to, key.public.raw.hex(), "")
    return bare._replace(signature=key.sign(bare.message(ledger)).hex())


def check_hand_over(path: Path, ledger: str, given: HandOver | None, hashes: Sequence[str], key: str) -> None:
    """Refuse a ledger that was not handed over to this machine in its last line."""
    if given is None:
        raise InputError(
            f"{path} was not handed over: 'tacit ledger hand-over {path.name} --to KEY.pub' on the machine it is at "
            "home on; where that machine is lost, 'adopt --lost-machine'"
        )
    own = own_key().public.id
    if given.to != own:
        raise InputError(f"{path} was handed over to key {given.to}, and this machine's is {own}")
    if not (
        NAME.fullmatch(given.nonce) and HEX["key"].fullmatch(given.key) and HEX["signature"].fullmatch(given.signature)
    ):
        raise InputError(f"{path}: its hand-over is damaged")
    giver = PublicKey(bytes.fromhex(given.key))
    true = giver.signed(given.message(ledger), bytes.fromhex(given.signature))
    if not true or (given.lines, given.head) != (len(hashes) - 2, hashes[-2]):
        raise InputError(f"{path}: its hand-over was not signed by key {giver.id}, or is of other lines")
    if key not in ("", giver.id):
        raise InputError(f"{path} was handed over by key {giver.id}, and not by {key}")


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


def _canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
