"""What a feature map is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from taciturn.core.registry import Registry
from taciturn.errors import InputError
from taciturn.types import Array

NONE = "none"

Map: TypeAlias = Callable[[Array], NDArray[np.float64]]  # phi: x [n, J] -> [n, width], rows of length 1, or 0


class Raw(NamedTuple):
    """What is public about the features that a map is given."""

    width: int  # J, without the intercept
    image: tuple[int, int] | None = None  # rows and columns, where they are pixels in [0, 1]


@dataclass(frozen=True)
class FeatureMap:
    """A map by name."""

    summary: str  # one line
    width: Callable[[Raw], int]  # how many features it makes
    build: Callable[[Raw], Map]  # may take its time
    images: bool = False  # whether it is for square images alone
    keeps: bool = False  # whether feature j is still that of column or pixel j


MAPS: Registry[FeatureMap] = Registry("feature map", "taciturn.data.feature_maps")


def check_map(name: str, image: tuple[int, int] | None) -> None:
    """Refuse a map of images for what is none."""
    if name == NONE or not MAPS[name].images or (image is not None and image[0] == image[1]):
        return
    there = "no images" if image is None else f"images of {image[0]} x {image[1]} pixels"
    others = ", ".join((NONE, *(other for other in MAPS if not MAPS[other].images)))
    raise InputError(f"features is {name}, a map of square images, and these records are {there}: use {others}")


def keeps_places(name: str) -> bool:
    """Whether feature j is still that of column or pixel j."""
    return name == NONE or MAPS[name].keeps


def width_of(name: str, raw: Raw) -> int:
    """How many features records have after the map, without the intercept."""
    return raw.width if name == NONE else MAPS[name].width(raw)


@cache  # filters take a second to make
def built(name: str, raw: Raw) -> Map:
    """The map, ready to use."""
    check_map(name, raw.image)
    return MAPS[name].build(raw)
