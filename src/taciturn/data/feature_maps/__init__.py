"""Public feature maps, which are fixed before any record is seen and applied to each record separately.

The result for one record depends only on that record, so neighbouring data sets stay neighbouring and privacy
guarantees are unchanged. `steps_of` and `unit_rows` make that true to the last bit.
"""

from __future__ import annotations

from taciturn.data.feature_maps.feature_map import (
    BINS,
    MAPS,
    NONE,
    FeatureMap,
    InputShape,
    Map,
    SteppedMap,
    build_map,
    check_map,
    keeps_positions,
    width_of,
)

__all__ = [
    "BINS",
    "MAPS",
    "NONE",
    "FeatureMap",
    "InputShape",
    "Map",
    "SteppedMap",
    "build_map",
    "check_map",
    "keeps_positions",
    "width_of",
]
