"""Metrics against hand-computed cases and their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taciturn.objectives import LOSSES
from taciturn.objectives.metrics import auroc, quality_metrics
from taciturn.types import Classes, Range


def test_classification_by_hand() -> None:
    scores = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0], [0.0, 5.0, 1.0], [1.0, 0.0, 0.0]])
    y = np.eye(3)[[0, 1, 1, 0]]
    found = quality_metrics(scores, y, Classes(("a", "b", "c")), LOSSES["softmax"]())
    assert found["error"] == 0.25
    assert found["confusion"] == [[2, 0, 0], [0, 1, 1], [0, 0, 0]]
    assert found["recall"]["a"] == 1.0
    assert found["recall"]["b"] == 0.5
    assert np.isnan(found["recall"]["c"])  # no record of that class
    chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert found["log_loss"] == pytest.approx(-np.log(chances[[0, 1, 2, 3], [0, 1, 1, 0]]).mean())
    assert found["auroc"] is None  # three classes
    assert quality_metrics(scores, y, Classes(("a", "b", "c")), LOSSES["hinge"]())["log_loss"] is None


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=40))
def test_auroc_counts_pairs(records: list[tuple[int, bool]]) -> None:
    score = np.array([float(s) for s, _ in records])
    positive = np.array([p for _, p in records])
    pairs = [(a, b) for a in score[positive] for b in score[~positive]]
    if not pairs:
        assert auroc(score, positive) is None
    else:
        assert auroc(score, positive) == pytest.approx(np.mean([(a > b) + 0.5 * (a == b) for a, b in pairs]))


def test_regression_is_in_the_labels_unit() -> None:
    found = quality_metrics(
        np.array([[0.1], [0.5], [0.9]]), np.array([[0.0], [0.5], [1.0]]), Range(10.0, 30.0), LOSSES["squared"]()
    )
    assert found["rmse"] == pytest.approx(20 * np.sqrt(0.02 / 3))
    assert found["r2"] == pytest.approx(1 - 0.02 / 0.5)
