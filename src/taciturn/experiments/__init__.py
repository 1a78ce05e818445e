"""Experiments: sweeps over settings, and frontiers of test error against the budget."""

from __future__ import annotations

from taciturn.experiments.frontier_results import Frontier
from taciturn.experiments.runner import frontier, sweep
from taciturn.experiments.sweep_results import Sweep

__all__ = ["Frontier", "Sweep", "frontier", "sweep"]
