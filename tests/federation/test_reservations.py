"""A study in a site's budget ledger: reserved at the invitation, started before noise is drawn, settled once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from taciturn.errors import InputError, PrivacyViolation
from taciturn.federation.messages import Closed, Ready
from taciturn.federation.site_session import settle_study
from taciturn.privacy.budget import is_reservation_held
from taciturn.privacy.budget_state import StudyReservation
from taciturn.privacy.signatures import own_key
from taciturn.training.finish import signable
from tests.federation.helpers import (
    EXPERIMENT,
    Federation,
    answered,
    closed,
    invite,
    make_federation,
    question,
    refused,
)


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return make_federation(tmp_path, only=["north"])


def the_study(federation: Federation) -> StudyReservation:
    (study,) = federation.account("north").state().studies
    return study


def test_a_study_starts_with_its_first_round_and_not_before(federation: Federation) -> None:
    with federation.agent("north", None) as agent:
        assert isinstance(invite(agent, federation), Ready)
        reservation = the_study(federation).reservation
        assert the_study(federation).state == "reserved" and is_reservation_held(reservation)
        with pytest.raises(InputError, match="by another process"):
            federation.account("north").give_back(reservation)
        answered(agent, question(federation, 1))
        assert the_study(federation).state == "started"
    del agent
    assert not is_reservation_held(reservation)
    with pytest.raises(InputError, match="has started and cannot be given back"):
        federation.account("north").give_back(reservation)


def test_an_invitation_that_came_to_nothing_is_given_back(federation: Federation) -> None:
    with federation.agent("north", None) as agent:
        invite(agent, federation)
    del agent
    federation.account("north").give_back(the_study(federation).reservation)
    assert the_study(federation).cost.gdp == 0.0
    with federation.agent("north", None) as agent:
        reply = invite(agent, federation)
        assert not isinstance(reply, Ready) and reply.reason == "this study has ended here"


def test_a_site_signs_its_ledger_when_it_closes_and_settles_once(federation: Federation) -> None:
    with federation.agent("north", None) as agent:
        invite(agent, federation)
        answered(agent, question(federation, 1))
        assert isinstance(closed(agent, federation, 1), Closed)
        folder = federation.folder("north")
        signable(folder).verify(own_key().public, None)
        experiment = agent.journal.experiment(EXPERIMENT)
        assert experiment is not None
        before = federation.account("north").state()
        settle_study(federation.site("north"), agent.journal, experiment, folder)  # as after a crash
        assert federation.account("north").state() == before
        folder.chain.append(federation.released("north"))  # a second folder's ledger ends otherwise
        with pytest.raises(InputError, match="already settled"):
            settle_study(federation.site("north"), agent.journal, experiment, folder)


def test_more_than_was_reserved_is_charged_and_ends_the_study(federation: Federation) -> None:
    """Nothing more leaves, and the budget ledger counts all of it."""
    with federation.agent("north", None) as agent:
        invite(agent, federation)
        answered(agent, question(federation, 1))
        folder = federation.folder("north")
        (row,) = federation.released("north")
        (planned,) = folder.read_ledger().plans.values()
        count = sum(event.count for event in planned.events)
        folder.chain.append([replace(row, count=count, upload="f" * 64)])
        reserved = the_study(federation).cost
        assert "would exceed" in refused(agent, question(federation, 2))
        refused(agent, question(federation, 1))  # what it answered before does not leave again either
        experiment = agent.journal.experiment(EXPERIMENT)
        assert experiment is not None
        for _ in range(2):  # and after a crash again
            with pytest.raises(PrivacyViolation, match="spent more than was reserved"):
                settle_study(federation.site("north"), agent.journal, experiment, folder)
        study = the_study(federation)
        assert study.state == "violated"
        assert study.cost.gdp == pytest.approx(reserved.gdp * (count + 1) / count)
