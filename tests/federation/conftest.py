"""Settings for the tests of federations."""

from __future__ import annotations

from functools import cache

import pytest

from tacit.federation import books
from tacit.privacy.accountants.zcdp import zcdp_budget
from tacit.results import account

BUDGET = cache(zcdp_budget)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what takes time and is tested elsewhere: drawing reports, and one pure function over and over."""
    monkeypatch.setattr(account, "zcdp_budget", BUDGET)
    monkeypatch.setattr(books, "write_report", lambda folder: None)
