"""The grid of a frontier: which methods fit which trust model, manual hyperparameters, invalid requests."""

from __future__ import annotations

from typing import Any

import pytest

from taciturn.algorithms import ALGORITHMS
from taciturn.errors import InputError
from taciturn.experiments.grid import (
    DEFAULT_METHODS,
    compatible_methods,
    describe_exclusions,
    excluded_methods,
    frontier_grid,
    incompatibility,
    manual_hyperparameters,
    restore_frontier_grid,
)
from taciturn.settings import resolve
from tests.experiments.test_grid import CLINICS, TABLE

TRUSTS = ("agents", "secure-sum", "server")


def test_a_method_runs_exactly_where_a_run_with_it_would_not_be_refused() -> None:
    certified = [name for name in ALGORITHMS if ALGORITHMS[name].noisy and "certified" in ALGORITHMS[name].modes]
    for trust in ("secure-sum", "server"):
        for name in certified:
            try:
                resolve({"algorithm": name, "trust": trust})
            except InputError:
                assert incompatibility(name, trust), (name, trust)
            else:
                assert not incompatibility(name, trust), (name, trust)
    assert all(bool(incompatibility(name, "agents")) == ALGORITHMS[name].central for name in certified)


def test_methods_that_do_not_fit_are_left_out_with_a_reason() -> None:
    asked = ("objp", "dpgd", "erm-outp")
    assert [compatible_methods(asked, trust) for trust in TRUSTS] == [["objp", "dpgd"], ["dpgd"], ["dpgd", "erm-outp"]]
    assert [compatible_methods((), trust) for trust in TRUSTS] == [list(DEFAULT_METHODS[trust]) for trust in TRUSTS]
    words = describe_exclusions(excluded_methods(TRUSTS, asked))
    assert [line.partition(":")[0] for line in words] == [
        "erm-outp under agents and secure-sum",
        "objp under secure-sum and server",
    ]
    assert not excluded_methods(TRUSTS, ())


def test_a_folder_for_each_map_and_trust_model_with_all_budgets_and_seeds() -> None:
    grid = frontier_grid({"trust": ["agents"]}, {**CLINICS, "trust": "agents,secure-sum", "features": "none,unit"})
    assert [point.name for point in grid.points] == [
        "1-features=none-trust=agents",
        "2-features=none-trust=secure-sum",
        "3-features=unit-trust=agents",
        "4-features=unit-trust=secure-sum",
    ]
    assert [point.settings.algorithm for point in grid.points[:2]] == [("objp", "dpgd"), ("objw", "dpgd")]
    assert all(point.settings.total_epsilon == (0.5, 1.0, 3.0, 8.0) and point.runs == 24 for point in grid.points)


def test_the_stored_request_restores_the_same_frontier_grid() -> None:
    asked = {**CLINICS, "colluders": 2, "algorithm": "dpgd,objp", "total_epsilon": "3,1", "seeds": 2}
    for given in (asked, {**asked, "algorithm": ()}):
        grid = frontier_grid({}, given)
        written = grid.request()
        again = restore_frontier_grid(written)
        assert grid.over["total_epsilon"] == (1.0, 3.0)
        assert again == grid and again.request() == written
        assert [point.settings.colluders for point in grid.points] == [1, 2, 1]  # it belongs to one trust model


def test_manual_hyperparameters_exclude_defaults_and_presets() -> None:
    given = {**CLINICS, "clip": 2.0, "beta": 1e-3, "delta": 1e-5, "trust": "agents"}
    settings = frontier_grid({}, given).points[0].settings
    assert manual_hyperparameters(settings) == {"beta": 1e-3, "rounds": 3, "clip": 2.0}
    assert manual_hyperparameters(frontier_grid({}, {"data": "mnist14"}).points[0].settings) == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mode": "paper"}, "mode is paper"),
        ({"trust": "agent"}, r"no trust 'agent' \(did you mean 'agents'\?\): there are agents, secure-sum, server"),
        ({"trust": "agents,agents"}, "trust names agents twice"),
        ({"features": "wavelets"}, "wavelets"),
        ({"total_epsilon": "0"}, "total-epsilon is 0: it must be above 0"),
        ({"algorithm": "objp", "trust": "secure-sum"}, "no algorithm is left: objp under secure-sum: noise on the sum"),
        ({"colluders": 2, "trust": "agents"}, "colluders is 2, but trust is agents: it belongs to --trust secure-sum"),
        ({"test_share": 0.0}, "--test-share"),
        ({"noise": "hardened", "trust": "agents", "seeds": 3}, "hardened noise has no seeds"),
    ],
)
def test_refusals(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        frontier_grid({}, {**CLINICS, **given})


def test_hardened_noise_is_drawn_once() -> None:
    given = {**TABLE, "test_share": 0.25, "total_records": 400, "agents": 3, "noise": "hardened", "trust": "agents"}
    assert [point.runs for point in frontier_grid({}, given).points] == [2 * 4]
