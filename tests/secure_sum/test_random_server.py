"""A server that asks anything of anybody in any order: what it knows afterwards opens one set, with all its noise."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.secure_sum.slot import SlotRules
from taciturn.secure_sum.slot_messages import SumQuestion
from taciturn.secure_sum.sum_wire import SumRefused
from tests.secure_sum.coalition import OWN, PAIR, Coalition
from tests.secure_sum.helpers import Group, Member, group, study_of
from tests.secure_sum.test_cheats import NoReceipts, SeveralSets
from tests.secure_sum.test_slot_model import openable

HONEST, COLLUDER, QUORUM = (1, 2, 3, 4, 5), 6, 4
ROSTERS = ((1, 2, 3, 4, 5, 6), (1, 2, 5, 6))
SETS = ((1, 2, 3, 4, 5, 6), (1, 2, 5, 6), (3, 4, 5, 6), (1, 2, 3, 4, 6), (2, 3, 4, 5), (5, 6))
Request = tuple[str, int, tuple[int, ...], tuple[int, ...]]  # kind, site, roster, set
Y = {site: np.zeros(4, np.int64) for site in HONEST}
QUESTIONS = st.tuples(
    st.sampled_from(("upload", "agree", "reveal")),
    st.sampled_from(HONEST),
    st.sampled_from(ROSTERS),
    st.sampled_from(SETS),
)


@cache
def begun(rules: Any) -> Group:
    return group(study_of(6, 1, QUORUM), 1, rules)


class RandomServer:
    """Plays a list of requests, and keeps everything that honest sites answer."""

    def __init__(self, rules: type[SlotRules]) -> None:
        kind: Any = rules
        made = begun(kind)
        self.made = Group(made.study, {site: replace_member(made, site) for site in made.members}, made.directory)
        self.bad = Coalition(self.made, (COLLUDER,))
        self.signed: dict[tuple[tuple[int, ...], tuple[int, ...]], dict[int, bytes]] = {}
        self.answered = 0

    def ask(self, kind: str, site: int, roster: tuple[int, ...], alive: tuple[int, ...]) -> None:
        question = self.made.question(0, roster)
        try:
            if kind == "upload":
                self.bad.upload((site,), question, Y)
            elif kind == "agree":
                self.signed.setdefault((roster, alive), {}).update(self.bad.agree((site,), question, alive))
            else:
                signed = {} if roster == alive else self.signed.get((roster, alive), {})
                self.bad.reveal((site,), question, alive, signed)
            self.answered += 1
        except SumRefused:
            pass

    def knows(self) -> tuple[int, int, bool]:
        """The smallest set that can be opened, how many sets, and whether both secrets of a site are known."""
        question = self.made.question(0)
        own = np.array([[self.bad.secret(question, site, OWN) is not None for site in HONEST]])
        pair = np.array([[self.bad.secret(question, site, PAIR) is not None for site in HONEST]])
        smallest, sums = 99, 0
        for roster in ROSTERS:
            found = openable(
                np.array([[site in roster for site in HONEST]]),
                self._uploaded(self.made.question(0, roster)),
                own,
                pair,
            )
            smallest, sums = min(smallest, int(found.smallest[0])), sums + int(found.sums[0])
        return smallest, sums, bool((own & pair).any())

    def _uploaded(self, question: SumQuestion) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return np.array([[(site, self.bad.context(site, question)) in self.bad.uploads for site in HONEST]])


def replace_member(made: Group, site: int) -> Member:
    return replace(made.members[site], departures=[], charges=0)


@settings(max_examples=150)
@given(st.lists(QUESTIONS, min_size=20, max_size=80))
def test_whatever_is_asked_one_set_is_opened_at_most(requests: list[Request]) -> None:
    server = RandomServer(SlotRules)
    for request in requests:
        server.ask(*request)
    smallest, sums, both = server.knows()
    assert smallest >= QUORUM - 1 and sums <= 1 and not both


def test_a_plan_of_a_server_bites_where_a_guard_is_missing() -> None:
    def played(rules: type[SlotRules], plan: list[Request]) -> tuple[int, int, bool]:
        server = RandomServer(rules)
        for request in plan:
            server.ask(*request)
        return server.knows()

    every, few, others = ROSTERS[0], ROSTERS[1], SETS[2]
    mixed: list[Request] = [("upload", site, every, every) for site in (1, 2, 3, 4)]
    mixed.append(("upload", 5, few, few))
    mixed.extend((kind, site, every, others) for kind in ("agree", "reveal") for site in (1, 2, 3))
    assert played(NoReceipts, mixed)[0] == 1 and played(SlotRules, mixed)[0] == 99
    twice: list[Request] = [(kind, site, every, every) for kind in ("upload", "reveal") for site in HONEST]
    twice.extend((kind, site, every, SETS[3]) for kind in ("agree", "reveal") for site in (1, 2, 3))
    assert played(SeveralSets, twice)[2] and played(SlotRules, twice) == (5, 1, False)
