"""Sweeps: a grid over any settings, as run folders that can be gone on with, and what can be told apart in it."""

from tacit.sweeps.outcome import Sweep
from tacit.sweeps.work import sweep

__all__ = ["Sweep", "sweep"]
