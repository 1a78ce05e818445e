"""Every behaviour of honest sites in one slot that the rules allow: what can a server open, whatever it says to whom?

The server knows all shares that honest sites reveal, and those of its c colluders. It opens a set B of honest sites of
one context if it knows the self secret of every member, each uploaded under this context, and it knows the pair secret
of every other honest site of the roster.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

Flags = NDArray[np.bool_]


class Outcome(NamedTuple):
    """Over all behaviours."""

    behaviours: int
    smallest: int  # honest sites of the smallest set that can be opened
    several: bool  # whether one behaviour opens two sets
    both: bool  # whether both secrets of an honest site can be known


class Found(NamedTuple):
    """For each behaviour."""

    smallest: NDArray[np.int64]
    sums: NDArray[np.int64]


def openable(roster: Flags, uploaded: Flags, own: Flags, pair: Flags) -> Found:
    """Return the size of the smallest set that can be opened, and how many sets, for behaviours [N, H]."""
    needed, possible = roster & ~pair, uploaded & own & roster
    works = possible.any(axis=1) & ~(needed & ~possible).any(axis=1)
    free = (possible & ~needed).sum(axis=1)  # each of these may be in the set or not
    smallest = np.where(works, np.maximum(needed.sum(axis=1), 1), 99)
    return Found(smallest, np.where(works, 2**free - (needed.sum(axis=1) == 0), 0))


def threshold_of(n: int, c: int) -> int:
    return (n + c) // 2 + 1


def one_context(n: int, c: int, q: int, tau: int, signatures: bool = True) -> Outcome:
    """All sites upload under one context; every honest site has one opinion, about any set."""
    honest, everybody = n - c, frozenset(range(n))
    sets = [frozenset(one) for size in range(q, n) for one in combinations(range(n), size)]
    # 0: silent; 1: shares for everybody; then for each set: signed; then for each set: signed and revealed
    signed, revealed = range(2, 2 + len(sets)), range(2 + len(sets), 2 + 2 * len(sets))
    choices = [0, 1, *(signed if signatures else []), *revealed]
    said = np.array(list(product(choices, repeat=honest)))  # [N, H]
    if signatures:
        for sign, reveal in zip(signed, revealed, strict=True):
            support = ((said == sign) | (said == reveal)).sum(axis=1) + c
            said = said[((said != reveal).all(axis=1)) | (support >= tau)]
    views = [(1, everybody), *zip(revealed, sets, strict=True)]
    own, pair = np.zeros(said.shape, int), np.zeros(said.shape, int)
    for opinion, alive in views:
        count = (said == opinion).sum(axis=1)
        for site in range(honest):
            (own if site in alive else pair)[:, site] += count
    knows_own, knows_pair = own + c >= tau, pair + c >= tau
    yes = np.ones(said.shape, bool)
    found = openable(yes, yes, knows_own, knows_pair)
    both = bool((knows_own & knows_pair).any())
    return Outcome(len(said), int(found.smallest.min()), bool((found.sums > 1).any()), both)


# What a site uploaded under (0: nothing), and its opinion: none, everybody of context 1 or 2, or the set U of context 1
STATES = [(0, "-"), (0, "U"), (1, "-"), (1, "all"), (1, "U"), (2, "-"), (2, "all")]
FREE_STATES = [*STATES, (0, "all 1"), (0, "all 2")]  # the rule that only a site that uploaded opens a whole roster


def two_contexts(
    n: int, c: int, q: int, tau: int, receipts: bool = True, signatures: bool = True, free: bool = False
) -> Outcome:
    """Honest sites are asked in two contexts with two rosters; one set U of the first roster may be signed."""
    honest = n - c
    states = FREE_STATES if free else STATES
    every = np.array(list(product(range(len(states)), repeat=honest)))
    count, smallest, several, both = 0, 99, False, False
    for first, alive, second in _rosters(honest, c, q):
        uploads = np.array([state[0] for state in states])[every]
        opinion = np.array([state[1] for state in states])[every]
        allowed = ~((uploads == 1) & ~first | (uploads == 2) & ~second).any(axis=1)
        slow = (opinion == "U").sum(axis=1)
        allowed &= ~((opinion == "U") & alive & (uploads != 1)).any(axis=1)  # a member of U knows what it uploaded
        if signatures:
            allowed &= (slow == 0) | (slow + c >= tau)
        if receipts:
            allowed &= (slow == 0) | ~(alive & (uploads != 1)).any(axis=1)
        uploads, opinion, slow = uploads[allowed], opinion[allowed], slow[allowed]
        all_1 = ((opinion == "all") & (uploads == 1) | (opinion == "all 1")).sum(axis=1)
        all_2 = ((opinion == "all") & (uploads == 2) | (opinion == "all 2")).sum(axis=1)
        own = np.outer(all_1, first) + np.outer(all_2, second) + np.outer(slow, alive) + c >= tau
        pair = np.outer(slow, first & ~alive) + c >= tau
        found = [
            openable(np.broadcast_to(roster, own.shape), uploads == name, own, pair)
            for name, roster in ((1, first), (2, second))
        ]
        count += len(uploads)
        smallest = min([smallest, *(int(one.smallest.min(initial=99)) for one in found)])
        several |= bool((found[0].sums + found[1].sums > 1).any())
        both |= bool((own & pair).any())
    return Outcome(count, smallest, several, both)


def _rosters(honest: int, c: int, q: int) -> Iterator[tuple[Flags, Flags, Flags]]:
    """Yield R1 and U, up to the names of sites, and every R2, as flags of honest sites; colluders are in all."""
    sites = np.arange(honest)
    for size in range(q - c, honest + 1):
        for left in range(q - c, size):
            for second in range(q - c, honest + 1):
                for chosen in combinations(range(honest), second):
                    yield sites < size, sites < left, np.isin(sites, chosen)


ONE = [(5, 1, 4), (6, 1, 5), (6, 2, 5)]
TWO = [(5, 1, 4), (6, 1, 4), (6, 1, 5)]


@pytest.mark.parametrize(("n", "c", "q"), ONE)
def test_one_context_opens_one_set_with_all_its_noise(n: int, c: int, q: int) -> None:
    found = one_context(n, c, q, threshold_of(n, c))
    assert found.smallest == q - c and not found.several and not found.both


@pytest.mark.parametrize(("n", "c", "q"), TWO)
def test_two_contexts_open_one_set_with_all_its_noise(n: int, c: int, q: int) -> None:
    found = two_contexts(n, c, q, threshold_of(n, c))
    assert found.smallest == q - c and not found.several and not found.both


@pytest.mark.parametrize(("n", "c", "q"), ONE)
def test_a_smaller_threshold_would_fail(n: int, c: int, q: int) -> None:
    found = one_context(n, c, q, threshold_of(n, c) - 1)
    assert found.smallest < q - c and found.several and found.both


def test_without_signatures_it_would_fail() -> None:
    assert one_context(5, 1, 4, 4, signatures=False).smallest >= 3  # with one site missing at most it is still safe
    assert two_contexts(6, 1, 4, 4, signatures=False, receipts=False).smallest == 1


def test_without_receipts_it_would_fail() -> None:
    assert two_contexts(6, 1, 4, 4, receipts=False).smallest == 1
    assert two_contexts(6, 1, 5, 4, receipts=False).smallest == 4  # a quorum above 3n/4 needs no receipts


def test_opinions_of_sites_that_did_not_upload_would_be_safe_too() -> None:
    found = two_contexts(6, 1, 4, 4, free=True)
    assert found.behaviours == 445442 and found.smallest == 3 and not found.several and not found.both


def test_the_numbers_of_behaviours_are_those_that_were_counted_once() -> None:
    assert [one_context(n, c, q, threshold_of(n, c)).behaviours for n, c, q in ONE] == ONE_COUNTS
    assert [two_contexts(n, c, q, threshold_of(n, c)).behaviours for n, c, q in TWO] == TWO_COUNTS


ONE_COUNTS, TWO_COUNTS = [3316, 56684, 5362], [2218, 67010, 13148]
