"""After the loss or rollback of a journal, no second noise is drawn for what has left already."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from taciturn.federation import agent as agent_module
from taciturn.federation import journal as journal_module
from taciturn.federation import messages as wire
from taciturn.federation import site_session
from taciturn.federation.agent import INTERNAL_ERROR
from taciturn.federation.messages import Invitation
from taciturn.federation.site_operations import close_study
from taciturn.federation.transcript import read_transcript
from tests.federation.helpers import EXPERIMENT, Federation, answered, invite, make_federation, question, refused


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    """A study in which the site has answered a round with hardened noise."""
    made = make_federation(tmp_path)
    with made.agent("north", None) as agent:
        invite(agent, made)
        answered(agent, question(made, 1))
    return made


def test_a_site_that_lost_its_state_does_not_begin_the_study_again(federation: Federation) -> None:
    shutil.rmtree(federation.site("north").state)
    with federation.agent("north", None) as agent:
        again = Invitation(EXPERIMENT, federation.terms.digest)
        assert "lost its journal" in refused(agent, again)
        assert "not in session" in refused(agent, question(federation, 1))
    assert len(federation.account("north").state().studies) == 1


def test_an_old_journal_is_noticed(federation: Federation, tmp_path: Path) -> None:
    state = federation.site("north").state
    shutil.copy(state / "journal.sqlite", tmp_path / "old.sqlite")
    with federation.agent("north", None) as agent:
        invite(agent, federation)
        answered(agent, question(federation, 2))
    before = federation.released("north")
    shutil.copy(tmp_path / "old.sqlite", state / "journal.sqlite")
    with federation.agent("north", None) as agent:
        assert refused(agent, Invitation(EXPERIMENT, federation.terms.digest)) == INTERNAL_ERROR
        assert "not in session" in refused(agent, question(federation, 2))
    assert federation.released("north") == before


def test_closing_by_hand_charges_what_a_crash_kept_from_the_ledger(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process died between journal and ledger: the upload never left, and is charged all the same."""
    with monkeypatch.context() as patch:
        patch.setattr(site_session.SiteSession, "_charge", _killed)
        with pytest.raises(SystemExit), federation.agent("north", None) as agent:
            invite(agent, federation)
            agent.answer(wire.encode(question(federation, 2)))
    assert len(federation.released("north")) == 1
    close_study(federation.file("north"), EXPERIMENT[:8])
    assert len(federation.released("north")) == 2
    assert read_transcript(federation.site("north")).faults == []


@pytest.mark.parametrize("year", ["1970", "2099"])
def test_another_clock_releases_nothing_twice(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, year: str
) -> None:
    """Protection never depends on the clock: rounds are counted."""
    for module in (agent_module, journal_module):
        monkeypatch.setattr(module, "timestamp", lambda: f"{year}-01-01T00:00:00+00:00")
    before = federation.released("north")
    with federation.agent("north", None) as agent:
        invite(agent, federation)
        first = answered(agent, question(federation, 1))
        assert answered(agent, question(federation, 1)).z.tobytes() == first.z.tobytes()
        assert "another w" in refused(agent, question(federation, 1, shift=0.5))
        assert federation.released("north") == before
        answered(agent, question(federation, 2))
        assert "stale" in refused(agent, question(federation, 1))
    assert len(federation.released("north")) == len(before) + 1
    assert read_transcript(federation.site("north")).faults == []


def _killed(*given: object) -> None:
    raise SystemExit
