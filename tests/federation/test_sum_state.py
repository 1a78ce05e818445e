"""A site's state of secure sums: restored, lost or copied it is refused, and what is struck out is in no file."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from taciturn.errors import InputError
from taciturn.federation import coordinator, site_database, sum_coordinator
from taciturn.federation import messages as wire
from taciturn.federation.agent import INTERNAL_ERROR, STUDY_BROKEN, SiteAgent
from taciturn.federation.coordinator import FINISHED
from taciturn.federation.identity import Identity
from taciturn.federation.journal import Journal
from taciturn.federation.logs import logged
from taciturn.federation.messages import CloseRequest, Question
from taciturn.federation.sum_journal import SumJournal
from taciturn.federation.sum_session import SumSession
from taciturn.planning.plan import plan_from_facts
from taciturn.secure_sum import parameters
from taciturn.secure_sum.epoch import AnnouncedEpoch, DealtEpoch
from taciturn.secure_sum.shamir import element_bytes
from taciturn.secure_sum.slot_messages import ShareRequest
from tests.federation.helpers import EXPERIMENT, SEED, Local
from tests.federation.sum_adversary import NOTHING, Crew, SiteRefused, coalition_of, crew
from tests.federation.sum_helpers import (
    SUM_LIMIT,
    SUM_SITES,
    Losses,
    Secrets,
    charged_slots,
    files_of,
    losing,
    make_sums,
    secrets_of,
    step_of,
)

SIX = (1, 2, 3, 4, 5, 6)


def restart(made: Crew, site: str) -> None:
    """Let the agent's process end and begin again, perhaps on another journal."""
    made.agents[site]._session = None
    made.agents[site].journal.database.close()
    journal = Journal.connect(made.federation.site(site).state / "journal.sqlite")
    made.agents[site] = SiteAgent(made.federation.file(site), journal, SEED)


def back_up(made: Crew, site: str, place: Path) -> None:
    """Copy a site's journal as a backup program does."""
    with closing(sqlite3.connect(place)) as copy:
        made.agents[site].journal.database.connection.backup(copy)


def restore(made: Crew, site: str, place: Path) -> None:
    """Put a site's journal back from a backup, and start its agent."""
    made.agents[site].journal.database.close()
    shutil.copy(place, made.federation.site(site).state / "journal.sqlite")
    restart(made, site)


def test_a_journal_that_forgot_an_opinion_is_refused_and_would_give_a_second_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledgers cannot tell: an opinion costs nothing. The count of steps outside the journal can."""
    for careful in (True, False):
        with crew(tmp_path / str(careful)) as made:
            bad, question = coalition_of(made, 6), made.question(0)
            bad.upload((1, 2, 3, 4, 5), question, NOTHING)
            for site in made.federation.sites:
                back_up(made, site, tmp_path / f"{site} {careful}")
            bad.reveal((1, 2, 3, 4, 5), question, question.roster)
            for site in made.federation.sites:
                restore(made, site, tmp_path / f"{site} {careful}")
            if careful:
                lines: list[str] = []
                with pytest.raises(SiteRefused, match=INTERNAL_ERROR), logged(None, lines.append):
                    made.invite()
                assert any("an old journal was restored" in line for line in lines)
                continue
            monkeypatch.setattr(SumJournal, "check_not_restored", lambda self: None)
            made.invite()
            alive = (2, 3, 4, 5, 6)
            bad.reveal((2, 3, 4, 5), question, alive, bad.agree((2, 3, 4, 5), question, alive))
            read = bad.opened((1,), question, bad.context(1, question))
            assert np.array_equal(read, made.integers(1, question))


@pytest.mark.parametrize("when", ["before the keys", "before the directory", "before the upload"])
def test_an_older_journal_is_refused(tmp_path: Path, when: str) -> None:
    with crew(tmp_path / "f", begun=False) as made:
        made.invite()
        old = tmp_path / "old.sqlite"
        if when == "before the keys":
            back_up(made, "s1", old)
        original = made.members[1].step
        if when == "before the directory":

            def copying(name: str, data: bytes) -> bytes:
                if name == wire.DEAL:
                    back_up(made, "s1", old)
                return original(name, data)

            made.members[1].step = copying  # type: ignore[method-assign]
        made.begin_epoch(0)
        if when == "before the upload":
            back_up(made, "s1", old)
            made.members[1].upload(made.question(0), NOTHING, b"")
        restore(made, "s1", old)
        with pytest.raises(SiteRefused, match=INTERNAL_ERROR):
            made.invite()


def test_a_site_that_lost_its_journal_or_its_count_does_not_continue(tmp_path: Path) -> None:
    with crew(tmp_path) as made:
        made.members[1].upload(made.question(0), NOTHING, b"")
        made.members[2].session.sums.steps_file.unlink()
        restart(made, "s2")
        made.agents["s1"].journal.database.close()
        (made.federation.site("s1").state / "journal.sqlite").unlink()
        restart(made, "s1")
        with pytest.raises(SiteRefused, match="this site has lost its journal of it"):
            made.invite()
        del made.members[1]
        with pytest.raises(SiteRefused, match=INTERNAL_ERROR):
            made.invite()


def test_a_second_agent_on_a_journal_or_on_a_copy_of_it(tmp_path: Path) -> None:
    with crew(tmp_path) as made:
        with pytest.raises(InputError, match="in use by another agent of this site"), made.federation.agent("s1"):
            pass
        copy = tmp_path / "copy"
        shutil.copytree(made.federation.site("s1").state, copy)
        back_up(made, "s1", copy / "journal.sqlite")
        twin = made.federation.file("s1").with_name("twin.toml")
        twin.write_text(made.federation.file("s1").read_text().replace("[budget]", f'[budget]\nstate = "{copy}"'))
        with Journal.open(copy) as journal:
            first, second = made.agents["s1"], SiteAgent(twin, journal, SEED)
            made.agents["s1"] = second
            with pytest.raises(SiteRefused, match=INTERNAL_ERROR):  # the first one holds the reservation
                made.invite()
            made.agents["s1"] = first
            question = made.question(0)
            made.members[1].upload(question, NOTHING, b"")
            made.members[1].reveal(ShareRequest(question, question.roster, (), b"").to_bytes())
            first._session = None
            made.agents["s1"] = second
            with pytest.raises(SiteRefused, match=INTERNAL_ERROR):  # the copy does not know what the first one said
                made.invite()
            made.agents["s1"] = first


def test_a_study_does_not_continue_with_another_plan_or_another_identity(tmp_path: Path) -> None:
    with crew(tmp_path) as made:
        loader, site = made.agents["s1"].loader, made.federation.site("s1")
        agreement = loader.agreement(site)
        settings = replace(agreement.terms.settings, total_epsilon=(3.0001,))
        made.members[1].upload(made.question(0), NOTHING, b"")
        loader._agreement = replace(agreement, study_plan=plan_from_facts(settings, agreement.facts))
        with pytest.raises(SiteRefused, match="began with another plan than this version of Taciturn computes"):
            made.invite()
        loader._agreement, key = agreement, site.identity.read_bytes()
        site.identity.unlink()
        Identity.create(site.identity)
        with pytest.raises(SiteRefused, match="another identity of s1 than the one in this site's identity file"):
            made.invite()
        site.identity.write_bytes(key)
        made.invite()
        made.members[1].upload(made.question(1), NOTHING, b"")


def test_a_session_that_another_one_has_overtaken_answers_nothing(tmp_path: Path) -> None:
    """Two sessions on one journal cannot be, for the journal and the reservation are locked; the journal is careful."""
    for overtaken in ("slot", "epoch", "upload"):
        with crew(tmp_path / overtaken) as made:
            bad, question, session = coalition_of(made, 6), made.question(0), made.members[1].session
            old = session.state
            bad.upload((1, 2, 3, 4, 5), question, NOTHING)
            old = old if overtaken == "upload" else session.state
            if overtaken == "slot":
                made.members[1].upload(made.question(1), NOTHING, b"")
            elif overtaken == "epoch":
                made.begin_epoch(1)
            session.state = old  # what a second process would still believe
            if overtaken == "upload":
                with pytest.raises(SiteRefused, match=INTERNAL_ERROR):
                    bad.upload((1,), question, NOTHING)
            else:
                with pytest.raises(SiteRefused, match=STUDY_BROKEN):
                    bad.reveal((1,), question, question.roster)
                with made.federation.journal("s1") as journal:  # the end of the study here, and of its secrets
                    for table in ("sum_secrets", "sum_shares", "sum_deals", "sum_opinions"):
                        query = f"select count(*) from {table}"
                        assert journal.database.connection.execute(query).fetchone() == (0,)


@dataclass
class Watching(Local):
    """Looks for struck out secrets in the files of the first site after each of its answers."""

    home: Path = Path()
    known: Secrets = field(default_factory=dict)
    looked: int = 0

    def request(self, questions: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        replies = super().request(questions, seconds)
        session = self.agents["s1"]._session
        if isinstance(session, SumSession) and "s1" in questions:
            assert (session.sums.prepared(), session.sums.state()) == (session.prepared, session.state)
            self.known |= secrets_of(session)
            self.look(session, wire.decode_question(questions["s1"], SUM_LIMIT))
        return replies

    def look(self, session: SumSession, message: Question) -> None:
        """Check that what the rules have struck out is in no file, and that what is needed is in one."""
        content, state = files_of(self.home), session.state
        there = {place for secret, place in self.known.items() if secret in content}
        begun = state.keys.directory.epoch if state else -1
        newest = state.newest if state else -1
        for epoch, slot, whose in there:
            if whose == "box":
                assert isinstance(session.prepared, AnnouncedEpoch | DealtEpoch)
            elif epoch == begun:
                assert slot > newest if whose == "own" else slot >= newest
            else:
                assert epoch > begun
        if step_of(message) == wire.REVEAL:
            assert (begun, newest, "share") in there
        self.looked += bool(there)


def test_what_is_deleted_is_in_no_file_while_the_agent_is_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs of at most three slots; a slot is lost, an upload never arrives, and at the end everything is gone."""
    monkeypatch.setattr(parameters, "EPOCH_SLOTS", 3)
    monkeypatch.setattr(coordinator, "BACKOFF_SECONDS", 0.0)  # the site is back in the next round
    monkeypatch.setattr(sum_coordinator, "JOIN_SLOTS", 1)
    federation = make_sums(tmp_path, rows=4)
    with federation.agents() as agents:
        exchange, study = Watching(agents, home=tmp_path / "s1"), federation.summing()
        losses: Losses = {
            ("s2", wire.UPLOAD, 2): "question",
            ("s4", wire.UPLOAD, 2): "answer",
            ("s1", wire.AGREE, 3): "answer",
        }
        losses |= {("s3", wire.UPLOAD, 3): "question", ("s1", wire.DEAL, 0): "answer"}
        exchange.fault = losing(exchange, losses)
        for _ in range(5):
            if study.run(exchange) == FINISHED:
                break
        assert any(isinstance(message, CloseRequest) for message, _ in exchange.asked)
        content = files_of(tmp_path / "s1")
        assert exchange.looked > 10 and len(exchange.known) > 60
        assert not [place for secret, place in exchange.known.items() if secret in content]
        for site in SUM_SITES:
            with federation.journal(site) as journal:
                rows = {
                    table: journal.database.connection.execute(f"select count(*) from {table}").fetchone()[0]
                    for table in ("sum_secrets", "sum_shares", "sum_deals", "sum_opinions")
                }
            assert rows == dict.fromkeys(rows, 0)


def test_no_upload_leaves_while_the_log_still_has_the_secrets_of_its_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process reads the journal, so SQLite keeps the log: the same question is answered once it has ended."""
    monkeypatch.setattr(site_database, "TRUNCATE_SECONDS", 0.02)
    with crew(tmp_path) as made:
        state, question = made.federation.site("s1").state, made.question(0)
        secrets = made.members[1].now.keys.secrets[0]
        assert secrets is not None
        own = [element_bytes(value) for value in (secrets.pair, secrets.own)]
        with closing(sqlite3.connect(state / "journal.sqlite", isolation_level=None)) as reader:
            reader.execute("begin")
            reader.execute("select count(*) from departures").fetchall()
            with pytest.raises(SiteRefused, match=INTERNAL_ERROR):
                made.members[1].upload(question, NOTHING, b"")
            assert "another process has been reading this site's journal" in made.agents["s1"].disk_error
            assert all(secret in files_of(state) for secret in own)
        made.members[1].upload(question, NOTHING, b"")
        assert not any(secret in files_of(state) for secret in own)
        assert charged_slots(made.federation, "s1", EXPERIMENT) == ["0/0"]


def test_an_agent_does_not_start_on_a_log_that_it_cannot_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_database, "TRUNCATE_SECONDS", 0.02)
    with Journal.open(tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from departures").fetchall()
        with closing(Journal.connect(tmp_path / "journal.sqlite").database) as died:
            Journal(tmp_path, died).record_departure("", "refusal", None, b"")
        with (
            pytest.raises(InputError, match=r"journal\.sqlite: another process has been reading"),
            Journal.open(tmp_path),
        ):
            pass
