"""What is learned: losses, regularisers, feasible sets, and the objective they make."""

from tacit.problems.losses import LOSSES, Loss
from tacit.problems.problem import Gradient, Problem
from tacit.problems.regularisers import REGULARISERS, Regulariser
from tacit.problems.sets import SETS, FeasibleSet

__all__ = ["LOSSES", "REGULARISERS", "SETS", "FeasibleSet", "Gradient", "Loss", "Problem", "Regulariser"]
