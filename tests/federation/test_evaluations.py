"""Evaluations on held-out records: the same as in a simulation, charged once, whatever is lost or asked."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn.errors import InputError, PrivacyViolation
from taciturn.federation import coordinator, site_session
from taciturn.federation import messages as wire
from taciturn.federation.agreement import derive_agreement
from taciturn.federation.coordinator import EVALUATED, FINISHED, WAITING, Coordinator
from taciturn.federation.journal import Journal
from taciturn.federation.messages import (
    Invitation,
    MeasureAnswer,
    MeasureRequest,
    Question,
    Refusal,
    RoundRequest,
    SumRoundRequest,
)
from taciturn.federation.release import ReleaseGate
from taciturn.federation.sum_coordinator import SumCoordinator
from taciturn.federation.sum_journal import SumJournal
from taciturn.federation.sum_state import SumFiles
from taciturn.federation.terms import read_terms
from taciturn.federation.transcript import read_transcript
from taciturn.federation.upload_coordinator import EVALUATION_TRIES, UploadCoordinator
from taciturn.federation.validation import Rejected, read_measures
from taciturn.privacy.hash_chain import HashChain
from taciturn.runs.folder import RunFolder
from taciturn.runs.private_quality import PrivateClassification
from taciturn.secure_sum.parameters import GRADIENT, MEASURES
from tests.federation.helpers import (
    EXPERIMENT,
    SITES,
    Federation,
    Local,
    ask,
    check_like_replay,
    conducted,
    invite,
    make_federation,
    refused,
)
from tests.federation.sum_helpers import (
    SUM_SITES,
    SumFederation,
    asked_in,
    check_charges,
    check_sums,
    make_sums,
    refusals,
    step_of,
)
from tests.federation.test_sum_crashes import Crash, Mortal, mortal

MEASURED: dict[str, Any] = {"test_share": 0.4, "partition_key": 3, "evaluations": 2}
OWN: dict[str, Any] = {
    "algorithm": "dpgd",
    "trust": "agents",
    "noise_multiplier": None,
    "total_epsilon": 1.0,
    **MEASURED,
}
ACCEPT: dict[str, Any] = {"algorithms": ["dpgd"]}


def summed(root: Path, **study: Any) -> SumFederation:
    return make_sums(root, {"study": {**MEASURED, **study}}, rows=20)


def own_noise(root: Path, **study: Any) -> Federation:
    return make_federation(root, {"study": {**OWN, **study}}, ACCEPT, epsilon=10.0)


def subject_of(message: Question) -> int | None:
    """What a message sums; None for other messages."""
    question = asked_in(message)
    return None if question is None else question.subject


def evaluated(study: Coordinator) -> list[tuple[int, int, bool]]:
    """Round, number of sites, and whether something was measured, for every evaluation."""
    return [(row.round, row.agents, row.quality is not None) for row in study.folder.read_evaluations()]


def held_out_charges(federation: Federation, site: str, experiment: str) -> list[Any]:
    """The places at which a site's ledger has charged evaluations."""
    return [row.slot or row.first for row in federation.released(site, experiment) if row.held_out]


# ---- as in a simulation


@pytest.mark.parametrize(
    "settings",
    [{}, {"algorithm": "additive", "features": "bins", "rounds": 5}, {"precision": "float32", "algorithm": "objw"}],
)
def test_a_secure_sum_is_evaluated_as_its_simulation(tmp_path: Path, settings: dict[str, Any]) -> None:
    federation = summed(tmp_path, **settings)
    with federation.agents() as agents:
        exchange, study = Local(agents), federation.summing()
        assert conducted(study, exchange) == FINISHED
    rounds = study.agreement.part.rounds
    assert evaluated(study) == [(-(-rounds // 2), 5, True), (rounds, 5, True)]
    check_sums(federation, study)  # evaluations too, bit by bit
    check_charges(federation, study, exchange)
    assert refusals(exchange) == []
    last = study.folder.read_summary().runs[0].private_quality
    assert isinstance(last, PrivateClassification) and last == study.folder.read_evaluations()[-1].quality
    records = sum(len(shard.x) for shard in federation.held_out())
    assert 20 < records < 60 and abs(last.records.value - records) < 5.0 * last.records.noise
    for site in SUM_SITES:
        assert len(held_out_charges(federation, site, study.experiment)) == 2


@pytest.mark.parametrize("settings", [{}, {"algorithm": "objp"}])
def test_noise_at_every_site_is_evaluated_as_its_simulation(tmp_path: Path, settings: dict[str, Any]) -> None:
    federation = make_federation(tmp_path, {"study": OWN | settings}, {"algorithms": ["dpgd", "objp"]}, epsilon=10.0)
    with federation.agents() as agents:
        exchange, study = Local(agents), federation.coordinator()
        assert conducted(study, exchange) == FINISHED
    assert evaluated(study) == [(2, 3, True), (4, 3, True)]
    check_like_replay(federation, study)
    for site in SITES:
        assert held_out_charges(federation, site, study.experiment) == [2, 4]
        assert read_transcript(federation.site(site)).faults == []
        (entry,) = federation.account(site).state().studies
        assert entry.state == "settled" and entry.apart
        assert entry.held_out.gdp == pytest.approx(federation.agreement.plan.held_out_cost.gdp)
        assert entry.cost.gdp == pytest.approx(federation.agreement.plan.cost.gdp)
    assert study.progress.sent[0] > 0


def test_evaluations_change_no_model_and_held_out_records_never_train(tmp_path: Path) -> None:
    models = []
    for evaluations in (1, 4):
        federation = own_noise(tmp_path / str(evaluations), evaluations=evaluations)
        with federation.agents() as agents:
            study = federation.coordinator()
            assert conducted(study, Local(agents)) == FINISHED
        assert len(evaluated(study)) == evaluations
        models.append(study.state.w.tobytes())
        for shard, other in zip(federation.shards(), federation.held_out(), strict=True):
            assert len(shard.x) + len(other.x) == 12
            assert not {row.tobytes() for row in shard.x} & {row.tobytes() for row in other.x}
    assert models[0] == models[1]


def test_a_trial_on_published_data_holds_out_by_content(tmp_path: Path) -> None:
    study = {"data": "mnist14", "schema": None, "total_records": 300, "features": "none", **MEASURED}
    federation = make_federation(tmp_path, {"study": OWN | study}, ACCEPT, epsilon=10.0, only=())
    terms = federation.terms
    published = terms.load_published()
    assert published is not None
    from taciturn.federation.agreement import published_shards

    sides = [published_shards(terms, published, site) for site in SITES]
    for site, (own, other) in zip(SITES, sides, strict=True):
        share = published.train[terms.agents.index(site)]
        assert other is not None and len(own.x) + len(other.x) == len(share.x)
        assert 0.3 < len(other.x) / len(share.x) < 0.5
    again = published_shards(terms, published, "north")[1]
    assert again is not None and sides[0][1] is not None and np.array_equal(again.x, sides[0][1].x)


# ---- what is lost


def test_a_site_that_is_missing_is_missing_in_the_measures_alone(tmp_path: Path) -> None:
    federation = summed(tmp_path)
    with federation.agents() as agents:
        exchange, study = Local(agents), federation.summing()
        lost = [0]

        def fault(site: str, message: Question) -> str:
            if site == "s2" and subject_of(message) == MEASURES and not lost[0]:
                lost[0] += 1
                exchange.since[site] += 1
                return "answer"
            return ""

        exchange.fault = fault
        assert conducted(study, exchange) == FINISHED
    assert evaluated(study) == [(2, 4, True), (4, 5, True)]
    assert study.folder.read_evaluations()[0].answered == ("s1", "s3", "s4", "s5")
    assert len(held_out_charges(federation, "s2", study.experiment)) == 2  # it had uploaded
    check_sums(federation, study)
    check_charges(federation, study, exchange)


def losing_measures(exchange: Local, times: int, sites: tuple[str, ...] = ("s2", "s3")) -> Any:
    """Lose the measures of two sites, one more than may be missing, in some slots."""
    slots: list[int] = []

    def fault(site: str, message: Question) -> str:
        question = asked_in(message)
        if question is None or question.subject != MEASURES or step_of(message) != wire.UPLOAD:
            return ""
        if question.slot not in slots and len(slots) < times:
            slots.append(question.slot)
        if site in sites and question.slot in slots:
            exchange.since[site] += 1
            return "answer"
        return ""

    return fault


@pytest.mark.parametrize(
    ("evaluations", "times", "expected"),
    [
        (5, 1, [True] * 5),  # the reserve pays for another slot
        (2, 1, [True, True]),  # a few evaluations have one too
        (2, 2, [False, True]),  # it is used up: the model of this round is not evaluated, the last one is
        (5, 3, [False, False, True, True, True]),
        (1, 1, [True]),
        (1, 2, [False]),
    ],
)
def test_a_lost_slot_is_paid_from_the_reserve_and_training_continues(
    tmp_path: Path, evaluations: int, times: int, expected: list[bool]
) -> None:
    federation = summed(tmp_path, evaluations=evaluations, rounds=6)
    with federation.agents() as agents:
        exchange, study = Local(agents), federation.summing()
        exchange.fault = losing_measures(exchange, times)
        assert conducted(study, exchange) == FINISHED
    assert [measured for *_, measured in evaluated(study)] == expected
    assert study.state.round == 6 and study.attempts == 6
    assert len(study.measured) <= study.sums.parameters.evaluations
    check_sums(federation, study)
    check_charges(federation, study, exchange)


def test_measures_that_no_honest_sites_have_are_not_shown(tmp_path: Path) -> None:
    """A site that sends garbage spoils an evaluation; it does not end the study."""
    federation = summed(tmp_path)
    with federation.agents() as agents:
        exchange, study = Local(agents), federation.summing()
        measure = site_session.SiteSession._measure

        def garbage(session: Any, *given: Any) -> Any:
            integers, event = measure(session, *given)
            return (integers + 2**38 if session.site.name == "s4" else integers), event

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(site_session.SiteSession, "_measure", garbage)
            assert conducted(study, exchange) == FINISHED
    assert [measured for *_, measured in evaluated(study)] == [False, False] and study.state.round == 4


def test_too_few_answers_are_asked_for_again_and_then_training_continues(tmp_path: Path) -> None:
    federation = own_noise(tmp_path)
    with federation.agents() as agents:
        exchange, study = Local(agents), federation.coordinator()
        asked = []

        def fault(site: str, message: Question) -> str:
            if not isinstance(message, MeasureRequest):
                return ""
            asked.append((site, message.round))
            lost = site != "north" and (message.round == 2 or asked.count((site, 4)) < 2)
            exchange.since[site] += lost
            return "answer" if lost else ""

        exchange.fault = fault
        assert conducted(study, exchange) == FINISHED
    assert evaluated(study) == [(2, 0, False), (4, 3, True)]
    assert asked.count(("north", 2)) == EVALUATION_TRIES
    check_like_replay(federation, study)
    for site in SITES:
        assert held_out_charges(federation, site, study.experiment) == [2, 4]  # once, however often it was asked


@pytest.mark.parametrize("kind", ["sum", "own"])
def test_an_evaluation_for_which_too_few_sites_are_left_does_not_keep_a_study_open(tmp_path: Path, kind: str) -> None:
    federation = summed(tmp_path, rounds=2) if kind == "sum" else own_noise(tmp_path, rounds=2)
    gone = federation.terms.agents[1:4]  # they are there until the last evaluation, and then never again
    with federation.agents() as agents:
        exchange, study = Local(agents), federation.opened()

        def fault(site: str, message: Question) -> str:
            measures = isinstance(message, MeasureRequest) or subject_of(message) == MEASURES
            ended = study.progress.round == 2 and (measures or isinstance(message, Invitation))
            exchange.since[site] += ended and measures
            return "question" if ended and site in gone else ""

        exchange.fault = fault
        found = conducted(study, exchange, tries=5)
    assert found == (FINISHED if kind == "sum" else WAITING)  # without a secure sum a study ends before a quorum
    assert evaluated(study) == [(1, len(federation.terms.agents), True), (2, 0, False)] and study.is_complete


# ---- what is asked


def invited(federation: Federation, agent: Any) -> None:
    assert not isinstance(invite(agent, federation), Refusal)


def measure_request(federation: Federation, t: int, shift: float = 0.0) -> MeasureRequest:
    return MeasureRequest(EXPERIMENT, t, federation.agreement.zero + 0.01 * t + shift)


def test_a_site_answers_an_evaluation_once_and_no_more_than_are_paid(tmp_path: Path) -> None:
    federation = own_noise(tmp_path)
    with federation.agent("north") as agent:
        invited(federation, agent)
        first = agent.answer(wire.encode(measure_request(federation, 2)))
        assert agent.answer(wire.encode(measure_request(federation, 2))) == first
        assert "this is another one" in refused(agent, measure_request(federation, 2, shift=1.0))
        assert isinstance(ask(agent, measure_request(federation, 4)), MeasureAnswer)
        assert "would exceed the budget" in refused(agent, measure_request(federation, 3))
        assert "no model after round 5" in refused(agent, measure_request(federation, 5))
        assert "no model after round 0" in refused(agent, measure_request(federation, 0))
        zero = federation.agreement.zero
        for w in (zero[:-1], zero.astype(np.float32), zero + np.inf, zero + 1e300):
            assert "w must have shape" in refused(agent, MeasureRequest(EXPERIMENT, 1, w))
        round_one = RoundRequest(EXPERIMENT, 1, dict.fromkeys(SITES, 0), zero)
        assert not isinstance(ask(agent, round_one), Refusal)  # training has a budget of its own
    with federation.agent("north") as agent:  # restarted
        invited(federation, agent)
        assert agent.answer(wire.encode(measure_request(federation, 2))) == first
        assert "this is another one" in refused(agent, measure_request(federation, 2, shift=1.0))
    assert held_out_charges(federation, "north", EXPERIMENT) == [2, 4]
    assert read_transcript(federation.site("north")).faults == []


def test_a_study_without_evaluations_answers_none(tmp_path: Path) -> None:
    study = OWN | dict.fromkeys(MEASURED)
    federation = make_federation(tmp_path, {"study": study}, ACCEPT, epsilon=10.0)
    with federation.agent("north") as agent:
        invited(federation, agent)
        assert "have no evaluations" in refused(agent, measure_request(federation, 2))


def test_a_secure_sum_takes_no_request_for_measures_alone(tmp_path: Path) -> None:
    federation = summed(tmp_path)
    with federation.agent("s1") as agent:
        assert not isinstance(ask(agent, Invitation(EXPERIMENT, federation.terms.digest)), Refusal)
        assert "belongs to another trust model" in refused(agent, measure_request(federation, 2))


def test_slots_of_rounds_and_of_evaluations_are_counted_apart(tmp_path: Path) -> None:
    """A coordinator cannot buy rounds with evaluations, or evaluations with rounds."""
    federation = summed(tmp_path, rounds=2, reserve=0)
    with federation.agents() as agents:
        exchange, study = Local(agents), federation.summing()
        exchange.fault = lambda site, message: "question" if isinstance(message, wire.CloseRequest) else ""
        conducted(study, exchange, tries=3)
        assert study.state.round == 2 and len(study.measured) == 2
        directory = study.epoch.directory
        assert directory is not None
        for subject in (MEASURES, GRADIENT):
            attempt = study._store_attempt(
                2, SUM_SITES, study._begin_epoch(exchange, SUM_SITES, 2) or directory, study.state.w, subject
            )
            for site in SUM_SITES:
                exchange.request(
                    {site: wire.encode(wire.SumRequest(study.experiment, wire.BEGIN, study.epoch.roll))}, 1.0
                )
            data = wire.encode(SumRoundRequest(study.experiment, attempt.question.to_bytes(), attempt.sent))
            reply = wire.decode_reply(exchange.request({"s1": data}, 1.0)["s1"], 1 << 20)
            assert isinstance(reply, Refusal) and "the plan pays for" in reply.reason
    assert len(federation.released("s1", study.experiment)) == 4


def test_the_coordinator_rejects_measures_that_no_site_can_have(tmp_path: Path) -> None:
    federation = own_noise(tmp_path)
    agreement = federation.agreement
    measure = agreement.measure
    assert measure is not None
    size, unit = measure.layout.size, 2 ** measure.bits[0]

    def read(values: Any, t: int = 2, kind: Any = None) -> Any:
        data = np.asarray(values, "<i8").tobytes()
        reply = kind or MeasureAnswer(EXPERIMENT, "north", t, data)
        return read_measures(wire.encode(reply), "north", EXPERIMENT, 2, measure, 20)

    assert read(np.full(size, 20 * unit)).tolist() == [20 * unit] * size
    noise = int(60 * measure.deviation(0, 1))
    for values in (
        np.zeros(size - 1),
        np.zeros(size + 1),
        np.full(size, (20 + noise) * unit),
        np.full(size, -noise * unit),
        np.full(size, np.iinfo(np.int64).min),
    ):
        with pytest.raises(Rejected):
            read(values.astype(np.int64))
    for wrong in (MeasureAnswer(EXPERIMENT, "south", 2, b""), wire.Closed(EXPERIMENT, "north")):
        with pytest.raises(Rejected):
            read([], kind=wrong)
    with pytest.raises(Rejected):
        read(np.zeros(size, np.int64), t=3)


def test_the_release_gate_lets_no_measures_out_that_the_ledger_does_not_have(tmp_path: Path) -> None:
    federation = own_noise(tmp_path)
    with federation.agent("north") as agent:
        invited(federation, agent)
        data = agent.answer(wire.encode(measure_request(federation, 2)))
        gate = ReleaseGate(agent.journal)
        assert isinstance(gate.check(federation.site("north"), data), MeasureAnswer)
        forged = wire.encode(MeasureAnswer(EXPERIMENT, "north", 3, b"\0" * 8))
        with pytest.raises(PrivacyViolation):
            gate.check(federation.site("north"), forged)
        agent.journal.record_departure(EXPERIMENT, "measures", 3, forged)
        with pytest.raises(PrivacyViolation, match="no event in the ledger"):
            gate.check(federation.site("north"), forged)
        assert read_transcript(federation.site("north")).faults == []  # it was kept back
        agent.journal.record_departure(EXPERIMENT, "measures", 3, b"others")
    assert len(read_transcript(federation.site("north")).faults) == 2  # in neither ledger nor journal


def test_noise_that_is_not_the_plans_does_not_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = own_noise(tmp_path)
    from taciturn.algorithms.measure_release import MeasureRelease
    from taciturn.privacy.events import NON_PRIVATE, BatchEvent

    real = MeasureRelease.__call__

    def silent(release: Any, *given: Any) -> Any:
        return real(release, *given)._replace(event=BatchEvent((NON_PRIVATE,), held_out=True))

    with federation.agent("north") as agent:
        invited(federation, agent)
        monkeypatch.setattr(MeasureRelease, "__call__", silent)
        assert "a privacy violation ended this study" in refused(agent, measure_request(federation, 2))
    assert held_out_charges(federation, "north", EXPERIMENT) == []


# ---- crashes

COORDINATOR_PLACES: dict[str, tuple[Any, str]] = {
    "write_attempt": (SumFiles, "write_attempt"),
    "charge": (Coordinator, "_charge_evaluation"),
    "write_masked": (SumFiles, "write_masked"),
    "record": (Coordinator, "_record_evaluation"),
    "add_evaluations": (RunFolder, "add_evaluations"),
    "flushed": (coordinator, "flushed_size"),
    "save": (SumFiles, "save"),
    "answer": (Local, "request"),
}


@pytest.mark.parametrize("place", COORDINATOR_PLACES)
def test_a_coordinator_that_dies_makes_every_evaluation_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    federation = summed(tmp_path, rounds=2)
    owner, attribute = COORDINATOR_PLACES[place]
    real, calls, deaths = getattr(owner, attribute), [0], 0
    period = 23 if place == "answer" else 3

    def dying(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] % period not in (1, 2):
            return real(*args, **kwargs)
        if calls[0] % period == 2:
            real(*args, **kwargs)
        raise Crash

    with federation.agents() as agents:
        exchange = Local(agents)
        federation.summing()
        monkeypatch.setattr(owner, attribute, dying)
        for _ in range(60):
            study = federation.summing()
            try:
                if study.run(exchange) == FINISHED and not study.unclosed_sites:
                    break
            except Crash:
                deaths += 1
    assert deaths >= 2
    assert evaluated(study) == [(1, 5, True), (2, 5, True)]
    assert len(study.measured) == 2 and study.attempts == 2
    check_sums(federation, study)
    check_charges(federation, study, exchange)


SITE_PLACES: dict[str, tuple[Any, str]] = {
    "write_upload": (SumJournal, "write_upload"),
    "write_evaluation": (Journal, "write_evaluation"),
    "departure": (Journal, "record_departure"),
    "charge": (site_session.SiteSession, "_charge"),
    "ledger": (HashChain, "append"),
    "head": (HashChain, "_write_heads"),
    "measure": (site_session.SiteSession, "_measure"),
    "repeated": (Journal, "record_repeatable"),
}


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        *(("sum", place) for place in SITE_PLACES if place != "write_evaluation"),
        *(("own", place) for place in SITE_PLACES if place != "write_upload"),
    ],
)
def test_sites_that_die_while_they_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, kind: str
) -> None:
    """Every site dies once in its first evaluation, before or after a step; no answer is given with other noise."""
    federation = summed(tmp_path, rounds=2) if kind == "sum" else own_noise(tmp_path)
    owner, attribute = SITE_PLACES[place]
    real, died = getattr(owner, attribute), set[str]()
    exchange = Mortal({}, federation=federation)  # type: ignore[arg-type]
    measuring = [False]

    def dying(*args: Any, **kwargs: Any) -> Any:
        site = exchange.answering
        if not measuring[0] or site in died or not site:
            return real(*args, **kwargs)
        died.add(site)
        if len(died) % 2:
            real(*args, **kwargs)
        raise Crash

    def fault(site: str, message: Question) -> str:
        measuring[0] = isinstance(message, MeasureRequest) or subject_of(message) == MEASURES
        return ""

    exchange.fault = fault
    try:
        exchange.agents = {site: exchange.start(site) for site in federation.terms.agents}
        monkeypatch.setattr(owner, attribute, dying)
        study = federation.opened()
        for _ in range(40):
            if study.run(exchange) == FINISHED and not study.unclosed_sites:
                break
    finally:
        for life in exchange.lives.values():
            life.close()
    assert len(died) >= (0 if place == "repeated" else 3)
    assert isinstance(study, SumCoordinator | UploadCoordinator)
    check_like_replay(federation, study)
    assert evaluated(study)[-1][2] and study.folder.finished
    paid = study.schedule.paid
    for site in federation.terms.agents:
        charged = held_out_charges(federation, site, study.experiment)
        assert len(set(charged)) == len(charged) <= paid
        assert read_transcript(federation.site(site)).faults == []


@pytest.mark.parametrize("number", range(2))
def test_random_losses_and_deaths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Messages are lost, and both sides die at random: nothing is charged twice, or shown without a charge."""
    rng = random.Random(number)
    federation = summed(tmp_path, evaluations=3, rounds=3, reserve=60)
    with monkeypatch.context() as patch, mortal(federation) as exchange:

        def unlucky(real: Any, chance: float) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                end = rng.random()
                if end < chance:
                    raise Crash
                found = real(*args, **kwargs)
                if end > 1.0 - chance:
                    raise Crash
                return found

            return call

        def fault(site: str, message: Question) -> str:
            if isinstance(message, wire.CloseRequest):
                return ""
            lost = rng.choice(["question", "answer"]) if rng.random() < 0.02 else ""
            exchange.since[site] += bool(lost)
            return lost

        federation.summing()
        exchange.fault = fault
        for places, chance in ((SITE_PLACES, 0.004), (COORDINATOR_PLACES, 0.01)):
            for owner, attribute in places.values():
                if attribute != "request":
                    patch.setattr(owner, attribute, unlucky(getattr(owner, attribute), chance))
        for _ in range(300):
            try:
                study = federation.summing()
                if study.run(exchange) == FINISHED and not study.unclosed_sites:
                    break
            except Crash:
                continue
    assert study.folder.finished and evaluated(study)[-1][0] == study.state.round
    assert len(study.measured) <= study.sums.parameters.evaluations
    check_sums(federation, study)
    check_charges(federation, study, exchange)


# ---- an evaluation on request


@pytest.mark.parametrize(("kind", "rounds"), [("sum", [1, 3, 6]), ("own", [1, 6])])
def test_one_evaluation_on_request_leaves_the_study_as_it_is(tmp_path: Path, kind: str, rounds: list[int]) -> None:
    """It is the spare one of a secure sum; else it is one of the two that are planned."""
    federation = summed(tmp_path, rounds=6) if kind == "sum" else own_noise(tmp_path, rounds=6)
    with federation.agents() as agents:
        exchange = Local(agents)
        study = federation.opened()
        assert study.run(exchange, stop=lambda: study.progress.round >= 1) == "stopped"
        for _ in range(2):  # the second time there is nothing to do
            study = federation.opened()
            study.evaluate_now = True
            assert study.run(exchange) == EVALUATED
            assert [t for t, *_ in evaluated(study)] == [1] and study.progress.round == 1
        study = federation.opened()
        assert conducted(study, exchange) == FINISHED
    assert [t for t, *_ in evaluated(study)] == rounds
    assert isinstance(study, SumCoordinator | UploadCoordinator)
    check_like_replay(federation, study)


def test_a_pending_round_is_opened_before_an_evaluation_on_request(tmp_path: Path) -> None:
    """A newer slot ends an older one at a site: an evaluation in between would lose the round's charge."""
    federation = summed(tmp_path, rounds=6)
    with federation.agents() as agents:
        exchange, study = Local(agents), federation.summing()
        real = SumCoordinator._advance

        def dying(*args: Any) -> None:
            if study.state.round == 1:
                raise Crash
            real(*args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SumCoordinator, "_advance", dying)
            with pytest.raises(Crash):
                study.run(exchange)
        study = federation.summing()
        study.evaluate_now = True
        assert study.run(exchange) == EVALUATED
    assert evaluated(study) == [(2, 5, True)] and study.attempts == 2 == study.state.round


# ---- terms


@pytest.mark.parametrize(
    ("study", "said"),
    [
        ({"evaluations": 0}, "evaluations is 0"),
        ({"test_share": None}, "partition_key is for a published data set"),
        ({"test_share": None, "partition_key": None}, "no records are held out"),
        ({"evaluation_epsilon": 2.0}, "must be at most total-epsilon"),
        ({"test_share": 1.0}, "test-share is 1"),
    ],
)
def test_terms_refuse_what_cannot_be(tmp_path: Path, study: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        derive_agreement(own_noise(tmp_path, **study).terms)


def test_the_split_and_the_evaluations_are_in_the_hash_of_the_terms(tmp_path: Path) -> None:
    changes: list[Mapping[str, Any]] = [
        {},
        {"test_share": 0.3},
        {"partition_key": 4},
        {"evaluations": 3},
        {"evaluation_epsilon": 0.5},
    ]
    digests = []
    for number, change in enumerate(changes):
        federation = own_noise(tmp_path / str(number), **change)
        digests.append(read_terms(federation.root / "federation.toml").digest)
    assert len(set(digests)) == len(changes)


def test_a_site_charges_another_split_in_full(tmp_path: Path) -> None:
    """Its budget ledger has held out other records before."""
    federation = own_noise(tmp_path)
    account = federation.account("north")
    plan = federation.agreement.study_plan
    account.reserve("earlier", plan.cost, held_out=plan.held_out_cost, split="another")
    with federation.agent("north") as agent:
        invited(federation, agent)
    entry = account.state().studies[-1]
    assert not entry.apart and entry.cost == entry.held_out
    assert entry.cost.gdp == pytest.approx(plan.cost.gdp + plan.held_out_cost.gdp)
