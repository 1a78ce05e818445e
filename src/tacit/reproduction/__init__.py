"""The paper's numerical section: which runs it is made of, and running them into a folder that figures are drawn from.

It needs nothing but numpy, and on a GPU torch with triton: `python -m tacit.reproduction` computes where nothing else
is installed, `tacit reproduce --from` draws anywhere.
"""

from tacit.reproduction.compute import Interrupted, Progress, compute
from tacit.reproduction.folder import ReproductionFolder
from tacit.reproduction.plan import Plan, make_plan
from tacit.reproduction.reproduce import reproduce
from tacit.reproduction.summary import summarise

__all__ = ["Interrupted", "Plan", "Progress", "ReproductionFolder", "compute", "make_plan", "reproduce", "summarise"]
