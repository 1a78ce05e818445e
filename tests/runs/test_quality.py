"""The quality of a model: its measures, intervals, thresholds, parties and baseline are consistent with each other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from taciturn.errors import InputError
from taciturn.objectives.losses import Hinge, Softmax, Squared
from taciturn.reporting.quality_tables import shown_tables
from taciturn.runs.quality import ClassificationQuality, RegressionQuality, measure_quality
from taciturn.types import Classes, Range

metrics = pytest.importorskip("sklearn.metrics")
SOFTMAX, HINGE, SQUARED = Softmax(), Hinge(), Squared()


def names(count: int) -> Classes:
    return Classes(tuple("abcdefgh"[:count]))


def drawn(seed: int, n: int, classes: int, used: int | None = None) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Scores with exact ties, and labels that are only of the first `used` classes."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(used or classes, size=n)
    return np.round(4.0 * (generator.normal(size=(n, classes)) + np.eye(classes)[labels])) / 4.0, labels


def classified(
    scores: NDArray[np.float64], labels: NDArray[np.intp], loss: Any = SOFTMAX, **options: Any
) -> ClassificationQuality:
    classes = scores.shape[1]
    found = measure_quality(scores, np.eye(classes)[labels], names(classes), loss, **options)
    assert isinstance(found, ClassificationQuality)
    return found


def regressed(predicted: NDArray[np.float64], y: NDArray[np.float64], **options: Any) -> RegressionQuality:
    found = measure_quality(predicted[:, None], y[:, None], Range(10.0, 30.0), SQUARED, **options)
    assert isinstance(found, RegressionQuality)
    return found


@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("seed", range(3))
def test_classification_is_scikit_learns(classes: int, seed: int) -> None:
    scores, labels = drawn(seed, 250, classes)
    found, predicted = classified(scores, labels), scores.argmax(axis=1)
    chances = SOFTMAX.probabilities(scores)
    average = "binary" if classes == 2 else "macro"
    measures = metrics.precision_recall_fscore_support(labels, predicted, average=average, zero_division=0)[:3]
    assert (found.precision, found.recall, found.f1) == pytest.approx(measures)
    ranked = chances[:, 1] if classes == 2 else chances
    assert found.auroc == pytest.approx(metrics.roc_auc_score(labels, ranked, multi_class="ovr"))
    assert found.log_loss == pytest.approx(metrics.log_loss(labels, chances))
    assert found.error == pytest.approx(1.0 - metrics.accuracy_score(labels, predicted))
    each = metrics.precision_recall_fscore_support(labels, predicted, zero_division=0)
    assert found.classes is not None
    for k, own in enumerate(found.classes.values()):
        assert (own.precision, own.recall, own.f1, own.records) == pytest.approx(tuple(row[k] for row in each))
    assert found.intervals is not None
    for name, (low, high) in found.intervals.items():
        assert low <= found[name] <= high, name


@pytest.mark.parametrize("seed", range(3))
def test_regression_is_scikit_learns_in_the_labels_unit(seed: int) -> None:
    generator = np.random.default_rng(seed)
    y = generator.uniform(size=80)
    predicted = y + generator.normal(0.0, 0.1, size=80)
    found, label, guess = regressed(predicted, y), 10.0 + 20.0 * y, 10.0 + 20.0 * predicted.clip(0.0, 1.0)
    assert found.rmse == pytest.approx(metrics.root_mean_squared_error(label, guess))
    assert found.mae == pytest.approx(metrics.mean_absolute_error(label, guess))
    assert found.r2 == pytest.approx(metrics.r2_score(label, guess))
    assert found.intervals is not None
    assert all(low < found[name] < high for name, (low, high) in found.intervals.items())
    assert found.baseline is not None
    assert (found.baseline.rmse, found.baseline.r2) == pytest.approx((label.std(), 0.0))


@pytest.mark.parametrize("classes", [2, 4])
def test_the_baseline_has_its_closed_form(classes: int) -> None:
    scores, labels = drawn(1, 300, classes)
    shares = np.bincount(labels, minlength=classes) / 300
    baseline = classified(scores, labels).baseline
    assert baseline is not None
    assert baseline.error == pytest.approx(1.0 - shares.max())
    assert baseline.log_loss == pytest.approx(-(shares * np.log(shares)).sum())
    spread = 1.0 - (shares**2).sum()
    assert baseline.brier == pytest.approx(spread / 2.0 if classes == 2 else spread)
    assert baseline.auroc == 0.5
    bins = classified(scores, labels).reliability
    assert bins is not None and {one.low for one in bins} <= {m / 10 for m in range(10)}
    assert baseline.calibration_error == 0.0


@pytest.mark.parametrize("classes", [2, 3])
def test_every_record_twice_changes_no_measure_and_narrows_the_intervals(classes: int) -> None:
    scores, labels = drawn(2, 120, classes)
    once, twice = classified(scores, labels), classified(np.tile(scores, (2, 1)), np.tile(labels, 2))
    assert once.intervals is not None and twice.intervals is not None
    for name, (low, high) in twice.intervals.items():
        assert twice[name] == pytest.approx(once[name])
        assert high - low < once.intervals[name][1] - once.intervals[name][0]
    assert twice.calibration_error == pytest.approx(once.calibration_error)


def test_intervals_of_means_over_classes_cover_them() -> None:
    """Those of precision and recall, which are independent from class to class, are not wider than they must be."""

    def draw(generator: np.random.Generator, n: int) -> ClassificationQuality:
        labels = generator.choice(3, size=n, p=[0.6, 0.3, 0.1])
        return classified(generator.normal(size=(n, 3)) + 1.5 * np.eye(3)[labels], labels)

    generator = np.random.default_rng(0)
    truth, found = draw(generator, 100_000), [draw(generator, 200) for _ in range(400)]
    for name in ("precision", "recall", "f1", "auroc"):
        intervals = [one.intervals[name] for one in found if one.intervals is not None]
        covered = np.mean([low <= truth[name] <= high for low, high in intervals])
        assert 0.93 <= covered <= (0.975 if name in {"precision", "recall"} else 1.0), name


@pytest.mark.parametrize(("classes", "used"), [(2, 1), (3, 1), (3, 2)])
@pytest.mark.parametrize("loss", [SOFTMAX, HINGE, SQUARED])
@pytest.mark.parametrize("n", [1, 40])
def test_a_class_without_records_has_no_recall_and_breaks_nothing(classes: int, used: int, loss: Any, n: int) -> None:
    scores, labels = drawn(3, n, classes, used)
    found = classified(scores, labels, loss)
    assert found.classes is not None
    assert found.classes[names(classes).names[-1]].recall is None
    assert (found.auroc is None) == (len(np.unique(labels)) == 1)
    assert (found.log_loss is None) == (loss is not SOFTMAX)
    assert len(shown_tables(found)) >= 2
    assert ClassificationQuality.from_json(found.to_json(), "x") == found
    present = np.unique(labels)
    if classes > 2:  # means are over the classes that have records
        expected = metrics.recall_score(labels, scores.argmax(axis=1), labels=present, average="macro")
        assert found.recall == pytest.approx(expected)


def test_records_survive_json() -> None:
    scores, labels = drawn(4, 60, 2)
    parties = {"north": np.arange(20), "south": np.arange(20, 60), "none": np.arange(0)}
    found = classified(scores, labels, parties=parties)
    assert ClassificationQuality.from_json(found.to_json(), "x") == found
    assert found.parties is not None
    assert list(found.parties) == ["north", "south"]  # who has no records is left out
    numbers = regressed(scores[:, 0], labels / 2.0, parties=parties)
    assert RegressionQuality.from_json(numbers.to_json(), "x") == numbers


def test_a_party_is_measured_as_if_it_were_alone() -> None:
    scores, labels = drawn(5, 90, 2)
    rows = np.arange(10, 50)
    found, alone = classified(scores, labels, parties={"p": rows}), classified(scores[rows], labels[rows])
    assert found.parties is not None
    assert dict(found.parties["p"]) == {name: alone[name] for name in found.parties["p"]}


def test_thresholds_trade_recall_for_precision_and_the_chosen_one_decides() -> None:
    scores, labels = drawn(6, 400, 2)
    found = classified(scores, labels, threshold=0.25)
    assert found.thresholds is not None
    assert [row.threshold for row in found.thresholds] == sorted({0.25, *(i / 10 for i in range(1, 10))})
    recalls = [row.recall or 0.0 for row in found.thresholds]
    specificities = [row.specificity or 0.0 for row in found.thresholds]
    assert recalls == sorted(recalls, reverse=True) and specificities == sorted(specificities)
    own = next(row for row in found.thresholds if row.threshold == 0.25)
    assert (found.precision, found.recall, found.f1) == (own.precision, own.recall, own.f1)
    assert sum(row[1] for row in found.confusion) == own.flagged
    chance = SOFTMAX.probabilities(scores)[:, 1]
    assert own.recall == pytest.approx(metrics.recall_score(labels, chance >= 0.25))
    assert found.auroc == classified(scores, labels).auroc  # ranks records, whatever is predicted


def test_the_positive_class_is_a_choice() -> None:
    scores, labels = drawn(7, 100, 2)
    found, other = classified(scores, labels), classified(scores, labels, positive="a")
    assert (found.positive, other.positive) == ("b", "a")
    assert found.classes is not None
    assert other.recall == found.classes["a"].recall
    assert (other.auroc, other.brier) == pytest.approx((found.auroc, found.brier))


@pytest.mark.parametrize(
    ("names", "given", "found"),
    [
        (("0", "1"), 0, "0"),
        (("0", "1"), np.int64(1), "1"),
        (("False", "True"), False, "False"),
        (("false", "true"), np.bool_(True), "true"),
    ],
)
def test_the_positive_class_may_be_given_as_a_frame_has_it(names: tuple[str, str], given: Any, found: str) -> None:
    scores, labels = drawn(7, 100, 2)
    quality = measure_quality(scores, np.eye(2)[labels], Classes(names), SOFTMAX, positive=given)
    assert isinstance(quality, ClassificationQuality)
    assert quality.positive == found


@pytest.mark.parametrize(
    ("options", "classes", "loss", "words"),
    [
        ({"threshold": 1.5}, 2, SOFTMAX, "threshold is 1.5: it must be a number from 0 to 1"),
        ({"threshold": "0.5"}, 2, SOFTMAX, "threshold is '0.5': it must be a number"),
        ({"threshold": math.nan}, 2, SOFTMAX, "threshold is nan"),
        ({"threshold": 0.5}, 3, SOFTMAX, "two classes"),
        ({"threshold": 0.5}, 2, HINGE, "probabilities"),
        ({"positive": "x"}, 2, SOFTMAX, "class 'x'"),
        ({"positive": "a"}, 3, SOFTMAX, "3 classes"),
    ],
)
def test_what_cannot_be_measured_is_refused(options: dict[str, Any], classes: int, loss: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        classified(*drawn(8, 20, classes), loss, **options)


def test_numbers_have_no_threshold() -> None:
    with pytest.raises(InputError, match="the label is a number"):
        regressed(np.zeros(3), np.ones(3), threshold=0.5)
    assert regressed(np.zeros(3), np.ones(3)).r2 is None  # all labels are equal
