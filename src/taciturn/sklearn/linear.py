"""What both estimators share: parameters become settings, records become a study, and clones share their history."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, check_X_y, validate_data

from taciturn.algorithms import ALGORITHMS
from taciturn.core.arrays import row_blocks
from taciturn.data.encoding import Tally, read_weights
from taciturn.data.feature_maps import NONE
from taciturn.data.schema import ColumnRule, Schema
from taciturn.data.table_cells import Table
from taciturn.errors import InputError, missing_header, unknown_column
from taciturn.settings import Settings
from taciturn.settings.rules import real
from taciturn.sklearn.columns import (
    NUMBERS,
    Encoder,
    array_table,
    column_kinds,
    frame_table,
    is_frame,
    owner_texts,
    refuse_missing,
    refuse_unreadable,
    schema_kinds,
)
from taciturn.sklearn.declared import (
    categorical_rules,
    declared_bounds,
    declared_categories,
    given_schema,
    numeric_rules,
    observed_bounds,
    undeclared,
    weight_limit,
)
from taciturn.sklearn.fit_history import FitHistory, PrivacyWarning, privacy_spent
from taciturn.sklearn.fitting import (
    FitData,
    assign_parties,
    privacy_units,
    reference_settings,
    study_settings,
    train,
)
from taciturn.types import Array, Range, Target

SCALE = "symmetric"  # of a table's two scales the better one with noise, unless most values are 0
RESEEDED = (
    "random_state was set on a clone of an estimator whose noise comes from the operating system. BaggingClassifier "
    "and other ensembles do that to every estimator, and noise from a 31-bit seed gives no protection. Give the "
    "estimator itself a random_state, which makes all of it a simulation, or fit it without an ensemble"
)
DECLARATIONS = ("bounds", "categories", "classes", "label_bounds", "class_weight", "sample_weight_max")
MAX_WEIGHT = 2.0**40  # the largest sum of weights that counts as a number of records
SNAPSHOT = (
    "this estimator comes from another process, or from a file. What it spends would be forgotten there, and what "
    "others spend would be unknown here: give ledger=PATH, or n_jobs=1 in a search; a new estimator starts at zero"
)


class RowOwnership(NamedTuple):
    """The party and the privacy unit of each row."""

    agents: Any  # the party of each row; None: a single party
    groups: Any  # the unit of each row; None: identical rows are one record, whatever their weights
    max_records: int  # rows of one unit at one party that are used
    names: tuple[str, ...] = ()  # of all parties, if they were declared


class Records(NamedTuple):
    """What `fit` was given."""

    table: Table
    y: NDArray[Any]  # [n]
    kinds: Mapping[str, str]  # of each column
    framed: bool  # whether X is a data frame that does not consist of numbers alone
    schema: Schema | None
    weights: NDArray[np.float64] | None = None  # [n] within [0, 1]: how much each row counts
    total: int = 0  # for training without privacy: the number of records for which the rows stand

    @property
    def numeric(self) -> tuple[str, ...]:
        """The numeric columns."""
        return tuple(name for name, kind in self.kinds.items() if kind == NUMBERS)

    @property
    def numbers(self) -> NDArray[np.float64]:
        """The numeric columns, [n, J]."""
        columns = [self.table.column(name).numbers() for name in self.numeric]
        return np.column_stack(columns) if columns else np.empty((self.table.rows, 0))


class LinearModel(BaseEstimator):  # type: ignore[misc]
    """Base class of the estimators: a model, linear in its features, that is trained across parties."""

    _cloned = False
    _system_noise = False  # whether it is a clone of an estimator whose noise comes from the operating system

    @property
    def _intercept(self) -> bool:
        """Whether the model has a constant."""
        return True

    @property
    def _private(self) -> bool:
        """Whether the budget is finite."""
        return math.isfinite(real(0.0, infinite=True)("total_epsilon", self.total_epsilon))

    def _declared_schema(self) -> Schema | None:
        """Return the given schema, which then is the only declaration."""
        others = {name: getattr(self, name, None) for name in DECLARATIONS}
        return given_schema(self.schema, others)

    def _owners(self, X: Any, agents: Any, groups: Any, schema: Schema | None) -> RowOwnership:
        """Return the party and the unit of each row: as given, or from the columns that the schema names."""
        most = self.max_records
        if schema is not None and schema.agent is not None:
            _named_column(X, schema.agent, "agents", agents)
            agents = np.array(owner_texts(X, schema.agent), dtype=object)
        if schema is not None and schema.unit is not None:
            groups, most = _named_column(X, schema.unit.column, "groups", groups), schema.unit.max_records
        return RowOwnership(agents, groups, most, () if schema is None else schema.agents)

    def _select(
        self, X: Any, y: Any, agents: Any, groups: Any, sample_weight: Any, schema: Schema | None
    ) -> tuple[Any, Any, Any, Any, NDArray[np.float64] | None]:
        """Return the rows with their checked weights; without privacy, rows of weight 0 are left out.

        Rows whose agent or unit a schema's columns do not name are left out too, as in `taciturn.run`.
        """
        if self._private and self.random_state is not None and self._system_noise:
            raise InputError(RESEEDED)
        if schema is not None and (schema.agent or schema.unit):
            X, y, sample_weight = _owned(X, y, sample_weight, schema)
        if schema is not None and schema.weight is not None:
            column = schema.weight.column
            _named_column(X, column, "sample_weight", sample_weight)
            table = frame_table(X, {column: NUMBERS})
            weights = read_weights(table, replace(schema, class_weights=()), np.zeros(0), Tally())
        elif sample_weight is None:
            return X, y, agents, groups, None
        else:
            refuse_unreadable("sample_weight", sample_weight, 0)
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if self._private or weights is None or weights.all():
            return X, y, agents, groups, weights
        kept = np.flatnonzero(weights)
        if not len(kept):
            raise InputError("all sample weights are 0: at least one record must count")
        X, y, agents, groups = (_rows(part, kept) for part in (X, y, agents, groups))
        return X, y, agents, groups, weights[kept]

    def _weighted(
        self, records: Records, weights: NDArray[np.float64] | None, factors: NDArray[np.float64] | None = None
    ) -> Records:
        """Return the records with their weights divided by the public maximum, times the weights of their classes."""
        total = 0
        if weights is not None and (records.schema is None or records.schema.weight is None):
            largest = None if self._private else float(weights.max(initial=0.0))
            limit = weight_limit(self.sample_weight_max, largest, self.total_epsilon)
            total = int(min(float(np.minimum(weights, limit).sum()), MAX_WEIGHT))
            weights = np.minimum(weights, limit) / limit
        if factors is not None:
            weights = factors if weights is None else weights * factors
        return records._replace(weights=weights, total=total)

    def _read(self, X: Any, y: Any, schema: Schema | None, **checks: Any) -> Records:
        """Return the cells of X and the labels, and remember the names of the columns."""
        declared = declared_categories(self.categories)
        named = self.bounds if isinstance(self.bounds, Mapping) else ()
        if is_frame(X):
            kinds = column_kinds(X, named, declared) if schema is None else schema_kinds(schema)
            if schema is not None or declared or set(kinds.values()) != {NUMBERS}:
                table = self._frame(X, kinds, reset=True)
                if schema is None:
                    refuse_missing(table, kinds, (*named, *declared))
                return Records(table, check_X_y(np.zeros((table.rows, 1)), y, **checks)[1], kinds, True, schema)
        if schema is not None or declared:
            what = "categories" if schema is None else "schema"
            raise InputError(f"{what} declares columns by name: X must be a data frame")
        refuse_unreadable("X", X, 2)
        x, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, **checks)
        table = array_table(_dense(x), getattr(self, "feature_names_in_", None))
        return Records(table, y, dict.fromkeys(table.columns, NUMBERS), False, None)

    def _frame(self, X: Any, kinds: Mapping[str, str], reset: bool) -> Table:
        """Return columns of a data frame; those that nobody declared are not used."""
        table = frame_table(X, kinds)
        validate_data(self, X[list(kinds)], skip_check_array=True, reset=reset)
        return table

    def _fit(self, records: Records, labels: NDArray[Any], target: Target, loss: str, owners: RowOwnership) -> Array:
        """Train, record the cost, and return the parameters of the features, [J, K]."""
        rows = records.table.rows
        parties = assign_parties(owners.agents, rows, owners.names)
        settings = self._settings(max(rows, records.total), loss, len(parties.names))
        bounds = self._bounds(records)
        encoder = self._encoder(records, bounds, settings)
        units = privacy_units(owners.groups, rows, owners.max_records)
        protected = units if self._private else None
        data = FitData(settings, records.table, labels, encoder, target, parties, protected, records.weights)
        if not self._private and self.algorithm is None:
            data = replace(data, settings=reference_settings(settings, data.facts))
        history = self._shared_history()
        self._warn_about_total(history)
        trained, account = train(data)
        self._warn_about_left_out(data)
        history.costs.append(trained.ledger.cost)
        history.units.append(data.facts.unit)
        if self._private and settings.noise == "seeded":
            history.seeds.append((settings.seed, settings.algorithm, settings.total_epsilon))
        self.ledger_ = trained.ledger.totals
        self.privacy_spent_ = privacy_spent(self.ledger_, history, account)
        self.schema_, self.bounds_, self.n_iter_ = encoder.schema, bounds, trained.rounds
        self._encoder_, self._framed = encoder, records.framed
        self._history, self._cloned = history, False
        return trained.w

    def _encoder(self, records: Records, bounds: NDArray[np.float64] | None, settings: Settings) -> Encoder:
        """Return how cells become features: as declared, or as observed where there is no privacy."""
        features, intercept = settings.features, settings.intercept
        if records.schema is not None:
            return Encoder(replace(records.schema, agent=None, agents=()), features, intercept)
        linear = features == NONE
        known = observed_bounds(records.numbers) if bounds is None else bounds
        numbers = numeric_rules(known, records.numeric, symmetric=linear and not intercept)
        observed = None if self._private else records.table
        texts = categorical_rules(records.kinds, declared_categories(self.categories), observed, self.total_epsilon)
        rules: dict[str, ColumnRule] = {**numbers, **texts}
        schema = Schema("label", Range(0.0, 1.0), tuple(rules[name] for name in records.kinds), scale=SCALE)
        return Encoder(schema, features, intercept, bounds, extrapolates=linear and bounds is None)

    def _settings(self, rows: int, loss: str, agents: int) -> Settings:
        private = self._private
        if private and self.total_records is None:
            why = "the number of records is private; a round number that the parties agree on is enough"
            raise undeclared("total_records", self.total_epsilon, why)
        seeded = self.random_state is not None or not private
        _check_noise(self.algorithm, seeded)
        self._check_ledger(private)
        given = {
            "name": type(self).__name__,
            "total_epsilon": (self.total_epsilon,),
            "delta": self.delta,
            "loss": loss,
            "regulariser": self.penalty,
            "beta": self.alpha,
            "features": self.features,
            "intercept": self._intercept,
            "rounds": self.rounds,
            "local_updates": self.local_updates,
            "clip": self.clip,
            "algorithm": None if self.algorithm is None else (self.algorithm,),
            "noise": "seeded" if seeded else "hardened",
            "seed": _seed(self.random_state) if seeded else None,
            "ledger": self.ledger,
            "agents": agents,
            "total_records": rows if self.total_records is None else self.total_records,
        }
        return study_settings(given)

    def _bounds(self, records: Records) -> NDArray[np.float64] | None:
        if records.schema is not None:
            return None
        if self.bounds is not None:
            named = hasattr(self, "feature_names_in_")
            return declared_bounds(self.bounds, len(records.numeric), records.numeric if named else None)
        if self._private and records.numeric:
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
        most = data.facts.max_records
        if data.units and data.units.of is not None:
            why = f"max_records={most} rows of each {data.facts.unit} are used"
        else:
            why = (
                f"identical rows count as one record, and max_records={most} of them are used; "
                "groups=range(len(X)) says that they are different persons"
            )
        warnings.warn(f"{data.left_out} of {data.table.rows} rows were left out: {why}", stacklevel=4)

    def _shared_history(self) -> FitHistory:
        """Return the fits of this estimator, its clones and its copies."""
        history: FitHistory = vars(self).get("_history") or FitHistory.start()
        return history

    def __getstate__(self) -> dict[str, object]:
        """Return the state with the history, so that an estimator restored in this process shares it."""
        self._history = self._shared_history()
        state: dict[str, object] = super().__getstate__()
        return state

    def __sklearn_clone__(self) -> Self:
        """Return a clone that shares the history and knows where its noise was to come from."""
        copy: Self = super().__sklearn_clone__()
        self._history = copy._history = self._shared_history()
        copy._cloned, copy._system_noise = True, self._system_noise or self.random_state is None
        return copy

    def _scores(self, X: Any) -> Array:
        """Return the scores of the features of X, [n, K]; values outside declared bounds are clipped as in training."""
        check_is_fitted(self)
        encoder = self._encoder_
        encoded = encoder.encoded(self._table(X))
        wide = 8 * len(self._w)
        return np.concatenate([encoder.mapped(encoded[rows]) @ self._w for rows in row_blocks(len(encoded), wide)])

    def _table(self, X: Any) -> Table:
        if not self._framed:
            refuse_unreadable("X", X, 2)
            fitted = getattr(self, "feature_names_in_", None)
            if fitted is not None and is_frame(X) and list(X.columns) != list(fitted):
                raise InputError(
                    "X does not have the columns with which the model was fitted, in their order: "
                    f"feature_names_in_ lists them{missing_header(X.columns)}"
                )
            x = _dense(validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False))
            return array_table(x, tuple(rule.name for rule in self.schema_.columns))
        if not is_frame(X):
            raise InputError("the model was fitted with a data frame that has text columns: give a data frame")
        table = self._frame(X, schema_kinds(self.schema_), reset=False)
        if not table.rows:
            raise InputError("X has no rows: there must be at least one")
        if self.schema is None:
            declared = (self.bounds, self.categories)
            known = [name for names in declared if isinstance(names, Mapping) for name in names]
            refuse_missing(table, schema_kinds(self.schema_), known)
        return table

    def _forget_coefficients(self) -> None:
        """Remove the coefficients of an earlier fit, which a feature map does not have."""
        for name in ("coef_", "intercept_"):
            if hasattr(self, name):
                delattr(self, name)

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: sparse records are accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _named_column(X: Any, name: str, argument: str, given: Any) -> Any:
    """Return a column of X that the schema names in place of an argument of `fit`."""
    if given is not None:
        raise InputError(f"{argument} is given, but the schema names the column '{name}' for it: leave {argument} None")
    if not is_frame(X):
        raise InputError("schema declares columns by name: X must be a data frame")
    if name not in X.columns:
        raise InputError(f"{unknown_column(name, X.columns, 'X')}; the schema names it for {argument}")
    return X[name]


def _owned(X: Any, y: Any, sample_weight: Any, schema: Schema) -> tuple[Any, Any, Any]:
    """Return the rows whose agent and unit are named in the schema's columns for them."""
    columns = [(schema.agent, schema.agents)] if schema.agent else []
    columns += [(schema.unit.column, ())] if schema.unit else []
    kept = np.ones(len(X), np.bool_)
    for column, known in columns:
        _named_column(X, column, "agents or groups", None)
        kept &= [name is not None and (not known or name in known) for name in owner_texts(X, column)]
    if kept.all():
        return X, y, sample_weight
    if not kept.any():
        raise InputError("no row of X has an agent and a unit that the schema allows")
    warnings.warn(
        f"{int((~kept).sum())} of {len(X)} rows were left out: their agent or unit is missing, or not in the schema",
        stacklevel=5,
    )
    rows = np.flatnonzero(kept)
    return _rows(X, rows), _rows(y, rows), _rows(sample_weight, rows)


def _rows(given: Any, rows: NDArray[np.intp]) -> Any:
    """Return some rows of an argument of `fit`; None stays None."""
    if given is None:
        return None
    return _safe_indexing(given if hasattr(given, "shape") else np.asarray(given), rows)


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
