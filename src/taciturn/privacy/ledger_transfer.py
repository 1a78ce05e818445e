"""A ledger over studies moves from one machine to another: what the new one asks for, and what the old one signs.

A machine is a place: a state folder at one path of one operating system (`/etc/machine-id`, where there is one). Every
place draws a random secret on first use, and its name is a hash of that. A copy of the state folder is another place,
and so has another name, whatever keys it holds. Not told apart are copies at the same path where the system has no
machine-id, or has the same one, as a cloned disk does.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from taciturn.core.storage import make_once, state_folder
from taciturn.errors import InputError, missing_file
from taciturn.privacy.signatures import HEX, NAME, PublicKey, canonical, kept_secret, own_key

HAND_OVER_DOMAIN = b"taciturn: hand-over of a ledger, version 2\n"
REQUEST_DOMAIN = b"taciturn: request for a ledger, version 1\n"
REQUEST = "taciturn ledger request"
LARGEST = 2**12  # bytes of a request
SYSTEM_NAMES = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


def machine_id() -> str:
    """The name of this machine, 32 hexadecimal digits; made the first time it is asked for."""
    keys = state_folder() / "keys"
    shared = keys / "machine-shared.key"
    place = shared if shared.exists() else keys / f"machine-{_place()}.key"
    secret = kept_secret(place, lambda: secrets.token_bytes(32))
    return hashlib.sha256(secret).hexdigest()[:32]


def share_machine() -> str:
    """Give all machines that see this state folder this machine's name, from now on; the name.

    For one folder on a network, which they share and lock. A copy of the folder is not told apart then.
    """
    name, keys = machine_id(), state_folder() / "keys"
    own = keys / f"machine-{_place()}.key"
    if own.exists():
        make_once(keys / "machine-shared.key", own.read_bytes())
    return name


def _place() -> str:
    """A digest of where the state folder is: of the system's name, which stays here, and the path."""
    parts = (_system_name(), str(state_folder().resolve()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _system_name() -> str:
    for path in SYSTEM_NAMES:
        with suppress(OSError):
            if found := path.read_text(encoding="utf-8", errors="replace").strip():
                return found
    return ""


class TransferRequest(NamedTuple):
    """What a machine that wants a ledger says of itself: a hand-over names it, and nobody else can adopt that."""

    machine: str
    key: str  # its public key, in hexadecimal digits
    signature: str

    @classmethod
    def own(cls) -> TransferRequest:
        """That of this machine."""
        key = own_key()
        bare = cls(machine_id(), key.public.raw.hex(), "")
        return bare._replace(signature=key.sign(bare.message).hex())

    @property
    def message(self) -> bytes:
        """The bytes that are signed."""
        return REQUEST_DOMAIN + canonical({"machine": self.machine, "key": self.key})

    @property
    def text(self) -> str:
        """As a file."""
        return json.dumps({"kind": REQUEST, **self._asdict()}) + "\n"

    @property
    def key_id(self) -> str:
        """What people compare."""
        return PublicKey(bytes.fromhex(self.key)).id


def read_request(path: Path) -> TransferRequest:
    """A request in a file, signed by the key it names."""
    if not path.is_file():
        raise missing_file("request", path, "'taciturn ledger request --out FILE' on the new machine writes one")
    with path.open("rb") as file:
        content = file.read(LARGEST)
    try:
        row = json.loads(content)
        found = TransferRequest(*(str(row[name]) for name in TransferRequest._fields))
        known = row["kind"] == REQUEST and NAME.fullmatch(found.machine) and HEX["key"].fullmatch(found.key)
        if known and HEX["signature"].fullmatch(found.signature):
            key = PublicKey(bytes.fromhex(found.key))
            if key.signed(found.message, bytes.fromhex(found.signature)):
                return found
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise InputError(f"{path} is not a request: 'taciturn ledger request --out FILE' on the new machine writes one")


class HandOver(NamedTuple):
    """The line that closes a ledger on one machine for another to go on with."""

    nonce: str
    lines: int  # before it
    head: str  # of those
    to: str  # the id of the other machine's key
    machine: str  # the other machine's name
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
        return HAND_OVER_DOMAIN + canonical({name: stated[name] for name in stated if name != "signature"})

    @property
    def whole(self) -> bool:
        """Whether every field has the form it must have."""
        texts = {name: value for name, value in self._asdict().items() if name != "lines"}
        patterns = {name: HEX.get(name, NAME) for name in texts if name != "to"}
        return all(
            type(text) is str and (name == "to" or patterns[name].fullmatch(text)) for name, text in texts.items()
        )


def signed_hand_over(ledger: str, hashes: Sequence[str], to: TransferRequest) -> HandOver:
    """The line that hands a ledger with these hashes over to the machine that asked for it."""
    if to.machine == machine_id():
        raise InputError(f"machine {to.machine} is this one: give the request of the machine that the ledger moves to")
    key = own_key()
    bare = HandOver(secrets.token_hex(16), len(hashes) - 1, hashes[-1], to.key_id, to.machine, key.public.raw.hex(), "")
    return bare._replace(signature=key.sign(bare.message(ledger)).hex())


def check_hand_over(path: Path, ledger: str, row: Mapping[str, Any], hashes: Sequence[str], key: str) -> HandOver:
    """The hand-over to this machine that the last line is; a ledger that has none is refused."""
    given = HandOver.of(row)
    if row["kind"] != "handed-over":
        raise InputError(
            f"{path} was not handed over: 'taciturn ledger hand-over {path.name} --to FILE' on the machine it is at home "
            "on, with this machine's 'taciturn ledger request'; where that machine is lost, 'adopt --lost-machine'"
        )
    if not given.whole:
        raise InputError(f"{path}: its hand-over is damaged")
    own = own_key().public.id
    if given.to != own:
        raise InputError(f"{path} was handed over to key {given.to}, and this machine's is {own}")
    if given.machine != machine_id():
        raise InputError(
            f"{path} was handed over to machine {given.machine}, and this is machine {machine_id()}: a key that was "
            "copied does not make two machines one, and neither does a copied state folder"
        )
    giver = PublicKey(bytes.fromhex(given.key))
    true = giver.signed(given.message(ledger), bytes.fromhex(given.signature))
    if not true or (given.lines, given.head) != (len(hashes) - 2, hashes[-2]):
        raise InputError(f"{path}: its hand-over was not signed by key {giver.id}, or is of other lines")
    if key not in ("", giver.id):
        raise InputError(f"{path} was handed over by key {giver.id}, and not by {key}")
    return given
