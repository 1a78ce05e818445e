"""Do products in half precision or TF32 move the results? 200 rounds of MNIST with the same seeds, on a GPU and here.

    python -m benchmarks.gpu_precision play FILE      on a GPU: the models after 200 rounds, into an .npz file
    python -m benchmarks.gpu_precision compare FILE   anywhere: against numpy's float64, into gpu_precision.json

The noise of ObjP and ObjPM is the same numbers on both sides; OutP's is of the same distribution only, so that it is
compared without noise.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data import DataOptions, load
from tacit.engine.evaluate import test_error
from tacit.engine.simulate import simulate, start
from tacit.engine.torch_backend import matrix_products
from tacit.privacy.noise import SeededNoise
from tacit.reproduction.build import build_algorithm
from tacit.reproduction.engines import PRODUCTS, FusedEngine
from tacit.reproduction.plan import DATA, Case, Stage

ROUNDS = 200
NOISY = (Case(0.05, 1), Case(1.0, 1), Case(math.inf, 1))
STAGES = (
    Stage("outp", "outp", NOISY[2:], "published"),
    Stage("objp", "objp", NOISY),
    Stage("objpm", "objpm", NOISY, local_updates=10),
)
RESULTS = Path(__file__).parent / "results" / "gpu_precision.json"


def play(path: Path) -> None:
    """The models of every stage, for every kind of product."""
    from tacit.engine import fused  # noqa: PLC0415  there is triton only where a GPU is

    dataset = load(DataOptions(data="mnist", precision="float32"))
    found: dict[str, Any] = {}
    for products in PRODUCTS:
        engine = FusedEngine(dataset, products=products)
        for stage in STAGES:
            algorithm: Any = build_algorithm(stage, DATA["mnist"], dataset, engine.precision)
            batch = fused.Batch(engine.stack, tuple(case.seed for case in stage.cases))
            with matrix_products(products == "tf32"):
                *_, last = fused.simulate(algorithm, batch, ROUNDS, fused.start(batch))
            found[f"{products} {stage.name}"] = last.model().cpu().numpy()
    np.savez(path, **found)


def compare(path: Path) -> None:
    """Relative differences to float64, and both test errors."""
    dataset, stored = load(DataOptions(data="mnist", precision="float64")), np.load(path)
    rows = []
    for stage in STAGES:
        w = _reference(dataset, stage)
        error = test_error(w, dataset.test, dataset.target)
        for products in PRODUCTS:
            other = stored[f"{products} {stage.name}"].astype(np.float64)
            other_error = test_error(other, dataset.test, dataset.target)
            for r, case in enumerate(stage.cases):
                rows.append(
                    {
                        "algorithm": stage.name,
                        "epsilon": "inf" if math.isinf(case.epsilon) else case.epsilon,
                        "products": products,
                        "relative_difference": float(
                            f"{np.linalg.norm(other[:, r] - w[:, r]) / np.linalg.norm(w[:, r]):.2g}"
                        ),
                        "test_error_percent": round(100 * float(other_error[r]), 2),
                        "float64_percent": round(100 * float(error[r]), 2),
                    }
                )
                print(rows[-1], flush=True)
    RESULTS.write_text(json.dumps({"rounds": ROUNDS, "data": "mnist", "rows": rows}, indent=1) + "\n", encoding="utf-8")


def _reference(dataset: Any, stage: Stage) -> Any:
    algorithm = build_algorithm(stage, DATA["mnist"], dataset, "float64")
    seeds = tuple(case.seed for case in stage.cases)
    state = start(dataset.train, len(seeds), "sums", averages=False)
    last = None
    for last in simulate(algorithm, dataset.train, lambda p, t: SeededNoise(seeds, p, t), ROUNDS, state):
        if last.t % 20 == 0:
            print(f"{stage.name}: round {last.t} of {ROUNDS}", file=sys.stderr, flush=True)
    assert last is not None
    return last.w


if __name__ == "__main__":
    {"play": play, "compare": compare}[sys.argv[1]](Path(sys.argv[2]))
