"""Identities of coordinators and sites: an Ed25519 key that signs and an X25519 key that others encrypt to.

Each party creates its own identity; the private half stays in one file there. The public half is one line of text in
the terms of a study, and people compare its fingerprint by telephone beforehand.

`cryptography` is slow to import and most commands do not need it, so functions import it where they use it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from taciturn.core.storage import make_once, require_folder
from taciturn.errors import CorruptFile, InputError
from taciturn.privacy.signatures import PublicKey, SigningKey, load_private_key, new_key, private_pem, read_secret
from taciturn.secure_sum.shamir import PRIME
from taciturn.secure_sum.sum_context import hpke_suite

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

PREFIX = "taciturn-id-1:"
KEY_DOMAIN = b"taciturn identity 1\0"  # precedes an X25519 key when its owner signs it
SHOWN = 40  # characters of a text in a message
_END = b"-----END PRIVATE KEY-----\n"
_RAW = 32 + 32 + 64  # bytes of both keys and the signature
_ORDER_8 = 2707385501144840649318225287225658788936804267575313519463743609750303402022
_SMALL_ORDER = (0, 1, PRIME - 1, _ORDER_8, PRIME - _ORDER_8)  # y of points for which one signature fits any text


@dataclass(frozen=True)
class PublicIdentity:
    """The public half of an identity, which all parties of a study know.

    Attributes
    ----------
    signing
        The Ed25519 key.
    sealing
        The X25519 key, 32 bytes.
    signature
        The signature of the X25519 key by the Ed25519 key, 64 bytes.

    Raises
    ------
    InputError
        If a key is invalid, or the Ed25519 key did not sign the X25519 key: they may then belong to different parties.
    """

    signing: PublicKey
    sealing: bytes
    signature: bytes

    def __post_init__(self) -> None:
        if not _are_sound(self.signing.raw, self.sealing):
            raise InputError(f"the identity {self.fingerprint} has a weak key that protects nothing: replace it")
        if not self.signing.verify(KEY_DOMAIN + self.sealing, self.signature):
            raise InputError(f"the two keys of the identity {self.fingerprint} do not belong together")

    @classmethod
    def parse(cls, text: str) -> PublicIdentity:
        """Return the identity in one line of text, which must be exactly as `str` writes it.

        Raises
        ------
        InputError
            If the text is not a valid public identity.
        """
        if not isinstance(text, str) or not text.startswith(PREFIX):
            raise InputError(f"{_begin(text)} is not a public identity: it must be one line that begins with {PREFIX}")
        return _parse(text)

    def __str__(self) -> str:
        return _encode(self.keys + self.signature)

    @property
    def keys(self) -> bytes:
        """Both public keys, 64 bytes."""
        return self.signing.raw + self.sealing

    @property
    def fingerprint(self) -> str:
        """128 bits of the keys' SHA-256 as eight groups of four digits, for people to compare by telephone."""
        return group_digits(hashlib.sha256(KEY_DOMAIN + self.keys).hexdigest()[:32])

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return whether this party signed a message."""
        return self.signing.verify(message, signature)

    def encrypt(self, message: bytes, info: bytes) -> bytes:
        """Return a message encrypted to this party, which decrypts it only with the same `info`."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        return hpke_suite().encrypt(message, X25519PublicKey.from_public_bytes(self.sealing), info)


def group_digits(digits: str) -> str:
    """Return hexadecimal digits in groups of four, to be read out on the telephone.

    Examples
    --------
    >>> group_digits("00c0ffee")
    '00c0 ffee'
    """
    return " ".join(digits[at : at + 4] for at in range(0, len(digits), 4))


def _begin(text: object) -> str:
    """Return the beginning of a text in quotation marks."""
    whole = repr(text)
    return whole if len(whole) <= SHOWN else f"{whole[:SHOWN]}…{whole[0]}"


@lru_cache(maxsize=256)  # a site reads the identities in its terms again and again
def _parse(text: str) -> PublicIdentity:
    try:
        raw = base64.b64decode(text.removeprefix(PREFIX) + "=", altchars=b"-_", validate=True)
        if len(raw) != _RAW or _encode(raw) != text:
            raise ValueError(f"it has {len(raw)} bytes or is not in canonical form")
    except (ValueError, binascii.Error) as error:
        advice = (
            f"keep only the line that begins with {PREFIX}" if len(text.split()) > 1 else "copy the whole line again"
        )
        raise InputError(f"the public identity {_begin(text)} is damaged: {advice}") from error
    return PublicIdentity(PublicKey(raw[:32]), raw[32:64], raw[64:])


def read_public(given: str) -> PublicIdentity:
    """Return a public identity from its line of text, or from a file that holds only that line.

    Raises
    ------
    InputError
        If it is not a public identity, or the file holds a private one.
    """
    if not os.path.isfile(given):  # noqa: PTH113  unlike Path.is_file it returns False for an overlong name
        return PublicIdentity.parse(given)
    with Path(given).open(encoding="utf-8", errors="replace") as file:
        content = file.read(8 * _RAW).strip()
    if "PRIVATE KEY" in content:
        raise InputError(f"{given} is a private identity, which must never leave its owner: ask for the public line")
    return PublicIdentity.parse(content)


@dataclass(frozen=True)
class Identity:
    """A private identity, which stays with its owner.

    Attributes
    ----------
    path
        Its file.
    """

    path: Path
    _signing: SigningKey = field(repr=False)
    _sealing: X25519PrivateKey = field(repr=False)

    @classmethod
    def create(cls, path: Path) -> Identity:
        """Create an identity in a file that only its owner can read. The file is durable when this returns.

        Raises
        ------
        InputError
            If the file exists (an identity is never overwritten) or its folder does not.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        if not os.path.lexists(path):
            require_folder(path)
            created = cls(path, SigningKey(new_key(), path), X25519PrivateKey.generate())
            make_once(path, created._content, private=True)
            if cls.open(path).public == created.public:  # otherwise another process was first
                return created
        raise InputError(f"{path} already exists: an identity is never overwritten; to retire it, move the file away")

    @classmethod
    def open(cls, path: Path) -> Identity:
        """Return the identity in a file, which must be complete and readable only by its owner.

        Raises
        ------
        InputError
            If the file is missing or other users can read it.
        CorruptFile
            If it does not hold an identity.
        """
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        content = read_secret(path, "identity")
        signing_pem, end, sealing_pem = content.partition(b"\n")[2].partition(_END)
        signing, sealing = load_private_key(signing_pem + end), load_private_key(sealing_pem)
        if isinstance(signing, Ed25519PrivateKey) and isinstance(sealing, X25519PrivateKey):
            found = cls(path, SigningKey(private_pem(signing), path), sealing)
            if found._content == content:  # a changed bit would be another, unknown key
                return found
        raise CorruptFile(f"{path} is damaged or not an identity: restore it from a backup, or create another one")

    @cached_property
    def public(self) -> PublicIdentity:
        """The public half."""
        sealing = self._sealing.public_key().public_bytes_raw()
        return PublicIdentity(self._signing.public, sealing, self.sign(KEY_DOMAIN + sealing))

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature of a message."""
        return self._signing.sign(message)

    def decrypt(self, message: bytes, info: bytes) -> bytes | None:
        """Return what was encrypted to this party with `info`, or None if it was not or was changed."""
        from cryptography.exceptions import InvalidTag

        try:
            return hpke_suite().decrypt(message, self._sealing, info)
        except (InvalidTag, ValueError):
            return None

    @cached_property
    def _content(self) -> bytes:
        """The file: the public line, then both private keys in PEM format."""
        return f"{self.public}\n".encode() + self._signing.pem + private_pem(self._sealing)


def _encode(raw: bytes) -> str:
    return PREFIX + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _are_sound(signing: bytes, sealing: bytes) -> bool:
    """Return whether two public keys are in canonical form and neither is a point of small order."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    if len(signing) != 32 or len(sealing) != 32:
        return False
    y, u = int.from_bytes(signing, "little") % 2**255, int.from_bytes(sealing, "little")
    if y >= PRIME or y in _SMALL_ORDER or u >= PRIME:
        return False
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(sealing))
    except ValueError:  # the shared secret would be zero for every other key
        return False
    return True
