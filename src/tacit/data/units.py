"""Units of privacy that have several rows: each gives a bounded number of them, and is dealt out and held out whole."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.data.base import DataOptions
from tacit.data.partition import HOLD_OUT, Agents, Index, keyed_digest, split
from tacit.data.schema import Unit
from tacit.errors import InputError
from tacit.types import Target


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
