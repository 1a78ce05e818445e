"""Step sizes, plans and ledger entries of methods with other noise than on gradients."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import taciturn
from taciturn.algorithms import ALGORITHMS, base
from taciturn.algorithms.hidden_updates import largest_eta
from taciturn.algorithms.iadmm import DpIadmm
from taciturn.algorithms.schedules import ExactStep
from taciturn.cli.plan_command import NOISE_ON as ON_THE_TERMINAL
from taciturn.errors import InputError, PrivacyViolation
from taciturn.planning import heuristics, noise_plan, plan, tradeoffs
from taciturn.planning.dry_run import dry_run_report
from taciturn.planning.plan import StudyPlan, facts_for, plan_study
from taciturn.planning.step_sizes import DETERMINANT_SHARE, OUTPUT_CONVEXITY, STEP_RULES
from taciturn.planning.study import batches
from taciturn.planning.tradeoffs import plan_facts, plan_report, planned_settings
from taciturn.privacy.events import Objective, Sampled
from taciturn.reporting import statements as guarantee
from taciturn.reporting.figures.run_figure import figure
from taciturn.reporting.narrative import result_sentences
from taciturn.reporting.tables import rounds_done
from taciturn.settings import resolve
from taciturn.training.central import CURATOR, dataset_for
from taciturn.training.process_group import SingleProcess
from taciturn.training.setup import prepare, select_own_agents

CLINICS: dict[str, Any] = {
    "data": "tests/data/clinics/records.csv", "schema": "tests/data/clinics/schema.toml",
    "total_records": 600, "agents": 3,
    "noise": "seeded",
}  # fmt: skip
CERTIFIED = [name for name in ALGORITHMS if ALGORITHMS[name].noisy and "certified" in ALGORITHMS[name].modes]


def planned(name: str, **changes: Any) -> StudyPlan:
    return plan_study(resolve(CLINICS | {"algorithm": name} | changes))


@pytest.mark.parametrize("epsilon", [0.2, 3.0])
@pytest.mark.parametrize("name", [name for name in CERTIFIED if ALGORITHMS[name].requires_contraction])
def test_steps_that_must_contract_do(name: str, epsilon: float) -> None:
    made = planned(name, total_epsilon=epsilon)
    largest = largest_eta(name, made.problem, float(made.settings.record_bound), made.facts.largest)
    etas = [float(made.parts[0].eta(t)[0, 0]) for t in range(1, int(made.settings.rounds) + 1)]
    assert 0.0 < max(etas) <= largest


@pytest.mark.parametrize("name", ["admm-objp", "erm-objp"])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_determinants_take_a_small_share_of_the_budget(name: str, epsilon: float) -> None:
    made = planned(name, total_epsilon=epsilon)
    events = made.parts[0].plans[0].events
    spent = sum(count * event.determinant for event, count in events.items() if isinstance(event, Objective))
    assert 0.0 < spent <= DETERMINANT_SHARE * epsilon * (1.0 + 1e-9)


@pytest.mark.parametrize(
    ("changes", "records"),
    [({}, 1), ({"adjacency": "replace-one"}, 2)],
)
def test_neighbours_that_differ_in_more_records_have_wider_objectives(changes: dict[str, Any], records: int) -> None:
    made = planned("admm-objp", total_epsilon=2, **changes)
    event = next(event for event in made.parts[0].plans[0].events if isinstance(event, Objective))
    assert event.outputs == made.facts.outputs * records
    bound = made.problem.loss.residual_bound * float(made.settings.record_bound) / 600
    assert event.l2 == pytest.approx(records * bound)
    rho = float(made.parts[0].algorithm.rho(1)[0, 0])
    trace = float(made.settings.record_bound) ** 2 / 600
    assert event.determinant == pytest.approx(trace / (rho + made.problem.strong_convexity))  # of the one that is added


def test_the_dual_of_ceadmm_keeps_pace_with_z() -> None:
    made = planned("ceadmm", rounds=20).parts[0]
    for t in (1, 10, 20):
        assert float(made.algorithm.rho(t)[0, 0] * made.eta(t)[0, 0]) == pytest.approx(1.0)


def test_noise_on_a_solution_takes_more_convexity_than_noise_within() -> None:
    """At a budget where determinants do not matter."""
    inside, outside = (planned(name, total_epsilon=1000) for name in ("erm-objp", "erm-outp"))
    ratio = outside.parts[0].algorithm.rho(1)[0, 0] / inside.parts[0].algorithm.rho(1)[0, 0]
    assert float(ratio) == pytest.approx(OUTPUT_CONVEXITY, rel=1e-6)


def test_a_solution_may_go_any_way_that_its_noise_allows() -> None:
    """Gradient steps have a largest one; a curator's convexity keeps falling with the budget."""
    found = [float(planned("erm-outp", total_epsilon=e).parts[0].algorithm.rho(1)[0, 0]) for e in (10.0, 100.0, 1000.0)]
    assert found == sorted(found, reverse=True) and len(set(found)) == 3


def test_a_curator_has_one_round_and_the_ledger_charges_every_agent(tmp_path: Path) -> None:
    run = taciturn.run(
        **CLINICS, algorithm="erm-outp,objp", rounds=4, test_share=0.25, averages=True, out=str(tmp_path / "r")
    )
    central, own = run.runs
    methods = run.folder.read_header().method_facts
    assert (central["rounds"], own["rounds"], rounds_done(run.runs, methods), rounds_done([central], methods)) == (
        1,
        4,
        4,
        None,
    )
    spent: Counter[tuple[int, str]] = Counter()
    for entry in run.folder.read_ledger():
        if entry["kind"] == "release":
            spent[entry["run"], entry["agent"]] += entry["count"]
    names = run.folder.read_start(local=False)["data"]["agents"]
    assert spent == {(run_, name): rounds for name in names for run_, rounds in ((0, 1), (1, 4))}
    totals = run.summary["privacy"]["runs"]
    assert [one["spent_epsilon"] for one in totals] == pytest.approx([1.0, 1.0], rel=1e-5)
    w = run.folder.read_model()["w"][0]
    assert (central["bytes_up"], central["bytes_down"]) == (600 * 8 * sum(w.shape), w.nbytes)  # as declared
    averages = np.load(run.folder.averages)
    assert (
        averages["z_smooth"].shape == (2, 3, *w.shape) and (averages["z_smooth"][0] == averages["z_smooth"][0][0]).all()
    )
    assert "gradient units (erm-outp: parameter units)" in [axes.get_ylabel() for axes in figure([run.folder]).axes]
    assert "2 models together without showing each other a record" in result_sentences(run.summary)[0]
    assert (
        "one model together by giving all records to one curator"
        in result_sentences(replace(run.summary, runs=(central,)))[0]
    )
    with pytest.raises(InputError, match="erm-outp is a central reference: no agent sends anything but its records"):
        run.sent()


def test_a_curators_records_are_all_records_in_the_agents_order() -> None:
    study = prepare(resolve(CLINICS | {"algorithm": "erm-outp"}))
    pooled = dataset_for(study, study.parts[0])
    assert pooled.agents == (CURATOR,) and len(pooled.train) == 1
    assert len(pooled.train[0].x) == study.dataset.records
    assert (pooled.train[0].x[: len(study.dataset.train[0].x)] == study.dataset.train[0].x).all()
    assert select_own_agents(study, SingleProcess()) is study


class Two(SingleProcess):
    """A process group of two, as far as partitioning is concerned."""

    def partition(self, agents: int) -> list[range]:
        return [range(1), range(1, agents)]


def test_the_records_of_a_curator_cannot_be_divided_among_processes() -> None:
    with pytest.raises(InputError, match="erm-objp: a central reference has all records in one place"):
        prepare(resolve(CLINICS | {"algorithm": "erm-objp", "server": "sums"}), Two())


def test_plans_say_what_is_sent_and_what_noise_a_step_has() -> None:
    one, two = (
        plan_report(resolve(CLINICS | {"algorithm": name, "rounds": 10, "local_updates": 3}))
        for name in ("objpm", "ceadmm")
    )
    sent = [{(p.rounds, p.local_updates): p.bytes_up for p in view.rounds_options} for view in (one, two)]
    assert sent[1][10, 3] == 2 * sent[0][10, 3]
    alone, both = (dry_run_report(resolve(CLINICS | {"algorithm": names})) for names in ("objp", "objp,ceadmm"))
    assert both.bytes_up == 2 * alone.bytes_up > 0
    sampled = plan_report(
        resolve(CLINICS | {"algorithm": "dpsgd", "rounds": 10, "sampling_rate": 0.25, "noise_multiplier": 8.0})
    )
    event = sampled.part.plans[0].event
    assert isinstance(event, Sampled) and event.rate == 0.25
    assert plan_facts(sampled)["noise"]["std"] == pytest.approx(event.scale / 0.25)
    assert not sampled.rounds_options
    curator, agents = (plan_report(resolve(CLINICS | {"algorithm": name})) for name in ("erm-objp", "admm-objp"))
    assert curator.proposal.noise_to_signal < agents.proposal.noise_to_signal


def test_every_name_in_a_registration_is_known_to_its_readers() -> None:
    assert {ALGORITHMS[name].step_kind for name in ALGORITHMS} == set(STEP_RULES)
    assert set(guarantee.NOISE_ON) == set(ON_THE_TERMINAL) == set(base.NOISE_ON)


def test_the_steps_of_a_curator_do_not_depend_on_the_other_methods() -> None:
    alone, beside = planned("erm-objp").parts[0], planned("erm-objp,objp", rounds=50).parts[0]
    assert float(beside.algorithm.rho(1)[0, 0]) == float(alone.algorithm.rho(1)[0, 0])


def test_a_curator_may_have_what_all_agents_may_have() -> None:
    facts = planned("objp", records_max={"north": 300, "south": 200, "west": 150}).facts
    assert facts_for(facts, "erm-objp", "add-remove").largest == 650
    assert facts_for(facts, "objp", "add-remove") is facts
    assert facts_for(facts._replace(records_max=250), "erm-objp", "add-remove").largest == 750


def test_a_method_with_samples_has_a_run_for_every_seed() -> None:
    def runs(**changes: Any) -> list[int]:
        settings = resolve(CLINICS | {"algorithm": "fedavg", "total_epsilon": "inf", "seeds": 3} | changes)
        return list(batches(settings)[0].seeds)

    assert runs() == [1] and runs(sampling_rate=0.5) == [1, 2, 3]


def test_refusals_and_allowances_of_plans() -> None:
    with pytest.raises(InputError, match="a plan is for one algorithm, and there are 2"):
        plan_report(resolve(CLINICS | {"algorithm": "objp,objpm"}))
    without_noise = planned("dp-fedavg", precision="float32", total_epsilon="inf")
    assert without_noise.parts[0].plans[0].multiplier == 0.0
    assert dry_run_report(resolve(CLINICS | {"algorithm": "erm-objp"})).bytes_up == 0


def test_what_is_sent_without_an_event_stops_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    step = DpIadmm.agent_step
    monkeypatch.setattr(DpIadmm, "agent_step", lambda *args: step(*args)._replace(events=()))
    with pytest.raises(PrivacyViolation, match="objp sent something in round 1 without an event"):
        taciturn.run(**CLINICS, algorithm="objp", rounds=2, out=str(tmp_path / "r"))


@pytest.mark.parametrize("name", CERTIFIED)
def test_a_stored_plan_gives_the_same_plan(name: str) -> None:
    """Every method's config, resolved again, has the same steps and the same events."""
    fixed = {"noise_multiplier": 3.0} if name == "dpsgd" else {}  # which takes long to calibrate
    view = plan_report(resolve(CLINICS | {"algorithm": name, "rounds": 6} | fixed))
    again = plan_study(resolve(planned_settings(view, CLINICS | fixed)))
    part, other = view.part, again.parts[0]
    assert other.plans[0].events == part.plans[0].events
    for t in (1, 3, 6):
        assert float(other.algorithm.rho(t)[0, 0]) == pytest.approx(float(part.algorithm.rho(t)[0, 0]), rel=1e-12)
        if not issubclass(ALGORITHMS[name].step_kind, ExactStep):
            assert float(other.eta(t)[0, 0]) == pytest.approx(float(part.eta(t)[0, 0]), rel=1e-12)


@pytest.mark.parametrize("changes", [{}, {"rounds": 20}, {"algorithm": "hidden"}, {"rho": 1.0, "eta": 1.0}])
def test_a_plan_does_each_thing_once(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch with one budget: one check, one proposal, one calibration for its steps and one for its noise."""
    calls: Counter[str] = Counter()
    heuristics._release_scale.cache_clear()

    def count(module: ModuleType, name: str) -> None:
        real = getattr(module, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            calls[f"{module.__name__.rpartition('.')[2]}.{name}"] += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(module, name, counted)

    for module, name in (
        (plan, "propose"), (tradeoffs, "propose"), (plan, "check_guarantee"), (plan, "check_contraction"),
        (plan, "calibrate_noise"), (noise_plan, "calibrate"), (heuristics, "calibrate"),
    ):  # fmt: skip
        count(module, name)
    plan_study(resolve(CLINICS | {"total_epsilon": 1.7} | changes))
    assert set(calls.values()) == {1}
    calls.clear()
    heuristics._release_scale.cache_clear()
    plan_report(resolve(CLINICS | {"total_epsilon": 1.7} | changes))
    assert calls["plan.propose"] + calls["tradeoffs.propose"] == 1
    assert calls["plan.check_guarantee"] == calls["plan.calibrate_noise"] == calls["noise_plan.calibrate"] == 1
    assert calls["heuristics.calibrate"] == 1 + len(set(tradeoffs.BUDGETS) - {1.7})  # and one for each other budget
