"""The paper's methods on one GPU: all agents and all runs at once, with the softmax and the update as one kernel each.

The pure steps of `tacit.algorithms` define the meaning; what is here must agree with them, and takes every schedule and
noise scale from the same objects. It knows mode paper with the softmax loss, the L2 regulariser and no constraint.
"""

from tacit.engine.fused.batch import Batch
from tacit.engine.fused.rounds import Round, State, simulate, start
from tacit.engine.fused.saved import from_arrays, to_arrays
from tacit.engine.fused.stack import Stack, stack

__all__ = [
    "Batch",
    "Round",
    "Stack",
    "State",
    "from_arrays",
    "simulate",
    "stack",
    "start",
    "to_arrays",
]
