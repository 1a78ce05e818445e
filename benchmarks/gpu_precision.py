"""Do products in half precision or TF32 change the results? 200 rounds of MNIST with the same seeds.

    taciturn bench gpu-precision play FILE      on a GPU: writes the models after 200 rounds to an .npz file
    taciturn bench gpu-precision compare FILE   anywhere: compares them with numpy's float64

Once with the pure steps on torch, in float32 and in TF32, and once with the fused engine and its products. The noise of
ObjP and ObjPM is the same numbers everywhere. The fused OutP's noise has only the same distribution, so OutP is
compared without noise. `compare` writes benchmarks/results/gpu_precision.json.

Takes minutes.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.program import arguments, write_results

from taciturn.core.arrays import to_numpy
from taciturn.data import DataOptions, load
from taciturn.objectives.metrics import test_error
from taciturn.privacy.noise import SeededNoise
from taciturn.research.reproduction.paper_runs import DATA, PaperCase, Stage
from taciturn.research.reproduction.stages import PRODUCTS, FusedEngine, build_algorithm
from taciturn.training.simulate import simulate, start
from taciturn.training.torch_backend import matmul_precision, on_device

ROUNDS = 200
NOISY = (PaperCase(0.05, 1), PaperCase(1.0, 1), PaperCase(math.inf, 1))
STAGES = (
    Stage("outp", "outp", NOISY[2:], "published"),
    Stage("objp", "objp", NOISY),
    Stage("objpm", "objpm", NOISY, local_updates=10),
)


def play(path: Path) -> None:
    """The models of every stage: of the pure steps on the GPU, and of the fused engine for every kind of product."""
    from taciturn.research import gpu as fused

    dataset = load(DataOptions(data="mnist", precision="float32"))
    found: dict[str, Any] = {}
    for kind, tf32 in (("steps, float32", False), ("steps, tf32", True)):
        for stage in STAGES:
            built = build_algorithm(stage, DATA["mnist"], dataset, "float32")
            there, shards = on_device(built, "cuda"), on_device(dataset.train, "cuda")
            with matmul_precision(tf32):
                found[f"{kind} {stage.name}"] = to_numpy(_last(there, shards, stage))
    for products in PRODUCTS:
        engine = FusedEngine(dataset, products=products)
        for stage in STAGES:
            algorithm: Any = build_algorithm(stage, DATA["mnist"], dataset, engine.precision)
            batch = fused.DeviceBatch(engine.stack, tuple(case.seed for case in stage.cases))
            with matmul_precision(products == "tf32"):
                *_, last = fused.simulate(algorithm, batch, ROUNDS, fused.start(batch))
            found[f"{products} {stage.name}"] = last.model().cpu().numpy()
    np.savez(path, **found)


def compare(path: Path, out: Path) -> None:
    """Relative differences to float64, and both test errors."""
    dataset, stored = load(DataOptions(data="mnist", precision="float64")), np.load(path)
    rows = []
    for stage in STAGES:
        w = _reference(dataset, stage)
        error = test_error(w, dataset.test, dataset.target)
        for products in ("steps, float32", "steps, tf32", *PRODUCTS):
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
    write_results(out, {"rounds": ROUNDS, "data": "mnist", "rows": rows})


def _reference(dataset: Any, stage: Stage) -> Any:
    return _last(build_algorithm(stage, DATA["mnist"], dataset, "float64"), dataset.train, stage)


def _last(algorithm: Any, shards: Any, stage: Stage) -> Any:
    """The model after all rounds of the pure steps, wherever the shards are."""
    seeds = tuple(case.seed for case in stage.cases)
    state = start(shards, len(seeds), "sums", averages=False)
    last = None
    for last in simulate(algorithm, shards, lambda p, t: SeededNoise(seeds, p, t), ROUNDS, state):
        if last.t % 20 == 0:
            print(f"{stage.name}: round {last.t} of {ROUNDS}", file=sys.stderr, flush=True)
    assert last is not None
    return last.w


def main() -> None:
    """Compute the models, or compare them."""
    parser = arguments(__doc__, "gpu_precision")
    parser.add_argument("step", choices=("play", "compare"))
    parser.add_argument("file", type=Path, help="the .npz file of the models")
    given = parser.parse_args()
    if given.step == "play":
        play(given.file)
    else:
        compare(given.file, given.out)


if __name__ == "__main__":
    main()
