"""Settings for the tests of federations."""

from __future__ import annotations

from functools import cache

import pytest

from tacit.federation import books
from tacit.privacy.accountants import zcdp
from tacit.results import account

BUDGET, EPSILON = cache(zcdp.zcdp_budget), cache(zcdp.zcdp_epsilon)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what takes time and is tested elsewhere: drawing reports, and pure functions over and over."""
    monkeypatch.setattr(account, "zcdp_budget", BUDGET)
    monkeypatch.setattr(account, "zcdp_epsilon", EPSILON)
    monkeypatch.setattr(zcdp, "zcdp_epsilon", EPSILON)
    monkeypatch.setattr(books, "write_report", lambda folder: None)
