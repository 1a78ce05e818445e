"""What both estimators share: parameters become settings, records become a study, and clones share their history."""

from __future__ import annotations

import math
import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from taciturn.algorithms import ALGORITHMS
from taciturn.core.arrays import row_blocks
from taciturn.errors import InputError
from taciturn.settings import Settings
from taciturn.settings.rules import real
from taciturn.sklearn.declared import declared_bounds, observed_bounds, undeclared
from taciturn.sklearn.fit_history import FitHistory, PrivacyWarning, privacy_spent
from taciturn.sklearn.fitting import (
    FitData,
    assign_parties,
    in_user_units,
    noiseless_settings,
    privacy_units,
    study_settings,
    train,
)
from taciturn.types import Array, Target

RESEEDED = (
    "random_state was set on a clone of an estimator whose noise comes from the operating system. BaggingClassifier "
    "and other ensembles do that to every estimator, and noise from a 31-bit seed gives no protection. Give the "
    "estimator itself a random_state, which makes all of it a simulation, or fit it without an ensemble"
)
NO_WEIGHTS = (
    "sample_weight is refused: a weight would change how much one record can change the model, to which the noise is "
    "scaled; repeat or leave out records before you state total_records"
)
SNAPSHOT = (
    "this estimator comes from another process, or from a file. What it spends would be forgotten there, and what "
    "others spend would be unknown here: give ledger=PATH, or n_jobs=1 in a search; a new estimator starts at zero"
)


class LinearModel(BaseEstimator):  # type: ignore[misc]
    """Base class of the estimators: a linear model trained among parties."""

    _cloned = False
    _system_noise = False  # whether it is a clone of an estimator whose noise comes from the operating system
    _intercept = True

    @property
    def _private(self) -> bool:
        """Whether the budget is finite."""
        return math.isfinite(real(0.0, infinite=True)("total_epsilon", self.total_epsilon))

    def _validate(self, X: Any, y: Any, **checks: Any) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Return records and labels as dense arrays, and remember the names of the features."""
        x, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, **checks)
        return _dense(x), y

    def _fit(
        self, x: NDArray[np.float64], labels: NDArray[Any], target: Target, loss: str, agents: Any, groups: Any
    ) -> Array:
        """Train, record the cost, and return coefficients and constants, [K, J + 1]."""
        parties = assign_parties(agents, len(x))
        settings = self._settings(x, loss, len(parties.names))
        bounds = self._bounds(x)
        units = privacy_units(groups, len(x), self.max_records)
        known = observed_bounds(x) if bounds is None else bounds
        data = FitData(settings, x, labels, known, target, parties, units if self._private else None)
        history = self._shared_history()
        self._warn_about_total(history)
        trained, account = train(data)
        self._warn_about_left_out(data)
        history.costs.append(trained.ledger.cost())
        history.units.append(data.facts.unit)
        if self._private and settings.noise == "seeded":
            history.seeds.append((settings.seed, settings.algorithm, settings.total_epsilon))
        self.ledger_ = trained.ledger.totals
        self.privacy_spent_ = privacy_spent(self.ledger_, history, account)
        self.bounds_, self.n_iter_ = bounds, trained.rounds
        self._history, self._cloned = history, False
        return np.column_stack(in_user_units(trained.w, data))

    def _settings(self, x: NDArray[np.float64], loss: str, agents: int) -> Settings:
        private = self._private
        if private and self.total_records is None:
            why = "the number of records is private; a round number that the parties agree on is enough"
            raise undeclared("total_records", self.total_epsilon, why)
        seeded = self.random_state is not None or not private
        if private and seeded and self._system_noise:
            raise InputError(RESEEDED)
        _check_noise(self.algorithm, seeded)
        self._check_ledger(private)
        given = {
            "name": type(self).__name__,
            "total_epsilon": (self.total_epsilon,),
            "delta": self.delta,
            "loss": loss,
            "regulariser": self.penalty,
            "beta": self.alpha,
            "intercept": self._intercept,
            "rounds": self.rounds,
            "local_updates": self.local_updates,
            "clip": self.clip,
            "algorithm": None if self.algorithm is None else (self.algorithm,),
            "noise": "seeded" if seeded else "hardened",
            "seed": _seed(self.random_state) if seeded else None,
            "ledger": self.ledger,
            "agents": agents,
            "total_records": len(x) if self.total_records is None else self.total_records,
        }
        settings = study_settings(given)
        if private:
            return settings
        best = noiseless_settings(settings, self.algorithm, x.shape[1] + settings.intercept, agents)
        return study_settings(given | {name: value for name, value in best.items() if given.get(name) is None})

    def _bounds(self, x: NDArray[np.float64]) -> NDArray[np.float64] | None:
        if self.bounds is not None:
            return declared_bounds(self.bounds, x.shape[1], getattr(self, "feature_names_in_", None))
        if self._private:
            raise undeclared("bounds", self.total_epsilon, "ranges taken from the records would reveal them")
        return None

    def _check_ledger(self, private: bool) -> None:
        if self.ledger is None:
            return
        if not private:
            raise InputError("total_epsilon is inf, which has no cost that a ledger could record: leave ledger None")
        if self.random_state is not None:
            raise InputError(
                "a ledger counts noise that protects, and noise from a known random_state can be subtracted: "
                "leave random_state None, or ledger"
            )

    def _warn_about_total(self, history: FitHistory) -> None:
        """Warn once that fits add up; refuse a fit whose cost would be forgotten."""
        if not self._private:
            return
        if history.is_snapshot and self.ledger is None:
            raise InputError(SNAPSHOT)
        if (self._cloned or history.costs) and not history.warned:
            history.warned = True
            warnings.warn(
                "every fit of a search, of cross-validation or of the same estimator spends its own budget, "
                f"total_epsilon={self.total_epsilon:g} here, and they add up: see privacy_spent_.all_fits_epsilon; "
                "scores on private records have no noise, so they are only for the owner of the records",
                PrivacyWarning,
                stacklevel=4,
            )

    def _warn_about_left_out(self, data: FitData) -> None:
        """Tell the owner of the records how many rows were not used; the number is not stored."""
        if not data.left_out:
            return
        if data.units and data.units.of is not None:
            why = f"max_records={self.max_records} rows of each {data.facts.unit} are used"
        else:
            why = (
                f"identical rows count as one record, and max_records={self.max_records} of them are used; "
                "groups=range(len(X)) says that they are different persons"
            )
        warnings.warn(f"{data.left_out} of {len(data.x)} rows were left out: {why}", stacklevel=4)

    def _shared_history(self) -> FitHistory:
        """Return the fits of this estimator, its clones and its copies."""
        history: FitHistory = vars(self).get("_history") or FitHistory.start()
        return history

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with the history, so that an estimator restored in this process shares it."""
        self._history = self._shared_history()
        state: dict[str, Any] = super().__getstate__()
        return state

    def __sklearn_clone__(self) -> Self:
        """Return a clone that shares the history and knows where its noise was to come from."""
        copy: Self = super().__sklearn_clone__()
        self._history = copy._history = self._shared_history()
        copy._cloned, copy._system_noise = True, self._system_noise or self.random_state is None
        return copy

    def _scores(self, X: Any) -> Array:
        """Return X coef_ᵀ + intercept_, [n, K] or [n]; values outside declared bounds are clipped as in training."""
        check_is_fitted(self)
        x = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        blocks = [self._block_scores(_dense(x[rows])) for rows in row_blocks(x.shape[0], 8 * x.shape[1])]
        return np.concatenate(blocks)

    def _block_scores(self, x: NDArray[np.float64]) -> Array:
        clipped = x if self.bounds_ is None else np.clip(x, *self.bounds_.T)
        scores: Array = clipped @ self.coef_.T + self.intercept_
        return scores

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: sparse records are accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def check_metadata(metadata: dict[str, Any]) -> None:
    """Raise if `fit` got an argument that it does not take; for `sample_weight` the error says why."""
    if metadata.pop("sample_weight", None) is not None:
        raise InputError(NO_WEIGHTS)
    for name in metadata:
        raise TypeError(f"fit got an unexpected argument '{name}': it takes X, y, agents and groups")


def _dense(x: Any) -> NDArray[np.float64]:
    dense: NDArray[np.float64] = x if isinstance(x, np.ndarray) else x.toarray()
    return dense


def _check_noise(algorithm: str | None, seeded: bool) -> None:
    """Raise if an algorithm has only simulated noise and the noise is to protect."""
    if algorithm in ALGORITHMS and not (seeded or ALGORITHMS[str(algorithm)].hardened):
        known = ", ".join(name for name in ALGORITHMS if ALGORITHMS[name].hardened and ALGORITHMS[name].noisy)
        raise InputError(
            f"algorithm is {algorithm}, whose noise is only for simulations: give random_state, which makes the fit a "
            f"simulation, or choose one of {known}"
        )


def _seed(random_state: Any) -> int:
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return int(random_state or 0)
    return int(check_random_state(random_state).randint(2**31))
