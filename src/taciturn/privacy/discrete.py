"""Exact samplers of the discrete Laplace and discrete Gaussian distributions, and their sources of random words."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from functools import cache
from typing import Protocol

import numpy as np
from numpy.random import Philox, SeedSequence
from numpy.typing import NDArray

from taciturn.errors import InputError
from taciturn.kernels import discrete_noise


class Entropy(Protocol):
    """A stream of independent, uniform 64-bit words."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` words of the stream."""
        ...


class SystemEntropy:
    """The cryptographic generator of the operating system.

    Every request takes fresh bytes from `os.urandom`. A long one takes a key of 256 bits and expands it with ChaCha20,
    which is what Linux does inside, at a tenth of the time. Between two requests the process keeps no key and no state
    that an attacker could steal or a fork could repeat.
    """

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return independent words, as a read-only array."""
        if count <= EXPANDED:
            return np.frombuffer(os.urandom(8 * count), np.uint64)
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        found = np.empty(count, np.uint64)
        for start in range(0, count, PART):
            part = found[start : start + PART].data.cast("B")
            cipher = Cipher(algorithms.ChaCha20(os.urandom(32), bytes(16)), mode=None)
            cipher.encryptor().update_into(ZEROS[: len(part)], part)
        found.flags.writeable = False
        return found


class SeededEntropy:
    """Reproducible words for tests and audits. They give no privacy: the key determines the noise.

    Parameters
    ----------
    *key : int
        Parts in [0, 2^64), which seed a Philox generator through SeedSequence.

    Raises
    ------
    InputError
        If a part is out of range.

    Examples
    --------
    >>> SeededEntropy(1, 2).words(2).tolist() == SeededEntropy(1, 2).words(2).tolist()
    True
    """

    def __init__(self, *key: int) -> None:
        for part in key:
            if not 0 <= part < 2**64:
                raise InputError(f"a part of the key is {part}; each must be an integer from 0 to 2^64 - 1")
        parts = np.array([len(key), *key], np.uint64)  # with the length, since SeedSequence confuses (1,) and (1, 0)
        self._philox = Philox(SeedSequence(parts.view(np.uint32).tolist()))

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` raw outputs of the generator."""
        return self._philox.random_raw(count)


Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

EXPANDED = 64  # longer requests take a key from the system instead of all words
PART = 1 << 14  # words that one key gives, at most
ZEROS = memoryview(bytes(8 * PART))  # what is encrypted to get them
SMALLEST, LARGEST = 1e-3, 1e15  # scales for which every float is finite and every sample fits into int64
BLOCK = 1 << 14  # proposals at a time, so that the working arrays stay in the cache
LOG2_COARSE = 30  # larger scales are sampled in steps of a power of two, or too many floors would be uncertain
FLOOR = 1 << 48  # smaller uniforms are replaced by FLOOR / 2^63, and left to `_settle` where that matters
CAP = 15 * math.log(2)  # E of such a uniform, as computed
CELLS = 8  # the logarithm's table has 2^CELLS entries for each power of two
ERROR = 2.0**-45  # of E computed from 63 bits
ERROR_32 = 2.0**-16  # of E computed from 32 bits, minus the computed q


def discrete_laplace(scale: float, size: int, entropy: Entropy) -> Integers:
    """Return `size` independent integers X with P(X = x) proportional to exp(-|x| / scale).

    Parameters
    ----------
    scale : float
        From 1e-3 to 1e15.
    size : int
        The number of samples.
    entropy : Entropy
        The source of random words.

    Returns
    -------
    array of int64, [size]

    Raises
    ------
    InputError
        If scale or size is out of range.

    Examples
    --------
    >>> discrete_laplace(2.0, 4, SeededEntropy(1)).shape
    (4,)
    """
    scale = _checked("scale", scale, size)

    def propose(count: int) -> Integers:
        return _keep(*_laplace(scale, count, entropy))

    return _filled(size, (1 + math.exp(-1 / scale)) / 2, propose)


def discrete_gaussian(sigma: float, size: int, entropy: Entropy) -> Integers:
    """Return `size` independent integers X with P(X = x) proportional to exp(-x^2 / (2 sigma^2)).

    By rejection (Canonne, Kamath and Steinke 2020): x from the discrete Laplace distribution of scale sigma is accepted
    with probability exp(-q), q = (|x| - sigma)^2 / (2 sigma^2). Parameters, result and errors are those of
    `discrete_laplace`.
    """
    sigma = _checked("sigma", sigma, size)

    def propose(count: int) -> Integers:
        words, magnitudes, accepted = _laplace(sigma, count, entropy)
        return _keep(words, magnitudes, accepted & _accept_gaussian(magnitudes, sigma, entropy))

    return _filled(size, 0.76 * (1 + math.exp(-1 / sigma)) / 2, propose)


def _checked(name: str, scale: float, size: int) -> float:
    if not SMALLEST <= scale <= LARGEST:  # nan fails this too
        raise InputError(f"{name} is {scale}; it must be from {SMALLEST:g} to {LARGEST:g}")
    if size < 0:
        raise InputError(f"size is {size}; it must not be negative")
    return float(scale)


def _filled(size: int, rate: float, propose: Callable[[int], Integers]) -> Integers:
    """Return `size` accepted samples; about `rate` of the proposals are accepted."""
    samples = np.empty(size, np.int64)
    have = 0
    while have < size:
        need = size - have
        kept = propose(min(BLOCK, int(need / rate) + 3 * math.isqrt(need) + 8))[:need]
        samples[have : have + len(kept)] = kept
        have += len(kept)
    return samples


def _keep(words: Words, magnitudes: Integers, accepted: Flags) -> Integers:
    """Return the accepted proposals with the signs of their words, without -0, which would count zero twice."""
    kept = discrete_noise.keep(words, magnitudes, accepted)
    if kept is not None:
        return kept
    signs = -(words & 1).view(np.int64)  # 0 or -1
    return ((magnitudes ^ signs) - signs).compress(accepted & ((magnitudes != 0) | (signs == 0)))


def _laplace(scale: float, count: int, entropy: Entropy) -> tuple[Words, Integers, Flags]:
    """Return words, magnitudes and which are accepted: P(magnitude = g) is proportional to exp(-g / scale).

    With m a power of two, g = m h + l: h geometric of scale / m, and l uniform below m, kept with probability
    exp(-l / scale). The lowest bits of the words are the signs, and used for nothing else.
    """
    shift = max(0, math.frexp(scale)[1] - LOG2_COARSE)
    words = entropy.words(count)
    magnitudes = _geometric(words, math.ldexp(scale, -shift), entropy)
    accepted = np.ones(count, np.bool_)
    if shift:
        lower = entropy.words(count)
        magnitudes <<= shift
        magnitudes |= (lower & ((1 << shift) - 1)).view(np.int64)
        # l / scale < 2^(1 - LOG2_COARSE), so only a uniform within twice that of 1 can fall
        for i in np.flatnonzero(lower >> (66 - LOG2_COARSE) == (1 << (LOG2_COARSE - 2)) - 1):
            prefix, low = divmod(int(lower[i]), 1 << shift)
            accepted[i] = _happens(prefix, 64 - shift, low / Fraction(scale), entropy)
    return words, magnitudes, accepted


def _geometric(words: Words, scale: float, entropy: Entropy) -> Integers:
    """Return floor(scale E) for the upper 63 bits of words as uniforms: P(g or more) = exp(-g / scale)."""
    margin = max(scale, 1) * ERROR  # a smaller one would be lost beside 0.5
    result, in_doubt = discrete_noise.propose(_shared_table(), words, scale, margin, CAP - ERROR) or _propose(
        words, scale, margin
    )
    exact = Fraction(scale)
    for i in np.flatnonzero(in_doubt):
        result[i] = _settle(int(words[i]) >> 1, 63, lambda e: math.floor(exact * e), entropy)
    return result


def _propose(words: Words, scale: float, margin: float) -> tuple[Integers, Flags]:
    """Return floor(scale E) as computed, and where it may be wrong."""
    e = _exponential((words >> 1).view(np.int64))
    y = scale * e
    whole = np.floor(y)
    return whole.astype(np.int64), (np.abs(y - whole - 0.5) > 0.5 - margin) | (e > CAP - ERROR)


def _accept_gaussian(magnitudes: Integers, sigma: float, entropy: Entropy) -> Flags:
    """Accept where E >= (|x| - sigma)^2 / (2 sigma^2). Both are capped, so that everything above CAP is in doubt."""
    count = len(magnitudes)
    uniforms = entropy.words((count + 1) // 2).view(np.uint32)[:count]
    accepted, in_doubt = discrete_noise.accept(_shared_table(), uniforms, magnitudes, sigma, ERROR_32, CAP) or _accept(
        uniforms, magnitudes, sigma
    )
    for i in np.flatnonzero(in_doubt):
        exact = (int(magnitudes[i]) / Fraction(sigma) - 1) ** 2 / 2
        accepted[i] = _happens(int(uniforms[i]), 32, exact, entropy)
    return accepted


def _accept(uniforms: NDArray[np.uint32], magnitudes: Integers, sigma: float) -> tuple[Flags, Flags]:
    """Return where E >= q as computed, and where that may be wrong."""
    q = (magnitudes / sigma - 1) ** 2 / 2
    gap = _exponential(uniforms.astype(np.int64) << 31) - np.minimum(q, CAP)
    return gap > 0, np.abs(gap) < ERROR_32


def _exponential(uniforms: Integers) -> Floats:
    """Return E = -ln(U / 2^63) up to ERROR, for U in [u, u + 1], u being the given integer or FLOOR if that is larger.

    With g from the table, u g = 1 + r and |r| < 2^-9 + 2^-52: E = ln(2^63 g) - (r - r^2/2 + r^3/3 - r^4/4).
    The errors add up to less than 2^-46: u for U 1 / FLOOR = 2^-48, the series r^5/5 < 2^-47, the table and the last
    sum 2^-50 each, u as a double and r 2^-53 each, the polynomial 2^-58.
    """
    inverses, logarithms = _table()
    u = np.maximum(uniforms, FLOOR).astype(np.float64)
    cell = u.view(np.int64) >> (52 - CELLS)
    cell -= (1023 + 48) << CELLS
    r = u * inverses.take(cell, mode="clip") - 1
    return logarithms.take(cell, mode="clip") - (((r * -0.25 + 1 / 3) * r - 0.5) * r + 1) * r


@cache
def _table() -> tuple[Floats, Floats]:
    """Return g, about 1 over the middle of each cell of [2^48, 2^64), and ln(2^63 g), rounded."""
    exact = Context(prec=40)
    middle = [1 / (1 + (i + 0.5) / 2**CELLS) for i in range(2**CELLS)]
    logs = [exact.ln(Decimal(g)) for g in middle]
    two = exact.ln(Decimal(2))
    inverses = [math.ldexp(g, -power) for power in range(48, 64) for g in middle]
    logarithms = [float(exact.fma(two, 63 - power, log)) for power in range(48, 64) for log in logs]
    return np.array(inverses), np.array(logarithms)


@cache
def _shared_table() -> discrete_noise.LogarithmTable:
    """Return the table as the compiled form reads it."""
    return discrete_noise.LogarithmTable(*_table(), FLOOR, CELLS)


def _happens(prefix: int, bits: int, q: Fraction, entropy: Entropy) -> bool:
    """Decide E >= q exactly: an event of probability exp(-q)."""
    return bool(_settle(prefix, bits, lambda e: e >= q, entropy))


def _settle(prefix: int, bits: int, step: Callable[[Fraction], int], entropy: Entropy) -> int:
    """Return step(E) of a non-decreasing step function, with U in [prefix, prefix + 1] / 2^bits.

    It draws 64 more bits at a time until both ends of E's interval agree.
    """
    while prefix == 0 or (low := step(_bound(prefix + 1, bits, -1))) != step(_bound(prefix, bits, 1)):
        prefix = prefix << 64 | int(entropy.words(1)[0])
        bits += 64
    return low


def _bound(numerator: int, bits: int, side: int) -> Fraction:
    """Return a number on one side of -ln(numerator / 2^bits), and close to it.

    Three roundings (decimal logarithms are correctly rounded) of numbers below `bits` stay within the margin.
    """
    digits = 20 + bits // 3
    context = Context(prec=digits)
    value = context.subtract(context.ln(Decimal(1 << bits)), context.ln(Decimal(numerator)))
    return max(Fraction(0), Fraction(value) + side * Fraction(bits, 10 ** (digits - 2)))
