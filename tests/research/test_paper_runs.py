"""The runs behind the paper's figures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from taciturn.algorithms.iadmm import DpIadmm
from taciturn.algorithms.outp import OutputPerturbation
from taciturn.data import DataOptions, load
from taciturn.errors import InputError
from taciturn.privacy.events import NON_PRIVATE, Nominal
from taciturn.research.reproduction.paper_runs import (
    DATA,
    EPSILONS,
    PENALTIES,
    PaperCase,
    Stage,
    make_plan,
    parse_figures,
)
from taciturn.research.reproduction.stages import build_algorithm, events
from taciturn.types import Dataset


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return load(DataOptions(precision="float32"))


def test_the_whole_grid() -> None:
    plan = make_plan("mnist")
    assert (plan.rounds, plan.seeds) == (20000, 10)
    stages = {stage.name: stage for stage in plan.stages}
    for name in ("outp", "objp", "objpm"):
        cases = set(stages[name].cases)
        assert cases == {PaperCase(e, s) for e in EPSILONS for s in range(1, 11)} | {PaperCase(math.inf, 1)}
    assert stages["objpm"].local_updates == 10
    assert {s.local_updates for name, s in stages.items() if name != "objpm"} == {1}
    assert {case.penalty for case in stages["outp-penalties"].cases} == set(PENALTIES)
    assert len(stages["outp-penalties"].cases) == len(PENALTIES) * len(EPSILONS) * 10
    assert {s.outp_noise for s in plan.stages if s.algorithm == "outp"} == {
        "published", "published-formula", "calibrated"
    }  # fmt: skip


def test_figures_ask_only_for_their_own_runs() -> None:
    assert [stage.name for stage in make_plan("mnist", (1,)).stages] == ["outp", "objp", "objpm"]
    assert [stage.name for stage in make_plan("mnist", (4,)).stages] == ["outp", "outp-penalties"]
    assert [stage.name for stage in make_plan("mnist", (1, 2, 3), quick=True).stages] == ["outp", "objp", "objpm"]
    assert [stage.name for stage in make_plan("mnist", (4,), quick=True).stages] == ["outp", "outp-penalties"]


def test_femnist_has_the_paper_s_step_next_to_the_drawn_one() -> None:
    objpm = next(stage for stage in make_plan("femnist").stages if stage.name == "objpm")
    assert {case.eta_scale for case in objpm.cases} == {1.0, 100.0}
    assert {case.epsilon for case in objpm.cases if case.eta_scale == 1.0} == {0.05, 1.0, math.inf}


def test_evaluations_are_dense_first_and_end_with_the_last_round() -> None:
    rounds = make_plan("mnist", rounds=1234).evaluations()
    assert rounds[:100] == list(range(1, 101))
    assert rounds[100:103] == [110, 120, 130]
    assert rounds[-1] == 1234
    assert make_plan("mnist", rounds=3).evaluations() == [1, 2, 3]


def test_the_paper_s_constants() -> None:
    found = {data: (constants.c1, constants.c2, constants.tc) for data, constants in DATA.items()}
    assert found == {"mnist": (2.0, 5.0, 10000), "femnist": (0.005, 0.05, 2000)}


def test_every_case_has_its_own_penalty_and_step(dataset: Dataset) -> None:
    cases = (
        PaperCase(0.05, 1), PaperCase(5.0, 1), PaperCase(1.0, 2, "dynamic/100"), PaperCase(1.0, 1, "0.1"),
        PaperCase(0.1, 1, "10", 100.0),
    )  # fmt: skip
    built = build_algorithm(Stage("x", "objp", cases), DATA["mnist"], dataset, "float64")
    assert isinstance(built, DpIadmm)
    np.testing.assert_allclose(built.rho(1)[:, 0], [102.0, 3.0, 0.07, 0.1, 10.0])
    np.testing.assert_allclose(built.rho(10000)[:, 0], [102.4, 3.4, 0.074, 0.1, 10.0])
    np.testing.assert_allclose(built.eta(4)[:, 0], [0.5, 0.5, 0.5, 0.5, 50.0])


def test_every_update_has_an_event(dataset: Dataset) -> None:
    cases = (PaperCase(0.05, 1), PaperCase(math.inf, 1))
    objp = build_algorithm(Stage("x", "objp", cases), DATA["mnist"], dataset, "float32")
    assert events(objp) == (Nominal("laplace-data-dependent", 0.05), NON_PRIVATE)
    for level, name in (("published", "gaussian-published"), ("calibrated", "gaussian-classic")):
        outp = build_algorithm(Stage("x", "outp", cases, level), DATA["mnist"], dataset, "float32")
        assert isinstance(outp, OutputPerturbation)
        assert events(outp) == (Nominal(name, 0.05, 1e-6), NON_PRIVATE)


@pytest.mark.parametrize("text", ["0", "5", "1,,2", "one", "", "1;2"])
def test_figures_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="1 to 4"):
        parse_figures(text, quick=False)


def test_figures_and_data_sets() -> None:
    assert parse_figures("4, 1,1", quick=True) == (1, 4)
    assert (parse_figures(None, quick=False), parse_figures(None, quick=True)) == ((1, 2, 3, 4), (1, 2, 3))
    with pytest.raises(InputError, match="there are femnist, mnist"):
        make_plan("cifar")
    with pytest.raises(InputError, match="rounds is 0"):
        make_plan("mnist", rounds=0)
    with pytest.raises(InputError, match="seeds is -1"):
        make_plan("mnist", seeds=-1)
