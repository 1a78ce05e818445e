"""scikit-learn's own checks of an estimator."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from taciturn.errors import InputError
from taciturn.sklearn import TaciturnClassifier, TaciturnRegressor


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "taciturn.sklearn")
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(InputError, match=r"pip install 'taciturn\[sklearn\]'"):
        importlib.import_module("taciturn.sklearn")


@parametrize_with_checks([TaciturnClassifier(math.inf), TaciturnRegressor(math.inf)])  # type: ignore[untyped-decorator]
def test_scikit_learns_checks_pass(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
