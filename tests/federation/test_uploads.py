"""The server uses only valid uploads of this round by this site; it counts all others."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn.federation import messages as wire
from taciturn.federation.agent import SiteAgent
from taciturn.federation.coordinator import FINISHED, MAX_BAD_ANSWERS, WAITING, site_events_path
from taciturn.federation.messages import Answer, Closed, Invitation, Question, Ready, Refusal, Reply, RoundRequest
from taciturn.federation.run_folder import participation_totals
from taciturn.federation.upload_coordinator import UploadCoordinator
from taciturn.federation.validation import REASON_LIMIT, Rejected, read_answer, read_closed, read_ready
from taciturn.runs.folder import read_lines
from taciturn.secure_sum.sum_wire import MAGIC
from tests.federation.helpers import (
    EXPERIMENT,
    LIMIT,
    SITES,
    Federation,
    Local,
    check_covered,
    check_duals,
    check_like_replay,
    keep_open,
    make_federation,
    participation,
)

ZERO = np.zeros((3, 1, 2))
GOOD = Answer(EXPERIMENT, "west", 2, ZERO + 1.0)


def spoilt(value: float) -> Any:
    z = GOOD.z.copy()
    z[2, 0, 1] = value
    return wire.encode(GOOD._replace(z=z))


BAD: dict[str, tuple[Callable[[Answer], bytes], str]] = {
    "nan": (lambda a: wire.encode(a._replace(z=a.z * np.nan)), "not all finite"),
    "inf": (lambda a: wire.encode(a._replace(z=np.where(a.z == a.z[0, 0, 0], np.inf, a.z))), "not all finite"),
    "shape": (lambda a: wire.encode(a._replace(z=a.z[:2])), "its shape is (2, 1, 2)"),
    "turned": (lambda a: wire.encode(a._replace(z=a.z.reshape(2, 1, 3))), "its shape is (2, 1, 3)"),
    "dtype": (lambda a: wire.encode(a._replace(z=a.z.astype("float32"))), "its precision is float32"),
    "old round": (lambda a: wire.encode(a._replace(round=a.round - 1)), "was requested"),
    "future round": (lambda a: wire.encode(a._replace(round=a.round + 1)), "was requested"),
    "another site": (lambda a: wire.encode(a._replace(site="north")), "in the name of 'north'"),
    "another study": (lambda a: wire.encode(a._replace(experiment="f" * 32)), "another study"),
    "huge": (lambda a: wire.encode(a) + bytes(1 << 18), "the limit is"),
    "behind": (lambda a: wire.encode(a) + b"x", "do not fit an array"),
    "cut": (lambda a: wire.encode(a)[:-1], "do not fit an array"),
    "garbage": (lambda a: b"\x00\x01garbage", "not a Taciturn message"),
    "empty": (lambda a: b"", ""),
    "pickle": (lambda a: pickle.dumps(list(a[:3])), "not a Taciturn message"),
    "question": (lambda a: wire.encode(RoundRequest(a.experiment, a.round, {}, a.z)), "cannot be read"),
    "ready": (lambda a: wire.encode(Ready(a.experiment, a.site, "", 1)), "it is not an answer to a round"),
    "closed": (lambda a: wire.encode(Closed(a.experiment, a.site)), "it is not an answer to a round"),
}


def test_an_upload_is_read() -> None:
    found = read_answer(wire.encode(GOOD), "west", EXPERIMENT, 2, ZERO)
    assert isinstance(found, Answer) and found.z.tobytes() == GOOD.z.tobytes()
    no = Refusal("", "west", "not I")
    assert read_answer(wire.encode(no), "west", EXPERIMENT, 2, ZERO) == no


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_upload_is_rejected_with_a_reason(kind: str) -> None:
    spoil, said = BAD[kind]
    with pytest.raises(Rejected) as caught:
        read_answer(spoil(GOOD), "west", EXPERIMENT, 2, ZERO)
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_none_is_enough(value: float) -> None:
    with pytest.raises(Rejected, match="not all finite"):
        read_answer(spoilt(value), "west", EXPERIMENT, 2, ZERO)


def test_other_answers_are_read_as_strictly() -> None:
    ready, done = Ready(EXPERIMENT, "west", "", 1), Closed(EXPERIMENT, "west")
    assert read_ready(wire.encode(ready), "west", EXPERIMENT, LIMIT) == ready
    assert read_closed(wire.encode(done), "west", EXPERIMENT, LIMIT) == done
    for read, wrong in ((read_ready, done), (read_ready, GOOD), (read_closed, ready), (read_closed, GOOD)):
        with pytest.raises(Rejected, match="it is not an answer to"):
            read(wire.encode(wrong), "west", EXPERIMENT, LIMIT)
        for site, study in (("north", EXPERIMENT), ("west", "other")):
            with pytest.raises(Rejected):
                read(wire.encode(ready if read is read_ready else done), site, study, LIMIT)


def test_the_words_of_a_rejection_are_fit_for_a_terminal() -> None:
    with pytest.raises(Rejected) as caught:
        read_answer(wire.encode(GOOD._replace(site="\x1b[2J" + "x" * 4000)), "west", EXPERIMENT, 2, ZERO)
    assert "\x1b" not in str(caught.value) and len(str(caught.value)) < REASON_LIMIT + 100


def test_a_rejection_is_not_as_long_as_a_hostile_site_likes() -> None:
    header = b'{"kind":"answer","array":{"dtype":"%s","shape":[3,1,2]}}' % (b"x" * 50_000)
    data = MAGIC + len(header).to_bytes(4, "big") + header
    with pytest.raises(Rejected) as caught:
        read_answer(data, "west", EXPERIMENT, 2, ZERO)
    assert len(str(caught.value)) < REASON_LIMIT + 100


def forging(spoil: Callable[[Answer], bytes], when: Callable[[int], bool] = lambda t: True) -> Any:
    def forge(site: str, message: Question, data: bytes) -> bytes:
        found = wire.decode_reply(data, LIMIT)
        return spoil(found) if site == "west" and isinstance(found, Answer) and when(found.round) else data

    return forge


def asked(exchange: Local) -> list[tuple[str, ...]]:
    """Return the sites that were asked in each round."""
    return [sites for message, sites in exchange.asked if isinstance(message, RoundRequest)]


@pytest.mark.parametrize("kind", BAD)
def test_a_study_continues_without_what_is_rejected(
    federation: Federation, agents: dict[str, SiteAgent], kind: str
) -> None:
    """The model equals that of a study without the site bit for bit, and both duals agree."""
    study, exchange = federation.coordinator(), Local(agents, keep_open, forging(BAD[kind][0], lambda t: t % 2 == 0))
    assert study.run(exchange) == FINISHED
    assert participation(study.folder) == [list(SITES), ["north", "south"]] * 2
    check_like_replay(federation, study)
    check_duals(federation, study)
    check_covered(federation, exchange, study.experiment)
    rows = list(read_lines(study.folder.path / "rounds.jsonl"))
    assert [sorted(row["rejected"]) for row in rows] == [[], ["west"]] * 2
    assert BAD[kind][1] in rows[1]["rejected"]["west"] and rows[1]["missing"] == ["west"]
    assert participation_totals(study.folder).rejected == 2
    notes = [line for line in read_lines(site_events_path(study.folder)) if line["event"] == "rejected"]
    assert [(line["site"], line["round"]) for line in notes] == [("west", 2), ("west", 4)]


def test_a_site_that_keeps_sending_garbage_is_left_out(federation: Federation, agents: dict[str, SiteAgent]) -> None:
    study, exchange = federation.coordinator(), Local(agents, keep_open, forging(lambda answer: b"garbage"))
    assert study.run(exchange) == FINISHED
    assert asked(exchange) == [SITES] * MAX_BAD_ANSWERS + [("north", "south")] * (4 - MAX_BAD_ANSWERS)
    check_like_replay(federation, study)


def test_a_good_answer_makes_up_for_bad_ones(tmp_path: Path) -> None:
    federation = make_federation(tmp_path, {"study": {"rounds": 9}})
    with federation.agents() as agents:
        study = federation.coordinator()
        exchange = Local(agents, keep_open, forging(lambda answer: b"", lambda t: t % MAX_BAD_ANSWERS != 0))
        assert study.run(exchange) == FINISHED
    assert asked(exchange) == [SITES] * 9


def test_a_site_is_forgiven_when_the_sites_are_gathered_again(
    federation: Federation, agents: dict[str, SiteAgent]
) -> None:
    exchange = Local(agents, keep_open, forging(lambda answer: b"", lambda t: t == 1))
    study = UploadCoordinator(federation.agreement, federation.coordinator().study, federation.run, EXPERIMENT)
    study.bad_answers["west"] = MAX_BAD_ANSWERS - 1  # as another gathering left it
    assert study.run(exchange) == FINISHED
    assert asked(exchange) == [SITES] * 4


def test_nonsense_from_too_many_makes_the_study_wait(federation: Federation, agents: dict[str, SiteAgent]) -> None:
    def forge(site: str, message: Question, data: bytes) -> bytes:
        return b"garbage" if site != "north" and isinstance(message, RoundRequest) else data

    study, exchange = federation.coordinator(), Local(agents, keep_open, forge)
    assert study.run(exchange) == WAITING
    assert study.state.round == 0 and participation(study.folder) == []
    assert asked(exchange) == [SITES] * MAX_BAD_ANSWERS
    assert len({wire.encode(message) for message, _ in exchange.asked if isinstance(message, RoundRequest)}) == 1
    exchange.forge = lambda site, message, data: data
    assert study.run(exchange) == FINISHED
    check_like_replay(federation, study)
    check_covered(federation, exchange, study.experiment)


@pytest.mark.parametrize("kind", ["garbage", "refusal", "missing", "another", "not ready"])
def test_only_sites_that_are_ready_are_asked(federation: Federation, agents: dict[str, SiteAgent], kind: str) -> None:
    def forge(site: str, message: Question, data: bytes) -> bytes:
        if site != "south" or not isinstance(message, Invitation):
            return data
        said: dict[str, Reply] = {
            "refusal": Refusal(message.experiment, site, "\x1bno"),
            "another": Ready(message.experiment, "west", "", 1),
            "not ready": Closed(message.experiment, site),
        }
        return wire.encode(said[kind]) if kind in said else b"garbage"

    def fault(site: str, message: Question) -> str:
        away = kind == "missing" and site == "south" and isinstance(message, Invitation)
        return "answer" if away else keep_open(site, message)

    study, exchange = federation.coordinator(), Local(agents, fault, forge)
    assert study.run(exchange) == FINISHED
    assert asked(exchange) == [("north", "west")] * 4
    notes = [line for line in read_lines(site_events_path(study.folder)) if line.get("site") == "south"]
    assert [line["event"] for line in notes] == [{"missing": "missing", "refusal": "refused"}.get(kind, "rejected")]
    assert "\x1b" not in notes[0].get("reason", "")
    check_like_replay(federation, study)


def test_a_site_that_refuses_a_round_is_left_out_and_says_why(
    federation: Federation, agents: dict[str, SiteAgent]
) -> None:
    def forge(site: str, message: Question, data: bytes) -> bytes:
        refuses = site == "west" and isinstance(message, RoundRequest) and message.round == 2
        return wire.encode(Refusal(message.experiment, site, "out of paper")) if refuses else data

    study, exchange = federation.coordinator(), Local(agents, keep_open, forge)
    assert study.run(exchange) == FINISHED
    assert asked(exchange) == [SITES] * 2 + [("north", "south")] * 2
    assert list(read_lines(study.folder.path / "rounds.jsonl"))[1]["rejected"] == {"west": "out of paper"}
    check_duals(federation, study)
