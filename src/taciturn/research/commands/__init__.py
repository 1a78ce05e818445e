"""Commands of the research package: `taciturn reproduce`, `theory` and `bench`; the CLI loads them by name."""

from taciturn.research.commands.bench_command import bench
from taciturn.research.commands.reproduce_command import reproduce
from taciturn.research.commands.theory_command import theory

__all__ = ["bench", "reproduce", "theory"]
