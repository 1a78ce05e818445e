"""Masks: keys from secrets, keystreams from keys, and numbers modulo 2^b.

A site adds to its numbers a mask of its own and one mask for each other site of the roster. The two sites of a pair
derive the same mask; one adds it and the other subtracts it, so it disappears from the sum.

The info of a pair's key names both sites. Without the names, a colluder could announce another site's public key as its
own: two masks of a third site would then be equal, and could cancel within a single upload.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from taciturn.errors import InputError
from taciturn.secure_sum.shamir import PRIME, element_bytes
from taciturn.secure_sum.sum_context import PROTOCOL, framed, numbers

Words = NDArray[np.uint64]
Integers = NDArray[np.int64]

KEY_BYTES = 32
_ORDER_8 = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
SMALL_ORDER = frozenset({0, 1, PRIME - 1, *_ORDER_8})  # u of the points that give a shared secret of zero


def hkdf(secret: bytes, info: bytes, salt: bytes | None = None, length: int = KEY_BYTES) -> bytes:
    """Return key material by HKDF with SHA-256 (RFC 5869)."""
    return HKDF(hashes.SHA256(), length, salt, info).derive(secret)


def derive(secret: bytes, purpose: bytes, *parts: bytes) -> bytes:
    """Return a key of 32 bytes for one purpose.

    Examples
    --------
    >>> derive(b"secret", b"pair", b"context") == derive(b"secret", b"self", b"context")
    False
    """
    return hkdf(secret, framed(PROTOCOL, purpose, *parts))


def chacha20(key: bytes, data: bytes, nonce: bytes = bytes(16)) -> bytes:
    """Return data encrypted by ChaCha20 (RFC 8439); `nonce` is the counter of 4 bytes and the nonce of 12."""
    return Cipher(ChaCha20(key, nonce), None).encryptor().update(data)


def keystream(key: bytes, count: int) -> Words:
    """Return uniform numbers of 64 bits under a key that is used once, so the nonce may be zero.

    Examples
    --------
    >>> keystream(bytes(32), 2).tolist()
    [10393729187455219830, 2935650227004792128]
    """
    return np.frombuffer(chacha20(key, _zeros(8 * count)), "<u8").astype(np.uint64, copy=False)


def pair_key(secret: int) -> X25519PrivateKey:
    """Return the X25519 key that a site's pair secret of a slot gives."""
    return X25519PrivateKey.from_private_bytes(derive(element_bytes(secret), b"pair key"))


def pair_public(secret: int) -> bytes:
    """Return the public half of `pair_key`, 32 bytes.

    Examples
    --------
    >>> pair_secret(pair_key(1), pair_public(2)) == pair_secret(pair_key(2), pair_public(1))
    True
    """
    return pair_key(secret).public_key().public_bytes_raw()


def fingerprint(secret: int) -> bytes:
    """Return the public commitment to a site's self secret of a slot, 32 bytes."""
    return derive(element_bytes(secret), b"fingerprint")


def is_sound_public(public: bytes) -> bool:
    """Return whether bytes are an X25519 key in canonical form that is not of small order.

    Examples
    --------
    >>> is_sound_public(bytes(32)), is_sound_public((9).to_bytes(32, "little"))
    (False, True)
    """
    u = int.from_bytes(public, "little")
    return len(public) == KEY_BYTES and u < PRIME and u not in SMALL_ORDER


def pair_secret(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return the secret that two sites share.

    Raises
    ------
    InputError
        If the public key is not sound; the secret would be zero.
    """
    if not is_sound_public(public):
        raise InputError("a public key of a slot is not canonical or is of small order: its masks would hide nothing")
    return private.exchange(X25519PublicKey.from_public_bytes(public))


def self_mask(secret: int, site: int, context: bytes, count: int) -> Words:
    """Return the mask that only one site adds."""
    return keystream(derive(element_bytes(secret), b"self", context, numbers([site])), count)


def pair_mask(private: X25519PrivateKey, public: bytes, pair: tuple[int, int], context: bytes, count: int) -> Words:
    """Return what the first site of a pair adds for the second, modulo 2^64.

    Parameters
    ----------
    private : X25519PrivateKey
        The key of one of the two.
    public : bytes
        The public key of the other.
    pair : tuple of int
        The site that adds the result, and the other one.
    context : bytes
        The slot's context.
    count : int
        How many numbers.
    """
    site, other = pair
    mask = keystream(derive(pair_secret(private, public), b"pair", context, numbers(sorted(pair))), count)
    return mask if site < other else np.negative(mask)


def masked(
    integers: Integers, secrets: tuple[int, int], site: int, others: Mapping[int, bytes], context: bytes
) -> Words:
    """Return a site's numbers under all its masks, modulo 2^64.

    Parameters
    ----------
    integers : ndarray of int64
        The site's numbers, with its share of the noise.
    secrets : tuple of int
        Its pair secret and its self secret of the slot.
    site : int
        Its number.
    others : mapping of int to bytes
        The public keys of the other sites of the roster.
    context : bytes
        The slot's context.

    Examples
    --------
    >>> one = masked(np.array([5]), (1, 10), 1, {2: pair_public(2)}, b"context")
    >>> two = masked(np.array([6]), (2, 20), 2, {1: pair_public(1)}, b"context")
    >>> masks = self_mask(10, 1, b"context", 1) + self_mask(20, 2, b"context", 1)
    >>> centred(one + two - masks, 40).tolist()
    [11]
    """
    own, count = pair_key(secrets[0]), len(integers)
    total = integers.astype(np.int64).view(np.uint64) + self_mask(secrets[1], site, context, count)
    for other, public in others.items():
        total += pair_mask(own, public, (site, other), context, count)
    return total


def pack(words: Words, width: int) -> bytes:
    """Return numbers modulo 2^width as bytes, little-endian.

    Examples
    --------
    >>> pack(np.array([1, 2**40 + 2], np.uint64), 40).hex()
    '01000000000200000000'
    """
    return words.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, : width // 8].tobytes()


def unpack(data: bytes, width: int) -> Words:
    """Return the numbers in packed bytes, whose length the caller has checked."""
    wide = np.zeros((len(data) // (width // 8), 8), np.uint8)
    wide[:, : width // 8] = np.frombuffer(data, np.uint8).reshape(-1, width // 8)
    return wide.view("<u8")[:, 0].astype(np.uint64, copy=False)


def centred(words: Words, width: int) -> Integers:
    """Return numbers modulo 2^width as whole numbers from -2^(width - 1) to 2^(width - 1) - 1.

    Examples
    --------
    >>> centred(np.array([5, 2**40 - 5], np.uint64), 40).tolist()
    [5, -5]
    """
    shift = 64 - width
    return (words << np.uint64(shift)).view(np.int64) >> np.int64(shift)


@cache
def _zeros(count: int) -> bytes:
    return bytes(count)
