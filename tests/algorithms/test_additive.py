"""The additive model of a table: its coordinates, its releases, its server, and its optimum without noise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.algorithms import ALGORITHMS, AlgorithmConfig
from taciturn.algorithms.additive import Additive, Coordinates, coordinates, count_rounds
from taciturn.algorithms.base import Agent
from taciturn.algorithms.noisy_gradient import CertifiedGradient, HardenedGradient, fraction_bits
from taciturn.algorithms.pooled_optimum import PooledOptimum
from taciturn.algorithms.schedules import Constant
from taciturn.core.arrays import backing_file
from taciturn.errors import InputError
from taciturn.objectives import LOSSES, REGULARISERS, SETS, Problem
from taciturn.objectives.clipping import GradientClipping
from taciturn.objectives.passes import COMPILED
from taciturn.privacy.events import NON_PRIVATE, Noise
from taciturn.privacy.mechanisms import Calibrated
from taciturn.privacy.noise import SeededNoise
from taciturn.training.checkpoint import from_arrays, to_arrays
from taciturn.training.simulate import SimulationState, simulate, start
from taciturn.types import GRID, Array, ColumnBlock, Shard

BLOCKS = (ColumnBlock("ordered", 6, True), ColumnBlock("categories", 3, False), ColumnBlock("ordered", 4, False))
WIDTH, LEVEL, SHARE = 13, 1.0 / np.sqrt(2.0 * 3.0), 1.0 / np.sqrt(2.0)
CLIP, ROUNDS = 0.8, 40


def records(seed: int, n: int) -> Shard:
    """Records as the map bins returns them: levels or mixtures of two neighbours, and the intercept."""
    rng = np.random.default_rng(seed)
    x, start_of = np.zeros((n, WIDTH + 1)), 0
    for block in BLOCKS:
        last = block.width - 1
        level, share = rng.integers(0, last, n), rng.integers(0, GRID + 1, n) / GRID
        if block.kind == "categories" or block.missing:
            share = np.where(share < 0.5, 0.0, 1.0) if block.kind == "categories" else np.where(level < 4, share, 0.0)
        rows = np.arange(n)
        x[rows, start_of + level], x[rows, start_of + level + 1] = 1.0 - share, share
        if block.missing:
            gone = rng.random(n) < 0.2
            x[gone, start_of : start_of + block.width] = np.eye(block.width)[-1]
        start_of += block.width
    score = 3.0 * x[:, 0] - 2.0 * x[:, 7] + x[:, 12] - 0.5 + rng.normal(size=n)
    x = np.column_stack([x[:, :WIDTH] * LEVEL, np.full(n, SHARE)])
    return Shard(x, np.eye(2)[(score > 0).astype(int)])


def method(parts: list[Shard], scale: float = 0.0, **changes: Any) -> Additive:
    """The method with noise of the given scale."""
    total = sum(len(part.x) for part in parts)
    event = Noise("gaussian", scale, CLIP / total, CLIP / total) if scale else NON_PRIVATE
    clipping = GradientClipping(np.array([CLIP]), np.array([np.inf]))
    release = CertifiedGradient(clipping, Calibrated("gaussian", (event,), 1.0))
    problem = Problem(LOSSES["softmax"](), REGULARISERS["l2"](), 1e-6, SETS["all"](1.0), total, len(parts), COMPILED)
    one = np.ones(1)
    plain = Additive(problem, Constant(1.0, one), Constant(4.0 * len(parts), one), release, BLOCKS, ROUNDS, CLIP)
    return replace(plain, **changes)


def trained(algorithm: Additive, parts: list[Shard], rounds: int = ROUNDS, server: str = "sums", seed: int = 1) -> Any:
    """The last round of a run."""
    state = start(parts, 1, server, averages=False)
    return list(simulate(algorithm, parts, lambda p, t: SeededNoise((seed,), p, t), rounds, state))[-1]


def found(parts: list[Shard]) -> Coordinates:
    mean = np.concatenate([part.x for part in parts])[:, :WIDTH].mean(axis=0) / LEVEL
    return coordinates(mean, BLOCKS, intercept=True)


def test_without_noise_the_counts_are_the_frequencies() -> None:
    parts = [records(0, 300), records(1, 200)]
    done = trained(method(parts), parts, count_rounds(ROUNDS))
    exact = found(parts)
    released = method(parts).coordinates(done.state.server.statistics)
    for block, other in zip(released.blocks, exact.blocks, strict=True):
        np.testing.assert_allclose(block, other, atol=2e-6)


def first_prediction(algorithm: Additive, statistics: Array) -> Array:
    """The classes' probabilities, [2], before the first gradient, for a record without effects."""
    constant = algorithm.gradient_point(count_rounds(ROUNDS) + 1, statistics)[-1]
    found = algorithm.problem.loss.probabilities(constant * algorithm.coordinates(statistics).constant)
    assert found is not None
    return np.asarray(found[0])


@pytest.mark.parametrize("share", [0.5, 0.1, 0.004])
def test_training_of_two_classes_starts_at_their_shares(share: float) -> None:
    """A record's class is the sign of its intercept while counting; the shares are of weighted records."""
    parts = [records(0, 300), records(1, 200)]
    label = np.arange(500) < 500 * share
    parts = [Shard(part.x, np.eye(2)[own.astype(int)]) for part, own in zip(parts, np.split(label, [300]), strict=True)]
    algorithm, counting = method(parts), count_rounds(ROUNDS)
    for weight in (1.0, 0.5):
        held = [replace(part, weights=np.where(part.y[:, 1] > 0.0, 1.0, weight)) for part in parts]
        statistics = trained(algorithm, held, counting).state.server.statistics
        assert not algorithm.gradient_point(counting + 1, statistics)[:-1].any()
        predicted = first_prediction(algorithm, statistics)
        excess = share - (1.0 - share) * weight
        assert predicted[1] == pytest.approx((1.0 + excess) / 2.0, abs=1e-6)


def test_the_start_has_no_momentum() -> None:
    """The first model is the mean of the first steps, wherever they start."""
    parts = [Shard(records(seed, 200).x, np.eye(2)[(np.arange(200) < 20).astype(int)]) for seed in (0, 1)]
    algorithm, first = method(parts), count_rounds(ROUNDS) + 1
    state = trained(algorithm, parts, first).state
    mean = np.mean([agent.z for agent in state.agents], axis=0)
    assert np.abs(mean[-1]).max() > 0.5
    np.testing.assert_allclose(algorithm.model(first, mean, state.server), mean, rtol=1e-12, atol=1e-12)


def test_a_class_that_nobody_has_is_taken_to_be_rare() -> None:
    parts = [Shard(records(0, 300).x, np.tile([1.0, 0.0], (300, 1)))]
    statistics = trained(method(parts), parts, count_rounds(ROUNDS)).state.server.statistics
    assert first_prediction(method(parts), statistics)[1] == pytest.approx(2.0**-10, rel=1e-3)


@pytest.mark.parametrize("declared", [150, 600, 1300])
def test_shares_are_those_of_the_records_there_are(declared: int) -> None:
    """Where the counts show that they are not those declared; small differences are in the noise anyway."""
    shard = records(0, 600)
    shard = Shard(shard.x, np.eye(2)[(np.arange(600) < 120).astype(int)])
    for scale in (0.0, 1e-4):
        algorithm = method([shard], scale=scale)
        algorithm = replace(algorithm, problem=replace(algorithm.problem, records=declared))
        statistics = trained(algorithm, [shard], count_rounds(ROUNDS)).state.server.statistics
        assert first_prediction(algorithm, statistics)[1] == pytest.approx(0.2, abs=0.02)


def test_a_record_changes_the_counts_by_at_most_the_clip_and_one_for_another_by_twice() -> None:
    """The worst case: another level in every column, and the other class."""
    shard, worst = records(5, 30), 0.0
    algorithm, zero = method([shard]), np.zeros((WIDTH + 1, 1, 2))

    def counts(part: Shard) -> Array:
        return 30.0 * np.asarray(
            algorithm.agent_step(1, zero, Agent(zero, zero), part, SeededNoise((1,), 0, 1)).upload.z
        )

    rest = Shard(shard.x[1:], shard.y[1:])
    for i in range(1, 30):
        other = Shard(np.vstack([shard.x[i : i + 1], rest.x]), np.vstack([1.0 - shard.y[:1], rest.y]))
        worst = max(worst, float(np.linalg.norm(counts(other) - counts(shard))))
    alone = float(np.linalg.norm(counts(shard) - counts(rest)))
    assert 0.8 * CLIP < alone <= CLIP * (1.0 + 1e-6)
    assert 1.5 * CLIP < worst <= 2.0 * CLIP * (1.0 + 1e-6)


def test_memory_mapped_records_stay_in_files(tmp_path: Path) -> None:
    """So does the copy with signed intercepts."""
    rows = 20_000
    x = np.memmap(tmp_path / "x", np.float64, "w+", shape=(rows, WIDTH + 1))
    x[:] = records(0, rows).x
    shard = Shard(x, np.eye(2)[np.arange(rows) % 2])
    signed = method([shard])._signed(shard)
    assert backing_file(signed.x) is not None
    np.testing.assert_array_equal(np.sign(signed.x[:, -1]), np.where(np.arange(rows) % 2, 1.0, -1.0))
    np.testing.assert_array_equal(signed.x[:, :-1], x[:, :-1])


def test_noise_cannot_make_a_class_rarer_than_it_can_tell() -> None:
    parts = [records(0, 300), records(1, 200)]
    parts = [Shard(part.x, np.tile([1.0, 0.0], (len(part.x), 1))) for part in parts]
    algorithm = method(parts, scale=0.02)
    for seed in range(5):
        statistics = trained(algorithm, parts, count_rounds(ROUNDS), seed=seed).state.server.statistics
        rarer = first_prediction(algorithm, statistics).min()
        deviation = 0.02 * np.sqrt(2.0 * 2.0 / count_rounds(ROUNDS)) / (SHARE * CLIP * np.sqrt(2.0)) / 2.0
        assert rarer >= 2.0 * deviation - 1e-6


def test_counts_are_of_records_and_gradients_have_their_weights() -> None:
    """A weight of 0 leaves a record in the counts, and out of every gradient."""
    parts = [records(0, 300), records(1, 200)]
    rng = np.random.default_rng(0)
    weighted = [replace(part, weights=rng.choice([0.0, 0.25, 1.0], len(part.x))) for part in parts]
    equal = [replace(part, weights=np.ones(len(part.x))) for part in parts]
    algorithm, counting = method(parts), count_rounds(ROUNDS)
    counts = [trained(algorithm, held, counting).state.server.statistics for held in (parts, weighted, equal)]
    for other in counts[1:]:
        np.testing.assert_array_equal(other[:-1], counts[0][:-1])
    plain, same, own = (trained(algorithm, held).w for held in (parts, equal, weighted))
    np.testing.assert_array_equal(same, plain)
    assert np.abs(own - plain).max() > 1e-3
    without = replace(weighted[0], y=np.where((np.asarray(weighted[0].weights) == 0.0)[:, None], 0.5, weighted[0].y))
    np.testing.assert_array_equal(trained(algorithm, [without, weighted[1]]).w, own)


def test_a_record_has_norm_one_on_average_and_its_coordinates_are_its_own() -> None:
    shard = records(2, 4000)
    code = found([shard])
    z = code.recode(shard.x)
    assert 0.5 < float((z**2).sum(axis=1).mean()) <= 1.0 + 1e-9  # mixtures of two levels are shorter
    for rows in (slice(5, 6), slice(100, 4000, 7)):
        np.testing.assert_array_equal(code.recode(shard.x[rows]), z[rows])


def test_coefficients_and_gradients_belong_to_the_same_coordinates() -> None:
    shard, rng = records(3, 50), np.random.default_rng(0)
    code = found([shard])
    v, r = rng.normal(size=(WIDTH + 1, 1, 2)), rng.normal(size=(50, 2))
    np.testing.assert_allclose(
        code.recode(shard.x) @ v[:, 0], shard.x @ code.coefficients(v)[:, 0], atol=1e-5
    )  # recoding rounds to multiples of 2^-20
    np.testing.assert_allclose(code.recode(shard.x).T @ r, code.pulled_back(shard.x.T @ r), atol=1e-4)


HOSTILE = st.lists(
    st.sampled_from([0.0, -1.0, 1e-300, 1.0, -1e9, 2.0**32, np.inf, -np.inf, np.nan]), min_size=WIDTH, max_size=WIDTH
)


@given(HOSTILE)
@settings(max_examples=25, deadline=None)
def test_no_statistics_give_coordinates_that_are_not_finite(values: list[float]) -> None:
    code = coordinates(np.array(values), BLOCKS, intercept=True)
    z = code.recode(records(4, 20).x)
    assert np.isfinite(z).all()
    assert np.abs(z).max() <= 1.0 + 1e-12  # the exact sums of hardened noise rely on it


@given(HOSTILE, st.integers(1, 10))
@settings(max_examples=30, deadline=None)
def test_one_record_changes_an_upload_by_at_most_the_clip_whatever_the_server_sends(
    values: list[float], t: int
) -> None:
    shard = records(5, 30)
    fewer = Shard(shard.x[1:], shard.y[1:])
    algorithm = method([shard])
    sent = np.array([*values, 1.0])[:, None, None] * np.ones((1, 1, 2))
    sent = np.clip(np.nan_to_num(sent, posinf=2.0**32, neginf=-(2.0**32)), -(2.0**32), 2.0**32)  # what is admissible
    agent = Agent(np.zeros_like(sent), np.where(sent == 0.0, 1.0, sent))
    both = [algorithm.agent_step(t, sent, agent, part, SeededNoise((1,), 0, t)).upload.z for part in (shard, fewer)]
    step = float(algorithm.eta(t)[0, 0]) if t > count_rounds(ROUNDS) else 1.0
    assert np.linalg.norm(both[0] - both[1]) <= step * CLIP / 30 * (1 + 1e-6) + 1e-9 * np.abs(both[0]).max()


@given(HOSTILE, st.sampled_from([1e-300, 1.0, -3.0, 2.0**32]))
@settings(max_examples=30, deadline=None)
def test_exact_sums_of_hardened_noise_change_by_at_most_the_clip_whatever_the_server_sends(
    values: list[float], size: float
) -> None:
    """The sum is in integers, so the bound holds to the last bit; the parameters are of any admissible size."""
    shard = records(12, 25)
    algorithm = method([shard])
    limit, bits = GradientClipping(np.array([CLIP]), np.array([np.inf])), fraction_bits(30, CLIP, 12, 0.0)
    exact = HardenedGradient(limit, Calibrated("gaussian", (NON_PRIVATE,)), 30, bits)
    code = coordinates(np.array(values), BLOCKS, intercept=True)
    w = size * np.random.default_rng(0).choice([-1.0, 0.0, 1.0], (WIDTH + 1, 1, 2))
    both = [
        exact.sum(algorithm.problem, w, Shard(code.recode(part.x), part.y))
        for part in (shard, Shard(shard.x[1:], shard.y[1:]))
    ]
    assert all((total == np.rint(total)).all() for total in both)
    assert np.linalg.norm(both[0] - both[1]) <= CLIP * GRID * 2.0**bits


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"problem": "box"}, "needs set all"), ({"blocks": ()}, "bins")],
)
def test_what_it_cannot_do_is_refused(changes: dict[str, Any], said: str) -> None:
    good = method([records(0, 10)])
    if "problem" in changes:
        changes = {"problem": replace(good.problem, feasible=SETS["box"](1.0))}
    names = ("problem", "rho", "eta", "release", "blocks", "rounds", "clip")
    config = AlgorithmConfig(epsilon=np.ones(1), **{name: getattr(good, name) for name in names})
    assert isinstance(ALGORITHMS["additive"].build(config), Additive)
    with pytest.raises(InputError, match=said):
        ALGORITHMS["additive"].build(replace(config, **changes))


def test_both_servers_agree_and_a_state_continues_where_it_stopped() -> None:
    parts = [records(6, 100), records(7, 80), records(8, 60)]
    algorithm = method(parts, scale=0.01)
    full, sums = (trained(algorithm, parts, server=server) for server in ("full", "sums"))
    np.testing.assert_allclose(full.w, sums.w, rtol=1e-9, atol=1e-12)
    for stop in (1, count_rounds(ROUNDS), count_rounds(ROUNDS) + 1, 20):
        half = trained(algorithm, parts, stop).state
        initial: SimulationState = start(parts, 1, "sums", averages=False)
        again = from_arrays(to_arrays(half), initial)
        rest = list(simulate(algorithm, parts, lambda p, t: SeededNoise((1,), p, t), ROUNDS, again))[-1]
        np.testing.assert_array_equal(rest.w, sums.w)


def test_an_agent_that_missed_the_statistics_says_so() -> None:
    shard = records(9, 10)
    zero: Array = np.zeros((WIDTH + 1, 1, 2))
    with pytest.raises(InputError, match="missed round 3"):
        method([shard]).agent_step(ROUNDS, zero + 0.1, Agent(zero, zero), shard, SeededNoise((1,), 0, ROUNDS))


def test_training_without_noise_approaches_the_optimum() -> None:
    """The optimum has a ridge penalty, so the trained model's loss may be a little lower."""
    parts = [records(10, 700), records(11, 800)]
    pooled = Shard(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y")))
    algorithm = replace(method(parts), rounds=400, clip=10.0)
    mechanism = Calibrated("gaussian", (NON_PRIVATE,), 1.0)
    free = replace(algorithm, release=CertifiedGradient(GradientClipping(*np.array([[10.0], [np.inf]])), mechanism))
    done = trained(free, parts, 400)
    problem, one = replace(algorithm.problem, agents=1), np.ones(1)
    best = PooledOptimum(problem, Constant(1.0, one), Constant(1.0, one), BLOCKS)
    solved = best.agent_step(1, np.zeros_like(done.w), Agent(done.w, done.w), pooled, SeededNoise((1,), 0, 1)).upload.z
    losses = [float(COMPILED.losses(problem.loss, w, pooled)[0]) / 1500 for w in (done.w, solved)]
    base = np.bincount(pooled.y.argmax(axis=1)) / 1500
    gain = -float((base * np.log(base)).sum()) - losses[1]
    assert gain > 0.1
    assert abs(losses[0] - losses[1]) < 0.02 * gain


def solved_alone(shard: Shard, loss: str) -> Array:
    """The optimum of one party's records, [J, K]."""
    problem = Problem(LOSSES[loss](), REGULARISERS["l2"](), 1e-6, SETS["all"](1.0), len(shard.x), 1, COMPILED)
    step, zero = Constant(1.0, np.ones(1)), np.zeros((WIDTH + 1, 1, shard.y.shape[1]))
    best = PooledOptimum(problem, step, step, BLOCKS)
    solved: Array = best.agent_step(1, zero, Agent(zero, zero), shard, SeededNoise((1,), 0, 1)).upload.z[:, 0]
    return solved


def test_few_records_without_a_pattern_give_the_mean() -> None:
    """What there is nothing to learn from is not learned, and the constant is not drawn to 0 for it."""
    few, many, rng = records(12, 30), records(13, 3000), np.random.default_rng(14)
    few_labels, labels = 0.8 + 0.03 * rng.normal(size=(30, 1)), 0.8 + 0.03 * rng.normal(size=(3000, 1))
    missed = many.x @ solved_alone(Shard(few.x, few_labels), "squared") - labels
    assert float(np.sqrt((missed**2).mean())) < 1.1 * 0.03


def test_few_records_with_a_pattern_are_followed() -> None:
    few, many = records(12, 150), records(13, 3000)
    truth = np.cumsum(np.random.default_rng(15).normal(size=(WIDTH + 1, 1)), axis=0) / 4.0
    w = solved_alone(Shard(few.x, few.x @ truth), "squared")
    assert float(np.abs(many.x @ (w - truth)).mean()) < 0.05 * float((many.x @ truth).std())


def test_a_rare_class_counts_as_few_records() -> None:
    """Many records of which few have the label say as little as few records: nothing is learned from no pattern."""
    many, new = records(16, 2000), records(17, 20000)
    rng = np.random.default_rng(18)
    labels, truth = (np.eye(2)[(rng.random(len(of.x)) < 0.01).astype(int)] for of in (many, new))
    scores = new.x @ solved_alone(Shard(many.x, labels), "softmax")
    losses, base = np.log(np.exp(scores).sum(axis=1)) - (scores * truth).sum(axis=1), truth.mean(axis=0)
    assert losses.mean() < 1.01 * -float((base * np.log(base)).sum())


def test_the_noise_in_curves_is_in_the_unit_of_the_label() -> None:
    """In dollars it is a thousand times what it is in thousands of dollars, and not beyond all measure."""
    shard = records(19, 500)
    parts = [replace(shard, y=0.5 + 0.1 * shard.x[:, :1])]
    number = method(parts, 0.01)
    algorithm = replace(number, problem=replace(number.problem, loss=LOSSES["squared"]()))
    done = trained(algorithm, parts)
    w, statistics = done.w[:, 0], done.state.server.statistics
    one, thousand = (
        algorithm.curve_noise(w, statistics, ROUNDS, np.array([[width]]), (1,) * ROUNDS) for width in (1.0, 1000.0)
    )
    for error, wider in zip(one.errors, thousand.errors, strict=True):
        np.testing.assert_allclose(wider, 1000.0 * error, rtol=1e-9)


def test_standard_errors_cover_the_noise_and_are_not_much_wider() -> None:
    """On independent columns, whose effects differ between runs by the noise alone."""
    parts, seeds = [records(20, 1500), records(21, 1500)], 16
    algorithm, contrasts = method(parts, 0.003), np.array([[-1.0, 1.0]])
    curves, errors = [], []
    for seed in range(seeds):
        done = trained(algorithm, parts, seed=seed)
        noise = algorithm.curve_noise(done.w[:, 0], done.state.server.statistics, ROUNDS, contrasts, (2,) * ROUNDS)
        effects = [LEVEL * done.w[own, 0] @ contrasts[0] for own in found(parts).columns]
        curves.append([effect - share @ effect for effect, share in zip(effects, noise.shares, strict=True)])
        errors.append([error[0] for error in noise.errors])
    covered = []
    for i, share in enumerate(noise.shares):
        curve, error = (np.array([of[i] for of in all_of]) for all_of in (curves, errors))
        wider = np.sqrt((share @ (error**2).mean(axis=0)) / (share @ curve.var(axis=0, ddof=1)))
        assert 1.0 < wider < 3.0
        covered.append(np.abs(curve - curve.mean(axis=0)) <= 1.96 * np.sqrt(1.0 - 1.0 / seeds) * error)
    assert np.concatenate(covered, axis=1).mean() > 0.95


def test_records_that_are_missing_do_not_pull() -> None:
    """If half of the declared records exist, the curves vary more."""
    parts = [records(20, 1500)]
    algorithm = method(parts, 0.003)
    done = trained(algorithm, parts)
    w, all_of = done.w[:, 0], done.state.server.statistics
    whole, half = (
        algorithm.curve_noise(w, statistics, ROUNDS, np.array([[-1.0, 1.0]]), ())
        for statistics in (all_of, all_of / 2.0)
    )
    for error, wider in zip(whole.errors, half.errors, strict=True):
        assert np.sqrt((wider**2).mean()) > 1.2 * np.sqrt((error**2).mean())
