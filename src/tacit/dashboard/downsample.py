"""Fewer points that look the same: of every stretch of a line, the lowest and the highest stay."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tacit.types import Array

POINTS = 600  # of a line, at most: more than a chart on a page is wide


def kept(lines: Sequence[Array], points: int = POINTS) -> npt.NDArray[np.intp]:
    """The places to keep of lines over the same n rounds: first and last, and each line's extremes in every stretch."""
    n = len(lines[0])
    if n <= points:
        return np.arange(n)
    stretches = (points - 2) // (2 * len(lines))
    edges = np.linspace(1, n - 1, stretches + 1).astype(int)  # between the first place and the last one
    found = [np.array([0, n - 1])]
    for line in lines:
        for low, high in pairwise(edges):
            stretch = line[low:high]
            found.append(low + np.array([stretch.argmin(), stretch.argmax()]))
    return np.unique(np.concatenate(found))
