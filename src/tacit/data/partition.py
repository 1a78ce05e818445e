"""Who holds which record: the ways to deal n records out to P agents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.data.base import DataOptions
from tacit.errors import InputError, no_such
from tacit.types import Classes, Target

Index: TypeAlias = NDArray[np.intp]

PARTITIONS = ("in-order", "shuffled", "dirichlet", "column")
TRIES = 100


class Agents(NamedTuple):
    """The agents' names and the records each of them holds."""

    names: tuple[str, ...]  # [P]
    records: list[Index]  # [P] of [I_p]


def in_order(n: int, agents: int) -> list[Index]:
    """Equal blocks in file order; sizes differ by one at most."""
    _check_agents(n, agents)
    return list(np.array_split(np.arange(n), agents))


def shuffled(n: int, agents: int, seed: int) -> list[Index]:
    """Equal blocks of a random permutation; sizes differ by one at most."""
    _check_agents(n, agents)
    order = np.random.default_rng(seed).permutation(n)
    return [np.sort(block) for block in np.array_split(order, agents)]


def dirichlet(labels: NDArray[Any], agents: int, alpha: float, seed: int) -> list[Index]:
    """Each class is shared out by its own draw of Dirichlet(alpha, ..., alpha) over the agents."""
    _check_agents(len(labels), agents)
    if not (math.isfinite(alpha) and alpha > 0):
        raise InputError(f"dirichlet-alpha is {alpha}: it must be a number above 0")
    generator = np.random.default_rng(seed)
    for _ in range(TRIES):
        owners = _draw_owners(labels, agents, alpha, generator)  # [n]
        if np.bincount(owners, minlength=agents).min() > 0:
            return [np.flatnonzero(owners == p) for p in range(agents)]
    raise InputError(
        f"{TRIES} draws of Dirichlet({alpha:g}) each left one of {agents} agents without a record:"
        " use fewer agents or a larger dirichlet-alpha"
    )


def _draw_owners(labels: NDArray[Any], agents: int, alpha: float, generator: np.random.Generator) -> Index:
    owners = np.zeros(len(labels), dtype=np.intp)
    for label in np.unique(labels):
        records = generator.permutation(np.flatnonzero(labels == label))
        shares = generator.dirichlet(np.full(agents, alpha))  # [P]
        cuts = np.rint(np.cumsum(shares)[:-1] * len(records)).astype(np.intp)
        for p, block in enumerate(np.split(records, cuts)):
            owners[block] = p
    return owners


def by_column(names: Sequence[str], of: NDArray[np.integer[Any]]) -> Agents:
    """One agent for each of the different names, in sorted order; record i is of[i]'s."""
    agents = sorted(range(len(names)), key=names.__getitem__)
    ranks = np.empty(len(names), dtype=np.intp)
    ranks[agents] = np.arange(len(names))
    order = np.argsort(ranks[of], kind="stable")
    ends = np.cumsum(np.bincount(of, minlength=len(names))[agents])
    return Agents(tuple(names[agent] for agent in agents), np.split(order, ends[:-1]))


def check_partition(name: str) -> None:
    """Refuse a partition nobody knows."""
    if name not in PARTITIONS:
        raise no_such("partition", name, PARTITIONS)


def split(options: DataOptions, labels: NDArray[Any], target: Target) -> Agents:
    """Deal the records of a data set that has no agents of its own out to agent-1, ..., agent-P."""
    check_partition(options.partition)
    n, agents = len(labels), options.agents
    if options.partition == "column":
        raise InputError(
            "partition 'column' needs records that name their agent: this data has no such column;"
            " use in-order, shuffled or dirichlet"
        )
    if options.partition == "dirichlet":
        if not isinstance(target, Classes):
            raise InputError("partition 'dirichlet' needs classes: the label is a number; use in-order or shuffled")
        records = dirichlet(labels, agents, options.dirichlet_alpha, options.partition_seed)
    elif options.partition == "shuffled":
        records = shuffled(n, agents, options.partition_seed)
    else:
        records = in_order(n, agents)
    return Agents(agent_names(agents), records)


def agent_names(agents: int) -> tuple[str, ...]:
    """What the agents of a partition are called."""
    return tuple(f"agent-{p + 1}" for p in range(agents))


def _check_agents(n: int, agents: int) -> None:
    if not 1 <= agents <= n:
        raise InputError(f"agents is {agents}: it must be at least 1 and at most the number of records")
