"""A study: settings in, a run folder out."""

from tacit.study.batches import Batch
from tacit.study.build import Study
from tacit.study.outcome import finish
from tacit.study.train import Interrupted, Progress, train

__all__ = ["Batch", "Interrupted", "Progress", "Study", "finish", "train"]
