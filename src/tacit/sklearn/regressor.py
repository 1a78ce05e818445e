"""The regressor."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from tacit.sklearn.declared import declared_range, needed, seen_range
from tacit.sklearn.linear import LinearModel, refuse
from tacit.types import Array, Range


class TacitRegressor(RegressorMixin, LinearModel):  # type: ignore[misc]
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
    algorithm, rounds, local_updates, clip : as in `tacit run`; None leaves them to the planner.
    ledger : file of the ledger over studies that every fit is set aside in (`tacit ledger init`).
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
