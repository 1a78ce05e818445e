"""Ed25519 keys of this machine, and signatures of a ledger's head that others can verify."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from taciturn.core.storage import make_folder, make_once, state_folder, write_text
from taciturn.errors import InputError, missing_file
from taciturn.privacy.hash_chain import HashChain, read_head
from taciturn.version import VERSION

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

LARGEST = 2**16  # bytes of a key file


@dataclass(frozen=True)
class PublicKey:
    """The half of a key that anybody may have."""

    raw: bytes  # 32 of them

    @property
    def id(self) -> str:
        """What people compare: the first 16 hexadecimal digits of its SHA-256."""
        return hashlib.sha256(self.raw).hexdigest()[:16]

    @property
    def pem(self) -> str:
        """As a file of the usual format."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        key = Ed25519PublicKey.from_public_bytes(self.raw)
        return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def signed(self, message: bytes, signature: bytes) -> bool:
        """Whether the key's holder signed this."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class SigningKey:
    """The half of a key that signs."""

    pem: bytes = field(repr=False)
    place: Path

    @property
    def public(self) -> PublicKey:
        """The other half."""
        return PublicKey(self._key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """64 bytes that only this key makes of the message."""
        return self._key.sign(message)

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        found = private_key(self.pem)
        if not isinstance(found, Ed25519PrivateKey):
            raise InputError(f"{self.place} is not an Ed25519 private key in PEM format without a password")
        return found


def own_key() -> SigningKey:
    """The key of this machine, which stands for its organisation; made the first time it is asked for."""
    place = state_folder() / "keys" / "ledger.key"
    return SigningKey(kept_secret(place, new_key), place)


def read_signing_key(path: Path) -> SigningKey:
    """A private key in a file."""
    key = SigningKey(_content(path), path)
    key.public  # noqa: B018  what is no key is refused here
    return key


def read_public_key(path: Path) -> PublicKey:
    """A public key in a file."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    content = _content(path)
    if b"PRIVATE" in content:
        raise InputError(
            f"{path} is a private key: it stays where it is; 'taciturn ledger key --out FILE' writes its half"
        )
    try:
        found = load_pem_public_key(content)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        found = None
    if not isinstance(found, Ed25519PublicKey):
        raise InputError(
            f"{path} is not an Ed25519 public key in PEM format: 'taciturn ledger key --out FILE' writes one"
        )
    return PublicKey(found.public_bytes_raw())


def private_key(pem: bytes) -> object:
    """The private key in PEM format without a password; None where that is not what the bytes are."""
    from cryptography.exceptions import InternalError, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError):  # the last: a key with another's length
        return None


def read_secret(place: Path, kind: str = "key") -> bytes:
    """The content of a file that only its owner may read."""
    if not place.is_file():
        raise missing_file(kind, place)
    with place.open("rb") as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise InputError(f"others may read {place}: 'chmod 600 {place}', and think about who has read it")
        return file.read(LARGEST)


def records_key() -> bytes:
    """32 random bytes for digests of records, which mean nothing to those who have not the key."""
    return kept_secret(state_folder() / "keys" / "records.key", lambda: secrets.token_bytes(32))


def new_key() -> bytes:
    """An Ed25519 private key in PEM format."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return pem_of(Ed25519PrivateKey.generate())


def pem_of(key: Ed25519PrivateKey | X25519PrivateKey) -> bytes:
    """A private key as a file of the usual format, without a password."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise missing_file("key", path)
    with path.open("rb") as file:
        return file.read(LARGEST)


def kept_secret(place: Path, make: Callable[[], bytes]) -> bytes:
    """The content of a file that only its owner reads; the first who asks makes it."""
    if not place.exists():
        make_folder(place.parent, exist_ok=True)
        make_once(place, make())
    return read_secret(place)


HEAD_DOMAIN = b"taciturn: head of a ledger, version 1\n"
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
    taciturn: str

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

    chain: HashChain
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
        state, version = (self.state, VERSION) if said is None else (said.state, said.taciturn)
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
            advice = "'taciturn ledger sign' signs it" if role == ORGANISATION else "'taciturn ledger countersign' does"
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
                f"and {count - last.lines} came later; 'taciturn ledger sign' signs it as it stands"
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
        texts = {name: row[name] for name in ("role", "ledger", "id", "head", "state", "taciturn", "key", "signature")}
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
