"""Compiled proposals of the exact discrete samplers; `privacy/discrete.py` is their plain form."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_int64, c_void_p

import numpy as np
from numpy.typing import NDArray

from taciturn.kernels.library import address, level, library

Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]


class LogarithmTable(ctypes.Structure):
    """The struct `Table` of discrete.c: the table of -ln(u / 2^63), for integers u from `floor` to 2^63.

    Parameters
    ----------
    inverses, logarithms
        The entries of every cell, which must outlive this object.
    floor
        Smaller integers count as this one.
    cells
        The base-2 logarithm of the number of cells for each power of two.
    """

    _fields_ = (("inverses", c_void_p), ("logarithms", c_void_p), ("floor", c_int64), ("cells", c_int))

    def __init__(self, inverses: NDArray[np.float64], logarithms: NDArray[np.float64], floor: int, cells: int) -> None:
        super().__init__(address(inverses), address(logarithms), floor, cells)


def propose(
    table: LogarithmTable, words: NDArray[np.uint64], scale: float, margin: float, cap: float
) -> tuple[Integers, Flags] | None:
    """Return floor(scale E) for E from the upper 63 bits of each word, and which of them are in doubt.

    Parameters
    ----------
    table
        The table of the logarithm.
    words
        Random words.
    scale
        The factor on E.
    margin
        Results nearer to an integer are in doubt.
    cap
        Results with a larger E are in doubt.

    Returns
    -------
    tuple or None
        Integers and flags; None without a compiled library.
    """
    lib = library()
    if lib is None:
        return None
    magnitudes, doubtful = np.empty(len(words), np.int64), np.empty(len(words), np.bool_)
    pointers = address(magnitudes), address(doubtful)
    lib.taciturn_propose(byref(table), address(words), len(words), scale, margin, cap, level(), *pointers)
    return magnitudes, doubtful


def accept(
    table: LogarithmTable, uniforms: NDArray[np.uint32], magnitudes: Integers, sigma: float, margin: float, cap: float
) -> tuple[Flags, Flags] | None:
    """Return which magnitudes fall under the Gaussian of standard deviation `sigma`, and which are in doubt.

    Parameters
    ----------
    table, cap
        See `propose`.
    uniforms
        32 random bits for each magnitude.
    magnitudes
        Proposals from the discrete Laplace distribution of scale `sigma`.
    sigma
        The standard deviation.
    margin
        Decisions by a smaller difference are in doubt.

    Returns
    -------
    tuple or None
        Two arrays of flags; None without a compiled library.
    """
    lib = library()
    if lib is None:
        return None
    stand, doubtful = np.empty(len(magnitudes), np.bool_), np.empty(len(magnitudes), np.bool_)
    pointers = address(stand), address(doubtful)
    lib.taciturn_accept(
        byref(table), address(uniforms), address(magnitudes), len(magnitudes), sigma, margin, cap, level(), *pointers
    )
    return stand, doubtful


def keep(words: NDArray[np.uint64], magnitudes: Integers, stand: Flags) -> Integers | None:
    """Return the accepted magnitudes, negative where the lowest bit of the word is set, without -0.

    Parameters
    ----------
    words, magnitudes, stand
        One of each for every proposal.

    Returns
    -------
    array or None
        None without a compiled library.
    """
    lib = library()
    if lib is None:
        return None
    samples = np.empty(len(words), np.int64)
    pointers = address(words), address(magnitudes), address(stand)
    return samples[: lib.taciturn_keep(*pointers, len(words), address(samples))]
