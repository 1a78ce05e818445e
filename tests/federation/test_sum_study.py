"""Whole studies with a secure sum: they equal the simulation bit for bit, whatever is lost on the way."""

from __future__ import annotations

from pathlib import Path

from taciturn.federation.coordinator import FINISHED
from tests.federation.helpers import Local, conducted, participation
from tests.federation.sum_helpers import SUM_SITES, check_charges, check_sums, make_sums


def test_a_study_equals_its_simulation(tmp_path: Path) -> None:
    federation = make_sums(tmp_path)
    with federation.agents() as agents:
        exchange, study = Local(agents), federation.summing()
        assert conducted(study, exchange) == FINISHED
        assert participation(study.folder) == [list(SUM_SITES)] * 4
        check_sums(federation, study)
        check_charges(federation, study, exchange)
