"""Estimates from noisy sums: right without noise, and as far off as their standard errors say with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from taciturn.objectives.losses import LOSSES, Softmax
from taciturn.objectives.metrics import auroc, log_losses
from taciturn.objectives.private_measures import MeasureLayout, summed_measures
from taciturn.runs.private_quality import (
    Estimate,
    NoisySums,
    PrivateClassification,
    PrivateQuality,
    PrivateRegression,
    estimate_quality,
)
from taciturn.runs.records import EvaluationRow
from taciturn.types import Array, Classes, Range, Target

NAMES = Classes(tuple("abcdefghij"))
TRIALS = 120


@dataclass(frozen=True)
class Population:
    """Records of a known law: scores, and labels that are drawn by sharper or flatter probabilities than predicted."""

    classes: int
    sharpness: float
    overconfident: float

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.intp]]:
        true = self.sharpness * rng.normal(size=(n, self.classes))
        chances = np.exp(true) / np.exp(true).sum(axis=1, keepdims=True)
        labels = (chances.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
        return self.overconfident * true, labels


def layout_of(classes: int, loss: str = "softmax") -> MeasureLayout:
    return MeasureLayout.of(max(1, classes), classes > 0, LOSSES[loss]())


def sums(scores: Array, y: Array, layout: MeasureLayout, loss: str = "softmax") -> Array:
    found: Array = summed_measures(scores, y, layout, LOSSES[loss](), 20) / 2.0**20
    return found


def truth(scores: Array, labels: NDArray[np.intp], layout: MeasureLayout) -> dict[str, float]:
    """The measures themselves, on these records."""
    chances = Softmax().probabilities(scores)
    k, n = scores.shape[1], len(labels)
    chance, came_true = chances.max(axis=1), scores.argmax(axis=1) == labels
    if k == 2:
        chance, came_true = chances[:, 1], labels == 1
    bins = np.searchsorted(layout.edges[1:-1], chance)
    shares = np.bincount(labels, minlength=k) / n
    return {
        "error": float((scores.argmax(axis=1) != labels).mean()),
        "log_loss": float(np.minimum(log_losses(chances, labels), layout.loss_limit).mean()),
        "calibration_error": sum(abs(float((chance - came_true)[bins == b].sum())) for b in range(layout.edges.size))
        / n,
        "baseline_error": float(1.0 - shares.max()),
        "baseline_log_loss": -float(shares[shares > 0] @ np.log(shares[shares > 0])),
    } | ({"auroc": auroc(scores[:, 1] - scores[:, 0], labels == 1) or 0.0} if k == 2 else {})


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_without_noise_the_estimates_are_the_measures(classes: int) -> None:
    layout, rng = layout_of(classes), np.random.default_rng(classes)
    scores, labels = Population(classes, 2.0, 1.5).draw(5000, rng)
    found = estimate_quality(NoisySums(layout, sums(scores, np.eye(classes)[labels], layout), 0.0), NAMES)
    assert isinstance(found, PrivateClassification)
    assert found.records == Estimate(value=5000.0, noise=0.0)
    near = {"log_loss": 1e-4, "calibration_error": 0.01, "auroc": 0.005}  # grids, and bins
    for name, value in truth(scores, labels, layout).items():
        estimate = getattr(found, name)
        assert estimate.value == pytest.approx(value, abs=near.get(name, 1e-9)), name
        assert estimate.noise == pytest.approx(0.0, abs=1e-12), name
    assert found.confusion is not None and sum(map(sum, found.confusion)) == 5000
    assert found.reliability is not None and sum(one.records for one in found.reliability) == 5000


@pytest.mark.parametrize(
    ("population", "records", "sigma"),
    [
        (Population(2, 2.0, 1.5), 3000, 8.0),
        (Population(2, 5.0, 1.0), 10_000, 30.0),
        (Population(10, 2.0, 1.0), 10_000, 8.0),
        (Population(10, 3.0, 1.5), 3000, 8.0),
        (Population(3, 1.0, 2.0), 1000, 8.0),
    ],
)
def test_standard_errors_cover_what_they_should(population: Population, records: int, sigma: float) -> None:
    """1.96 standard errors of the noise around the measure on the records, and of both around that of all records."""
    k, rng = population.classes, np.random.default_rng(7)
    layout = layout_of(k)
    of_all = truth(*population.draw(100_000, rng), layout)
    noise: dict[str, list[bool]] = {}
    both: dict[str, list[bool]] = {}
    for _ in range(TRIALS):
        scores, labels = population.draw(records, rng)
        exact, here = sums(scores, np.eye(k)[labels], layout), truth(scores, labels, layout)
        found = estimate_quality(NoisySums(layout, exact + sigma * rng.normal(size=len(exact)), sigma), NAMES)
        for name, value in here.items():
            estimate: Estimate | None = getattr(found, name)
            if estimate is not None:
                noise.setdefault(name, []).append(abs(estimate.value - value) <= 1.96 * estimate.noise)
                both.setdefault(name, []).append(abs(estimate.value - of_all[name]) <= 1.96 * estimate.error)
    covered = {name: float(np.mean(hits)) for name, hits in noise.items()}
    assert covered.keys() == of_all.keys()
    least = dict.fromkeys(covered, 0.9) | {"calibration_error": 0.8, "baseline_error": 0.85}  # bins; the largest of k
    assert {name: share for name, share in covered.items() if share < least[name]} == {}
    assert all(np.mean(both[name]) >= 0.9 for name in ("error", "log_loss", *(["auroc"] if k == 2 else [])))
    assert all(np.mean(noise[name]) <= 0.995 for name in ("error", "log_loss"))  # nor are they too wide


@pytest.mark.parametrize(("records", "sigma", "spread"), [(500, 4.0, 0.1), (5000, 8.0, 0.2), (20_000, 30.0, 0.05)])
def test_a_regression_is_covered_too(records: int, sigma: float, spread: float) -> None:
    layout, target, rng = layout_of(0, "squared"), Range(-10.0, 30.0), np.random.default_rng(3)
    unit, hits = 40.0, {name: list[bool]() for name in ("rmse", "mae", "r2", "baseline_rmse")}
    for _ in range(TRIALS):
        y = rng.beta(2.0, 5.0, size=(records, 1))
        scores = y + spread * rng.normal(size=(records, 1))
        exact = sums(scores, y, layout, "squared")
        found = estimate_quality(NoisySums(layout, exact + sigma * rng.normal(size=5), sigma), target)
        errors = np.clip(scores, 0.0, 1.0) - y
        square = float((errors**2).mean())
        values = {
            "rmse": unit * math.sqrt(square),
            "mae": unit * float(np.abs(errors).mean()),
            "r2": 1.0 - square / float(y.var()),
            "baseline_rmse": unit * float(y.std()),
        }
        for name, value in values.items():
            estimate: Estimate | None = getattr(found, name)
            if estimate is not None:
                hits[name].append(abs(estimate.value - value) <= 1.96 * estimate.noise)
    assert len(hits["rmse"]) == len(hits["mae"]) == TRIALS
    shown = {name: np.mean(found) for name, found in hits.items() if len(found) > TRIALS / 2}
    assert {name: share for name, share in shown.items() if share < 0.9} == {}


def test_too_few_records_say_nothing() -> None:
    """Nothing is divided by a count that may be noise alone, whatever the noise is."""
    rng = np.random.default_rng(5)
    for classes, target in ((2, NAMES), (10, NAMES), (0, Range(0.0, 1.0))):
        layout = layout_of(classes, "softmax" if classes else "squared")
        for _ in range(50):
            found: Any = estimate_quality(NoisySums(layout, 9.0 * rng.normal(size=layout.size), 9.0), target)
            values = [value for value in vars(found).values() if isinstance(value, Estimate)]
            assert all(math.isfinite(one.value) and math.isfinite(one.noise) for one in values)
            if found.records.value < 3.0 * found.records.noise:
                assert values == [found.records]
        with np.errstate(all="raise"):
            assert estimate_quality(NoisySums(layout, np.zeros(layout.size), 0.0), target).records.value == 0.0


@pytest.mark.parametrize("value", [5e14, -5e14, 1e9])  # of 64 bits, in units
def test_a_dishonest_sum_gives_no_error_of_the_program(value: float) -> None:
    """One site can spoil a secure sum; what is shown is then wrong, and nothing else."""
    for classes, target in ((2, NAMES), (3, NAMES), (0, Range(0.0, 1.0))):
        layout = layout_of(classes, "softmax" if classes else "squared")
        for place in range(layout.size):
            values = np.full(layout.size, 100.0)
            values[place] = value
            found = estimate_quality(NoisySums(layout, values, 1.0), target)
            assert isinstance(found, PrivateQuality)


def test_a_row_survives_the_file() -> None:
    layout = layout_of(2)
    for quality in (None, estimate_quality(NoisySums(layout, np.full(layout.size, 50.0), 1.0), NAMES)):
        row = EvaluationRow(run=0, algorithm="dpgd", epsilon=1.0, round=3, agents=5, quality=quality, slot="0/4")
        assert EvaluationRow.from_json(row.to_json(), "a test") == row


def test_classes_and_numbers_are_told_apart_in_a_file() -> None:
    for target, kind in ((Classes(("a", "b")), PrivateClassification), (Range(0.0, 1.0), PrivateRegression)):
        given: Target = target
        layout = layout_of(
            2 if kind is PrivateClassification else 0, "softmax" if kind is PrivateClassification else "squared"
        )
        for size in (0.0, 50.0):
            quality = estimate_quality(NoisySums(layout, np.full(layout.size, size), 1.0), given)
            row = EvaluationRow(run=0, algorithm="dpgd", epsilon=1.0, round=3, agents=5, quality=quality)
            assert type(EvaluationRow.from_json(row.to_json(), "a test").quality) is kind
