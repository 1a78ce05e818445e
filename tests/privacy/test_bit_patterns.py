"""No bit pattern of w, nor of an agent's own state, makes one record count for more than its sensitivity.

A run of a batch is a w of its own, with its own grid: every sum below meets some thousand different w at once.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from taciturn.algorithms import ALGORITHMS, Agent, AlgorithmConfig
from taciturn.algorithms.noisy_gradient import EXACT, HardenedGradient, fraction_bits, on_grid
from taciturn.algorithms.schedules import Constant
from taciturn.core import arrays as mapped
from taciturn.core.arrays import to_numpy
from taciturn.kernels.layout import Sparse
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.objectives.clipping import LARGEST_PARAMETER, Clipping, GradientClipping, RecordScaling, admissible
from taciturn.objectives.passes import COMPILED, PLAIN, Passes
from taciturn.privacy.events import NON_PRIVATE, Noise
from taciturn.privacy.mechanisms import Calibrated
from taciturn.privacy.noise import SeededNoise
from taciturn.types import GRID, Array, Shard
from tests.random_problems import LEVELS, passes_with

J, K, RECORDS = 12, 3, 14
RUNS = 800  # different w in one sum
FEDERATED = [name for name in ALGORITHMS if ALGORITHMS[name].federated and ALGORITHMS[name].batched]
"""The others need the levels of a table; tests/algorithms/test_additive.py has their laws."""
SPECIAL = [
    math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -5e-324, 1e-310, 2.0**-1022, 1e-300, -1e-300, 1e306,
    -1e306, 1.7976931348623157e308, -1.7976931348623157e308, 1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38, 1e30,
    LARGEST_PARAMETER, -LARGEST_PARAMETER, 1.0, -1.0, 2.0**53, 2.0**970,
]  # fmt: skip


def patterns(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """Floats of any bits at all, nan of every payload among them; in a half of the runs, special values here and there.

    A run of nothing but random bits nearly always has one huge entry beside which all others count as 0, so a third of
    the runs have exponents within ten of each other.
    """
    whole: Any = np.uint64 if dtype == np.float64 else np.uint32
    mantissa, exponents = (52, 2048) if dtype == np.float64 else (23, 256)
    bits = rng.integers(0, np.iinfo(whole).max, shape, whole, endpoint=True)
    near = rng.integers(0, exponents - 10, (1, shape[1], 1)) + rng.integers(0, 10, shape)
    others = bits & whole(np.iinfo(whole).max - ((exponents - 1) << mantissa))  # sign and fraction
    bits = np.where(rng.random((1, shape[1], 1)) < 1 / 3, others | (near << mantissa).astype(whole), bits)
    found = bits.view(dtype)
    with np.errstate(over="ignore"):
        special = np.array(SPECIAL).astype(dtype)
    chosen = (rng.random(shape) < 0.3) & (rng.random((1, shape[1], 1)) < 0.5)
    return np.where(chosen, rng.choice(special, shape), found)


def records(rng: np.random.Generator, n: int, density: float, loss: str, dtype: Any = np.float64) -> Shard:
    """Records without the last feature."""
    x = rng.choice([0.25, 0.5, 1.0, -1.0], (n, J)) * (rng.random((n, J)) < density)
    x[:, -1] = 0.0
    labels = rng.random((n, K)) if loss == "squared" else np.eye(K)[rng.integers(0, K, n)]
    return Shard(x.astype(dtype), labels.astype(dtype))


def canary(rng: np.random.Generator, loss: str, dtype: Any = np.float64) -> Shard:
    """One record, with the feature that no other has."""
    one = records(rng, 1, 0.2, loss, dtype)
    one.x[:, -1] = 1.0
    return one


def joined(a: Shard, b: Shard) -> Shard:
    return Shard(np.concatenate([a.x, b.x]), np.concatenate([a.y, b.y]))


def in_file(shard: Shard, folder: Path) -> Shard:
    """The same records in files, in several blocks."""
    held = []
    for name in ("x", "y"):
        path = folder / f"{name}{len(shard.x)}.npy"
        np.save(path, getattr(shard, name))
        held.append(np.load(path, mmap_mode="r+"))
    return Shard(*held)


def problem(loss: str, passes: Passes = COMPILED) -> Problem:
    return Problem(LOSSES[loss](), REGULARISERS["l2"](), 0.01, SETS["all"](1.0), RECORDS + 1, 2, passes)


def release(runs: int, l1: float = math.inf, noise: Any = NON_PRIVATE, dtype: Any = np.float64) -> HardenedGradient:
    limit = GradientClipping(np.full(runs, 0.7, dtype), np.full(runs, l1, dtype))
    bits = fraction_bits(100, 0.7, RECORDS + 1, getattr(noise, "scale", 0.0))
    return HardenedGradient(limit, Calibrated("gaussian", (noise,) * runs), 100, bits)


@pytest.fixture(params=["numpy", *LEVELS])
def passes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Passes:
    """numpy, and the compiled pass with every set of instructions that this processor has."""
    monkeypatch.setattr(mapped, "BLOCK", 5 * (J + K) * 8)
    return passes_with(request.param, monkeypatch)


def lengths(total: NDArray[Any]) -> tuple[Array, Array]:
    """In L2 and in L1, of every run."""
    sizes = np.abs(total.astype(np.float64))
    return np.sqrt((sizes**2).sum(axis=(0, 2))), sizes.sum(axis=(0, 2))


# ---- the grid


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_grid_is_total(dtype: Any) -> None:
    """For 60,000 w of each precision: warnings are errors here."""
    rng = np.random.default_rng(1)
    for features in (1, 7, 3000):
        z = patterns(rng, (features, 60_000 // features, K), dtype)
        whole, step = on_grid(z)
        assert np.isfinite(step).all() and (step > 0.0).all()
        assert (np.frexp(step)[0] == 0.5).all()  # a power of two
        assert (whole == np.rint(whole)).all()
        assert (np.abs(whole) <= EXACT / (2 * GRID * features) + 1).all()
        known = np.where(np.isfinite(z), z, 0.0).astype(np.float64)
        assert (np.abs(whole - known / step[:, None]) <= 0.5).all()
        assert (whole[~np.isfinite(z)] == 0.0).all()


@pytest.mark.parametrize("value", SPECIAL)
def test_the_grid_of_one_special_value(value: float) -> None:
    whole, step = on_grid(np.full((2, 1, 1), value))
    assert np.isfinite(whole).all() and np.isfinite(step).all() and (step > 0.0).all()
    assert (whole != 0.0).all() == (math.isfinite(value) and abs(value) > 2.0**-1000)


def test_parameters_from_another_party_are_finite_and_bounded() -> None:
    rng = np.random.default_rng(2)
    for dtype in (np.float64, np.float32):
        for w in patterns(rng, (1, 20_000, 1), dtype)[0]:
            assert admissible(w) == (math.isfinite(w[0]) and abs(float(w[0])) <= LARGEST_PARAMETER)
    assert not admissible(np.nextafter(np.array([1.0, LARGEST_PARAMETER]), math.inf))


# ---- integer sums


@pytest.mark.parametrize("kind", ["dense", "sparse", "file"])
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_one_record_adds_its_own_whole_term_within_its_bound(
    passes: Passes, loss: str, kind: str, tmp_path: Path
) -> None:
    """800 different w each time; with AVX-512 there are 4 passes, so 115,200 in all."""
    for dtype in (np.float64, np.float32):
        for l1 in (math.inf, 0.9):
            rng = np.random.default_rng(len(kind))
            base, one = records(rng, RECORDS, 0.9 if kind == "dense" else 0.15, loss, dtype), canary(rng, loss, dtype)
            assert (kind == "dense") != isinstance(base.on_grid.layout, Sparse) or not LEVELS
            z = patterns(rng, (J, RUNS, K), dtype)
            of, hard = problem(loss, passes), release(RUNS, l1, dtype=dtype)
            bits, (without, with_) = hard.bits, (base, joined(base, one))
            if kind == "file":
                without, with_ = (in_file(shard, tmp_path) for shard in (without, with_))
                assert len(list(without.blocks())) > 1
            alone = hard.sum(of, z, one)
            before, after = (hard.sum(of, z, shard) for shard in (without, with_))
            np.testing.assert_array_equal(after - before, alone)
            unit = GRID * 2.0**bits
            for found, count in ((alone, 1), (before, RECORDS)):
                l2, sizes = lengths(found)
                assert (l2 <= count * 0.7 * unit).all() and (sizes <= count * l1 * unit).all()
            assert (alone != 0).any(axis=(0, 2)).mean() > 0.3  # it is there, for many a w


# ---- floating-point sums: what is not finite counts as 0


@pytest.mark.parametrize("density", [0.15, 0.9])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "limit",
    [
        GradientClipping(np.array([0.7]), np.array([0.9])),
        RecordScaling(0.7),
        GradientClipping(*np.array([[0.7], [9.0]])),
    ],
)
def test_a_limited_sum_is_finite_and_bounded(passes: Passes, limit: Clipping, dtype: Any, density: float) -> None:
    rng = np.random.default_rng(3)
    bounded = isinstance(limit, RecordScaling)
    if isinstance(limit, GradientClipping):
        limit = GradientClipping(np.full(RUNS, limit.l2, dtype), np.full(RUNS, limit.l1, dtype))
    for loss in ("softmax", "hinge") if bounded else sorted(LOSSES):
        shard, z = records(rng, RECORDS, density, loss, dtype), patterns(rng, (J, RUNS, K), dtype)
        with np.errstate(all="ignore"):
            total = passes.sums(LOSSES[loss](), z, shard, limit).total.astype(np.float64)
        assert np.isfinite(total).all()
        bound = 0.7 * LOSSES[loss]().residual_bound if bounded else 0.7
        assert (lengths(total)[0] <= RECORDS * bound * (1 + 1e-5)).all()


@pytest.mark.torch
def test_a_limited_sum_is_finite_and_bounded_on_torch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    for dtype in (np.float64, np.float32):
        for loss in sorted(LOSSES):
            shard, z = records(rng, RECORDS, 0.9, loss, dtype), patterns(rng, (J, RUNS, K), dtype)
            there = Shard(torch.from_numpy(shard.x), torch.from_numpy(shard.y))
            for l1 in (math.inf, 0.9):
                limit = GradientClipping(*(torch.full((RUNS,), bound, dtype=there.x.dtype) for bound in (0.7, l1)))
                total = to_numpy(PLAIN.sums(LOSSES[loss](), torch.from_numpy(z), there, limit).total)
                assert np.isfinite(total).all()
                assert (lengths(total)[0] <= RECORDS * 0.7 * (1 + 1e-5)).all()


# ---- whole steps of the methods that sites run


RHO, ETA = 0.5, 0.8


def steps(name: str, dtype: Any, updates: int, w: Array, agent: Agent, shards: list[Shard]) -> list[Array]:
    """Uploads from several sets of records with the same noise, whose difference is therefore the noiseless one."""
    runs = w.shape[1]
    event = Noise("discrete-gaussian", 0.01, math.inf, 0.7 / (RECORDS + 1))
    epsilon = np.ones(runs, dtype)
    config = AlgorithmConfig(
        problem("softmax"), epsilon, Constant(RHO, epsilon), Constant(ETA, epsilon),
        release(runs, math.inf, event, dtype), local_updates=updates,
    )  # fmt: skip
    algorithm = ALGORITHMS[name].build(config)
    with np.errstate(all="ignore"):
        return [algorithm.agent_step(1, w, agent, one, SeededNoise((5,) * runs, 0, 1)).upload.z for one in shards]


@pytest.mark.parametrize("density", [0.15, 0.9])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", FEDERATED)
def test_one_record_moves_an_upload_by_no_more_than_its_sensitivity(name: str, dtype: Any, density: float) -> None:
    """w, z and lambda of any bits: as far as eta times the gradient's, and what is not finite is so without it too."""
    rng = np.random.default_rng(6)
    base = records(rng, RECORDS, density, "softmax", dtype)
    shards, shape = [base, joined(base, canary(rng, "softmax", dtype))], (J, 300, K)
    for tame in (False, True):
        w, z, lam = (patterns(rng, shape, dtype) for _ in range(3))
        if tame:  # what a site accepts, and the state that can come of it
            w, z, lam = (np.where(np.abs(one) <= LARGEST_PARAMETER, one, 0.0).astype(dtype) for one in (w, z, lam))
        without, with_ = steps(name, dtype, 1, w, Agent(z, lam), shards)
        np.testing.assert_array_equal(np.isfinite(without), np.isfinite(with_))
        fine = np.isfinite(without).all(axis=(0, 2))
        assert fine.all() or not tame
        a, b = (one[:, fine].astype(np.float64) for one in (without, with_))
        rounding = 8 * float(np.finfo(dtype).eps) * np.abs(np.stack([a, b])).max(axis=0)
        size = np.maximum(np.abs(a - b) - rounding, 0.0)
        reach = {"dpgd": ETA, "objt": 1.0 / RHO}.get(name, 1.0 / (RHO + 1.0 / ETA))
        assert (lengths(size)[0] <= reach * 0.7 / (RECORDS + 1)).all()


@pytest.mark.parametrize("name", FEDERATED)
def test_several_updates_show_no_record_by_what_is_not_finite(name: str) -> None:
    rng = np.random.default_rng(7)
    base, shape = records(rng, RECORDS, 0.15, "softmax"), (J, 100, K)
    w, z, lam = (patterns(rng, shape, np.float64) for _ in range(3))
    without, with_ = steps(name, np.float64, 10, w, Agent(z, lam), [base, joined(base, canary(rng, "softmax"))])
    np.testing.assert_array_equal(np.isfinite(without), np.isfinite(with_))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", FEDERATED)
def test_no_sequence_of_admissible_w_drives_the_state_out_of_range(name: str, dtype: Any) -> None:
    """12 stories of 60 rounds, one of them the worst that signs can do to a dual; uploads and releases stay finite."""
    rng, runs = np.random.default_rng(8), 12
    epsilon = np.ones(runs, dtype)
    event = Noise("discrete-gaussian", 0.01, math.inf, 0.7 / (RECORDS + 1))
    hard = release(runs, math.inf, event, dtype)
    config = AlgorithmConfig(
        problem("softmax"), epsilon, Constant(RHO, epsilon), Constant(ETA, epsilon), hard, local_updates=3
    )
    algorithm, shard = ALGORITHMS[name].build(config), records(rng, RECORDS, 0.15, "softmax", dtype)
    one = canary(rng, "softmax", dtype)
    agent = Agent(np.zeros((J, runs, K), dtype), np.zeros((J, runs, K), dtype))
    for t in range(1, 61):
        w = np.where(rng.random((J, runs, K)) < 0.5, LARGEST_PARAMETER, -LARGEST_PARAMETER).astype(dtype)
        w[:, 1] = np.where(agent.lam[:, 1] < 0, -1.0, 1.0) * LARGEST_PARAMETER
        assert admissible(w)
        step = algorithm.agent_step(t, w, agent, shard, SeededNoise(tuple(range(runs)), 0, t))
        agent = step.agent
        assert all(np.isfinite(part).all() for part in (step.upload.z, agent.z, agent.lam))
    assert float(max(np.abs(agent.z).max(), np.abs(agent.lam).max())) < 2.0**48
    bits = hard.bits
    before, after = (hard.sum(config.problem, agent.z, each) for each in (shard, joined(shard, one)))
    np.testing.assert_array_equal(after - before, hard.sum(config.problem, agent.z, one))
    assert (lengths(after - before)[0] <= 0.7 * GRID * 2.0**bits).all()
