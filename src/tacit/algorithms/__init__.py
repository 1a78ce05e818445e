"""How it is learned: one file for each method, all of them pure steps over explicit state."""

from tacit.algorithms.base import ALGORITHMS, Agent, Algorithm, Method, Recipe, Step, Upload

__all__ = ["ALGORITHMS", "Agent", "Algorithm", "Method", "Recipe", "Step", "Upload"]
