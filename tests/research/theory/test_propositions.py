"""Proposition 1 within its limits, proposition 2 with a public sensitivity, and where their proofs fail."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from taciturn.objectives import SETS
from taciturn.research.theory.propositions import (
    BallConstraint,
    BoxConstraints,
    Constraints,
    distances,
    log_ratio,
    penalised,
    penalty,
    proposition_1,
    proposition_2,
    release,
)
from taciturn.types import Array, Shard
from tests.random_problems import J, K, problem, shards

ROOT = Path(__file__).parents[3]
SHARP = (1.0, 10.0, 100.0, 1e3, 1e4)


@pytest.mark.parametrize(("name", "constraints"), [("box", BoxConstraints(0.6)), ("l2-ball", BallConstraint(0.6))])
@pytest.mark.parametrize("scale", [0.2, 1.0, 3.0])
def test_the_penalised_solution_goes_to_the_projection(name: str, constraints: Constraints, scale: float) -> None:
    target = scale * np.array([1.0, -0.4, 0.3])
    projected = SETS[name](0.6).project(target[:, None, None])[:, 0, 0]
    away = distances(constraints, projected, target, 2.5, SHARP)
    assert all(later < 0.5 * sooner for sooner, later in pairwise(away[2:]) if sooner > 1e-9)
    assert away[-1] < 2e-3 and away[0] > 0.005


def test_what_the_command_shows_of_proposition_1_is_in_the_benchmark_and_in_the_documentation() -> None:
    found = proposition_1()
    results = json.loads((ROOT / "benchmarks" / "results" / "theory.json").read_text())["proposition_1"]
    assert {name: pytest.approx(values, rel=1e-4) for name, values in results.items()} == found.summary()
    told = " ".join((ROOT / "docs" / "explanation" / "theorems.md").read_text().split())
    for values in (found.box, found.ball):
        assert values[-1] < 1e-3 and values[0] > 0.1
        listed = ", ".join(f"{value:.2g}" for value in values)
        assert listed in found.words and listed in told


class PointConstraint(NamedTuple):
    """z^2 <= 0: the only feasible point is 0, and no z has h < 0."""

    def __call__(self, z: Array) -> tuple[Array, Array, Array]:
        return np.array([z @ z]), 2.0 * z[None], 2.0 * np.eye(z.size)[None]


def test_the_proof_takes_points_with_h_below_0_which_there_need_not_be() -> None:
    """h(z) = z^2 is convex and smooth, W = {0}: g_l is ln 2 there whatever l, z_l is never in W, and G(z_l) < G(z).

    The proof has g_l -> 0 near the solution, and G(z_l) - G(z) >= (mu/2) ||z_l - z||^2. The limit is right anyhow.
    """
    for sharpness in SHARP:
        assert penalty(PointConstraint(), sharpness, np.zeros(1)) == pytest.approx(math.log(2.0))
        z = float(penalised(PointConstraint(), np.ones(1), 1.0, sharpness)[0])
        assert z > 0.0
        assert (z - 1.0) ** 2 / 2.0 < 0.5
    away = distances(PointConstraint(), np.zeros(1), np.ones(1), 1.0, SHARP)
    assert away[-1] < 2e-4


def test_the_penalised_solution_may_lie_outside_w() -> None:
    """G(z) = (z - 3)^2 / 2 on [-1, 1]: at l = 3 z_l is above 1, and G is less there than at the projection."""
    z = float(penalised(BoxConstraints(1.0), np.array([3.0]), 1.0, 3.0)[0])
    assert z > 1.05 and (z - 3.0) ** 2 / 2.0 < 2.0
    assert penalised(BoxConstraints(1.0), np.array([3.0]), 1.0, 30.0)[0] < 1.0


def outputs(number: int = 4000) -> Array:
    """What no record enters, at many outputs psi; far and near."""
    random = np.random.default_rng(3)
    return random.choice([0.01, 1.0, 100.0], (number, 1, 1)) * random.standard_normal((number, J, K))


def test_with_a_public_sensitivity_the_densities_stay_within_epsilon() -> None:
    part = shards(4)[0]
    one = problem([part])
    z = np.random.default_rng(1).standard_normal((J, K))
    public = 2.0 * J / one.records  # x in [0, 1]^J, ||h - y||_1 <= 2
    for epsilon in (0.1, 1.0):
        for i in range(len(part.x)):
            without = Shard(np.delete(part.x, i, 0), np.delete(part.y, i, 0))
            first, second = (release(one, z, shard, epsilon, public) for shard in (part, without))
            ratio = np.abs(log_ratio(first, second, outputs()))
            assert 0.0 < ratio.max() <= epsilon * (1 + 1e-9)


def test_with_the_papers_own_sensitivity_they_do_not() -> None:
    """Nine records alike and one twice as long: without it the noise is half as wide, and far out nothing bounds it."""
    x = np.vstack([np.full((9, J), 0.5), np.ones((1, J))])
    part = Shard(x, np.eye(K)[np.zeros(10, int)])
    one = problem([part], beta=0.0)
    first, second = (release(one, np.zeros((J, K)), shard, 1.0) for shard in (part, Shard(x[:9], part.y[:9])))
    assert first.scale == pytest.approx(2.0 * second.scale)
    ratio = log_ratio(first, second, outputs())
    assert ratio.max() > 100.0
    at_no_noise = log_ratio(first, second, second.gradient[None])
    assert at_no_noise[0] < -J * K * math.log(2.0)  # and near the mean the narrower density is 2^JK times higher


def test_on_outputs_that_were_drawn_the_papers_sensitivity_leaves_epsilon_far_behind() -> None:
    found = proposition_2()
    removed = 4 * (4 / 3) / 10  # the longest record's ||x r^T||_1 / I, of a model of zeros
    assert found.public == pytest.approx(removed / 0.8)  # public Delta = 2 J / I
    assert found.public < found.epsilon < 10.0 < found.paper
    assert "0.67 (within ε = 1) with a public Δ, and 20 (above ε = 1)" in found.words


def test_to_replace_a_record_changes_the_gradient_twice_as_much_as_to_remove_it_or_more() -> None:
    x, labels = np.ones((4, 1)), np.eye(2)[[0, 0, 1, 1]]
    one = problem([Shard(x, labels)], beta=0.0)
    gradient = one.gradient(np.zeros((1, 1, 2)), Shard(x, labels))
    other = one.gradient(np.zeros((1, 1, 2)), Shard(x, np.eye(2)[[1, 0, 1, 1]])).value
    assert np.abs(other - gradient.value).sum() == pytest.approx(2.0 * float(gradient.longest[0]))
    small = Shard(0.1 * x, labels)
    replaced = Shard(np.vstack([x[:1], small.x[1:]]), labels)
    change = np.abs(one.gradient(np.zeros((1, 1, 2)), replaced).value - one.gradient(np.zeros((1, 1, 2)), small).value)
    assert change.sum() == pytest.approx(9.0 * float(one.gradient(np.zeros((1, 1, 2)), small).longest[0]))


def test_the_printed_density_is_none_beyond_one_parameter() -> None:
    """eq. Laplace-pdf has the factor epsilon / (2 Delta) once: over two numbers it adds up to 2 Delta / epsilon."""
    scale, grid = 0.7, np.linspace(-15.0, 15.0, 3001)
    once = np.trapezoid(np.exp(-np.abs(grid) / scale), grid)
    assert once / (2.0 * scale) == pytest.approx(1.0, abs=1e-4)
    assert once * once / (2.0 * scale) == pytest.approx(2.0 * scale, rel=1e-3)
