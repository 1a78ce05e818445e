"""The estimators: TaciturnClassifier and TaciturnRegressor."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from taciturn.errors import InputError
from taciturn.objectives.losses import Softmax
from taciturn.sklearn.declared import class_numbers, declared_range, needed, seen_range
from taciturn.sklearn.linear import LinearModel, refuse
from taciturn.types import Array, Classes, Range


def _has_probabilities(model: TaciturnClassifier) -> bool:
    """Whether the loss fits a model of probabilities."""
    return model.loss == "softmax"


class TaciturnClassifier(ClassifierMixin, LinearModel):  # type: ignore[misc]
    """A linear classifier of several parties' records, with a total privacy budget.

    Parameters
    ----------
    total_epsilon, delta : the privacy budget of one whole fit; `inf` trains without noise and without privacy.
    bounds : (low, high) for all features, a pair for each in order, or by name for a data frame: what is known of them
        without looking at the records. Values beyond are clipped, in `fit` and in `predict`.
    classes : the labels that can occur.
    total_records : a round number of records that the parties agree to state; no party may have more.
    loss : softmax, hinge or squared.
    penalty, alpha : l2 (the sum of squares) or l1, and its weight beside the mean loss; of the coefficients of features
        scaled to [-1, 1], and of the intercept.
    fit_intercept : whether there is a constant.
    algorithm, rounds, local_updates, clip : as in `taciturn run`; None leaves them to the planner. hidden needs a
        random_state.
    ledger : file of the ledger over studies that every fit is set aside in (`taciturn ledger init`).
    max_records : of the rows of one unit (see `fit`) at one party, the first this many are used; the noise covers them.
    random_state : None draws noise from the operating system; a number makes a simulation that can be repeated.

    Attributes
    ----------
    coef_, intercept_ : in the units of the features; of class 1 where there are two classes.
    classes_ : the labels.
    privacy_spent_ : the cost of the fit, and of all fits so far.
    ledger_ : the fit's events with their totals.
    bounds_ : the declared bounds, or None.
    n_iter_ : the rounds that were made.
    n_features_in_, feature_names_in_ : of the records.
    """

    def __init__(
        self,
        total_epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        bounds: Any = None,
        classes: Any = None,
        total_records: int | None = None,
        loss: str = "softmax",
        penalty: str = "l2",
        alpha: float = 1e-6,
        fit_intercept: bool = True,
        algorithm: str | None = None,
        rounds: int | None = None,
        local_updates: int | None = None,
        clip: float | None = None,
        ledger: Any = None,
        max_records: int = 1,
        random_state: Any = None,
    ) -> None:
        self.total_epsilon = total_epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.total_records = total_records
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.rounds = rounds
        self.local_updates = local_updates
        self.clip = clip
        self.ledger = ledger
        self.max_records = max_records
        self.random_state = random_state

    def fit(self, X: Any, y: Any, agents: Any = None, groups: Any = None, **metadata: Any) -> Self:
        """Train on records X [n, J] with labels y [n]; `agents` names the party that holds each of them.

        `groups` names the person, or other unit, whose each row is: whole units are protected. Without it rows that are
        the same to the last bit, label included, count as one record that was given several times.
        """
        refuse(metadata)
        x, y = self._inputs(X, y)
        check_classification_targets(y)
        classes = self._classes(y)
        names = Classes(tuple(map(str, classes)))
        parameters = self._fit(x, class_numbers(y, classes), names, self.loss, agents, groups)
        if len(classes) == 2:
            parameters = parameters[1:] - parameters[:1]
        self.classes_, self.coef_, self.intercept_ = classes, parameters[:, :-1], parameters[:, -1]
        return self

    @property
    def _intercept(self) -> bool:  # type: ignore[override]
        return self.fit_intercept

    def decision_function(self, X: Any) -> Array:
        """The score of every class, [n, K]; with two classes how much the second leads, [n]."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the highest score."""
        scores = self.decision_function(X)
        best = (scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[best]
        return predicted

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """The chance of every class, [n, K]; loss softmax alone has a model of it."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros_like(scores), scores])
        return Softmax().probabilities(scores)

    def _classes(self, y: NDArray[Any]) -> NDArray[Any]:
        if self.classes is None and self._private:
            raise needed("classes", self.total_epsilon, "which labels occur among the records is private")
        classes = np.unique(y if self.classes is None else np.asarray(self.classes))
        if len(classes) < 2:
            raise InputError(f"there is only one class, {classes[0]}: a classifier needs at least two")
        return classes


class TaciturnRegressor(RegressorMixin, LinearModel):  # type: ignore[misc]
    """Least squares on several parties' records, with a total privacy budget.

    Parameters
    ----------
    total_epsilon, delta : the privacy budget of one whole fit; `inf` trains without noise and without privacy.
    bounds : (low, high) for all features, a pair for each in order, or by name for a data frame: what is known of them
        without looking at the records. Values beyond are clipped, in `fit` and in `predict`.
    label_bounds : (low, high) of y; labels beyond are clipped.
    total_records : a round number of records that the parties agree to state; no party may have more.
    penalty, alpha : l2 (the sum of squares) or l1, and its weight beside half the mean squared error; of the
        coefficients of features scaled to [-1, 1] and a label scaled to [0, 1], and of the intercept.
    algorithm, rounds, local_updates, clip : as in `taciturn run`; None leaves them to the planner.
    ledger : file of the ledger over studies that every fit is set aside in (`taciturn ledger init`).
    max_records : of the rows of one unit (see `fit`) at one party, the first this many are used; the noise covers them.
    random_state : None draws noise from the operating system; a number makes a simulation that can be repeated.

    Attributes
    ----------
    coef_, intercept_ : in the units of the features and the label.
    privacy_spent_ : the cost of the fit, and of all fits so far.
    ledger_ : the fit's events with their totals.
    bounds_ : the declared bounds, or None.
    n_iter_ : the rounds that were made.
    n_features_in_, feature_names_in_ : of the records.
    """

    def __init__(
        self,
        total_epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        bounds: Any = None,
        label_bounds: Any = None,
        total_records: int | None = None,
        penalty: str = "l2",
        alpha: float = 1e-6,
        algorithm: str | None = None,
        rounds: int | None = None,
        local_updates: int | None = None,
        clip: float | None = None,
        ledger: Any = None,
        max_records: int = 1,
        random_state: Any = None,
    ) -> None:
        self.total_epsilon = total_epsilon
        self.delta = delta
        self.bounds = bounds
        self.label_bounds = label_bounds
        self.total_records = total_records
        self.penalty = penalty
        self.alpha = alpha
        self.algorithm = algorithm
        self.rounds = rounds
        self.local_updates = local_updates
        self.clip = clip
        self.ledger = ledger
        self.max_records = max_records
        self.random_state = random_state

    def fit(self, X: Any, y: Any, agents: Any = None, groups: Any = None, **metadata: Any) -> Self:
        """Train on records X [n, J] with values y [n]; `agents` names the party that holds each of them.

        `groups` names the person, or other unit, whose each row is: whole units are protected. Without it rows that are
        the same to the last bit, label included, count as one record that was given several times.
        """
        refuse(metadata)
        x, y = self._inputs(X, y, y_numeric=True)
        values = y.astype(np.float64)
        target = self._range(values)
        slopes = (target.high - target.low) * self._fit(x, values, target, "squared", agents, groups)[0]
        self.coef_, self.intercept_ = slopes[:-1], target.low + float(slopes[-1])
        return self

    def predict(self, X: Any) -> Array:
        """X coef_ + intercept_."""
        return self._scores(X)

    def _range(self, y: NDArray[np.float64]) -> Range:
        if self.label_bounds is not None:
            return declared_range(self.label_bounds)
        if self._private:
            raise needed("label_bounds", self.total_epsilon, "a range read off the labels would tell of them")
        return seen_range(y)
