"""Records scaled to length 1."""

from __future__ import annotations

from tacit.data.maps.base import MAPS, FeatureMap, Map, Raw
from tacit.data.maps.whole import of_length_one


def _width(raw: Raw) -> int:
    return raw.width


def _build(raw: Raw) -> Map:
    return of_length_one


MAPS.register("unit")(FeatureMap("every record scaled to length 1", _width, _build, keeps=True))
