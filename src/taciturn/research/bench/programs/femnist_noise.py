"""The noise of one update of 195 agents at FEMNIST's size, compared with numpy filling as many numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from taciturn.kernels.threads import parallel_map
from taciturn.privacy.noise import SeededNoise
from taciturn.research.bench.benchmark import BENCHMARKS, Benchmark, Report
from taciturn.research.bench.measured_rounds import Work
from taciturn.research.bench.timing import Options, time_interleaved

NAME = "femnist-noise"
AGENTS, FEATURES, CLASSES = 195, 784, 62
SMALL = 2  # agents
TACITURN, GAUSSIAN = "Taciturn's Laplace noise, keyed, float32", "Taciturn's Gaussian noise, keyed, float32"
EVERY_CORE = "Taciturn's Laplace noise, on all cores"
LAPLACE64, NORMAL64 = "numpy laplace, float64", "numpy standard_normal, float64"
EXPONENTIAL32, NORMAL32 = "numpy standard_exponential, float32", "numpy standard_normal, float32"
UNIFORM64, UNIFORM32 = "numpy random, float64", "numpy random, float32"


def run(options: Options) -> Report:
    """Time candidates that draw equally many numbers, agent by agent; Taciturn also on all cores, as in a round."""
    agents = SMALL if options.small else AGENTS
    like, scale = np.zeros((FEATURES, 1, CLASSES), np.float32), np.full(1, 0.1, np.float32)
    generator, shape = np.random.default_rng(1), (FEATURES, CLASSES)
    draws = {
        TACITURN: lambda p: SeededNoise((1,), p, 1).continuous(0, "laplace", scale, like),
        GAUSSIAN: lambda p: SeededNoise((1,), p, 1).continuous(0, "gaussian", scale, like),
        LAPLACE64: lambda p: generator.laplace(0.0, 0.1, shape),
        EXPONENTIAL32: lambda p: generator.standard_exponential(shape, np.float32),
        NORMAL64: lambda p: generator.standard_normal(shape),
        NORMAL32: lambda p: generator.standard_normal(shape, np.float32),
        UNIFORM64: lambda p: generator.random(shape),
        UNIFORM32: lambda p: generator.random(shape, np.float32),
    }
    candidates: dict[str, Work] = {name: partial(_one_by_one, draw, agents) for name, draw in draws.items()}
    candidates[EVERY_CORE] = lambda: list(parallel_map(draws[TACITURN], range(agents)))
    timings = time_interleaved(candidates, options)
    best = {name: timing.best for name, timing in timings.items()}
    figures = {
        "ratio_to_numpy_float64": best[TACITURN] / best[LAPLACE64],
        "ratio_on_all_cores": best[EVERY_CORE] / best[LAPLACE64],
        "ratio_to_numpy_float32": best[TACITURN] / best[EXPONENTIAL32],
        "ratio_to_uniform_float32": best[TACITURN] / best[UNIFORM32],
        "gaussian_ratio_to_numpy_float64": best[GAUSSIAN] / best[NORMAL64],
        "gaussian_ratio_to_numpy_float32": best[GAUSSIAN] / best[NORMAL32],
        "numbers": agents * FEATURES * CLASSES,
    }
    title = f"Noise of one update: {agents} agents x {FEATURES} features x {CLASSES} classes"
    notes = (
        "numpy's generator is PCG64, one for all agents; Taciturn's noise has a key for every agent, round and update",
        "numpy has no float32 Laplace: its exponential is one up to the sign, and stands for it",
    )
    return Report(NAME, title, figures, timings, notes=notes)


def _one_by_one(draw: Callable[[int], Any], agents: int) -> list[Any]:
    return [draw(p) for p in range(agents)]


BENCHMARKS.register(NAME)(
    Benchmark("the noise of one update at FEMNIST's size, compared with numpy's bare generator", "a minute", run)
)
