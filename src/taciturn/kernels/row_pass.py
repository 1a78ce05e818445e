"""One compiled pass over records: scores, clipped residuals, the gradient sum, its largest term, and the losses."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.core.arrays import Array
from taciturn.kernels.layout import Dense, Layout
from taciturn.kernels.library import address, level, library

LOSSES = ("softmax", "hinge", "squared")  # in the order of rows.h


class PassOptions(NamedTuple):
    """Clipping parameters for the compiled pass; None where a bound does not apply."""

    l2: Array | None = None  # [R]  bound on ||x r^T||_2
    l1: Array | None = None  # [R]  bound on ||x r^T||_1
    scale: Array | None = None  # [n]  factor on x
    unit: Array | None = None  # [R]  factor on the scores
    cut: float = 0.0  # residuals become trunc(cut r); 0: they stay as they are


class PassRecords(NamedTuple):
    """Records in the form that the compiled pass reads."""

    layout: Layout
    y: Array  # [n, K]
    norm1: Array  # [n]
    norm2: Array  # [n]
    weights: Array | None = None  # [n]  factors on losses and residuals, before any bound


class PassResult(NamedTuple):
    """Sums over the rows of one pass."""

    total: Array  # [J, R K]  sum_i x_i r_i^T
    longest: Array  # [R]  max_i ||x_i||_1 ||r_i||_1
    losses: NDArray[np.float64]  # [R]  sum_i m_i l_i


class _Pass(ctypes.Structure):
    """The struct `Pass` of rows.h, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "features", "runs", "classes", "loss", "narrow")),
        *((name, ctypes.c_void_p) for name in ("x", "start", "index", "code", "value", "y", "norm1", "norm2")),
        *((name, ctypes.c_void_p) for name in ("weights", "l2", "l1", "scale", "unit")),
        ("cut", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("w", "total", "longest", "losses")),
    )


def run_pass(
    records: PassRecords,
    rows: slice,
    w: Array,
    runs: int,
    loss: str,
    options: PassOptions,
    gradient: bool,
    losses_too: bool = False,
) -> PassResult:
    """Run the compiled pass over some rows.

    It computes in the precision of `w`; records have that precision or half of it. Scores are then bit-identical in
    every layout, so a record's contribution does not depend on the other records.

    Parameters
    ----------
    records
        The records; `rows` selects some of them.
    rows
        A range of rows.
    w
        Parameters [J, R K] at which the residuals are computed.
    runs
        R, the number of runs.
    loss
        A name in LOSSES.
    options
        Clipping parameters.
    gradient
        Whether to compute the gradient sum; otherwise the losses are computed.
    losses_too
        Whether to compute the losses beside a gradient sum.

    Raises
    ------
    RuntimeError
        If there is no compiled library.
    ValueError
        If shapes do not match.
    """
    lib = library()
    if lib is None:
        raise RuntimeError("there is no compiled library")
    if (len(records.y), len(w), w.shape[1]) != (*records.layout.shape, runs * records.y.shape[1]):
        raise ValueError(f"w is {w.shape} for {runs} runs, records are {records.layout.shape} with {records.y.shape}")
    if records.weights is not None and records.weights.shape != records.y.shape[:1]:
        raise ValueError(f"weights are {records.weights.shape} for {len(records.y)} records")
    longest, losses, total = np.zeros(runs, w.dtype), np.zeros(runs), np.empty_like(w if gradient else w[:0])
    y, norm1 = (np.ascontiguousarray(part[rows], w.dtype) for part in (records.y, records.norm1))
    norm2 = None if options.l2 is None else np.ascontiguousarray(records.norm2[rows], w.dtype)
    l2, l1, unit = (_spread(term, runs, w) for term in (options.l2, options.l1, options.unit))
    scale = None if options.scale is None else _spread(options.scale[rows], len(y), w)
    weights = None if records.weights is None else np.ascontiguousarray(records.weights[rows], w.dtype)
    arrays = _layout(records.layout, rows, w) | {"y": y, "norm1": norm1, "norm2": norm2, "w": w, "longest": longest}
    arrays |= {"l2": l2, "l1": l1, "unit": unit, "scale": scale, "weights": weights} | (
        {"total": total} if gradient else {}
    )
    arrays |= {"losses": losses} if losses_too or not gradient else {}
    values = _Pass(
        rows=len(y),
        features=len(w),
        runs=runs,
        classes=w.shape[1] // runs,
        loss=LOSSES.index(loss),
        narrow=records.y.dtype != w.dtype,
        cut=options.cut,
        **{name: address(array) for name, array in arrays.items()},
    )
    if lib.taciturn_pass(ctypes.byref(values), level(), w.itemsize):
        raise MemoryError("not enough memory for a pass over the records")
    return PassResult(total, longest, losses)


def _spread(term: Array | None, count: int, like: Array) -> Array | None:
    """Return `count` numbers in the precision of `like`; C reads that many."""
    return None if term is None else np.ascontiguousarray(np.broadcast_to(term, (count,)), like.dtype)


def _layout(layout: Layout, rows: slice, like: Array) -> dict[str, NDArray[np.generic] | None]:
    if isinstance(layout, Dense):
        return {"x": layout.x[rows]}  # C widens a few rows at a time
    start, index = layout.start[rows.start : rows.stop + 1], layout.index
    code, value = layout.code, layout.value
    if value.dtype != like.dtype and code is None:  # only these rows' values, as wide as the sums
        first, last = start[0], start[-1]
        start, index, value = start - first, index[first:last], value[first:last]
    return {"start": start, "index": index, "code": code, "value": value.astype(like.dtype, copy=False)}
