"""Frontiers: test error against the total budget, under each trust model and each public feature map."""

from tacit.frontiers.outcome import Frontier
from tacit.frontiers.work import frontier

__all__ = ["Frontier", "frontier"]
