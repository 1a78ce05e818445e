"""Small problems, and estimators with all declarations that a finite budget needs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taciturn.privacy.budget import BudgetLedger
from taciturn.sklearn import TaciturnClassifier, TaciturnRegressor

Records = tuple[NDArray[np.float64], NDArray[Any], NDArray[Any]]


def problem(n: int = 120, features: int = 3, classes: int = 2, seed: int = 0) -> Records:
    """Features in [-1, 1], labels that depend on them, and three parties."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1.0, 1.0, (n, features))
    scores = x @ random.normal(size=(features, classes)) + 0.2 * random.gumbel(size=(n, classes))
    return x, scores.argmax(axis=1), random.choice(["north", "south", "west"], n)


def values(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values in [0, 50] for a regressor."""
    noise = np.random.default_rng(1).normal(size=len(x))
    return np.clip(25.0 + 10.0 * x[:, 0] - 5.0 * x[:, -1] + noise, 0.0, 50.0)


def classifier(total_epsilon: float = 1.0, **more: Any) -> TaciturnClassifier:
    given: dict[str, Any] = {"bounds": (-1, 1), "classes": [0, 1], "total_records": 200, "rounds": 20}
    return TaciturnClassifier(total_epsilon, **(given | more))


def regressor(total_epsilon: float = 1.0, **more: Any) -> TaciturnRegressor:
    given: dict[str, Any] = {"bounds": (-1, 1), "label_bounds": (0, 50), "total_records": 200, "rounds": 20}
    return TaciturnRegressor(total_epsilon, **(given | more))


def exact(model: type[Any] = TaciturnClassifier, **more: Any) -> Any:
    """Return an estimator without privacy whose strongly convex objective converges quickly."""
    return model(math.inf, **({"bounds": (-1, 1), "alpha": 0.01} | more))


def linear(model: type[Any] = TaciturnClassifier, **more: Any) -> Any:
    """Return the same with a model that is linear in the features themselves."""
    return exact(model, features="none", **more)


def ledger(folder: Path, total_epsilon: float, name: str = "l") -> BudgetLedger:
    return BudgetLedger.create(folder / name, "records", total_epsilon, 1e-6)
