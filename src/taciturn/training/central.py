"""The records of a central reference: a trusted curator that holds those of all agents."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from taciturn.algorithms import ALGORITHMS
from taciturn.planning.study import Study, StudyPart, upload_fields
from taciturn.training.simulate import Round
from taciturn.types import Array, Dataset, Shard

CURATOR = "curator"


def is_central(part: StudyPart) -> bool:
    """Whether the part is a reference that no agent runs."""
    return ALGORITHMS[part.batch.algorithm].central


def records_of(study: Study, part: StudyPart) -> Dataset:
    """The records as the part's method has them: by agent, or all of them at the curator."""
    dataset = study.dataset
    if not is_central(part):
        return dataset
    whole = Shard(*(np.concatenate([getattr(shard, name) for shard in dataset.train]) for name in ("x", "y")))
    return replace(dataset, agents=(CURATOR,), train=(whole,))


def charged_to_all(study: Study, part: StudyPart, done: Round) -> Round:
    """The round with its events at every agent: what the curator releases is made of the records of all."""
    if not is_central(part):
        return done
    agents = range(len(study.dataset.agents))
    return done._replace(events=Counter({(p, event): n for (_, event), n in done.events.items() for p in agents}))


def bytes_sent(study: Study, part: StudyPart, done: Round) -> tuple[int, int]:
    """What went up and down so far, of one run: uploads and w, or once all records to the curator and its model."""
    w = int(done.w[:, 0].nbytes)
    if is_central(part):
        records = study.dataset.records if study.facts is None else study.facts.total_records  # as declared
        return records * done.w.itemsize * sum(map(int, (len(done.w), done.w.shape[2]))), w
    agents, fields = len(study.dataset.agents), upload_fields(part.batch.algorithm)
    return fields * w * agents * done.t, w * agents * done.t


def for_all_agents(mean: Array, agents: int) -> Array:
    """Averages of z [R, P, J, K], where the curator's stands for every agent's."""
    runs, _, *size = mean.shape
    return np.broadcast_to(mean, (runs, agents, *size))
