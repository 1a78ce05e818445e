"""Whole studies with a secure sum: they equal the simulation bit for bit, whatever is lost on the way."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taciturn.errors import BudgetExhausted
from taciturn.federation import coordinator, sum_coordinator, sum_session
from taciturn.federation import messages as wire
from taciturn.federation.coordinator import FINISHED, WAITING, site_events_path
from taciturn.federation.messages import CloseRequest, Question
from taciturn.federation.run_folder import read_rounds
from taciturn.federation.sum_coordinator import SumCoordinator
from taciturn.federation.sum_terms import describe_noise
from taciturn.objectives.private_measures import MeasureLayout
from taciturn.planning.plan import plan_from_facts
from taciturn.privacy.events import Discrete, Event
from taciturn.runs.folder import read_lines
from taciturn.secure_sum import parameters
from taciturn.secure_sum.epoch_messages import EpochRequest
from tests.federation.helpers import Local, conducted, participation
from tests.federation.sum_helpers import (
    SUM_SITES,
    Gated,
    Losses,
    SumFederation,
    charged_slots,
    check_charges,
    check_sums,
    losing,
    make_sums,
    refusals,
    replies_of,
    slots_asked,
    step_of,
)

SEVEN = ("s1", "s2", "s3", "s4", "s5", "s6", "s7")


def seven_sites(root: Path) -> SumFederation:
    """Seven sites, of which two may be missing: tau is 5."""
    return make_sums(root, {"study": {"missing": 2}}, names=SEVEN, rows=8)


def played(federation: SumFederation, losses: Losses | None = None) -> tuple[SumCoordinator, Local]:
    """Run a study in which messages are lost, and check what holds of every study."""
    with federation.agents() as agents:
        exchange, study = Gated(agents), federation.summing()
        exchange.fault = losing(exchange, losses or {})
        assert conducted(study, exchange) == FINISHED
    check_sums(federation, study)
    check_charges(federation, study, exchange)
    assert refusals(exchange) == [] and not losses
    return study, exchange


def answered_by(study: SumCoordinator) -> list[list[str]]:
    """Return the sites that are missing in each round."""
    return [line.missing for line in read_rounds(study.folder)]


def events(study: SumCoordinator, kind: str) -> list[dict[str, Any]]:
    return [line for line in read_lines(site_events_path(study.folder)) if line["event"] == kind]


def test_a_study_equals_its_simulation(tmp_path: Path) -> None:
    federation = make_sums(tmp_path)
    study, exchange = played(federation)
    assert participation(study.folder) == [list(SUM_SITES)] * 4
    assert slots_asked(exchange) == ["0/0", "0/1", "0/2", "0/3"]
    boxes = [receivers for message, receivers in exchange.asked if step_of(message) == wire.KEEP]
    assert boxes == [(site,) for site in SUM_SITES]  # each site gets a question of its own
    for site in SUM_SITES:
        assert charged_slots(federation, site, study.experiment) == slots_asked(exchange)
        assert replies_of(exchange, site, wire.AGREE) == []  # nobody is missing, so nothing is signed


METHODS: list[dict[str, Any]] = [
    {"algorithm": "dpgd", "precision": "float32"},
    {"algorithm": "objw", "precision": "float64"},
    {"algorithm": "objw", "precision": "float32"},
    {"algorithm": "additive", "features": "bins", "precision": "float64", "rounds": 5},
    {"algorithm": "additive", "features": "bins", "precision": "float32", "rounds": 5},
]


@pytest.mark.parametrize("settings", METHODS, ids=lambda one: f"{one['algorithm']}-{one['precision']}")
def test_every_method_that_can_be_summed(tmp_path: Path, settings: dict[str, Any]) -> None:
    losses: Losses = {("s2", wire.UPLOAD, 1): "question", ("s3", wire.UPLOAD, 2): "answer"}
    study, _ = played(make_sums(tmp_path, {"study": settings}), losses)
    assert answered_by(study)[:3] == [["s2"], ["s3"], []]


def test_a_site_that_is_lost_before_its_upload_is_back_in_the_next_round(tmp_path: Path) -> None:
    federation = make_sums(tmp_path)
    study, exchange = played(federation, {("s2", wire.UPLOAD, 2): "question"})
    assert answered_by(study) == [[], ["s2"], [], []]
    assert charged_slots(federation, "s2", study.experiment) == ["0/0", "0/2", "0/3"]
    assert [len(replies_of(exchange, site, wire.AGREE)) for site in SUM_SITES] == [1, 0, 1, 1, 1]


def test_an_upload_that_never_arrives_is_charged_and_is_not_in_the_sum(tmp_path: Path) -> None:
    federation = make_sums(tmp_path)
    study, _ = played(federation, {("s2", wire.UPLOAD, 2): "answer"})
    assert answered_by(study) == [[], ["s2"], [], []]
    assert charged_slots(federation, "s2", study.experiment) == ["0/0", "0/1", "0/2", "0/3"]


@pytest.mark.parametrize("lost", ["question", "answer"])
def test_a_site_that_is_lost_between_upload_and_shares_is_in_the_sum(tmp_path: Path, lost: str) -> None:
    study, exchange = played(make_sums(tmp_path), {("s1", wire.REVEAL, 2): lost})
    assert answered_by(study) == [[]] * 4 and slots_asked(exchange) == ["0/0", "0/1", "0/2", "0/3"]


@pytest.mark.parametrize("later", [wire.AGREE, wire.REVEAL])
@pytest.mark.parametrize("lost", ["question", "answer"])
def test_both_in_one_round(tmp_path: Path, later: str, lost: str) -> None:
    losses: Losses = {("s6", wire.UPLOAD, 2): "question", ("s1", later, 2): lost}
    study, exchange = played(seven_sites(tmp_path), losses)
    assert answered_by(study) == [[], ["s6"], [], []]
    assert slots_asked(exchange) == ["0/0", "0/1", "0/2", "0/3"]


def test_below_the_quorum_nothing_is_signed_or_opened_and_the_next_attempt_has_other_noise(tmp_path: Path) -> None:
    federation = make_sums(tmp_path)
    study, exchange = played(federation, {("s2", wire.UPLOAD, 2): "question", ("s4", wire.UPLOAD, 2): "answer"})
    assert answered_by(study) == [[]] * 4
    assert slots_asked(exchange) == ["0/0", "0/1", "0/2", "0/3", "0/4"]
    assert [line.slot for line in read_rounds(study.folder)] == ["0/0", "0/2", "0/3", "0/4"]
    (lost,) = events(study, "slot lost")
    assert (lost["round"], lost["slot"]) == (2, "0/1")
    for site in SUM_SITES:
        asked = [f"0/{slot}" for slot in range(5) if (site, slot) != ("s2", 1)]
        assert charged_slots(federation, site, study.experiment) == asked
        assert replies_of(exchange, site, wire.AGREE) == []
        assert len(replies_of(exchange, site, wire.REVEAL)) <= 4
    for data in replies_of(exchange, "s1", wire.REVEAL):
        assert b'"slot":1}' not in data


def test_too_few_for_the_shares_lose_the_slot(tmp_path: Path) -> None:
    losses: Losses = {("s2", wire.UPLOAD, 2): "question", ("s3", wire.REVEAL, 2): "answer"}  # tau is 4 of 5
    study, exchange = played(make_sums(tmp_path), losses)
    assert [line["slot"] for line in events(study, "slot lost")] == ["0/1"]
    assert slots_asked(exchange) == ["0/0", "0/1", "0/2", "0/3", "0/4"]


def test_too_few_for_the_signatures_lose_the_slot(tmp_path: Path) -> None:
    losses: Losses = {("s2", wire.UPLOAD, 2): "question", ("s3", wire.AGREE, 2): "answer"}
    study, exchange = played(make_sums(tmp_path), losses)
    assert [line["slot"] for line in events(study, "slot lost")] == ["0/1"]
    assert [len(replies_of(exchange, site, wire.REVEAL)) for site in SUM_SITES] == [4, 4, 4, 4, 4]


def never_after(round_number: int) -> Any:
    """Lose the uploads of two sites from a round on."""

    def fault(site: str, message: Question) -> str:
        if step_of(message) != wire.UPLOAD or site not in ("s2", "s4"):
            return ""
        exchange.since[site] += 1
        return "answer" if study.state.round + 1 >= round_number else ""

    exchange: Local
    study: SumCoordinator

    def bind(made: Local, begun: SumCoordinator) -> None:
        nonlocal exchange, study
        exchange, study = made, begun
        made.fault = fault

    return bind


def test_a_study_whose_reserve_is_used_up_ends_with_the_model_it_has(tmp_path: Path) -> None:
    federation = make_sums(tmp_path)
    with federation.agents() as agents:
        exchange, study = Local(agents), federation.summing()
        never_after(3)(exchange, study)
        assert conducted(study, exchange) == FINISHED
    assert study.state.round == 2 and study.attempts == study.sums.parameters.charges == 7
    check_sums(federation, study)
    check_charges(federation, study, exchange)
    model = study.folder.read_model()["w"]
    for site in SUM_SITES:
        assert len(charged_slots(federation, site, study.experiment)) == 7
        assert federation.folder(site, study.experiment).read_model()["w"].tobytes() == model.tobytes()
        assert federation.account(site).state().studies[0].state == "settled"


def test_a_study_without_any_sum_is_an_error_that_names_the_way_out(tmp_path: Path) -> None:
    federation = make_sums(tmp_path)
    with federation.agents() as agents:
        exchange, study = Local(agents), federation.summing()
        never_after(1)(exchange, study)
        with pytest.raises(BudgetExhausted, match=r"7 slots were lost before the first sum.*agree on a new study"):
            conducted(study, exchange)
    assert federation.summing().pending is None  # what is lost is not asked for again after a restart
    check_charges(federation, study, exchange)


def test_an_epoch_that_runs_out_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters, "EPOCH_SLOTS", 2)
    study, exchange = played(make_sums(tmp_path), {("s5", wire.UPLOAD, 2): "question"})
    assert slots_asked(exchange) == ["0/0", "0/1", "1/0", "1/1"]
    assert [line["sites"] for line in events(study, "epoch")] == [list(SUM_SITES)] * 2


@pytest.mark.parametrize("step", [wire.ANNOUNCE, wire.DEAL, wire.KEEP, wire.BEGIN])
@pytest.mark.parametrize("lost", ["question", "answer"])
def test_a_site_that_is_lost_while_keys_are_made_is_in_the_next_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, lost: str
) -> None:
    monkeypatch.setattr(coordinator, "BACKOFF_SECONDS", 0.0)
    monkeypatch.setattr(sum_coordinator, "JOIN_SLOTS", 1)
    study, exchange = played(make_sums(tmp_path), {("s3", step, 0): lost})
    epochs = [line["sites"] for line in events(study, "epoch")]
    four = [site for site in SUM_SITES if site != "s3"]
    if step == wire.BEGIN:  # the cohort has it: it is only told later
        assert epochs == [list(SUM_SITES)] and slots_asked(exchange) == ["0/0", "0/1", "0/2", "0/3"]
    else:
        assert epochs == [four, list(SUM_SITES)] and len(slots_asked(exchange)) == 4
    assert answered_by(study) == [["s3"], [], [], []]


def test_one_site_that_fails_in_every_epoch_does_not_use_up_the_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It connects again in every round, and is silent at the last step of an epoch; the study ends without it."""
    monkeypatch.setattr(sum_session, "SPARE_EPOCHS", 0)
    monkeypatch.setattr(sum_coordinator, "SPARE_EPOCHS", 0)
    federation = make_sums(tmp_path, {"study": {"rounds": 20}}, rows=4)
    with federation.agents() as agents:
        exchange, study = Local(agents), federation.summing()

        def flapping(site: str, message: Question) -> str:
            if step_of(message) == wire.UPLOAD:
                exchange.since["s5"] += 1
            return "question" if (site, step_of(message)) == ("s5", wire.KEEP) else ""

        exchange.fault = flapping
        assert study.run(exchange) == FINISHED
        assert study.epoch.number == 1  # it is held back for a while
    assert study.state.round == 20 and answered_by(study) == [["s5"]] * 20


def test_a_site_that_comes_again_and_again_costs_few_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, without a pause between its attempts, as in a study of slow rounds."""
    monkeypatch.setattr(coordinator, "BACKOFF_SECONDS", 0.0)
    federation = make_sums(tmp_path, {"study": {"rounds": 20}}, rows=4)
    with federation.agents() as agents:
        exchange, study = Local(agents), federation.summing()

        def flapping(site: str, message: Question) -> str:
            if (site, step_of(message)) != ("s5", wire.KEEP):
                return ""
            exchange.since["s5"] += 1
            return "question"

        exchange.fault = flapping
        assert study.run(exchange) == FINISHED
    assert study.state.round == 20
    assert study.epoch.number <= 2 * (1 + 20 // sum_coordinator.JOIN_SLOTS)
    assert {line["sites"][-1] for line in events(study, "epoch")} == {"s4"}


def test_newcomers_wait_while_many_epochs_have_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the spare epochs are kept for when the next one is needed."""
    monkeypatch.setattr(sum_coordinator, "JOIN_SLOTS", 0)
    federation = make_sums(tmp_path, rows=4)
    with federation.agents() as agents:
        exchange, study = Local({site: agents[site] for site in SUM_SITES[:4]}), federation.summing()
        assert study.run(exchange, lambda: study.state.round == 2) == "stopped"
        directory = study.epoch.directory
        assert directory is not None and not study._has_room(directory, SUM_SITES)
        for number, room in ((23, False), (24, True), (60, True)):
            study.epoch = study.epoch._replace(number=number)
            assert study._has_room(directory, SUM_SITES) is room
            assert study._has_room(directory, SUM_SITES[1:]) is False  # three of the cohort are too few


def test_a_site_that_comes_later_joins_the_next_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sum_coordinator, "JOIN_SLOTS", 4)
    federation = make_sums(tmp_path, {"study": {"rounds": 5}})
    with federation.agents() as agents:
        exchange, study = Local({site: agents[site] for site in SUM_SITES[:4]}), federation.summing()

        def joining(site: str, message: Question) -> str:
            if study.state.round == 2:
                exchange.agents = agents
            return ""

        exchange.fault = joining
        assert conducted(study, exchange) == FINISHED
    check_sums(federation, study)
    check_charges(federation, study, exchange)
    assert answered_by(study) == [["s5"]] * 4 + [[]]
    assert [line["sites"] for line in events(study, "epoch")] == [list(SUM_SITES[:4]), list(SUM_SITES)]
    assert slots_asked(exchange) == ["0/0", "0/1", "0/2", "0/3", "1/0"]


def test_with_fewer_sites_than_the_quorum_it_waits(tmp_path: Path) -> None:
    federation = make_sums(tmp_path)
    with federation.agents() as agents:
        study = federation.summing()
        assert study.run(Local({site: agents[site] for site in SUM_SITES[:3]})) == WAITING
        assert study.attempts == 0 and study.epoch.number == -1
        assert study.run(Local(agents)) == FINISHED
    check_sums(federation, study)


def test_a_study_with_hardened_noise(tmp_path: Path) -> None:
    federation = make_sums(tmp_path)
    with federation.agents(None) as agents:
        exchange, study = Local(agents), federation.summing()
        losses: Losses = {("s2", wire.UPLOAD, 2): "answer", ("s1", wire.REVEAL, 3): "question"}
        exchange.fault = losing(exchange, losses)
        assert conducted(study, exchange) == FINISHED
    check_charges(federation, study, exchange)
    assert study.folder.read_ledger().non_private is None
    closes = [message for message, _ in exchange.asked if isinstance(message, CloseRequest)]
    assert closes[-1].w.tobytes() == study.state.w.tobytes()


def test_a_study_without_a_site_that_was_left_out(tmp_path: Path) -> None:
    """The coordinator leaves a site out while a slot is open: the others open it without that site's shares."""
    federation = make_sums(tmp_path)
    with federation.agents() as agents:
        exchange, study = Local(agents), federation.summing()
        assert study.run(exchange, lambda: study.state.round == 2) == "stopped"
        study = federation.summing(("s5",))
        exchange.agents = {site: agents[site] for site in SUM_SITES[:4]}
        assert conducted(study, exchange) == FINISHED
    check_sums(federation, study)
    check_charges(federation, study, exchange)
    assert participation(study.folder)[2:] == [list(SUM_SITES[:4])] * 2


@pytest.mark.parametrize("said", [True, False])
def test_a_site_that_plans_other_noise_from_the_same_terms_is_in_no_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bool
) -> None:
    """As another release may: the others would rely on a share of noise that is too small."""
    federation = make_sums(tmp_path, {"study": {"rounds": 2}}, rows=4)
    if not said:  # the coordinator does not say what it plans, and what the site signs is for nobody
        monkeypatch.setattr(sum_coordinator, "EpochRequest", lambda epoch, slots, study: EpochRequest(epoch, slots))
    with federation.agents() as agents:
        loader = agents["s5"].loader
        agreement = loader.agreement(federation.site("s5"))
        settings = replace(agreement.terms.settings, total_epsilon=(3.0001,))
        loader._agreement = other = replace(agreement, study_plan=plan_from_facts(settings, agreement.facts))
        assert other.terms.digest == agreement.terms.digest and other.sum_parameters == agreement.sum_parameters
        exchange, study = Local(agents), federation.summing()
        assert study.run(exchange) == FINISHED
    assert answered_by(study) == [["s5"]] * 2
    (line,) = events(study, "refused" if said else "rejected")
    why = "they run different versions of Taciturn" if said else "announcement of site 5 is not signed by the identity"
    assert line["site"] == "s5" and why in line["reason"]


def test_noise_has_the_same_description_on_machines_whose_logarithms_differ_in_the_last_bit(tmp_path: Path) -> None:
    agreement = make_sums(tmp_path, only=("s1",)).agreement
    said = describe_noise(agreement, "")

    def with_scale(factor: float) -> str:
        plan = agreement.plan
        moved: Counter[Event] = Counter()
        for event, count in plan.events.items():
            assert isinstance(event, Discrete)
            moved[replace(event, scale=event.scale * factor)] += count
        part = agreement.part._replace(plans=(replace(plan, events=moved),))
        return describe_noise(replace(agreement, study_plan=agreement.study_plan._replace(parts=[part])), "")

    assert with_scale(1.0) == with_scale(1.0 + 2**-52) == said != with_scale(1.0 + 1e-7)
    for word in ("sigma", "l2", "coordinates", "share", "bits", "unit"):
        assert f'"{word}":' in said


def test_measures_are_described_with_the_noise(tmp_path: Path) -> None:
    study = {"evaluations": 1, "test_share": 0.5, "rounds": 3}
    agreement = make_sums(tmp_path, {"study": study}, only=("s1",)).agreement
    part, measure = agreement.part, agreement.measure
    assert measure is not None

    def with_measure(**changes: Any) -> str:
        plan = agreement.study_plan._replace(parts=[part._replace(measure=replace(measure, **changes))])
        return describe_noise(replace(agreement, study_plan=plan), "")

    said = with_measure()
    assert said == describe_noise(agreement, "") and said != describe_noise(agreement, "seeded")
    others = {"bits": (measure.bits[0] - 1,), "share": 0.9 * measure.share, "layout": MeasureLayout(3, True)}
    assert all(with_measure(**{name: value}) != said for name, value in others.items())
