from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from taciturn.data.allocation import ArrayAllocator, label_rows
from taciturn.data.assemble import RawRecords, assemble
from taciturn.data.dataset_source import PRECISIONS, DataOptions
from taciturn.data.partition import Partition, in_order
from taciturn.errors import InputError
from taciturn.types import Classes, Dataset, Range, Target

AB = Classes(("a", "b"))


def build(
    x: NDArray[Any],
    labels: NDArray[Any],
    blocks: list[list[int]] | None = None,
    target: Target = AB,
    features: tuple[str, ...] = ("u", "v"),
    **changes: Any,
) -> Dataset:
    index = [np.array(block, dtype=np.intp) for block in blocks] if blocks is not None else in_order(len(x), 2)
    agents = Partition(tuple(f"p{i}" for i in range(len(index))), index)
    unit = changes.pop("unit", 1.0)
    test = changes.pop("test", None)
    options = DataOptions(**changes)
    return assemble("t", options, RawRecords(x, labels, unit), agents, features=features, target=target, test=test)


@given(st.lists(st.integers(0, 4), min_size=1), st.sampled_from(["float64", "float32"]))
def test_one_hot_rows_sum_to_one_at_the_label(values: list[int], precision: str) -> None:
    rows, room = slice(0, len(values)), ArrayAllocator(PRECISIONS[precision])
    y = label_rows(np.array(values), Classes(tuple("abcde")), rows, room)
    assert y.dtype == precision
    assert (y.sum(axis=1) == 1).all()
    assert y.argmax(axis=1).tolist() == values


@given(st.permutations(range(12)), st.integers(1, 11), st.booleans())
def test_every_agent_gets_its_own_records(order: list[int], cut: int, intercept: bool) -> None:
    x, labels = np.arange(24.0).reshape(12, 2), np.arange(12) % 2
    dataset = build(x, labels, [order[:cut], order[cut:]], intercept=intercept)
    for shard, block in zip(dataset.train, (order[:cut], order[cut:]), strict=True):
        assert np.array_equal(shard.x[:, :2], x[block])
        assert np.array_equal(shard.y.argmax(axis=1), labels[block])
        assert shard.x.flags.c_contiguous


def test_in_order_blocks_are_views_of_the_data() -> None:
    x = np.arange(20.0).reshape(10, 2)
    dataset = build(x, np.arange(10) % 2)
    assert all(np.shares_memory(shard.x, x) for shard in dataset.train)


def test_records_nobody_holds_are_left_out() -> None:
    x = np.arange(20.0).reshape(10, 2)
    dataset = build(x, np.arange(10) % 2, [[2, 3], [4]])
    assert [shard.x[:, 0].tolist() for shard in dataset.train] == [[4, 6], [8]]


def test_the_unit_the_precision_and_the_intercept() -> None:
    x = np.array([[0, 255], [51, 255]], dtype=np.uint8)
    dataset = build(x, np.array([0, 1]), unit=255, precision="float32", intercept=True)
    shard = dataset.train[1]
    assert shard.x.dtype == np.float32
    assert shard.y.dtype == np.float32
    assert shard.x.tolist() == [[np.float32(51) / np.float32(255), 1, 1]]
    assert dataset.features == ("u", "v", "intercept")
    assert dataset.records == 2


def test_a_number_is_scaled_by_its_bounds() -> None:
    dataset = build(np.zeros((3, 2)), np.array([10.0, 15.0, 20.0]), [[0, 1, 2]], target=Range(10, 20))
    assert dataset.train[0].y.tolist() == [[0], [0.5], [1]]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_must_be_finite(value: float) -> None:
    x = np.zeros((4, 2))
    x[2, 1] = x[3, 0] = value
    with pytest.raises(InputError, match=rf"^feature 'v' of training record 3 is {value}: it must be a finite number$"):
        build(x, np.zeros(4, dtype=int))
    with pytest.raises(InputError, match=r"^feature 'v' of test record 3"):
        build(np.zeros((4, 2)), np.zeros(4, dtype=int), test=RawRecords(x, np.zeros(4, dtype=int)))


def test_every_agent_needs_a_record() -> None:
    with pytest.raises(InputError, match=r"^agent 'p1' has no training records: every agent needs at least one$"):
        build(np.zeros((2, 2)), np.zeros(2, dtype=int), [[0, 1], []])


def test_shapes_must_agree() -> None:
    labels = np.zeros(2, dtype=int)
    with pytest.raises(InputError, match=r"^the training features have shape \(2, 3\): it must be \(records, 2\)$"):
        build(np.zeros((2, 3)), labels)
    with pytest.raises(InputError, match=r"^there are 3 training records, but labels of shape \(2,\): one label each$"):
        build(np.zeros((3, 2)), labels)
    with pytest.raises(InputError, match=r"^there are no training records: there must be at least one$"):
        build(np.zeros((0, 2)), labels, [[]])
    with pytest.raises(InputError, match=r"^there are no test records"):
        build(np.zeros((2, 2)), labels, test=RawRecords(np.zeros((0, 2)), labels[:0]))


def test_labels_must_be_classes() -> None:
    with pytest.raises(InputError, match=r"^the label of training record 2 is 2: it must be within 0\.\.1$"):
        build(np.zeros((2, 2)), np.array([0, 2]))
    with pytest.raises(InputError, match=r"^the label of training record 1 is -1: "):
        build(np.zeros((2, 2)), np.array([-1, 0]))
    with pytest.raises(InputError, match=r"^the training labels are float64: they must be whole numbers$"):
        build(np.zeros((2, 2)), np.array([0.0, 1.0]))
    with pytest.raises(InputError, match=r"^the label of training record 2 is nan: it must be within 0\.\.5$"):
        build(np.zeros((2, 2)), np.array([0.0, np.nan]), target=Range(0, 5))


def test_features_need_names_of_their_own() -> None:
    with pytest.raises(InputError, match=r"^two features are named 'u': every feature needs a different name$"):
        build(np.zeros((2, 2)), np.zeros(2, dtype=int), features=("u", "u"))
    with pytest.raises(InputError, match=r"^two features are named 'intercept'"):
        build(np.zeros((2, 2)), np.zeros(2, dtype=int), features=("u", "intercept"), intercept=True)
