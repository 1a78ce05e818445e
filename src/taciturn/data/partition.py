"""Partitions: which agent holds which records, which records are held out, and units of privacy with several rows."""

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
from taciturn.types import ALIKE, Classes, Target

Index: TypeAlias = NDArray[np.intp]

PARTITIONS = ("in-order", "shuffled", "hashed", "dirichlet", "column")
POSITIONAL = ("in-order", "shuffled")  # the agent of a record depends on its position among the others
TRIES = 100
UNSURE = 0.25  # the relative deviation of the share held out from which its owner should know

HOLD_OUT, ASSIGNMENT, SHARES, SPLIT = b"", b"taciturn deal", b"taciturn shares", b"taciturn split"
"""The purposes of a key: blake2b's person."""


class Partition(NamedTuple):
    """The agents' names and the records that each of them holds."""

    names: tuple[str, ...]  # [P]
    records: list[Index]  # [P] of [I_p]


class Units(NamedTuple):
    """The unit of privacy of every row."""

    rule: Unit
    names: tuple[str, ...]  # in the order of their first rows
    codes: NDArray[np.int32]  # [n]  each row's unit, as a position in `names`


def in_order(n: int, agents: int) -> list[Index]:
    """Partition n records into consecutive blocks whose sizes differ by at most one.

    Examples
    --------
    >>> [block.tolist() for block in in_order(5, 2)]
    [[0, 1, 2], [3, 4]]
    """
    _check_agents(n, agents)
    return list(np.array_split(np.arange(n), agents))


def shuffled(n: int, agents: int, seed: int) -> list[Index]:
    """Partition n records at random into blocks whose sizes differ by at most one."""
    _check_agents(n, agents)
    order = np.random.default_rng(seed).permutation(n)
    return [np.sort(block) for block in np.array_split(order, agents)]


def dirichlet(labels: NDArray[Any], agents: int, alpha: float, seed: int) -> list[Index]:
    """Partition each class by its own draw of Dirichlet(alpha, ..., alpha) over the agents.

    Raises
    ------
    InputError
        If every one of TRIES draws leaves an agent without a record.
    """
    _check_agents(len(labels), agents)
    _check_alpha(alpha)
    generator = np.random.default_rng(seed)
    for _ in range(TRIES):
        owners = np.zeros(len(labels), dtype=np.intp)
        for label in np.unique(labels):
            records = generator.permutation(np.flatnonzero(labels == label))
            shares = generator.dirichlet(np.full(agents, alpha))  # [P]
            cuts = np.rint(np.cumsum(shares)[:-1] * len(records)).astype(np.intp)
            for p, block in enumerate(np.split(records, cuts)):
                owners[block] = p
        if np.bincount(owners, minlength=agents).min() > 0:
            return _by_owner(owners, agents)
    raise InputError(
        f"{TRIES} draws of Dirichlet({alpha:g}) each left one of {agents} agents without a record:"
        " use fewer agents or a larger dirichlet-alpha"
    )


def hashed(draws: NDArray[np.float64], agents: int) -> list[Index]:
    """Assign a record whose draw is u to agent floor(P u); an agent may get none.

    The agent of a record depends only on that record and the key, so adding or removing a record moves no other.
    """
    _check_agents(agents, agents)
    return _by_owner(np.minimum((draws * agents).astype(np.intp), agents - 1), agents)


def hashed_dirichlet(
    draws: NDArray[np.float64], labels: NDArray[Any], classes: int, agents: int, alpha: float, key: int
) -> list[Index]:
    """Assign a record to the agent into whose share of its class its draw falls.

    The shares of every class of the schema are drawn from the key, so no record changes them.
    """
    _check_agents(agents, agents)
    _check_alpha(alpha)
    generator = np.random.default_rng(int.from_bytes(_keyed_digest(key, SHARES, b"", 32), "big"))
    shares = generator.dirichlet(np.full(agents, alpha), classes)  # [K, P]
    owners = np.zeros(len(labels), dtype=np.intp)
    for label, edges in enumerate(np.cumsum(shares, axis=1)[:, :-1]):
        own = labels == label
        owners[own] = np.searchsorted(edges, draws[own], side="right")
    return _by_owner(owners, agents)


def _by_owner(owners: Index, agents: int) -> list[Index]:
    return [np.flatnonzero(owners == p) for p in range(agents)]


def partition_by_name(names: Sequence[str], codes: NDArray[np.integer[Any]]) -> Partition:
    """Make one agent of each name, in sorted order; record i belongs to names[codes[i]].

    Examples
    --------
    >>> partition_by_name(["b", "a"], np.array([0, 1, 0]))
    Partition(names=('a', 'b'), records=[array([1]), array([0, 2])])
    """
    agents = sorted(range(len(names)), key=names.__getitem__)
    ranks = np.empty(len(names), dtype=np.intp)
    ranks[agents] = np.arange(len(names))
    order = np.argsort(ranks[codes], kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(names))[agents])
    return Partition(tuple(names[agent] for agent in agents), np.split(order, ends[:-1]))


def check_partition(name: str) -> None:
    """Raise InputError if a partition is unknown."""
    if name not in PARTITIONS:
        raise unknown_name("partition", name, PARTITIONS)


def check_private_partition(options: DataOptions) -> None:
    """Raise InputError if private records would be partitioned by their positions, which no budget covers."""
    if options.private and options.partition in POSITIONAL:
        raise InputError(
            f"partition {options.partition} assigns records by their positions in the table, so adding or removing one "
            "record moves others, which no budget covers: certified mode supports hashed and dirichlet"
        )


def partition_records(
    options: DataOptions, labels: NDArray[Any], target: Target, draws: NDArray[np.float64] | None = None
) -> Partition:
    """Partition the records of a data set that does not name agents among agent-1, ..., agent-P.

    Parameters
    ----------
    options
        The partition and its parameters.
    labels
        Class numbers or values, [n].
    target
        What the label is.
    draws
        Each record's number in [0, 1), [n]; `hashed` needs it, and so does `dirichlet` for private records.

    Raises
    ------
    InputError
        If the partition is unknown or does not suit the data.
    """
    check_partition(options.partition)
    check_private_partition(options)
    if uses_draws(options) and draws is None:
        raise InputError("partition 'hashed' is for tables: use in-order, shuffled or dirichlet")
    n, agents, alpha, key = len(labels), options.agents, options.dirichlet_alpha, options.partition_key
    if options.partition == "column":
        raise InputError(
            "partition 'column' needs a column that names each record's agent, which this data does not have:"
            " use in-order, shuffled or dirichlet"
        )
    if options.partition == "dirichlet":
        if not isinstance(target, Classes):
            others = "hashed" if options.private else "in-order or shuffled"
            raise InputError(f"partition 'dirichlet' needs classes, but the label is a number: use {others}")
        if draws is None:
            records = dirichlet(labels, agents, alpha, key)
        else:
            records = hashed_dirichlet(draws, labels, target.width, agents, alpha, key)
    elif draws is not None:
        records = hashed(draws, agents)
    else:
        records = shuffled(n, agents, key) if options.partition == "shuffled" else in_order(n, agents)
    return Partition(agent_names(agents), records)


def agent_names(agents: int) -> tuple[str, ...]:
    """Return the names that a partition gives its agents.

    Examples
    --------
    >>> agent_names(2)
    ('agent-1', 'agent-2')
    """
    return tuple(f"agent-{p + 1}" for p in range(agents))


def uses_draws(options: DataOptions) -> bool:
    """Return whether the partition needs each record's draw."""
    return options.partition == "hashed" or (options.private and options.partition == "dirichlet")


def _check_agents(n: int, agents: int, kind: str = "records") -> None:
    if not 1 <= agents <= n:
        raise InputError(f"agents is {agents}: it must be at least 1 and at most the number of {kind}")


def _check_alpha(alpha: float) -> None:
    if not (math.isfinite(alpha) and alpha > 0):
        raise InputError(f"dirichlet-alpha is {alpha}: it must be a number above 0")


def partition_units(
    options: DataOptions, units: Units, labels: NDArray[Any], target: Target, draws: NDArray[np.float64] | None = None
) -> Partition:
    """Partition units instead of records: all rows of a unit go to one agent.

    A unit counts with the label and the draw of its first row; for the parameters see `partition_records`.
    """
    if draws is None:
        _check_agents(len(units.names), options.agents, "units")
    first = np.unique(units.codes, return_index=True)[1]  # [units]
    of_units = partition_records(options, labels[first], target, None if draws is None else draws[first])
    owners = np.empty(len(units.names), dtype=np.intp)
    for p, block in enumerate(of_units.records):
        owners[block] = p
    return Partition(of_units.names, _by_owner(owners[units.codes], options.agents))


def limit_unit_rows(partition: Partition, units: Units) -> tuple[Partition, list[str]]:
    """Keep each unit's first max_records rows at every agent.

    Returns
    -------
    Partition
        The partition with the rows that are kept.
    list of str
        A note on what was left out, if anything.
    """
    column, most = units.rule.column, units.rule.max_records
    within = [_rank(units.codes[index]) < most for index in partition.records]
    kept = [index[good] for index, good in zip(partition.records, within, strict=True)]
    cut = np.concatenate([index[~good] for index, good in zip(partition.records, within, strict=True)])
    if not len(cut):
        return partition, []
    owners = len(np.unique(units.codes[cut]))
    rows = f"{len(cut)} row{'s' if len(cut) > 1 else ''} of {owners} unit{'s' if owners > 1 else ''}"
    was = "were" if len(cut) > 1 else "was"
    return Partition(partition.names, kept), [f"{column}: {rows} beyond the first {most} at an agent {was} left out"]


def hold_out(
    partition: Partition, draws: NDArray[np.float64], share: float, kind: str, private: bool = False
) -> tuple[Partition, Index]:
    """Hold out about a share of every agent's units: those whose draw is below it.

    Whether a unit is held out does not depend on the other units, as it would with a permutation.

    Parameters
    ----------
    partition
        The agents' records.
    draws
        Each row's draw, or that of its unit, in [0, 1), [n].
    share
        The share to hold out.
    kind
        "record" or "unit", for error messages.
    private
        Whether it may hold out all records of an agent, or none; an error would reveal something about the records.

    Returns
    -------
    Partition
        The records that are left.
    Index
        The records that are held out.

    Raises
    ------
    InputError
        If nothing is held out, or everything of an agent, and `private` is false.
    """
    held = draws < share
    kept = [index[~held[index]] for index in partition.records]
    out = np.concatenate([index[held[index]] for index in partition.records])
    if not private:
        for name, index in zip(partition.names, kept, strict=True):
            if not len(index):
                raise InputError(f"test-share is {share:g}, which holds out every {kind} of agent '{name}': reduce it")
        if not len(out):
            raise InputError(f"test-share is {share:g}, which holds out no {kind} at all: increase it")
    return Partition(partition.names, kept), out


def held_together(draws: NDArray[np.float64], share: float, held: int) -> list[str]:
    """Return a note if equal records, which have one draw, may make the share held out far from the one asked for.

    Parameters
    ----------
    draws
        Each record's draw, [n].
    share
        The share asked for.
    held
        How many records are held out.
    """
    n, copies = len(draws), np.unique(draws, return_counts=True)[1]
    together = float((copies.astype(np.float64) ** 2).sum())
    deviation = math.sqrt(share * (1.0 - share) * together) / max(1, n)  # of the share held out
    if together < 2.0 * n or deviation < UNSURE * share:
        return []
    return [
        f"{ALIKE} are held out together: {held:,} of {n:,} records are, and there are {len(copies):,} different ones; "
        "to hold out rows one by one, name each of them in a column, and declare it as the schema's [unit]"
    ]


def split_digest(key: int, share: float, decided_by: str) -> str:
    """Return a name for the rule that decides which units are held out; equal names mean that all units agree.

    Parameters
    ----------
    key, share
        The key of the draws, and the share to hold out.
    decided_by
        Everything else that a unit's draw depends on: the unit's column, or how a record is encoded.
    """
    return _keyed_digest(key, SPLIT, repr((share, decided_by)).encode(), 16).hex()


def unit_draws(units: Units, key: int, purpose: bytes = HOLD_OUT) -> NDArray[np.float64]:
    """Return the draw in [0, 1) of each row's unit, from the unit's name and the key, [n]."""
    names = (name.encode(errors="surrogatepass") for name in units.names)
    return np.array([_draw(key, purpose, name) for name in names], dtype=np.float64)[units.codes]


def record_draws(x: NDArray[Any], labels: NDArray[Any], key: int, purpose: bytes = HOLD_OUT) -> NDArray[np.float64]:
    """Return each record's draw in [0, 1), from its encoded content and the key, [n].

    The content's bits must be the same on every machine; see `drawn_features` of `encoding`.
    """
    contents = (row.tobytes() + label.tobytes() for row, label in zip(x, labels, strict=True))
    return np.array([_draw(key, purpose, content) for content in contents], dtype=np.float64)


def _rank(codes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return how many earlier rows of the same unit each row has."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    ranks = np.empty_like(codes)
    ranks[order] = np.arange(len(codes)) - np.searchsorted(ordered, ordered)
    return ranks


def _draw(key: int, purpose: bytes, content: bytes) -> float:
    return int.from_bytes(_keyed_digest(key, purpose, content, 8), "big") / 2**64


def _keyed_digest(key: int, purpose: bytes, content: bytes, size: int) -> bytes:
    """Digest a record, a unit's name or nothing with a key; digests for different purposes are independent."""
    return hashlib.blake2b(content, digest_size=size, key=str(key).encode(), person=purpose).digest()
