"""Public feature maps: fixed before any record is seen, applied to each record by itself.

What a map makes of one record depends on that record alone, so that neighbouring data sets stay neighbouring and a
guarantee is what it was. `whole.py` keeps that true to the last bit.
"""

from __future__ import annotations

from taciturn.data.feature_maps.feature_map import (
    MAPS,
    NONE,
    FeatureMap,
    Map,
    Raw,
    built,
    check_map,
    keeps_places,
    width_of,
)

__all__ = ["MAPS", "NONE", "FeatureMap", "Map", "Raw", "built", "check_map", "keeps_places", "width_of"]
