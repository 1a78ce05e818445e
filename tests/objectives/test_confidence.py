"""Confidence intervals contain the truth as often as they say, and are never empty."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from taciturn.objectives.confidence import (
    Bounds,
    auroc_bounds,
    f1_bounds,
    mean_bounds,
    r2_bounds,
    root_mean_bounds,
    share_bounds,
)
from taciturn.objectives.metrics import auroc

TRIES = 1000
Draw = Callable[[np.random.Generator], Bounds | None]


def rare_share(generator: np.random.Generator) -> Bounds | None:
    return share_bounds(int(generator.binomial(80, 0.1)), 80)


def skewed_mean(generator: np.random.Generator) -> Bounds | None:
    return mean_bounds(generator.gamma(2.0, 0.5, size=150))


def root_mean(generator: np.random.Generator) -> Bounds | None:
    return root_mean_bounds(generator.normal(0.0, 3.0, size=150) ** 2)


def explained(generator: np.random.Generator) -> Bounds | None:
    labels = generator.normal(size=300)
    errors = generator.normal(0.0, 0.6, size=300)
    return r2_bounds(errors**2, (labels - labels.mean()) ** 2)


def ranked(generator: np.random.Generator) -> Bounds | None:
    positive = np.arange(120) < 40
    area = auroc(generator.normal(size=120) + 1.5 * positive, positive)
    assert area is not None
    return auroc_bounds(area, 40, 80)


def harmonic(generator: np.random.Generator) -> Bounds | None:
    """Prevalence 0.3, recall 0.8, and a tenth of the others predicted: F1 = 0.48 / (0.3 + 0.31)."""
    positive = generator.uniform(size=200) < 0.3
    said = generator.uniform(size=200) < np.where(positive, 0.8, 0.1)
    return f1_bounds(int((positive & said).sum()), int((positive != said).sum()))


@pytest.mark.parametrize(
    ("draw", "truth"),
    [
        (rare_share, 0.1),
        (skewed_mean, 1.0),
        (root_mean, 3.0),
        (explained, 0.64),
        (ranked, float(norm.cdf(1.5 / np.sqrt(2.0)))),
        (harmonic, 0.48 / 0.61),
    ],
)
def test_95_of_100_intervals_contain_the_truth(draw: Draw, truth: float) -> None:
    generator = np.random.default_rng(0)
    found = [bounds for _ in range(TRIES) if (bounds := draw(generator)) is not None]
    assert len(found) == TRIES
    covered = np.mean([low <= truth <= high for low, high in found])
    assert 0.93 <= covered <= 0.975


@given(st.integers(1, 500), st.data())
def test_the_interval_of_a_share_is_wilsons(n: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, n))
    found = share_bounds(hits, n)
    expected = binomtest(hits, n).proportion_ci(0.95, method="wilson")
    assert found == pytest.approx((expected.low, expected.high), abs=1e-9)


@given(st.integers(1, 200), st.integers(1, 200), st.floats(0.0, 1.0))
def test_an_interval_of_auroc_holds_the_estimate_and_is_no_point(positives: int, negatives: int, area: float) -> None:
    low, high = auroc_bounds(area, positives, negatives)
    assert 0.0 <= low <= area <= high <= 1.0
    assert high - low > 1e-3
    mirrored = auroc_bounds(1.0 - area, positives, negatives)
    assert (1.0 - mirrored.high, 1.0 - mirrored.low) == pytest.approx((low, high), abs=1e-6)


@given(st.lists(st.floats(0.0, 2.0), min_size=2, max_size=6), st.integers(1, 50))
def test_intervals_of_few_records_stay_within_the_measures_range(values: list[float], scale: int) -> None:
    """A loss of a few records had an interval from below 0, and a Brier score one to above 1."""
    few = np.array(values)
    low, high = mean_bounds(few, most=2.0) or Bounds(np.nan, np.nan)
    assert 0.0 <= low <= few.mean() * (1 + 1e-12) and few.mean() * (1 - 1e-12) <= high <= 2.0
    root = root_mean_bounds(scale * few) or Bounds(np.nan, np.nan)
    assert 0.0 <= root.low <= np.sqrt(scale * few.mean()) * (1 + 1e-9) <= root.high * (1 + 1e-6) + 1e-12
    explained = r2_bounds(few, np.arange(len(few)) + 1.0) or Bounds(np.nan, np.nan)
    assert explained.low <= explained.high <= 1.0


def test_one_record_gives_no_interval_of_a_mean_and_none_gives_none_of_a_share() -> None:
    assert mean_bounds(np.array([1.0])) is None
    assert share_bounds(0, 0) is None
    assert f1_bounds(0, 0) is None
