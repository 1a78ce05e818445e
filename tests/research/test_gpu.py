"""The paper's methods on a GPU: kernels agree with the pure steps, and noise agrees with numpy's for the same seed."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator, Philox
from numpy.typing import NDArray
from scipy import stats

from taciturn.algorithms import ALGORITHMS, Agent, Algorithm, AlgorithmConfig
from taciturn.algorithms.noisy_gradient import CertifiedGradient, PaperGradient
from taciturn.algorithms.outp import NOISE_LEVELS, OutputPerturbation
from taciturn.algorithms.schedules import DynamicRho, NonsmoothEta
from taciturn.algorithms.server import SumsState
from taciturn.core.arrays import to_numpy
from taciturn.errors import InputError
from taciturn.objectives import LOSSES, REGULARISERS, SETS
from taciturn.objectives.clipping import RecordScaling
from taciturn.privacy.events import Noise
from taciturn.privacy.mechanisms import Calibrated, GaussianClassic, LaplaceDataDependent
from taciturn.privacy.noise import SeededNoise
from taciturn.research.reproduction.stages import FusedEngine, PlainEngine
from taciturn.training.simulate import Round, SimulationState, simulate, start
from taciturn.types import Array, Classes, ColumnBlock, Dataset, Shard
from tests import random_problems

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # triton asks for it where a kernel is defined
pytest.importorskip("triton")

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from taciturn.kernels.device_noise import draw, words  # noqa: E402
from taciturn.kernels.device_noise import laplace as laplace_of  # noqa: E402
from taciturn.research import gpu as fused  # noqa: E402
from taciturn.research.gpu.triton_kernels import standard_normal  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def quicker_interpreter() -> Iterator[None]:
    """Triton's interpreter looks through all of its language for every call of a function; once is enough."""
    from triton.runtime import interpreter

    known: dict[Any, list[str]] = {}

    def patch_builtin(part: Any, *more: Any) -> None:
        if part not in known:
            known[part] = [name for name, member in inspect.getmembers(part) if tl.core.is_builtin(member)]
        for name in known[part]:
            if tl.core.is_builtin(member := getattr(part, name)):
                interpreter._patch_attr(part, name, member, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_builtin", patch_builtin)
        yield


INF = math.inf
SIZES = (9, 4, 17)  # records of the agents: none fills its rows


@triton.jit  # type: ignore[untyped-decorator]
def store_words(keys, out, BLOCKS: tl.constexpr):  # type: ignore[no-untyped-def]
    """For every row (seed, agent, round, update, stream, first) of keys its words, [4 BLOCKS]."""
    key = keys + tl.program_id(0) * 6
    seed, agent, t = tl.load(key), tl.load(key + 1), tl.load(key + 2)
    word = words(tl.load(key + 5), tl.load(key + 4), tl.load(key + 3), t, seed, agent, BLOCKS)
    place = tl.program_id(0) * (4 * BLOCKS) + tl.arange(0, 4 * BLOCKS)
    tl.store(out + place, word.to(tl.int64, bitcast=True))


@triton.jit  # type: ignore[untyped-decorator]
def store_numbers(given, laplace, normal, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """What SIZE words become."""
    place = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    word = tl.load(given + place).to(tl.uint64, bitcast=True)
    tl.store(laplace + place, laplace_of(word, tl.float32))
    tl.store(normal + place, standard_normal(word))


def drawn_words(keys: Sequence[tuple[int, ...]], blocks: int) -> NDArray[np.uint64]:
    """The kernel's words, [keys, 4 blocks]."""
    out = torch.zeros((len(keys), 4 * blocks), dtype=torch.int64, device=DEVICE)
    store_words[(len(keys),)](torch.tensor(keys, device=DEVICE), out, blocks)
    found: NDArray[np.uint64] = out.cpu().numpy().view(np.uint64)
    return found


def numbers(word: NDArray[np.uint64]) -> tuple[Array, Array]:
    """What the kernel makes of words, which fill programs of 16: Laplace and normal."""
    given = torch.from_numpy(word.view(np.int64)).to(DEVICE)
    laplace, normal = torch.zeros((2, *word.shape), device=DEVICE)
    store_numbers[(word.size // 16,)](given, laplace, normal, 16)
    return laplace.cpu().numpy(), normal.cpu().numpy()


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_noise_drawn_on_a_device_is_keyed_as_on_the_cpu(mechanism: str) -> None:
    """More numbers than one program draws; a run's are the same whatever is beside it."""
    like, scale = torch.zeros((150, 3, 7), dtype=torch.float64, device=DEVICE), [1.5, 0.0, 0.25]
    found = draw(mechanism, scale, (5, 6, 7), (0, 1, 2**63), (4, 9, 2), like).cpu().numpy()
    assert not found[:, 1].any()
    alone = draw(mechanism, scale[2:], (7,), (2**63,), (4, 9, 2), like[:, :1]).cpu().numpy()
    assert alone.tobytes() == found[:, 2:].tobytes()
    for run, (seed, stream) in {0: (5, 0), 2: (7, 2**63)}.items():
        philox = Philox(key=np.array([seed, 4], np.uint64), counter=np.array([0, stream, 2, 9], np.uint64))
        if mechanism == "laplace":
            expected = Generator(philox).laplace(size=(150, 7))
        else:
            word: Any = (philox.random_raw(1052) >> np.uint64(11)).reshape(-1, 2, 2)
            u, v = (((word + 0.5) / 2.0**53)[:, :, part] for part in (0, 1))
            pairs = np.sqrt(-2.0 * np.log(u))[..., None] * np.stack([np.cos(2 * np.pi * v), np.sin(2 * np.pi * v)], -1)
            expected = pairs.ravel()[:1050].reshape(150, 7)
        np.testing.assert_allclose(found[:, run], scale[run] * expected, rtol=1e-9, atol=1e-12)


def box_muller(generator: Generator, shape: tuple[int, int]) -> Array:
    """The cosine, in float64, of the words that the kernel takes."""
    word: Any = generator.bit_generator.random_raw(shape)
    radius, angle = ((word >> np.uint64(32)) + 0.5) / 2.0**32, (word & np.uint64(2**32 - 1)) / 2.0**32
    normal: Array = np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * np.pi * angle)
    return normal


class Silent(GaussianClassic):
    """The mechanism's schedules without its noise."""

    def std(self, sensitivity: Array) -> Array:
        return np.zeros_like(sensitivity)


class KernelNoise(SeededNoise):
    """Seeded noise with the kernels' way from words to a normal: numpy's own takes as many words as it happens to."""

    def continuous(self, update: int, mechanism: str, scale: Array, like: Array) -> Array:
        if mechanism != "gaussian":
            return super().continuous(update, mechanism, scale, like)
        xi = np.zeros_like(like)
        for run, seed in enumerate(self.seeds):
            key, counter = np.array([seed, self.agent], np.uint64), [0, 0, update, self.round]
            drawn = box_muller(Generator(Philox(key=key, counter=counter)), (like.shape[0], like.shape[2]))
            xi[:, run] = scale[run] * drawn
        return xi


def some(J: int, K: int, sizes: tuple[int, ...] = SIZES, dtype: Any = np.float64) -> list[Shard]:
    rng = np.random.default_rng(J * K)
    return [
        Shard(rng.uniform(-1.0, 1.0, (n, J)).astype(dtype), np.eye(K, dtype=dtype)[rng.integers(0, K, n)])
        for n in sizes
    ]


def made(name: str, parts: list[Shard], budgets: Sequence[float], updates: int = 1, **changes: Any) -> Algorithm:
    """The paper's method, its penalty another from round 3 on."""
    epsilon = np.array(budgets)
    of = random_problems.problem(parts, beta=1e-3)
    release = PaperGradient(LaplaceDataDependent(epsilon))
    rho, eta = DynamicRho(epsilon, tc=3), NonsmoothEta(epsilon, 3.0)
    return ALGORITHMS[name].build(AlgorithmConfig(of, epsilon, rho, eta, release, local_updates=updates, **changes))


def batched(parts: list[Shard], seeds: tuple[int, ...], half: bool = False) -> fused.DeviceBatch:
    return fused.DeviceBatch(fused.stack(parts, DEVICE, half), seeds)


def figures(done: fused.DeviceRound) -> dict[str, Array]:
    """Everything a round leaves behind, runs last but one as the pure steps have them: [..., R, K]."""
    state = done.state
    found = {"w": done.model(), "noise": done.noise()[:, None]}
    found |= {"z": state.z.transpose(1, 2), "lam": state.lam.transpose(1, 2)}
    found |= {"z_sum": state.z_sum.transpose(0, 1), "lam_sum": state.lam_sum.transpose(0, 1)}
    return {name: to_numpy(values).copy() for name, values in found.items()}


def expected_figures(done: Round) -> dict[str, Array]:
    z, lam = (np.stack(arrays) for arrays in zip(*done.state.agents, strict=True))
    server = done.state.server
    sums = {"z_sum": server.z, "lam_sum": server.lam}
    return {"w": done.w, "noise": done.noise[:, None], "z": z, "lam": lam, **sums}


def last(
    algorithm: Algorithm, batch: fused.DeviceBatch, rounds: int, state: fused.DeviceState | None = None
) -> fused.DeviceRound:
    *_, done = fused.simulate(algorithm, batch, rounds, state or fused.start(batch))
    return done


def distance(found: dict[str, Array], expected: dict[str, Array]) -> float:
    """The largest difference in any figure of any run, over the largest number in it; sums of duals may cancel."""
    worst = []
    for name, values in expected.items():
        assert found[name].shape == values.shape
        away, size = of_runs(found[name] - values), of_runs(expected[name.replace("lam_sum", "lam")])
        worst.append(np.where(away == 0, 0.0, away / np.maximum(size, 1e-30)).max())
    return float(np.max(worst))


def of_runs(values: Array) -> Array:
    """The largest number of every run: [..., R, K] -> [R]."""
    largest: Array = np.abs(values).max(axis=(*range(values.ndim - 2), -1))
    return largest


def begun(parts: list[Shard], runs: int, at_zero: bool) -> tuple[fused.DeviceState, SimulationState]:
    """The same state for both: the one before round 1, or any before round 3, in which rho changes."""
    here = start(parts, runs, "sums", averages=False)
    batch = batched(parts, tuple(range(runs)))
    if at_zero:
        return fused.start(batch), here
    z, lam = np.random.default_rng(0).standard_normal((2, len(parts), *here.agents[0].z.shape))
    agents = tuple(Agent(*pair) for pair in zip(z, lam, strict=True))
    here = SimulationState(2, SumsState(z.sum(axis=0), lam.sum(axis=0), len(parts)), agents, None)
    arrays = {"z": z, "lam": lam, "z_sum": z.sum(axis=0)[None], "lam_sum": lam.sum(axis=0)[None]}
    by_run = {name: values.swapaxes(1, 2).astype(np.float32) for name, values in arrays.items()}
    sums = {name: by_run[name][0] for name in ("z_sum", "lam_sum")}
    rest = {"round": np.array(2), "silent": np.zeros(1, np.int32)}
    return fused.from_arrays(by_run | sums | rest, batch), here


def apart(
    algorithm: Algorithm, parts: list[Shard], seeds: tuple[int, ...], half: bool = False, at_zero: bool = True
) -> float:
    """How far the kernels and the pure steps in float64 are apart in the worst round up to the third."""
    state, plain = begun(parts, len(seeds), at_zero)
    there = fused.simulate(algorithm, batched(parts, seeds, half), 3, state)
    here = simulate(algorithm, parts, lambda p, t: KernelNoise(seeds, p, t), 3, plain)
    worst = []
    for found, expected in zip(there, here, strict=True):
        assert found.t == expected.t == found.state.round
        worst.append(distance(figures(found), expected_figures(expected)))
    assert of_runs(expected.w).min() > 1e-3
    return float(np.max(worst))


KEYS = [
    (1, 0, 1, 0, 0, 0),
    (2, 0, 1, 0, 0, 0),
    (1, 1, 1, 0, 0, 0),
    (1, 0, 2, 0, 0, 0),
    (1, 0, 1, 1, 0, 0),
    (1, 0, 1, 0, 1, 0),
    (1, 0, 1, 0, 0, 64),
    (0, 0, 0, 0, 0, 0),
    (2**62, 194, 20_000, 9, 0, 3),
    (2**62 - 1, 2**33, 2**31 - 1, 10, 2**40, 1000),
    (2**32 + 5, 7, 99, 2, 0, 129),
]


def test_words_are_those_of_numpy() -> None:
    """Bit by bit, from any block on; and whatever of the key is another, the words are others."""
    found = drawn_words(KEYS, 64)
    for word, (seed, agent, t, update, stream, first) in zip(found, KEYS, strict=True):
        philox = Philox(key=np.array([seed, agent], np.uint64), counter=[0, stream, update, t])
        np.testing.assert_array_equal(word, philox.random_raw(4 * (first + 64))[4 * first :])
    assert len(np.unique(found)) == found.size


@pytest.mark.parametrize("seed", [1, 2**62])
def test_laplace_noise_is_that_of_the_seed(seed: int) -> None:
    """The numbers that the pure steps draw for [J, K], in their order, to single precision."""
    J, K, agent, t, update = 23, 7, 3, 5, 2
    expected = (
        SeededNoise((seed,), agent, t).continuous(update, "laplace", np.ones(1), np.zeros((J, 1, K)))[:, 0].ravel()
    )
    found, _ = numbers(drawn_words([(seed, agent, t, update, 0, 0)], 64)[0])
    assert np.abs(expected).max() > 3.0
    assert np.all(np.abs(found[: J * K] - expected) <= 2e-6 * np.maximum(1.0, np.abs(expected)))


def test_normal_noise_is_normal() -> None:
    word = drawn_words([(seed, agent, 1, 0, 0, 0) for seed in range(4) for agent in range(4)], 64)
    _, found = numbers(word)
    assert stats.kstest(found.ravel(), stats.norm.cdf).pvalue > 1e-2
    moments = [found.mean(), found.var() - 1.0, (found**3).mean(), (found**4).mean() - 3.0]
    errors = np.sqrt(np.array([1.0, 2.0, 15.0, 96.0]) / found.size)
    assert np.all(np.abs(moments) < 3.0 * errors)
    expected = box_muller(Generator(Philox(key=np.array([3, 3], np.uint64), counter=[0, 0, 0, 1])), (16, 16))
    np.testing.assert_allclose(found[-1], expected.ravel(), atol=5e-6)


def test_no_word_is_too_much() -> None:
    """The first and the last word, and those about the middle, give finite numbers of the right sign and size."""
    word = np.array([0, 1, 2**11, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1] * 2, np.uint64)
    laplace, normal = numbers(word)
    assert np.isfinite(normal).all()
    assert np.abs(normal).max() == pytest.approx(math.sqrt(66.0 * math.log(2.0)), rel=1e-5)
    smallest = 52.0 * math.log(2.0)  # numpy draws again where U is 0
    np.testing.assert_allclose(laplace[[0, 1, 2, 7]], [-smallest, -smallest, -smallest, smallest], rtol=1e-5)
    np.testing.assert_allclose(laplace[[5, 6]], 0.0, atol=1e-6)


SHAPES = [  # J, K and the runs' budgets
    (13, 2, [0.5, INF]),
    (7, 5, [INF, 0.05]),
    (6, 10, [1.0]),
    (3, 17, [INF, INF, 2.0]),
]


@pytest.mark.parametrize(
    ("name", "updates", "J", "K", "budgets"),
    [*(("objp", 1, *shape) for shape in SHAPES), *(("objpm", 2, *shape) for shape in SHAPES[::3])],
)
def test_objective_perturbation_agrees(name: str, updates: int, J: int, K: int, budgets: list[float]) -> None:
    parts, seeds = some(J, K), tuple(range(3, 3 + len(budgets)))
    assert apart(made(name, parts, budgets, updates), parts, seeds) < 1e-5


@pytest.mark.parametrize(
    ("J", "K", "runs", "columns", "stride", "tiles"),
    [(6, 5, 17, 128, 5, 1), (2, 17, 8, 256, 20, 1), (27, 10, 3, 128, 12, 2)],
)
def test_it_agrees_however_runs_and_parameters_are_laid_out(
    J: int, K: int, runs: int, columns: int, stride: int, tiles: int
) -> None:
    """Runs close to each other or with room between them, more columns than one block, more parameters than a tile."""
    parts, seeds = some(J, K), tuple(range(runs))
    batch = batched(parts, seeds)
    assert (batch.columns, batch.stride, batch.tiles) == (columns, stride, tiles)
    assert apart(made("objp", parts, [INF] * (runs - 2) + [0.5, 2.0]), parts, seeds) < 1e-5


@pytest.mark.parametrize(
    ("J", "K", "level"), [(13, 2, "published"), (7, 5, "published-formula"), (3, 17, "calibrated")]
)
def test_output_perturbation_agrees(J: int, K: int, level: str) -> None:
    """Without noise as the pure steps are, and with it as they are when their normals come from the same words."""
    parts = some(J, K)
    algorithm = made("outp", parts, [INF, 0.5, 3.0], outp_noise=level, record_bound=2.0)
    assert apart(algorithm, parts, (3, 4, 5)) < 1e-5


@pytest.mark.parametrize(("name", "updates"), [("objpm", 2), ("outp", 1)])
def test_it_agrees_from_any_state(name: str, updates: int) -> None:
    """From lambda = 0 the duals of outp add up to 0 in every round, and no rho under them would show."""
    parts = some(3, 5)
    assert apart(made(name, parts, [0.5, INF], updates), parts, (3, 4), at_zero=False) < 1e-5


@pytest.mark.parametrize(("name", "updates"), [("objpm", 2), ("outp", 1)])
def test_half_precision_is_near(name: str, updates: int) -> None:
    parts = some(13, 5)
    assert 1e-6 < apart(made(name, parts, [INF, 1.0], updates), parts, (3, 4), half=True) < 2.5e-3


@pytest.mark.parametrize("level", NOISE_LEVELS)
def test_output_noise_has_the_size_the_mechanism_says(level: str) -> None:
    """z of round 1 less what the pure step gives without noise is N(0, std^2), agent by agent, run by run."""
    parts, seeds, budgets = some(50, 10), (1, 2, 3), [INF, 0.2, 5.0]
    algorithm = made("outp", parts, budgets, outp_noise=level, record_bound=3.0)
    assert isinstance(algorithm, OutputPerturbation)
    silenced = replace(algorithm, mechanism=Silent(algorithm.mechanism.epsilon, algorithm.mechanism.delta))
    done = last(algorithm, batched(parts, seeds), 1)
    xi = figures(done)["z"] - figures(last(silenced, batched(parts, seeds), 1))["z"]  # [P, J, R, K]
    records = np.array(SIZES)[:, None]
    sensitivity = algorithm.sensitivity(records, algorithm.rho(1)[:, 0], algorithm.eta(1, records))
    std = algorithm.mechanism.std(sensitivity)  # [P, R]
    assert len(np.unique(std[:, 1:].round(12))) == 6
    assert not xi[:, :, 0].any()
    for p in range(len(parts)):
        for run in (1, 2):
            assert stats.kstest(xi[p, :, run].ravel() / std[p, run], stats.norm.cdf).pvalue > 1e-3
            assert xi[p, :, run].std() == pytest.approx(std[p, run], rel=0.12)  # four standard errors
    np.testing.assert_allclose(to_numpy(done.noise()), np.abs(xi).mean(axis=(0, 1, 3)), rtol=1e-5)


@pytest.mark.parametrize(("name", "updates"), [("objpm", 2), ("outp", 1)])
def test_runs_do_not_influence_each_other(name: str, updates: int) -> None:
    """Alone or among others, in whatever order: to the bit where a matrix product adds up in one order, which may
    depend on its columns."""
    parts, seeds, budgets = some(6, 17), (5, 3, 9, 4), [0.5, INF, 0.05, INF]
    together = figures(last(made(name, parts, budgets, updates), batched(parts, seeds), 2))
    assert of_runs(together["w"]).min() > 1e-3
    for order in ([2, 3, 0, 1], [2]):
        algorithm = made(name, parts, [budgets[run] for run in order], updates)
        found = figures(last(algorithm, batched(parts, tuple(seeds[run] for run in order)), 2))
        assert distance(found, {figure: values[..., order, :] for figure, values in together.items()}) < 1e-6


@pytest.mark.parametrize(("name", "updates", "half"), [("objpm", 2, False), ("objp", 1, True), ("outp", 1, True)])
def test_a_resumed_batch_is_the_same_to_the_bit(name: str, updates: int, half: bool) -> None:
    parts, seeds = some(7, 5), (1, 2)
    algorithm = made(name, parts, [0.5, INF], updates)
    through = figures(last(algorithm, batched(parts, seeds, half), 3))
    saved = fused.to_arrays(last(algorithm, batched(parts, seeds, half), 2).state)
    assert {type(values) for values in saved.values()} == {np.ndarray}
    batch = batched(parts, seeds, half)
    resumed = last(algorithm, batch, 3, fused.from_arrays(saved, batch))
    assert resumed.t == 3
    for figure, values in figures(resumed).items():
        assert values.tobytes() == through[figure].tobytes(), figure


def test_arrays_that_do_not_fit_are_refused() -> None:
    parts = some(7, 5)
    saved = fused.to_arrays(fused.start(batched(parts, (1, 2))))
    for other in (
        batched(parts, (1, 2, 3)),
        batched(parts[:2], (1, 2)),
        batched(some(8, 5), (1, 2)),
        batched(some(7, 6), (1, 2)),
    ):
        with pytest.raises(InputError, match="the checkpoint does not fit the run"):
            fused.from_arrays(saved, other)
    for name in ("z", "lam", "z_sum", "lam_sum", "silent", "round"):
        with pytest.raises(InputError, match="the checkpoint does not fit the run"):
            fused.from_arrays({key: values for key, values in saved.items() if key != name}, batched(parts, (1, 2)))
    with pytest.raises(InputError, match="the checkpoint does not fit the run"):
        fused.from_arrays(saved | {"lam": saved["lam"][:1]}, batched(parts, (1, 2)))


def test_what_was_saved_is_not_touched_by_the_next_round() -> None:
    parts = some(3, 5)
    play = fused.simulate(made("objp", parts, [0.5]), batch := batched(parts, (1,)), 2, fused.start(batch))
    saved = fused.to_arrays(next(play).state)
    z = saved["z"].copy()
    next(play)
    np.testing.assert_array_equal(saved["z"], z)


def test_the_sensitivity_of_a_record_that_is_nearly_certain_keeps_its_digits() -> None:
    """1 - p is lost in single precision where p is nearly 1; the other classes' shares are not."""
    shard = Shard(np.array([[1.0]]), np.array([[0.0, 1.0, 0.0]]))
    batch = batched([shard], (1,))
    z = torch.tensor([0.0, 15.0, 1.0], device=DEVICE).reshape(1, 1, 1, 3)
    largest = torch.zeros((1, 1), device=DEVICE)
    batch.differentiate(batch.factor(z), largest)
    others = math.exp(-15.0) + math.exp(-14.0)
    assert float(largest) == pytest.approx(2.0 * others / (1.0 + others), rel=1e-5)


def test_weighted_records_are_refused() -> None:
    parts = [replace(part, weights=np.ones(len(part.x))) for part in some(2, 3)]
    with pytest.raises(InputError, match="which the fused engine does not support"):
        batched(parts, (1,))


def nothing_to_hide() -> list[Shard]:
    """Agents of which one has no features but zeros."""
    parts = some(4, 3, dtype=np.float32)
    return [parts[0], Shard(np.zeros_like(parts[1].x), parts[1].y), parts[2]]


@pytest.mark.parametrize(
    ("name", "parts", "budgets", "silent"),
    [
        ("objp", nothing_to_hide(), [INF, 1.0], 1),
        ("objpm", nothing_to_hide(), [1.0], 1),
        ("objp", nothing_to_hide(), [INF, INF], 0),
        ("objp", some(4, 3), [INF, 1.0], 0),
        ("outp", nothing_to_hide(), [INF, 1.0], 0),  # its sensitivity is public
    ],
)
def test_noise_that_is_none_is_noticed(name: str, parts: list[Shard], budgets: list[float], silent: int) -> None:
    """And not forgotten, not even over a checkpoint."""
    batch = batched(parts, tuple(range(len(budgets))))
    state = last(made(name, parts, budgets, 1), batch, 1).state
    assert int(state.silent) == silent
    again = last(made(name, parts, [INF] * len(budgets), 1), batch, 2, fused.from_arrays(fused.to_arrays(state), batch))
    assert int(again.state.silent) == silent


def dataset(parts: list[Shard], test: Shard | None) -> Dataset:
    J, K = parts[0].x.shape[1], parts[0].y.shape[1]
    classes = Classes(tuple(f"class {k}" for k in range(K)))
    return Dataset("random", ("a", "b", "c"), tuple(parts), test, tuple(f"x{j}" for j in range(J)), classes)


def test_the_engine_says_when_epsilon_is_not_kept() -> None:
    parts = nothing_to_hide()
    engine = FusedEngine(dataset(parts, parts[0]), DEVICE, "float32")
    (played,) = engine.compute_rounds(made("objp", parts, [INF, 1.0]), (1, 2), 1, None)
    with pytest.raises(InputError, match=r"by round 1 an agent's sensitivity was 0.*--mode paper"):
        played.check()
    (played,) = engine.compute_rounds(made("objp", parts, [INF, INF]), (1, 2), 1, None)
    played.check()


def test_both_engines_measure_the_same() -> None:
    *parts, test = some(6, 3, (*SIZES, 50), np.float32)
    algorithm, data = made("objp", parts, [1.0, INF]), dataset(parts, test)
    engine = FusedEngine(data, DEVICE, "float32")
    there, here = (
        engine.compute_rounds(algorithm, (1, 2), 3, None),
        PlainEngine(data).compute_rounds(algorithm, (1, 2), 3, None),
    )
    measured, saved = [], []
    for found, expected in zip(there, here, strict=True):
        assert found.t == expected.t
        found.check()
        measured.append([to_numpy(values) for values in found.measure()])
        saved.append({key: np.copy(values) for key, values in found.arrays().items()})
        np.testing.assert_allclose(measured[-1], expected.measure(), rtol=1e-5)
    assert np.min(measured[-1][0]) > 0.0
    (resumed,) = engine.compute_rounds(algorithm, (1, 2), 3, saved[1])
    np.testing.assert_array_equal([to_numpy(values) for values in resumed.measure()], measured[-1])
    for unknown in (FusedEngine(replace(data, test=None), DEVICE, "float32"), PlainEngine(replace(data, test=None))):
        with pytest.raises(InputError, match="the data set has no test records"):
            next(unknown.compute_rounds(algorithm, (1, 2), 1, None)).measure()


KNOWN = "supports objp, objpm and outp"


def refused(algorithm: Algorithm, parts: list[Shard]) -> None:
    batch = batched(parts, (1,))
    with pytest.raises(InputError, match=KNOWN):
        fused.simulate(algorithm, batch, 1, fused.start(batch))


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ("objp", "objpm", "outp")])
def test_other_methods_are_refused(name: str) -> None:
    parts = random_problems.shards(0)
    table: dict[str, Any] = (
        {"blocks": (ColumnBlock("categories", random_problems.J, False),), "rounds": 2} if name == "additive" else {}
    )
    refused(random_problems.build(name, random_problems.problem(parts), [1.0], **table), parts)


@pytest.mark.parametrize("name", ["objp", "objpm", "outp"])
def test_other_problems_are_refused(name: str) -> None:
    parts = random_problems.shards(0)
    others: list[dict[str, Any]] = [{"loss": loss} for loss in LOSSES if loss != "softmax"]
    others += [{"regulariser": regulariser} for regulariser in REGULARISERS if regulariser != "l2"]
    others += [{"feasible": feasible} for feasible in SETS if feasible != "all"]
    assert len(others) >= 5
    for other in others:
        refused(random_problems.build(name, random_problems.problem(parts, **other), [1.0]), parts)


@pytest.mark.parametrize("name", ["objp", "objpm"])
def test_other_promises_are_refused(name: str) -> None:
    parts = random_problems.shards(0)
    of = random_problems.problem(parts)
    certified = CertifiedGradient(RecordScaling(1.5), Calibrated("laplace", (Noise("laplace", 0.01, 1.0, 1.0),)))
    refused(random_problems.build(name, of, [1.0], release=certified), parts)
    refused(random_problems.build(name, of, [1.0], closing=True), parts)


@pytest.mark.parametrize("half", [False, True])
def test_the_stack_holds_every_record_and_nothing_else(half: bool) -> None:
    parts = some(5, 3, (9, 4, 16))
    stack = fused.stack(parts, DEVICE, half)
    x, labels, norm1 = (to_numpy(values) for values in (stack.x, stack.labels, stack.norm1))
    assert x.shape == (3, 16, 5)  # a multiple of eight
    assert x.dtype == (np.float16 if half else np.float32)
    assert (stack.records.tolist(), stack.keys.tolist(), stack.classes) == ([9, 4, 16], [0, 1, 2], 3)
    for p, part in enumerate(parts):
        count = len(part.x)
        np.testing.assert_array_equal(x[p, :count], part.x.astype(x.dtype))
        np.testing.assert_array_equal(labels[p, :count], part.y.argmax(axis=1))
        np.testing.assert_allclose(norm1[p, :count], np.abs(part.x).sum(axis=1), rtol=1e-6)
        assert not x[p, count:].any()
        assert not norm1[p, count:].any()
    assert fused.stack(some(5, 3), DEVICE, half).x.shape == (3, 24, 5)
