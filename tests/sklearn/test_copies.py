"""Copies of an estimator in one process share their history, so none spends the budget a second time."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import clone

from taciturn.errors import InputError
from taciturn.sklearn import PrivacyWarning, fit_history
from tests.sklearn.helpers import classifier, ledger, problem

pytestmark = pytest.mark.filterwarnings("ignore::taciturn.sklearn.PrivacyWarning")

ELSEWHERE = """
import pickle, sys
import numpy as np
from tests.sklearn.helpers import problem

x, y, _ = problem()
model = pickle.load(open(sys.argv[1], "rb"))
print(model.predict(x[:3]).shape)
try:
    model.fit(x, y)
except ValueError as refused:
    print("refused:", refused)
print(model.set_params(ledger=sys.argv[2]).fit(x, y).privacy_spent_.fits)
"""


def unpickled(model: Any) -> Any:
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("copied", [clone, copy.copy, copy.deepcopy, unpickled])
@pytest.mark.parametrize("fitted", [False, True])
def test_a_copy_and_its_original_share_one_account(copied: Any, fitted: bool) -> None:
    """Original and copy once counted their fits separately: after three fits each said two."""
    x, y, _ = problem()
    model = classifier()
    if fitted:
        model.fit(x, y)
    other = copied(model)
    fits = [one.fit(x, y).privacy_spent_.fits for one in (model, other, model)]
    assert fits == ([2, 3, 4] if fitted else [1, 2, 3])


def test_a_copy_of_a_copy_shares_it_too() -> None:
    x, y, _ = problem()
    model = classifier().fit(x, y)
    second = unpickled(clone(unpickled(model)))
    assert second.fit(x, y).privacy_spent_.fits == 2
    assert model.fit(x, y).privacy_spent_.fits == 3


def test_one_from_a_file_predicts_but_is_fitted_with_a_ledger_alone(tmp_path: Path) -> None:
    x, y, _ = problem()
    account = ledger(tmp_path, 3.0)
    (tmp_path / "model").write_bytes(pickle.dumps(classifier(ledger=None).fit(x, y)))
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path / "model"), str(account.path)]
    shape, said, fits = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert shape == "(3,)" and said.startswith("refused: this estimator comes from another process, or from a file")
    assert "give ledger=PATH" in said
    assert fits == "1"  # the ledger's first


def test_the_number_of_the_process_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later process may have the same id, and a forked process has its parent's memory."""
    x, y, _ = problem()
    model = classifier().fit(x, y)
    data = pickle.dumps(model)
    with monkeypatch.context() as later:
        later.setattr(fit_history, "_HISTORIES", {})
        with pytest.raises(InputError, match="comes from another process"):
            pickle.loads(data).fit(x, y)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        for one in (model, pickle.loads(data)):
            with pytest.raises(InputError, match="comes from another process"):
                one.fit(x, y)
    assert model.fit(x, y).privacy_spent_.fits == 2


def test_a_new_estimator_begins_at_nothing() -> None:
    x, y, _ = problem()
    model = classifier().fit(x, y)
    with pytest.warns(PrivacyWarning):
        model.fit(x, y)
    assert type(model)(**model.get_params()).fit(x, y).privacy_spent_.fits == 1
