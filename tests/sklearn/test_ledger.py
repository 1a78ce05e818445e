"""Fits in the ledger over studies: started before noise is drawn, and tied to their records."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from taciturn.errors import InputError, LedgerWarning
from taciturn.privacy.budget import BudgetLedger, is_reservation_held
from tests.sklearn.helpers import classifier, ledger, problem

FIT = """
import sys
from tests.sklearn.helpers import classifier, problem
x, y, _ = problem(2000)
classifier(ledger=sys.argv[1], total_records=4000, rounds=20000).fit(x, y)
"""


def test_a_fit_is_started_in_the_ledger_before_its_noise(tmp_path: Path) -> None:
    x, y, _ = problem()
    account = ledger(tmp_path, 2.0)
    classifier(ledger=account.path).fit(x, y)
    kinds = [json.loads(line)["kind"] for line in account.path.read_text().splitlines()]
    assert kinds[1:] == ["reserve", "started", "settle"]
    assert not is_reservation_held(account.state().studies[0].reservation)


def test_a_killed_fit_keeps_its_whole_plan(tmp_path: Path) -> None:
    account = ledger(tmp_path, 2.0)
    process = subprocess.Popen([sys.executable, "-c", FIT, str(account.path)])
    while '"started"' not in account.path.read_text():
        assert process.poll() is None
        time.sleep(0.01)
    (study,) = account.state().studies
    assert is_reservation_held(study.reservation)
    process.kill()
    process.wait()
    assert not is_reservation_held(study.reservation)
    with pytest.raises(InputError, match="has started"):
        account.give_back(study.reservation)
    assert account.state().epsilon_used == pytest.approx(1.0, rel=1e-3)


def test_a_second_ledger_for_the_same_records_is_noticed(tmp_path: Path) -> None:
    x, y, _ = problem()
    first, second = ledger(tmp_path, 2.0), ledger(tmp_path, 2.0, "m")
    further = BudgetLedger.create(tmp_path / "n", "records", 2.0, 1e-6, further=True)
    classifier(0.5, ledger=first.path).fit(x, y)
    order = np.random.default_rng(0).permutation(len(x))
    with pytest.raises(InputError, match="already have a budget ledger, records"):
        classifier(0.5, ledger=second.path).fit(x[order], y[order])
    assert second.state().epsilon_used == 0.0
    with pytest.warns(LedgerWarning, match="is not charged to the ledger"):
        classifier(0.5).fit(x, y)
    classifier(0.5, ledger=further.path).fit(x, y)
    classifier(0.5, ledger=second.path).fit(x[1:], y[1:])  # one record fewer, and nobody notices
