"""The noise of a secure sum is private at all of its sites, or at none: each relies on the others' shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from taciturn.errors import InputError
from taciturn.federation.agent import SiteAgent
from taciturn.federation.coordinator import FINISHED, site_events_path
from taciturn.federation.run_folder import read_rounds
from taciturn.federation.sum_coordinator import SumCoordinator
from taciturn.reporting.statements import headline
from taciturn.runs.folder import read_lines
from tests.federation.helpers import Local, participation
from tests.federation.sum_helpers import SUM_SITES, Gated, SumFederation, make_sums


def events(study: SumCoordinator, kind: str) -> list[dict[str, Any]]:
    return [line for line in read_lines(site_events_path(study.folder)) if line["event"] == kind]


@contextmanager
def sites_with(federation: SumFederation, seeds: Mapping[str, int | None]) -> Iterator[dict[str, SiteAgent]]:
    with ExitStack() as stack:
        yield {site: stack.enter_context(federation.agent(site, seeds[site])) for site in federation.sites}


def test_a_site_with_seeded_noise_is_in_no_sum_of_sites_that_need_its_share(tmp_path: Path) -> None:
    """Anyone can draw its noise again, so the others' reports would promise too much."""
    federation = make_sums(tmp_path, {"study": {"rounds": 2}}, rows=4)
    with sites_with(federation, dict.fromkeys(SUM_SITES) | {"s2": 7}) as agents:
        exchange, study = Gated(agents), federation.summing()
        assert study.run(exchange, lambda: study.state.round == 1) == "stopped"
        study = federation.summing()  # another process, to which the epoch says what the study's noise is
        assert study.source == ""
        assert study.run(exchange) == FINISHED
    assert participation(study.folder) == [["s1", "s3", "s4", "s5"]] * 2
    assert federation.run.read_ledger().non_private is None
    for line in events(study, "refused"):
        assert line["site"] == "s2" and "its noise is seeded" in line["reason"]


def test_seeded_and_hardened_sites_that_make_no_quorum_apart_are_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Local, "wait", lambda *_: True)
    federation = make_sums(tmp_path, {"study": {"rounds": 2}}, rows=4)
    with sites_with(federation, {"s1": 7, "s2": 7, "s3": None, "s4": None, "s5": None}) as agents:
        study = federation.summing()
        with pytest.raises(InputError, match=r"4 sites must take part, but s1: its noise is seeded.*s2: its noise is"):
            study.run(Local(agents))
    assert study.attempts == 0 and federation.run.read_ledger().non_private is None


def test_a_coordinator_that_lets_seeded_noise_in_gets_no_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sites do not rely on the coordinator: the source is in what every key and signature is bound to."""
    monkeypatch.setattr(SumCoordinator, "_of_one_source", lambda study, ready: list(ready))
    federation = make_sums(tmp_path, {"study": {"rounds": 2}}, rows=4)
    with sites_with(federation, dict.fromkeys(SUM_SITES) | {"s2": 7}) as agents:
        study = federation.summing()
        assert study.run(Local(agents)) == FINISHED
    assert [line.missing for line in read_rounds(study.folder)] == [["s2"]] * 2
    assert "another plan" in next(line["reason"] for line in events(study, "refused") if line["site"] == "s2")


def test_a_study_whose_sites_are_all_seeded_runs_and_protects_nobody(tmp_path: Path) -> None:
    federation = make_sums(tmp_path, {"study": {"rounds": 2}}, rows=4)
    with sites_with(federation, dict.fromkeys(SUM_SITES, 7) | {"s5": None}) as agents:
        late = agents.pop("s5")
        exchange, study = Gated(agents), federation.summing()
        assert study.run(exchange, lambda: study.state.round == 1) == "stopped"
        study = federation.summing()
        exchange.agents = agents | {"s5": late}  # with real noise, which the others' would not protect
        assert study.source == "seeded" and study.run(exchange) == FINISHED
    assert participation(study.folder) == [["s1", "s2", "s3", "s4"]] * 2
    assert "its noise is not seeded" in events(study, "refused")[0]["reason"]
    assert federation.run.read_ledger().non_private == "seeded"
    assert headline(federation.run.read_ledger().totals).startswith("No guarantee (non_private: seeded)")
