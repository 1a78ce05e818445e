"""Laws of the intervals: they are scipy's, pairing removes what seeds share, and runs without noise are exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp, ttest_rel

from taciturn.experiments.run_rows import RunRow
from taciturn.experiments.statistics import Comparison, compare_values, mean_errors, repeated_unit
from taciturn.experiments.sweep_results import describe_comparison, interval_notes
from taciturn.reporting.intervals import interval

ERRORS = st.lists(st.tuples(*[st.floats(0.01, 0.9)] * 2), min_size=3, max_size=8)


def rows(errors: dict[Any, list[float]], setting: str = "algorithm", **more: Any) -> list[RunRow]:
    found = []
    for value, runs in errors.items():
        known = {"algorithm": "objp", "epsilon": 1.0, **more, setting: value}
        algorithm, epsilon = known.pop("algorithm"), known.pop("epsilon")
        found += [
            RunRow("1", 0, known, algorithm, epsilon, seed, test_error=error) for seed, error in enumerate(runs, 1)
        ]
    return found


def compare(errors: dict[Any, list[float]], **more: Any) -> list[Comparison]:
    return compare_values(rows(errors, **more), ["algorithm", "epsilon"], ["algorithm"], "seed")


@given(ERRORS)
def test_differences_are_scipys_paired_intervals(pairs: list[tuple[float, float]]) -> None:
    a, b = (list(values) for values in zip(*pairs, strict=True))
    if np.std(np.subtract(b, a)) < 1e-6:
        return
    found = compare({"objp": a, "objpm": b})[0].difference
    low, high = ttest_rel(b, a).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)
    assert found.mean == pytest.approx(np.mean(b) - np.mean(a)) and found.n == len(pairs)


@given(ERRORS, st.floats(0.0, 0.5))
def test_effects_of_a_seed_on_both_settings_cancel(pairs: list[tuple[float, float]], size: float) -> None:
    """The law of pairing: a shift that all runs of a seed share changes no difference."""
    a, b = (list(values) for values in zip(*pairs, strict=True))
    shift = [size * (-1) ** i * i for i in range(len(pairs))]
    before = compare({"objp": a, "objpm": b})[0].difference
    moved = {"objp": np.add(a, shift).tolist(), "objpm": np.add(b, shift).tolist()}
    after = compare(moved)[0].difference
    assert before[:3] == pytest.approx(after[:3], abs=1e-9)
    swapped = compare({"objpm": b, "objp": a})[0].difference
    assert (swapped.mean, swapped.low) == pytest.approx((-before.mean, -(before.high or 0.0)), abs=1e-12)


def test_all_intervals_together_are_bonferronis() -> None:
    a, b, c = [0.1, 0.12, 0.11, 0.14], [0.2, 0.21, 0.25, 0.2], [0.3, 0.33, 0.28, 0.31]
    found = compare({"objp": a, "objpm": b, "outp": c})
    assert [(one.first, one.second) for one in found] == [("objp", "objpm"), ("objp", "outp"), ("objpm", "outp")]
    low, high = ttest_rel(b, a).confidence_interval(1.0 - 0.05 / 3)
    assert (found[0].simultaneous.low, found[0].simultaneous.high) == pytest.approx((low, high))
    assert found[0].comparisons == 3
    assert "Bonferroni" in interval_notes(found, [4], "seed", hardened=False)[-1]


def test_intervals_cover_95_percent() -> None:
    drawn = np.random.default_rng(1).normal(0.2, 0.05, (2000, 5))
    found = [interval(values.tolist()) for values in drawn]
    held = np.mean([one.low <= 0.2 <= one.high for one in found if one.low is not None and one.high is not None])
    assert abs(held - 0.95) < 0.015
    reference = ttest_1samp(drawn[0], 0.0).confidence_interval(0.95)
    assert (found[0].low, found[0].high) == pytest.approx(tuple(reference))


def test_comparisons_in_words() -> None:
    apart = compare({"objp": [0.112, 0.115, 0.11], "objpm": [0.1, 0.102, 0.099]})
    assert (
        describe_comparison(apart[0], regression=False)
        == "objpm is lower than objp by 1.20 points (0.95 to 1.45), 3 seeds"
    )
    alike = compare({"objp": [0.11, 0.12, 0.1], "objpm": [0.1, 0.13, 0.11]})
    assert describe_comparison(alike[0], regression=False).startswith(
        "no significant difference: objpm minus objp is +0.33 points"
    )
    one = compare({"objp": [2.0], "objpm": [1.5]})
    assert one[0].difference.low is None and not one[0].significant
    assert "objpm was lower than objp by 0.5 RMSE with one seed" in describe_comparison(one[0], regression=True)
    assert "--seeds 5" in interval_notes(one, [1], "seed", hardened=False)[0]
    assert "--seed 1 --seeds 5 simulates" in interval_notes(one, [1], "seed", hardened=True)[0]
    by_clip = compare_values(rows({0.5: [0.2, 0.21], 1.0: [0.1, 0.11]}, "clip"), ["clip"], ["clip"], "seed")
    assert describe_comparison(by_clip[0], regression=False).startswith("clip 1 is lower than clip 0.5 by 10.00 points")
    many = compare({"a": [0.1, 0.11, 0.12], "b": [0.11, 0.13, 0.132], "c": [0.1, 0.12, 0.11], "d": [0.1, 0.1, 0.12]})
    assert many[0].significant and not many[0].significant_overall
    assert describe_comparison(many[0], regression=False).endswith("among 6 comparisons it may be chance")


def test_without_noise_no_seed_counts() -> None:
    quiet = compare({"objp": [0.12, 0.12, 0.12], "iadmm": [0.1]}, epsilon=math.inf)
    assert quiet[0].exact and quiet[0].comparisons == 0
    assert (
        describe_comparison(quiet[0], regression=False)
        == "iadmm is lower than objp by 2.00 points; without noise no seed changes it"
    )
    budgets = [*rows({"objp": [0.2, 0.21, 0.23]}), *rows({"objp": [0.1] * 3}, epsilon=math.inf)]
    found = compare_values(budgets, ["epsilon"], ["epsilon"], "seed")[0]
    assert found.difference.n == 3 and not found.exact
    one_run = [*rows({"objp": [0.1]}, epsilon=math.inf), *rows({"objp": [0.2, 0.21, 0.23]})]
    assert compare_values(one_run, ["epsilon"], ["epsilon"], "seed")[0].difference.n == 3
    assert {at: one.n for at, one in mean_errors(budgets, ["epsilon"], "seed").items()} == {
        (("epsilon", 1.0),): 3,
        (("epsilon", math.inf),): 1,
    }


def test_random_samples_make_seeds_count_without_noise() -> None:
    sampled = compare({"dpsgd": [0.12, 0.13, 0.11], "iadmm": [0.1]}, epsilon=math.inf)
    assert not sampled[0].exact and sampled[0].difference.n == 3
    found = mean_errors(rows({"dpsgd": [0.12, 0.13, 0.11]}, epsilon=math.inf), ["algorithm"], "seed")
    assert [one.n for one in found.values()] == [3]


def test_where_partitions_are_repeated_their_seeds_are_averaged_first() -> None:
    errors = {1: [0.1, 0.2], 2: [0.3, 0.4], 3: [0.2, 0.6]}
    found = [
        row for p, e in errors.items() for row in rows({"objp": e, "objpm": [x + 0.1 * p for x in e]}, partition_key=p)
    ]
    assert repeated_unit(["clip", "partition_key"]) == "partition_key" and repeated_unit(["clip"]) == "seed"
    means = mean_errors(found, ["algorithm"], "partition_key")
    assert means[(("algorithm", "objp"),)] == pytest.approx(interval([0.15, 0.35, 0.4]))
    paired = compare_values(found, ["algorithm"], ["algorithm"], "partition_key")[0].difference
    assert paired.mean == pytest.approx(0.2) and paired.n == 3
