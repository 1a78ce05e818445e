"""How a benchmark is to be run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Watch: TypeAlias = Callable[[str], None]
"""Told between two measurements what is done next."""


def unwatched(text: str) -> None:
    """Nobody looks."""


@dataclass(frozen=True)
class Options:
    """What a user may choose."""

    small: bool = False  # a size for trying it out: its numbers mean nothing
    repeats: int = 9  # turns of every candidate
    data_dir: str = ""  # where data sets lie; empty: TACIT_DATA, else tacit in the user's cache folder
    watch: Watch = unwatched
