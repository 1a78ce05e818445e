"""Sealed messages: what one party seals for another opens there unchanged, and nothing else opens anywhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from taciturn.errors import InputError
from taciturn.federation import MESSAGE_VERSIONS, seal
from taciturn.federation import messages as wire
from taciturn.federation.coordinator import FINISHED, WAITING, site_events_path
from taciturn.federation.identity import Identity, PublicIdentity
from taciturn.federation.messages import CloseRequest, Invitation, Ready, choose_version
from taciturn.federation.seal import (
    ANSWER,
    HANDSHAKE,
    HEAD_LIMIT,
    OVERHEAD,
    QUESTION,
    Header,
    InvalidSeal,
    Opened,
    TermsMismatch,
    open_answer,
    open_question,
    reply_header,
    seal_answer,
    seal_question,
    verify_evidence,
)
from taciturn.federation.terms import SITE_NAME
from taciturn.federation.upload_coordinator import UploadCoordinator
from taciturn.federation.validation import Rejected, read_ready
from taciturn.secure_sum.sum_wire import MAGIC
from tests.federation.helpers import EXPERIMENT, SITES, Federation, Local, check_like_replay, make_federation

LIMIT = 1000
TERMS, STUDY = bytes(range(32)), bytes.fromhex(EXPERIMENT)
HEADER = Header(1, QUESTION, TERMS, STUDY, "north")
BODY = b"round 7"
NAMES = st.from_regex(SITE_NAME, fullmatch=True)
HEADERS = st.builds(
    Header,
    st.integers(0, 2**16 - 1),
    st.just(QUESTION),
    st.binary(min_size=32, max_size=32),
    st.binary(min_size=16, max_size=16),
    NAMES,
    st.just(bytes(32)),
)


@dataclass(frozen=True)
class Parties:
    """The identities of three parties."""

    center: Identity
    north: Identity
    south: Identity

    def asked(self, body: bytes = BODY, header: Header = HEADER) -> bytes:
        return seal_question(body, header, self.center, self.north.public)

    def said(self, question: bytes, body: bytes = BODY) -> bytes:
        return seal_answer(body, reply_header(question), self.north, self.center.public)

    def read(self, data: Any, header: Header = HEADER, limit: int = LIMIT) -> Opened:
        """Open a question at north."""
        return open_question(
            data,
            self.north,
            self.center.public,
            limit,
            site=header.site,
            terms=header.terms,
            versions=(header.version,),
        )

    def heard(self, data: Any, question: bytes, limit: int = LIMIT) -> Opened:
        """Open north's answer at the coordinator."""
        return open_answer(data, self.center, self.north.public, limit, reply_header(question))


@pytest.fixture(scope="module")
def we(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    root = tmp_path_factory.mktemp("parties")
    return Parties(*(Identity.create(root / name) for name in ("center", "north", "south")))


def forged(header: Header, inside: bytes, receiver: PublicIdentity) -> bytes:
    """Return a message that can be forged with public identities only."""
    head = seal._head(header)
    return head + receiver.encrypt(inside, head)


def inside(data: bytes, receiver: Identity) -> bytes:
    """Return the signature and body of a message, decrypted by its receiver."""
    found = receiver.decrypt(data[seal._parse(data)[1] :], data[: seal._parse(data)[1]])
    assert found is not None
    return found


def refused(what: Callable[..., object], *given: Any, match: str | None = None) -> None:
    with pytest.raises(InvalidSeal, match=match):
        what(*given)


@given(st.binary(max_size=300), HEADERS)
def test_what_is_sealed_comes_back_to_the_bit(we: Parties, body: bytes, header: Header) -> None:
    question = we.asked(body, header)
    found = we.read(question, header)
    assert (found.header, found.body) == (header, body)
    assert len(question) == len(body) + OVERHEAD - 41 + len(header.site) and OVERHEAD < 400
    answer = we.said(question, body[::-1])
    heard = we.heard(answer, question)
    assert heard.body == body[::-1]
    assert heard.header == header._replace(kind=ANSWER, answers=hashlib.sha256(question).digest())
    assert len(answer) == len(question)


def test_header_fields_at_their_limits(we: Parties) -> None:
    for version in (0, 2**16 - 1):
        for site in ("a", "0" + "-" * 40):
            header = Header(version, QUESTION, b"\xff" * 32, b"\xff" * 16, site)
            assert we.read(we.asked(b"", header), header).body == b""
    assert len(seal._head(HEADER._replace(site="x" * 41))) == HEAD_LIMIT
    bad: list[dict[str, Any]] = [
        {"version": -1}, {"version": 2**16}, {"version": True}, {"version": 1.0}, {"kind": ""}, {"kind": "other"},
        {"terms": b""}, {"terms": bytes(33)}, {"experiment": bytes(15)}, {"experiment": bytes(17)}, {"answers": b""},
        {"site": ""}, {"site": "x" * 42}, {"site": "North"}, {"site": "nörth"}, {"site": "../x"}, {"site": "-x"},
        {"answers": bytes([1] * 32)}, {"terms": bytes(31), "experiment": bytes(17)},
    ]  # fmt: skip
    for change in bad:
        refused(we.asked, BODY, HEADER._replace(**change))
    refused(seal_answer, BODY, HEADER._replace(kind=ANSWER), we.north, we.center.public, match="no message with")


def test_every_changed_bit_is_refused(we: Parties) -> None:
    """The site opens it with its own expectations, and with those that match the changed head."""
    whole = we.asked()
    for at in range(len(whole)):
        for mask in (*(1 << bit for bit in range(8)), 0xFF):
            changed = whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :]
            refused(we.read, changed)


def test_a_changed_head_is_refused_whatever_is_expected(we: Parties) -> None:
    whole = we.asked()
    start = seal._parse(whole)[1]
    tried = 0
    for bit in range(8 * start):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            header, _ = seal._parse(bytes(changed))
        except InvalidSeal:
            continue
        if header.kind == QUESTION:
            tried += 1
            refused(we.read, bytes(changed), header, match="changed in transit")
    assert tried > 8 * (2 + 32 + 16)


def test_every_changed_bit_of_an_answer_is_refused(we: Parties) -> None:
    question = we.asked()
    whole = we.said(question)
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        refused(we.heard, bytes(changed), question)


def test_what_is_cut_off_or_added_is_refused(we: Parties) -> None:
    question = we.asked()
    answer = we.said(question)
    for whole, read in ((question, we.read), (answer, lambda data: we.heard(data, question))):
        for at in range(len(whole)):
            refused(read, whole[:at])
            refused(read, whole[at + 1 :])
        for more in (b"\0", b"x" * 16, whole):
            for data in (whole + more, more + whole):
                refused(read, data)
    for end in range(len(question)):  # also where a header is read without the rest
        if end < seal._parse(question)[1]:
            refused(reply_header, question[:end])


@given(st.binary(max_size=300))
def test_garbage_is_refused(we: Parties, garbage: bytes) -> None:
    head = seal._head(HEADER)
    for data in (garbage, seal.MAGIC + garbage, head + garbage, head[:-1] + garbage):
        refused(we.read, data)
    refused(we.read, MAGIC + head[len(MAGIC) :] + garbage, match="not a sealed message")


@pytest.mark.parametrize(
    "data", [None, "TACITURN", 3, bytearray(b"TACITURN\x02"), memoryview(b"TACITURN\x02"), [b"x"], b""]
)
def test_what_is_not_bytes_is_refused(we: Parties, data: Any) -> None:
    refused(we.read, data, match="not a sealed message")
    refused(we.heard, data, we.asked(), match="not a sealed message")
    refused(reply_header, data, match="not a sealed message")


def test_a_body_may_be_as_long_as_its_limit_and_no_longer(we: Parties) -> None:
    for site in ("n", "n" * 41):
        header = HEADER._replace(site=site)
        question = we.asked(b"x" * 64, header)
        assert we.read(question, header, 64).body == b"x" * 64
        refused(we.read, question, header, 63, match="allowed")
        answer = we.said(question, b"y" * 64)
        assert we.heard(answer, question, 64).body == b"y" * 64
        refused(we.heard, answer, question, 63, match="allowed")


class Huge(bytes):
    """Bytes with a false length, which must be checked before anything else is read."""

    def __len__(self) -> int:
        return 2**40

    def __getitem__(self, key: Any) -> Any:
        raise AssertionError("a message that is too long was copied")


def test_a_giant_message_is_refused_before_it_is_touched(we: Parties) -> None:
    question = we.asked()
    refused(we.read, Huge(question), match=f"{2**40} bytes")
    refused(we.heard, Huge(we.said(question)), question, match=f"{2**40} bytes")


@pytest.mark.parametrize("length", [0, 4, 6, 42, 255])
def test_the_length_of_a_name_is_not_believed(we: Parties, length: int) -> None:
    data = bytearray(we.asked())
    assert data[seal._LAYOUT.size - 1] == len("north")
    data[seal._LAYOUT.size - 1] = length
    refused(we.read, bytes(data))
    refused(we.read, bytes(data[: seal._LAYOUT.size]))


def test_a_message_of_another_site_study_terms_or_version_is_refused(we: Parties) -> None:
    """The coordinator did seal each for north's identity; only the subject is wrong."""
    others = {
        "site south reached north": HEADER._replace(site="south"),
        "copies of federation.toml differ": HEADER._replace(terms=bytes(32)),
        "version 2; .* 1": HEADER._replace(version=2),
    }
    for match, header in others.items():
        data = we.asked(BODY, header)
        assert we.read(data, header).body == BODY
        refused(we.read, data, match=match)


def test_before_a_study_is_at_work_any_study_and_every_known_version_is_read(we: Parties) -> None:
    def read(version: int) -> Opened:
        data = we.asked(BODY, HEADER._replace(version=version))
        return open_question(data, we.north, we.center.public, LIMIT, site="north", terms=TERMS)

    for version in (HANDSHAKE, *MESSAGE_VERSIONS):
        assert read(version).header == HEADER._replace(version=version)
    for version in (MESSAGE_VERSIONS[-1] + 1, 2**16 - 1):
        refused(read, version, match=f"version {version}")


def test_other_terms_are_told_apart_only_where_the_coordinator_signed_them(we: Parties) -> None:
    """A site explains a mistake to its coordinator only, and answers no other sender."""
    other = HEADER._replace(terms=bytes(32))
    with pytest.raises(TermsMismatch):
        we.read(we.asked(BODY, other))
    by_south = seal_question(BODY, other, we.south, we.north.public)
    for data in (by_south, forged(other, bytes(64) + BODY, we.north.public), seal._head(other) + bytes(200)):
        with pytest.raises(InvalidSeal) as caught:
            we.read(data)
        assert not isinstance(caught.value, TermsMismatch)


def test_a_message_for_another_receiver_is_refused(we: Parties) -> None:
    data = seal_question(BODY, HEADER, we.center, we.south.public)
    refused(we.read, data, match="another receiver")
    question = we.asked()
    answer = seal_answer(BODY, reply_header(question), we.north, we.south.public)
    refused(we.heard, answer, question, match="another receiver")


def test_nobody_asks_or_answers_in_the_name_of_another(we: Parties) -> None:
    question = we.asked()
    for impostor in (we.south, we.north):
        data = seal_question(BODY, HEADER, impostor, we.north.public)
        refused(we.read, data, match="did not sign")
    for impostor in (we.south, we.center):
        data = seal_answer(BODY, reply_header(question), impostor, we.center.public)
        refused(we.heard, data, question, match="did not sign")
    for signature in (b"", bytes(63), bytes(64), inside(question, we.north)[:64]):
        data = forged(HEADER, signature + b"another", we.north.public)
        refused(we.read, data)


def test_a_signature_is_for_both_keys_of_its_sender(we: Parties) -> None:
    """A party with another X25519 key is another party, even if it signs with the same key."""
    renewed = replace(we.center, _sealing=X25519PrivateKey.generate())
    assert renewed.public.signing == we.center.public.signing
    data = seal_question(BODY, HEADER, renewed, we.north.public)
    refused(we.read, data, match="did not sign")
    assert open_question(data, we.north, renewed.public, LIMIT, site="north", terms=TERMS).body == BODY


def test_what_was_sealed_for_one_site_cannot_be_handed_to_another(we: Parties) -> None:
    """South encrypts to north what the coordinator had signed for south, under either name and header."""
    for site in ("south", "north"):
        header = HEADER._replace(site=site)
        received = seal_question(BODY, header, we.center, we.south.public)
        passed_on = forged(header, inside(received, we.south), we.north.public)
        refused(we.read, passed_on, header, match="did not sign")


@pytest.mark.parametrize("change", [
    {"version": 2}, {"terms": bytes(32)}, {"experiment": bytes(16)}, {"site": "south"},
])  # fmt: skip
def test_a_signature_is_for_its_header_alone(we: Parties, change: dict[str, Any]) -> None:
    """A receiver that re-encrypts the inside under another head cannot make a second receiver accept it."""
    header = HEADER._replace(**change)
    data = forged(header, inside(we.asked(), we.north), we.north.public)
    refused(we.read, data, header, match="did not sign")
    question, other = we.asked(), we.asked(BODY, header)
    answer = forged(reply_header(other), inside(we.said(question), we.center), we.center.public)
    refused(we.heard, answer, other, match="did not sign")


def test_a_signature_is_for_its_body_alone(we: Parties) -> None:
    """The body holds the round and w: a change of either needs another signature."""
    signature = inside(we.asked(), we.north)[:64]
    for body in (b"round 8", BODY + b"\0", b"", BODY[:-1]):
        data = forged(HEADER, signature + body, we.north.public)
        refused(we.read, data, match="did not sign")


def test_an_answer_to_an_older_question_is_refused(we: Parties) -> None:
    first, second = we.asked(), we.asked()
    assert first != second  # although the questions are equal
    answer = we.said(first)
    assert we.heard(answer, first).body == BODY
    refused(we.heard, answer, second, match="another answers than")
    moved = forged(reply_header(second), inside(answer, we.center), we.center.public)
    refused(we.heard, moved, second, match="did not sign")


def test_a_question_is_no_answer_and_an_answer_no_question(we: Parties) -> None:
    question = we.asked()
    answer = we.said(question)
    refused(we.heard, question, question, match="another kind")
    refused(we.read, answer, match="sealed answer, but a sealed question")
    refused(reply_header, answer, match="sealed answer, but a sealed question")
    refused(seal_answer, BODY, HEADER, we.north, we.center.public, match="sealed question, but a sealed answer")
    refused(we.asked, BODY, reply_header(question), match="sealed answer, but a sealed question")
    refused(open_answer, question, we.north, we.center.public, LIMIT, HEADER, match="but a sealed answer")
    # reflected: the coordinator's own message, returned as north's answer
    back = forged(reply_header(question), inside(question, we.north), we.center.public)
    refused(we.heard, back, question, match="did not sign")
    # and to a coordinator that is also a site of its study
    itself = seal_question(BODY, HEADER, we.center, we.center.public)
    turned = forged(reply_header(itself), inside(itself, we.center), we.center.public)
    refused(open_answer, turned, we.center, we.center.public, LIMIT, reply_header(itself), match="did not sign")


def test_a_site_can_show_the_model_it_was_sent(we: Parties) -> None:
    body = wire.encode(CloseRequest(EXPERIMENT, 40, np.ones((3, 1, 2))))
    found = we.read(we.asked(body))
    record = json.loads(json.dumps(found.signed.to_json()))
    assert verify_evidence(record, body, we.center.public, we.north.public) == HEADER
    other = wire.encode(CloseRequest(EXPERIMENT, 40, np.zeros((3, 1, 2))))
    refused(verify_evidence, record, other, we.center.public, we.north.public, match="another message")
    rewritten = record | {"body_sha256": hashlib.sha256(other).hexdigest()}
    refused(verify_evidence, rewritten, other, we.center.public, we.north.public, match="did not sign")
    for parties in ((we.south, we.north), (we.center, we.south), (we.north, we.center)):
        refused(verify_evidence, record, body, *(i.public for i in parties), match="did not sign")
    for header in (HEADER._replace(site="south"), HEADER._replace(terms=bytes(32)), HEADER._replace(version=2)):
        changed = record | {"head": seal._head(header).hex()}
        refused(verify_evidence, changed, body, we.center.public, we.north.public, match="did not sign")


def test_a_coordinator_can_show_what_a_site_answered(we: Parties) -> None:
    question = we.asked()
    record = we.heard(we.said(question), question).signed.to_json()
    assert verify_evidence(record, BODY, we.center.public, we.north.public) == reply_header(question)
    refused(verify_evidence, record, BODY, we.north.public, we.center.public, match="did not sign")


def test_what_is_no_record_shows_nothing(we: Parties) -> None:
    record = we.read(we.asked()).signed.to_json()

    def shown(thing: Any) -> None:
        refused(verify_evidence, thing, BODY, we.center.public, we.north.public)

    for thing in (None, 3, "record", [], list(record.values()), {}, record | {"more": "1"}):
        shown(thing)
    for name, value in record.items():
        shown({key: kept for key, kept in record.items() if key != name})
        other = "0" if value[0] != "0" else "1"
        for bad in (
            None,
            3,
            b"",
            "",
            value[:-1],
            value[:-2],
            value + "00",
            value.upper(),
            f" {value}",
            other + value[1:],
        ):
            if bad != value:
                shown(record | {name: bad})


@dataclass(kw_only=True)
class Sealed(Local):
    """An engine in one process that carries sealed messages for coordinator and vault."""

    parties: dict[str, Identity]
    experiment: str
    terms: bytes
    seen: list[Header] = field(default_factory=list)  # what an engine can read
    versions: dict[str, int] = field(default_factory=dict)

    def set_version(self, site: str, version: int) -> None:
        self.versions[site] = version

    def request(self, questions: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        replies = {}
        for site, data in questions.items():
            first = isinstance(wire.decode_question(data, 10**6), Invitation)
            version = HANDSHAKE if first else self.versions[site]
            header = Header(version, QUESTION, self.terms, bytes.fromhex(self.experiment), site)
            sent = seal_question(data, header, self.parties["center"], self.parties[site].public)
            back = self._vault(site, sent)
            self.seen += [seal._parse(sent)[0], seal._parse(back)[0]]
            center, expected = self.parties["center"], reply_header(sent)
            replies[site] = open_answer(back, center, self.parties[site].public, 10**6, expected).body
        return replies

    def _vault(self, site: str, data: bytes) -> bytes:
        me, center, versions = self.parties[site], self.parties["center"].public, self.agents[site].versions
        found = open_question(data, me, center, 10**6, site=site, terms=self.terms, versions=(HANDSHAKE, *versions))
        return seal_answer(self.agents[site].answer(found.body), reply_header(data), me, center)


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return make_federation(tmp_path / "tiny")


def conducted(
    federation: Federation, center: range, sites: Mapping[str, range]
) -> tuple[str, UploadCoordinator, Sealed]:
    """Run a study among parties that support these versions."""
    parties = {name: Identity.create(federation.root / f"{name}.identity") for name in ("center", *SITES)}
    coordinator = federation.coordinator()
    coordinator.versions = center
    with federation.agents() as agents:
        for site, versions in sites.items():
            agents[site].versions = versions
        terms = bytes.fromhex(federation.terms.digest)
        engine = Sealed(agents, parties=parties, experiment=coordinator.experiment, terms=terms)
        return coordinator.run(engine), coordinator, engine


def release(n: int) -> range:
    """Return the versions that release n supports: its own and the previous one."""
    return range(n - 1, n + 1)


@pytest.mark.parametrize(("center", "site"), [(5, 6), (6, 5)])
def test_a_release_talks_to_the_next_one(federation: Federation, center: int, site: int) -> None:
    """One site has another release than the coordinator; every message after the first has their common version."""
    sites = dict.fromkeys(SITES, release(center)) | {"north": release(site)}
    ended, coordinator, engine = conducted(federation, release(center), sites)
    assert ended == FINISHED and engine.versions == {"north": 5, "south": center, "west": center}
    check_like_replay(federation, coordinator)
    north = [header.version for header in engine.seen if header.site == "north"]
    assert north == [HANDSHAKE] * 2 + [5] * (len(north) - 2) and len(north) == 2 * (1 + 4 + 1)


@pytest.mark.parametrize(("center", "site", "older"), [(5, 7, "the coordinator"), (7, 5, "this site")])
def test_a_release_does_not_talk_to_the_next_but_one(
    federation: Federation, center: int, site: int, older: str
) -> None:
    ended, coordinator, engine = conducted(federation, release(center), dict.fromkeys(SITES, release(site)))
    assert ended == WAITING and not engine.versions
    log = site_events_path(coordinator.folder).read_text()
    assert log.count(f"versions {center - 1} to {center} and this site {site - 1} to {site}; {older} ") == len(SITES)


def test_the_version_is_the_highest_that_both_speak() -> None:
    assert choose_version((1, 1), range(1, 2)) == 1 and choose_version((1, 9), range(3, 6)) == 5
    assert (
        choose_version((3, 5), range(1, 9)) == 5
        and choose_version((2**16 - 2, 2**16 - 1), range(1, 2**16)) == 2**16 - 1
    )
    for theirs, ours in (((1, 1), range(2, 3)), ((4, 9), range(1, 4))):
        with pytest.raises(InputError, match="needs a newer Taciturn"):
            choose_version(theirs, ours)
    assert len(MESSAGE_VERSIONS) in (1, 2) and MESSAGE_VERSIONS[0] > HANDSHAKE


@pytest.mark.parametrize("version", [0, 3, 2**16, 10**400])
def test_a_site_chooses_among_what_was_offered(version: int) -> None:
    data = wire.encode(Ready(EXPERIMENT, "north", "", version))
    with pytest.raises(Rejected, match="1 to 2 were offered"):
        read_ready(data, "north", EXPERIMENT, 10**6, range(1, 3))
