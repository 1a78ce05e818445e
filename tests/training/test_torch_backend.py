"""The same steps on torch: what they compute, to rounding; what they keep; what they are refused."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from taciturn.algorithms import ALGORITHMS, Agent, Algorithm
from taciturn.algorithms.noisy_gradient import CertifiedGradient
from taciturn.algorithms.schedules import Constant, DynamicRho, LevelEta, NonsmoothEta, Schedule, SmoothEta, StrongEta
from taciturn.core.arrays import as_like, namespace, to_numpy
from taciturn.errors import InputError
from taciturn.objectives import LOSSES, REGULARISERS, SETS
from taciturn.objectives.clipping import NO_CLIPPING, Clipping, GradientClipping, RecordScaling
from taciturn.objectives.metrics import test_error as error_of
from taciturn.privacy.events import NON_PRIVATE, Noise, Nominal, nominal_event
from taciturn.privacy.mechanisms import Calibrated
from taciturn.privacy.noise import SeededNoise
from taciturn.training.checkpoint import from_arrays, to_arrays
from taciturn.training.simulate import Round, simulate, start
from taciturn.training.torch_backend import check_device, matmul_precision, on_device
from taciturn.types import Array, Classes, Range, Shard
from tests.random_problems import J, K, build, problem, run, shards

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
METHODS = [name for name in ALGORITHMS if "torch" in ALGORITHMS[name].backends]
MODES = [(name, mode) for name in METHODS for mode in ALGORITHMS[name].modes]
BUDGETS = [0.5, 2.0, math.inf]
SEEDS = (1, 2, 3)
PROBLEMS = [("softmax", "l2", "all"), ("hinge", "l1", "box"), ("squared", "l2", "l2-ball")]


@pytest.fixture
def host_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of the CPU everywhere: a GPU's own Gaussian noise is other numbers."""

    def drawn_here(self: SeededNoise, update: int, mechanism: str, scale: Array, like: Array) -> Array:
        host = np.zeros(tuple(like.shape), to_numpy(like[:0]).dtype)
        return as_like(self.continuous(update, mechanism, to_numpy(scale), host), like)

    monkeypatch.setattr(SeededNoise, "_on_device", drawn_here)


def made(name: str, mode: str, of: Any, dtype: Any = np.float64) -> Algorithm:
    """The method as its mode has it: the paper's release, or a certified one with both bounds of a clip."""
    changes: dict[str, Any] = {"closing": mode == "certified", "dtype": dtype, "eta": 0.3}
    if mode == "certified" and not ALGORITHMS[name].scales_records:
        events = [Noise("laplace", 0.01 / e, 1.0, 1.0) if math.isfinite(e) else NON_PRIVATE for e in BUDGETS]
        limit = GradientClipping(np.array([0.3, 0.5, 9.0], dtype), np.array([0.4, math.inf, math.inf], dtype))
        changes["release"] = CertifiedGradient(limit, Calibrated("laplace", tuple(events)))
    return build(name, of, BUDGETS, **changes)


def agree(found: Array, expected: Array, name: str) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=name)  # sums of duals may cancel


def drawn(done: Round) -> list[Any]:
    return [(p, event.runs, count) for (p, event), count in done.events.items()]


def test_every_method_but_the_exact_ones_is_here() -> None:
    assert set(ALGORITHMS) - set(METHODS) == {
        "additive", "admm", "admm-objp", "admm-outp", "erm-objp", "erm-outp", "optimum",
    }  # fmt: skip


@pytest.mark.usefixtures("host_noise")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("loss", "regulariser", "feasible"), PROBLEMS)
@pytest.mark.parametrize(("name", "mode"), MODES)
def test_some_rounds_agree_with_numpy(
    name: str, mode: str, loss: str, regulariser: str, feasible: str, device: str
) -> None:
    parts = shards(4)
    of = problem(parts, loss, regulariser, feasible="box" if name == "objt" and feasible == "l2-ball" else feasible)
    algorithm, there = made(name, mode, of), on_device(tuple(parts), device)
    for server in ("full", "sums"):
        expected = run(algorithm, parts, SEEDS, 6, server)
        found = run(on_device(algorithm, device), list(there), SEEDS, 6, server)
        assert found.w.device.type == device  # type: ignore[attr-defined]
        assert drawn(found) == drawn(expected)
        assert np.abs(expected.w).max() > 1e-3
        for figure in ("w", "residual", "noise", "rho", "eta"):
            agree(to_numpy(getattr(found, figure)), getattr(expected, figure), figure)
        state = to_arrays(found.state)
        for key, values in to_arrays(expected.state).items():
            agree(state[key], values, key)
        agree(to_numpy(of.total(found.w, there)), of.total(expected.w, parts), "objective")


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_single_precision_is_kept(name: str, mode: str) -> None:
    parts = shards(1, dtype=np.float32)
    algorithm = on_device(made(name, mode, problem(parts), np.float32), "cpu")
    done = run(algorithm, list(on_device(tuple(parts), "cpu")), SEEDS, 3)
    state = done.state
    assert state.averages is not None
    held: list[Any] = [
        done.w,
        done.residual,
        done.rho,
        *(array for array in state.server if array is not None),
        *state.averages,
        *(a for agent in state.agents for a in agent),
    ]
    assert {array.dtype for array in held} == {torch.float32}


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_steps_are_pure(name: str, mode: str) -> None:
    """Same arguments, same bytes; and nothing that was passed in is changed."""
    parts = list(on_device(tuple(shards(0)), "cpu"))
    algorithm = on_device(made(name, mode, problem(shards(0))), "cpu")
    kept: list[Any] = [array for part in parts for array in (part.x, part.y)]
    copied = [array.clone() for array in kept]

    def keep(done: Round) -> None:
        server: list[Any] = [array for array in done.state.server if array is not None]
        held: list[Any] = [done.w, *server, *(array for agent in done.state.agents for array in agent)]
        kept.extend(held)
        copied.extend(array.clone() for array in held)

    first = run(algorithm, parts, SEEDS, 5, watch=keep)
    assert all(torch.equal(before, after) for before, after in zip(copied, kept, strict=True))
    assert torch.equal(first.w, run(algorithm, parts, SEEDS, 5).w)
    w = as_like(np.full((J, 3, K), 0.1), first.w)
    agent = Agent(w.clone(), w.clone())  # type: ignore[attr-defined]
    algorithm.agent_step(2, w, agent, parts[0], SeededNoise(SEEDS, 0, 2))
    assert all(torch.equal(array, torch.full_like(array, 0.1)) for array in (w, *agent))


@pytest.mark.parametrize("name", METHODS)
def test_a_state_goes_to_numpy_and_back(name: str) -> None:
    parts = list(on_device(tuple(shards(5)), "cpu"))
    algorithm = on_device(build(name, problem(shards(5)), BUDGETS), "cpu")
    for server in ("full", "sums"):
        halfway = to_arrays(run(algorithm, parts, SEEDS, 6, server).state)
        assert {type(value) for value in halfway.values()} == {np.ndarray}
        state = from_arrays(halfway, start(parts, 3, server))
        *_, last = simulate(algorithm, parts, lambda p, t: SeededNoise(SEEDS, p, t), 12, state)
        assert torch.equal(last.w, run(algorithm, parts, SEEDS, 12, server).w)


NUMBERS = st.floats(-30.0, 30.0, allow_subnormal=False) | st.integers(-2, 2).map(float)  # ties, kinks and zeros too
SCORES = arrays(np.float64, (4, 2, K), elements=NUMBERS)
PARAMETERS = arrays(np.float64, (J, 2, K), elements=NUMBERS)
FEATURES = arrays(np.float64, (4, J), elements=NUMBERS)
LABELS = st.lists(st.integers(0, K - 1), min_size=4, max_size=4).map(lambda labels: np.eye(K)[labels])


def same(found: Any, expected: Array) -> None:
    assert namespace(found) is torch
    np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", list(LOSSES))
@given(scores=SCORES, y=LABELS)
def test_losses_agree(name: str, scores: Array, y: Array) -> None:
    loss, (s, labels) = LOSSES[name](), on_device((scores, y), "cpu")
    same(loss.value(s, labels), loss.value(scores, y))
    same(loss.residual(s, labels), loss.residual(scores, y))
    chances, expected = loss.probabilities(s), loss.probabilities(scores)
    assert (chances is None) == (expected is None)
    if expected is not None:
        same(chances, expected)


@given(w=PARAMETERS)
def test_regularisers_and_sets_agree(w: Array) -> None:
    there = on_device(w, "cpu")
    for name in REGULARISERS:
        regulariser = REGULARISERS[name]()
        same(regulariser.value(there), regulariser.value(w))
        same(regulariser.gradient(there), regulariser.gradient(w))
    for name in SETS:
        same(SETS[name](0.8).project(there), SETS[name](0.8).project(w))


LIMITS = [
    NO_CLIPPING,
    RecordScaling(0.7),
    GradientClipping(np.array([0.3, 50.0]), np.array([math.inf, math.inf])),
    GradientClipping(np.array([0.3, 50.0]), np.array([0.4, math.inf])),
]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: type(limit).__name__)
@pytest.mark.parametrize("loss", list(LOSSES))
@given(x=FEATURES, y=LABELS, z=PARAMETERS)
def test_limited_gradients_agree(limit: Clipping, loss: str, x: Array, y: Array, z: Array) -> None:
    if loss == "hinge":
        x, z = np.rint(x), np.rint(z)  # whole scores: what is a tie is one however it was added up
    shard, z = Shard(x, y), z / 32.0
    of, there = problem([shard], loss), on_device(shard, "cpu")
    found, expected = of.gradient(on_device(z, "cpu"), there, on_device(limit, "cpu")), of.gradient(z, shard, limit)
    same(found.value, expected.value)
    same(found.longest, expected.longest)
    assert of.smoothness([there]) == pytest.approx(of.smoothness([shard]), rel=1e-9, nan_ok=True)
    for target in (Classes(("a", "b", "c")), Range(0.0, 5.0)):
        assert type(error_of(on_device(z, "cpu"), there, target)) is np.ndarray
    scale = Range(0.0, 5.0)
    np.testing.assert_allclose(error_of(on_device(z, "cpu"), there, scale), error_of(z, shard, scale), rtol=1e-12)


def test_the_share_of_wrong_classes_is_exact() -> None:
    (shard,) = shards(2, (997,))
    w = np.random.default_rng(0).standard_normal((J, 3, K))
    classes = Classes(("a", "b", "c"))
    expected = error_of(w, shard, classes)
    assert error_of(on_device(w, "cpu"), on_device(shard, "cpu"), classes).tolist() == expected.tolist()
    assert 0.3 < expected.min() < expected.max() < 1.0


def schedules(epsilon: Array) -> list[Schedule]:
    constants = Constant(1.3, epsilon), Constant([1.1, 1.2, 1.3], epsilon), DynamicRho(epsilon, tc=3, cap=2.5)
    linear = LevelEta(epsilon, 7, 0.3), LevelEta(epsilon, 7, [0.1, 0.2, 0.3])
    return [*constants, *linear, SmoothEta(epsilon, 2.0, 1.7), NonsmoothEta(epsilon, 0.3), StrongEta(epsilon, 0.3)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_schedules_are_where_epsilon_is(dtype: str, device: str) -> None:
    epsilon = np.array([0.05, 2.0, math.inf], dtype)
    there = on_device(epsilon, device)
    for on_host, on_there in zip(schedules(epsilon), schedules(there), strict=True):
        for t in (1, 2, 9):
            found: Any = on_there(t)
            assert (found.device, found.dtype, found.shape) == (there.device, there.dtype, (3, 1))
            np.testing.assert_allclose(to_numpy(found), on_host(t), rtol=1e-6 if dtype == "float32" else 1e-15)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_seed_gives_the_same_noise(dtype: str, device: str) -> None:
    like, scale = np.zeros((J, 3, K), dtype), np.array([0.0, 0.7, 3.0], dtype)
    for kind in ("laplace", "gaussian"):
        noise = SeededNoise(SEEDS, 4, 5)
        found: Any = noise.continuous(2, kind, on_device(scale, device), on_device(like, device))
        assert (found.device.type, found.dtype) == (device, getattr(torch, dtype))
        assert found[:, 1:].abs().min() > 0 and not found[:, 0].any()
        here = noise.continuous(2, kind, scale, like)
        if device == "cpu":
            assert to_numpy(found).tobytes() == here.tobytes()
        elif kind == "laplace":
            np.testing.assert_allclose(to_numpy(found), here, rtol=1e-6 if dtype == "float32" else 1e-12)


@needs_gpu
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_noise_of_a_gpu_has_the_same_law(kind: str) -> None:
    like, scale = torch.zeros((500, 4, 62), dtype=torch.float64, device="cuda"), np.array([0.5, 1.0, 2.0, 7.0])
    noise = SeededNoise((1, 2, 3, 1), 4, 5, (0, 0, 0, 1))
    found = to_numpy(noise.continuous(2, kind, scale, like)) / scale[:, None]
    law = {"gaussian": stats.norm, "laplace": stats.laplace}[kind]
    assert stats.kstest(found.ravel(), law.cdf).pvalue > 1e-3
    runs = found.transpose(1, 0, 2).reshape(4, -1)
    assert np.abs(np.corrcoef(runs) - np.eye(4)).max() < 0.03
    alone = SeededNoise((3,), 4, 5).continuous(2, kind, scale[2:3], like[:, :1])
    assert to_numpy(alone).tobytes() == to_numpy(noise.continuous(2, kind, scale, like))[:, 2:3].tobytes()


def test_budgets_are_named_as_they_were_given() -> None:
    single = on_device(np.array([0.05, 0.1], np.float32), "cpu")
    assert nominal_event("laplace", single).runs == (Nominal("laplace", 0.05), Nominal("laplace", 0.1))


def test_nothing_but_arrays_is_moved() -> None:
    frozen = np.ones((3, 2))
    frozen.flags.writeable = False
    shard, nothing, words = on_device((Shard(frozen, frozen[:, :1]), None, ("a", "b")), "cpu")
    assert (nothing, words) == (None, ("a", "b"))
    assert namespace(shard.x) is namespace(shard.norm1) is namespace(shard.norm2) is torch
    assert namespace(frozen) is namespace(0.5) is np
    assert to_numpy(frozen) is frozen


def test_products_are_rounded_as_asked_and_then_as_before() -> None:
    before = torch.get_float32_matmul_precision()
    for tf32, name in ((True, "high"), (False, "highest")):
        with pytest.raises(KeyError), matmul_precision(tf32):
            assert torch.get_float32_matmul_precision() == name
            raise KeyError
        assert torch.get_float32_matmul_precision() == before


@needs_gpu
def test_tf32_is_another_product() -> None:
    x = torch.rand((64, 64), device="cuda")
    exact = x.double() @ x.double()
    worst = {}
    for tf32 in (False, True):
        with matmul_precision(tf32):
            worst[tf32] = float(((x @ x).double() - exact).abs().max() / exact.abs().max())
    assert worst[False] < 1e-6 < worst[True] < 2e-3


def test_missing_torch_or_devices_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    check_device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="device is cuda, but torch finds no CUDA device"):
        check_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_device("cuda")
    check_device("cuda:1")
    with monkeypatch.context() as without:
        without.setattr("taciturn.training.torch_backend.util.find_spec", lambda name: None)
        with pytest.raises(InputError, match=r"noise on a GPU needs triton.*pip install 'taciturn\[torch\]'"):
            check_device("cuda")
    with pytest.raises(InputError, match=r"device is cuda:2.* cpu, cuda:0, cuda:1"):
        check_device("cuda:2")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"backend torch needs torch.*pip install 'taciturn\[torch\]'"):
        check_device("cpu")


def test_a_gpu_that_is_too_small_is_named() -> None:
    with pytest.raises(InputError, match="fewer seeds"), matmul_precision(tf32=False):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
