"""What every key and signature of a secure sum is bound to: the study, the epoch, and the context of a slot.

Parts are joined with their number and lengths, so two different lists of parts never give the same bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Protocol

from taciturn.errors import InputError
from taciturn.secure_sum.parameters import GRADIENT, SumParameters

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.hpke import Suite

PROTOCOL = b"taciturn secure sum 1 x25519 hkdf-sha256 chacha20 ed25519"  # the version and the suite
DIGEST_BYTES = 32
SIGNATURE_BYTES = 64
HPKE_BYTES = 48  # that encryption adds: an encapsulated key of 32 bytes and a tag of 16


class Signer(Protocol):
    """The private identity of this site; `federation.identity.Identity` is one."""

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature of a message."""


class Verifier(Protocol):
    """The public identity of a site, already checked; `federation.identity.PublicIdentity` is one."""

    @property
    def keys(self) -> bytes:
        """The public keys."""

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return whether this site signed a message."""


@cache
def hpke_suite() -> Suite:
    """Return HPKE (RFC 9180) in its base mode, which authenticates no sender: senders sign."""
    from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite  # slow to import

    return Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


def framed(*parts: bytes) -> bytes:
    """Return parts as bytes from which the parts can be read again.

    Examples
    --------
    >>> framed(b"ab", b"c") == framed(b"a", b"bc")
    False
    """
    lengths = (len(part).to_bytes(8, "big") + part for part in parts)
    return len(parts).to_bytes(8, "big") + b"".join(lengths)


def digest_of(*parts: bytes) -> bytes:
    """Return the SHA-256 of framed parts."""
    return hashlib.sha256(framed(*parts)).digest()


def numbers(values: Iterable[int]) -> bytes:
    """Return whole numbers as bytes, eight for each.

    Examples
    --------
    >>> numbers([1, 2]).hex()
    '00000000000000010000000000000002'
    """
    known = tuple(values)
    return struct.pack(f">{len(known)}Q", *known)


@dataclass(frozen=True)
class SumStudy:
    """One study that uses a secure sum. Sites have the numbers 1 to P in the order of the terms.

    Attributes
    ----------
    terms
        SHA-256 of the study's terms, 32 bytes.
    experiment
        The study's random name, 16 bytes.
    parameters
        What all sites agree on.
    identities
        The public identity of every site, made by the site and compared by people.
    noise
        What else sites must plan alike, in the words of the caller: the noise that each adds, and the grid of the
        numbers. A site relies on the noise of the others.

    Raises
    ------
    InputError
        If a length is wrong, or two sites have the same keys.
    """

    terms: bytes
    experiment: bytes
    parameters: SumParameters
    identities: tuple[Verifier, ...]
    noise: bytes = b""

    def __post_init__(self) -> None:
        if len(self.terms) != DIGEST_BYTES or len(self.experiment) != 16:
            raise InputError("a study is named by a digest of 32 bytes and an experiment of 16 bytes")
        if len(self.identities) != self.parameters.sites:
            raise InputError(
                f"there are {len(self.identities)} identities for {self.parameters.sites} sites: each site needs one"
            )
        if len({identity.keys for identity in self.identities}) != len(self.identities):
            raise InputError("two sites have the same identity: one party would count twice")

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of everything that is agreed on."""
        keys = framed(*(identity.keys for identity in self.identities))
        return digest_of(PROTOCOL, self.terms, self.experiment, numbers(astuple(self.parameters)), self.noise, keys)

    def statement(self, kind: bytes, *parts: bytes) -> bytes:
        """Return the bytes that a site signs, or a key is bound to, for one purpose."""
        return framed(PROTOCOL, kind, self.digest, *parts)

    def verify(self, site: int, statement: bytes, signature: bytes) -> bool:
        """Return whether a site of the study signed a statement."""
        known = 1 <= site <= len(self.identities) and len(signature) == SIGNATURE_BYTES
        return known and self.identities[site - 1].verify(statement, signature)

    def context(
        self,
        epoch: int,
        directory: bytes,
        slot: int,
        round_number: int,
        roster: tuple[int, ...],
        w: bytes,
        subject: int = GRADIENT,
    ) -> bytes:
        """Return chi, the digest that every mask, receipt and opinion of a slot is bound to.

        Parameters
        ----------
        epoch, slot, round_number : int
            The epoch, the slot in it, and the round of the study.
        directory : bytes
            Digest of the epoch's directory.
        roster : tuple of int
            R, the sites that were asked, in order.
        w : bytes
            SHA-256 of the model that they were asked with.
        subject : int
            What is summed.
        """
        where = numbers((epoch, slot, round_number, subject))
        return digest_of(self.statement(b"context", directory, where, numbers(roster), w))
