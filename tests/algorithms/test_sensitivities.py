"""The effect of one unit never exceeds its accounted sensitivity: random neighbours, complete steps, whole studies."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from taciturn.algorithms import ALGORITHMS, Agent, AlgorithmConfig
from taciturn.algorithms.fedavg import training_sensitivity
from taciturn.algorithms.hidden_updates import largest_eta
from taciturn.algorithms.noisy_gradient import CertifiedGradient
from taciturn.algorithms.schedules import Constant
from taciturn.algorithms.subproblem import Solver, Subproblem, scale_records
from taciturn.audit.games import FACTS
from taciturn.audit.scores import RecordingNoise
from taciturn.errors import InputError
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.objectives.clipping import MAX_SINGLE, Clipping, GradientClipping, RecordScaling
from taciturn.planning.noise_plan import hessian_trace
from taciturn.planning.plan import StudyPlan, load_data, plan_study
from taciturn.privacy.accountants import tightest
from taciturn.privacy.events import Event, Noise, Sampled
from taciturn.privacy.mechanisms import Calibrated, OutputNoise
from taciturn.privacy.sensitivity import ADJACENCIES, gradient_sensitivity
from taciturn.settings import Settings, resolve
from taciturn.training.central import charge_all_agents, dataset_for
from taciturn.training.loop import training_rounds
from taciturn.training.simulate import start
from taciturn.types import Array, Shard

J, K, RECORDS = 3, 3, 20
ONE = np.ones(1)
seeds = given(seed=st.integers(0, 2**32 - 1))
often, seldom = settings(max_examples=60, deadline=None), settings(max_examples=40, deadline=None)


class Neighbours(NamedTuple):
    """Two data sets that differ in one unit of n records, and their declared bounds."""

    shards: tuple[Shard, Shard]
    adjacency: str
    unit: int  # n
    bound: float  # on ||x||_2; some records are longer

    @property
    def largest(self) -> int:
        return max(len(shard.x) for shard in self.shards)

    def sensitivity(self, length: float) -> float:
        return gradient_sensitivity(math.inf, length, RECORDS, self.adjacency, self.unit).l2


def neighbours(rng: Generator, adjacency: str = "", unit: int = 0) -> Neighbours:
    adjacency, unit = adjacency or str(rng.choice(list(ADJACENCIES))), unit or int(rng.integers(1, 3))
    others, one, other = (records(rng, n) for n in (int(rng.integers(1, 6)), unit, unit))
    pair = joined(others, one), joined(others, other) if adjacency == "replace-one" else others
    return Neighbours(pair, adjacency, unit, float(rng.uniform(0.3, 2.0)))


def records(rng: Generator, n: int) -> Shard:
    x = rng.normal(size=(n, J)) * 10.0 ** rng.uniform(-1.0, 1.0, (n, 1))
    return Shard(x, np.eye(K)[rng.integers(0, K, n)])


def joined(*parts: Shard) -> Shard:
    return Shard(np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts]))


def random_problem(rng: Generator, sets: tuple[str, ...] = ("all", "box", "l2-ball")) -> Problem:
    feasible, beta = SETS[str(rng.choice(sets))](10.0 ** rng.uniform(-1.0, 0.5)), rng.choice([0.0, 0.05])
    return Problem(LOSSES["softmax"](), REGULARISERS["l2"](), float(beta), feasible, RECORDS, 2)


def somewhere(rng: Generator, runs: int = 1) -> Array:
    point: Array = rng.normal(size=(J, runs, K)) * 10.0 ** rng.uniform(-1.0, 1.5)
    return point


class Step(NamedTuple):
    """A method's step without noise on both data sets, and its event."""

    apart: float  # in L2
    event: Event
    scale: float  # of the noise that was asked for


class State(NamedTuple):
    """The public state before a step."""

    w: Array
    agent: Agent


def anywhere(rng: Generator) -> State:
    return State(somewhere(rng), Agent(somewhere(rng), somewhere(rng)))


def step(
    name: str, state: State, near: Neighbours, of: Problem, rho: float, eta: float = 1.0, quiet: Any = None, **more: Any
) -> Step:
    """Run the real agent_step; `eta` is a share of the largest allowed one."""
    method = ALGORITHMS[name]
    length = of.loss.residual_bound * near.bound if method.scales_records else 0.7 * near.bound
    limit: Clipping = (
        RecordScaling(near.bound) if method.scales_records else GradientClipping(ONE * length, ONE * math.inf)
    )
    eta *= largest_eta(name, of, near.bound, near.largest)
    release = CertifiedGradient(limit, Calibrated("gaussian", (Noise("gaussian", 1.0, math.inf, 1.0),)))
    algorithm = method.build(
        AlgorithmConfig(
            of, ONE, Constant(rho, ONE), Constant(eta, ONE), release, OutputNoise("gaussian", 3.0 * ONE), limit,
            near.sensitivity(length), **more,
        )
    )  # fmt: skip
    quiet = quiet or RecordingNoise()
    first, second = (algorithm.agent_step(1, *state, shard, quiet) for shard in near.shards)
    assert first.events[0].runs == second.events[0].runs
    apart = float(np.linalg.norm(first.upload.z - second.upload.z))
    return Step(apart, first.events[0].runs[0], quiet.scales[0])


# ---- noise on what is sent


@seeds
@often
@pytest.mark.parametrize("name", ["dp-fedavg", "dp-fedprox", "outp"])
def test_one_unit_changes_an_upload_by_at_most_the_charged_sensitivity(name: str, seed: int) -> None:
    rng = default_rng(seed)
    near, of = neighbours(rng), random_problem(rng)
    share = float(rng.choice([1.0, rng.uniform(0.01, 1.0)]))
    rho, updates = 10.0 ** rng.uniform(-3, 1), int(rng.integers(1, 9))
    found = step(name, anywhere(rng), near, of, rho, share, local_updates=updates)
    assert isinstance(found.event, Noise)
    assert found.apart <= found.event.l2 * (1.0 + 1e-9) + 1e-11
    assert found.scale == found.event.scale == pytest.approx(3.0 * found.event.l2)


@seeds
@seldom
def test_one_unit_changes_a_solution_by_at_most_the_charged_sensitivity(seed: int) -> None:
    rng = default_rng(seed)
    near, of, tolerance = neighbours(rng), random_problem(rng, ("all",)), 10.0 ** rng.uniform(-8, -2)
    found = step("admm-outp", anywhere(rng), near, of, 10.0 ** rng.uniform(-2, 1), tolerance=tolerance)
    assert isinstance(found.event, Noise)
    assert found.apart <= found.event.l2 * (1.0 + 1e-9)
    assert found.scale == found.event.scale == pytest.approx(3.0 * found.event.l2)


LOUD = np.array([[-9.0, 9.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])[:, None]  # wrong about a record of class 0


@pytest.mark.parametrize(
    ("name", "share"), [("dp-fedavg", 0.3), ("dp-fedprox", 0.3), ("outp", 0.3), ("admm-outp", 1.0)]
)
@pytest.mark.parametrize("beta", [0.0, 0.05])
def test_a_record_nearly_attains_the_charged_sensitivity(name: str, share: float, beta: float) -> None:
    """Within a factor of two, with several updates and a regulariser too."""
    others, one = records(default_rng(0), 4), Shard(np.eye(J)[:1], np.eye(K)[:1])
    near = Neighbours((joined(others, one), others), "add-remove", 1, 1.0)
    of = Problem(LOSSES["softmax"](), REGULARISERS["l2"](), beta, SETS["all"](1.0), RECORDS, 2)
    state = State(LOUD, Agent(LOUD, np.zeros_like(LOUD)))
    found = step(name, state, near, of, 0.5, share, local_updates=5)
    assert isinstance(found.event, Noise)
    assert 0.5 * found.event.l2 < found.apart <= found.event.l2 * (1.0 + 1e-9)


@pytest.mark.parametrize(("dtype", "pull"), [(np.float64, 1e-12), (np.float64, 1e-18), (np.float32, 1e-9)])
def test_the_sensitivity_with_a_weak_pull_is_that_without_a_pull(pull: float, dtype: Any) -> None:
    """As rho eta -> 0 the geometric sum becomes E eta Delta, in every precision: else there is too little noise."""
    found = training_sensitivity(0.5, np.array([0.7], dtype), 10, np.array([pull], dtype))
    assert float(found[0]) == pytest.approx(0.5 * 0.7 * 10, rel=1e-3)


# ---- solutions


@seeds
@seldom
def test_the_solver_keeps_its_tolerance(seed: int) -> None:
    rng = default_rng(seed)
    near, of, rho = neighbours(rng), random_problem(rng, ("all",)), 10.0 ** rng.uniform(-2, 1)
    tolerance, (w, lam, begin) = 10.0 ** rng.uniform(-9, -1), (somewhere(rng) for _ in range(3))
    one = Subproblem(of, scale_records(near.shards[0], RecordScaling(near.bound)), rho, w, lam, tolerance)
    z = one.solve_within(begin)
    assert np.linalg.norm(one.gradient(z)) <= tolerance
    exact = replace(one, tolerance=1e-10).solve_within(z)
    error = float(Solver(of, tolerance).error(np.array([rho]))[0])
    assert np.linalg.norm(z - exact) <= error + float(Solver(of, 1e-10).error(np.array([rho]))[0])


# ---- samples


class Sampling(RecordingNoise):
    """The same records of the first data set's order are in the sample, and the last one, the canary, always is."""

    def __init__(self, taken: NDArray[np.bool_]) -> None:
        super().__init__()
        self.taken = taken

    def poisson_sample(self, update: int, rate: float, records: int, like: Array) -> NDArray[np.bool_]:
        return self.taken[:records, None]


@seeds
@often
def test_a_record_adds_at_most_the_charged_sensitivity_to_a_sample(seed: int) -> None:
    """Of the sum, in units of 1/I: z moves by eta / q of it, and so does the noise."""
    rng = default_rng(seed)
    near, of, rate = neighbours(rng, "add-remove", 1), random_problem(rng), float(rng.uniform(0.05, 1.0))
    taken = rng.random(near.largest) < 0.5
    taken[-1] = True
    eta = largest_eta("dpsgd", of, near.bound, near.largest)
    found = step("dpsgd", anywhere(rng), near, of, 1.0, quiet=Sampling(taken), sampling=rate)
    assert isinstance(found.event, Sampled) and found.event.rate == rate
    assert found.apart <= eta / rate * found.event.l2 * (1.0 + 1e-9) + 1e-11
    assert found.scale == pytest.approx(found.event.scale / rate)


# ---- perturbed objectives


def hessian(of: Problem, z: Array, shard: Shard, limit: Clipping, rho: float) -> Array:
    """By central differences, one direction a run: [J K, J K]."""
    size = J * K
    along = 1e-5 * np.eye(size).reshape(size, J, K).swapaxes(0, 1)  # [J, J K, K]
    ahead, behind = (of.gradient(z + side * along, shard, limit).value for side in (1.0, -1.0))
    bent: Array = ((ahead - behind) / 2e-5).swapaxes(0, 1).reshape(size, size)
    return bent + rho * np.eye(size)


def trace_of(near: Neighbours, of: Problem) -> float:
    facts = FACTS._replace(total_records=RECORDS, max_records=near.unit)
    return hessian_trace(replace(Settings(), record_bound=near.bound), facts, of)


@seeds
@often
def test_no_unit_changes_the_determinant_by_more_than_is_charged(seed: int) -> None:
    rng = default_rng(seed)
    near, of, rho = neighbours(rng), random_problem(rng, ("all",)), 10.0 ** rng.uniform(-3, 1)
    z = somewhere(rng) * rng.choice([0.0, 0.01, 1.0])
    first, second = (
        float(np.linalg.slogdet(hessian(of, z, shard, RecordScaling(near.bound), rho))[1]) for shard in near.shards
    )
    assert abs(first - second) <= trace_of(near, of) / (rho + of.strong_convexity) + 1e-6


def test_the_determinants_bound_is_nearly_attained() -> None:
    """By a record of three classes that are equally likely: its trace is 2/3 of the bound."""
    near = Neighbours((Shard(np.eye(J)[:1], np.eye(K)[:1]), Shard(np.empty((0, J)), np.empty((0, K)))), "", 1, 1.0)
    of, rho = random_problem(default_rng(0), ("all",)), 1.0
    z = np.zeros((J, 1, K))
    change = np.linalg.slogdet(hessian(of, z, near.shards[0], RecordScaling(1.0), rho))[1]
    change -= np.linalg.slogdet(hessian(of, z, Shard(np.zeros((1, J)), np.eye(K)[:1]), RecordScaling(1.0), rho))[1]
    assert 0.5 < change / (trace_of(near, of) / (rho + of.strong_convexity)) <= 1.0


@seeds
@seldom
def test_a_unit_moves_gradients_in_few_dimensions(seed: int) -> None:
    """However z moves: K n of them, twice as many for replace-one. It is what the length of b is counted in."""
    rng = default_rng(seed)
    near, of = neighbours(rng), random_problem(rng, ("all",))
    z = somewhere(rng, runs=40)
    first, second = (of.gradient(z, shard, RecordScaling(near.bound)).value for shard in near.shards)
    rank = np.linalg.matrix_rank((first - second).swapaxes(0, 1).reshape(40, -1), tol=1e-9)
    assert rank <= K * near.unit * int(ADJACENCIES[near.adjacency])


# ---- whole studies


CERTIFIED = [name for name in ALGORITHMS if ALGORITHMS[name].noisy and "certified" in ALGORITHMS[name].modes]
CLINICS: dict[str, Any] = {
    "data": "tests/data/clinics/records.csv", "schema": "tests/data/clinics/schema.toml", "test_share": 0.25,
    "rounds": 2, "partition_key": 0,
    "total_records": 600, "agents": 3, "total_epsilon": 1.0, "noise": "seeded",
}  # fmt: skip
SAMPLES = [name for name in CERTIFIED if ALGORITHMS[name].noise_on == "samples"]
OWN_NOISE = [name for name in CERTIFIED if ALGORITHMS[name].noise_on in ("uploads", "objectives")]


@pytest.fixture
def by_patient(tmp_path: Path) -> dict[str, Any]:
    """The clinics with three rows a patient."""
    table, schema = (Path(CLINICS[name]).read_text() for name in ("data", "schema"))
    head, *rows = table.splitlines()
    (tmp_path / "t.csv").write_text("\n".join([f"{head},patient", *(f"{row},p{i // 3}" for i, row in enumerate(rows))]))
    (tmp_path / "s.toml").write_text('[unit]\ncolumn = "patient"\nmax_records = 3\n\n' + schema)
    return {"data": str(tmp_path / "t.csv"), "schema": str(tmp_path / "s.toml")}


def planned(names: list[str], **changes: Any) -> StudyPlan:
    return plan_study(resolve(CLINICS | {"algorithm": ",".join(names)} | changes))


def check_spending(plan: StudyPlan) -> None:
    """What all agents released over the whole run is what was planned, and the plan is within the budget."""
    study = load_data(plan)
    for part in study.parts:
        shards = dataset_for(study, part).train
        spent = [Counter[Event]() for _ in study.dataset.agents]
        for done in training_rounds(study, part, shards, part.rounds, start(shards, 1, "sums")):
            for (p, event), count in charge_all_agents(study, part, done).events.items():
                spent[p][event.runs[0]] += count
        (expected,) = part.plans
        assert expected.bound.epsilon <= 1.0
        for events in spent:
            assert sum(events.values()) == sum(expected.events.values()), part.batch.algorithm
            assert tightest(events, expected.delta).epsilon == pytest.approx(expected.bound.epsilon, rel=1e-9)


def test_every_certified_method_spends_what_it_planned() -> None:
    check_spending(planned([name for name in CERTIFIED if name not in SAMPLES]))


def test_a_method_with_samples_spends_what_it_planned() -> None:
    check_spending(planned(SAMPLES, noise_multiplier=3.0))


def test_methods_spend_what_they_planned_for_replaced_units_of_several_records(by_patient: dict[str, Any]) -> None:
    check_spending(planned(OWN_NOISE, adjacency="replace-one", **by_patient))


def test_methods_spend_what_they_planned_with_laplace_noise(by_patient: dict[str, Any]) -> None:
    check_spending(planned(OWN_NOISE, mechanism="laplace", **by_patient))


def test_samples_are_refused_where_their_effect_is_not_proven(by_patient: dict[str, Any]) -> None:
    for changes in ({"adjacency": "replace-one"}, by_patient):
        with pytest.raises(InputError, match="dpsgd needs adjacency add-remove and one record a unit"):
            planned(SAMPLES, **changes)


def test_single_precision_is_refused_where_its_sums_may_be_off_by_a_record() -> None:
    many = {
        "precision": "float32",
        "delta": 1e-12,
        "records_max": MAX_SINGLE + 1,
        "total_records": 10**8,
        "noise_multiplier": 30.0,
        "noise": "seeded",
    }
    with pytest.raises(InputError, match="records-max is 8,388,609, but with precision float32 and noise seeded"):
        planned(["objp"], **many)
    planned(["objp"], **many | {"records_max": MAX_SINGLE})
    planned(["objp"], **many | {"precision": "float64"})
    planned(["objp"], **many | {"noise": "hardened"})
