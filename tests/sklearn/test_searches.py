"""The estimators inside scikit-learn's pipelines and searches."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from sklearn import config_context
from taciturn.errors import BudgetExhausted, InputError
from taciturn.privacy.accountants.gdp import NO_SLACK, gdp_budget, gdp_epsilon
from taciturn.sklearn import PrivacyWarning, epsilon_of_each
from tests.sklearn.helpers import classifier, exact, ledger, problem

GRID = {"alpha": [1e-6, 1e-3]}


@pytest.fixture
def workers() -> Iterator[None]:
    """End the worker processes of joblib after the test."""
    yield
    pytest.importorskip("joblib.externals.loky").get_reusable_executor().shutdown(wait=True)


def test_a_search_warns_and_adds_up() -> None:
    x, y, _ = problem()
    search = GridSearchCV(classifier(0.5), GRID, cv=2)
    with pytest.warns(PrivacyWarning, match="add up") as said:
        search.fit(x, y)
    assert len(said) == 1
    spent = search.best_estimator_.privacy_spent_
    five = gdp_epsilon(5 * gdp_budget(0.5, NO_SLACK, 1e-6), NO_SLACK, 1e-6)  # two times two folds, and the last fit
    assert spent.fits == 5
    assert spent.all_fits_epsilon == pytest.approx(five, rel=1e-3) and spent.all_fits_epsilon > 2 * spent.epsilon
    assert np.isfinite(cross_val_score(search.best_estimator_, x, y, cv=2)).all()
    assert search.best_estimator_.fit(x, y).privacy_spent_.fits == 8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GridSearchCV(exact(), GRID, cv=2).fit(x, y)  # without privacy there is nothing to add up


def test_fits_with_one_seed_share_their_noise_and_so_protect_nothing_together() -> None:
    x, y, _ = problem()
    first = classifier(random_state=3).fit(x, y)
    with pytest.warns(PrivacyWarning):
        second = clone(first).fit(x[1:], y[1:])
    assert math.isfinite(first.privacy_spent_.all_fits_epsilon)
    assert second.privacy_spent_.all_fits_epsilon == math.inf and "protect nobody" in second.privacy_spent_.statement
    third = clone(first).set_params(total_epsilon=2.0).fit(x, y)
    assert third.privacy_spent_.all_fits_epsilon == math.inf  # what two of them gave away stays so
    other = classifier(random_state=3).fit(x, y)
    apart = clone(other).set_params(random_state=4)
    with pytest.warns(PrivacyWarning):
        assert math.isfinite(apart.fit(x, y).privacy_spent_.all_fits_epsilon)


def test_a_process_that_clones_for_itself_is_refused_too(workers: None) -> None:
    """OneVsRest clones the estimator in the worker process."""
    x, y, _ = problem(classes=3)
    with pytest.raises(InputError, match="another process"):
        OneVsRestClassifier(classifier(), n_jobs=2).fit(x, y)


def test_a_search_beyond_its_ledger_is_refused_and_says_so(tmp_path: Path) -> None:
    x, y, _ = problem()
    each = epsilon_of_each(1.0, 1e-6, 5)
    whole = GridSearchCV(classifier(each, ledger=ledger(tmp_path, 1.0, "whole").path), GRID, cv=2)
    with pytest.warns(PrivacyWarning):
        assert whole.fit(x, y).best_estimator_.privacy_spent_.fits == 5
    x, y, _ = problem(seed=1)  # records have one ledger each
    short = GridSearchCV(classifier(each, ledger=ledger(tmp_path, 0.7, "short").path), GRID, cv=2)
    with pytest.warns(Warning) as said, pytest.raises(BudgetExhausted):
        short.fit(x, y)  # the last fit is refused, whatever the search made of those before
    assert any(isinstance(w.message, FitFailedWarning) and "is exhausted" in str(w.message) for w in said)
    x, y, _ = problem(seed=2)
    strict = short.set_params(error_score="raise", estimator__ledger=ledger(tmp_path, 0.3, "strict").path)
    with pytest.raises(BudgetExhausted):
        strict.fit(x, y)


def test_processes_spend_from_one_ledger(tmp_path: Path, workers: None) -> None:
    x, y, _ = problem()
    account = ledger(tmp_path, 2.0)
    each = epsilon_of_each(2.0, 1e-6, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        scores = cross_val_score(classifier(each, ledger=account.path), x, y, cv=7, n_jobs=2)
        last = classifier(each, ledger=account.path).fit(x, y)
        assert np.isfinite(scores).all() and last.privacy_spent_.fits == 8
        assert 0.99 * 2.0 < last.privacy_spent_.all_fits_epsilon == account.state().epsilon_used <= 2.0
        with pytest.raises(ValueError, match=r"(?s)All the 3 fits failed.*another process"):
            cross_val_score(classifier(each), x, y, cv=3, n_jobs=2)
        assert np.isfinite(cross_val_score(exact(), x, y, cv=3, n_jobs=2)).all()


@pytest.mark.parametrize("total_epsilon", [20.0, math.inf])
def test_parties_travel_through_pipelines_and_searches(total_epsilon: float) -> None:
    x, y, agents = problem()
    with config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        model = classifier(total_epsilon, random_state=1).set_fit_request(agents=True)
        pipeline: Any = make_pipeline(PolynomialFeatures(2, include_bias=False), model)
        found = GridSearchCV(pipeline, {"taciturnclassifier__alpha": [1e-6, 1e-4]}, cv=2).fit(x, y, agents=agents)
        last = found.best_estimator_[-1]
        assert [agent["agent"] for agent in last.ledger_["agents"]] == ["north", "south", "west"]
        assert last.n_features_in_ == 9 and last.privacy_spent_.fits == 5
        scores = cross_val_score(pipeline, x, y, cv=2, params={"agents": agents})
        assert np.isfinite(scores).all() and found.score(x, y) > 0.6
    with pytest.raises(InputError, match="sample_weight_max is None"):
        Pipeline([("model", classifier())]).fit(x, y, model__sample_weight=np.ones(len(x)))
