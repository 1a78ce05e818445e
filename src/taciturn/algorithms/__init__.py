"""Learning algorithms: one module for each family, all of them pure steps over explicit state."""

from taciturn.algorithms.base import ALGORITHMS, Agent, Algorithm, AlgorithmConfig, AlgorithmSpec, Step, Upload

__all__ = ["ALGORITHMS", "Agent", "Algorithm", "AlgorithmConfig", "AlgorithmSpec", "Step", "Upload"]
