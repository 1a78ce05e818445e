"""Additive models over a network: what the counts cost a site that is away when they are sent."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from taciturn.algorithms.additive import Additive
from taciturn.federation.coordinator import FINISHED, LONGEST_BACKOFF
from taciturn.federation.messages import Question, RoundRequest
from taciturn.federation.run_folder import participation_totals
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


def lost_in(rounds: set[int], times: int = 10**9) -> Local:
    """An exchange in which west does not get the questions of some rounds, the first few times."""
    left = [times]

    def fault(site: str, message: Question) -> str:
        lost = isinstance(message, RoundRequest) and site == "west" and message.round in rounds and left[0] > 0
        left[0] -= lost
        return "question" if lost else keep_open(site, message)

    return Local({}, fault)


@pytest.mark.parametrize("rounds", [set(), {COUNTING}, {COUNTING + 2}], ids=["none", "the counts", "a gradient"])
def test_a_federation_is_the_study_in_one_process(additive: Federation, rounds: set[int]) -> None:
    """A site that misses a round of counts, or of gradients, continues."""
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


NUMBERS = """
[label]
column = "weight"
bounds = [0, 20000]
[columns.age]
kind = "numeric"
bounds = [0, 100]
"""


@pytest.mark.parametrize("missed", [set(), {1}], ids=["none", "the histogram"])
def test_sites_train_numbers_in_units_of_their_spread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missed: set[int]
) -> None:
    """The unit follows from the histogram of the first round, which a site may miss, and is sent with the counts."""
    monkeypatch.setattr(helpers, "SCHEMA", NUMBERS)
    found = make_federation(
        tmp_path, {"study": {"algorithm": "additive", "features": "bins"}}, {"algorithms": ["additive"]}
    )
    exchange = lost_in(missed)
    with found.agents() as agents:
        exchange.agents = agents
        made = found.coordinator()
        while made.run(exchange) != FINISHED:
            exchange.since["west"] += 1  # it connects again
    check_like_replay(found, made)
    check_covered(found, exchange, made.experiment)
    statistics, algorithm = made.state.server.statistics, made.agreement.algorithm
    assert isinstance(algorithm, Additive) and statistics is not None
    assert algorithm.label_scale(statistics) is not None


def test_the_round_with_the_counts_waits_for_every_site(additive: Federation) -> None:
    """Without the counts a site could not continue; a quorum is not enough in this round."""
    exchange, waited = lost_in({COUNTING + 1}, times=3), 0
    with additive.agents() as agents:
        exchange.agents = agents
        made = additive.coordinator()
        while made.run(exchange) != FINISHED:
            waited += made.state.round == COUNTING
            exchange.since["west"] += 1  # it connects again
    assert waited >= 3
    assert participation_totals(made.folder).answered == dict.fromkeys(("north", "south", "west"), ROUNDS)
    check_like_replay(additive, made)
    check_covered(additive, exchange, made.experiment)


def test_a_site_that_fails_for_days_is_asked_again(additive: Federation) -> None:
    with additive.agents():
        made = additive.coordinator()
        made.invited_at["west"], made.failures["west"] = 0.0, 10**6
        made._back_off("west")
    assert 0.0 < made.backoffs["west"].until - time.monotonic() <= LONGEST_BACKOFF
