"""Every message from the server or another site is hostile: sizes, types, repetition, replays."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taciturn.errors import PrivacyViolation
from taciturn.federation.messages import message_kind
from taciturn.secure_sum import opening as opening_module
from taciturn.secure_sum.epoch import (
    AnnouncedEpoch,
    BoxesUnopened,
    EpochRules,
    make_deliveries,
    make_directory,
    make_roll,
    read_announcement,
    read_deal,
    read_held,
)
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
from taciturn.secure_sum.opening import OpenedSum, WrongShares
from taciturn.secure_sum.shamir import PRIME, element_bytes, lagrange_weights
from taciturn.secure_sum.slot import SlotRecord, SlotRules, next_epoch
from taciturn.secure_sum.slot_messages import (
    AliveRequest,
    AliveSignature,
    MaskedUpload,
    RevealedShares,
    ShareRequest,
    SumQuestion,
    alive_statement,
)
from taciturn.secure_sum.sum_wire import MAGIC, SumMalformed, SumMessage, SumRefused
from tests.secure_sum.helpers import (
    W,
    deliveries_of,
    directory_of,
    group,
    identity,
    numbers_of,
    play,
    study_of,
)

QUESTION = SumQuestion(0, 1, 1, (1, 2, 3, 4), bytes(32))
MESSAGES: list[SumMessage] = [
    Announcement(1, 0, 2, bytes(32), bytes(128), bytes(64)),
    Directory(0, 1, (1, 2), bytes(2 * (32 + 64 + 64))),
    Deal(1, 0, 1, (2, 3), bytes(2 * 176)),
    BoxDelivery(1, 0, 1, (2, 3), bytes(2 * 176)),
    HeldShares(1, 0, bytes(64)),
    UnopenedBoxes(1, 0, (2, 4)),
    Roll(0, (1, 2), bytes(128)),
    QUESTION,
    MaskedUpload(1, 0, 1, bytes(20), bytes(64)),
    AliveRequest(QUESTION, (1, 2, 3), bytes(192)),
    AliveSignature(1, 0, 1, bytes(64)),
    ShareRequest(QUESTION, (1, 2, 3), (1, 2), bytes(128)),
    RevealedShares(1, 0, 1, bytes(128)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: one.KIND)
def test_a_message_is_read_as_it_was_written_and_in_no_other_form(message: SumMessage) -> None:
    kind, data = type(message), message.to_bytes()
    assert kind.from_bytes(data) == message
    assert message_kind(data) == message.KIND  # the federation's reader sees what it is
    for wrong in (b"", data[:-1], data + b"\0", data[1:], MAGIC + b"\xff" * 4 + data[13:], bytearray(data), None):
        with pytest.raises(SumMalformed):
            kind.from_bytes(wrong)  # type: ignore[arg-type]
    with pytest.raises(SumMalformed, match="the limit is"):
        kind.from_bytes(data, len(data) - 1)
    for other in MESSAGES:
        if type(other) is not kind:
            with pytest.raises(SumMalformed, match="not of the kind"):
                type(other).from_bytes(data)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: one.KIND)
@pytest.mark.parametrize("value", [True, 1.0, -1, 2**31, "1", None, [0], {}, float("nan"), [[1]], [1.0], [True, 2]])
def test_a_field_of_another_type_is_refused(message: SumMessage, value: Any) -> None:
    header, body = _parts(message.to_bytes())
    for name in header:
        if header[name] != value or type(header[name]) is not type(value):
            with pytest.raises(SumMalformed):
                type(message).from_bytes(_joined(header | {name: value}, body))
    with pytest.raises(SumMalformed):
        type(message).from_bytes(_joined(header | {"more": value}, body))


@given(st.sampled_from(MESSAGES), st.data())
def test_no_bytes_raise_anything_but_a_refusal(message: SumMessage, data: st.DataObject) -> None:
    raw = bytearray(message.to_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = type(message).from_bytes(bytes(raw))
    except SumMalformed:
        return
    assert read.to_bytes() == bytes(raw)


def test_a_second_spelling_of_a_header_is_refused() -> None:
    header, body = _parts(QUESTION.to_bytes())
    text = json.dumps(header, separators=(",", ":"), sort_keys=True)
    for other in (
        text.replace(":1,", ": 1,", 1),
        text[:-1] + ',"slot":1}',
        text.replace("slot", "sl\\u006ft"),
        "[" * 9999,
    ):
        with pytest.raises(SumMalformed):
            SumQuestion.from_bytes(MAGIC + len(other).to_bytes(4, "big") + other.encode() + body)


@pytest.mark.parametrize("roster", [(), (0, 1), (2, 1), (1, 1, 2), (1, 1001)])
def test_sites_must_increase(roster: tuple[int, ...]) -> None:
    with pytest.raises(SumMalformed, match="increasing order"):
        replace(QUESTION, roster=roster)
    with pytest.raises(SumMalformed, match="increasing order"):
        AliveRequest(QUESTION, roster, bytes(64 * len(roster)))


WRONG_QUESTIONS: list[tuple[Callable[[SumQuestion], SumQuestion], str]] = [
    (lambda one: replace(one, epoch=3), "about epoch 3; epoch 0 has begun"),
    (lambda one: replace(one, slot=2), "no slot 2: the epoch has 2"),
    (lambda one: replace(one, round=0), "no round 0"),
    (lambda one: replace(one, round=101), "no round 101: the study has 100"),
    (lambda one: replace(one, roster=(1, 2, 3, 4, 9)), "not in the cohort"),
    (lambda one: replace(one, roster=(1, 2, 3)), "a roster of 3 sites is too small: the quorum is 4"),
    (lambda one: replace(one, roster=(2, 3, 4, 5)), "this site is not on the roster"),
    (lambda one: replace(one, w=bytes(32)), "another model than the one that came with it"),
]


@pytest.mark.parametrize(("change", "reason"), WRONG_QUESTIONS)
def test_a_question_that_breaks_a_rule_is_refused_and_nothing_is_drawn(
    change: Callable[[SumQuestion], SumQuestion], reason: str
) -> None:
    made = group(study_of(5, 1, 4))
    member = made.members[1]

    def draw() -> Any:
        raise AssertionError("noise was drawn")

    with pytest.raises(SumRefused, match=reason):
        member.slots.upload(member.now, change(made.question(0)).to_bytes(), W, draw)


@pytest.mark.parametrize(
    "y",
    [
        np.zeros(4),
        np.zeros(5, np.int64),
        np.zeros((2, 2), np.int64),
        np.full(4, np.nan),
        [0, 0, 0, 0],
        np.zeros(4, np.int32),
    ],
)
def test_what_is_not_whole_numbers_is_not_sent(y: Any) -> None:
    made = group(study_of(5, 1, 4))
    with pytest.raises(SumRefused, match="whole numbers of 64 bits, 4 of them"):
        made.members[1].upload(made.question(0), y)


def test_opinions_that_break_a_rule_are_refused() -> None:
    made = group(study_of(5, 1, 4), slots=3)
    question, y = made.question(0), numbers_of(made)
    opening = made.opening(question)
    uploads = {site: opening.read_upload(site, made.members[site].upload(question, y[site])) for site in (1, 2, 3, 4)}
    request = AliveRequest.from_bytes(opening.alive_request(opening.add(uploads)))
    one, late = made.members[1], made.members[5]
    with pytest.raises(SumRefused, match="nobody is missing"):
        one.agree(AliveRequest(question, question.roster, bytes(5 * 64)).to_bytes())
    with pytest.raises(SumRefused, match="not on the roster"):
        one.agree(replace(request, question=made.question(0, (1, 2, 3, 4)), alive=(1, 2, 3, 5)).to_bytes())
    swapped = request.receipts[64:128] + request.receipts[:64] + request.receipts[128:]
    with pytest.raises(SumRefused, match="no receipt of site 1"):
        one.agree(replace(request, receipts=swapped).to_bytes())
    with pytest.raises(SumRefused, match="has not uploaded under this context"):  # its own upload is claimed
        late.agree(replace(request, alive=(1, 2, 3, 5)).to_bytes())
    with pytest.raises(SumRefused, match="has not uploaded under this context"):
        late.reveal(ShareRequest(question, question.roster, (), b"").to_bytes())
    smaller = made.question(0, (1, 2, 3, 4))  # a roster without it, of which everybody is said to be there
    with pytest.raises(SumRefused, match="has not uploaded under this context"):
        late.reveal(ShareRequest(smaller, smaller.roster, (), b"").to_bytes())
    signature = opening.read_signature(5, request.alive, late.agree(request.to_bytes()))
    with pytest.raises(SumRefused, match="agreed to a set of this slot without an upload"):
        late.upload(question, y[5])
    with pytest.raises(SumRefused, match="the signature of site 1 is not of this context"):
        one.reveal(ShareRequest(question, request.alive, (1,), signature).to_bytes())
    with pytest.raises(SumRefused, match="this set has 1 of the 4 signatures needed"):
        one.reveal(ShareRequest(question, request.alive, (5,), signature).to_bytes())


def test_signatures_of_sites_outside_the_cohort_do_not_count() -> None:
    made = group(study_of(6, 1, 4), cohort=(1, 2, 3, 4, 5))
    question, y = made.question(0), numbers_of(made)
    opening = made.opening(question)
    uploads = {site: opening.read_upload(site, made.members[site].upload(question, y[site])) for site in (1, 2, 3, 4)}
    masked = opening.add(uploads)
    request = opening.alive_request(masked)
    signed = {
        site: opening.read_signature(site, masked.alive, made.members[site].agree(request)) for site in (1, 2, 3, 4)
    }
    # a colluder that is not in the cohort signs too: it is a site of the study, and what it signs is this set
    outside = identity(6).sign(alive_statement(made.study, opening.context, masked.alive, 6))
    signatures = b"".join([signed[1], signed[2], signed[3], outside])
    with pytest.raises(SumRefused, match="signature of site 6 is not of this context and set, or not of the cohort"):
        made.members[1].reveal(ShareRequest(question, masked.alive, (1, 2, 3, 6), signatures).to_bytes())
    made.members[1].reveal(ShareRequest(question, masked.alive, (1, 2, 3, 4), b"".join(signed.values())).to_bytes())


def test_a_record_is_extended_and_never_replaced() -> None:
    rules = SlotRules(study_of(5, 1, 4), 1, identity(1))
    before = SlotRecord(b"c", b"upload", (1, 2))
    for after in (replace(before, context=b"d"), replace(before, upload=b"other"), replace(before, alive=(1, 3))):
        with pytest.raises(PrivacyViolation, match="used twice"):
            rules.check_change(before, after)
    with pytest.raises(PrivacyViolation, match="used twice"):
        rules.check_change(SlotRecord(b"c", alive=(1, 2)), before)


def _announced() -> tuple[dict[int, EpochRules], dict[int, tuple[AnnouncedEpoch, bytes]]]:
    study, everybody = study_of(5, 1, 4), frozenset(range(1, 6))
    rules = {site: EpochRules(study, site, identity(site), everybody) for site in everybody}
    return rules, {site: one.announce(0, 1) for site, one in rules.items()}


def _announcement(site: int, state: AnnouncedEpoch, box: bytes, keys: bytes) -> Announcement:
    unsigned = replace(state.announcement, box=box, keys=keys)
    return replace(unsigned, signature=identity(site).sign(unsigned.statement(study_of(5, 1, 4))))


def test_directories_that_break_a_rule_are_refused() -> None:
    rules, announced = _announced()
    parsed = {site: state.announcement for site, (state, _) in announced.items()}
    zero = _announcement(5, announced[5][0], parsed[5].box, bytes(32) + parsed[5].keys[32:])
    no_box = _announcement(5, announced[5][0], (1).to_bytes(32, "little"), parsed[5].keys)
    again = rules[1].announce(0, 1)[0].announcement
    cases = [
        ({**parsed, 5: zero}, "site 5 announced a key that is not canonical or is of small order"),
        ({**parsed, 5: no_box}, "site 5 announced a key that is not canonical"),
        ({**parsed, 1: again}, "another announcement of this site than the one it made"),
        ({**parsed, 2: replace(parsed[2], signature=parsed[3].signature)}, "announcement of site 2 is not signed"),
        ({site: parsed[site] for site in (1, 2, 3)}, "a cohort of 3 sites is too small: the quorum is 4"),
        ({site: parsed[site] for site in (2, 3, 4, 5)}, "this cohort lacks this site"),
    ]
    for directory, reason in cases:
        with pytest.raises(SumRefused, match=reason):
            rules[1].deal(announced[1][0], Directory.of(list(directory.values())).to_bytes())
    with pytest.raises(SumRefused, match="epoch 0 is not new"):
        rules[1].announce(0, 1, last=0)
    with pytest.raises(SumRefused, match="cannot have 0 slots"):
        rules[1].announce(1, 0)


def test_boxes_that_break_a_rule_are_refused() -> None:
    rules, announced = _announced()
    directory = directory_of(rules[1].study, {site: data for site, (_, data) in announced.items()})
    dealt = {site: one.deal(announced[site][0], directory.to_bytes()) for site, one in rules.items()}
    boxes = deliveries_of(directory, {site: data for site, (_, data) in dealt.items()})
    assert rules[1].deal(dealt[1][0], directory.to_bytes()) == dealt[1]  # the same directory gets the same bytes
    mine = BoxDelivery.from_bytes(boxes[1])
    first, second = mine.by_sender[2], mine.by_sender[3]
    size = len(first)
    with pytest.raises(SumRefused, match="for another site or another epoch"):
        rules[1].keep(dealt[1][0], boxes[2])
    with pytest.raises(SumRefused, match="not those of all other sites"):
        rules[1].keep(dealt[1][0], replace(mine, senders=(2, 3, 4), boxes=mine.boxes[: 3 * size]).to_bytes())
    with pytest.raises(SumRefused, match="box of site 2 for site 1 is not signed by it"):
        rules[1].keep(dealt[1][0], replace(mine, boxes=second + first + mine.boxes[2 * size :]).to_bytes())
    for plain in (bytes(32) + PRIME.to_bytes(32, "big"), b"\xff" * 64):  # a colluder deals what is not in the field
        box = rules[2]._box(directory, 1, plain)
        with pytest.raises(SumRefused, match="box of site 2 does not open or does not hold field elements"):
            rules[1].keep(dealt[1][0], replace(mine, boxes=box + mine.boxes[size:]).to_bytes())
    bad = rules[3]._box(directory, 1, b"\xff" * 64)
    with pytest.raises(BoxesUnopened, match="the boxes of sites 2, 3 do not open or do not hold") as refused:
        rules[1].keep(dealt[1][0], replace(mine, boxes=box + bad + mine.boxes[2 * size :]).to_bytes())
    assert refused.value.dealers == (2, 3)
    kept, held = rules[1].keep(dealt[1][0], boxes[1])
    assert rules[1].keep(kept, boxes[1]) == (kept, held)


def test_what_sites_send_for_an_epoch_is_checked_at_the_server_site_by_site() -> None:
    rules, announced = _announced()
    study, request = rules[1].study, EpochRequest(0, 1)
    mine, theirs = (announced[site][0].announcement for site in (1, 2))
    for data, reason in (
        (theirs.to_bytes(), "announcement of site 1 names another site or another epoch"),
        (replace(mine, epoch=1).to_bytes(), "announcement of site 1 names another site or another epoch"),
        (replace(mine, signature=theirs.signature).to_bytes(), "announcement of site 1 is not signed by the identity"),
        (
            _announcement(1, announced[1][0], mine.box, bytes(32) + mine.keys[32:]).to_bytes(),
            "not canonical or is of small",
        ),
        (_announcement(1, announced[1][0], bytes(32), mine.keys).to_bytes(), "site 1 announced a key that is not"),
    ):
        with pytest.raises(SumRefused, match=reason):
            read_announcement(study, request, 1, data)
    with pytest.raises(SumRefused, match="only 1 sites announced keys: the quorum is 4"):
        make_directory(study, {1: mine})
    directory = directory_of(study, {site: data for site, (_, data) in announced.items()})
    dealt = {site: one.deal(announced[site][0], directory.to_bytes()) for site, one in rules.items()}
    with pytest.raises(SumRefused, match="boxes of site 1 are not for this cohort"):
        read_deal(study, directory, 1, dealt[2][1])
    ours = Deal.from_bytes(dealt[1][1])
    other = ours.by_receiver[3] + ours.by_receiver[2] + ours.boxes[2 * box_size(1) :]
    for boxes_of_one in (bytes(len(ours.boxes)), other):  # not signed, and signed for another receiver
        with pytest.raises(SumRefused, match="box of site 1 for site 2 is not signed by it under this directory"):
            read_deal(study, directory, 1, replace(ours, boxes=boxes_of_one).to_bytes())
    some = {site: read_deal(study, directory, site, data) for site, (_, data) in dealt.items() if site not in (2, 3)}
    with pytest.raises(SumRefused, match="sites 2, 3 did not share secrets: begin another epoch without them"):
        make_deliveries(directory, some)
    boxes = deliveries_of(directory, {site: data for site, (_, data) in dealt.items()})
    held = {site: one.keep(dealt[site][0], boxes[site])[1] for site, one in rules.items()}
    for data in (held[2], replace(HeldShares.from_bytes(held[1]), signature=bytes(64)).to_bytes()):
        with pytest.raises(SumRefused, match="signature of site 1 is not of this directory"):
            read_held(study, directory, 1, data)
    with pytest.raises(BoxesUnopened, match="the box of site 4 does not open") as complaint:
        read_held(study, directory, 1, UnopenedBoxes(1, 0, (4,)).to_bytes())
    assert complaint.value.dealers == (4,)
    for wrong in (UnopenedBoxes(2, 0, (4,)), UnopenedBoxes(1, 1, (4,)), UnopenedBoxes(1, 0, (4, 9))):
        with pytest.raises(SumRefused, match="the complaint of site 1 is not about this cohort") as refused:
            read_held(study, directory, 1, wrong.to_bytes())
        assert not isinstance(refused.value, BoxesUnopened)
    with pytest.raises(SumRefused, match="sites 2, 3, 4, 5 did not sign: begin another epoch without them"):
        make_roll(directory, {1: read_held(study, directory, 1, held[1])})


def test_a_dealer_of_wrong_shares_is_named_and_one_wrong_helper_is_left_out() -> None:
    made = group(study_of(7, 1, 6), slots=2)
    y, everybody = numbers_of(made), tuple(range(1, 8))
    question = made.question(0)
    opening = made.opening(question)
    uploads = {site: opening.read_upload(site, made.members[site].upload(question, y[site])) for site in everybody}
    masked = opening.add(uploads)
    request = opening.share_request(masked.alive, {})
    answers = {site: opening.read_shares(site, made.members[site].reveal(request)) for site in everybody}
    wrong = answers | {2: [value ^ 1 for value in answers[2]]}  # a helper that lies about every share
    opened = opening.open(masked, wrong)
    assert np.array_equal(opened.total, sum(y.values())) and opened.disputed == {2: everybody}
    few = {site: wrong[site] for site in (1, 2, 3, 4, 5)}
    with pytest.raises(WrongShares, match="more than 1 sites are affected, so a helper sent wrong shares"):
        opening.open(masked, few)
    dealer = {site: [*shares[:3], (shares[3] + 7) % PRIME, *shares[4:]] for site, shares in answers.items()}
    with pytest.raises(WrongShares, match="shares of site 4 do not give what was announced: site 4 dealt") as error:
        opening.open(masked, {site: dealer[site] for site in (1, 2, 3, 4, 5)})
    assert error.value.dealers == (4,)
    assert not any(str(value) in str(error.value) for value in dealer[1])


def test_wrong_shares_of_the_pair_secret_of_a_missing_site_are_seen() -> None:
    made = group(study_of(7, 1, 6), slots=1)
    question, y, alive = made.question(0), numbers_of(made), tuple(range(1, 7))
    opening = made.opening(question)
    uploads = {site: opening.read_upload(site, made.members[site].upload(question, y[site])) for site in alive}
    masked = opening.add(uploads)
    asked = opening.alive_request(masked)
    signatures = {site: opening.read_signature(site, alive, made.members[site].agree(asked)) for site in alive}
    request = opening.share_request(alive, signatures)
    answers = {site: opening.read_shares(site, made.members[site].reveal(request)) for site in alive}
    wrong = {site: [*shares[:6], shares[6] ^ 1] for site, shares in answers.items()}
    opened = opening.open(masked, answers | {2: wrong[2]})
    assert np.array_equal(opened.total, sum(y[site] for site in alive)) and opened.disputed == {2: (7,)}
    with pytest.raises(WrongShares, match="shares of site 7 do not give what was announced"):
        opening.open(masked, {site: wrong[site] for site in (1, 2, 3, 4, 5)})


def test_what_begins_an_epoch_is_of_its_own_cohort_and_newer() -> None:
    made = group(study_of(5, 1, 4))
    one = made.members[1]
    for epoch, sites in ((1, (1, 2, 3, 4, 5)), (0, (1, 2, 3, 4))):
        with pytest.raises(SumRefused, match="a different epoch or a different set of sites"):
            one.epochs.begin(one.now.keys, Roll(epoch, sites, bytes(64 * len(sites))).to_bytes())
    with pytest.raises(SumRefused, match="epoch 0 is not newer than epoch 0"):
        next_epoch(one.now, one.now.keys)


def test_the_server_asks_about_slots_and_sites_of_its_directory() -> None:
    made = group(study_of(6, 1, 4), cohort=(1, 2, 3, 4, 5))
    question = made.question(0)
    for change in ({"epoch": 1}, {"slot": 2}, {"roster": (1, 2, 3, 6)}):
        with pytest.raises(SumRefused, match="the question is not about a slot and sites of this directory"):
            made.opening(replace(question, **change))
    with pytest.raises(SumRefused, match="site 6 is not in the cohort"):
        made.opening(question).read_shares(6, RevealedShares(6, 0, 0, element_bytes(1) * 5).to_bytes())


def test_what_sites_send_to_the_server_is_checked() -> None:
    made = group(study_of(5, 1, 4))
    question, y = made.question(0), numbers_of(made)
    opening = made.opening(question)
    data = made.members[1].upload(question, y[1])
    upload = MaskedUpload.from_bytes(data)
    cases = [
        (2, data, "names another site"),
        (1, replace(upload, slot=1).to_bytes(), "names another site, epoch or slot"),
        (1, replace(upload, packed=upload.packed[:-5]).to_bytes(), "has 15 bytes of numbers; it must have 20"),
        (1, replace(upload, receipt=bytes(64)).to_bytes(), "receipt of site 1 is not for this context"),
    ]
    for site, wrong, reason in cases:
        with pytest.raises(SumRefused, match=reason):
            opening.read_upload(site, wrong)
    for shares, reason in (
        (element_bytes(1) * 4, "sent 4 shares for a roster of 5"),
        (b"\xff" * 160, "not field elements"),
    ):
        with pytest.raises(SumRefused, match=reason):
            opening.read_shares(1, RevealedShares(1, 0, 0, shares).to_bytes())
    with pytest.raises(SumRefused, match="uploads of sites that are not on the roster"):
        opening.add({9: upload})
    with pytest.raises(SumRefused, match="signature of site 1 is not of this context and set"):
        opening.read_signature(1, (1, 2, 3, 4), AliveSignature(1, 0, 0, bytes(64)).to_bytes())


def test_reprs_and_messages_show_no_secret() -> None:
    made = group(study_of(5, 1, 4))
    member, y = made.members[1], numbers_of(made)
    secret, held = member.now.keys.secrets[0], member.now.keys.shares[0]
    assert secret is not None and held is not None
    hidden = [
        secret.pair,
        secret.own,
        *(share.pair for share in held.values()),
        *(share.own for share in held.values()),
    ]
    play(made, made.question(0), y, (1, 2, 3, 4, 5), (1, 2, 3, 4, 5))
    rules, announced = _announced()
    hidden += [one for both in announced[1][0].secrets for one in (both.pair, both.own)]
    text = repr((member.now, member.slots, member.epochs, secret, rules[1], announced[1][0]))
    upload = MaskedUpload.from_bytes(member.departures[0])
    text += repr((upload, RevealedShares.from_bytes(member.departures[-1])))
    for value in hidden:
        assert str(value) not in text and f"{value:x}" not in text
        assert repr(element_bytes(value))[2:-1] not in text
    assert repr(announced[1][0].box_key)[2:-1] not in text and repr(upload.packed)[2:-1] not in text


def _parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    start = len(MAGIC) + 4
    size = int.from_bytes(data[len(MAGIC) : start], "big")
    return json.loads(data[start : start + size]), data[start + size :]


def _joined(header: dict[str, Any], body: bytes) -> bytes:
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    return MAGIC + len(text).to_bytes(4, "big") + text + body


def opened_with(sites: int, colluders: int, liars: Mapping[int, Callable[[int, int], int]]) -> OpenedSum:
    """Open a sum with the shares of everybody; a liar's shares are changed by the number of the dealer and itself."""
    made = group(study_of(sites, colluders, sites - 1), slots=1)
    question, y = made.question(0), numbers_of(made)
    opening = made.opening(question)
    masked = opening.add(
        {site: opening.read_upload(site, made.members[site].upload(question, y[site])) for site in question.roster}
    )
    request = opening.share_request(masked.alive, {})
    answers = {site: opening.read_shares(site, made.members[site].reveal(request)) for site in question.roster}
    for liar, change in liars.items():
        answers[liar] = [(change(dealer, share)) % PRIME for dealer, share in enumerate(answers[liar], 1)]
    opened = opening.open(masked, answers)
    assert np.array_equal(opened.total, sum(y.values()))
    return opened


def test_as_many_liars_as_may_collude_are_found_among_many_helpers() -> None:
    """Of 40 sites with tau = 23 the shares of everybody are a code that corrects eight errors."""
    liars = {2: random_share, 3: random_share, 17: random_share, 39: random_share, 40: random_share}
    everybody = tuple(range(1, 41))
    assert opened_with(40, 5, liars).disputed == dict.fromkeys(liars, everybody)


def test_liars_who_change_the_shares_of_different_dealers_are_found() -> None:
    liars = {
        2: lambda dealer, share: share + (dealer <= 4),
        5: lambda dealer, share: share + 2 * (dealer >= 4),
        10: lambda dealer, share: share + 3 * (dealer == 9),
    }
    expected = {2: (1, 2, 3, 4), 5: (4, 5, 6, 7, 8, 9, 10, 11, 12), 10: (9,)}
    assert opened_with(12, 3, liars).disputed == expected


def random_share(dealer: int, share: int) -> int:
    return secrets.randbelow(PRIME)


def test_the_search_for_liars_ends_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = [0]

    def counted(points: list[int]) -> list[int]:
        tried[0] += 1
        return lagrange_weights(points)

    monkeypatch.setattr(opening_module, "lagrange_weights", counted)
    monkeypatch.setattr(opening_module, "SUBSETS_TRIED", 60)
    with pytest.raises(WrongShares, match="more than 5 sites are affected, so a helper sent wrong shares"):
        opened_with(40, 5, dict.fromkeys(range(1, 19), random_share))
    assert 60 <= tried[0] <= 60 + 2 * 40  # and for each dealer those of all helpers, for decoding
