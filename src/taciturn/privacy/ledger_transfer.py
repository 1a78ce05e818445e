"""Transfer of a budget ledger between machines: the new machine's request and the old machine's signed hand-over.

A machine is a state folder at one path of one operating system (`/etc/machine-id`, where there is one). Each draws a
random secret on first use, and its name is a hash of that secret. A copy of the state folder therefore has another
name, whatever keys it holds. Two copies cannot be distinguished if they have the same path and the systems have no
machine-id or the same one, as cloned disks do.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from taciturn.core.storage import make_once, state_folder
from taciturn.errors import CorruptFile, InputError, LedgerTampered, missing_file
from taciturn.privacy.signatures import HEX_ID, HEX_PATTERNS, PublicKey, canonical, load_or_create_secret, own_key

HAND_OVER_DOMAIN = b"taciturn: hand-over of a ledger, version 2\n"
REQUEST_DOMAIN = b"taciturn: request for a ledger, version 1\n"
REQUEST = "taciturn ledger request"
MAX_REQUEST_BYTES = 2**12
MACHINE_ID_FILES = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


def machine_id() -> str:
    """Return the name of this machine, 32 hexadecimal digits; draw it on first use."""
    shared = _key_file("shared")
    secret = load_or_create_secret(shared if shared.exists() else _own_file(), lambda: secrets.token_bytes(32))
    return hashlib.sha256(secret).hexdigest()[:32]


def share_machine() -> str:
    """Give this machine's name to all machines that use this state folder, and return it.

    This is for one state folder on a network that several machines share and lock. A copy of the folder then has the
    same name.
    """
    name = machine_id()
    if _own_file().exists():
        make_once(_key_file("shared"), _own_file().read_bytes())
    return name


def _key_file(name: str) -> Path:
    return state_folder() / "keys" / f"machine-{name}.key"


def _own_file() -> Path:
    """Return the file of this machine's secret, named by a digest of the system's id and the state folder's path."""
    parts = (_system_id(), str(state_folder().resolve()))
    return _key_file(hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16])


def _system_id() -> str:
    for path in MACHINE_ID_FILES:
        with suppress(OSError):
            if found := path.read_text(encoding="utf-8", errors="replace").strip():
                return found
    return ""


class TransferRequest(NamedTuple):
    """The identity of a machine that wants a ledger; only that machine can adopt a hand-over that names it."""

    machine: str
    key: str  # its public key in hexadecimal digits
    signature: str

    @classmethod
    def own(cls) -> TransferRequest:
        """Return the request of this machine."""
        key = own_key()
        unsigned = cls(machine_id(), key.public.raw.hex(), "")
        return unsigned._replace(signature=key.sign(unsigned.message).hex())

    @property
    def message(self) -> bytes:
        """The bytes that are signed."""
        return REQUEST_DOMAIN + canonical({"machine": self.machine, "key": self.key})

    @property
    def text(self) -> str:
        """The content of a request file."""
        return json.dumps({"kind": REQUEST, **self._asdict()}) + "\n"

    @property
    def key_id(self) -> str:
        """The id of the machine's key, for people to compare."""
        return PublicKey(bytes.fromhex(self.key)).id

    def check(self) -> None:
        """Raise ValueError unless every field has its form and the key that it names signed the request."""
        _check_fields(self._asdict())
        if not PublicKey(bytes.fromhex(self.key)).verify(self.message, bytes.fromhex(self.signature)):
            raise ValueError("the signature is invalid")


def read_request(path: Path) -> TransferRequest:
    """Return the request in a file, which the key that it names must have signed.

    Raises
    ------
    InputError
        If there is no such file or it does not hold a valid request.
    """
    advice = "'taciturn ledger request --out FILE' on the new machine writes one"
    if not path.is_file():
        raise missing_file("request", path, advice)
    with path.open("rb") as file:
        content = file.read(MAX_REQUEST_BYTES)
    try:
        row = json.loads(content)
        request = TransferRequest(*(row[name] for name in TransferRequest._fields))
        request.check()
        if row["kind"] != REQUEST:
            raise ValueError(f"its kind is {row['kind']!r:.40}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is not a request: {advice}") from error
    return request


class HandOver(NamedTuple):
    """The line that closes a ledger on one machine so that another can continue it."""

    nonce: str
    lines: int  # before this one
    head: str  # hash of the last of them
    to: str  # id of the new machine's key
    machine: str  # the new machine's name
    key: str  # public key of the old machine in hexadecimal digits
    signature: str

    def to_json(self) -> dict[str, object]:
        """Return the line as it is written."""
        return {"kind": "handed-over", **self._asdict()}

    def message(self, ledger: str) -> bytes:
        """Return the bytes that are signed for the ledger with this identity."""
        fields = self._asdict() | {"ledger": ledger}
        del fields["signature"]
        return HAND_OVER_DOMAIN + canonical(fields)


def signed_hand_over(ledger: str, hashes: Sequence[str], to: TransferRequest) -> HandOver:
    """Return the line that hands a ledger over to the machine that requested it.

    Parameters
    ----------
    ledger
        The ledger's identity.
    hashes
        `HashChain.hashes` of the ledger.
    to
        The new machine's request.
    """
    if to.machine == machine_id():
        raise InputError(
            f"machine {to.machine} is this machine: give the request of the machine that the ledger moves to"
        )
    key = own_key()
    sender = key.public.raw.hex()
    unsigned = HandOver(secrets.token_hex(16), len(hashes) - 1, hashes[-1], to.key_id, to.machine, sender, "")
    return unsigned._replace(signature=key.sign(unsigned.message(ledger)).hex())


def check_hand_over(path: Path, ledger: str, row: Mapping[str, object], hashes: Sequence[str], key: str) -> HandOver:
    """Return the hand-over to this machine in a ledger's last line.

    Parameters
    ----------
    path, ledger
        The ledger's file, for messages, and its identity.
    row, hashes
        The last line, and the hashes of all lines.
    key
        The id of the key that must have signed the hand-over; empty accepts any.

    Raises
    ------
    InputError
        If the line is not a hand-over, or is one to another machine or by another key.
    CorruptFile, LedgerTampered
        If the hand-over is damaged or its signature is invalid.
    """
    if row["kind"] != "handed-over":
        raise InputError(
            f"{path} was not handed over: run 'taciturn ledger hand-over {path.name} --to FILE' on its machine, "
            "with FILE from 'taciturn ledger request' on this one; if that machine is lost, use 'adopt --lost-machine'"
        )
    hand_over = HandOver._make(row.get(name, "") for name in HandOver._fields)
    try:
        _check_fields(hand_over._asdict())
    except ValueError as error:
        raise CorruptFile(f"{path}: its hand-over is damaged: {error}") from error
    own = own_key().public.id
    if hand_over.to != own:
        raise InputError(f"{path} was handed over to key {hand_over.to}, but this machine's key is {own}")
    if hand_over.machine != machine_id():
        raise InputError(
            f"{path} was handed over to machine {hand_over.machine}, but this is machine {machine_id()}: copying a key "
            "or a state folder does not copy a machine's name"
        )
    sender = PublicKey(bytes.fromhex(hand_over.key))
    signed = sender.verify(hand_over.message(ledger), bytes.fromhex(hand_over.signature))
    if not signed or (hand_over.lines, hand_over.head) != (len(hashes) - 2, hashes[-2]):
        raise LedgerTampered(f"{path}: key {sender.id} did not sign its hand-over, or signed one of other lines")
    if key not in ("", sender.id):
        raise InputError(f"{path} was handed over by key {sender.id}, not by {key}")
    return hand_over


def _check_fields(fields: Mapping[str, object]) -> None:
    """Raise ValueError unless every text is a hexadecimal number of its length; a key's id may be any text."""
    for name, value in fields.items():
        pattern = HEX_PATTERNS.get(name, HEX_ID)
        if name != "lines" and not (isinstance(value, str) and (name == "to" or pattern.fullmatch(value))):
            raise ValueError(f"{name} is {value!r:.80}")
