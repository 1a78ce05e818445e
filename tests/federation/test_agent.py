"""A site gives one answer to a question, never answers a fork, and a refusal costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn.federation import messages as wire
from taciturn.federation.agent import SiteAgent
from taciturn.federation.messages import Answer, Closed, CloseRequest, Invitation, Ready, Refusal, RoundRequest
from taciturn.federation.site_session import study_folder
from taciturn.privacy.composition import ZERO_COST
from taciturn.privacy.hash_chain import HashChain
from taciturn.reporting.statements import headline
from tests.federation.helpers import (
    EXPERIMENT,
    LIMIT,
    SITES,
    Federation,
    answered,
    ask,
    closed,
    invite,
    make_federation,
    question,
    refused,
)


@pytest.fixture
def agent(federation: Federation) -> Iterator[SiteAgent]:
    """The agent of north, ready for the first round."""
    with federation.agent("north") as found:
        assert isinstance(invite(found, federation), Ready)
        yield found


@contextmanager
def nothing_but_a_refusal(federation: Federation, agent: SiteAgent) -> Iterator[None]:
    """Check that the block adds no round, no event and no reservation."""

    def look() -> tuple[object, ...]:
        names = [begun.id for begun in journal.experiments()]
        folders = sorted(study_folder(federation.site("north"), "").iterdir()) if names else []
        ledgers = [federation.folder("north", name).ledger.read_bytes() for name in names]
        state = federation.account("north").state().studies
        return names, [list(journal.rounds(name)) for name in names], folders, ledgers, state

    journal = agent.journal
    before, left = look(), len(journal.departures())
    yield
    assert look() == before
    assert {departure.kind for departure in journal.departures()[left:]} == {"refusal"}


def test_rounds_are_answered_and_charged(federation: Federation, agent: SiteAgent) -> None:
    for t in (1, 2, 3, 4):
        found = answered(agent, question(federation, t))
        assert (found.experiment, found.site, found.round) == (EXPERIMENT, "north", t)
        assert found.z.shape == federation.agreement.zero.shape and found.z.dtype == np.float64
        rows = federation.released("north")
        assert [(row["first"], row["last"], row["agent"], row["count"]) for row in rows] == [
            (n, n, "north", 1) for n in range(1, t + 1)
        ]
        assert rows[-1]["upload"] == wire.digest(wire.encode(found))
    assert closed(agent, federation, 4) == Closed(EXPERIMENT, "north")
    totals = federation.folder("north").read_ledger().totals
    assert totals["total_epsilon"] == pytest.approx(totals["planned_epsilon"])
    assert federation.account("north").state().used.gdp == pytest.approx(federation.agreement.plan.cost.gdp)
    assert federation.folder("north").finished


def test_the_whole_plan_is_reserved_before_the_first_round(federation: Federation, agent: SiteAgent) -> None:
    state = federation.account("north").state()
    assert [study.study for study in state.studies] == [f"tiny/{EXPERIMENT}"]
    assert state.used.gdp == pytest.approx(federation.agreement.plan.cost.gdp)
    answered(agent, question(federation, 1))
    closed(agent, federation, 1)
    state = federation.account("north").state()
    assert state.used.gdp == pytest.approx(federation.agreement.plan.cost.gdp / 4)  # what was not spent goes back
    assert state.studies[0].settled


@pytest.mark.parametrize("seed", [7, None])
def test_the_same_question_has_the_same_answer_and_costs_nothing_more(federation: Federation, seed: int | None) -> None:
    with federation.agent("north", seed) as agent:
        invite(agent, federation)
        for t in (1, 2):
            asked = wire.encode(question(federation, t))
            first = agent.answer(asked)
            lines = federation.folder("north").ledger.read_bytes()
            assert agent.answer(asked) == first and agent.answer(asked) == first
            assert federation.folder("north").ledger.read_bytes() == lines
    with federation.agent("north", seed) as agent:  # nor after a crash
        invite(agent, federation)
        assert agent.answer(asked) == first
        assert federation.folder("north").ledger.read_bytes() == lines
        assert [departure.kind for departure in agent.journal.departures() if departure.round == 2] == [
            "answer", "answer again", "answer again", "answer again",
        ]  # fmt: skip


def test_an_answer_to_an_invitation_is_given_again(federation: Federation, agent: SiteAgent) -> None:
    answered(agent, question(federation, 1))
    for _ in range(2):
        assert invite(agent, federation) == Ready(EXPERIMENT, "north", "seeded", 1)
    assert len(federation.account("north").state().studies) == 1
    assert len(federation.released("north")) == 1


def test_another_story_of_a_round_is_a_fork(federation: Federation, agent: SiteAgent) -> None:
    answered(agent, question(federation, 1))
    answered(agent, question(federation, 2))
    with nothing_but_a_refusal(federation, agent):
        assert "would fork" in refused(agent, question(federation, 2, shift=1e-12))
        assert "would fork" in refused(agent, question(federation, 2, base=0))
        next_one = question(federation, 2)._replace(w=np.nextafter(question(federation, 2).w, np.inf))
        assert "would fork" in refused(agent, next_one)
        negative = question(federation, 2)._replace(w=-question(federation, 2).w)
        assert "would fork" in refused(agent, negative)


def test_an_old_round_is_stale(federation: Federation, agent: SiteAgent) -> None:
    for t in (1, 2, 3):
        answered(agent, question(federation, t))
    with nothing_but_a_refusal(federation, agent):
        for t, base in ((1, 0), (2, 1), (1, 2), (0, 0)):
            assert f"round {t} is stale" in refused(agent, question(federation, t, base))


def test_a_base_that_does_not_exist_is_refused(federation: Federation, agent: SiteAgent) -> None:
    with nothing_but_a_refusal(federation, agent):
        for t, base in ((0, 0), (2, 1), (3, 2), (1, 1), (1, 5), (1, 2**70)):
            found = refused(agent, question(federation, t, base))
            assert base > 2**63 or f"round {t} from base {base} does not follow" in found
    answered(agent, question(federation, 1))
    answered(agent, question(federation, 2))
    answered(agent, question(federation, 3))
    with nothing_but_a_refusal(federation, agent):
        for base in (1, 4, 5):  # 1 is struck out: the server has gone on from it
            assert f"round 4 from base {base} does not follow" in refused(agent, question(federation, 4, base))


def test_a_round_after_the_last_is_refused(federation: Federation, agent: SiteAgent) -> None:
    for t in (1, 2, 3, 4):
        answered(agent, question(federation, t))
    with nothing_but_a_refusal(federation, agent):
        assert "round 5 from base 4 does not follow" in refused(agent, question(federation, 5))
        assert "does not follow" in refused(agent, question(federation, 10**30, 4))


def test_what_the_server_did_not_accept_is_rolled_back(federation: Federation, agent: SiteAgent) -> None:
    zero, algorithm = federation.agreement.zero, federation.agreement.algorithm
    one, three = question(federation, 1), question(federation, 3, base=1)
    answered(agent, one)
    first = agent.journal.agent_state(EXPERIMENT, 1, zero)
    answered(agent, question(federation, 2))  # which is lost on its way
    found = answered(agent, three)
    assert first is not None
    lam = first.lam + algorithm.rho(3) * (three.w - found.z)  # from the dual after round 1
    kept = agent.journal.agent_state(EXPERIMENT, 3, zero)
    assert kept is not None and (kept.lam == lam).all()
    with nothing_but_a_refusal(federation, agent):
        assert "round 4 from base 2 does not follow" in refused(agent, question(federation, 4, base=2))
    answered(agent, question(federation, 4, base=3))
    assert [row["first"] for row in federation.released("north")] == [1, 2, 3, 4]  # what was lost has left all the same


def test_rounds_in_which_a_site_was_missing_cost_it_nothing(federation: Federation, agent: SiteAgent) -> None:
    answered(agent, question(federation, 2, base=0))
    answered(agent, question(federation, 4, base=0))
    assert [row["first"] for row in federation.released("north")] == [2, 4]


@pytest.mark.parametrize("kind", ["shape", "precision", "nan", "inf"])
def test_a_w_that_is_not_an_array_of_parameters_is_refused(federation: Federation, agent: SiteAgent, kind: str) -> None:
    w = federation.agreement.zero.copy()
    if kind == "shape":
        w = w[:2]
    elif kind == "precision":
        w = w.astype("float32")
    else:
        w[1, 0, 0] = float(kind)
    with nothing_but_a_refusal(federation, agent):
        assert "w must have shape" in refused(agent, question(federation, 1)._replace(w=w))
        assert "w must have shape" in refused(agent, CloseRequest(EXPERIMENT, 0, w))


def test_a_message_for_others_or_of_another_study_is_refused(federation: Federation, agent: SiteAgent) -> None:
    asked = question(federation, 1)
    with nothing_but_a_refusal(federation, agent):
        assert "names no base for this site" in refused(agent, asked._replace(bases={"south": 0}))
        assert "not in session" in refused(agent, asked._replace(experiment=32 * "a"))
        assert "not in session" in refused(agent, CloseRequest(32 * "a", 1, asked.w))


def test_without_an_invitation_nothing_is_answered(federation: Federation) -> None:
    with federation.agent("north") as agent, nothing_but_a_refusal(federation, agent):
        assert "must invite this site" in refused(agent, question(federation, 1))
        assert "must invite this site" in refused(agent, CloseRequest(EXPERIMENT, 1, federation.agreement.zero))


def test_a_study_that_has_ended_stays_so(federation: Federation, agent: SiteAgent) -> None:
    answered(agent, question(federation, 1))
    assert isinstance(closed(agent, federation, 1), Closed)
    assert isinstance(closed(agent, federation, 1), Closed)  # the word of it may have been lost
    with nothing_but_a_refusal(federation, agent):
        assert "not in session" in refused(agent, question(federation, 2))
        found = invite(agent, federation)
        assert isinstance(found, Refusal) and found.reason == "this study has ended here"
    assert agent.journal.agent_state(EXPERIMENT, 1, federation.agreement.zero) is None


def test_a_study_that_ended_before_it_began_costs_nothing(federation: Federation, agent: SiteAgent) -> None:
    assert isinstance(closed(agent, federation, 0), Closed)
    assert federation.account("north").state().used.gdp == 0.0


def test_a_study_is_started_under_the_terms_it_continues_with(federation: Federation, agent: SiteAgent) -> None:
    for folder in ("", "north"):
        path = federation.root / folder / "federation.toml"
        path.write_text(path.read_text().replace("rounds = 4", "rounds = 3"))
    with nothing_but_a_refusal(federation, agent):
        found = invite(agent, federation)
        assert isinstance(found, Refusal) and "started here under other terms" in found.reason


@pytest.mark.parametrize("seeds", [(7, None), (None, 7)])
def test_seeded_and_hardened_noise_do_not_mix(federation: Federation, seeds: tuple[int | None, int | None]) -> None:
    with federation.agent("north", seeds[0]) as agent:
        invite(agent, federation)
        answered(agent, question(federation, 1))
    with federation.agent("north", seeds[1]) as agent, nothing_but_a_refusal(federation, agent):
        found = invite(agent, federation)
        assert isinstance(found, Refusal) and "do not mix" in found.reason
        refused(agent, question(federation, 2))


def test_noise_from_a_seed_is_marked_wherever_the_promise_is_read(federation: Federation, agent: SiteAgent) -> None:
    answered(agent, question(federation, 1))
    ledger = federation.folder("north").read_ledger()
    assert {"kind": "non_private", "agent": "north", "reason": "seeded"} in map(dict, ledger)
    totals = ledger.totals
    assert totals["non_private"] == "seeded"
    assert headline(totals).startswith("No guarantee (non_private: seeded)")
    begun = agent.journal.experiment(EXPERIMENT)
    assert begun is not None and begun.non_private == "seeded"
    assert federation.account("north").state().studies[0].non_private == "seeded"


def test_hardened_noise_is_not(federation: Federation) -> None:
    answers = []
    for site in SITES[:2]:
        with federation.agent(site, None) as agent:
            assert invite(agent, federation) == Ready(EXPERIMENT, site, "", 1)
            answers.append(answered(agent, question(federation, 1)).z)
    totals = federation.folder("north").read_ledger().totals
    assert totals["non_private"] is None and headline(totals).startswith("Every record is protected")
    assert not federation.account("north").state().studies[0].non_private
    assert (answers[0] != answers[1]).any()


@pytest.mark.parametrize("seed", [7, None])
def test_only_noise_from_a_seed_is_drawn_again(tmp_path: Path, seed: int | None) -> None:
    answers = set()
    for name in ("one", "other"):
        federation = make_federation(tmp_path / name, only=["north"])
        with federation.agent("north", seed) as agent:
            invite(agent, federation)
            answers.add(answered(agent, question(federation, 1)).z.tobytes())
    assert len(answers) == (1 if seed else 2)


def test_under_a_reservation_that_was_given_back_nothing_is_answered(federation: Federation) -> None:
    with federation.agent("north") as agent:
        invite(agent, federation)
        answered(agent, question(federation, 1))
    account = federation.account("north")
    account.settle(account.state().studies[0].reservation, ZERO_COST)
    with federation.agent("north") as agent:
        invite(agent, federation)
        assert isinstance(ask(agent, question(federation, 2)), Refusal)
        assert len(federation.released("north")) == 1


def test_a_site_may_change_its_mind(federation: Federation, agent: SiteAgent) -> None:
    answered(agent, question(federation, 1))
    federation.change("north", {"accept": {"study_epsilon_max": 0.5}})
    with nothing_but_a_refusal(federation, agent):
        assert isinstance(invite(agent, federation), Refusal)
        assert isinstance(ask(agent, question(federation, 2)), Refusal)


def test_every_site_has_its_own_noise(federation: Federation) -> None:
    """Records, seed and question are the same at every site."""
    answers = []
    for site in SITES:
        (federation.root / site / "table.csv").write_bytes((federation.root / "north" / "table.csv").read_bytes())
        with federation.agent(site) as agent:
            invite(agent, federation)
            answers += [answered(agent, question(federation, t)).z.tobytes() for t in (1, 2)]
    assert len(set(answers)) == len(answers)


def test_nothing_of_a_round_is_sent_before_it_is_written_down(
    federation: Federation, agent: SiteAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is: the start in the budget ledger, the journal, the study's ledger, the bytes."""
    order: list[str] = []

    def noted(owner: Any, name: str, word: str) -> None:
        real = getattr(owner, name)

        def call(*given: Any) -> Any:
            order.append(word)
            return real(*given)

        monkeypatch.setattr(owner, name, call)

    noted(agent.journal, "write_round", "journal")
    noted(HashChain, "append", "ledger")
    data = agent.answer(wire.encode(question(federation, 1)))
    order.append("answer")
    assert isinstance(wire.decode_reply(data, LIMIT), Answer) and order == ["ledger", "journal", "ledger", "answer"]


def test_a_site_that_goes_from_one_study_to_another_keeps_them_apart(federation: Federation, agent: SiteAgent) -> None:
    federation.change("north", {"accept": {"open_studies_max": 2}})
    answered(agent, question(federation, 1))
    other = "f" * 32
    assert isinstance(ask(agent, Invitation(other, federation.terms.digest)), Ready)
    assert "not in session" in refused(agent, question(federation, 2))
    found = ask(agent, RoundRequest(other, 1, dict.fromkeys(SITES, 0), question(federation, 1).w))
    assert isinstance(found, Answer) and len(federation.released("north", other)) == 1
    assert isinstance(invite(agent, federation), Ready)
    answered(agent, question(federation, 2))
    assert len(federation.account("north").state().studies) == 2
