"""Helpers for the tests of the data layer."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

IDX_CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


COLUMNS = """
[columns.age]
kind = "numeric"
bounds = [0, 100]
[columns.sex]
kind = "categorical"
categories = ["f", "m"]
"""
AGENT = '[agent]\ncolumn = "site"\n'


def schema_text(label: str, classes: list[str], **columns: list[Any]) -> str:
    """Return a schema with categorical columns or numeric columns, without rules for missing values."""
    text = f'[label]\ncolumn = "{label}"\nclasses = {json.dumps(classes)}\n'
    for name, known in columns.items():
        kind, key = ("categorical", "categories") if isinstance(known[0], str) else ("numeric", "bounds")
        text += f'[columns.{name}]\nkind = "{kind}"\n{key} = {json.dumps(known)}\n'
    return text


def real_data(*parts: str) -> Path:
    """Return a file or folder below TACITURN_DATA, or skip the test."""
    root = os.environ.get("TACITURN_DATA", "")
    if not root:
        pytest.skip("TACITURN_DATA is not set: it names the folder with the real data sets")
    path = Path(root, *parts)
    if not path.exists():
        pytest.skip(f"TACITURN_DATA has no {'/'.join(parts)}")
    return path


def idx_bytes(array: NDArray[Any]) -> bytes:
    """Return an array as the content of an IDX file."""
    head = bytes([0, 0, IDX_CODES[array.dtype.str[1:]], array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write(path: Path, text: str) -> Path:
    """Write a text file, and create its parent folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def stack_x(shards: tuple[Any, ...]) -> NDArray[Any]:
    """Concatenate all agents' features."""
    return np.concatenate([shard.x for shard in shards])
