"""Numbers of an additive model are trained in units of their spread, which a noisy histogram of them gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.algorithms.additive import (
    LABEL_BINS,
    MAX_HALVINGS,
    UNKNOWN_SCALE,
    Additive,
    LabelScale,
    count_rounds,
    label_quantiles,
)
from taciturn.algorithms.base import Agent
from taciturn.algorithms.noisy_gradient import CertifiedGradient, PooledGradient
from taciturn.algorithms.schedules import Constant
from taciturn.objectives import LOSSES
from taciturn.privacy.noise import SeededNoise
from taciturn.types import Array, Shard
from tests.algorithms.test_additive import CLIP, HOSTILE, ROUNDS, WIDTH, method, records, trained

EDGES = label_quantiles(np.linspace(0.0, 1.0, LABEL_BINS + 1))[1:-1]


def numbers(seed: int, n: int, range_over_spread: float = 6.0, at: float = 0.4) -> Shard:
    """Records whose label is a number in [0, 1]: a range that many times as wide as they are spread, around `at`."""
    plain = records(seed, n)
    score = 4.0 * (plain.x[:, 0] - plain.x[:, 7]) + 0.3 * np.random.default_rng(seed).normal(size=n)
    return Shard(plain.x, np.clip(at + score / range_over_spread, 0.0, 1.0)[:, None])


def regression(parts: list[Shard], scale: float = 0.0, **changes: Any) -> Additive:
    """The method with the squared loss."""
    plain = method(parts, scale, eta=Constant(2.0 * len(parts), np.ones(1)), **changes)
    return replace(plain, problem=replace(plain.problem, loss=LOSSES["squared"]()))


def predictions(algorithm: Additive, parts: list[Shard]) -> Array:
    """What the trained model says of the first party's records, in shares of the range."""
    found: Array = parts[0].x @ trained(algorithm, parts).w[:, 0, 0]
    return found


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_any_statistic_is_a_scale(value: float) -> None:
    scale = LabelScale.from_statistic(value)
    assert 0.0 <= scale.centre < 1.0
    assert 2.0**-MAX_HALVINGS <= scale.spread <= 1.0
    assert np.isfinite(scale.labels(np.array([0.0, 1.0]))).all()


@given(st.floats(0.0, 0.999), st.integers(0, MAX_HALVINGS))
def test_a_scale_is_one_number(centre: float, halvings: int) -> None:
    scale = LabelScale(centre, 2.0**-halvings)
    again = LabelScale.from_statistic(float(np.float32(scale.statistic)))  # as a run in single precision stores it
    assert again.spread == scale.spread and again.centre == pytest.approx(centre, abs=2e-6)


LABELS: dict[str, Callable[[np.random.Generator], Array]] = {
    "even": lambda rng: rng.uniform(size=20_000),
    "near the lower end": lambda rng: np.exp(0.6 * rng.normal(size=20_000)) * 0.004,
    "near the upper end": lambda rng: 1.0 - np.exp(0.6 * rng.normal(size=20_000)) * 0.01,
    "in the middle": lambda rng: 0.5 + 0.05 * rng.normal(size=20_000),
    "mostly 0": lambda rng: np.where(rng.random(20_000) < 0.8, 0.0, rng.uniform(size=20_000)),
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("noise", [0.0, 0.0005, 0.005])
def test_a_noisy_histogram_gives_mean_and_spread(kind: str, noise: float) -> None:
    """Both within a factor that the clip and the path do not mind."""
    rng = np.random.default_rng(0)
    y = np.clip(LABELS[kind](rng), 0.0, 1.0)
    shares = np.bincount(np.searchsorted(EDGES, y, side="right"), minlength=LABEL_BINS) / len(y)
    scale = LabelScale.from_histogram(shares + noise * rng.normal(size=LABEL_BINS), noise)
    assert 0.35 < scale.spread / y.std() < 2.0
    assert abs(scale.centre - y.mean()) < 0.5 * y.std()


def test_noise_alone_gives_the_scale_of_labels_nothing_is_known_of() -> None:
    rng = np.random.default_rng(1)
    found = [LabelScale.from_histogram(10.0 * rng.normal(size=LABEL_BINS), 10.0) for _ in range(200)]
    assert found.count(UNKNOWN_SCALE) > 190


@given(HOSTILE)
@settings(max_examples=30, deadline=None)
def test_no_histogram_gives_a_scale_that_is_not_finite(values: list[float]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        scale = LabelScale.from_histogram(np.array(values), 0.1)
    assert 0.0 <= scale.centre < 1.0 and 2.0**-MAX_HALVINGS <= scale.spread <= 1.0


@pytest.mark.parametrize("times", [16.0, 256.0])
def test_a_range_that_is_too_wide_costs_little(times: float) -> None:
    """With the same noise, labels in a range many times as wide are predicted about as well, in their own unit."""
    parts = [numbers(0, 3000), numbers(1, 2000)]
    wide = [Shard(part.x, part.y / times) for part in parts]
    near, far = (predictions(regression(held, 0.0005), held) * unit for held, unit in ((parts, 1.0), (wide, times)))
    y = parts[0].y[:, 0]
    errors = [float(np.std(found - y) / np.std(y)) for found in (near, far)]
    assert errors[0] < 0.4
    assert errors[1] < errors[0] + 0.05


@given(HOSTILE, st.integers(1, 10), st.sampled_from([0.0, 3.5, 10.9, -1.0, 1e9, np.nan]))
@settings(max_examples=40, deadline=None)
def test_one_record_changes_an_upload_by_at_most_the_clip_whatever_the_server_sends(
    values: list[float], t: int, scale: float
) -> None:
    shard = numbers(5, 30)
    fewer = Shard(shard.x[1:], shard.y[1:])
    algorithm = regression([shard])
    sent = np.nan_to_num(np.array([*values, scale]), posinf=2.0**32, neginf=-(2.0**32))[:, None, None]
    sent = np.clip(sent, -(2.0**32), 2.0**32)  # what is admissible
    agent = Agent(np.zeros_like(sent), np.where(sent == 0.0, 1.0, sent))
    both = [algorithm.agent_step(t, sent, agent, part, SeededNoise((1,), 0, t)).upload.z for part in (shard, fewer)]
    step = float(algorithm.eta(t)[0, 0]) if t > count_rounds(ROUNDS, numbers=True) else 1.0
    assert np.linalg.norm(both[0] - both[1]) <= step * CLIP / 30 * (1 + 1e-6) + 1e-9 * np.abs(both[0]).max()


def test_the_first_round_is_a_histogram_of_the_label_and_nothing_else() -> None:
    shard = numbers(2, 500)
    other = Shard(records(3, 500).x, shard.y)  # other records with the same labels
    zero: Array = np.zeros((WIDTH + 1, 1, 1))
    uploads = [
        regression([part]).agent_step(1, zero, Agent(zero, zero), part, SeededNoise((1,), 0, 1)).upload.z
        for part in (shard, other)
    ]
    np.testing.assert_array_equal(*uploads)
    assert uploads[0].sum() == pytest.approx(CLIP)


def test_a_model_of_few_rounds_trains_labels_as_they_are() -> None:
    assert regression([numbers(0, 10)], rounds=2).label_scale(np.full((WIDTH + 1, 1, 1), 3.2)) is None
    assert method([records(0, 10)]).label_scale(np.full((WIDTH + 1, 1, 2), 3.2)) is None
    assert regression([numbers(0, 10)]).label_scale(np.full((WIDTH + 1, 1, 1), 3.25)) == LabelScale(0.25, 0.125)


def test_the_noise_of_a_sum_is_that_of_all_agents_together() -> None:
    """One upload stands for all agents: a bin that stands out of their uploads stands out of it, too."""
    parts = [numbers(i, 200) for i in range(9)]
    alone = regression(parts, 0.02)
    assert isinstance(alone.release, CertifiedGradient)
    mean = np.zeros((WIDTH + 1, 1, 1))
    mean[4] = 5.0 * alone._deviation / 3.0  # five standard deviations of the noise in a mean of nine
    pooled = replace(alone, release=PooledGradient(alone.release, 9))
    expected = alone._counted(1, mean, None, 9)
    np.testing.assert_array_equal(pooled._counted(1, mean, None, 1), expected)
    assert (alone._counted(1, mean, None, 1) != expected).any()  # the noise matters here


def test_both_servers_agree_on_numbers() -> None:
    parts = [numbers(6, 100), numbers(7, 80)]
    algorithm = regression(parts, scale=0.01)
    full, sums = (trained(algorithm, parts, server=server) for server in ("full", "sums"))
    np.testing.assert_allclose(full.w, sums.w, rtol=1e-9, atol=1e-12)


def test_the_noise_of_curves_is_in_the_label_s_own_unit() -> None:
    """In a range 16 times as wide, the errors are a sixteenth."""
    parts = [numbers(0, 3000)]
    wide = [Shard(part.x, part.y / 16.0) for part in parts]
    sizes = []
    for held in (parts, wide):
        algorithm = regression(held, 0.0005)
        done = trained(algorithm, held)
        noise = algorithm.curve_noise(done.w[:, 0], done.state.server.statistics, ROUNDS, np.ones((1, 1)), [])
        sizes.append(np.concatenate([error.ravel() for error in noise.errors]).mean())
    assert sizes[0] / sizes[1] == pytest.approx(16.0, rel=0.5)
