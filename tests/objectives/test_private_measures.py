"""What a record adds to a private evaluation: never longer than is declared, and never dependent on other records."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taciturn.algorithms.measure_release import MeasureRelease
from taciturn.objectives.losses import LOSSES, Softmax
from taciturn.objectives.metrics import confusion_matrix, log_losses
from taciturn.objectives.private_measures import (
    CONFUSION,
    COUNTS,
    LOSS,
    RELIABILITY,
    SCORE_EDGES,
    SCORES,
    MeasureLayout,
    summed_measures,
)
from taciturn.planning.evaluation_plan import measure_sensitivity
from taciturn.privacy.events import NON_PRIVATE
from taciturn.privacy.noise import SYSTEM_NOISE
from taciturn.types import Array, Shard

BITS = 14
UNIT = 2.0**BITS
KINDS = [("softmax", 2), ("softmax", 3), ("softmax", 10), ("hinge", 2), ("hinge", 4), ("squared", 3), ("squared", 0)]
ODD = st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e308, -1e308, 5e-324, 0.5, 745.2, 1e-17])
NUMBERS = st.one_of(ODD, st.floats(width=64))
KIND = st.sampled_from(KINDS)


def layout_of(loss: str, classes: int) -> MeasureLayout:
    return MeasureLayout.of(max(1, classes), classes > 0, LOSSES[loss]())


def labels(classes: int, draws: list[float]) -> Array:
    if not classes:
        return np.array(draws)[:, None]
    found: Array = np.eye(classes)[(np.array(draws) * classes).astype(int) % classes]
    return found


@st.composite
def records(draw: st.DrawFn) -> tuple[str, int, Array, Array]:
    """Scores of any bit pattern, and labels."""
    loss, classes = draw(KIND)
    n = draw(st.integers(1, 6))
    rows = draw(st.lists(st.lists(NUMBERS, min_size=max(1, classes), max_size=max(1, classes)), min_size=n, max_size=n))
    drawn = draw(st.lists(st.floats(0.0, 1.0), min_size=n, max_size=n))
    return loss, classes, np.array(rows), labels(classes, drawn)


def vectors(loss: str, classes: int, scores: Array, y: Array) -> Array:
    """The vector of every record, computed alone."""
    layout = layout_of(loss, classes)
    return np.array(
        [summed_measures(scores[i : i + 1], y[i : i + 1], layout, LOSSES[loss](), BITS) for i in range(len(y))]
    )


@given(records())
def test_no_record_is_longer_than_declared(given_: tuple[str, int, Array, Array]) -> None:
    """Add-remove: the root of the sum of the squared weights. Replace-one, and a move between agents: sqrt(2) of it."""
    each, layout = vectors(*given_), layout_of(*given_[:2])
    assert (each >= 0).all()
    longest = layout.length * UNIT * (1.0 + 1e-12)
    assert np.linalg.norm(each.astype(float), axis=1).max() <= longest
    for one, other in pairwise(each.astype(float)):
        assert np.linalg.norm(one - other) <= math.sqrt(2.0) * longest
        assert np.linalg.norm(np.concatenate([one, -other])) <= math.sqrt(2.0) * longest  # from one agent to another


@given(records(), st.integers(1, 3))
def test_replacing_a_unit_moves_the_sums_by_no_more_than_is_charged(
    given_: tuple[str, int, Array, Array], most: int
) -> None:
    """Its new records may be at another agent, whose sum is released too."""
    each, layout = vectors(*given_).astype(float), layout_of(*given_[:2])
    before, after = each[:most].sum(axis=0), each[-most:].sum(axis=0)
    removed, replaced = (
        measure_sensitivity(layout, adjacency, most) * UNIT * (1.0 + 1e-12)
        for adjacency in ("add-remove", "replace-one")
    )
    assert max(np.linalg.norm(before), np.linalg.norm(after)) <= removed
    assert np.linalg.norm(before - after) <= replaced
    assert np.linalg.norm(np.concatenate([before, -after])) <= replaced


@pytest.mark.parametrize(("loss", "classes"), KINDS)
def test_a_unit_of_sure_mistakes_that_moves_to_another_agent_reaches_what_is_charged(loss: str, classes: int) -> None:
    k = max(1, classes)
    each = vectors(loss, classes, -1e6 * np.eye(k)[[0, 0]], labels(classes, [0.0 if classes else 1.0] * 2))
    moved = each.sum(axis=0).astype(float)
    charged = measure_sensitivity(layout_of(loss, classes), "replace-one", 2) * UNIT
    assert np.linalg.norm(np.concatenate([moved, -moved])) == pytest.approx(charged, rel=1e-3)


@given(records())
def test_the_sum_is_that_of_the_records(given_: tuple[str, int, Array, Array]) -> None:
    loss, classes, scores, y = given_
    whole = summed_measures(scores, y, layout_of(loss, classes), LOSSES[loss](), BITS)
    assert (whole == vectors(*given_).sum(axis=0)).all()


@pytest.mark.parametrize(("loss", "classes"), KINDS)
def test_the_declared_length_is_reached(loss: str, classes: int) -> None:
    """A bound that no record reaches would waste noise: a sure mistake has every part at its weight."""
    k = max(1, classes)
    scores, y = -1e6 * np.eye(k)[:1], labels(classes, [0.0 if classes else 1.0])
    (found,) = vectors(loss, classes, scores, y)
    assert np.linalg.norm(found.astype(float)) == pytest.approx(layout_of(loss, classes).length * UNIT)


@given(st.integers(0, 2**31), KIND, st.sampled_from([1e-300, 1e-3, 1.0, 1e6, 1e300]))
def test_a_record_adds_the_same_whatever_other_records_there_are(seed: int, kind: tuple[str, int], size: float) -> None:
    """To the bit, and for every model: scores are whole numbers, so no sum of products is rounded."""
    loss, classes = kind
    rng, k = np.random.default_rng(seed), max(1, classes)
    x, w = rng.uniform(-1, 1, (40, 7)), rng.normal(size=(7, 2, k)) * size
    w[rng.integers(7), 0, 0] = rng.choice([math.nan, math.inf, -math.inf, 1e308])
    y = labels(classes, rng.random(40).tolist())
    release = MeasureRelease(layout_of(loss, classes), LOSSES[loss](), (NON_PRIVATE,) * 2, (BITS, BITS + 2), 1.0)
    shuffled = rng.permutation(40)
    whole = release.sums(w, Shard(x, y))
    parts = [release.sums(w, Shard(x[rows], y[rows])) for rows in np.array_split(shuffled, [0, 1, 3, 17])]
    assert (whole == np.sum(parts, axis=0)).all()
    assert (release(w, Shard(x, y), SYSTEM_NOISE).integers == whole).all()  # these runs have no noise


def test_the_parts_are_what_they_say() -> None:
    rng = np.random.default_rng(1)
    for k in (2, 5):
        loss, layout = Softmax(), layout_of("softmax", k)
        scores, labelled = 2.0 * rng.normal(size=(300, k)), rng.integers(k, size=300)
        found = layout.split(summed_measures(scores, np.eye(k)[labelled], layout, loss, BITS) / UNIT)
        chances, predicted = loss.probabilities(scores), scores.argmax(axis=1)
        assert found[COUNTS].tolist() == [(predicted == labelled).sum(), (predicted != labelled).sum()]
        clipped = np.minimum(log_losses(chances, labelled), layout.loss_limit)
        assert found[LOSS][0] * layout.loss_limit == pytest.approx(clipped.sum(), abs=300 * layout.loss_limit / UNIT)
        confusion = confusion_matrix(labelled, predicted, k)
        if k == 2:
            cells = found[SCORES].reshape(2, -1)
            edges = np.array([0.0, *SCORE_EDGES, 1.0])
            inside = [(chances[:, 1] > low) & (chances[:, 1] <= high) for low, high in pairwise(edges)]
            assert cells[1].tolist() == [(rows & (labelled == 1)).sum() for rows in inside]
            half = cells.shape[1] // 2
            assert [[row[:half].sum(), row[half:].sum()] for row in cells] == confusion.tolist()
        else:
            assert (2.0 * found[CONFUSION].reshape(k, k) == confusion).all()
            hits, misses = 2.0 * found[RELIABILITY].reshape(2, -1)
            assert (hits.sum(), misses.sum()) == (np.trace(confusion), 300 - np.trace(confusion))


def test_a_layout_follows_from_public_facts() -> None:
    assert [layout_of(*kind).size for kind in KINDS] == [2 + 1 + 32, 3 + 9 + 26, 3 + 100 + 26, 34, 18, 11, 5]
    assert layout_of("softmax", 2).length == math.sqrt(3.0) and layout_of("softmax", 10).length == math.sqrt(2.5)
