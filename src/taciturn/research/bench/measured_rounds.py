"""One round of Taciturn, and what it is compared with: plain numpy, bare matrix products, other libraries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from taciturn.algorithms import ALGORITHMS, AlgorithmConfig
from taciturn.algorithms.base import SummableAlgorithm
from taciturn.algorithms.noisy_gradient import CertifiedGradient, PaperGradient, PooledGradient
from taciturn.algorithms.schedules import Constant, DynamicRho, NonsmoothEta
from taciturn.kernels.threads import cores
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.objectives.clipping import GradientClipping
from taciturn.privacy.events import Noise
from taciturn.privacy.mechanisms import Calibrated, LaplaceDataDependent
from taciturn.privacy.noise import SeededNoise
from taciturn.research.bench.benchmark import Report
from taciturn.research.bench.inputs import Input
from taciturn.research.bench.timing import Options, Timing, fastest, time_interleaved
from taciturn.training.simulate import Round, simulate, start
from taciturn.training.simulate_sums import simulate_pooled, start_sums
from taciturn.types import Array, Shard, pool

BETA, RHO_C1, RHO_C2 = 1e-6, 2.0, 5.0
FOREVER = 10**9  # rounds


def taciturn_rounds(
    shards: Sequence[Shard], epsilon: Sequence[float] = (1.0,), seeds: Sequence[int] = (1,), local_updates: int = 1
) -> Callable[[], Round]:
    """Return a function that runs one more round in mode paper: server sums, no averages, all runs together."""
    budgets = np.array(epsilon, shards[0].y.dtype)
    records = sum(len(shard.y) for shard in shards)
    problem = Problem(LOSSES["softmax"](), REGULARISERS["l2"](), BETA, SETS["all"](1.0), records, len(shards))
    recipe = AlgorithmConfig(
        problem,
        budgets,
        DynamicRho(budgets, RHO_C1, RHO_C2),
        NonsmoothEta(budgets),
        PaperGradient(LaplaceDataDependent(budgets)),
        local_updates=local_updates,
    )
    algorithm = ALGORITHMS["objp" if local_updates == 1 else "objpm"].build(recipe)
    keys, state = tuple(seeds), start(shards, len(budgets), "sums", averages=False)
    rounds = simulate(algorithm, shards, lambda p, t: SeededNoise(keys, p, t), FOREVER, state)
    return lambda: next(rounds)


def pooled_rounds(shards: Sequence[Shard]) -> Callable[[], Round]:
    """Return a function that runs one more round of dpgd as `--simulate sums` does: clipped, with one draw of noise."""
    records = sum(len(shard.y) for shard in shards)
    problem = Problem(LOSSES["softmax"](), REGULARISERS["l2"](), BETA, SETS["all"](1.0), records, len(shards))
    clip = np.ones(1, shards[0].y.dtype)
    mechanism = Calibrated("gaussian", (Noise("gaussian", 1.0 / records, math.inf, 1.0 / records),))
    release = PooledGradient(CertifiedGradient(GradientClipping(clip, clip * math.inf), mechanism), len(shards))
    step = Constant(1.0, clip)
    algorithm = ALGORITHMS["dpgd"].build(AlgorithmConfig(problem, clip, step, step, release, closing=True))
    state, together = start_sums(shards, 1), pool(shards)
    noise = partial(SeededNoise, (1,))
    rounds = simulate_pooled(cast(SummableAlgorithm, algorithm), together, len(shards), noise, FOREVER, state)
    return lambda: next(rounds)


def grid(epsilons: Sequence[float], seeds: int) -> tuple[list[float], list[int]]:
    """Return budgets and seeds of all runs."""
    pairs = [(epsilon, seed) for epsilon in epsilons for seed in range(1, seeds + 1)]
    return [epsilon for epsilon, _ in pairs], [seed for _, seed in pairs]


def stored_bytes(shards: Sequence[Shard]) -> int:
    """Return the bytes of the records that a round reads: all of them, or only the nonzero values."""
    return sum(shard.layout.nbytes for shard in shards)


def multiplications(shards: Sequence[Shard]) -> int:
    """Return the multiply-adds of a round's two passes over the stored values: scores and sums."""
    return sum(2 * shard.layout.entries * shard.y.shape[1] for shard in shards)


Matrix: TypeAlias = NDArray[np.float64]
Pair: TypeAlias = tuple[Matrix, Matrix]  # x [I_p, J] and one-hot y [I_p, K] of one agent


def plain_rounds(shards: Sequence[Pair], epsilon: float = 1.0, beta: float = 1e-6) -> Callable[[], Matrix]:
    """Return a function that runs one more round in plain numpy and returns w."""
    rounds = _rounds(shards, epsilon, beta)
    return lambda: next(rounds)


def _rounds(shards: Sequence[Pair], epsilon: float, beta: float) -> Iterator[Matrix]:
    generator = np.random.default_rng(1)
    P, I = len(shards), sum(len(x) for x, _ in shards)  # noqa: E741
    J, K = shards[0][0].shape[1], shards[0][1].shape[1]
    z = [np.zeros((J, K)) for _ in shards]
    lam = [np.zeros((J, K)) for _ in shards]
    t = 0
    while True:
        t += 1
        rho, eta = 2.0 + 5.0 / epsilon, 1.0 / math.sqrt(t)
        w = sum((z[p] - lam[p] / rho for p in range(P)), np.zeros((J, K))) / P  # line 5
        for p, (x, y) in enumerate(shards):
            gradient, sensitivity = _gradient(x, y, z[p], I)
            gradient += 2.0 * beta / P * z[p]
            xi = generator.laplace(0.0, sensitivity / epsilon, (J, K)) if epsilon < math.inf else 0.0  # line 18
            z[p] = (rho * w + lam[p] - gradient - xi + z[p] / eta) / (rho + 1.0 / eta)  # line 19
            lam[p] = lam[p] + rho * (w - z[p])  # lines 8 and 23
        yield w


def _gradient(x: Matrix, y: Matrix, z: Matrix, records: int) -> tuple[Matrix, float]:
    """Return the gradient of one agent's records, and the largest 1-norm of a record's part in it (eq. Delta)."""
    scores = x @ z
    power = np.exp(scores - scores.max(axis=1, keepdims=True))
    residual = power / power.sum(axis=1, keepdims=True) - y
    norms = np.abs(x).sum(axis=1) * np.abs(residual).sum(axis=1)
    return x.T @ residual / records, float(norms.max()) / records


Work: TypeAlias = Callable[[], Any]

NUMPY_PRODUCTS, TORCH_PRODUCTS = "two matrix products, numpy", "two matrix products, torch"
SKLEARN_GRADIENT, TORCH_GRADIENT = "gradient alone, scikit-learn", "gradient alone, torch"


def products(x: Array, columns: int) -> dict[str, Work]:
    """Return functions that compute x w and x^T r for w [J, columns], which every step needs, by numpy and torch."""
    generator = np.random.default_rng(2)
    w = generator.random((x.shape[1], columns), np.float32)
    r = generator.random((len(x), columns), np.float32)
    found: dict[str, Work] = {NUMPY_PRODUCTS: lambda: (x @ w, x.T @ r)}
    if find_spec("torch") is not None:
        import torch

        tx, tw, tr = (torch.from_numpy(a) for a in (x, w, r))
        found[TORCH_PRODUCTS] = lambda: (tx @ tw, tx.T @ tr)
    return found


def gradients(x: Array, labels: NDArray[np.int64], classes: int) -> dict[str, Work]:
    """Return functions that compute the gradient of the same loss by installed libraries, without agents or noise."""
    found: dict[str, Work] = {}
    if find_spec("sklearn") is not None:
        found[SKLEARN_GRADIENT] = _sklearn(x, labels, classes)
    if find_spec("torch") is not None:
        found[TORCH_GRADIENT] = _torch(x, labels, classes)
    return found


def _sklearn(x: Array, labels: NDArray[np.int64], classes: int) -> Work:
    from sklearn._loss import HalfMultinomialLoss
    from sklearn.linear_model._linear_loss import LinearModelLoss

    loss = LinearModelLoss(base_loss=HalfMultinomialLoss(n_classes=classes), fit_intercept=False)
    coef = np.zeros((classes, x.shape[1]), np.float32, order="F")
    y, threads = labels.astype(np.float32), cores()
    return lambda: loss.loss_gradient(coef, x, y, n_threads=threads)


def _torch(x: Array, labels: NDArray[np.int64], classes: int) -> Work:
    import torch

    tx, ty = torch.from_numpy(x), torch.from_numpy(labels)
    w = torch.zeros((x.shape[1], classes), requires_grad=True)

    def step() -> Any:
        loss = torch.nn.functional.cross_entropy(tx @ w, ty)
        return torch.autograd.grad(loss, w)

    return step


def read(size: int) -> Work:
    """Read this many bytes once on all cores: a lower bound for everything that reads every record."""
    buffer = np.arange(max(1, size // 8), dtype=np.uint64)
    parts = np.array_split(buffer, cores())
    pool = ThreadPoolExecutor(cores())
    return lambda: list(pool.map(np.bitwise_or.reduce, parts))


SQUARE, SMALL_SQUARE = 1536, 256  # rows and columns; with the first the processor multiplies as fast as it can


def square_product(size: int) -> Work:
    """Multiply two square matrices: the speed at which this machine multiplies."""
    a = np.random.default_rng(3).random((size, size), np.float32)
    return lambda: a @ a


def missing_packages(*packages: str) -> tuple[str, ...]:
    """Return a line for each of these packages that is not installed."""
    lacking = [name for name in packages if find_spec(name) is None]
    return tuple(f"{name} is not installed: left out" for name in lacking)


TACITURN, PLAIN, READ = "Taciturn's round", "the plain round, float64", "reading the records once"
MULTIPLY = "multiplying at the machine's best pace"
CHECKED = 2  # rounds


def one_round(name: str, given: Input, options: Options) -> Report:
    """Time Taciturn's round, the same round in plain numpy, and their lower bounds."""
    agents, records, features, classes = given.shape
    square = SMALL_SQUARE if options.small else SQUARE
    plain = [(np.asarray(shard.x, np.float64), np.asarray(shard.y, np.float64)) for shard in given.shards]
    candidates = {
        TACITURN: taciturn_rounds(given.shards),
        PLAIN: plain_rounds(plain),
        **products(given.x, classes),
        **gradients(given.x, given.labels, classes),
        READ: read(stored_bytes(given.shards)),
        MULTIPLY: square_product(square),
    }
    timings = time_interleaved(candidates, options)
    timings[MULTIPLY] = timings[MULTIPLY].scaled(multiplications(given.shards) / square**3)
    options.watch("comparing with the plain round")
    figures = _figures(timings) | {
        "difference_from_plain": difference(given, plain),
        "data": given.what,
        "agents": agents,
        "records": records,
        "features": features,
        "classes": classes,
        "held_bytes": stored_bytes(given.shards),
    }
    title = f"One objp round, {agents} agents, {records:,} records x {features} features, {classes} classes"
    return Report(name, title, figures, timings, notes=_notes(given, square))


def _figures(timings: dict[str, Timing]) -> dict[str, object]:
    """Return ratios; the floor is the slower of reading the records once and multiplying at full speed."""
    own, multiplying = timings[TACITURN].best, timings[MULTIPLY].best
    return {
        "ratio_to_matmul": own / fastest(timings, NUMPY_PRODUCTS, TORCH_PRODUCTS),
        "speedup_over_plain": timings[PLAIN].best / own,
        "ratio_to_floor": own / max(timings[READ].best, multiplying),
        "seconds_of_floor": {"reading": timings[READ].best, "multiplying": multiplying},
    }


def difference(given: Input, plain: list[Pair]) -> float:
    """Return the difference of the two models after rounds without noise, relative to the largest parameter."""
    ours, theirs = taciturn_rounds(given.shards, (math.inf,)), plain_rounds(plain, math.inf)
    for _ in range(CHECKED):
        w, expected = ours().w[:, 0], theirs()
    return float(np.abs(w - expected).max() / np.abs(expected).max())


def _notes(given: Input, square: int) -> tuple[str, ...]:
    return (
        f"records: {given.what}",
        "float32, mode paper, epsilon 1, one run; gradient, norms of every record, noise, update and dual",
        f"the best pace of multiplying is that of a product of two square matrices of {square} rows",
        "gradients alone have no agents, norms, noise or update: they bound a step that is not federated",
        *missing_packages("torch", "sklearn"),
    )
