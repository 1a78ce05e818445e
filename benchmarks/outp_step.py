"""Why OutP and ObjP differ without noise: their steps, not their perturbation. On mnist14, 2,000 rounds, no noise.

    python -m benchmarks.outp_step

OutP's gradient is a mean over the agent's own I_p records and 1/eta is I_p/4; ObjP's gradient is over all I records
and 1/eta is sqrt(t). OutP's subproblem divided by P = I/I_p has ObjP's gradient, rho/P and 1/eta = I_p/(4P): ObjP
with those two numbers should end where OutP does, but for the order in which z, w and lambda are updated.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from tacit.algorithms import ALGORITHMS, Recipe
from tacit.algorithms.releases.paper import PaperRelease
from tacit.algorithms.schedules import Constant, DynamicRho, NonsmoothEta, Schedule
from tacit.data import DataOptions, load
from tacit.engine.evaluate import test_error
from tacit.engine.simulate import simulate, start
from tacit.privacy.mechanisms.laplace_data_dependent import LaplaceDataDependent
from tacit.privacy.noise import SeededNoise
from tacit.reproduction.build import build_problem
from tacit.reproduction.plan import DATA

ROUNDS = (100, 500, 2000)
RESULTS = Path(__file__).parent / "results" / "outp_step.json"
INF = np.array([math.inf])


def main() -> None:
    """Three runs side by side in one table."""
    dataset = load(DataOptions())
    agents, records = len(dataset.agents), len(dataset.train[0].x)
    paper = DATA["mnist"]
    rho: Schedule = DynamicRho(INF, paper.c1, paper.c2, paper.tc)
    smaller: Schedule = DynamicRho(INF, paper.c1 / agents, paper.c2, paper.tc)
    runs: dict[str, tuple[str, Schedule, Schedule]] = {
        "OutP": ("outp", rho, NonsmoothEta(INF)),  # it has its own step
        "ObjP": ("objp", rho, NonsmoothEta(INF)),
        "ObjP with OutP's step": ("objp", smaller, Constant(4.0 * agents / records, INF)),
    }
    found: dict[str, dict[str, float]] = {}
    for name, (method, penalty, eta) in runs.items():
        release = PaperRelease(LaplaceDataDependent(INF))
        algorithm = ALGORITHMS[method].build(Recipe(build_problem(dataset), INF, penalty, eta, release))
        state = start(dataset.train, 1, "sums", averages=False)
        found[name] = {}
        for done in simulate(algorithm, dataset.train, lambda p, t: SeededNoise((1,), p, t), ROUNDS[-1], state):
            if done.t in ROUNDS:
                error = 100.0 * float(test_error(done.w, dataset.test, dataset.target)[0])
                found[name][str(done.t)] = round(error, 2)
        print(name, found[name], flush=True)
    facts = {"data": "mnist14", "agents": agents, "records_an_agent": records}
    RESULTS.write_text(json.dumps(facts | {"test_error_percent": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
