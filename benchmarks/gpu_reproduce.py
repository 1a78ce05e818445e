"""Speed of the paper's grid on one GPU, compared with the least time for its arithmetic and memory traffic.

    taciturn bench gpu-reproduce [--rounds 1000] [--data mnist,femnist] [--out FILE]

The floor of an operation is the larger of its flops at the rate of a large matrix product and its bytes at the
bandwidth of a large copy, both measured in the same run: every input read once, every output written once, no padding.
The test error of every tenth round, in float32, is part of the work and of the floor.
A stage of 3 algorithms x 4 epsilons x 10 seeds x 20,000 rounds is extrapolated from the rounds that are run.
Needs a GPU, MNIST and FEMNIST, and of other packages numpy, torch and triton alone when it is started as
`python -m benchmarks.gpu_reproduce`.

Takes minutes on a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from benchmarks.program import arguments, write_results

from taciturn.data import DataOptions, load
from taciturn.research.reproduction.paper_runs import DATA, ReproductionPlan, Stage, make_plan
from taciturn.research.reproduction.stages import FusedEngine, build_algorithm
from taciturn.types import Dataset

T = 20000
EVERY = 10  # rounds between two evaluations, as in a reproduction after its first hundred


def rates() -> dict[str, float]:
    """The machine's own: flops of a large product with half-precision factors, bytes of a large copy, a second."""
    a, b = torch.randn((2, 8192, 8192), device="cuda").half()
    big = torch.empty(2**30, device="cuda")
    other = torch.empty_like(big)
    single = a.float(), b.float()
    return {
        "float32_flops": 2 * 8192**3 / _seconds(lambda: single[0] @ single[1], 5),
        "product_flops": 2 * 8192**3 / _seconds(lambda: a @ b),
        "copy_bytes": 2 * big.nbytes / _seconds(lambda: other.copy_(big)),
    }


def _seconds(work: Callable[[], Any], repeat: int = 20) -> float:
    for _ in range(5):
        work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(repeat):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / repeat


def floors(dataset: Dataset, runs: int, rate: dict[str, float], first: bool) -> dict[str, float]:
    """The least time of one local update's operations, in seconds."""
    agents, records, features = len(dataset.agents), dataset.records, len(dataset.features)
    classes = dataset.target.width
    x, scores, z = records * features, records * runs * classes, agents * features * runs * classes
    flops = 2 * records * features * runs * classes

    def least(flops: float, moved: float) -> float:
        return max(flops / rate["product_flops"], moved / rate["copy_bytes"])

    kept = (
        5 if first else 6
    )  # z and lambda in and out, the gradient; else z, lambda, the gradient and the sum of iterates
    return {
        "scores": least(flops, 2 * x + 2 * z + 4 * scores),
        "residual": least(0, (4 + 2) * scores),
        "gradient": least(flops, 2 * x + 2 * scores + 4 * z),
        "update": least(0, (4 * kept + 2) * z),
    }


def measure(
    stage: Stage, plan: ReproductionPlan, engine: FusedEngine, rate: dict[str, float], rounds: int
) -> dict[str, Any]:
    """Some rounds of a stage, and its floor."""
    algorithm = build_algorithm(stage, DATA[plan.data], engine.dataset, engine.precision)
    play = engine.compute_rounds(algorithm, tuple(case.seed for case in stage.cases), rounds + 3, None)
    for _ in range(3):  # compiles
        next(play).measure()
    torch.cuda.synchronize()
    began = time.perf_counter()
    numbers = [played.measure() for played in play if played.t % EVERY == 0]
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - began) / rounds
    middle = floors(engine.dataset, len(stage.cases), rate, first=False)
    single = floors(engine.dataset, len(stage.cases), rate, first=True)
    test, parameters = engine.dataset.test, len(engine.dataset.features) * engine.dataset.target.width
    tested = 0 if test is None else 2 * len(test.x) * parameters * len(stage.cases)
    evaluation = tested / rate["float32_flops"] / EVERY
    floor = sum(single.values()) + (stage.local_updates - 1) * sum(middle.values()) + evaluation
    return {
        "stage": stage.name,
        "runs": len(stage.cases),
        "rounds": rounds,
        "ms_a_round": round(1e3 * seconds, 4),
        "floor_ms_a_round": round(1e3 * floor, 4),
        "ratio": round(seconds / floor, 3),
        "seconds_for_20000": round(T * seconds, 1),
        "evaluations": len(numbers),
        "floor_ms_of_an_update": {name: round(1e3 * value, 4) for name, value in middle.items()},
    }


def measured(data: str, rate: dict[str, float], rounds: int) -> dict[str, Any]:
    """The paper's grid of one data set."""
    dataset = load(DataOptions(data=data, precision="float32"))
    engine, plan = FusedEngine(dataset), make_plan(data, (1,), seeds=10)
    stages = []
    for stage in plan.stages:
        grid = replace(stage, cases=stage.cases[:40])
        stages.append(measure(grid, plan, engine, rate, rounds))
        print(stages[-1], flush=True)
        torch.cuda.empty_cache()
    total, floor = (sum(stage[name] for stage in stages) for name in ("ms_a_round", "floor_ms_a_round"))
    return {
        "stages": stages,
        "seconds_for_20000": round(T * total / 1e3, 1),
        "floor_seconds_for_20000": round(T * floor / 1e3, 1),
        "ratio": round(total / floor, 3),
    }


def main() -> None:
    """Measure and write."""
    parser = arguments(__doc__, "gpu_reproduce")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--data", default="mnist,femnist")
    given = parser.parse_args()
    rate = rates()
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, **rate}
    print(found, flush=True)
    for data in given.data.split(","):
        found[data] = measured(data, rate, given.rounds)
        write_results(given.out, found)


if __name__ == "__main__":
    main()
