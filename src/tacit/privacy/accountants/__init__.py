"""Accountants: valid bounds on what a list of events adds up to, one file each; the tightest is taken.

All of them read the sensitivities of the events, where the adjacency already is: dp-accounting is therefore always
asked for its add-or-remove relation, whose factor is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tacit.privacy.events import Event
from tacit.registry import Registry

Counts: TypeAlias = Mapping[Event, int]
"""How often each event happened."""

Accountant: TypeAlias = Callable[[Counts, float], float | None]
"""(events, delta) -> epsilon, or None where the accountant knows nothing of an event."""

ACCOUNTANTS: Registry[Accountant] = Registry("accountant", __name__)
