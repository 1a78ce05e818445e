"""A batch's state as named arrays on the host, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.arrays import to_numpy
from tacit.engine.fused.batch import Batch
from tacit.engine.fused.rounds import State
from tacit.errors import InputError
from tacit.types import Array

ARRAYS = tuple(name for name in State._fields if name != "round")


def to_arrays(state: State) -> dict[str, Any]:
    """Everything a batch needs to go on, by name."""
    return {"round": np.array(state.round), **{name: to_numpy(getattr(state, name)) for name in ARRAYS}}


def from_arrays(arrays: Mapping[str, Array], batch: Batch) -> State:
    """The state those arrays hold, which must fit the batch."""
    shape = (len(batch.stack.x), batch.runs, batch.stack.x.shape[2], batch.stack.classes)
    lacking = [name for name in ARRAYS if name not in arrays]
    if lacking or arrays["z"].shape != shape:
        raise InputError("the checkpoint does not fit the run: it was made under other settings or on another device")
    return State(int(arrays["round"]), *(batch.put(arrays[name]) for name in ARRAYS))
