"""The paper's numerical section: which runs it is made of, and running them into a folder that figures are drawn from.

It needs nothing but numpy, and on a GPU torch with triton: `python -m taciturn.research.reproduction` computes where nothing else
is installed, `taciturn reproduce --from` draws anywhere.
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
