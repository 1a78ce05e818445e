"""Secrets that never leave this machine, and Ed25519 keys: made on first use, kept in the user's state folder.

`cryptography` takes its time to import, and most commands sign nothing: it is imported where it is used.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.errors import InputError, absent
from tacit.results.files import make_folder, make_once
from tacit.state import state_folder

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
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415

        key = Ed25519PublicKey.from_public_bytes(self.raw)
        return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def signed(self, message: bytes, signature: bytes) -> bool:
        """Whether the key's holder signed this."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

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
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

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
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

    content = _content(path)
    if b"PRIVATE" in content:
        raise InputError(
            f"{path} is a private key: it stays where it is; 'tacit ledger key --out FILE' writes its half"
        )
    try:
        found = load_pem_public_key(content)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        found = None
    if not isinstance(found, Ed25519PublicKey):
        raise InputError(f"{path} is not an Ed25519 public key in PEM format: 'tacit ledger key --out FILE' writes one")
    return PublicKey(found.public_bytes_raw())


def private_key(pem: bytes) -> object:
    """The private key in PEM format without a password; None where that is not what the bytes are."""
    from cryptography.exceptions import InternalError, UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        return load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError):  # the last: a key with another's length
        return None


def read_secret(place: Path, kind: str = "key") -> bytes:
    """The content of a file that only its owner may read."""
    if not place.is_file():
        raise absent(kind, place)
    with place.open("rb") as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise InputError(f"others may read {place}: 'chmod 600 {place}', and think about who has read it")
        return file.read(LARGEST)


def records_key() -> bytes:
    """32 random bytes for digests of records, which mean nothing to those who have not the key."""
    return kept_secret(state_folder() / "keys" / "records.key", lambda: secrets.token_bytes(32))


def new_key() -> bytes:
    """An Ed25519 private key in PEM format."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    return pem_of(Ed25519PrivateKey.generate())


def pem_of(key: Ed25519PrivateKey | X25519PrivateKey) -> bytes:
    """A private key as a file of the usual format, without a password."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat  # noqa: PLC0415

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise absent("key", path)
    with path.open("rb") as file:
        return file.read(LARGEST)


def kept_secret(place: Path, make: Callable[[], bytes]) -> bytes:
    """The content of a file that only its owner reads; the first who asks makes it."""
    if not place.exists():
        make_folder(place.parent, exist_ok=True)
        make_once(place, make())
    return read_secret(place)
