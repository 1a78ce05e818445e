"""Why OutP and ObjP differ without noise: their steps, not their perturbation.

    taciturn bench outp-step

2,000 rounds on mnist14 without noise. OutP's gradient is a mean over the agent's own I_p records and 1/eta is I_p/4;
ObjP's gradient is over all I records and 1/eta is sqrt(t). OutP's subproblem divided by P = I/I_p has ObjP's gradient,
rho/P and 1/eta = I_p/(4P): ObjP with those two numbers should end where OutP does, but for the order in which z, w and
lambda are updated.

Then OutP with noise, 300 rounds, mean of 3 seeds: the published step or the calibrated one, with the published noise or
with noise calibrated to its step. Writes benchmarks/results/outp_step.json.

Takes three minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from benchmarks.program import arguments, write_results

from taciturn.algorithms import ALGORITHMS, AlgorithmConfig
from taciturn.algorithms.noisy_gradient import PaperGradient
from taciturn.algorithms.outp import OutpConstants, OutputPerturbation
from taciturn.algorithms.schedules import Constant, DynamicRho, NonsmoothEta, Schedule
from taciturn.data import DataOptions, load
from taciturn.objectives.metrics import test_error
from taciturn.privacy.mechanisms import GaussianClassic, LaplaceDataDependent
from taciturn.privacy.noise import SeededNoise
from taciturn.research.reproduction.paper_runs import DATA
from taciturn.research.reproduction.stages import build_problem
from taciturn.training.simulate import simulate, start
from taciturn.types import Array, Dataset

ROUNDS = (100, 500, 2000)
INF = np.array([math.inf])


def published(records: Any) -> OutpConstants:
    """As the published code has them."""
    return OutpConstants(c1=records, c3=records / 4.0)


@dataclass(frozen=True, eq=False)
class Mixed(OutputPerturbation):
    """OutP with the step of one level and the noise of another."""

    noise: Callable[[Any], OutpConstants] = published

    def sensitivity(self, records: Any, rho: Array, eta: Array) -> Array:
        """2 c1 / (I_p (rho + 1/eta)) with the noise's own c1."""
        moved: Array = 2.0 * self.noise(records).c1 / (records * (rho + 1.0 / eta))
        return moved


def calibrated(records: Any) -> OutpConstants:
    """From the public bound 14 on the length of 196 pixels within 0 and 1."""
    return OutpConstants(c1=math.sqrt(2.0) * 14.0, c3=0.5 * 14.0**2)


def with_noise(dataset: Dataset) -> dict[str, dict[str, float]]:
    """Test error in % of every step with every noise."""
    epsilon = np.repeat([0.05, 5.0], 3)
    paper = DATA["mnist"]
    rho = DynamicRho(epsilon, paper.c1, paper.c2, paper.tc)
    found = {}
    for step, constants in (("published", published), ("calibrated", calibrated)):
        for noise, own in (("published", published), ("calibrated", calibrated)):
            mechanism = GaussianClassic(epsilon, 1e-6, squared=noise == "published")
            algorithm = Mixed(build_problem(dataset), rho, mechanism, constants, noise=own)
            state = start(dataset.train, len(epsilon), "sums", averages=False)
            *_, last = simulate(algorithm, dataset.train, lambda p, t: SeededNoise((1, 2, 3) * 2, p, t), 300, state)
            error = 100.0 * test_error(last.w, dataset.test, dataset.target).reshape(2, 3).mean(axis=1)
            found[f"{step} step, {noise} noise"] = {"0.05": round(error[0], 2), "5": round(error[1], 2)}
            print(f"{step} step, {noise} noise", found[f"{step} step, {noise} noise"], flush=True)
    return found


def main() -> None:
    """Compute both tables."""
    given = arguments(__doc__, "outp_step").parse_args()
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
        release = PaperGradient(LaplaceDataDependent(INF))
        algorithm = ALGORITHMS[method].build(AlgorithmConfig(build_problem(dataset), INF, penalty, eta, release))
        state = start(dataset.train, 1, "sums", averages=False)
        found[name] = {}
        for done in simulate(algorithm, dataset.train, lambda p, t: SeededNoise((1,), p, t), ROUNDS[-1], state):
            if done.t in ROUNDS:
                error = 100.0 * float(test_error(done.w, dataset.test, dataset.target)[0])
                found[name][str(done.t)] = round(error, 2)
        print(name, found[name], flush=True)
    facts = {"data": "mnist14", "agents": agents, "records_an_agent": records}
    tables = {"test_error_percent": found, "with_noise_percent": with_noise(dataset)}
    write_results(given.out, facts | tables)


if __name__ == "__main__":
    main()
