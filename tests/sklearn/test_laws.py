"""Laws of every fit: the same records give the same model, and without noise it is the optimum."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge

from taciturn.errors import InputError
from taciturn.sklearn import TaciturnClassifier, TaciturnRegressor
from tests.sklearn.helpers import classifier, exact, linear, problem, regressor, values


def with_ones(x: Any) -> Any:
    return np.column_stack([x, np.ones(len(x))])


def scores(model: Any, x: Any) -> Any:
    return model.decision_function(x) if isinstance(model, TaciturnClassifier) else model.predict(x)


@pytest.mark.parametrize("parties", [1, 3])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_classifier_without_noise_is_logistic_regression(classes: int, parties: int) -> None:
    """C = 1 / (n alpha), and half of it for three classes: two classes share one vector, v/2 and -v/2."""
    x, y, agents = problem(classes=classes)
    model = linear().fit(x, y, agents=agents if parties > 1 else None)
    c = 1.0 / (len(x) * 0.01) / (1 if classes == 2 else 2)
    best = LogisticRegression(C=c, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(with_ones(x), y)
    np.testing.assert_allclose(np.column_stack([model.coef_, model.intercept_]), best.coef_, atol=1e-3)
    np.testing.assert_allclose(model.predict_proba(x), best.predict_proba(with_ones(x)), atol=1e-3)
    np.testing.assert_array_equal(model.predict(x), best.predict(with_ones(x)))


@pytest.mark.parametrize("parties", [1, 3])
def test_a_regressor_without_noise_is_ridge(parties: int) -> None:
    """Its alpha is 2 n times ours, of a label scaled to [0, 1]."""
    x, _, agents = problem()
    y = values(x)
    model = linear(TaciturnRegressor, label_bounds=(0, 50)).fit(x, y, agents=agents if parties > 1 else None)
    best = Ridge(alpha=2.0 * len(x) * 0.01, fit_intercept=False).fit(with_ones(x), y / 50.0)
    np.testing.assert_allclose([*model.coef_, model.intercept_], 50.0 * best.coef_, atol=1e-3)
    assert model.score(x, y) == pytest.approx(1.0, abs=0.1)


def test_coefficients_are_in_the_users_units() -> None:
    x, y, _ = problem()
    units, shift = np.array([1.0, 100.0, 1e-3]), np.array([0.0, 7.0, -5.0])
    plain, moved = linear(bounds=None).fit(x, y), linear(bounds=None).fit(x * units + shift, y)
    np.testing.assert_allclose(moved.coef_ * units, plain.coef_, rtol=1e-4)
    np.testing.assert_allclose(moved.decision_function(x * units + shift), plain.decision_function(x), atol=1e-4)
    through_zero = linear(bounds=[(0, 2), (-3, 1), (0, 1)], fit_intercept=False).fit(np.abs(x), y)
    np.testing.assert_array_equal(through_zero.intercept_, 0.0)
    np.testing.assert_array_equal(through_zero.decision_function(np.zeros((1, 3))), 0.0)


def test_beyond_declared_bounds_a_value_is_the_bound() -> None:
    x, y, _ = problem()
    inside = np.clip(x, -0.2, 0.5)
    for intercept in (True, False):
        narrow = linear(bounds=(-0.2, 0.5), fit_intercept=intercept).fit(x, y)
        clipped = linear(bounds=(-0.2, 0.5), fit_intercept=intercept).fit(inside, y)
        np.testing.assert_array_equal(narrow.coef_, clipped.coef_)
        np.testing.assert_array_equal(narrow.decision_function(x), narrow.decision_function(inside))
    labels = [values(x), np.clip(values(x), 20, 30)]
    low, clipped = (linear(TaciturnRegressor, label_bounds=(20, 30)).fit(x, label) for label in labels)
    np.testing.assert_array_equal(low.coef_, clipped.coef_)
    seen = linear(bounds=None).fit(x, y)  # ranges that nobody declared are no part of the model
    ends = seen.decision_function(np.array([[1.0, 0, 0], [3.0, 0, 0], [5.0, 0, 0]]))
    assert ends[1] - ends[0] == pytest.approx(ends[2] - ends[1]) != 0.0


@pytest.mark.filterwarnings("ignore::taciturn.sklearn.PrivacyWarning")  # all of them have one account
@pytest.mark.parametrize("model", [classifier(random_state=3), regressor(random_state=3)])
def test_the_form_of_the_records_does_not_matter(model: Any) -> None:
    """Sparse records and frames give the same model to the bit; rows in another order, up to rounding."""
    x, y, agents = problem()
    y = y if isinstance(model, TaciturnClassifier) else values(x)
    x[x < -0.2] = 0.0
    names = ["age", "dose", "days"]
    fitted = model.fit(x, y, agents=agents)
    predicted = scores(fitted, x)
    np.testing.assert_allclose(scores(pickle.loads(pickle.dumps(fitted)), sparse.csc_array(x)), predicted, rtol=1e-12)
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    frames = (pandas.DataFrame(x, columns=names), polars.DataFrame(x, names))
    for form in (sparse.csr_matrix(x), sparse.coo_array(x), *frames):
        again = pickle.loads(pickle.dumps(model)).set_params(bounds=[(-1, 1)] * 3)
        again.fit(form, polars.Series(y) if form is frames[1] else y, agents=list(agents))
        np.testing.assert_array_equal(scores(again, form), predicted)
        if not sparse.issparse(form):
            assert list(again.feature_names_in_) == names
    order = np.random.default_rng(5).permutation(len(x))
    np.testing.assert_allclose(scores(model.fit(x[order], y[order], agents=agents[order]), x), predicted, rtol=1e-9)


def test_bounds_may_be_given_by_name() -> None:
    x, y, _ = problem()
    frame = pytest.importorskip("pandas").DataFrame(x, columns=["age", "dose", "days"])
    named = exact(bounds={"days": (-1, 1), "age": (-2, 2), "dose": (-3, 3)}).fit(frame, y)
    ordered = exact(bounds=[(-2, 2), (-3, 3), (-1, 1)]).fit(x, y)
    np.testing.assert_array_equal(named.decision_function(frame), ordered.decision_function(x))
    for bounds, records, sentence in (
        ({"age": (0, 1)}, frame, "bounds lacks 2 of the 3 numeric columns"),
        ({"agee": (0, 1)}, frame, "bounds: no column 'agee' among the 3 of X"),
        ({"age": (0, 1)}, x, "no names"),
        ((1, 0), frame, r"bounds of feature 0 is \(1, 0\)"),
        ([(0, 1)] * 2, x, "or such a pair for each of the 3"),
        ("wide", x, "it must be"),
    ):
        with pytest.raises(InputError, match=sentence):
            exact(bounds=bounds).fit(records, y)


@pytest.mark.parametrize("names", [["no", "yes"], [False, True], [7, 3], [2.0, 1.0]])
def test_classes_are_of_any_type(names: list[Any]) -> None:
    x, y, _ = problem()
    labels = np.array(names)[y]
    model = classifier(100.0, classes=names, random_state=1).fit(x, labels)
    np.testing.assert_array_equal(model.classes_, np.unique(names))
    assert model.score(x, labels) > 0.8
    with pytest.raises(InputError, match="a label that is not among the classes: y, z"):
        classifier(classes=["y", "z"], random_state=1).fit(x, labels)


@pytest.mark.parametrize("penalty", ["l2", "l1"])
@pytest.mark.parametrize("loss", ["softmax", "hinge", "squared"])
def test_every_loss_and_penalty_learns(loss: str, penalty: str) -> None:
    x, y, agents = problem(classes=3)
    model = exact(loss=loss, penalty=penalty, alpha=1e-4).fit(x, y, agents=agents)
    assert model.score(x, y) > 0.8
    assert hasattr(model, "predict_proba") == (loss == "softmax")
