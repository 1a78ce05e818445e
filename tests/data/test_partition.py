from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taciturn.data.dataset_source import DataOptions
from taciturn.data.partition import Index, dirichlet, in_order, partition_by_name, partition_records, shuffled
from taciturn.errors import InputError
from taciturn.types import Classes, Range

SIZES = st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))
SEEDS = st.integers(0, 2**32 - 1)


def assert_partition(blocks: list[Index], n: int, agents: int) -> None:
    assert len(blocks) == agents
    assert all(len(block) > 0 for block in blocks)
    assert sorted(np.concatenate(blocks).tolist()) == list(range(n))


@given(SIZES)
def test_in_order_is_a_partition_in_file_order(sizes: tuple[int, int]) -> None:
    blocks = in_order(*sizes)
    assert_partition(blocks, *sizes)
    assert np.concatenate(blocks).tolist() == list(range(sizes[0]))
    assert max(map(len, blocks)) - min(map(len, blocks)) <= 1


@given(SIZES, SEEDS)
def test_shuffled_is_a_partition_that_its_seed_fixes(sizes: tuple[int, int], seed: int) -> None:
    blocks = shuffled(*sizes, seed)
    assert_partition(blocks, *sizes)
    assert max(map(len, blocks)) - min(map(len, blocks)) <= 1
    assert all(np.array_equal(a, b) for a, b in zip(blocks, shuffled(*sizes, seed), strict=True))


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=40, max_size=80), st.integers(1, 4), st.floats(0.3, 50), SEEDS)
def test_dirichlet_is_a_partition_that_its_seed_fixes(values: list[int], agents: int, alpha: float, seed: int) -> None:
    labels = np.array(values)
    blocks = dirichlet(labels, agents, alpha, seed)
    assert_partition(blocks, len(values), agents)
    assert all(np.array_equal(a, b) for a, b in zip(blocks, dirichlet(labels, agents, alpha, seed), strict=True))


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=2), min_size=1, max_size=30))
def test_by_column_gives_each_value_its_records(values: list[str]) -> None:
    names = list(dict.fromkeys(values))
    agents = partition_by_name(names, np.array([names.index(value) for value in values]))
    assert list(agents.names) == sorted(set(values))
    assert_partition(agents.records, len(values), len(agents.names))
    for name, block in zip(agents.names, agents.records, strict=True):
        assert block.tolist() == [i for i, value in enumerate(values) if value == name]


def test_seeds_make_a_difference() -> None:
    labels = np.arange(100) % 5
    assert not np.array_equal(shuffled(100, 2, 0)[0], shuffled(100, 2, 1)[0])
    assert not np.array_equal(dirichlet(labels, 2, 1.0, 0)[0], dirichlet(labels, 2, 1.0, 1)[0])


def test_a_small_alpha_concentrates_the_classes() -> None:
    labels = np.repeat(np.arange(10), 1000)

    def largest_share(alpha: float) -> float:
        blocks = dirichlet(labels, 5, alpha, 0)
        counts = np.array([np.bincount(labels[block], minlength=10) for block in blocks])  # [P, K]
        return float((counts.max(axis=0) / 1000).mean())

    assert largest_share(0.05) > 0.8
    assert largest_share(1000.0) < 0.25


def test_the_papers_partition_is_ten_blocks_of_6000() -> None:
    blocks = in_order(60000, 10)
    assert [len(block) for block in blocks] == [6000] * 10
    assert blocks[3][0] == 18000


@pytest.mark.parametrize("agents", [0, -1, 6])
def test_the_number_of_agents_must_fit_the_records(agents: int) -> None:
    for deal in (in_order, lambda n, p: shuffled(n, p, 0)):
        with pytest.raises(InputError, match=rf"^agents is {agents}: it must be at least 1 and at most the number"):
            deal(5, agents)
    with pytest.raises(InputError, match=rf"agents is {agents}: "):
        dirichlet(np.zeros(5), agents, 1.0, 0)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_alpha_must_be_positive(alpha: float) -> None:
    with pytest.raises(InputError, match=rf"^dirichlet-alpha is {alpha}: it must be a number above 0$"):
        dirichlet(np.zeros(5), 2, alpha, 0)


def test_dirichlet_gives_up_with_advice() -> None:
    with pytest.raises(InputError, match=r"left one of 5 agents without a record: use fewer agents or a larger"):
        dirichlet(np.zeros(5), 5, 0.001, 0)


@pytest.mark.parametrize("name", ["in-order", "shuffled", "dirichlet"])
def test_split_names_the_agents(name: str) -> None:
    agents = partition_records(DataOptions(agents=3, partition=name), np.arange(30) % 2, Classes(("a", "b")))
    assert agents.names == ("agent-1", "agent-2", "agent-3")
    assert_partition(agents.records, 30, 3)


def test_split_refuses_what_it_cannot_do() -> None:
    labels = np.arange(4)
    with pytest.raises(InputError, match=r"^no partition 'dirichet' \(did you mean 'dirichlet'\?\): there are column"):
        partition_records(DataOptions(partition="dirichet"), labels, Classes(("a",)))
    with pytest.raises(InputError, match=r"^partition 'column' needs a column that names each record's agent"):
        partition_records(DataOptions(partition="column"), labels, Classes(("a",)))
    with pytest.raises(InputError, match=r"^partition 'dirichlet' needs classes, but the label is a number"):
        partition_records(DataOptions(partition="dirichlet", agents=2), labels, Range(0, 5))
