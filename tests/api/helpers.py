"""Frames of made-up patients, in which every cell that could identify somebody carries a mark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import taciturn

MARK = "SECRET"
NUMBER = 77123456.5  # a marked number
SCHEMA = (
    taciturn.Schema.from_frame(
        pd.DataFrame({"age": [0.5], "sex": ["f"], "visits": [1], "smoker": [True], "ill": ["no"]})
    )
    .declare(age=(0, 100), sex=["f", "m"], visits={"bounds": (0, 20), "missing": "low"}, smoker=[False, True])
    .declare(label="ill", ill=["no", "yes"])
    .build()
)
CERTIFIED: dict[str, Any] = {"total_records": 200, "rounds": 3, "seed": 1, "partition_key": 5}


def patients(rows: int = 120, seed: int = 0) -> pd.DataFrame:
    """Return a frame with numbers, whole numbers, texts, booleans, missing values, and columns nobody asked for."""
    draw = np.random.default_rng(seed)
    age, ill = draw.uniform(0, 110, rows), draw.random(rows)
    return pd.DataFrame(
        {
            "name": [f"{MARK}-{i}" for i in range(rows)],
            "age": np.where(draw.random(rows) < 0.1, np.nan, age),
            "sex": draw.choice(["f", "m", "", "d"], rows),
            "visits": draw.integers(0, 30, rows),
            "smoker": draw.random(rows) < 0.3,
            "ill": np.where(ill < age / 110, "yes", "no"),
        }
    )


def schema_file(folder: Path) -> Path:
    """Write the schema as a pandas CSV spells its cells."""
    text = SCHEMA.to_toml().replace('"false", "true"', '"False", "True"')
    (folder / "schema.toml").write_text(text)
    return folder / "schema.toml"


def folder_texts(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder by its relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
