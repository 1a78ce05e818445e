"""Weights of classes and of samples: with a budget and without."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn import config_context
from taciturn.data import parse_schema
from taciturn.errors import InputError
from taciturn.sklearn import TaciturnClassifier, TaciturnRegressor
from tests.sklearn.helpers import Records, classifier, problem, regressor, values


def rare(n: int = 4000, seed: int = 0) -> Records:
    """One record in ten is of class 1."""
    random = np.random.default_rng(seed)
    y = (random.random(n) < 0.1).astype(int)
    return random.normal(0.8 * y[:, None], 0.5, (n, 2)).clip(-2, 2), y, np.repeat(["a", "b"], n // 2)


@pytest.mark.parametrize("total_epsilon", [2.0, math.inf])
@pytest.mark.parametrize("features", ["bins", "none"])
def test_a_class_weight_finds_more_of_a_rare_class(total_epsilon: float, features: str) -> None:
    (x, y, agents), (test_x, test_y, _) = rare(), rare(seed=1)
    recalls = []
    for weight in (None, {1: 9}):
        model = TaciturnClassifier(
            total_epsilon, bounds=(-2, 2), classes=[0, 1], total_records=4000, features=features, class_weight=weight,
            random_state=0,
        )  # fmt: skip
        recalls.append(recall_score(test_y, model.fit(x, y, agents=agents).predict(test_x)))
    assert recalls[1] > recalls[0] + 0.05
    assert recalls[1] > 0.75 or features == "none"


def test_without_noise_it_is_the_class_weight_of_scikit_learn() -> None:
    x, y, _ = rare(600)
    ours = TaciturnClassifier(math.inf, bounds=(-1, 1), features="none", alpha=1e-4, class_weight={1: 5}).fit(x, y)
    bounded, own = x.clip(-1, 1), np.where(y == 1, 5.0, 1.0)
    peer = LogisticRegression(C=1 / (1e-4 * own.sum() * 4), class_weight={1: 5}, tol=1e-8).fit(bounded, y)
    np.testing.assert_allclose(ours.predict_proba(x)[:, 1], peer.predict_proba(bounded)[:, 1], atol=0.01)


@pytest.mark.parametrize("make", [classifier, regressor])
@pytest.mark.parametrize("total_epsilon", [1.0, math.inf])
def test_equal_weights_change_nothing(make: Any, total_epsilon: float) -> None:
    x, y, agents = problem()
    y = y if make is classifier else values(x)
    without, with_ = (
        make(total_epsilon, random_state=1, sample_weight_max=2.0, total_records=len(x)).fit(
            x, y, agents=agents, sample_weight=weight
        )
        for weight in (None, np.full(len(x), 2.0))
    )
    np.testing.assert_allclose(with_.predict(x), without.predict(x), rtol=0 if total_epsilon == 1.0 else 1e-5)


def test_samples_of_weight_0_have_no_say_and_only_ratios_matter() -> None:
    x, _, _ = problem(400)
    odd = np.arange(400) % 2 == 1
    y = np.where(odd, 40.0, 10.0 + 5.0 * x[:, 0])
    given: dict[str, Any] = {"random_state": 0, "total_records": 400, "sample_weight_max": 1.0}
    some = regressor(8.0, **given).fit(x, y, sample_weight=(~odd).astype(float))
    assert some.predict(x).mean() < 15.0
    assert regressor(8.0, **given).fit(x, y).predict(x).mean() > 20.0
    again = regressor(8.0, **given | {"sample_weight_max": 5.0}).fit(x, y, sample_weight=5.0 * ~odd)
    np.testing.assert_array_equal(again.predict(x), some.predict(x))


def test_weights_cost_no_more_and_are_in_no_account() -> None:
    x, y, agents = problem()
    plain = classifier(random_state=1).fit(x, y, agents=agents)
    own = classifier(random_state=1, sample_weight_max=7.0, class_weight={0: 0.123}).fit(
        x, y, agents=agents, sample_weight=np.linspace(0.0, 7.0, len(x))
    )
    assert own.ledger_ == plain.ledger_
    assert not np.array_equal(own.predict_proba(x), plain.predict_proba(x))


def test_weights_above_the_maximum_are_clipped() -> None:
    x, y, _ = problem()
    weights = np.where(np.arange(len(x)) < 10, 1e9, 1.0)
    one, other = (
        classifier(random_state=1, sample_weight_max=1.0).fit(x, y, sample_weight=given)
        for given in (weights, np.ones(len(x)))
    )
    np.testing.assert_array_equal(one.predict_proba(x), other.predict_proba(x))


def test_rows_that_differ_only_in_weight_are_one_record() -> None:
    """Otherwise code that passes a record twice with different weights would use it twice."""
    x, y, _ = problem()
    twice, labels = np.concatenate([x, x]), np.concatenate([y, y])
    with pytest.warns(UserWarning, match="120 of 240 rows were left out"):
        classifier(random_state=1, sample_weight_max=2.0, total_records=240).fit(
            twice, labels, sample_weight=np.repeat([1.0, 2.0], len(x))
        )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("balanced", "the counts are private: give numbers"),
        ("equal", "class_weight is 'equal': it must be None, or a dict"),
        ([1, 2], "class_weight is a list: it must be None, or a dict"),
        ({2: 1.0}, "class_weight names the class '2', which is not one of the classes '0', '1'"),
        ({1: 0.0}, "class_weight of class '1' is 0.0: it must be a finite number above 0"),
        ({1: -1}, "must be a finite number above 0"),
        ({1: math.inf}, "must be a finite number above 0"),
        ({1: "3"}, "must be a finite number above 0"),
    ],
)
@pytest.mark.parametrize("total_epsilon", [1.0, math.inf])
def test_class_weights_that_break_a_rule_are_refused(given: Any, message: str, total_epsilon: float) -> None:
    x, y, _ = problem()
    with pytest.raises(InputError, match=message):
        classifier(total_epsilon, class_weight=given).fit(x, y)


@pytest.mark.parametrize("given", [0, -1.0, math.inf, math.nan, "ten", True])
def test_a_maximum_that_breaks_a_rule_is_refused(given: Any) -> None:
    x, y, _ = problem()
    with pytest.raises(InputError, match=r"sample_weight_max is .*: it must be a finite number above 0"):
        classifier(sample_weight_max=given).fit(x, y, sample_weight=np.ones(len(x)))


def test_class_weights_are_found_by_the_values_of_labels() -> None:
    x, y, _ = problem()
    known: dict[str, Any] = {"random_state": 1}
    one = classifier(class_weight={1: 4}, **known).fit(x, y)
    texts = classifier(class_weight={"1": 4}, classes=["0", "1"], **known).fit(x, y.astype(str))
    numbers = classifier(class_weight={1: 4}, classes=[0.0, 1.0], **known).fit(x, y.astype(float))
    for other in (texts, numbers):
        np.testing.assert_array_equal(other.predict_proba(x), one.predict_proba(x))


SCHEMA = """
scale = "symmetric"
[label]
column = "y"
classes = [2, 10]
weights = { 10 = 4 }
[weight]
column = "survey"
max = 3
[columns.a]
kind = "numeric"
bounds = [-1, 1]
[columns.b]
kind = "numeric"
bounds = [-1, 1]
"""


@pytest.mark.parametrize("total_epsilon", [1.0, math.inf])
def test_a_schema_may_declare_the_weights(total_epsilon: float) -> None:
    """Classes 2 and 10 are in another order as texts."""
    x, y, _ = problem(features=2)
    labels, survey = np.array([2, 10])[y], np.arange(len(x)) % 5 - 0.5
    frame = pd.DataFrame(x, columns=["a", "b"])
    common: dict[str, Any] = {"total_records": 200, "rounds": 20, "random_state": 1}
    declared = TaciturnClassifier(total_epsilon, schema=parse_schema(SCHEMA), **common)
    declared.fit(frame.assign(survey=survey), labels)
    spelled = TaciturnClassifier(
        total_epsilon, bounds=(-1, 1), classes=[2, 10], class_weight={10: 4}, sample_weight_max=3, **common
    ).fit(frame, labels, sample_weight=survey.clip(0, 3))
    np.testing.assert_allclose(declared.predict_proba(frame), spelled.predict_proba(frame), rtol=1e-5)
    with pytest.raises(InputError, match="sample_weight is given, but the schema names the column 'survey'"):
        declared.fit(frame.assign(survey=survey), labels, sample_weight=survey)
    with pytest.raises(
        InputError, match=r"no column 'survey' among the \d of X; the schema names it for sample_weight"
    ):
        declared.fit(frame, labels)
    with pytest.raises(InputError, match="schema and class_weight are both given"):
        TaciturnClassifier(schema=parse_schema(SCHEMA), class_weight={2: 1}).fit(frame, labels)


def test_weights_travel_through_pipelines() -> None:
    x, y, _ = problem()
    weights = np.arange(len(x)) % 3.0
    with config_context(enable_metadata_routing=True):
        model = classifier(random_state=1, sample_weight_max=2.0)
        pipeline = make_pipeline(FunctionTransformer(), model.set_fit_request(sample_weight=True))
        found = pipeline.fit(x, y, sample_weight=weights).predict_proba(x)
    direct = classifier(random_state=1, sample_weight_max=2.0).fit(x, y, sample_weight=weights)
    np.testing.assert_array_equal(found, direct.predict_proba(x))


def test_without_a_budget_samples_of_weight_0_are_as_if_left_out() -> None:
    x, y, agents = problem()
    y, weights = values(x), (np.arange(len(x)) % 3).astype(float)
    kept = weights > 0
    one = TaciturnRegressor(math.inf).fit(
        x.tolist(), y.tolist(), agents=list(agents), groups=range(len(x)), sample_weight=weights
    )
    other = TaciturnRegressor(math.inf).fit(x[kept], y[kept], agents=agents[kept], sample_weight=weights[kept])
    np.testing.assert_allclose(one.predict(x), other.predict(x))
    with pytest.raises(ValueError, match="at least one non-zero number"):
        TaciturnRegressor(math.inf).fit(x, y, sample_weight=np.zeros(len(x)))
