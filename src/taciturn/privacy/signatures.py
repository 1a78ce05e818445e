"""Ed25519 keys of this machine, and signatures of a ledger's head that others can verify.

`cryptography` is slow to import and most commands do not need it, so functions import it where they use it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from taciturn.core.storage import make_folder, make_once, state_folder, write_text
from taciturn.errors import CorruptFile, InputError, LedgerTampered, missing_file
from taciturn.privacy.hash_chain import HashChain, Head, write_head
from taciturn.version import VERSION

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

MAX_KEY_BYTES = 2**16  # of a key file
HEAD_DOMAIN = b"taciturn: head of a ledger, version 1\n"
ORGANISATION, OFFICER = "organisation", "officer"
HEX_PATTERNS = {
    name: re.compile(rf"[0-9a-f]{{{digits}}}") for name, digits in (("key", 64), ("signature", 128), ("head", 64))
}
HEX_ID = re.compile(r"[0-9a-f]{32}")  # of a run, ledger or machine; it becomes part of a file name
MAX_LINES, MAX_LINE_BYTES = 10_000, 2**12  # of a file of signatures


@dataclass(frozen=True)
class PublicKey:
    """An Ed25519 public key.

    Attributes
    ----------
    raw
        Its 32 bytes.
    """

    raw: bytes

    @property
    def id(self) -> str:
        """The first 16 hexadecimal digits of its SHA-256, for people to compare."""
        return hashlib.sha256(self.raw).hexdigest()[:16]

    @property
    def pem(self) -> str:
        """The key in PEM format."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        key = Ed25519PublicKey.from_public_bytes(self.raw)
        return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return whether the key's holder signed this message."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class SigningKey:
    """An Ed25519 private key.

    Attributes
    ----------
    pem
        The key in PEM format without a password.
    path
        The file it comes from, for messages.
    """

    pem: bytes = field(repr=False)
    path: Path

    @cached_property
    def public(self) -> PublicKey:
        """The public key.

        Raises
        ------
        InputError
            If `pem` is not an Ed25519 private key.
        """
        return PublicKey(self._key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature of a message."""
        return self._key.sign(message)

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = load_private_key(self.pem)
        if not isinstance(key, Ed25519PrivateKey):
            raise InputError(f"{self.path} is not an Ed25519 private key in PEM format without a password")
        return key


def own_key() -> SigningKey:
    """Return the key of this machine, which represents its organisation; create it on first use."""
    path = state_folder() / "keys" / "ledger.key"
    return SigningKey(load_or_create_secret(path, new_key), path)


def records_key() -> bytes:
    """Return the 32 random bytes that key this machine's digests of records; create them on first use."""
    return load_or_create_secret(state_folder() / "keys" / "records.key", lambda: secrets.token_bytes(32))


def read_signing_key(path: Path) -> SigningKey:
    """Return the private key in a file.

    Raises
    ------
    InputError
        If there is no such file or it does not hold an Ed25519 private key.
    """
    key = SigningKey(_read_key_file(path), path)
    _ = key.public  # raises if it is not a key
    return key


def read_public_key(path: Path) -> PublicKey:
    """Return the public key in a file.

    Raises
    ------
    InputError
        If there is no such file, it holds a private key, or it does not hold an Ed25519 public key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    content = _read_key_file(path)
    if b"PRIVATE" in content:
        raise InputError(
            f"{path} is a private key, which must stay with its owner; 'taciturn ledger key --out FILE' writes the "
            "public key"
        )
    try:
        key = load_pem_public_key(content)
        if not isinstance(key, Ed25519PublicKey):
            raise TypeError(f"the key is of type {type(key).__name__}")
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(
            f"{path} is not an Ed25519 public key in PEM format; 'taciturn ledger key --out FILE' writes one"
        ) from error
    return PublicKey(key.public_bytes_raw())


def _read_key_file(path: Path) -> bytes:
    if not path.is_file():
        raise missing_file("key", path)
    with path.open("rb") as file:
        return file.read(MAX_KEY_BYTES)


def new_key() -> bytes:
    """Return a new Ed25519 private key in PEM format."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return private_pem(Ed25519PrivateKey.generate())


def private_pem(key: PrivateKeyTypes) -> bytes:
    """Return a private key in PEM format without a password."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def load_private_key(pem: bytes) -> PrivateKeyTypes | None:
    """Return the private key in PEM format without a password, or None if the bytes are something else."""
    from cryptography.exceptions import InternalError, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError):  # the last: a key of another kind's length
        return None


def read_secret(path: Path, kind: str = "key") -> bytes:
    """Return the content of a file that only its owner may read.

    Raises
    ------
    InputError
        If the file is missing or other users may read it.
    """
    if not path.is_file():
        raise missing_file(kind, path)
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise InputError(
                f"{path} is readable by other users: run 'chmod 600 {path}', and consider who may have read it"
            )
        return file.read(MAX_KEY_BYTES)


def load_or_create_secret(path: Path, create: Callable[[], bytes]) -> bytes:
    """Return the content of a file that only its owner reads; on first use write what `create` returns."""
    if not path.exists():
        make_folder(path.parent, exist_ok=True)
        make_once(path, create())
    return read_secret(path)


def canonical(value: Mapping[str, object]) -> bytes:
    """Return the one encoding of a statement that is signed.

    >>> canonical({"b": 1, "a": "x"})
    b'{"a":"x","b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


class Statement(NamedTuple):
    """The facts about a ledger that a signature covers; totals follow from its lines."""

    role: str  # ORGANISATION or OFFICER
    ledger: str  # "run" or "studies"
    id: str  # of the run or the ledger; empty for a run with seeded noise
    lines: int
    head: str  # hash of the last line
    state: str  # "ended" or "paused" for a run, "open" for a budget ledger
    taciturn: str  # version

    @property
    def message(self) -> bytes:
        """The bytes that are signed."""
        return HEAD_DOMAIN + canonical(self._asdict())

    @property
    def ledger_key(self) -> tuple[str, str]:
        """Which ledger it is about."""
        return self.ledger, self.id

    @property
    def subject(self) -> tuple[str, str, int, str]:
        """The ledger and its lines that it is about, whatever the signer's role and the ledger's state."""
        return self.ledger, self.id, self.lines, self.head


class Signature(NamedTuple):
    """A statement with the key and the signature of its signer."""

    statement: Statement
    key: PublicKey
    signature: bytes

    @property
    def line(self) -> str:
        """The signature as a line of a signature file."""
        signed = {"key": self.key.raw.hex(), "signature": self.signature.hex()}
        return json.dumps(self.statement._asdict() | signed) + "\n"

    @property
    def valid(self) -> bool:
        """Whether the key that it names signed it."""
        return self.key.verify(self.statement.message, self.signature)


@dataclass(frozen=True)
class Signable:
    """A ledger and the file with its signatures.

    Attributes
    ----------
    chain
        The ledger's lines.
    ledger
        "run" for a run's ledger, "studies" for a budget ledger.
    id
        The ledger's identity; empty for a run with seeded noise.
    state
        "ended" or "paused" for a run, "open" for a budget ledger.
    """

    chain: HashChain
    ledger: str
    id: str
    state: str

    @property
    def file(self) -> Path:
        """ledger.sig beside a run's ledger.jsonl; patients.ledger.sig beside patients.ledger."""
        path = self.chain.path
        return path.with_suffix(".sig") if self.ledger == "run" else path.with_name(f"{path.name}.sig")

    def statement(self, role: str, like: Statement | None = None) -> Statement:
        """Return the statement about the ledger as it is, with the state and version of `like` if it is given."""
        hashes = self.chain.hashes()
        state, version = (self.state, VERSION) if like is None else (like.state, like.taciturn)
        return Statement(role, self.ledger, self.id, len(hashes) - 1, hashes[-1], state, version)

    def signatures(self) -> list[Signature]:
        """Return the signatures in the file without verifying them.

        Raises
        ------
        CorruptFile
            If a line is not a signature.
        """
        if not self.file.is_file():
            return []
        with self.file.open("rb") as file:
            lines = list(islice(iter(partial(file.readline, MAX_LINE_BYTES), b""), MAX_LINES))
        return [_parse_signature(self.file, number, line) for number, line in enumerate(lines, 1)]

    def final_signatures(self) -> list[Signature]:
        """Return the valid signatures of the ledger's last line in a known role, by any key."""
        subject = self.statement(ORGANISATION).subject
        known = [each for each in self.signatures() if each.statement.role in (ORGANISATION, OFFICER)]
        return [each for each in known if each.statement.subject == subject and each.valid]

    def sign(self) -> Signature:
        """Sign the ledger as it is with this machine's key; a repeated signature is not added."""
        return self._add(self.statement(ORGANISATION), own_key())

    def countersign(self, officer: SigningKey, organisation: PublicKey | None) -> Signature:
        """Sign, as an officer, what the organisation has signed, and remember it on this machine.

        Parameters
        ----------
        officer
            The officer's key, which must not be the organisation's.
        organisation
            The key that must have signed for the organisation; None accepts any.

        Raises
        ------
        LedgerTampered, InputError
            If the organisation's signature is missing or does not verify, or this machine has seen more lines.
        """
        signed = self.require_signature(ORGANISATION, organisation)
        self._check_seen()
        if officer.public == signed.key:
            raise InputError(f"key {officer.public.id} signed for the organisation: an officer needs another key")
        added = self._add(self.statement(OFFICER, signed.statement), officer)
        self._remember()
        return added

    def verify(self, organisation: PublicKey, officer: PublicKey | None) -> str:
        """Raise unless the holders of these keys signed the ledger up to its last line.

        A run that was signed while paused may have continued and then been truncated back to the signed line; a budget
        ledger never ends and may have been truncated to any signed line. Therefore this machine remembers how many
        lines it has verified and refuses a shorter ledger afterwards.

        Returns
        -------
        str
            The state that the organisation signed.

        Raises
        ------
        LedgerTampered, InputError
            If a signature is missing or does not verify, or this machine has seen more lines.
        """
        signed = self.require_signature(ORGANISATION, organisation)
        if officer is not None:
            self.require_signature(OFFICER, officer)
        self._check_seen()
        self._remember()
        return signed.statement.state

    def require_signature(self, role: str, key: PublicKey | None) -> Signature:
        """Return the signature of the ledger's last line in a role.

        Parameters
        ----------
        role
            ORGANISATION or OFFICER.
        key
            The key that must have signed; None accepts any.

        Raises
        ------
        InputError
            If there is no signature in this role, or the ledger has grown since.
        LedgerTampered
            If the signatures are by other keys, are false, or are of other lines.
        """
        path, in_role = self.chain.path, [each for each in self.signatures() if each.statement.role == role]
        if not in_role:
            command = "sign" if role == ORGANISATION else "countersign"
            raise InputError(
                f"{path} has no signature of the {role}, so it cannot be verified; run 'taciturn ledger {command}' "
                "where the key is"
            )
        by_key = [each for each in in_role if key is None or each.key == key]
        if key is not None and not by_key:
            names = ", ".join(dict.fromkeys(each.key.id for each in in_role))
            raise LedgerTampered(f"{path} is signed by key {names}, not by the {role}'s key {key.id}")
        hashes, valid = self.chain.hashes(), [each for each in by_key if each.valid]
        count = len(hashes) - 1
        for each in valid:
            if each.statement.lines > count and each.statement.ledger_key == (self.ledger, self.id):
                raise LedgerTampered(
                    f"{path} was truncated: it has {count} lines, and the {role} signed {each.statement.lines} with "
                    f"key {each.key.id}"
                )
        for each in reversed(valid):
            if each.statement.subject == (self.ledger, self.id, count, hashes[-1]):
                return each
        last, signer = by_key[-1].statement, by_key[-1].key
        if not valid:
            raise LedgerTampered(f"{path}: the {role}'s signature is invalid: key {signer.id} did not sign this")
        if by_key[-1].valid and last.lines < count and hashes[last.lines] == last.head:
            raise InputError(
                f"{path} has grown since the {role} signed it: key {signer.id} signed {last.lines} lines, and "
                f"{count - last.lines} were added; 'taciturn ledger sign' signs it as it is"
            )
        raise LedgerTampered(
            f"{path} is not what the {role} signed: key {signer.id} signed {last.lines} lines that end with "
            f"{last.head[:12]}…, and there are {count} that end with {hashes[-1][:12]}…"
        )

    def _add(self, statement: Statement, key: SigningKey) -> Signature:
        added = Signature(statement, key.public, key.sign(statement.message))
        known = self.signatures()
        if not any((each.statement, each.key) == (statement, key.public) and each.valid for each in known):
            write_text(self.file, "".join(each.line for each in [*known, added]))
        return added

    @property
    def _seen_file(self) -> Path:
        """Where this machine remembers how much of the ledger it has verified."""
        return state_folder() / "verified" / f"{self.id}.json"

    def _remember(self) -> None:
        """Store the head of a ledger that has an identity."""
        if self.id:
            hashes = self.chain.hashes()
            write_head(self._seen_file, Head(len(hashes) - 1, hashes[-1]))

    def _check_seen(self) -> None:
        """Raise if the ledger is shorter than, or differs from, what this machine has verified or countersigned."""
        if self.id and self._seen_file.is_file():
            HashChain(self.chain.path, self._seen_file).read()


def _parse_signature(path: Path, number: int, line: bytes) -> Signature:
    try:
        row = json.loads(line)
        statement = Statement(*(row[name] for name in Statement._fields))
        texts = {name: row[name] for name in (*Statement._fields, "key", "signature") if name != "lines"}
        if not (line.endswith(b"\n") and type(row["lines"]) is int and all(type(t) is str for t in texts.values())):
            raise ValueError("a field is missing or has another type")
        if not all(pattern.fullmatch(texts[name]) for name, pattern in HEX_PATTERNS.items()):
            raise ValueError("a field is not a hexadecimal number of its length")
        return Signature(statement, PublicKey(bytes.fromhex(row["key"])), bytes.fromhex(row["signature"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptFile(f"line {number} of {path} is not a signature: it was damaged or changed") from error
