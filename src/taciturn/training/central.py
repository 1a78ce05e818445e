"""Central references, in which a trusted curator holds the records of all agents."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from taciturn.algorithms import ALGORITHMS
from taciturn.data import limit_records
from taciturn.planning.study import Study, StudyPart, upload_fields
from taciturn.training.process_group import SINGLE_PROCESS, ProcessGroup
from taciturn.training.simulate import Round
from taciturn.types import Array, Dataset, pool

CURATOR = "curator"


def is_central(part: StudyPart) -> bool:
    """Return whether the part is a central reference, which no agent runs."""
    return ALGORITHMS[part.batch.algorithm].central


def dataset_for(study: Study, part: StudyPart, group: ProcessGroup = SINGLE_PROCESS) -> Dataset:
    """Return the records of this process as the part's algorithm sees them.

    A curator has all of them, and with simulated sums they are pooled too, for all agents. A method whose guarantee
    needs a bound on an agent's records uses as many as declared.
    """
    dataset, facts = study.dataset, study.facts
    if facts is not None and not facts.published and ALGORITHMS[part.batch.algorithm].requires_contraction:
        own = group.partition(len(dataset.agents))[group.rank]
        dataset = limit_records(facts, dataset, dataset.agents[own.start : own.stop])
    if is_central(part):
        return replace(dataset, agents=(CURATOR,), train=(pool(dataset.train),))
    return replace(dataset, train=(pool(dataset.train),)) if study.settings.pooled_sums else dataset


def charge_all_agents(study: Study, part: StudyPart, done: Round) -> Round:
    """Return the round with the curator's events at every agent: a release depends on the records of all agents."""
    if not is_central(part):
        return done
    agents = range(len(study.dataset.agents))
    return done._replace(events=Counter({(p, event): n for (_, event), n in done.events.items() for p in agents}))


def bytes_sent(study: Study, part: StudyPart, done: Round) -> tuple[int, int]:
    """Return the bytes that one run sent up and down so far.

    Agents send uploads and receive w in every round. A curator receives all records and sends its model, once.
    """
    w = int(done.w[:, 0].nbytes)
    if is_central(part):
        records = study.dataset.records if study.facts is None else study.facts.total_records  # as declared
        return records * done.w.itemsize * sum(map(int, (len(done.w), done.w.shape[2]))), w
    agents, fields = len(study.dataset.agents), upload_fields(part.batch.algorithm)
    return fields * w * agents * done.t, w * agents * done.t


def broadcast_to_agents(mean: Array, agents: int) -> Array:
    """Return averages of z [R, P, J, K] for P agents; those of a curator stand for every agent."""
    runs, _, *size = mean.shape
    return np.broadcast_to(mean, (runs, agents, *size))
