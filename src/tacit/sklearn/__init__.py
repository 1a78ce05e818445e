"""Tacit as scikit-learn estimators: a linear model of several parties' records within a privacy budget."""

from __future__ import annotations

from tacit.errors import InputError

try:
    import sklearn  # noqa: F401
except ImportError:
    raise InputError("tacit.sklearn needs scikit-learn: pip install 'tacit[sklearn]'") from None

from tacit.sklearn.classifier import TacitClassifier
from tacit.sklearn.regressor import TacitRegressor
from tacit.sklearn.spending import PrivacySpent, PrivacyWarning, epsilon_of_each

__all__ = ["PrivacySpent", "PrivacyWarning", "TacitClassifier", "TacitRegressor", "epsilon_of_each"]
