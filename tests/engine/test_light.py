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
import tacit.engine.checkpoint, tacit.engine.evaluate, tacit.engine.torch_backend
from tacit.algorithms import ALGORITHMS, Recipe
from tacit.algorithms.releases.paper import PaperRelease
from tacit.algorithms.schedules import Constant
from tacit.privacy.mechanisms.laplace_data_dependent import LaplaceDataDependent
from tacit.engine.simulate import simulate, start
from tacit.privacy.noise import SeededNoise
from tacit.problems import LOSSES, REGULARISERS, SETS, Problem
from tacit.types import Shard

rng = np.random.default_rng(0)
parts = [Shard(rng.random((5, 3)), np.eye(2)[rng.integers(0, 2, 5)]) for _ in range(2)]
problem = Problem(LOSSES["softmax"](), REGULARISERS["l2"](), 1e-6, SETS["all"](1.0), 10, 2)
one = np.ones(1)
release = PaperRelease(LaplaceDataDependent(one))
recipe = Recipe(problem, one, Constant(1.0, one), Constant(1.0, one), release)
algorithm = ALGORITHMS["objp"].build(recipe)
*_, last = simulate(algorithm, parts, lambda p, t: SeededNoise((1,), p, t), 3, start(parts, 1))
print(last.t, sorted(ALGORITHMS))
"""


def test_the_engine_needs_only_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3 ['admm', 'admm-objp',")
