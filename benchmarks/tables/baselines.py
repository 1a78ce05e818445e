"""Other libraries on the same splits, with the same public schema and their own defaults.

DP-EBM and diffprivlib are central: one curator sees all records. What they are given is public, as the schema is: types
and bounds of the columns, a number for a missing one, the range of the target.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from benchmarks.tables.results import DELTA
from benchmarks.tables.splits import Frame, TableSource
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from sklearn import linear_model
from taciturn.data.schema import Categorical, Numeric, Schema
from taciturn.types import Range

Numbers = NDArray[np.float64]


class Task(NamedTuple):
    """What a method gets: the table's public facts, records, a budget, and a seed."""

    source: TableSource
    train: Frame
    test: Frame
    epsilon: float
    seed: int


def base_rate(task: Task) -> Numbers:
    """Predict the mean of the training labels: what a model must beat."""
    return np.full(len(task.test.y), task.train.y.mean())


def linear(task: Task) -> Numbers:
    """Logistic or ridge regression of scikit-learn, on scaled numbers and one-hot categories."""
    numbers, categories = _columns(task.source.schema)
    encoder = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore"), categories),
    )
    model = linear_model.LogisticRegression(max_iter=1000) if task.source.classes else linear_model.Ridge()
    return _predicted(make_pipeline(encoder, model), task)


def boosting(task: Task) -> Numbers:
    """Gradient boosting of scikit-learn."""
    numbers, categories = _columns(task.source.schema)
    encoder = make_column_transformer(
        (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan), categories), ("passthrough", numbers)
    )
    kind = HistGradientBoostingClassifier if task.source.classes else HistGradientBoostingRegressor
    model = kind(categorical_features=list(range(len(categories))), random_state=task.seed)
    return _predicted(make_pipeline(encoder, model), task)


def ebm(task: Task) -> Numbers:
    """An explainable boosting machine without interactions: an additive model, as ours is."""
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    kind = ExplainableBoostingClassifier if task.source.classes else ExplainableBoostingRegressor
    types = ["nominal" if isinstance(c, Categorical) else "continuous" for c in task.source.schema.columns]
    return _predicted(kind(feature_types=types, interactions=0, n_jobs=1, random_state=task.seed), task)


def dp_ebm(task: Task) -> Numbers:
    """The private explainable boosting machine of interpret, with everything public given."""
    from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

    schema = task.source.schema
    given: dict[str, Any] = {
        "feature_types": ["nominal" if isinstance(c, Categorical) else "continuous" for c in schema.columns],
        "privacy_bounds": {c.name: (c.low, c.high) for c in schema.columns if isinstance(c, Numeric)},
        "epsilon": task.epsilon,
        "delta": DELTA,
        "n_jobs": 1,
        "random_state": task.seed,
    }
    kind = DPExplainableBoostingClassifier
    if isinstance(schema.target, Range):
        kind = DPExplainableBoostingRegressor
        given |= {"privacy_target_min": schema.target.low, "privacy_target_max": schema.target.high}
    train, test = (Frame(_filled(frame.x, schema), frame.y) for frame in (task.train, task.test))
    found = _predicted(kind(**given), task._replace(train=train, test=test))
    return _within(schema.target, found) if isinstance(schema.target, Range) else found


def diffprivlib(task: Task) -> Numbers:
    """Logistic or linear regression of diffprivlib, which is private with delta 0, on publicly scaled columns."""
    schema = task.source.schema
    train, test = (_encoded(frame.x, schema) for frame in (task.train, task.test))
    logistic, least_squares = _diffprivlib_models()
    if not isinstance(schema.target, Range):
        longest = math.sqrt(len(schema.columns))  # every column adds at most 1 to a record's squared norm
        model = logistic(epsilon=task.epsilon, data_norm=longest, random_state=task.seed)
        return np.asarray(model.fit(train, task.train.y).predict_proba(test)[:, 1])
    target = Numeric(schema.label, schema.target.low, schema.target.high)
    bounds: dict[str, Any] = {"bounds_X": (-1.0, 1.0), "bounds_y": (-1.0, 1.0)}
    model = least_squares(epsilon=task.epsilon, random_state=task.seed, **bounds)
    model.fit(train, target.scaled(task.train.y, "symmetric"))
    a, b = target.scaling("symmetric")
    return _within(schema.target, (model.predict(test) - b) / a)


PUBLIC: dict[str, Callable[[Task], Numbers]] = {
    "base-rate": base_rate,
    "linear": linear,
    "boosting": boosting,
    "ebm": ebm,
}
PRIVATE: dict[str, Callable[[Task], Numbers]] = {"dp-ebm": dp_ebm, "diffprivlib": diffprivlib}


def predict(method: str, task: Task) -> Numbers:
    """Return what a method predicts for the test records: the probability of class 1, or a number."""
    with warnings.catch_warnings():  # each library warns that a seed protects no one, and of the other's new release
        warnings.simplefilter("ignore")
        return (PUBLIC | PRIVATE)[method](task)


def _predicted(model: Any, task: Task) -> Numbers:
    labels = task.train.y.astype(int) if task.source.classes else task.train.y
    fitted = model.fit(task.train.x, labels)
    return np.asarray(fitted.predict_proba(task.test.x)[:, 1] if task.source.classes else fitted.predict(task.test.x))


def _within(target: Range, predicted: Numbers) -> Numbers:
    """Clip predictions to the target's public range, which costs no budget."""
    return np.clip(predicted, target.low, target.high)


def _columns(schema: Schema) -> tuple[list[str], list[str]]:
    """Return the names of the numeric and of the categorical columns."""
    categories = [column.name for column in schema.columns if isinstance(column, Categorical)]
    return [column.name for column in schema.columns if isinstance(column, Numeric)], categories


def _filled(x: Any, schema: Schema) -> Any:
    """Return a frame with numbers within their bounds and the schema's number for a missing one."""
    rules = [column for column in schema.columns if isinstance(column, Numeric)]
    return x.assign(**{rule.name: x[rule.name].fillna(rule.fill).clip(rule.low, rule.high) for rule in rules})


def _encoded(x: Any, schema: Schema) -> Numbers:
    """Return features: numbers within [-1, 1] by their public bounds, and one-hot categories."""
    filled, blocks = _filled(x, schema), []
    for rule in schema.columns:
        cells = filled[rule.name].to_numpy()
        if isinstance(rule, Numeric):
            blocks.append(rule.scaled(cells.astype(float), "symmetric")[:, None])
        else:
            blocks.append((cells[:, None] == np.array(rule.categories, object)).astype(float))
    return np.hstack(blocks)


@cache
def _diffprivlib_models() -> tuple[Any, Any]:
    """Return diffprivlib's two models.

    diffprivlib 0.6.6 was written for scikit-learn before 1.8: it imports two names of its trees, which these models do
    not use, and passes on an option that is no longer there. With the names and without the option, the results are
    those with scikit-learn 1.7.2 to the last bit.
    """
    from sklearn.tree import _tree

    for name, kind in (("DOUBLE", np.float64), ("DTYPE", np.float32)):
        if not hasattr(_tree, name):
            setattr(_tree, name, kind)
    from diffprivlib import models

    class WithoutOptions(linear_model.LogisticRegression):  # type: ignore[misc]
        def __init__(self, *, multi_class: str = "ovr", penalty: str = "l2", **options: Any) -> None:
            super().__init__(**options)

    class Logistic(models.LogisticRegression, WithoutOptions):  # type: ignore[misc]
        pass

    return Logistic, models.LinearRegression
