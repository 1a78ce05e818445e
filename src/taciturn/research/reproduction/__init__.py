"""The experiments of the paper's numerical section: the runs, their computation into a folder, and their figures.

The computation needs only numpy and, on a GPU, torch with triton: `python -m taciturn.research.reproduction` runs where
nothing else is installed, and `taciturn reproduce --from` draws the figures anywhere.
"""

from taciturn.research.reproduction.compute import ReproductionInterrupted, ReproductionProgress, compute
from taciturn.research.reproduction.paper_runs import ReproductionPlan, make_plan
from taciturn.research.reproduction.reproduce import reproduce
from taciturn.research.reproduction.results import ReproductionFolder, summarise

__all__ = [
    "ReproductionFolder",
    "ReproductionInterrupted",
    "ReproductionPlan",
    "ReproductionProgress",
    "compute",
    "make_plan",
    "reproduce",
    "summarise",
]
