"""Partitions: which agent holds which record, and units of privacy with several rows."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from taciturn.data.dataset_source import DataOptions
from taciturn.data.schema import Unit
from taciturn.errors import InputError, unknown_name
from taciturn.types import Classes, Target

Index: TypeAlias = NDArray[np.intp]

PARTITIONS = ("in-order", "shuffled", "hashed", "dirichlet", "column")
BY_PLACE = ("in-order", "shuffled")  # who holds a record depends on its place among the others
TRIES = 100

HOLD_OUT, DEAL, SHARES = b"", b"taciturn deal", b"taciturn shares"  # what a key is used for, as blake2b's person


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
    _check_alpha(alpha)
    generator = np.random.default_rng(seed)
    for _ in range(TRIES):
        owners = _draw_owners(labels, agents, alpha, generator)  # [n]
        if np.bincount(owners, minlength=agents).min() > 0:
            return [np.flatnonzero(owners == p) for p in range(agents)]
    raise InputError(
        f"{TRIES} draws of Dirichlet({alpha:g}) each left one of {agents} agents without a record:"
        " use fewer agents or a larger dirichlet-alpha"
    )


def hashed(draws: NDArray[np.float64], agents: int) -> list[Index]:
    """Agent floor(P u) for a record whose own draw is u; an agent may get none.

    Who holds a record depends on that record and the key alone, so one record more or less moves nobody else's.
    """
    _check_agents(agents, agents)
    owners = np.minimum((draws * agents).astype(np.intp), agents - 1)
    return [np.flatnonzero(owners == p) for p in range(agents)]


def hashed_dirichlet(
    draws: NDArray[np.float64], labels: NDArray[Any], classes: int, agents: int, alpha: float, key: int
) -> list[Index]:
    """Each class has shares of its own, drawn from the key; a record's draw falls into the share of an agent.

    The shares are drawn for every class of the schema, whether a record has it or not: no record changes them.
    """
    _check_agents(agents, agents)
    _check_alpha(alpha)
    generator = np.random.default_rng(int.from_bytes(keyed_digest(key, SHARES, b"", 32), "big"))
    shares = generator.dirichlet(np.full(agents, alpha), classes)  # [K, P]
    owners = np.zeros(len(labels), dtype=np.intp)
    for label, edges in enumerate(np.cumsum(shares, axis=1)[:, :-1]):
        own = labels == label
        owners[own] = np.searchsorted(edges, draws[own], side="right")
    return [np.flatnonzero(owners == p) for p in range(agents)]


def keyed_digest(key: int, purpose: bytes, content: bytes, size: int) -> bytes:
    """Of a record, a unit or nothing, by a key; digests for different purposes are independent of each other."""
    return hashlib.blake2b(content, digest_size=size, key=str(key).encode(), person=purpose).digest()


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
        raise unknown_name("partition", name, PARTITIONS)


def check_dealing(options: DataOptions) -> None:
    """Refuse to deal private records out by their places: one more or less would move those of others."""
    if options.private and options.partition in BY_PLACE:
        raise InputError(
            f"partition {options.partition} deals records out by their places in the table, so that one record more or "
            "less moves those of others, which no budget covers: certified mode takes hashed or dirichlet"
        )


def split(
    options: DataOptions, labels: NDArray[Any], target: Target, draws: NDArray[np.float64] | None = None
) -> Agents:
    """Deal the records of a data set that has no agents of its own out to agent-1, ..., agent-P.

    `draws`: each record's own number in [0, 1), which `hashed` needs, and `dirichlet` for private records.
    """
    check_partition(options.partition)
    check_dealing(options)
    if by_draws(options) and draws is None:
        raise InputError("partition 'hashed' is for tables: use in-order, shuffled or dirichlet")
    n, agents, alpha, key = len(labels), options.agents, options.dirichlet_alpha, options.partition_key
    if options.partition == "column":
        raise InputError(
            "partition 'column' needs records that name their agent: this data has no such column;"
            " use in-order, shuffled or dirichlet"
        )
    if options.partition == "dirichlet":
        if not isinstance(target, Classes):
            others = "hashed" if options.private else "in-order or shuffled"
            raise InputError(f"partition 'dirichlet' needs classes: the label is a number; use {others}")
        records = (
            dirichlet(labels, agents, alpha, key)
            if draws is None
            else hashed_dirichlet(draws, labels, target.width, agents, alpha, key)
        )
    elif draws is not None:
        records = hashed(draws, agents)
    elif options.partition == "shuffled":
        records = shuffled(n, agents, key)
    else:
        records = in_order(n, agents)
    return Agents(agent_names(agents), records)


def agent_names(agents: int) -> tuple[str, ...]:
    """What the agents of a partition are called."""
    return tuple(f"agent-{p + 1}" for p in range(agents))


def by_draws(options: DataOptions) -> bool:
    """Whether the partition asks for each record's own draw."""
    return options.partition == "hashed" or (options.private and options.partition == "dirichlet")


def _check_agents(n: int, agents: int) -> None:
    if not 1 <= agents <= n:
        raise InputError(f"agents is {agents}: it must be at least 1 and at most the number of records")


def _check_alpha(alpha: float) -> None:
    if not (math.isfinite(alpha) and alpha > 0):
        raise InputError(f"dirichlet-alpha is {alpha}: it must be a number above 0")


class Units(NamedTuple):
    """Whose rows they are."""

    rule: Unit
    names: tuple[str, ...]  # in the order of their first rows
    of: NDArray[np.int32]  # [n] each row's unit, by its place among the names


def deal_units(
    options: DataOptions,
    units: Units,
    labels: NDArray[Any],
    target: Target,
    draws: NDArray[np.float64] | None = None,
) -> Agents:
    """The partition over units, each with its first row's label and draw: all rows of a unit go to one agent."""
    count = len(units.names)
    if draws is None and not 1 <= options.agents <= count:
        raise InputError(f"agents is {options.agents}: it must be at least 1 and at most the number of units")
    first = np.unique(units.of, return_index=True)[1]  # [units]
    dealt = split(options, labels[first], target, None if draws is None else draws[first])
    owners = np.empty(count, dtype=np.intp)
    for p, block in enumerate(dealt.records):
        owners[block] = p
    return Agents(dealt.names, [np.flatnonzero(owners[units.of] == p) for p in range(options.agents)])


def bound_units(agents: Agents, units: Units) -> tuple[Agents, list[str]]:
    """Of each unit's rows at one agent the first max_records in file order, and a note of what was left out."""
    column, most = units.rule.column, units.rule.max_records
    within = [_rank(units.of[index]) < most for index in agents.records]
    kept = [index[good] for index, good in zip(agents.records, within, strict=True)]
    cut = np.concatenate([index[~good] for index, good in zip(agents.records, within, strict=True)])
    if not len(cut):
        return agents, []
    whose = len(np.unique(units.of[cut]))
    rows = f"{len(cut)} row{'s' if len(cut) > 1 else ''} of {whose} unit{'s' if whose > 1 else ''}"
    was = "were" if len(cut) > 1 else "was"
    return Agents(agents.names, kept), [f"{column}: {rows} beyond the first {most} at an agent {was} left out"]


def hold_out(
    agents: Agents, draws: NDArray[np.float64], share: float, what: str, private: bool = False
) -> tuple[Agents, Index]:
    """About a share of the units, at every agent: those whose own draw [n] is below it.

    Who is held out does not depend on who else is there; a permutation would change with everyone who comes or goes.
    `private`: it may be all of an agent's, or none at all, for to stop there would tell of the records.
    """
    held = draws < share
    kept = [index[~held[index]] for index in agents.records]
    out = np.concatenate([index[held[index]] for index in agents.records])
    if private:
        return Agents(agents.names, kept), out
    for name, index in zip(agents.names, kept, strict=True):
        if not len(index):
            raise InputError(f"test-share is {share:g}: it holds out every {what} of agent '{name}'; use a smaller one")
    if not len(out):
        raise InputError(f"test-share is {share:g}: it holds out no {what} at all; use a larger one")
    return Agents(agents.names, kept), out


def unit_draws(units: Units, key: int, purpose: bytes = HOLD_OUT) -> NDArray[np.float64]:
    """Each row's unit's own number in [0, 1), by the key, [n]."""
    names = (name.encode(errors="surrogatepass") for name in units.names)
    return np.array([_draw(key, purpose, name) for name in names], dtype=np.float64)[units.of]


def record_draws(x: NDArray[Any], labels: NDArray[Any], key: int, purpose: bytes = HOLD_OUT) -> NDArray[np.float64]:
    """Each record's own number in [0, 1), from what it says as encoded and the key, [n]."""
    contents = (row.tobytes() + label.tobytes() for row, label in zip(x, labels, strict=True))
    return np.array([_draw(key, purpose, content) for content in contents], dtype=np.float64)


def _rank(of: NDArray[np.int32]) -> NDArray[np.int32]:
    """How many earlier rows of the same unit each row has."""
    order = np.argsort(of, kind="stable")
    ordered = of[order]
    ranks = np.empty_like(of)
    ranks[order] = np.arange(len(of)) - np.searchsorted(ordered, ordered)
    return ranks


def _draw(key: int, purpose: bytes, content: bytes) -> float:
    return int.from_bytes(keyed_digest(key, purpose, content, 8), "big") / 2**64
