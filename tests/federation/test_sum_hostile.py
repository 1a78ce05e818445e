"""Hostile messages of a secure sum: to a site from its coordinator, and to the coordinator from a site."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn.federation import messages as wire
from taciturn.federation.coordinator import FINISHED, site_events_path
from taciturn.federation.identity import Identity
from taciturn.federation.messages import Question, Refusal, RoundRequest, SumAnswer, SumRequest, SumRoundRequest
from taciturn.federation.run_folder import read_rounds
from taciturn.federation.sum_coordinator import SumCoordinator
from taciturn.federation.sum_terms import SPARE_EPOCHS
from taciturn.objectives.clipping import LARGEST_PARAMETER
from taciturn.runs.folder import read_lines
from taciturn.secure_sum import parameters
from taciturn.secure_sum.epoch import EpochRules
from taciturn.secure_sum.epoch_messages import (
    Announcement,
    BoxDelivery,
    Deal,
    Directory,
    EpochRequest,
    HeldShares,
    Roll,
    UnopenedBoxes,
    box_size,
)
from taciturn.secure_sum.masking import pack, unpack
from taciturn.secure_sum.shamir import PRIME, element_bytes, read_elements
from taciturn.secure_sum.slot_messages import AliveRequest, MaskedUpload, RevealedShares, ShareRequest, SumQuestion
from taciturn.secure_sum.sum_wire import MAGIC
from taciturn.types import Array
from tests.federation.helpers import EXPERIMENT, Local
from tests.federation.sum_adversary import NOTHING, Crew, SiteRefused, coalition_of, crew
from tests.federation.sum_helpers import (
    SUM_LIMIT,
    SUM_SITES,
    charged_slots,
    check_charges,
    check_sums,
    make_sums,
    step_of,
)

MOST = 1 << 20  # bytes of memory that a refusal may take beyond its message


def asked_at(made: Crew, sent: Array, t: int = 1) -> str:
    """Ask the first site for an upload at some numbers, and return why it refuses."""
    digest = sha256(wire.array_bytes(sent)).digest()
    question = SumQuestion(made.now.epoch, 0, t, made.now.sites, digest)
    with pytest.raises(SiteRefused) as refused:
        made.members[1].ask(SumRoundRequest(EXPERIMENT, question.to_bytes(), sent))
    return str(refused.value)


def test_no_model_makes_a_site_draw_noise_that_it_should_not(tmp_path: Path) -> None:
    with crew(tmp_path) as made:
        zero = made.model()
        rows = len(zero)
        for sent, reason in [
            *((np.full_like(zero, value), "finite values of at most") for value in (np.nan, np.inf, -np.inf, 1e300)),
            (np.full_like(zero, 2 * LARGEST_PARAMETER), "finite values of at most"),
            (zero.astype(np.float32), "precision float64"),
            (zero[1:], f"must have {rows} rows of numbers; it has {rows - 1}"),
            (np.concatenate([zero, zero]), f"must have {rows} rows of numbers; it has {2 * rows}"),
            (np.zeros((rows, 1, 7)), "w must have shape"),
            (np.zeros((rows, 2, 1)), "w must have shape"),
        ]:
            assert reason in asked_at(made, sent)
        wrong = SumQuestion(0, 0, 1, made.now.sites, bytes(32))
        with pytest.raises(SiteRefused, match="another model than the one that came with it"):
            made.members[1].ask(SumRoundRequest(EXPERIMENT, wrong.to_bytes(), zero))
        assert made.federation.released("s1") == []
        assert made.members[1].now.charged == (0, 0)
        made.members[1].upload(made.question(0), NOTHING, b"")  # it still answers an honest question
        assert charged_slots(made.federation, "s1", EXPERIMENT) == ["0/0"]


def test_no_statistics_make_a_site_draw_noise_that_it_should_not(tmp_path: Path) -> None:
    """An additive model's statistics come with the question, and are bound to the slot like the model."""
    study = {"algorithm": "additive", "features": "bins", "rounds": 5}
    federation = make_sums(tmp_path, {"study": study}, rows=4)
    with federation.agents() as agents:
        made = Crew(federation, agents)
        made.invite()
        made.begin_epoch(0)
        zero = made.model()
        some = np.full_like(zero, 1e-3)
        assert "lacks the statistics of the columns" in asked_at(made, np.concatenate([some, zero]), 3)
        assert "lacks the statistics of the columns" in asked_at(made, zero, 2)
        assert "rows of numbers" in asked_at(made, some, 3)
        assert "rows of numbers" in asked_at(made, np.concatenate([some, some]), 2)
        for value in (np.nan, np.inf, 1e300):
            assert "finite values of at most" in asked_at(made, np.concatenate([some, np.full_like(zero, value)]), 3)
        assert federation.released("s1") == []
        for slot, size in enumerate((1e-300, LARGEST_PARAMETER)):  # whatever is finite is answered, and charged
            sent = np.concatenate([some, np.full_like(zero, size)])
            mine = SumQuestion(0, slot, 3, made.now.sites, sha256(wire.array_bytes(sent)).digest())
            made.members[1].ask(SumRoundRequest(EXPERIMENT, mine.to_bytes(), sent))
        other = np.concatenate([some, some])
        theirs = replace(mine, w=sha256(wire.array_bytes(other)).digest())
        with pytest.raises(SiteRefused, match="used for another question"):
            made.members[1].ask(SumRoundRequest(EXPERIMENT, theirs.to_bytes(), other))
        assert charged_slots(federation, "s1", EXPERIMENT) == ["0/0", "0/1"]


def test_slots_far_ahead_and_epochs_without_end_burn_keys_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parameters, "EPOCH_SLOTS", 3)
    with crew(tmp_path, begun=False) as made:
        made.invite()
        most = made.study.parameters.charges
        for epoch in range(most):
            made.begin_epoch(epoch, 3, (1, 2, 3, 4))
            made.members[1].upload(made.question(2), NOTHING, b"")
            with pytest.raises(SiteRefused, match="slot 1 has ended here: slot 2 has begun"):
                made.members[1].upload(made.question(1), NOTHING, b"")
        made.begin_epoch(most, 3, (1, 2, 3, 4))
        with pytest.raises(SiteRefused, match="made 7 uploads in this study; the plan pays for 4"):
            made.members[1].upload(made.question(0), NOTHING, b"")
        ask, journal = made.members[1].step, made.federation.site("s1").state / "journal.sqlite"
        size = journal.stat().st_size
        for epoch in range(most + 1, most + SPARE_EPOCHS):
            ask(wire.ANNOUNCE, EpochRequest(epoch, 3).to_bytes())
        with pytest.raises(
            SiteRefused, match=f"made keys for {most + SPARE_EPOCHS} epochs of this study; that is the limit"
        ):
            ask(wire.ANNOUNCE, EpochRequest(1000, 3).to_bytes())
        assert journal.stat().st_size < size + 32768  # a line of each announcement, and the keys of the last
        for epoch, slots, reason in ((3, 3, "epoch 3 is not new"), (2000, 4, "an epoch of 4 slots is too long")):
            with pytest.raises(SiteRefused, match=f"{reason}|that is the limit"):
                ask(wire.ANNOUNCE, EpochRequest(epoch, slots).to_bytes())


def test_numbers_of_epochs_and_slots_at_their_limits(tmp_path: Path) -> None:
    with crew(tmp_path, begun=False) as made:
        made.invite()
        ask = made.members[1].step
        for epoch, slots, reason in (
            (0, 1000, "an epoch of 1000 slots is too long: one of this study has 7"),
            (0, 0, "cannot have 0 slots"),
            (2**31, 1, "wrong type"),
        ):
            with pytest.raises(SiteRefused, match=reason):
                ask(wire.ANNOUNCE, EpochRequest(epoch, slots).to_bytes())
        ask(wire.ANNOUNCE, EpochRequest(2**31 - 1, 1).to_bytes())
        with pytest.raises(SiteRefused, match="epoch 5 is not new: this site has announced epoch 2147483647"):
            ask(wire.ANNOUNCE, EpochRequest(5, 1).to_bytes())


def honest_messages(made: Crew) -> dict[str, bytes]:
    """Return a valid message of every step, of an epoch and a slot that the sites are in."""
    bad, question = coalition_of(made, 6), made.question(0)
    bad.upload((1, 2, 3, 4), question, NOTHING)
    alive = (1, 2, 3, 4)
    receipts = b"".join(bad.receipts[site, bad.context(site, question)] for site in alive)
    signed = bad.agree((2, 3, 4), question, alive)
    signers = tuple(sorted(signed))
    share = ShareRequest(question, alive, signers, b"".join(signed[site] for site in signers))
    boxes = BoxDelivery(1, 0, 4, (2, 3, 4, 5, 6), bytes(5 * box_size(4)))
    return {
        wire.ANNOUNCE: EpochRequest(1, 4).to_bytes(),
        wire.DEAL: made.now.to_bytes(),
        wire.KEEP: boxes.to_bytes(),
        wire.BEGIN: Roll(0, made.now.sites, bytes(6 * 64)).to_bytes(),
        wire.AGREE: AliveRequest(question, alive, receipts).to_bytes(),
        wire.REVEAL: share.to_bytes(),
    }


def hostile(valid: bytes, rng: random.Random) -> list[bytes]:
    """Return wrong messages made from a valid one: sizes, counts, deep JSON, flipped bytes."""
    start = len(MAGIC) + 4
    size = int.from_bytes(valid[len(MAGIC) : start], "big")
    header, body = json.loads(valid[start : start + size]), valid[start + size :]

    def joined(text: str, rest: bytes = body) -> bytes:
        return MAGIC + len(text).to_bytes(4, "big") + text.encode() + rest

    def dumped(changes: dict[str, Any]) -> bytes:
        return joined(json.dumps(header | changes, separators=(",", ":"), sort_keys=True))

    found = [
        b"",
        valid[:-1],
        valid + b"\0",
        MAGIC + b"\xff\xff\xff\xff" + valid[start:],
        joined("[" * 60_000),
        joined("{" * 9),
    ]
    found += [joined('{"kind":' + "9" * 5000 + "}"), joined('{"a":1e999}'), dumped({"parts": [2**31 - 1] * 3})]
    found += [
        dumped({name: value}) for name in header for value in (-1, 2**31, 1e9, None, [], [0] * 1001, "x" * 5000, True)
    ]
    found += [dumped({"parts": [0] * 1000}), dumped({"kind": "sum-shares"}), dumped({"more": 1})]
    for _ in range(30):
        raw = bytearray(valid)
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        found.append(bytes(raw))
    return found


def test_hostile_bytes_in_every_step_are_refused_in_one_sentence(tmp_path: Path) -> None:
    """Refused: nothing is revealed, signed, dealt or charged, memory stays bounded, and the site continues."""
    rng = random.Random(0)
    with crew(tmp_path) as made:
        messages, victim = honest_messages(made), made.members[5]
        before, charged = victim.now, victim.now.charged
        biggest = max(map(len, messages.values()))
        victim.agent.answer(wire.encode(SumRequest(EXPERIMENT, "nothing", b"")))
        tracemalloc.start()
        try:
            for step, valid in messages.items():
                for data in hostile(valid, rng):
                    tracemalloc.reset_peak()
                    base, _ = tracemalloc.get_traced_memory()
                    reply = victim.agent.answer(wire.encode(SumRequest(EXPERIMENT, step, data)))
                    _, peak = tracemalloc.get_traced_memory()
                    assert peak - base < 8 * biggest + MOST
                    found = wire.decode_reply(reply, SUM_LIMIT)
                    if isinstance(found, SumAnswer):  # a flipped bit in an announcement's number, for instance
                        assert step in (wire.ANNOUNCE, wire.BEGIN), (step, data)
                        continue
                    assert isinstance(found, Refusal) and len(found.reason) < 400 and "\n" not in found.reason
                    assert "internal error" not in found.reason, data
        finally:
            tracemalloc.stop()
        assert victim.now == before and victim.now.charged == charged
        assert made.federation.released("s5") == []


def test_a_huge_directory_is_refused_before_its_keys_are_looked_at(tmp_path: Path) -> None:
    with crew(tmp_path, begun=False) as made:
        made.invite()
        ask, slots = made.members[1].step, 7
        ask(wire.ANNOUNCE, EpochRequest(0, slots).to_bytes())
        sites = tuple(range(1, 1001))
        entry = bytes(32 + 64 * slots + 64)
        huge = Directory(0, slots, sites, entry * len(sites)).to_bytes()
        with pytest.raises(SiteRefused, match=r"a message has \d+ bytes; the limit is \d+"):
            ask(wire.DEAL, huge)
        short = Directory(0, 1, sites[:200], bytes(32 + 64 + 64) * 200).to_bytes()
        with pytest.raises(SiteRefused, match=r"lacks this site or has sites that are not in the terms|the limit is"):
            ask(wire.DEAL, short)


def test_messages_of_other_trust_models_and_unknown_steps(tmp_path: Path) -> None:
    with crew(tmp_path) as made:
        victim, zero = made.members[1], made.model()
        for message, reason in (
            (
                RoundRequest(EXPERIMENT, 1, {"s1": 0}, zero),
                "this study has trust secure-sum; the request belongs to another",
            ),
            (
                SumRequest(EXPERIMENT, "upload", made.question(0).to_bytes()),
                "no step 'upload' of a secure sum; there are announce",
            ),
            (SumRequest(EXPERIMENT, "x" * 4000, b""), "no step 'xxxxxxxxxxxxxxxxxxx"),
        ):
            with pytest.raises(SiteRefused, match=reason):
                victim.ask(message)


# ---- what a site may send to the coordinator


Forge = Callable[[str, Question, bytes], bytes]


def forging(step: str, forge: Callable[[str, bytes], bytes]) -> Forge:
    """Let the third site replace the protocol's message in its answers of one step."""

    def change(asked: str, message: Question, data: bytes) -> bytes:
        reply = wire.decode_reply(data, SUM_LIMIT)
        if asked != "s3" or step_of(message) != step or not isinstance(reply, SumAnswer):
            return data
        return wire.encode(reply._replace(data=forge(asked, reply.data)))

    return change


FORGERIES: dict[str, tuple[str, Callable[[str, bytes], bytes]]] = {
    "no announcement": (wire.ANNOUNCE, lambda site, data: b"junk"),
    "announcement of another epoch": (
        wire.ANNOUNCE,
        lambda site, data: replace(Announcement.from_bytes(data), epoch=77).to_bytes(),
    ),
    "unsigned announcement": (
        wire.ANNOUNCE,
        lambda site, data: replace(Announcement.from_bytes(data), signature=bytes(64)).to_bytes(),
    ),
    "boxes for nobody": (wire.DEAL, lambda site, data: b""),
    "boxes of another epoch": (
        wire.DEAL,
        lambda site, data: replace(Deal.from_bytes(data), epoch=77).to_bytes(),
    ),
    "boxes that nobody signed": (
        wire.DEAL,
        lambda site, data: replace(Deal.from_bytes(data), boxes=bytes(len(Deal.from_bytes(data).boxes))).to_bytes(),
    ),
    "a complaint about everybody": (wire.KEEP, lambda site, data: UnopenedBoxes(3, 0, (1, 2, 4, 5, 6, 7)).to_bytes()),
    "another signature": (
        wire.KEEP,
        lambda site, data: replace(HeldShares.from_bytes(data), signature=bytes(64)).to_bytes(),
    ),
    "no upload": (wire.UPLOAD, lambda site, data: b"\xff" * 100_000),
    "short upload": (
        wire.UPLOAD,
        lambda site, data: replace(MaskedUpload.from_bytes(data), packed=b"12345").to_bytes(),
    ),
    "unsigned upload": (
        wire.UPLOAD,
        lambda site, data: replace(MaskedUpload.from_bytes(data), receipt=bytes(64)).to_bytes(),
    ),
    "no shares": (wire.REVEAL, lambda site, data: b""),
    "too many shares": (
        wire.REVEAL,
        lambda site, data: replace(RevealedShares.from_bytes(data), shares=bytes(32 * 900)).to_bytes(),
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_one_site_that_sends_invalid_messages_is_left_out_and_the_others_continue(tmp_path: Path, name: str) -> None:
    """Seven sites, so that six can open a sum without the seventh."""
    step, forge = FORGERIES[name]
    names = (*SUM_SITES, "s6", "s7")
    federation = make_sums(tmp_path, {"study": {"missing": 2, "rounds": 3}}, names=names, rows=4)
    with federation.agents() as agents:
        exchange, study = Local(agents, forge=forging(step, forge)), federation.summing()
        outcome = ""
        for _ in range(5):
            outcome = study.run(exchange)
            if outcome == FINISHED:
                break
    assert outcome == FINISHED
    check_sums(federation, study)
    check_charges(federation, study, exchange)
    rejected = [line for line in read_lines(site_events_path(study.folder)) if line["event"] == "rejected"]
    assert rejected and {line["site"] for line in rejected} == {"s3"}
    assert study.attempts == 3 and study.epoch.number <= 3


def test_a_site_with_keys_of_small_order_is_left_out_and_the_others_continue(tmp_path: Path) -> None:
    """The server would otherwise show the keys to honest sites, which refuse them."""
    federation = make_sums(tmp_path, {"study": {"rounds": 2}}, rows=4)

    def small(site: str, data: bytes) -> bytes:
        one = Announcement.from_bytes(data)
        bad = replace(one, keys=bytes(32) + one.keys[32:])
        return replace(bad, signature=signer.sign(bad.statement(study.sums))).to_bytes()

    with federation.agents() as agents:
        exchange, study = Local(agents, forge=forging(wire.ANNOUNCE, small)), federation.summing()
        signer = Identity.open(federation.site("s3").identity)
        assert study.run(exchange) == FINISHED
    check_sums(federation, study)
    assert {line.get("site") for line in noted(study, "rejected", "refused")} == {"s3"}
    assert [line.missing for line in read_rounds(study.folder)] == [["s3"]] * 2 and study.epoch.number == 0


def noted(study: SumCoordinator, *kinds: str) -> list[dict[str, Any]]:
    return [line for line in read_lines(site_events_path(study.folder)) if line["event"] in kinds]


def spoiled_for(root: Path, receivers: tuple[int, ...]) -> SumCoordinator:
    """Run a study in which site 3 deals some sites what is not in the field."""

    class Spoiling(EpochRules):
        def _box(self, directory: Directory, receiver: int, plain: bytes) -> bytes:
            return super()._box(directory, receiver, b"\xff" * len(plain) if receiver in receivers else plain)

    federation = make_sums(root, {"study": {"rounds": 3}}, rows=4)
    with federation.agents() as agents:
        exchange, study = Local(agents), federation.summing()

        def spoil(site: str, message: Question) -> str:
            session = agents["s3"]._session
            if step_of(message) == wire.DEAL and session is not None:
                rules = session.epoch_rules  # type: ignore[union-attr]
                session.epoch_rules = Spoiling(rules.study, rules.site, rules.signer, rules.verified)  # type: ignore[union-attr]
            if step_of(message) == wire.UPLOAD:
                exchange.since[site] += 1  # to connect again does not help who is left out
            return ""

        exchange.fault = spoil
        assert study.run(exchange) == FINISHED
    check_sums(federation, study)
    check_charges(federation, study, exchange)
    return study


def test_a_site_whose_boxes_do_not_open_at_one_other_is_named_by_it(tmp_path: Path) -> None:
    """The coordinator cannot tell who is at fault, so its operator can leave the dealer out."""
    study = spoiled_for(tmp_path, (1,))
    (line,) = noted(study, "refused")
    assert line["site"] == "s1"
    assert line["reason"] == "the box of site 3 does not open or does not hold field elements"
    assert all(line.missing == ["s1"] for line in read_rounds(study.folder))


def test_a_dealer_whose_boxes_do_not_open_at_more_than_c_sites_is_left_out_and_they_are_not(tmp_path: Path) -> None:
    study = spoiled_for(tmp_path, (1, 2))
    assert noted(study, "refused") == []
    (line,) = noted(study, "rejected")
    assert line["site"] == "s3"
    assert line["reason"] == "its boxes, or what it says about boxes, do not agree with s1, s2"
    assert [line.missing for line in read_rounds(study.folder)] == [["s3"]] * 3 and study.epoch.number == 1


def test_a_site_that_spoils_every_sum_ends_the_study_with_the_model_it_has(tmp_path: Path) -> None:
    """A masked upload cannot be checked: the sum is not plausible, its slot is lost, and nothing is learned from it."""
    federation = make_sums(tmp_path, rows=4)

    def spoiled(site: str, data: bytes) -> bytes:
        upload, width = MaskedUpload.from_bytes(data), study.sums.parameters.width
        far = unpack(upload.packed, width) + np.uint64(2 ** (width - 1))
        return replace(upload, packed=pack(far, width)).to_bytes()

    def late(site: str, message: Question, data: bytes) -> bytes:
        return forging(wire.UPLOAD, spoiled)(site, message, data) if study.state.round >= 2 else data

    with federation.agents() as agents:
        exchange, study = Local(agents, forge=late), federation.summing()
        while study.run(exchange) != FINISHED:
            pass
    assert study.state.round == 2 and study.attempts == 7
    check_sums(federation, study)
    check_charges(federation, study, exchange)
    lost = [line for line in read_lines(site_events_path(study.folder)) if line["event"] == "slot lost"]
    assert len(lost) == 5 and all("honest sites cannot exceed" in line["reason"] for line in lost)


def test_wrong_shares_are_left_out_where_others_are_there(tmp_path: Path) -> None:
    """A helper that lies: another one takes its place, and the sum is the same."""
    names = (*SUM_SITES, "s6", "s7")
    federation = make_sums(tmp_path, {"study": {"missing": 2, "rounds": 3}}, names=names, rows=4)

    def wrong(site: str, data: bytes) -> bytes:
        message = RevealedShares.from_bytes(data)
        return replace(message, shares=bytes([message.shares[0] ^ 1]) + message.shares[1:]).to_bytes()

    with federation.agents() as agents:
        exchange, study = Local(agents, forge=forging(wire.REVEAL, wrong)), federation.summing()
        while study.run(exchange) != FINISHED:
            pass
    check_sums(federation, study)
    assert study.attempts == 3
    found = [(line["site"], line["round"], line["dealers"]) for line in noted(study, "wrong shares")]
    assert found == [("s3", t, ["s1"]) for t in (1, 2, 3)]


def test_two_wrong_helpers_are_found_with_the_shares_of_those_that_were_not_asked_yet(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nine sites, two of which may collude: tau is 6, so eight are asked at first, and the ninth if they disagree."""
    names = tuple(f"s{n}" for n in range(1, 10))
    federation = make_sums(tmp_path, {"study": {"missing": 2, "colluders": 2, "rounds": 2}}, names=names, rows=4)

    def lying(site: str, message: Question, data: bytes) -> bytes:
        reply = wire.decode_reply(data, SUM_LIMIT)
        if step_of(message) != wire.REVEAL or site not in ("s2", "s4") or not isinstance(reply, SumAnswer):
            return data
        shares = RevealedShares.from_bytes(reply.data)
        moved = [(value + int(site[1:])) % PRIME for value in read_elements(shares.shares)]
        return wire.encode(reply._replace(data=replace(shares, shares=b"".join(map(element_bytes, moved))).to_bytes()))

    with federation.agents() as agents:
        exchange, study = Local(agents, forge=lying), federation.summing()
        assert study.run(exchange) == FINISHED
    check_sums(federation, study)
    assert study.attempts == 2
    found = [(line["site"], line["round"]) for line in noted(study, "wrong shares")]
    assert found == [("s2", 1), ("s4", 1), ("s2", 2)]  # then they are asked last: seven are left, and eight are asked
    assert "the shares that s4 sent do not agree with those of the others, for the secrets of s1, s2" in caplog.text
