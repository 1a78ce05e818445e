"""Units of privacy that have several rows: each gives a bounded number of them, and is dealt out and held out whole."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.data.base import DataOptions
from tacit.data.partition import Agents, Index, split
from tacit.data.schema import Unit
from tacit.errors import InputError
from tacit.types import Target


class Units(NamedTuple):
    """Whose rows they are."""

    rule: Unit
    names: tuple[str, ...]  # in the order of their first rows
    of: NDArray[np.int32]  # [n] each row's unit, by its place among the names


def deal_units(options: DataOptions, units: Units, labels: NDArray[Any], target: Target) -> Agents:
    """The partition over units, each with its first row's label: all rows of a unit go to one agent."""
    count = len(units.names)
    if not 1 <= options.agents <= count:
        raise InputError(f"agents is {options.agents}: it must be at least 1 and at most the number of units")
    first = np.unique(units.of, return_index=True)[1]  # [units]
    dealt = split(options, labels[first], target)
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


def hold_out(agents: Agents, draws: NDArray[np.float64], share: float, what: str) -> tuple[Agents, Index]:
    """About a share of the units, at every agent: those whose own draw [n] is below it.

    Who is held out does not depend on who else is there; a permutation would change with everyone who comes or goes.
    """
    held = draws < share
    kept = [index[~held[index]] for index in agents.records]
    for name, index in zip(agents.names, kept, strict=True):
        if not len(index):
            raise InputError(f"test-share is {share:g}: it holds out every {what} of agent '{name}'; use a smaller one")
    out = np.concatenate([index[held[index]] for index in agents.records])
    if not len(out):
        raise InputError(f"test-share is {share:g}: it holds out no {what} at all; use a larger one")
    return Agents(agents.names, kept), out


def unit_draws(units: Units, seed: int) -> NDArray[np.float64]:
    """Each row's unit's own number in [0, 1), [n]."""
    return np.array([_draw(seed, name.encode()) for name in units.names])[units.of]


def record_draws(x: NDArray[Any], labels: NDArray[Any], seed: int) -> NDArray[np.float64]:
    """Each record's own number in [0, 1), made of what it says, [n]."""
    return np.array([_draw(seed, row.tobytes() + label.tobytes()) for row, label in zip(x, labels, strict=True)])


def _rank(of: NDArray[np.int32]) -> NDArray[np.int32]:
    """How many earlier rows of the same unit each row has."""
    order = np.argsort(of, kind="stable")
    ordered = of[order]
    ranks = np.empty_like(of)
    ranks[order] = np.arange(len(of)) - np.searchsorted(ordered, ordered)
    return ranks


def _draw(seed: int, content: bytes) -> float:
    digest = hashlib.blake2b(content, digest_size=8, key=str(seed).encode()).digest()
    return float(int.from_bytes(digest, "big") / 2**64)
