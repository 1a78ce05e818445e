"""What people see of a study with a secure sum: reports, transcript, ledgers, status and the pages of its owners."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

import pytest

from taciturn.dashboard.monitoring import CoordinatorMonitor, SiteMonitor
from taciturn.dashboard.privacy_view import ledger_reply, privacy_reply
from taciturn.errors import InputError
from taciturn.federation import messages as wire
from taciturn.federation import run_folder
from taciturn.federation.coordinator import FINISHED, STOPPED
from taciturn.federation.coordinator_process import StudyLine, update_status
from taciturn.federation.journal import LEFT, Journal
from taciturn.federation.messages import Question, SumAnswer
from taciturn.federation.site_operations import site_status
from taciturn.federation.status import STATUS_FILE, CoordinatorStatus, publish_status
from taciturn.federation.sum_coordinator import SumCoordinator
from taciturn.federation.transcript import describe_kind, read_transcript
from taciturn.reporting.report import write_report
from taciturn.reporting.statements import guarantee, headline
from taciturn.runs.folder import RunFolder
from tests.cli.helpers import taciturn, taciturn_json
from tests.federation.helpers import Local, conducted
from tests.federation.sum_helpers import SUM_SITES, SumFederation, make_sums, step_of

Ended = tuple[SumFederation, SumCoordinator, Local]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A study with real noise: s5 misses an upload, and later s4 and s5 do, so that a sum is lost."""
    federation = make_sums(tmp_path_factory.mktemp("words"), {"study": {"rounds": 6}})
    uploads: dict[str, int] = dict.fromkeys(SUM_SITES, 0)

    def fault(site: str, message: Question) -> str:
        if step_of(message) != wire.UPLOAD:
            return ""
        uploads[site] += 1
        return "answer" if (site, uploads[site]) in (("s5", 2), ("s4", 3), ("s5", 3)) else ""

    with pytest.MonkeyPatch.context() as patch, federation.agents(seed=None) as agents:
        patch.setattr(run_folder, "write_report", lambda folder: None)  # two of the six are written below
        exchange, study = Local(agents, fault), federation.summing()
        for name in (*SUM_SITES, *SUM_SITES):  # a site that was lost connects again at the next attempt
            exchange.since[name] += 1
            if conducted(study, exchange, tries=1) == FINISHED:
                break
        assert study.folder.finished
    for folder in (study.folder, federation.folder("s1", study.experiment)):
        write_report(folder)
    return federation, study, exchange


def site_folder(ended: Ended, site: str) -> RunFolder:
    federation, study, _ = ended
    return federation.folder(site, study.experiment)


def test_a_sum_was_lost_in_this_study(ended: Ended) -> None:
    """The other tests rest on it."""
    _, study, _ = ended
    assert study.slots.lost == 1 and study.slots.asked == 7 and study.slots.planned == 9


def test_the_statement_is_that_of_the_protocol(ended: Ended) -> None:
    _, study, _ = ended
    for folder in (study.folder, site_folder(ended, "s1")):
        ledger = folder.read_ledger()
        assert ledger.study.sum_protocol and ledger.totals.missing == 1
        said = guarantee(ledger.study, ledger.totals)
        assert said.good and said.headline == (
            "Every record is protected with total epsilon 3 at delta 1e-06, if at most one party tells the server what "
            "it knows."
        )
        everything = " ".join([*said.protected, *said.unprotected])
        assert "only sums over at least 4 of the 5 parties can be opened" in everything
        assert "the shares of any 3 of the 5 add up to all of it" in everything
        assert "one party can spoil the sum" in everything and "quantum computer" in everything
        assert "simulates" not in everything and "People with records" not in everything
        page = unescape(folder.report.read_text())
        assert said.headline in page and "simulates" not in page
        assert privacy_reply(ledger, {}).headline == headline(ledger.totals) == said.headline


def test_the_reports_count_sums_slots_and_uploads(ended: Ended) -> None:
    _, study, _ = ended
    page = unescape(study.folder.report.read_text())
    for words in (
        "over at least 4 of 5 sites, where sums over fewer than 4 cannot be opened",
        "Every sum has at least 3 honest shares of noise",
        "Slots that sites were asked to upload in: 7 of at most 9. Of these, 1 were lost",
        "Rounds answered, of 6: s1 6, s2 6, s3 6, s4 6, s5 ",
    ):
        assert words in page, words
    own = unescape(site_folder(ended, "s1").report.read_text())
    assert "The site sent 7 masked uploads for 6 of 6 rounds" in own


def test_every_step_of_the_protocol_has_words(ended: Ended) -> None:
    federation, _, _ = ended
    for step in (*wire.SUM_STEPS, "upload again"):
        assert describe_kind(f"sum {step}") != f"sum {step}"
    found = read_transcript(federation.site("s1"))
    assert found.faults == [] and all(line.covered for line in found.lines)
    kinds = [line.departure.kind for line in found.lines]
    assert {f"sum {step}" for step in wire.SUM_STEPS} <= set(kinds)


def test_the_transcript_has_every_byte_string_of_the_protocol(ended: Ended) -> None:
    federation, _, exchange = ended
    for site in SUM_SITES:
        lines = read_transcript(federation.site(site)).lines
        assert [line.departure.sha256 for line in lines] == [wire.digest(data) for data in exchange.left[site]]
        replies = [wire.decode_reply(data, 1 << 22) for data in exchange.left[site]]
        for line, reply in zip(lines, replies, strict=True):
            upload = isinstance(reply, SumAnswer) and reply.step == wire.UPLOAD
            assert line.event.startswith("1 x discrete-gaussian in slot ") == upload and (line.event != "–") == upload
    shown = taciturn("federation", "site", "transcript", federation.file("s1")).stdout
    assert "masked upload" in shown and "shares of masks" in shown and "sum " not in shown
    departures = taciturn_json("federation", "site", "transcript", federation.file("s1"))["departures"]
    assert [line["what"] for line in departures].count("masked upload") == 7


def test_status_and_ledger_count_uploads(ended: Ended) -> None:
    federation, study, _ = ended
    (found,) = site_status(federation.file("s1"))["studies"]
    assert (found["rounds"], found["uploads"], found["slot"]) == (6, 7, "0/6")
    shown = taciturn("federation", "site", "status", federation.file("s1")).stdout
    assert "peers of the study tiny: all 4 verified" in shown
    assert "newest slot 0/6; uploads whose round was retried: 1" in shown
    folder = site_folder(ended, "s1").path
    assert "s1: charged in 7 slots of a secure sum, for 6 rounds; 1 of them" in taciturn("ledger", folder).stdout
    assert taciturn_json("ledger", folder)["slots"] == {"s1": {"slots": 7, "rounds": 6}}
    of_all = taciturn_json("ledger", study.folder.path)["slots"]
    assert set(of_all) == set(SUM_SITES) and of_all["s1"] == {"slots": 7, "rounds": 6}
    lines = ledger_reply(site_folder(ended, "s1").read_ledger()).entries
    assert any("slot 0/0" in line.what for line in lines) and any("3 uploads in reserve" in line.what for line in lines)


def test_the_page_of_a_site_shows_slots_and_peers(ended: Ended) -> None:
    federation, _, _ = ended
    page = SiteMonitor(federation.file("s1")).report().page
    facts = dict(page.facts)
    assert facts["peers"] == "all 4 verified"
    assert facts["newest slot"].endswith("; 7 charged in its study")
    assert all(row.ok for row in page.rows)
    assert "masked upload" in {row.cells[1] for row in page.rows}


def test_the_page_of_a_site_marks_a_masked_upload_without_an_event(ended: Ended) -> None:
    federation, study, _ = ended
    with Journal.open(federation.site("s2").state) as journal:
        journal.record_departure(study.experiment, "sum upload", 6, b"forged")
        journal.settle_departure(wire.digest(b"forged"), LEFT)
    (row, *others) = SiteMonitor(federation.file("s2")).report().page.rows
    with Journal.open(federation.site("s2").state) as journal, journal.exclusive():
        journal._execute("delete from departures where sha256 = ?", wire.digest(b"forged"))
    assert not row.ok and row.cells[-1] == "NOT IN THE LEDGER" and all(other.ok for other in others)


def test_the_page_of_the_coordinator_shows_slots(ended: Ended) -> None:
    _, study, _ = ended
    status = CoordinatorStatus()
    update_status(status, study)
    with publish_status(status, study.folder.checkpoints / STATUS_FILE):
        report = CoordinatorMonitor(study.folder.path).report()
    facts = dict(report.page.facts)
    assert facts["secure sum"] == f"epoch {study.slots.epoch}; 7 of at most 9 slots"
    assert facts["sums lost, and charged"] == "1"
    assert "taciturn_coordinator_slots_lost_total 1\n" in report.metrics


def test_the_operator_sees_what_was_lost(ended: Ended) -> None:
    from rich.console import Console

    from taciturn.cli.progress_display import FederationDisplay

    _, study, _ = ended
    said: list[str] = []
    display = FederationDisplay(Console(), said.append)
    for line in (study.folder.checkpoints / "sites.jsonl").read_text().splitlines():
        found: StudyLine = json.loads(line)
        display.show(found)
    assert any("5 sites made keys for the next sums (epoch 0)" in line for line in said)
    (lost,) = [line for line in said if "was not opened" in line]
    assert "the round is retried in another slot" in lost


def test_a_site_that_is_left_out_stays_in_earlier_sums_and_the_report_says_so(tmp_path: Path) -> None:
    federation = make_sums(tmp_path)
    with federation.agents() as agents:
        study = federation.summing()
        assert study.run(Local(agents), stop=lambda: study.progress.round == 2) == STOPPED
        with pytest.raises(
            InputError, match="there are 3 sites, but quorum is 4; a smaller sum would have too little noise"
        ):
            federation.opened(("s4", "s5"))
        again = federation.opened(("s5",))
        assert conducted(again, Local(agents)) == FINISHED
    note = again.folder.read_summary().federation
    assert note is not None
    lines = " ".join(note.lines)
    assert "Left out by the coordinator: s5; sums that were opened before still contain what they sent" in lines
    assert "s4 4, s5 2" in lines
