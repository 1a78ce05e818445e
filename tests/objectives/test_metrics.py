"""Metrics against their definitions and against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from taciturn.objectives import metrics as own_metrics
from taciturn.objectives.metrics import auroc, brier_scores, confusion_matrix, log_losses, reliability
from taciturn.types import Range, Shard

metrics = pytest.importorskip("sklearn.metrics")
calibration = pytest.importorskip("sklearn.calibration")


def drawn(seed: int, n: int, classes: int) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Probabilities with some ties, and labels."""
    generator = np.random.default_rng(seed)
    scores = np.round(4.0 * generator.normal(size=(n, classes))) / 4.0
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return chances, generator.integers(classes, size=n)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=40))
def test_auroc_counts_pairs(records: list[tuple[int, bool]]) -> None:
    score = np.array([float(s) for s, _ in records])
    positive = np.array([p for _, p in records])
    pairs = [(a, b) for a in score[positive] for b in score[~positive]]
    if not pairs:
        assert auroc(score, positive) is None
    else:
        assert auroc(score, positive) == pytest.approx(np.mean([(a > b) + 0.5 * (a == b) for a, b in pairs]))


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("seed", range(3))
def test_measures_are_scikit_learns(classes: int, seed: int) -> None:
    chances, labels = drawn(seed, 200, classes)
    predicted = chances.argmax(axis=1)
    assert log_losses(chances, labels).mean() == pytest.approx(metrics.log_loss(labels, chances))
    expected = metrics.brier_score_loss(labels, chances[:, 1] if classes == 2 else chances)
    assert brier_scores(chances, labels).mean() == pytest.approx(expected)
    found = confusion_matrix(labels, predicted, classes)
    assert found.tolist() == metrics.confusion_matrix(labels, predicted).tolist()


@pytest.mark.parametrize("seed", range(3))
def test_a_reliability_diagram_is_scikit_learns(seed: int) -> None:
    chances, labels = drawn(seed, 300, 2)
    found = reliability(chances[:, 1], labels == 1)
    observed, predicted = calibration.calibration_curve(labels, chances[:, 1], n_bins=10)
    there = found.records > 0
    np.testing.assert_allclose(found.predicted[there], predicted)
    np.testing.assert_allclose((found.observed / np.maximum(found.records, 1))[there], observed)


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(1, 5)), min_size=1, max_size=10))
def test_the_calibration_error_is_zero_where_every_bin_is_as_predicted(bins: list[tuple[int, int]]) -> None:
    """Each probability k / 10 comes true for exactly k of ten records."""
    chance = np.concatenate([np.full(10 * repeats, k / 10) for k, repeats in bins])
    true = np.concatenate([np.tile(np.arange(10) < k, repeats) for k, repeats in bins])
    found = reliability(chance, true)
    assert found.error == pytest.approx(0.0, abs=1e-12)
    assert reliability(chance, ~true).error == pytest.approx(
        np.abs(found.records - 2.0 * found.observed).sum() / len(chance), abs=1e-12
    )


def test_the_calibration_error_by_chance_is_that_of_a_calibrated_model() -> None:
    generator = np.random.default_rng(0)
    errors, expected = [], []
    for _ in range(200):
        chance = generator.uniform(size=400)
        found = reliability(chance, generator.uniform(size=400) < chance)
        errors.append(found.error)
        expected.append(found.error_by_chance)
    assert np.mean(errors) == pytest.approx(np.mean(expected), rel=0.03)


def test_a_log_loss_is_finite() -> None:
    assert np.isfinite(log_losses(np.array([[1.0, 0.0]]), np.array([1]))).all()


def test_the_error_of_a_number_is_that_of_the_prediction_within_its_bounds() -> None:
    x, y = np.array([[1.0], [0.5], [-1.0]]), np.array([[1.0], [0.25], [0.5]])
    w = np.array([3.0, 0.5])[None, :, None]  # two runs; the first one's scores are 3, 1.5 and -3
    found = own_metrics.test_error(w, Shard(x, y), Range(10.0, 50.0))
    wanted = [metrics.root_mean_squared_error([50, 20, 30], guess) for guess in ([50, 50, 10], [30, 20, 10])]
    assert found == pytest.approx(wanted)
