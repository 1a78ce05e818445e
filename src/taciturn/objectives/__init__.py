"""The learning problem: losses, regularisers, feasible sets, and the objective they define."""

from taciturn.objectives.constraints import SETS, FeasibleSet
from taciturn.objectives.losses import LOSSES, Loss
from taciturn.objectives.problem import Gradient, Problem, not_smooth
from taciturn.objectives.regularizers import REGULARISERS, Regulariser

__all__ = ["LOSSES", "REGULARISERS", "SETS", "FeasibleSet", "Gradient", "Loss", "Problem", "Regulariser", "not_smooth"]
