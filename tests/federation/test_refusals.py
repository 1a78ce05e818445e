"""Requests beyond a site's policy are refused: one Refusal leaves, and it reveals nothing about records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taciturn.federation import messages as wire
from taciturn.federation.agent import INTERNAL_ERROR, SiteAgent
from taciturn.federation.logs import logged
from taciturn.federation.messages import Invitation, Ready, Refusal
from taciturn.federation.validation import REASON_LIMIT, printable
from taciturn.privacy.accountants.gdp import NO_SLACK, gdp_budget
from taciturn.privacy.budget import BudgetLedger
from taciturn.privacy.composition import StudyCost
from taciturn.secure_sum.sum_wire import HEADER_LIMIT, MAGIC
from tests.federation.helpers import (
    EXPERIMENT,
    LIMIT,
    SCHEMA,
    Federation,
    ask,
    invite,
    make_federation,
    merged,
    question,
    refused,
    write_terms,
)


@contextmanager
def no_trace(federation: Federation) -> Iterator[SiteAgent]:
    """Yield an agent, and check that it has only refused."""
    with federation.agent("north") as agent:
        yield agent
        assert {departure.kind for departure in agent.journal.departures()} == {"refusal"}
        assert agent.journal.experiments() == []
        (rounds,) = agent.journal._execute("select count(*) from rounds").fetchone()
        assert rounds == 0
    ledger = federation.site("north").ledger
    assert not ledger.exists() or BudgetLedger.open(ledger).state().studies == ()
    studies = federation.site("north").state / "studies"
    assert not studies.exists() or not list(studies.iterdir())


def reason(federation: Federation) -> str:
    """Return why north refuses an invitation, and check that nothing else happens."""
    with no_trace(federation) as agent:
        found = invite(agent, federation)
        assert isinstance(found, Refusal) and found.experiment == EXPERIMENT
        refused(agent, question(federation, 1))
    return found.reason


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accept": {"study_epsilon_max": 0.99}}, "total_epsilon is 1, but this site accepts at most 0.99"),
        ({"accept": {"delta_max": 9e-7}}, "delta is 1e-06, but this site accepts at most 9e-07"),
        ({"accept": {"mechanisms": ["laplace"]}}, "mechanism is gaussian, but this site accepts laplace"),
        ({"accept": {"adjacency": ["replace-one"]}}, "adjacency is add-remove, but this site accepts replace-one"),
        ({"accept": {"algorithms": ["objpm", "objt"]}}, "algorithm is objp, but this site accepts objpm, objt"),
        ({"accept": {"rounds_max": 3}}, "has 4 rounds, but this site accepts at most 3"),
        ({"data": {"schema_sha256": "ab" * 32}}, "but this site agreed to abababababab…"),
        ({"data": {"total_records": 61}}, "the study declares total_records 60, but this site declares 61"),
        ({"data": {"records_max": 21}}, "the study declares records_max 20 for this site, but the site declares 21"),
        ({"data": {"records_max": 19}}, "the study declares records_max 20 for this site, but the site declares 19"),
        ({"data": {"table": "", "published": "mnist14"}}, "the study and this site name different data"),
        ({"site": "east"}, "there is no site east in the study, which has north, south, west"),
        ({"protocol": 2}, "this site's file has protocol 2"),
    ],
)
def test_a_study_beyond_what_the_site_accepts(federation: Federation, changes: dict[str, Any], said: str) -> None:
    federation.change("north", changes)
    assert said in reason(federation)


def test_all_reasons_are_reported_together(federation: Federation) -> None:
    federation.change("north", {"accept": {"rounds_max": 3, "delta_max": 1e-9, "study_epsilon_max": 0.5}})
    assert reason(federation).count("; ") == 2


def test_what_a_site_accepts_it_accepts(tmp_path: Path) -> None:
    """Values equal to the limits of the policy are accepted."""
    federation = make_federation(tmp_path, accept={"rounds_max": 4, "study_epsilon_max": 1.0, "delta_max": 1e-6})
    with federation.agent("north") as agent:
        assert isinstance(invite(agent, federation), Ready)


def test_a_study_without_noise(tmp_path: Path) -> None:
    federation = make_federation(
        tmp_path, {"study": {"total_epsilon": float("inf"), "noise_multiplier": None}}, {"study_epsilon_max": 1e9}
    )
    assert "total_epsilon is inf, but this site accepts at most 1e+09" in reason(federation)


def test_another_copy_of_the_terms(federation: Federation) -> None:
    for changes in ({"study": {"rounds": 3}}, {"sites": {"west": 21}}, {"name": "other"}):
        write_terms(federation.root / "north", changes)
        assert "the two copies of federation.toml differ" in reason(federation)
    write_terms(federation.root / "north", {"running": {"quorum": 1}})  # which is the coordinator's affair
    with federation.agent("north") as agent:
        assert isinstance(invite(agent, federation), Ready)


def test_the_digest_in_an_invitation_is_only_compared(federation: Federation) -> None:
    with no_trace(federation) as agent:
        for digest in ("", "0" * 64, federation.terms.digest.upper(), federation.terms.digest[:-1]):
            assert "federation.toml differ" in refused(agent, Invitation(EXPERIMENT, digest))


def test_another_schema_file_than_the_one_declared(federation: Federation) -> None:
    text = (federation.root / "north" / "site.toml").read_text()
    (federation.root / "north" / "other.toml").write_text(SCHEMA.replace("200", "300"))
    (federation.root / "north" / "site.toml").write_text(text.replace("schema.toml", "other.toml"))
    assert "this site's schema file" in reason(federation)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"total_epsilon": 0.1}, "budget for these records is exhausted"),
        ({"adjacency": "replace-one"}, "adjacency is add-remove, but this site's ledger counts replace-one"),
        ({"unit": "patient"}, "unit is record, but this site's ledger counts patient"),
    ],
)
def test_a_ledger_that_does_not_cover_the_study(federation: Federation, changes: dict[str, Any], said: str) -> None:
    path = federation.site("north").ledger
    path.unlink()
    given: dict[str, Any] = {"name": "north", "total_epsilon": 3.0, "delta": 1e-6}
    BudgetLedger.create(path, **(given | changes))
    assert said in reason(federation)


def test_what_other_studies_have_used_is_gone(federation: Federation) -> None:
    account = federation.account("north")
    left = gdp_budget(3.0, NO_SLACK, 1e-6) - 0.5 * federation.agreement.plan.cost.gdp
    account.reserve("another study", StudyCost(left, left / 2.0))
    with federation.agent("north") as agent:
        found = invite(agent, federation)
        assert isinstance(found, Refusal) and "exhausted" in found.reason
    assert [study.study for study in account.state().studies] == ["another study"]


SECRET = "8.15zz"


def own_affair(federation: Federation) -> None:
    lines: list[str] = []
    with no_trace(federation) as agent, logged(None, lines.append):
        data = agent.answer(wire.encode(Invitation(EXPERIMENT, federation.terms.digest)))
        assert wire.decode_reply(data, LIMIT) == Refusal(EXPERIMENT, "north", INTERNAL_ERROR)
        assert len(lines) == 2 and lines[0] and lines[1] == f"refused: {INTERNAL_ERROR}"
    assert SECRET.encode() not in data and str(federation.root).encode() not in data


@pytest.mark.parametrize(
    "table",
    [f"age,weight,{SECRET}\n1,2,no\n", ""],
)
def test_an_unusable_table_is_reported_at_the_site_only(federation: Federation, table: str) -> None:
    (federation.root / "north" / "table.csv").write_text(table)
    own_affair(federation)


@pytest.mark.parametrize("gone", ["table.csv", "federation.toml", "patients.ledger", "schema.toml"])
def test_a_missing_file_is_reported_at_the_site_only(federation: Federation, gone: str) -> None:
    (federation.root / "north" / gone).unlink()
    own_affair(federation)


def test_a_broken_site_file_is_reported_at_the_site_only(federation: Federation) -> None:
    with federation.agent("north") as agent:
        federation.file("north").write_text("site = ")
        found = ask(agent, Invitation(EXPERIMENT, federation.terms.digest))
        assert found == Refusal("", "", INTERNAL_ERROR)


def test_an_error_in_the_middle_of_a_round_is_reported_at_the_site_only(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with federation.agent("north") as agent:
        invite(agent, federation)

        def fails(*given: object) -> None:
            raise ValueError(f"a record of {SECRET}")

        monkeypatch.setattr(type(federation.agreement.algorithm), "agent_step", fails)
        assert refused(agent, question(federation, 1)) == INTERNAL_ERROR
        assert agent.journal.last_round(EXPERIMENT) is None and federation.released("north") == []


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_answered_by_a_refusal(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes, magic: bool
) -> None:
    federation = _shared(tmp_path_factory)
    with federation.agent("north") as agent:
        found = wire.decode_reply(agent.answer((MAGIC if magic else b"") + garbage), LIMIT)
        assert isinstance(found, Refusal) and found.site == "north"


_MADE: list[Federation] = []


def _shared(factory: pytest.TempPathFactory) -> Federation:
    if not _MADE:
        _MADE.append(make_federation(factory.mktemp("shared")))
    return _MADE[0]


def test_a_message_longer_than_a_studys_parameters_is_refused(federation: Federation) -> None:
    with federation.agent("north") as agent:
        limit = HEADER_LIMIT + 1024
        assert "the limit is" in _reason(agent, MAGIC + bytes(limit))
        assert "the limit is" not in _reason(agent, MAGIC + bytes(limit - len(MAGIC)))
        invite(agent, federation)
        limit += federation.agreement.zero.nbytes
        assert "the limit is" in _reason(agent, MAGIC + bytes(limit))
        assert "the limit is" not in _reason(agent, MAGIC + bytes(limit - len(MAGIC)))


def _reason(agent: SiteAgent, data: bytes) -> str:
    found = wire.decode_reply(agent.answer(data), LIMIT)
    assert isinstance(found, Refusal)
    return found.reason


@pytest.mark.parametrize("name", ["../../treasure", "..", "../..", "/{root}/treasure", ".", "", "a/b"])
def test_the_name_of_a_study_is_no_way_out_of_its_folder(federation: Federation, name: str) -> None:
    home = federation.root / "north"
    (home / "treasure").mkdir()
    (home / "treasure" / "gold").write_text("kept for ever")
    (federation.root / "treasure").mkdir()
    (federation.root / "treasure" / "gold").write_text("kept for ever")
    (home / "state" / "studies" / "a").mkdir(parents=True)
    before = _files(federation.root)
    with federation.agent("north") as agent:
        found = ask(agent, Invitation(name.format(root=federation.root), federation.terms.digest))
        assert before <= _files(federation.root)
        assert isinstance(found, Refusal)
    assert federation.account("north").state().studies == ()


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "journal.sqlite" not in path.name}


def test_a_name_that_is_no_unicode_is_answered_by_a_refusal(federation: Federation) -> None:
    with no_trace(federation) as agent:
        refused(agent, Invitation("\ud800", federation.terms.digest))


def test_a_refusal_can_always_be_read(federation: Federation) -> None:
    sites = {f"a-site-with-a-rather-long-name-{n:04}": 20 for n in range(150)}
    write_terms(federation.root, {"sites": sites, "study": {"trust": "agents"}})
    write_terms(federation.root / "north", {"sites": merged(sites, {}), "study": {"trust": "agents"}})
    federation.change("north", {"site": "east"})
    assert "there is no site east" in reason(federation)


def test_words_from_elsewhere_are_made_fit_for_a_terminal() -> None:
    assert printable("no\x1b[2J\nmore\ud800") == "no?[2J?more?"
    assert len(printable("x" * 10_000)) == REASON_LIMIT
