"""Scikit-learn estimators: additive and linear models of several parties' records within a total privacy budget."""

from __future__ import annotations

from taciturn.errors import InputError

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise InputError("taciturn.sklearn needs scikit-learn: pip install 'taciturn[sklearn]'") from error

from taciturn.sklearn.estimators import TaciturnClassifier, TaciturnRegressor
from taciturn.sklearn.fit_history import PrivacySpent, PrivacyWarning, epsilon_of_each

__all__ = ["PrivacySpent", "PrivacyWarning", "TaciturnClassifier", "TaciturnRegressor", "epsilon_of_each"]
