"""Uniform random 64-bit words: from the operating system where people are protected, from a seed where they are not."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from numpy.random import Philox, SeedSequence
from numpy.typing import NDArray

from tacit.errors import InputError


class Entropy(Protocol):
    """A stream of independent, uniform 64-bit words."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` words of the stream."""
        ...


class SystemEntropy:
    """The cryptographic generator of the operating system.

    No key and no state is kept in this process: nothing to steal, nothing that a fork would repeat.
    """

    def words(self, count: int) -> NDArray[np.uint64]:
        """8 count bytes of os.urandom; the array is read-only."""
        return np.frombuffer(os.urandom(8 * count), np.uint64)


class SeededEntropy:
    """Reproducible words for tests and audits. They must never protect anybody: who knows the key knows the noise.

    The key, each part a whole number in [0, 2^64), goes through SeedSequence into a Philox generator.
    """

    def __init__(self, *key: int) -> None:
        """The length goes in first, since SeedSequence takes (1,) and (1, 0) for the same key."""
        for part in key:
            if not 0 <= part < 2**64:
                raise InputError(f"a part of the key is {part}: each must be a whole number from 0 to 2^64 - 1")
        parts = np.array([len(key), *key], np.uint64)
        self._philox = Philox(SeedSequence(parts.view(np.uint32).tolist()))

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` raw outputs of the generator."""
        return self._philox.random_raw(count)
