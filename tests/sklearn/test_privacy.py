"""Privacy of fits: nothing undeclared is taken from the records, and every fit is charged."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from taciturn.errors import BudgetExhausted, InputError
from taciturn.privacy.accountants import tightest
from taciturn.privacy.composition import composed_epsilon, cost_of, total_cost
from taciturn.privacy.events import Event, event_of
from taciturn.sklearn import PrivacyWarning, TaciturnClassifier, TaciturnRegressor, epsilon_of_each, fitting
from taciturn.sklearn.fitting import FitData
from taciturn.types import Dataset
from tests.sklearn.helpers import classifier, ledger, problem, regressor, values


def events_of(model: Any, agent: str = "agent-1") -> Counter[Event]:
    found: Counter[Event] = Counter()
    for entry in model.ledger_["events"]:
        if entry["agent"] == agent:
            found[event_of(entry)] += entry["count"]
    return found


@pytest.mark.parametrize("random_state", [None, 7])
@pytest.mark.parametrize("make", [classifier, regressor])
def test_a_fit_costs_its_budget_and_never_more(make: Any, random_state: int | None) -> None:
    x, y, agents = problem()
    y = y if make is classifier else values(x)
    model = make(2.0, random_state=random_state).fit(x, y, agents=agents)
    spent = model.privacy_spent_
    assert 2.0 * (1.0 - 1e-3) <= spent.epsilon <= 2.0
    assert (spent.delta, spent.fits, spent.all_fits_epsilon) == (1e-6, 1, spent.epsilon)
    for agent in ("north", "south", "west"):
        drawn = events_of(model, agent)
        assert sum(drawn.values()) == model.n_iter_ == 20
        assert tightest(drawn, 1e-6).epsilon == spent.epsilon
    assert spent.simulated == (random_state is not None)
    assert spent.statement.startswith(
        "Simulated:" if random_state else "Every record is protected with total epsilon 2"
    )


def test_noise_from_the_operating_system_is_never_the_same_and_from_a_seed_always() -> None:
    x, y, _ = problem()
    fresh = [classifier().fit(x, y).decision_function(x) for _ in range(2)]
    assert not np.array_equal(fresh[0], fresh[1])
    seeded = [classifier(random_state=state).fit(x, y).decision_function(x) for state in (1, np.int64(1), 2)]
    np.testing.assert_array_equal(seeded[0], seeded[1])
    assert not np.array_equal(seeded[0], seeded[2])
    random = np.random.RandomState(3)
    drawn = [classifier(random_state=random).fit(x, y).decision_function(x) for _ in range(2)]
    assert not np.array_equal(drawn[0], drawn[1])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"bounds": None}, "bounds is None and total_epsilon is 1"),
        ({"classes": None}, "classes is None and total_epsilon is 1"),
        ({"total_records": None}, "total_records is None and total_epsilon is 1"),
        ({"total_records": 100}, "total_records is 100"),
        ({"total_epsilon": 0.0}, "total_epsilon is 0.0: it must be above 0, or inf"),
        ({"total_epsilon": "much"}, "total_epsilon is 'much': it must be a number"),
        ({"classes": [1]}, "there is only one class: "),
        ({"algorithm": "iadmm"}, "iadmm adds no noise and cannot keep it"),
        ({"algorithm": "dpsgd"}, "algorithm is dpsgd.*random_state"),
        ({"algorithm": "objpp"}, r"no algorithm 'objpp' \(did you mean"),
        ({"loss": "hing"}, "no loss 'hing'"),
        ({"total_epsilon": math.inf, "ledger": "l"}, "total_epsilon is inf.*ledger"),
        ({"random_state": 1, "ledger": "l"}, "known random_state"),
        ({"ledger": "absent"}, "there is no ledger absent"),
    ],
)
def test_what_a_budget_needs_must_be_declared(changes: dict[str, Any], sentence: str) -> None:
    x, y, _ = problem()
    model = classifier().set_params(**changes)
    with pytest.raises(InputError, match=sentence):
        model.fit(x, y)
    assert not [name for name in vars(model) if name.endswith("_") and name not in ("n_features_in_",)]


def test_a_regressor_needs_the_range_of_its_label_and_weights_their_maximum() -> None:
    x, y, agents = problem()
    with pytest.raises(InputError, match="label_bounds is None and total_epsilon is 1"):
        regressor(label_bounds=None).fit(x, values(x))
    with pytest.raises(InputError, match=r"label_bounds is 3: it must be \(low, high\)"):
        regressor(label_bounds=3).fit(x, values(x))
    with pytest.raises(InputError, match="sample_weight_max is None and total_epsilon is 1"):
        classifier().fit(x, y, sample_weight=np.ones(len(x)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'group'"):
        classifier().fit(x, y, group=agents)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="agents has shape"):
        classifier().fit(x, y, agents=agents[1:])
    with pytest.raises(InputError, match="agents has a missing value"):
        classifier().fit(x, y, agents=[None, *agents[1:]])


@pytest.mark.parametrize("features", ["bins", "none"])
@pytest.mark.parametrize("make", [classifier, regressor])
def test_all_but_the_model_is_the_same_whatever_the_records(make: Any, features: str) -> None:
    """Public results do not depend on the records, their labels or their number."""
    made = []
    for n, seed in ((120, 0), (60, 9)):
        x, y, _ = problem(n, seed=seed)
        y = np.zeros(n, dtype=int) if seed else y
        made.append(make(random_state=1, features=features).fit(x, y if make is classifier else values(x)))
    for name in vars(made[0]).keys() - {"coef_", "intercept_", "_w", "_encoder_"}:
        np.testing.assert_equal(vars(made[0])[name], vars(made[1])[name], name)
    assert made[0].schema_ == made[0]._encoder_.schema
    assert not np.array_equal(made[0].predict(x), made[1].predict(x))
    assert len(pickle.dumps(made[0])) == len(pickle.dumps(made[1]))  # no record travels with a model


def test_fits_of_an_estimator_and_its_clones_add_up_with_a_warning() -> None:
    x, y, _ = problem()
    first = classifier().fit(x, y)
    cost = cost_of(events_of(first))
    with pytest.warns(PrivacyWarning, match="total_epsilon=1 here"):
        first.fit(x, y)
    second = clone(clone(first)).set_params(total_epsilon=0.5).fit(x, y)  # it was said once already
    half = cost_of(events_of(second))
    both = composed_epsilon("gdp", total_cost([cost, cost, half]), 1e-6)
    assert second.privacy_spent_.fits == 3
    assert second.privacy_spent_.all_fits_epsilon == pytest.approx(both)
    assert second.privacy_spent_.epsilon <= 0.5
    assert classifier(math.inf).fit(x, y).privacy_spent_.all_fits_epsilon == math.inf


def test_a_ledger_adds_fits_up_and_refuses_the_one_too_many(tmp_path: Path) -> None:
    x, y, agents = problem()
    account = ledger(tmp_path, 2.0)
    each = epsilon_of_each(2.0, 1e-6, 3)
    models = [classifier(each, ledger=account.path), regressor(each, ledger=str(account.path)), classifier(each)]
    models[0].fit(x, y, agents=agents)
    assert account.state().epsilon_used == pytest.approx(each, rel=1e-3)
    models[1].fit(x, values(x))
    spent = models[1].privacy_spent_
    assert spent.fits == 2 and spent.epsilon <= each < spent.all_fits_epsilon == account.state().epsilon_used
    with pytest.raises(InputError, match="not among the classes"):  # what fails before it begins costs nothing
        models[2].set_params(ledger=account.path, classes=["a", "b"]).fit(x, y)
    with pytest.raises(InputError, match="total_records is"):
        models[2].set_params(classes=[0, 1], total_records=50).fit(x, y)
    models[2].set_params(total_records=200).fit(x, y)
    assert 0.99 * 2.0 < account.state().epsilon_used <= 2.0
    studies = account.state().studies
    assert {study.study for study in studies} == {"TaciturnClassifier", "TaciturnRegressor"}
    assert all(study.settled for study in studies)
    with pytest.raises(BudgetExhausted):
        classifier(each, ledger=account.path).fit(x, y)


def test_the_plan_is_reserved_before_a_record_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, _ = problem()
    account, used, real = ledger(tmp_path, 2.0), [], FitData.dataset

    def looks(self: FitData) -> Dataset:
        used.append(account.state().epsilon_used)
        return real(self)

    monkeypatch.setattr(FitData, "dataset", looks)
    classifier(ledger=account.path).fit(x, y)
    assert used == [pytest.approx(1.0, rel=1e-3)]


def test_only_a_fit_without_noise_ends_when_its_model_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A private model does not decide when training stops."""
    x, y, _ = problem()
    monkeypatch.setattr(fitting, "TOLERANCE", 1e9)
    assert classifier().fit(x, y).n_iter_ == 20
    assert classifier(math.inf, features="none", algorithm="admm").fit(x, y).n_iter_ == 2


def test_a_fit_that_breaks_off_stays_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted fit may have been observed, so its whole plan stays reserved."""
    from taciturn.algorithms.noisy_gradient import HardenedGradient

    x, y, _ = problem()
    account, calls, real = ledger(tmp_path, 2.0), Counter[str](), HardenedGradient.__call__

    def breaks(self: Any, *args: Any) -> Any:
        calls["made"] += 1
        if calls["made"] > 5:
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(HardenedGradient, "__call__", breaks)
    with pytest.raises(KeyboardInterrupt):
        classifier(ledger=account.path).fit(x, y)
    assert account.state().epsilon_used == pytest.approx(1.0, rel=1e-3)


def test_constructors_store_what_they_are_given() -> None:
    bounds = np.array([[0.0, 1.0]])
    for model in (TaciturnClassifier(bounds=bounds, random_state=5), TaciturnRegressor(bounds=bounds, ledger="x")):
        assert model.bounds is bounds and model.total_epsilon == 1.0 and model.delta == 1e-6
        assert not hasattr(model, "partial_fit")
