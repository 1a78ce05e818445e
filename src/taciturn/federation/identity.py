"""Who a coordinator or a site is: an Ed25519 key that signs and an X25519 key that others encrypt to.

Each party makes its own identity, and its private half stays in one file there. The public half is one line of text,
which stands in the terms of a study; before that, people compare its fingerprint by telephone.

`cryptography` takes its time to import, and most commands need none of it: it is imported where it is used.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from taciturn.core.storage import make_once
from taciturn.errors import InputError
from taciturn.privacy.signatures import PublicKey, SigningKey, new_key, pem_of, private_key, read_secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.hpke import Suite

PREFIX = "taciturn-id-1:"
BELONGS = b"taciturn identity 1\0"  # what stands before an X25519 key when its owner signs it
ENCRYPTION_OVERHEAD = 48  # bytes: an encapsulated key of 32 and a tag of 16
_END = b"-----END PRIVATE KEY-----\n"
_RAW = 32 + 32 + 64  # bytes of both keys and the signature
_PRIME = 2**255 - 19
_ORDER_8 = 2707385501144840649318225287225658788936804267575313519463743609750303402022
_SMALL_ORDER = (0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8)  # y of the points that one signature fits any text for


@dataclass(frozen=True)
class PublicIdentity:
    """The half of an identity that all parties of a study know.

    Raises
    ------
    InputError
        Where a key is none, or the X25519 key is not signed by the Ed25519 key: then they need not be one party's.
    """

    signing: PublicKey  # Ed25519
    sealing: bytes  # X25519, 32 bytes
    signature: bytes  # of the X25519 key by the Ed25519 key, 64 bytes

    def __post_init__(self) -> None:
        if not _sound(self.signing.raw, self.sealing):
            raise InputError(f"the identity {self.fingerprint} has a key that protects nothing: ask for another one")
        if not self.signing.signed(BELONGS + self.sealing, self.signature):
            raise InputError(f"the two keys of the identity {self.fingerprint} do not belong together")

    @classmethod
    def parse(cls, text: str) -> PublicIdentity:
        """The identity in one line of text, which is exactly as `str` writes it."""
        if not isinstance(text, str) or not text.startswith(PREFIX):
            raise InputError(f"{text!r:.40} is not a public identity: it is one line that begins with {PREFIX}")
        try:
            raw = base64.b64decode(text.removeprefix(PREFIX) + "=", altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            raw = b""
        if len(raw) != _RAW or _text(raw) != text:
            raise InputError(f"the public identity {text!r:.40} is damaged: copy the whole line again")
        return cls(PublicKey(raw[:32]), raw[32:64], raw[64:])

    def __str__(self) -> str:
        return _text(self.keys + self.signature)

    @property
    def keys(self) -> bytes:
        """Both public keys, 64 bytes."""
        return self.signing.raw + self.sealing

    @property
    def fingerprint(self) -> str:
        """What people compare by telephone: 128 bits of the keys' SHA-256, as eight groups of four digits."""
        digits = hashlib.sha256(BELONGS + self.keys).hexdigest()
        return " ".join(digits[at : at + 4] for at in range(0, 32, 4))

    def signed(self, message: bytes, signature: bytes) -> bool:
        """Whether this party signed a message."""
        return self.signing.signed(message, signature)

    def encrypt(self, message: bytes, info: bytes) -> bytes:
        """A message that only this party can read, and only together with the same `info`."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        return _suite().encrypt(message, X25519PublicKey.from_public_bytes(self.sealing), info)


def read_public(given: str) -> PublicIdentity:
    """A public identity from its line, or from a file that has it and nothing else."""
    if not os.path.isfile(given):  # noqa: PTH113  which knows that an overlong name is none
        return PublicIdentity.parse(given)
    with Path(given).open(encoding="utf-8", errors="replace") as file:
        content = file.read(8 * _RAW).strip()
    if "PRIVATE KEY" in content:
        raise InputError(f"{given} is the private half of an identity, which never leaves its owner: ask for the line")
    return PublicIdentity.parse(content)


@dataclass(frozen=True)
class Identity:
    """The half of an identity that stays with its owner."""

    place: Path
    _signing: SigningKey = field(repr=False)
    _sealing: X25519PrivateKey = field(repr=False)

    @classmethod
    def create(cls, path: Path) -> Identity:
        """A new identity in a file that only its owner can read, on the disk when this returns.

        Raises
        ------
        InputError
            Where there is a file already: an identity is never overwritten.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        if os.path.lexists(path):
            raise _taken(path)
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} to put {path.name} into")
        made = cls(path, SigningKey(new_key(), path), X25519PrivateKey.generate())
        make_once(path, made._content, private=True)
        if cls.open(path).public != made.public:  # another process was first
            raise _taken(path)
        return made

    @classmethod
    def open(cls, path: Path) -> Identity:
        """The identity in a file, which must be whole and readable for its owner alone."""
        content = read_secret(path, "identity")
        _, _, pems = content.partition(b"\n")
        first, end, second = pems.partition(_END)
        found = _loaded(path, first + end, second)
        if found is None or found._content != content:  # a changed bit makes another key, which nobody knows
            raise InputError(f"{path} is damaged, or it is not an identity: take it from a backup, or make another one")
        return found

    @cached_property
    def public(self) -> PublicIdentity:
        """The other half."""
        sealing = self._sealing.public_key().public_bytes_raw()
        return PublicIdentity(self._signing.public, sealing, self.sign(BELONGS + sealing))

    def sign(self, message: bytes) -> bytes:
        """64 bytes that only this party makes of the message."""
        return self._signing.sign(message)

    def decrypt(self, message: bytes, info: bytes) -> bytes | None:
        """What was encrypted to this party together with `info`; None where that is not so."""
        from cryptography.exceptions import InvalidTag

        try:
            return _suite().decrypt(message, self._sealing, info)
        except (InvalidTag, ValueError):
            return None

    @cached_property
    def _content(self) -> bytes:
        """The file: the public line, then both private keys in PEM format."""
        return f"{self.public}\n".encode() + self._signing.pem + pem_of(self._sealing)


def _loaded(path: Path, signing: bytes, sealing: bytes) -> Identity | None:
    """The identity of two keys in PEM format; None where they are not that."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    one, other = private_key(signing), private_key(sealing)
    if not isinstance(one, Ed25519PrivateKey) or not isinstance(other, X25519PrivateKey):
        return None
    return Identity(path, SigningKey(pem_of(one), path), other)


def _taken(path: Path) -> InputError:
    return InputError(f"there is {path} already: an identity is made once; move it away if it is to be retired")


def _text(raw: bytes) -> str:
    return PREFIX + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _sound(signing: bytes, sealing: bytes) -> bool:
    """Whether two public keys are written in the one way they have, and neither is a point of small order."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    if len(signing) != 32 or len(sealing) != 32:
        return False
    y, u = int.from_bytes(signing, "little") % 2**255, int.from_bytes(sealing, "little")
    if y >= _PRIME or y in _SMALL_ORDER or u >= _PRIME:
        return False
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(sealing))
    except ValueError:  # the secret would be zero, whatever the other key is
        return False
    return True


def _suite() -> Suite:
    """HPKE (RFC 9180) in its base mode."""
    from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

    return Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
