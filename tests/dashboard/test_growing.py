"""Metrics that grow while they are read: the columns are always those of the whole file."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taciturn.errors import CorruptFile
from taciturn.runs.metrics_log import METRICS, JsonlTail, MetricColumns


def line(run: int, t: int, value: float | None) -> bytes:
    row = {"run": run, "algorithm": "objp", "epsilon": "inf", "seed": run, "round": t, **dict.fromkeys(METRICS, value)}
    return json.dumps(row).encode() + b"\n"


def columns(path: Path) -> MetricColumns:
    made = MetricColumns(JsonlTail(path))
    made.refresh()
    return made


def plain(made: MetricColumns) -> Any:
    return {run: {name: list(values) for name, values in found.items()} for run, found in made.values.items()}


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(-1e9, 1e9)), max_size=30), st.lists(st.floats(0, 1), max_size=5))
def test_reading_in_any_pieces_gives_the_whole_file(values: list[tuple[int, float]], cuts: list[float]) -> None:
    content = b"".join(line(run, t, value) for t, (run, value) in enumerate(values, 1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.jsonl"
        path.touch()
        growing = columns(path)
        for cut in sorted(cuts):  # anywhere, also within a line
            path.write_bytes(content[: int(cut * len(content))])
            growing.refresh()
        path.write_bytes(content)
        growing.refresh()
        assert plain(growing) == plain(columns(path))
        assert sum(len(found["round"]) for found in growing.values.values()) == len(values)


@given(st.integers(0, 20), st.integers(0, 30))
def test_a_truncated_file_that_grew_again_is_read_from_its_beginning(kept: int, more: int) -> None:
    """A resumed run truncates its metrics to the last checkpoint; what follows may differ and may be longer."""
    first = [line(0, t, 1.0) for t in range(1, 21)]
    second = first[:kept] + [line(0, t, 2.0) for t in range(kept + 1, kept + 1 + more)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.jsonl"
        path.write_bytes(b"".join(first))
        growing = columns(path)
        path.write_bytes(b"".join(second))
        growing.refresh()
        assert plain(growing) == plain(columns(path))


def test_only_what_was_added_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line(0, 1, 1.0) + line(0, 2, 1.0))
    file = JsonlTail(path)
    assert [row["round"] for row in file.more()[0]] == [1, 2]
    assert file.more() == ([], False)
    with path.open("ab") as end:
        end.write(line(0, 3, 1.0) + b'{"run": 0, "rou')
    assert [row["round"] for row in file.more()[0]] == [3]
    path.write_bytes(line(0, 1, 5.0))
    assert [row["noise"] for row in file.more()[0]] == [5.0]


@pytest.mark.parametrize("bad", [b"{]\n", b"7\n", b'{"run": 1}, {"run": 2}\n', b"\xff\n"])
def test_a_damaged_line_is_named(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line(0, 1, 1.0) + line(0, 2, None) + bad + line(0, 3, 1.0))
    with pytest.raises(CorruptFile, match=r"line 3 of .* is damaged"):
        columns(path)
