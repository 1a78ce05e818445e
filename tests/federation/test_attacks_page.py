"""The page of attacks names tests that exist, and as many attacks as there were."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "federation-attacks.md"
ROW = re.compile(r"^\| (\d+)( †)? \| [^|]+ \| [^|]+ \| `(tests/[a-z_/]+\.py)::(test_[a-z0-9_]+)` \|$", re.MULTILINE)


def test_every_attack_has_a_test_that_exists() -> None:
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert [int(number) for number, *_ in rows] == list(range(1, 158))
    assert sum(bool(mark) for _, mark, *_ in rows) == 24
    for _, _, path, name in rows:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{name}"


def test_the_groups_have_their_sizes() -> None:
    parts = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    assert [len(ROW.findall(part)) for part in parts] == [51, 15, 17, 8, 4, 20, 42]
