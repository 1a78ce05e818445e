"""A batch's state as named arrays on the host, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from tacit.arrays import to_numpy
from tacit.engine.fused.batch import Batch
from tacit.engine.fused.rounds import State, start
from tacit.errors import InputError
from tacit.types import Array

ARRAYS = tuple(name for name in State._fields if name != "round")


def to_arrays(state: State) -> dict[str, Any]:
    """Everything a batch needs to go on, by name; the next round does not touch it."""
    return {"round": np.array(state.round), **{name: np.array(to_numpy(getattr(state, name))) for name in ARRAYS}}


def from_arrays(arrays: Mapping[str, Array], batch: Batch) -> State:
    """The state those arrays hold, which must fit the batch."""
    state = start(batch)
    fits = "round" in arrays and all(
        name in arrays and arrays[name].shape == tuple(getattr(state, name).shape) for name in ARRAYS
    )
    if not fits:
        raise InputError("the checkpoint does not fit the run: it was made under other settings or on another device")
    for name in ARRAYS:
        getattr(state, name).copy_(torch.from_numpy(arrays[name]))
    return state._replace(round=int(arrays["round"]))
