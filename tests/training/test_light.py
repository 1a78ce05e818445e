"""The engine imports and runs with nothing but numpy: a GPU machine may have no more."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

MISSING = {
    "scipy", "dp_accounting", "click", "rich", "rich_click", "matplotlib", "jinja2", "tomli_w", "pyarrow", "torch",
}

class OnlyNumpy:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in MISSING:
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, OnlyNumpy())
import numpy as np
import taciturn.training.checkpoint, taciturn.objectives.metrics, taciturn.training.torch_backend
from taciturn.algorithms import ALGORITHMS, AlgorithmConfig
from taciturn.algorithms.noisy_gradient import PaperGradient
from taciturn.algorithms.schedules import Constant
from taciturn.privacy.mechanisms import LaplaceDataDependent
from taciturn.training.simulate import simulate, start
from taciturn.privacy.noise import SeededNoise
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.types import Shard

rng = np.random.default_rng(0)
parts = [Shard(rng.random((5, 3)), np.eye(2)[rng.integers(0, 2, 5)]) for _ in range(2)]
problem = Problem(LOSSES["softmax"](), REGULARISERS["l2"](), 1e-6, SETS["all"](1.0), 10, 2)
one = np.ones(1)
release = PaperGradient(LaplaceDataDependent(one))
recipe = AlgorithmConfig(problem, one, Constant(1.0, one), Constant(1.0, one), release)
algorithm = ALGORITHMS["objp"].build(recipe)
*_, last = simulate(algorithm, parts, lambda p, t: SeededNoise((1,), p, t), 3, start(parts, 1))
print(last.t, sorted(ALGORITHMS))
"""


def test_the_engine_needs_only_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3 ['additive', 'admm',")
