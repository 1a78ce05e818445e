"""Additive models over a network: what the counts cost a site that is away when they are sent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from taciturn.federation.coordinator import FINISHED, site_events_path
from taciturn.federation.messages import Question, RoundRequest
from taciturn.federation.run_folder import participation_totals
from taciturn.runs.folder import read_lines
from tests.federation import helpers
from tests.federation.helpers import (
    SCHEMA,
    Federation,
    Local,
    check_covered,
    check_like_replay,
    conducted,
    keep_open,
    make_federation,
)

ROUNDS, COUNTING = 4, 1
CLASSES = "weights = { yes = 2 }\n[columns.age]"


@pytest.fixture
def additive(tmp_path: Path) -> Federation:
    return make_federation(
        tmp_path, {"study": {"algorithm": "additive", "features": "bins"}}, {"algorithms": ["additive"]}
    )


def lost_in(rounds: set[int]) -> Local:
    """An exchange in which west does not get the questions of some rounds."""

    def fault(site: str, message: Question) -> str:
        lost = isinstance(message, RoundRequest) and site == "west" and message.round in rounds
        return "question" if lost else keep_open(site, message)

    return Local({}, fault)


@pytest.mark.parametrize("rounds", [set(), {COUNTING}, {COUNTING + 2}], ids=["none", "the counts", "a gradient"])
def test_a_federation_is_the_study_in_one_process(additive: Federation, rounds: set[int]) -> None:
    """A site may miss a round of counts, or of gradients, and goes on."""
    exchange = lost_in(rounds)
    with additive.agents() as agents:
        exchange.agents = agents
        made = additive.coordinator()
        while made.run(exchange) != FINISHED:
            exchange.since["west"] += 1  # it connects again
    check_like_replay(additive, made)
    check_covered(additive, exchange, made.experiment)
    w = np.load(additive.run.path / "model.npz")["w"]
    assert np.isfinite(w).all() and len(w) == made.agreement.facts.features


def test_sites_train_with_the_weights_that_the_terms_declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The column of the weights, which is no feature, is read at the sites; nothing else is sent."""
    weighted = SCHEMA.replace("[columns.weight]", '[weight]\ncolumn = "weight"\nmax = 200\n[columns.weight]')
    monkeypatch.setattr(helpers, "SCHEMA", weighted.split("[columns.weight]")[0].replace("[columns.age]", CLASSES))
    found = make_federation(
        tmp_path, {"study": {"algorithm": "additive", "features": "bins"}}, {"algorithms": ["additive"]}
    )
    exchange = Local({}, keep_open)
    with found.agents() as agents:
        exchange.agents = agents
        made = found.coordinator()
        assert conducted(made, exchange) == FINISHED
    check_like_replay(found, made)
    check_covered(found, exchange, made.experiment)
    for shard in found.shards():
        assert shard.weights is not None and len(set(shard.weights.tolist())) > 5
        assert 0.0 < shard.weights.max() <= 160 / 200


def test_a_site_that_was_away_when_the_counts_were_sent_says_so(additive: Federation) -> None:
    """It refuses in words that the coordinator may read, spends nothing more, and the others finish."""
    exchange = lost_in({COUNTING + 1})

    def back(site: str, message: Question, data: bytes) -> bytes:
        if isinstance(message, RoundRequest) and message.round == COUNTING + 1:
            exchange.since["west"] += 1
        return data

    exchange.forge = back
    with additive.agents() as agents:
        exchange.agents = agents
        made = additive.coordinator()
        assert conducted(made, exchange) == FINISHED
    totals = participation_totals(made.folder)
    assert totals.rounds == ROUNDS and totals.answered == {"north": ROUNDS, "south": ROUNDS, "west": COUNTING}
    told = {line["reason"] for line in read_lines(site_events_path(made.folder)) if line["event"] == "refused"}
    (reason,) = told
    assert "round 2 was missed here, in which the columns' counts were sent" in reason
    assert [entry.first for entry in additive.released("west", made.experiment)] == [1]
