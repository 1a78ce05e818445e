"""The paper's methods on one GPU: all agents and all runs at once, with the softmax and the update as one kernel each.

The pure steps of `taciturn.algorithms` define the meaning; what is here must agree with them, and takes every schedule and
noise scale from the same objects. It knows mode paper with the softmax loss, the L2 regulariser and no constraint.
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
