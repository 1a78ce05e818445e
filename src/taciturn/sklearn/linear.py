"""What both estimators share: parameters into settings, records into a study, and the spendings that clones share."""

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
from taciturn.sklearn.declared import declared_bounds, needed, seen_bounds
from taciturn.sklearn.fit_history import FitHistory, PrivacyWarning, spent
from taciturn.sklearn.fitting import Given, in_user_units, parties, settings_of, train, whose_rows, without_noise
from taciturn.types import Array, Target

RESEEDED = (
    "random_state was set on a clone of an estimator whose noise comes from the operating system: BaggingClassifier "
    "and other ensembles do that to whatever they fit, and noise from a 31-bit seed protects nobody; give the "
    "estimator itself a random_state, which makes all of it a simulation, or fit it without them"
)
NO_WEIGHTS = (
    "sample_weight is refused: a weight would change how far one record can move the model, which the noise is scaled "
    "to; repeat or leave out records before you state total_records"
)


class LinearModel(BaseEstimator):  # type: ignore[misc]
    """A linear model trained among parties; see its two forms."""

    _cloned = False
    _system_noise = False  # whether it is a clone of an estimator whose noise comes from the operating system
    _intercept = True

    @property
    def _private(self) -> bool:
        """Whether there is a budget to keep."""
        return math.isfinite(real(0.0, infinite=True)("total_epsilon", self.total_epsilon))

    def _inputs(self, X: Any, y: Any, **how: Any) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Records as arrays, with the names of their features taken note of."""
        x, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, **how)
        return x if isinstance(x, np.ndarray) else x.toarray(), y

    def _fit(
        self, x: NDArray[np.float64], labels: NDArray[Any], target: Target, loss: str, agents: Any, groups: Any
    ) -> Array:
        """Train, take note of what it cost, and give coefficients and constants, [K, J + 1]."""
        held = parties(agents, len(x))
        settings = self._settings(x, loss, len(held.names))
        bounds = self._bounds(x)
        whose = whose_rows(groups, len(x), self.max_records)
        seen = seen_bounds(x) if bounds is None else bounds
        given = Given(settings, x, labels, seen, target, held, whose if self._private else None)
        spendings = self._shared_spendings()
        self._warn(spendings)
        trained, account = train(given)
        self._tell_left_out(given)
        spendings.costs.append(trained.ledger.cost())
        spendings.units.append(given.facts.unit)
        if self._private and settings.noise == "seeded":
            spendings.noises.append((settings.seed, settings.algorithm, settings.total_epsilon))
        self.ledger_ = trained.ledger.totals
        self.privacy_spent_ = spent(self.ledger_, spendings, account)
        self.bounds_, self.n_iter_ = bounds, trained.rounds
        self._spendings, self._cloned = spendings, False
        return np.column_stack(in_user_units(trained.w, given))

    def _settings(self, x: NDArray[np.float64], loss: str, agents: int) -> Settings:
        private = self._private
        if private and self.total_records is None:
            why = "how many records there are is private; a round number that the parties agree to state serves"
            raise needed("total_records", self.total_epsilon, why)
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
        settings = settings_of(given)
        if private:
            return settings
        best = without_noise(settings, self.algorithm, x.shape[1] + settings.intercept, agents)
        return settings_of(given | {name: value for name, value in best.items() if given.get(name) is None})

    def _bounds(self, x: NDArray[np.float64]) -> NDArray[np.float64] | None:
        if self.bounds is not None:
            return declared_bounds(self.bounds, x.shape[1], getattr(self, "feature_names_in_", None))
        if self._private:
            raise needed("bounds", self.total_epsilon, "ranges read off the records would tell of them")
        return None

    def _check_ledger(self, private: bool) -> None:
        if self.ledger is None:
            return
        if not private:
            raise InputError("total_epsilon is inf, which has no cost that a ledger could hold: leave ledger None")
        if self.random_state is not None:
            raise InputError(
                "a ledger counts noise that protects, and noise from a known random_state can be taken off again: "
                "leave random_state None, or ledger"
            )

    def _warn(self, spendings: FitHistory) -> None:
        """Say once that fits add up; refuse one whose cost would be forgotten."""
        if not self._private:
            return
        if spendings.away and self.ledger is None:
            raise InputError(
                "this estimator comes from another process, or from a file, and what it spends would be forgotten "
                "there, as what others spend would be here: give ledger=PATH, or n_jobs=1 in a search; a new estimator "
                "begins at nothing"
            )
        if (self._cloned or spendings.costs) and not spendings.told:
            spendings.told = True
            warnings.warn(
                "every fit of a search, of cross-validation or of the same estimator spends a budget of its own, "
                f"total_epsilon={self.total_epsilon:g} here, and they add up: see privacy_spent_.all_fits_epsilon; "
                "scores on private records have no noise, so they are for the records' owner alone",
                PrivacyWarning,
                stacklevel=4,
            )

    def _tell_left_out(self, given: Given) -> None:
        """Say to the owner of the records, and keep nowhere, how many rows were not used."""
        if not given.left_out:
            return
        rows = f"{given.left_out} of {len(given.x)} rows were left out: "
        repeated = (
            "identical rows count as one record that was given several times, and max_records="
            f"{self.max_records} of them are used; groups=range(len(X)) says that they are different persons"
        )
        of_one = f"of the rows of one {given.facts.unit} max_records={self.max_records} are used"
        warnings.warn(rows + (of_one if given.whose and given.whose.of is not None else repeated), stacklevel=4)

    def _shared_spendings(self) -> FitHistory:
        """The spendings of this estimator, its clones and its copies."""
        spendings: FitHistory = vars(self).get("_spendings") or FitHistory.begun()
        return spendings

    def __getstate__(self) -> dict[str, Any]:
        """With its spendings, so that what this process reads back shares them."""
        self._spendings = self._shared_spendings()
        state: dict[str, Any] = super().__getstate__()
        return state

    def __sklearn_clone__(self) -> Self:
        """A clone that shares its spendings, and knows where its noise was to come from."""
        copy: Self = super().__sklearn_clone__()
        self._spendings = copy._spendings = self._shared_spendings()
        copy._cloned, copy._system_noise = True, self._system_noise or self.random_state is None
        return copy

    def _scores(self, X: Any) -> Array:
        """X coef_ᵀ + intercept_, [n, K] or [n]; values beyond declared bounds are clipped as in training."""
        check_is_fitted(self)
        x = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        blocks = [self._block(x[rows]) for rows in row_blocks(x.shape[0], 8 * x.shape[1])]
        return np.concatenate(blocks)

    def _block(self, x: Any) -> Array:
        x = x if isinstance(x, np.ndarray) else x.toarray()
        if self.bounds_ is not None:
            x = np.clip(x, *self.bounds_.T)
        scores: Array = x @ self.coef_.T + self.intercept_
        return scores

    def __sklearn_tags__(self) -> Any:
        """Sparse records are taken."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def refuse(metadata: dict[str, Any]) -> None:
    """Refuse what `fit` does not take, with a reason where it could be expected to."""
    if metadata.pop("sample_weight", None) is not None:
        raise InputError(NO_WEIGHTS)
    for name in metadata:
        raise TypeError(f"fit got an unexpected argument '{name}': it takes X, y, agents and groups")


def _check_noise(algorithm: str | None, seeded: bool) -> None:
    """Refuse a method whose noise is for simulations where none is asked for."""
    if algorithm in ALGORITHMS and not (seeded or ALGORITHMS[str(algorithm)].hardened):
        known = ", ".join(name for name in ALGORITHMS if ALGORITHMS[name].hardened and ALGORITHMS[name].noisy)
        raise InputError(
            f"algorithm is {algorithm}, whose noise is for simulations: give random_state, which makes it one, or take "
            f"one of {known}"
        )


def _seed(random_state: Any) -> int:
    """A seed as settings have it."""
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return int(random_state or 0)
    return int(check_random_state(random_state).randint(2**31))
