"""A federated study equals the same study in one process bit for bit, whatever messages are lost."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn.errors import InputError
from taciturn.federation import coordinator, run_folder, server_state
from taciturn.federation.agent import SiteAgent
from taciturn.federation.coordinator import (
    FINISHED,
    STOPPED,
    WAITING,
    round_milliseconds,
    site_events_path,
)
from taciturn.federation.local_cluster import replay
from taciturn.federation.messages import CloseRequest, Invitation, Question, RoundRequest
from taciturn.federation.run_folder import RoundLine, participation_totals
from taciturn.federation.server_state import journal_w
from taciturn.federation.upload_coordinator import UploadCoordinator
from taciturn.privacy.trust import Caveat
from taciturn.reporting.report import write_report
from taciturn.reporting.statements import CAVEATS, guarantee, headline
from taciturn.runs.folder import read_lines
from taciturn.runs.records import NonPrivateEntry
from tests.federation.helpers import (
    SEED,
    SITES,
    Federation,
    Local,
    check_covered,
    check_duals,
    check_like_replay,
    conducted,
    keep_open,
    make_federation,
    participation,
    write_table,
    write_terms,
)


class Crash(BaseException):
    """Simulates the death of the process."""


def check(federation: Federation, study: UploadCoordinator, exchange: Local) -> None:
    check_like_replay(federation, study)
    check_duals(federation, study)
    check_covered(federation, exchange, study.experiment)


def test_reports_say_what_the_network_sees(tmp_path: Path) -> None:
    """Check the files at the coordinator and at a site."""
    federation = make_federation(tmp_path, {"study": {"rounds": 1}})
    with federation.agents() as agents:
        made = federation.coordinator()
        assert made.run(Local(agents, keep_open)) == FINISHED
    for folder in (made.folder, federation.folder("north", made.experiment)):
        ledger = folder.read_ledger()
        assert CAVEATS[Caveat.CARRIED] in guarantee(ledger.study, ledger.totals).unprotected


@pytest.mark.parametrize(
    "study",
    [
        {},
        {"algorithm": "objpm", "local_updates": 3, "precision": "float32"},
        {"mechanism": "laplace", "loss": "hinge"},
        {"features": "bins", "algorithm": "additive"},
        {"features": "unit"},
        {"features": "fourier", "intercept": False},
    ],
)
def test_a_federation_is_the_study_in_one_process(tmp_path: Path, study: dict[str, Any]) -> None:
    accept = {"mechanisms": ["gaussian", "laplace"], "algorithms": ["objp", "objpm", "additive"]}
    federation = make_federation(tmp_path, {"study": study}, accept)
    with federation.agents() as agents:
        made, exchange = federation.coordinator(), Local(agents, keep_open)
        assert made.run(exchange) == FINISHED
    assert participation(made.folder) == [list(SITES)] * 4
    check(federation, made, exchange)
    assert (federation.run.read_model()["w"] == made.state.w[:, 0]).all()
    features = federation.run.read_model()["feature_names"]
    assert features[0] == {"unit": "unit_age", "fourier": "fourier_0", "bins": "age[0]"}.get(
        study.get("features", ""), "age"
    )
    for ledger in (made.folder.read_ledger(), federation.folder("west", made.experiment).read_ledger()):
        totals = ledger.totals
        assert totals["total_epsilon"] == pytest.approx(totals["planned_epsilon"])
        assert {row["count"] for row in ledger if row["kind"] == "release"} == {study.get("local_updates", 1)}


def test_the_order_in_which_sites_are_gathered_does_not_matter(federation: Federation) -> None:
    with federation.agents() as agents:
        study = federation.coordinator()
        assert study.run(Local({site: agents[site] for site in ("west", "north", "south")})) == FINISHED
        check_like_replay(federation, study)


class Arriving(Local):
    """Sites that connect one after the other."""

    def connected(self) -> Mapping[str, float]:
        return dict.fromkeys(list(self.agents)[: self.since["looks"]], 0.0)

    def wait(self, seconds: float) -> bool:
        self.since["looks"] += 1
        return True


def test_the_first_round_waits_for_sites_on_their_way(federation: Federation) -> None:
    with federation.agents() as agents:
        study = federation.coordinator()
        assert study.run(Arriving(agents)) == FINISHED
    assert [row["missing"] for row in read_lines(study.folder.path / "rounds.jsonl")] == [[]] * 4


def every_other(exchange: Local, missing: str) -> Any:
    """One site misses every second round and comes back."""

    def fault(site: str, message: Question) -> str:
        if isinstance(message, RoundRequest) and message.round % 2 == 0 and site == missing:
            exchange.since[site] += 1
            return "question"
        return keep_open(site, message)

    return fault


def test_a_site_that_is_missing_now_and_then(federation: Federation, agents: dict[str, SiteAgent]) -> None:
    study = federation.coordinator()
    exchange = Local(agents)
    exchange.fault = every_other(exchange, "south")
    assert conducted(study, exchange) == FINISHED
    assert participation(study.folder) == [list(SITES), ["north", "west"]] * 2
    assert study.state.bases == (4, 3, 4)
    assert [row["first"] for row in federation.released("south", study.experiment)] == [1, 3]
    check(federation, study, exchange)


def test_an_answer_that_is_lost_was_given_and_is_rolled_back(
    federation: Federation, agents: dict[str, SiteAgent]
) -> None:
    study = federation.coordinator()

    def fault(site: str, message: Question) -> str:
        lost = site == "west" and isinstance(message, RoundRequest) and message.round in {1, 3}
        if lost:
            exchange.since[site] += 1
        return "answer" if lost else keep_open(site, message)

    exchange = Local(agents, fault)
    assert conducted(study, exchange) == FINISHED
    assert participation(study.folder) == [["north", "south"], list(SITES)] * 2
    assert [row["first"] for row in federation.released("west", study.experiment)] == [1, 2, 3, 4]
    check(federation, study, exchange)


@pytest.mark.parametrize("where", ["save_state", "journal_w", "record_round", "finish_study_folder"])
@pytest.mark.parametrize("after", [False, True])
def test_a_coordinator_that_dies_continues_where_it_was(
    federation: Federation, agents: dict[str, SiteAgent], monkeypatch: pytest.MonkeyPatch, where: str, after: bool
) -> None:
    owner: Any = server_state if hasattr(server_state, where) else coordinator
    real, calls = getattr(owner, where), [0]

    def dying(*given: Any) -> Any:
        calls[0] += 1
        if calls[0] % 2:
            return real(*given)
        if after:
            real(*given)
        raise Crash

    exchange = Local(agents, keep_open)
    monkeypatch.setattr(owner, where, dying)
    calls[0] = where == "finish_study_folder"  # which is called only once
    for _ in range(20):
        study = federation.coordinator()
        try:
            assert study.run(exchange) == FINISHED
            break
        except Crash:
            continue
    assert calls[0] > 1 and study.state.round == 4
    assert participation(study.folder) == [list(SITES)] * 4
    assert [row["round"] for row in study.folder.read_metrics()] == [1, 2, 3, 4]
    for site in SITES:
        assert len(federation.released(site, study.experiment)) == 4  # asked again, answered again, charged once
    check(federation, study, exchange)


def test_random_faults_at_every_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions and answers are lost, sites restart, and the coordinator dies, in ten random studies."""
    for number in range(10):
        rng = random.Random(number)
        federation = make_federation(tmp_path / str(number), {"study": {"rounds": 3}})
        with monkeypatch.context() as patch:
            places: list[tuple[Any, str]] = [(server_state, "save_state"), (server_state, "journal_w")]
            for owner, name in [*places, (coordinator, "record_round")]:
                patch.setattr(owner, name, mortal(rng, getattr(owner, name)))
            story(federation, rng)


def mortal(rng: random.Random, real: Any) -> Any:
    def call(*given: Any) -> Any:
        end = rng.random()
        if end < 0.04:
            raise Crash
        found = real(*given)
        if end > 0.96:
            raise Crash
        return found

    return call


def story(federation: Federation, rng: random.Random) -> None:
    def fault(site: str, message: Question) -> str:
        if isinstance(message, CloseRequest):
            return "question"
        return (
            rng.choice(["", "", "", "", "", "", "question", "answer", "answer"])
            if isinstance(message, (RoundRequest, Invitation))
            else ""
        )

    left: dict[str, list[bytes]] = {}
    for _ in range(200):
        with ExitStack() as stack:  # every process again
            agents = {site: stack.enter_context(federation.agent(site)) for site in SITES}
            study = federation.coordinator()
            exchange = Local(agents, fault, left=left)
            try:
                for _ in range(3):
                    if study.run(exchange) == FINISHED:
                        check(federation, study, exchange)
                        return
                    check_covered(federation, exchange, study.experiment)
            except Crash:
                continue
    raise AssertionError("the study never came to its end")


def test_below_the_quorum_nothing_is_lost(federation: Federation, agents: dict[str, SiteAgent]) -> None:
    """The same question is asked again later, also of sites that have answered it."""
    away = {"north", "south"}

    def fault(site: str, message: Question) -> str:
        late = isinstance(message, RoundRequest) and message.round == 2 and site in away
        return "answer" if late else keep_open(site, message)

    exchange = Local(agents, fault)
    study = federation.coordinator()
    assert study.run(exchange) == WAITING
    assert study.state.round == 1
    assert study.run(Local({"west": agents["west"]}, left=exchange.left)) == WAITING  # one alone is not even asked
    away.remove("north")
    study = federation.coordinator()
    assert study.run(exchange) == FINISHED
    second = [message for message, _ in exchange.asked if isinstance(message, RoundRequest) and message.round == 2]
    assert len(second) == 2
    assert second[0].w.tobytes() == second[1].w.tobytes() and second[0].bases == second[1].bases
    events = [line["event"] for line in read_lines(site_events_path(study.folder))]
    assert events.count(WAITING) == 1 and "missing" in events
    check(federation, study, exchange)


def test_without_sites_it_waits(federation: Federation) -> None:
    study = federation.coordinator()
    assert study.run(Local({})) == WAITING
    assert study.state.round == 0 and not study.folder.finished


def test_a_request_to_stop_is_noticed_between_two_rounds(federation: Federation, agents: dict[str, SiteAgent]) -> None:
    study = federation.coordinator()
    exchange = Local(agents, keep_open)
    assert study.run(exchange, stopping(study, 2)) == STOPPED and study.state.round == 2
    study = federation.coordinator()
    assert study.run(exchange) == FINISHED
    check(federation, study, exchange)


def test_the_w_that_was_sent_is_sent_again(federation: Federation) -> None:
    folder, zero = federation.coordinator().folder, federation.agreement.zero
    assert (journal_w(folder, 1, zero + 1) == zero + 1).all()
    assert (journal_w(folder, 1, zero + 2) == zero + 1).all()
    assert (journal_w(folder, 2, zero + 3) == zero + 3).all()


def test_one_site_that_misses_every_other_round_hardly_costs_accuracy(tmp_path: Path) -> None:
    steps = {"beta": 0.01, "clip": 2.0, "eta": 4.0, "rho": 0.5}  # that lead to the minimum
    federation = make_federation(
        tmp_path,
        {
            "study": {
                "total_epsilon": 200.0,
                "rounds": 100,
                "noise_multiplier": 1.0,
                **steps,
                "algorithm": "dpgd",
                "features": "none",
            }
        },
    )
    shards, rounds = federation.shards(), federation.agreement.part.rounds
    problem = federation.agreement.study_plan.problem
    partial = [list(SITES) if t % 2 else ["north", "south"] for t in range(1, rounds + 1)]
    worth = []
    for participants in ([list(SITES)] * rounds, partial):
        lines = [RoundLine(t, rounds, answered, [], {}, 0, 0) for t, answered in enumerate(participants, 1)]
        worth.append(float(problem.total(replay(federation.agreement, shards, SEED, lines).w, shards)[0]))
    nothing = float(problem.total(federation.agreement.zero, shards)[0])
    assert rounds == 100 and max(worth) < 0.9 * nothing  # something was learned
    assert abs(worth[1] - worth[0]) <= 0.05 * worth[0]


def test_the_round_with_the_counts_waits_for_every_site(tmp_path: Path) -> None:
    """A site that misses it could not continue; two of three are a quorum in every other round."""
    study = {"features": "bins", "algorithm": "additive", "rounds": 4}
    federation = make_federation(tmp_path, {"study": study, "running": {"quorum": 2}}, {"algorithms": ["additive"]})
    with federation.agents() as agents:
        made = federation.coordinator()
        absent = {site: agent for site, agent in agents.items() if site != "west"}
        assert made.run(Local(absent)) == WAITING
        assert made.state.round == 1 and made.quorum == 3
        assert made.run(Local(agents, keep_open)) == FINISHED
    assert participation(made.folder)[:2] == [["north", "south"], list(SITES)]


def test_a_study_continues_under_its_own_terms_only(federation: Federation) -> None:
    first = federation.coordinator()
    assert federation.coordinator().experiment == first.experiment
    write_terms(federation.root, {"running": {"quorum": 3}})
    assert federation.coordinator().experiment == first.experiment
    write_terms(federation.root, {"study": {"rounds": 5}})
    with pytest.raises(InputError, match="was started under other terms"):
        federation.coordinator()


@pytest.mark.parametrize("file", ["letters.txt", "config.toml"])
def test_a_folder_with_something_else_in_it_is_not_touched(federation: Federation, file: str) -> None:
    """It may be another run, and the only record of what was spent."""
    (federation.root / "run").mkdir()
    (federation.root / "run" / file).write_text("dear")
    with pytest.raises(InputError, match="choose another --out"):
        federation.coordinator()
    assert (federation.root / "run" / file).read_text() == "dear"


def stopping(study: UploadCoordinator, rounds: int) -> Callable[[], bool]:
    return lambda: study.state.round == rounds


def test_a_seeded_site_marks_the_whole_study(federation: Federation) -> None:
    with ExitStack() as stack:
        agents = {s: stack.enter_context(federation.agent(s, SEED if s == "south" else None)) for s in SITES}
        for words in ([STOPPED, STOPPED, FINISHED], [FINISHED]):  # gathered again and again, and opened again
            study = federation.coordinator()
            for number, word in enumerate(words, 1):
                assert study.run(Local(agents), stopping(study, number if word == STOPPED else 9)) == word
    marks = [row for row in study.folder.read_ledger() if isinstance(row, NonPrivateEntry)]
    assert marks == [NonPrivateEntry(agent="south", reason="seeded")]
    privacy = study.folder.read_summary()["privacy"]
    assert privacy["non_private"] == "seeded" and headline(privacy).startswith("No guarantee")


def test_hardened_sites_keep_the_promise(federation: Federation) -> None:
    with federation.agents(None) as agents:
        study = federation.coordinator()
        exchange = Local(agents, keep_open)
        assert study.run(exchange) == FINISHED
    check_duals(federation, study)
    check_covered(federation, exchange, study.experiment)
    totals = study.folder.read_ledger().totals
    assert totals["non_private"] is None and headline(totals).startswith("Every record is protected")
    assert totals["total_epsilon"] == pytest.approx(federation.agreement.plan.bound.epsilon)


def test_the_books_of_a_study_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "write_report", write_report)
    federation = make_federation(
        tmp_path, {"sites": {"south": None, "west": None}, "running": {"quorum": 1, "test": "test.csv"}}, only=["north"]
    )
    write_table(tmp_path / "test.csv", 9)
    with federation.agents() as agents:
        study = federation.coordinator()
        assert study.run(Local(agents)) == FINISHED
    rows = study.folder.read_metrics()
    assert [row["round"] for row in rows] == [1, 2, 3, 4] and all(row["test_error"] is not None for row in rows)
    told = participation_totals(study.folder)
    assert told == (4, {"north": 4}, 0, *study.state.sent)
    for folder in (study.folder, federation.folder("north", study.experiment)):
        assert "No guarantee" in folder.report.read_text()
        assert np.array_equal(folder.read_model()["w"], study.state.w[:, 0])
    assert all(row["test_error"] is None for row in federation.folder("north", study.experiment).read_metrics())


TICK = 79_192_837  # seconds between two looks at the clock, recognisable among other numbers


def test_no_public_file_tells_how_long_a_round_took(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for the coordinator and the sites; the coordinator's times are in a private file."""
    clock = iter(range(0, 10**12, TICK))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    with federation.agents(None) as agents:
        study = federation.coordinator()
        assert conducted(study, Local(agents)) == FINISHED
    took = round_milliseconds(study.folder)
    assert len(took) == federation.agreement.part.rounds and min(took) >= 1000 * TICK
    assert site_events_path(study.folder).stat().st_mode & 0o077 == 0
    today = str(int(time.time()))[:6]
    for folder in (study.folder, *(federation.folder(site, study.experiment) for site in SITES)):
        for path in (path for path in folder.path.iterdir() if path.suffix in {".json", ".jsonl", ".toml"}):
            told = re.sub(r"[0-9a-f]{32,}", "", path.read_text())  # hashes may contain any digits
            assert not re.search(rf'(?<![\d.]){TICK}|"(ms|time|seconds)": [0-9]|{today}| ms\b', told), path
