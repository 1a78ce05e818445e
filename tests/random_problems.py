"""Small random problems, for the laws, and every way to pass over their records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from taciturn.algorithms import ALGORITHMS, Algorithm, AlgorithmConfig
from taciturn.algorithms.noisy_gradient import CertifiedGradient, NoisyGradient, PaperGradient
from taciturn.algorithms.schedules import NonsmoothEta
from taciturn.core.arrays import namespace
from taciturn.kernels import library
from taciturn.kernels import row_pass as rows
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.objectives import passes as passes_module
from taciturn.objectives.clipping import GradientClipping, RecordScaling
from taciturn.objectives.passes import COMPILED, PLAIN, Passes
from taciturn.privacy.events import NON_PRIVATE, Noise
from taciturn.privacy.mechanisms import Calibrated, LaplaceDataDependent, OutputNoise
from taciturn.privacy.noise import SeededNoise
from taciturn.training.simulate import Round, simulate, start
from taciturn.types import Array, Shard

J, K = 4, 3
LEVELS = [each for each in library.LEVELS if each <= library.level()]  # none without the compiled library


def passes_with(level: int | str, monkeypatch: pytest.MonkeyPatch) -> Passes:
    """The pass of "numpy", or the compiled one with the instructions of a level."""
    if level == "numpy":
        return PLAIN
    monkeypatch.setattr(rows, "level", lambda: level)
    monkeypatch.setattr(passes_module, "level", lambda: level)
    return COMPILED


def shards(seed: int, sizes: tuple[int, ...] = (7, 5, 9), dtype: Any = np.float64) -> list[Shard]:
    """Agents with features in [0, 1] and one-hot labels of K classes."""
    rng = np.random.default_rng(seed)
    return [Shard(rng.random((n, J)).astype(dtype), np.eye(K, dtype=dtype)[rng.integers(0, K, n)]) for n in sizes]


def problem(
    parts: list[Shard],
    loss: str = "softmax",
    regulariser: str = "l2",
    beta: float = 0.01,
    feasible: str = "all",
    size: float = 0.3,
) -> Problem:
    """The problem those agents share."""
    records = sum(len(part.x) for part in parts)
    return Problem(LOSSES[loss](), REGULARISERS[regulariser](), beta, SETS[feasible](size), records, len(parts))


def varying(base: float) -> Callable[[int], float]:
    """A penalty that no two neighbouring rounds share, so that a wrong t shows."""
    return lambda t: base * 1.3 ** (t % 7)


@dataclass(frozen=True, eq=False)
class Varying:
    """The varying penalty of every run."""

    epsilon: Array  # [R]
    base: float

    def __call__(self, t: int) -> Array:
        rho: Array = namespace(self.epsilon).full_like(self.epsilon, varying(self.base)(t))
        return rho[:, None]


def build(
    name: str, of: Problem, epsilon: list[float], rho: float = 0.5, eta: float = 1.0, **changes: Any
) -> Algorithm:
    """An algorithm with plain schedules, its penalty varying about rho."""
    budget = np.array(epsilon, dtype=changes.pop("dtype", np.float64))
    method = ALGORITHMS[name]
    updates = changes.pop("local_updates", method.local_updates or 1)
    release = changes.pop("release", None) or release_for(name, budget)
    pace = Varying(budget, rho), NonsmoothEta(budget, eta)
    return method.build(
        AlgorithmConfig(of, budget, *pace, release, local_updates=updates, **noise_config_for(name, budget) | changes)
    )


def release_for(name: str, budget: Array) -> NoisyGradient:
    """The paper's release, or for a method that only certified mode has, noise that grows as the budget shrinks."""
    if "paper" in ALGORITHMS[name].modes:
        return PaperGradient(LaplaceDataDependent(budget))
    events = [Noise("gaussian", 0.01 / float(e), 1.0, 1.0) if np.isfinite(e) else NON_PRIVATE for e in budget]
    return CertifiedGradient(RecordScaling(1.5), Calibrated("gaussian", tuple(events)))


def noise_config_for(name: str, budget: Array) -> dict[str, Any]:
    """What certified mode has for methods with noise of their own; the others do not ask for it."""
    wide = np.full(len(budget), 0.5, budget.dtype), np.full(len(budget), np.inf, budget.dtype)
    return {
        "clipping": RecordScaling(1.5) if ALGORITHMS[name].scales_records else GradientClipping(*wide),
        "noise": OutputNoise("gaussian", np.where(np.isfinite(budget), 0.01 / budget, 0.0)),
        "sensitivity": 1.0,
        "trace": 1.0,
        "rank": K,
        "sampling": 0.5 if ALGORITHMS[name].noise_on == "samples" else 1.0,
    }


def run(
    algorithm: Algorithm,
    parts: list[Shard],
    seeds: tuple[int, ...],
    rounds: int,
    server: str = "full",
    watch: Callable[[Round], None] = lambda done: None,
) -> Round:
    """All rounds; the last one."""
    last = None
    for done in simulate(
        algorithm, parts, lambda p, t: SeededNoise(seeds, p, t), rounds, start(parts, len(seeds), server)
    ):
        watch(done)
        last = done
    assert last is not None
    return last


def close(a: Array, b: Array, relative: float) -> bool:
    """||a - b|| <= relative ||b||."""
    return bool(np.linalg.norm(a - b) <= relative * np.linalg.norm(b))
