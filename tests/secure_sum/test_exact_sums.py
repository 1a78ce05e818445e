"""The opened sum is the sum, to the bit, no matter who is missing within the tolerance."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.secure_sum.opening import SlotLost
from taciturn.secure_sum.parameters import WIDTHS, SumParameters
from taciturn.secure_sum.sum_context import SumStudy
from tests.secure_sum.helpers import group, numbers_of, play, study_of

EPOCHS = int(os.environ.get("TACITURN_SUM_EPOCHS", "25"))
SLOTS = 8  # of each epoch: 125 epochs are a thousand sums, and take half a minute


class Case(NamedTuple):
    """One slot: who is asked, who uploads, who answers afterwards."""

    roster: tuple[int, ...]
    uploading: tuple[int, ...]
    helping: tuple[int, ...]


class Epoch(NamedTuple):
    """Parameters of a federation, its cohort and its slots."""

    study: SumStudy
    cohort: tuple[int, ...]
    cases: list[Case]
    seed: int


@st.composite
def epochs(draw: st.DrawFn) -> Epoch:
    sites = min(draw(st.integers(3, 40)), draw(st.integers(3, 40)))  # many are small
    colluders = draw(st.integers(1, max(1, (sites - 2) // 2)))
    quorum = draw(st.integers((sites + colluders) // 2 + 1, sites))
    rng = draw(st.randoms(use_true_random=False))

    def some(from_: Sequence[int], least: int) -> tuple[int, ...]:
        return tuple(sorted(rng.sample(from_, rng.randint(least, len(from_)))))

    cohort = some(range(1, sites + 1), quorum)
    threshold, cases = (len(cohort) + colluders) // 2 + 1, []
    for _ in range(SLOTS):
        roster = some(cohort, quorum)
        uploading = some(roster, quorum)
        # where nobody is missing only sites that uploaded help; otherwise any site of the cohort may
        cases.append(Case(roster, uploading, some(uploading if uploading == roster else cohort, threshold)))
    width = draw(st.sampled_from(WIDTHS))
    study = study_of(sites, colluders, quorum, draw(st.integers(1, 500)), width=width)
    return Epoch(study, cohort, cases, draw(st.integers(0, 2**32)))


@settings(max_examples=EPOCHS)
@given(epochs())
def test_the_opened_sum_is_the_plain_sum(epoch: Epoch) -> None:
    made = group(epoch.study, SLOTS, cohort=epoch.cohort)
    bound = 2 ** (epoch.study.parameters.width - 1) // epoch.study.parameters.sites
    for slot, case in enumerate(epoch.cases):
        y = numbers_of(made, epoch.seed + slot, bound)
        opened = play(made, made.question(slot, case.roster), y, case.uploading, case.helping)
        assert opened.alive == case.uploading and not opened.disputed
        assert np.array_equal(opened.total, sum(y[site] for site in case.uploading))


def test_sums_wrap_around_modulo_the_width() -> None:
    made = group(study_of(3, 1, 3, dimension=2), slots=1)
    y = {site: np.array([2**39, -(2**62)]) for site in made.members}
    opened = play(made, made.question(0), y, (1, 2, 3), (1, 2, 3))
    assert opened.total.tolist() == [-(2**39), 0]  # 3 * 2^39 modulo 2^40, and -3 * 2^62


def test_below_the_quorum_nothing_is_opened() -> None:
    made = group(study_of(9, 1, 8), slots=1)
    with pytest.raises(SlotLost, match="7 sites uploaded in slot 0; the quorum is 8"):
        play(made, made.question(0), numbers_of(made), (1, 2, 3, 4, 5, 6, 7), (1, 2, 3, 4, 5, 6))


def test_below_the_threshold_nothing_is_opened() -> None:
    made = group(study_of(9, 1, 8), slots=2)
    everybody = tuple(made.members)
    with pytest.raises(SlotLost, match="slot 0 has shares of 5 of the 6 sites needed"):
        play(made, made.question(0), numbers_of(made), everybody, everybody[:5])
    with pytest.raises(SlotLost, match="the set of slot 1 has 5 of the 6 signatures needed"):
        play(made, made.question(1), numbers_of(made), everybody[:8], everybody[:5])


def test_slots_follow_each_other_and_each_upload_is_charged_once() -> None:
    made = group(study_of(5, 1, 4), slots=4)
    for slot in range(4):
        y = numbers_of(made, slot)
        question = made.question(slot, round_number=slot + 1)
        opened = play(made, question, y, (1, 2, 3, 4, 5), (1, 2, 4, 5))
        assert np.array_equal(opened.total, sum(y.values()))
        assert made.members[1].upload(question, y[1] + 1) in made.members[1].departures  # the same bytes again
    assert [member.charges for member in made.members.values()] == [4] * 5


def test_the_tolerances_are_those_of_the_parameters() -> None:
    table = [
        (3, 1, 0, 3, 2, 3),
        (5, 1, 1, 4, 3, 4),
        (10, 1, 2, 8, 7, 6),
        (50, 2, 5, 45, 43, 27),
        (195, 9, 15, 180, 171, 103),
    ]
    for sites, colluders, missing, quorum, honest, threshold in table:
        found = SumParameters(sites, colluders, quorum, 8000, 40, 300, 6)
        assert (found.missing, found.honest, found.threshold(sites)) == (missing, honest, threshold)
