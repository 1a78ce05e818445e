"""What a slot sums: gradients, or measures of held-out records. Each has a size, masks and a count of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from taciturn.errors import InputError
from taciturn.secure_sum.parameters import GRADIENT, MEASURES, SumParameters
from taciturn.secure_sum.slot_messages import SumQuestion
from taciturn.secure_sum.sum_context import SumStudy
from taciturn.secure_sum.sum_wire import SumMalformed, SumRefused
from tests.secure_sum.helpers import Group, group, play, study_of

SIZES = {GRADIENT: 4, MEASURES: 7}
EVERYBODY = (1, 2, 3, 4, 5)


def study(rounds: int = 3, evaluations: int = 2) -> SumStudy:
    plain = study_of(5, 1, 4, rounds=rounds)
    return replace(plain, parameters=replace(plain.parameters, reserve=0, measures=7, evaluations=evaluations))


def question(made: Group, slot: int, subject: int) -> SumQuestion:
    return replace(made.question(slot), subject=subject)


def numbers(subject: int, seed: int = 0) -> dict[int, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    rng = np.random.default_rng(seed)
    return {site: rng.integers(-(2**30), 2**30, SIZES[subject]) for site in EVERYBODY}


@pytest.mark.parametrize("missing", [(), (3,)])
def test_both_are_opened_in_slots_of_their_own(missing: tuple[int, ...]) -> None:
    made = group(study(), slots=4)
    there = tuple(site for site in EVERYBODY if site not in missing)
    for slot, subject in enumerate((GRADIENT, MEASURES, MEASURES, GRADIENT)):
        y = numbers(subject, slot)
        opened = play(made, question(made, slot, subject), y, there, there)
        assert (opened.total == sum(y[site] for site in there)).all() and len(opened.total) == SIZES[subject]


def test_a_slot_that_was_asked_for_one_is_not_answered_for_the_other() -> None:
    made = group(study())
    made.members[1].upload(question(made, 0, GRADIENT), numbers(GRADIENT)[1])
    with pytest.raises(SumRefused, match="another question"):
        made.members[1].upload(question(made, 0, MEASURES), numbers(MEASURES)[1])


def test_masks_of_one_do_not_open_the_other() -> None:
    """If some sites are asked for gradients and others for measures in one slot, nothing of either can be read."""
    same = replace(study().parameters, measures=4)
    made = group(replace(study(), parameters=same))
    contexts = {question(made, 0, subject).context(made.study, made.now.digest) for subject in (GRADIENT, MEASURES)}
    assert len(contexts) == 2
    opening = made.opening(question(made, 0, GRADIENT))
    with pytest.raises(SumRefused, match="receipt"):
        opening.read_upload(1, made.members[1].upload(question(made, 0, MEASURES), numbers(GRADIENT)[1]))


@pytest.mark.parametrize(("subject", "paid"), [(GRADIENT, 3), (MEASURES, 2)])
def test_each_is_counted_apart(subject: int, paid: int) -> None:
    """Neither can be bought with what the plan pays for the other."""
    made = group(study(), slots=8)
    member, other = made.members[1], GRADIENT if subject == MEASURES else MEASURES
    for slot in range(paid):
        member.upload(question(made, slot, subject), numbers(subject)[1])
    with pytest.raises(SumRefused, match="the plan pays for"):
        member.upload(question(made, paid, subject), numbers(subject)[1])
    member.upload(question(made, paid, other), numbers(other)[1])
    assert member.now.charged == ((paid, 1) if subject == GRADIENT else (1, paid))


def test_a_study_without_evaluations_takes_no_measures() -> None:
    made = group(study_of(5, 1, 4))
    with pytest.raises(SumRefused, match="the plan pays for 0"):
        made.members[1].upload(question(made, 0, MEASURES), numbers(MEASURES)[1])


def test_numbers_of_the_wrong_size_are_never_masked() -> None:
    made = group(study())
    for subject in (GRADIENT, MEASURES):
        wrong = numbers(MEASURES if subject == GRADIENT else GRADIENT)[1]
        with pytest.raises(SumRefused, match="whole numbers"):
            made.members[1].upload(question(made, 0, subject), wrong)


def test_there_is_no_third_thing_to_sum() -> None:
    made = group(study())
    data = question(made, 0, MEASURES).to_bytes().replace(b'"subject":1', b'"subject":2')
    with pytest.raises(SumMalformed, match="gradients"):
        SumQuestion.from_bytes(data)


def test_what_is_agreed_on_names_both() -> None:
    base = study()
    others = [replace(base.parameters, measures=8), replace(base.parameters, evaluations=3)]
    assert len({base.digest, *(replace(base, parameters=one).digest for one in others)}) == 3
    assert base.parameters.uploads == 5 and base.parameters.size(MEASURES) == 7
    for wrong in ({"evaluations": -1}, {"measures": -1}, {"measures": 0, "evaluations": 1}, {"measures": 2**28}):
        with pytest.raises(InputError):
            replace(base.parameters, **wrong)
    assert SumParameters(5, 1, 4, 9, 40, 3, 0).paid(MEASURES) == 0
