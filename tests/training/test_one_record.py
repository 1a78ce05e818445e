"""No record and no cell decides whether a run ends well, or what its public files have besides noisy numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taciturn
from tests.data.helpers import write

SCHEMA = """
[label]
column = "y"
classes = ["no", "yes"]
[unit]
column = "who"
max_records = 2
[agent]
column = "site"
names = ["a", "b"]
[columns.age]
kind = "numeric"
bounds = [0, 100]
[columns.sex]
kind = "categorical"
categories = ["f", "m", "other"]
"""
HEADER = "age,sex,who,site,y"
ROWS = [f"{10 * i % 97},{'fm'[i % 2]},p{i},{'ab'[i % 2]},{'no' if i % 3 else 'yes'}" for i in range(30)]
TABLES = {
    "no record": [],
    "one record": ROWS[:1],
    "one class": [row.replace("yes", "no") for row in ROWS],
    "one agent": [row.replace(",b,", ",a,") for row in ROWS],
    "one unit": [re.sub(r"p\d+", "p", row) for row in ROWS],
    "no known class": [row.rsplit(",", 1)[0] + ",perhaps" for row in ROWS],
    "one agent more": [*ROWS, "5,f,p,c,no"],
    "more than declared": 3 * ROWS,
    "cells of all kinds": [
        *ROWS,
        "\x00",
        '"',
        '""',
        ",,,,",
        "\ufeff5,f,p,a,no",
        "9" * 400 + ",\x85,\u2028,a,no",
        "5,f\r,",
    ],
    "bytes that are no text": [*ROWS, "\udcff,\udced\udca0\udc80,\udcff,a,no"],
}


def masked(value: Any) -> Any:
    """What is there, without numbers and digests."""
    if isinstance(value, dict):
        return {key: masked(one) for key, one in value.items()}
    if isinstance(value, list):
        return [masked(one) for one in value]
    if isinstance(value, str):
        return re.sub(r"-?\d[\d.,e+-]*", "0", re.sub(r"[0-9a-f]{16,}", "digest", value))
    return type(value).__name__


def public(folder: Path) -> dict[str, Any]:
    """All that a run's public files have, but for their numbers and pictures."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or {"local-only", "checkpoint"} & set(path.parts):
            continue
        name = str(path.relative_to(folder))
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                found[name] = {key: (arrays[key].shape, arrays[key].dtype.str) for key in arrays.files}
        elif path.suffix in (".json", ".jsonl"):
            found[name] = [masked(json.loads(line)) for line in _documents(path)]
        elif path.suffix in (".html", ".toml"):
            text = re.sub(r"<svg.*?</svg>", "svg", path.read_text(), flags=re.DOTALL)
            found[name] = masked(re.sub(r"[A-Za-z0-9+/=]{200,}", "picture", text.replace(str(folder.parent), "")))
        else:
            found[name] = path.suffix
    return found


def _documents(path: Path) -> list[str]:
    text = path.read_text()
    return text.splitlines() if path.suffix == ".jsonl" else [text]


def without_figures(draw: object, title: str, words: str) -> str:
    """Return a figure's title; its words and their order follow from the noisy model, as its lines do."""
    return title


def trained(folder: Path, rows: list[str], **given: Any) -> dict[str, Any]:
    write(folder / "s.toml", SCHEMA)
    (folder / "t.csv").write_bytes("\n".join([HEADER, *rows, ""]).encode(errors="surrogateescape"))
    asked = {"total_records": 30, "records_max": 15, "rounds": 2, "test_share": 0.25, "partition_key": 5} | given
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("taciturn.reporting.report._picture", without_figures)
        taciturn.run(data=folder / "t.csv", schema=folder / "s.toml", **asked, out=folder / "run")
    return public(folder / "run")


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run on an ordinary table publishes."""
    found = trained(tmp_path_factory.mktemp("usual"), ROWS)
    assert {"model.npz", "ledger.jsonl", "start.json", "summary.json", "report.html", "config.toml"} <= set(found)
    return found


@pytest.mark.parametrize("name", TABLES)
def test_every_table_gives_a_run_with_the_same_public_files(tmp_path: Path, usual: dict[str, Any], name: str) -> None:
    assert trained(tmp_path, TABLES[name]) == usual
