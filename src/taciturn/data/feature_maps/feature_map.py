"""The interface and the registry of feature maps, and integer arithmetic in floating point, which makes them exact.

Sums of integers below 2^24 are exact in float32, below 2^53 in float64. A map that uses only such sums gives a record
the same bits whatever the other records and the number of threads are. With rounded sums, a record's features could
change in the last bit when another record is removed, because a library may add a block's rows in different orders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from taciturn.core.registry import Registry
from taciturn.errors import InputError
from taciturn.types import Array, ColumnBlock

NONE, BINS = "none", "bins"

LARGEST = 2**23  # bound on any sum in float32, before weights are rounded
FINE = 4096  # steps per unit of a feature before it is normalised

Map: TypeAlias = Callable[[Array], NDArray[np.float64]]
"""phi: x [n, J] -> [n, width]; every row of the result has norm 1, or 0."""


class SteppedMap(Protocol):
    """A map whose features are whole-number steps (`steps_of`), scaled to norm 1 by `unit_rows`."""

    def steps(self, x: Array) -> NDArray[np.float64]:
        """Return the steps of every record, [n, J] -> [n, width]."""


class InputShape(NamedTuple):
    """What is public about the features that a map receives."""

    width: int  # J, without the intercept
    image: tuple[int, int] | None = None  # rows and columns, if the features are pixels in [0, 1]
    blocks: tuple[ColumnBlock, ...] = ()  # the columns, if they are those of a table's schema
    symmetric: bool = False  # whether a table's numbers are in [-1, 1] rather than in [0, 1]


@dataclass(frozen=True)
class FeatureMap:
    """A feature map by name.

    Register an instance in `MAPS` to add a map; a plugin may do so. A map must be fixed before any record is seen and
    must treat every record separately; `steps_of` and `unit_rows` help to make that true to the last bit.

    Parameters
    ----------
    summary : str
        A one-line description.
    width : callable
        Returns the number of features after the map.
    build : callable
        Returns the map for inputs of a given shape; it may take seconds.
    images : bool
        Whether it is only for square images.
    keeps : bool
        Whether feature j still corresponds to column or pixel j.
    tables : bool
        Whether it is only for tables with a schema.
    names : callable, optional
        Returns the names of the features after the map, from the shape and the names before it.
    kept : bool
        Whether it takes so long that the features of published records are kept in the cache folder; the map it builds
        is then a `SteppedMap`.

    Examples
    --------
    >>> from taciturn.data.feature_maps.feature_map import normalize_rows
    >>> squares = FeatureMap("squares", lambda shape: shape.width, lambda shape: lambda x: normalize_rows(x**2))
    >>> squares.build(InputShape(2))(np.array([[0.0, 3.0]]))
    array([[0., 1.]])
    """

    summary: str
    width: Callable[[InputShape], int]
    build: Callable[[InputShape], Map]
    images: bool = False
    keeps: bool = False
    tables: bool = False
    names: Callable[[InputShape, tuple[str, ...]], tuple[str, ...]] | None = None
    kept: bool = False


MAPS: Registry[FeatureMap] = Registry("feature map", "taciturn.data.feature_maps")
"""Feature maps by name. Register one with `MAPS.register("squares")(FeatureMap(...))`."""


def check_map(name: str, image: tuple[int, int] | None, table: bool = True) -> None:
    """Raise InputError if a map is unknown, is for square images and the records are not, or is for tables likewise.

    Parameters
    ----------
    name
        The feature map.
    image
        The records' rows and columns, if they are images.
    table
        Whether the records are a table with a schema.
    """
    if name != NONE and MAPS[name].tables and not table:
        others = ", ".join((NONE, *(other for other in MAPS if not MAPS[other].tables)))
        raise InputError(f"features is {name}, which is for tables with a schema: use {others}")
    if name == NONE or not MAPS[name].images or (image is not None and image[0] == image[1]):
        return
    records = "not images" if image is None else f"images of {image[0]} x {image[1]} pixels"
    others = ", ".join((NONE, *(other for other in MAPS if not MAPS[other].images)))
    raise InputError(f"features is {name}, which is for square images, but these records are {records}: use {others}")


def keeps_positions(name: str) -> bool:
    """Return whether feature j after the map still corresponds to column or pixel j."""
    return name == NONE or MAPS[name].keeps


def width_of(name: str, shape: InputShape) -> int:
    """Return the number of features after a map, without the intercept."""
    return shape.width if name == NONE else MAPS[name].width(shape)


@cache  # building the filters takes a second
def build_map(name: str, shape: InputShape) -> Map:
    """Return a map for inputs of a given shape; it is cached.

    Raises
    ------
    InputError
        If the map is unknown or not for such inputs.
    """
    check_map(name, shape.image)
    return MAPS[name].build(shape)


def whole_weights(weights: Array, largest_input: int) -> tuple[NDArray[np.float32], float]:
    """Scale weights [inputs, outputs] and round them to integers.

    Sums over inputs from 0 to `largest_input` are then exact, however many inputs there are: rounding at most doubles
    a weight (one up to 1/2 becomes 0), so no sum exceeds 2 LARGEST = 2^24.

    Returns
    -------
    NDArray[np.float32]
        The integer weights.
    float
        The scale by which the weights were multiplied.
    """
    scale = LARGEST / (largest_input * float(np.abs(weights).sum(axis=0).max()))
    return np.rint(scale * weights).astype(np.float32), scale


def normalize_rows(x: Array) -> NDArray[np.float64]:
    """Round rows [n, J] to multiples of 1/FINE and scale them to norm 1; a row that rounds to 0 stays 0.

    Norms are exact if no |x| exceeds 2^14 / sqrt(J).

    Examples
    --------
    >>> normalize_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    return unit_rows(steps_of(x))


def steps_of(x: Array) -> NDArray[np.float64]:
    """Round features to multiples of 1/FINE and return the multiples, which are integers."""
    found: NDArray[np.float64] = np.rint(FINE * np.asarray(x, np.float64))
    return found


def unit_rows(steps: Array) -> NDArray[np.float64]:
    """Scale rows of integers to norm 1; a row of zeros stays 0."""
    length = np.sqrt((steps**2).sum(axis=1, keepdims=True))  # of integers: exact
    found: NDArray[np.float64] = steps / np.maximum(length, 1.0)
    return found
