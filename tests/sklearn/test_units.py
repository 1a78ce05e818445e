"""Repeated rows, rows of one person, and ensembles that repeat rows or set seeds."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    BaggingRegressor,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

import taciturn
from sklearn import config_context
from taciturn.errors import InputError, PrivacyViolation
from taciturn.sklearn.fitting import FitData
from taciturn.types import Dataset
from tests.cli.test_violations import plugin
from tests.sklearn.helpers import classifier, exact, ledger, problem, regressor, values

pytestmark = pytest.mark.filterwarnings("ignore::taciturn.sklearn.PrivacyWarning")
LEFT_OUT = "ignore:.* rows were left out"


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[NDArray[Any]]:
    """Record the rows that every fit trains on, label last."""
    seen: list[NDArray[Any]] = []
    real = FitData.dataset

    def looks(self: FitData) -> Dataset:
        made = real(self)
        seen.append(np.concatenate([np.column_stack([shard.x, shard.y]) for shard in made.train]))
        return made

    monkeypatch.setattr(FitData, "dataset", looks)
    return seen


def most_alike(rows: NDArray[Any]) -> int:
    """Return how often the most frequent row occurs."""
    return int(np.unique(rows, axis=0, return_counts=True)[1].max())


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("make", [classifier, regressor])
def test_a_record_that_is_given_six_times_is_used_as_often_as_the_noise_covers(
    make: Any, most: int, used: list[NDArray[Any]]
) -> None:
    x, y, agents = problem()
    y = y if make is classifier else values(x)
    often = np.concatenate([np.arange(120), np.repeat(7, 5)])
    model = make(max_records=most, clip=0.1, random_state=1)
    with pytest.warns(UserWarning, match=f"{6 - most} of 125 rows were left out: identical rows"):
        model.fit(x[often], y[often], agents=agents[often])
    assert most_alike(used[0]) == most and len(used[0]) == 119 + most
    plain = make(clip=0.1, random_state=1).fit(x, y, agents=agents)
    scales = [float(one.ledger_["events"][0]["scale"]) for one in (model, plain)]
    assert scales[0] == pytest.approx(most * scales[1])
    assert model.privacy_spent_.epsilon <= 1.0 and model.ledger_["unit"] == "record"


def test_without_a_budget_every_row_is_used(used: list[NDArray[Any]]) -> None:
    x, y, _ = problem()
    often = np.repeat(np.arange(120), 2)
    exact().fit(x[often], y[often], groups=often)
    assert len(used[0]) == 240


@pytest.mark.filterwarnings(LEFT_OUT)
@pytest.mark.parametrize("most", [1, 2])
def test_all_rows_of_a_person_are_protected_together(most: int, used: list[NDArray[Any]]) -> None:
    x, y, agents = problem()
    persons = np.arange(120) // 4
    model = classifier(max_records=most, clip=0.1).fit(x, y, groups=persons, agents=np.array(["a", "b"])[persons % 2])
    assert len(used[0]) == 30 * most
    assert model.privacy_spent_.statement.startswith("Every group (all its records at one party) is protected")
    event = model.ledger_["events"][0]
    plain = classifier(clip=0.1).fit(x, y, agents=agents).ledger_["events"][0]
    assert float(event["l2"]) == pytest.approx(most * float(plain["l2"]))
    assert (model.ledger_["unit"], plain["mechanism"]) == ("group", event["mechanism"])


@pytest.mark.filterwarnings(LEFT_OUT)
def test_a_person_is_one_unit_however_the_number_is_written(used: list[NDArray[Any]]) -> None:
    x, y, _ = problem()
    written = [form for n in range(30) for form in (n, float(n), f"{n}.0", f" 0{n}")]
    classifier(max_records=1, clip=0.1).fit(x, y, groups=np.array(written, dtype=object))
    assert len(used[0]) == 30


@pytest.mark.filterwarnings(LEFT_OUT)
def test_a_series_names_the_unit_and_a_ledger_is_held_to_it(tmp_path: Any) -> None:
    pandas = pytest.importorskip("pandas")
    x, y, _ = problem()
    patients = pandas.Series(np.arange(120) // 3, name="patient")
    model = classifier(0.5, max_records=3, ledger=ledger(tmp_path, 1.0).path)
    with pytest.raises(InputError, match="unit"):
        model.fit(x, y, groups=patients)
    spent = model.set_params(ledger=None).fit(x, y, groups=patients).privacy_spent_
    assert spent.statement.startswith(
        "Every patient (all its records at one party) is protected with total epsilon 0.5"
    )
    mixed = model.fit(x, y).privacy_spent_
    assert "together to every single record, since not all were for the same unit." in mixed.statement


def test_identical_rows_of_different_persons_are_all_used(used: list[NDArray[Any]]) -> None:
    """Three yes-or-no questions: most persons give the same answers as another person."""
    random = np.random.default_rng(2)
    x, y = random.integers(0, 2, (100, 3)).astype(float), random.integers(0, 2, 100)
    classifier().fit(x, y, groups=range(100))
    with pytest.warns(UserWarning, match=r"groups=range\(len\(X\)\)"):
        classifier().fit(x, y)
    assert len(used[0]) == 100 and len(used[1]) <= 16


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"groups": [1, 2]}, r"groups has shape \(2,\): it must name the unit of each of the 120 records"),
        ({"groups": [None] * 120}, "groups has a missing value: every record needs its unit"),
    ],
)
def test_groups_that_do_not_fit_are_refused(given: dict[str, Any], sentence: str) -> None:
    x, y, _ = problem()
    for model in (classifier(), exact()):
        with pytest.raises(InputError, match=sentence):
            model.fit(x, y, **given)
    with pytest.raises(InputError, match="max_records is 0: it must be a whole number of at least 1"):
        classifier(max_records=0).fit(x, y)


# ensembles


@pytest.mark.parametrize(
    ("ensemble", "make"), [(BaggingClassifier, classifier), (BaggingRegressor, regressor)], ids=["classes", "numbers"]
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_bagging_is_refused_where_noise_is_the_operating_systems(ensemble: Any, make: Any, wrapped: bool) -> None:
    """Bagging sets random_state on every clone and repeats records."""
    x, y, _ = problem()
    y = y if make is classifier else values(x)
    model = make_pipeline(PolynomialFeatures(1, include_bias=False), make()) if wrapped else make()
    with pytest.raises(
        InputError, match="random_state was set on a clone of an estimator whose noise comes from the op"
    ):
        ensemble(model, n_estimators=2, random_state=0).fit(x, y)
    with pytest.raises(InputError, match="random_state was set on a clone"):
        GridSearchCV(make(), {"random_state": [1, 2]}, cv=2, error_score="raise").fit(x, y)
    with pytest.raises(InputError, match="random_state was set on a clone"):
        clone(clone(make()).set_params(random_state=3)).fit(x, y)  # nor does a second clone forget it


@pytest.mark.filterwarnings(LEFT_OUT)
def test_bagging_of_simulations_uses_no_record_twice(used: list[NDArray[Any]]) -> None:
    x, y, _ = problem()
    model = classifier(random_state=5, sample_weight_max=3)  # how often a bootstrap draws a record is its weight
    bag = BaggingClassifier(model, n_estimators=3, random_state=0).fit(x, y)
    assert len(used) == 3 and all(most_alike(rows) == 1 for rows in used)
    spent = bag.estimators_[-1].privacy_spent_
    assert spent.simulated and spent.fits == 3
    assert 1.5 * spent.epsilon < spent.all_fits_epsilon < 3 * spent.epsilon
    with pytest.raises(InputError, match="sample_weight_max is None"):
        BaggingClassifier(classifier(random_state=5), n_estimators=3, random_state=0).fit(x, y)
    BaggingClassifier(exact(), n_estimators=2, random_state=0).fit(x, y)  # no budget, so nothing to declare


@pytest.mark.filterwarnings(LEFT_OUT)
def test_bagging_takes_groups_along(used: list[NDArray[Any]]) -> None:
    """If every row is another person, repeated persons are still detected."""
    x, y, _ = problem()
    with config_context(enable_metadata_routing=True):
        model = classifier(random_state=5).set_fit_request(groups=True)
        BaggingClassifier(model, n_estimators=2, random_state=0).fit(x, y, groups=np.arange(120))
    assert len(used) == 2 and all(most_alike(rows) == 1 for rows in used)


def test_boosting_is_refused() -> None:
    x, y, _ = problem()
    with pytest.raises(InputError, match="random_state was set on a clone"):
        AdaBoostClassifier(classifier(), n_estimators=2).fit(x, y)


@pytest.mark.parametrize(
    ("meta", "fits"),
    [
        (lambda: VotingClassifier([("a", classifier()), ("b", LogisticRegression())]), 1),
        (lambda: StackingClassifier([("a", classifier())], final_estimator=LogisticRegression(), cv=3), 4),
        (lambda: CalibratedClassifierCV(classifier(), cv=3), 3),
        (lambda: GridSearchCV(classifier(), {"alpha": [1e-6, 1e-3]}, cv=2), 5),
    ],
    ids=["voting", "stacking", "calibrated", "search"],
)
def test_every_fit_of_an_ensemble_is_added_up(meta: Any, fits: int, used: list[NDArray[Any]]) -> None:
    x, y, _ = problem()
    model = meta()
    model.fit(x, y)
    assert len(used) == fits and all(most_alike(rows) == 1 for rows in used)
    inner = dict(model.estimators)["a"] if hasattr(model, "estimators") else model.estimator
    spent = clone(inner).fit(x, y).privacy_spent_
    assert spent.fits == fits + 1 and not spent.simulated
    assert 1.2 * spent.epsilon < spent.all_fits_epsilon <= (fits + 1) * spent.epsilon


def test_two_parts_of_an_ensemble_have_accounts_of_their_own() -> None:
    """Two estimators have separate histories: only a ledger adds them up."""
    x, y, _ = problem()
    voting = VotingClassifier([("a", classifier()), ("b", classifier())]).fit(x, y)
    assert [one.privacy_spent_.fits for one in voting.estimators_] == [1, 1]


def test_cross_validation_with_repeated_rows_uses_none_twice(used: list[NDArray[Any]]) -> None:
    x, y, _ = problem()
    random = np.random.default_rng(0)
    bootstrap = [(random.integers(0, 120, 120), np.arange(120)) for _ in range(2)]
    with pytest.warns(UserWarning, match="rows were left out"):
        assert np.isfinite(cross_val_score(classifier(), x, y, cv=bootstrap)).all()
    assert all(most_alike(rows) == 1 for rows in used)


def test_groups_travel_through_searches(used: list[NDArray[Any]]) -> None:
    x, y, _ = problem()
    with config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = classifier(max_records=2).set_fit_request(groups=True)
        found = GridSearchCV(model, {"alpha": [1e-6, 1e-3]}, cv=2).fit(x, y, groups=np.arange(120) // 4)
    assert found.best_estimator_.privacy_spent_.statement.startswith("Every group")
    assert len(used[-1]) == 60


def test_a_violation_ends_a_search(tmp_path: Any) -> None:
    """A search continues after a failed fit, but not after a privacy violation."""
    x, y, _ = problem()
    taciturn.dry_run(plugins=str(plugin(tmp_path, "leaky_fit", first=2)))  # which registers it
    model = classifier(algorithm="leaky_fit", random_state=1)
    with pytest.raises(PrivacyViolation, match="without noise in round 2"):
        GridSearchCV(model, {"alpha": [1e-6, 1e-3]}, cv=2, error_score=math.nan).fit(x, y)
    assert not hasattr(model, "schema_")
