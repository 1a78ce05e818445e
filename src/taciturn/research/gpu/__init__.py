"""The paper's methods on one GPU: all agents and runs at once, with one kernel for the softmax and one for the update.

The pure steps of `taciturn.algorithms` are the definition; this package must agree with them and takes every schedule
and noise scale from the same objects. It supports mode paper with the softmax loss, the L2 regulariser and no
constraint.
"""

from taciturn.research.gpu.device_batch import DeviceBatch, Stack, stack
from taciturn.research.gpu.device_rounds import DeviceRound, DeviceState, from_arrays, simulate, start, to_arrays

__all__ = [
    "DeviceBatch",
    "DeviceRound",
    "DeviceState",
    "Stack",
    "from_arrays",
    "simulate",
    "stack",
    "start",
    "to_arrays",
]
