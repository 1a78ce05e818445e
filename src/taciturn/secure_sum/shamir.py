"""Shamir's secret sharing over GF(2^255 - 19).

A secret is f(0) of a random polynomial f of degree tau - 1, and the share of the site with number x is f(x). Any tau
shares give the secret; fewer say nothing about it. Secrets are uniform field elements, and keys are derived from them,
so nothing is padded or cut.

Weights depend only on which sites answered, so one set of weights serves all secrets of a slot.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from taciturn.errors import InputError

PRIME = 2**255 - 19
ELEMENT_BYTES = 32


def random_element() -> int:
    """Return a uniform field element from the operating system's randomness."""
    return secrets.randbelow(PRIME)


def split(secret: int, threshold: int, points: Sequence[int]) -> list[int]:
    """Return the shares of a secret, one for each point.

    Parameters
    ----------
    secret : int
        A field element.
    threshold : int
        tau, how many shares give the secret.
    points : sequence of int
        The numbers of the sites, distinct and not 0.

    Raises
    ------
    InputError
        If the secret is not in the field, points repeat or are out of range, or there are fewer than tau.

    Examples
    --------
    >>> shares = split(42, 2, [1, 2, 5])
    >>> join(lagrange_weights([5, 1]), [shares[2], shares[0]])
    42
    """
    if not 0 <= secret < PRIME or not 1 <= threshold <= len(points):
        raise InputError(f"a field element cannot be split among {len(points)} sites with the threshold {threshold}")
    _check_points(points, PRIME)
    return evaluate([secret, *(random_element() for _ in range(threshold - 1))], points)


def evaluate(coefficients: Sequence[int], points: Sequence[int], prime: int = PRIME) -> list[int]:
    """Return the values of a polynomial at some points, by Horner's rule.

    Examples
    --------
    >>> evaluate([3, 1], [1, 2, 6], prime=7)
    [4, 5, 2]
    """
    values = []
    for x in points:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * x + coefficient) % prime
        values.append(value)
    return values


def lagrange_weights(points: Sequence[int], prime: int = PRIME) -> list[int]:
    """Return the weights by which shares at these points add up to the secret.

    The weight of x_j is the product of x_m / (x_m - x_j) over all m != j.

    Raises
    ------
    InputError
        If points repeat or are out of range.

    Examples
    --------
    >>> lagrange_weights([1, 2], prime=7)
    [2, 6]
    """
    _check_points(points, prime)
    weights = []
    for x in points:
        top = bottom = 1
        for other in points:
            if other != x:
                top, bottom = top * other % prime, bottom * (other - x) % prime
        weights.append(top * pow(bottom, -1, prime) % prime)
    return weights


def join(weights: Sequence[int], shares: Sequence[int], prime: int = PRIME) -> int:
    """Return the secret, given the weights of the points and the shares at them.

    Examples
    --------
    >>> join(lagrange_weights([1, 2], prime=7), evaluate([3, 1], [1, 2], prime=7), prime=7)
    3
    """
    return sum(weight * share for weight, share in zip(weights, shares, strict=True)) % prime


def element_bytes(value: int) -> bytes:
    """Return a field element as 32 bytes, big-endian.

    Examples
    --------
    >>> element_bytes(258)[-2:]
    b'\\x01\\x02'
    """
    return value.to_bytes(ELEMENT_BYTES, "big")


def read_elements(data: bytes) -> list[int]:
    """Return the field elements in bytes from an untrusted source.

    Raises
    ------
    InputError
        If the length is not a multiple of 32, or a number is not below the prime. No number is shown.

    Examples
    --------
    >>> read_elements(element_bytes(7) + element_bytes(8))
    [7, 8]
    """
    if len(data) % ELEMENT_BYTES:
        raise InputError(f"{len(data)} bytes are not field elements: each has {ELEMENT_BYTES}")
    values = [int.from_bytes(data[at : at + ELEMENT_BYTES], "big") for at in range(0, len(data), ELEMENT_BYTES)]
    if any(value >= PRIME for value in values):
        raise InputError("a number is not a field element: it must be below 2^255 - 19")
    return values


def _check_points(points: Sequence[int], prime: int) -> None:
    if not points or len(set(points)) != len(points) or not all(type(x) is int and 0 < x < prime for x in points):
        raise InputError("the points of shares must be distinct whole numbers above 0 and below the prime")
