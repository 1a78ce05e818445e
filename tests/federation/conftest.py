"""Settings for the tests of federations."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pytest

from tacit.federation import agreement, books
from tacit.privacy.accountants import zcdp
from tacit.results import account
from tacit.study.certified import Outline, outline_of

BUDGET, EPSILON = cache(zcdp.zcdp_budget), cache(zcdp.zcdp_epsilon)
OUTLINES: dict[str, Outline] = {}


def _outline(*given: Any) -> Outline:
    key = repr(given)
    if key not in OUTLINES:
        OUTLINES[key] = outline_of(*given)
    return OUTLINES[key]


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what takes time and is tested elsewhere: drawing reports, waiting for disks, pure functions again."""
    if request.node.get_closest_marker("federation"):
        return
    monkeypatch.setattr(account, "zcdp_budget", BUDGET)
    monkeypatch.setattr(account, "zcdp_epsilon", EPSILON)
    monkeypatch.setattr(zcdp, "zcdp_epsilon", EPSILON)
    monkeypatch.setattr(agreement, "outline_of", _outline)
    monkeypatch.setattr(books, "write_report", lambda folder: None)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no test takes the power away
