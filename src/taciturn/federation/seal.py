"""Sealed messages: every message is signed by its sender and encrypted to its receiver, so a carrier cannot read it.

A sealed message is a plain head followed by what only the receiver can read: a signature and the body. The head names
the study, the site and the question. It is bound to the rest: if any bit changes, the message cannot be opened. The
signature covers the head, the identities of sender and receiver, and the SHA-256 of the body. It covers the receiver's
identity because a site could otherwise encrypt to another site what was signed for itself. The body of a question holds
round, w and bases, so the signature binds each of them.

Sealing does not hide the length of a message, its time, or its head. Someone who records sealed messages and later
steals the receiver's identity can read them.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection
from typing import Any, NamedTuple

from taciturn.errors import InputError
from taciturn.federation import MESSAGE_VERSIONS
from taciturn.federation.identity import Identity, PublicIdentity
from taciturn.federation.terms import SITE_NAME
from taciturn.secure_sum.sum_context import HPKE_BYTES

MAGIC = b"TACITURN\x02"  # of this layout; the protocol version determines the meaning of the messages inside
DOMAIN = b"taciturn sealed message 1\0"  # precedes everything that is signed
HANDSHAKE = 0  # the version of an invitation and its answer, which every release of Taciturn can read
QUESTION, ANSWER = "question", "answer"
_KINDS = {QUESTION: 1, ANSWER: 2}
_NAMES = {number: kind for kind, number in _KINDS.items()}
_NO_QUESTION = bytes(32)
_LAYOUT = struct.Struct(
    ">9sHB32s16s32sB"
)  # magic, version, kind, terms, experiment, answers, length of the site's name
_SIGNATURE = 64  # bytes
HEAD_LIMIT = _LAYOUT.size + 41  # bytes
OVERHEAD = HEAD_LIMIT + HPKE_BYTES + _SIGNATURE  # bytes that sealing adds at most


class InvalidSeal(InputError):
    """Bytes that are not a message from this sender to this receiver about this subject; none of them were trusted."""


class TermsMismatch(InvalidSeal):
    """A question that the coordinator did sign, about other terms than the site's; it may be answered by a refusal."""


class Header(NamedTuple):
    """The plain head of a sealed message."""

    version: int  # of the protocol: HANDSHAKE, or what coordinator and site agreed on
    kind: str  # QUESTION or ANSWER
    terms: bytes  # 32: SHA-256 of the terms
    experiment: bytes  # 16
    site: str  # the receiver of a question or the sender of an answer
    answers: bytes = _NO_QUESTION  # 32: SHA-256 of the sealed question; zeros in a question


class Signed(NamedTuple):
    """Evidence that a party sent a body: its signature and the other facts that it covers."""

    header: Header
    body_sha256: bytes
    signature: bytes

    def to_json(self) -> dict[str, str]:
        """Return the evidence as values for JSON."""
        fields = {"head": _head(self.header), "body_sha256": self.body_sha256, "signature": self.signature}
        return {name: value.hex() for name, value in fields.items()}


class Opened(NamedTuple):
    """A message whose sender is certain."""

    header: Header
    body: bytes
    signed: Signed  # with the body, it proves to others who sent it


def seal_question(body: bytes, header: Header, sender: Identity, receiver: PublicIdentity) -> bytes:
    """Return a sealed question of the coordinator to one site."""
    return _seal(QUESTION, body, header, sender, receiver)


def seal_answer(body: bytes, header: Header, sender: Identity, receiver: PublicIdentity) -> bytes:
    """Return a site's sealed answer; `header` is `reply_header` of the sealed question."""
    return _seal(ANSWER, body, header, sender, receiver)


def reply_header(question: bytes) -> Header:
    """Return the header that an answer to a sealed question must have.

    Raises
    ------
    InvalidSeal
        If the bytes are not a sealed question.
    """
    header, _ = _parse(question)
    _check_kind(QUESTION, header)
    return header._replace(kind=ANSWER, answers=hashlib.sha256(question).digest())


def open_question(
    data: bytes,
    receiver: Identity,
    sender: PublicIdentity,
    limit: int,
    *,
    site: str,
    terms: bytes,
    versions: Collection[int] = (HANDSHAKE, *MESSAGE_VERSIONS),
) -> Opened:
    """Open a question of the coordinator to this site.

    Parameters
    ----------
    data
        The sealed bytes from an untrusted source.
    receiver, sender
        This site, and the coordinator in its terms.
    limit
        The maximum number of bytes of the body; the sealed message may have OVERHEAD more.
    site, terms
        This site's name and the digest of its terms.
    versions
        The protocol versions that are accepted.

    Raises
    ------
    TermsMismatch
        If the coordinator did ask this site, about other terms.
    InvalidSeal
        If anything else is wrong; the message must not be answered.
    """
    header, start = _parse_limited(data, limit)
    _check_kind(QUESTION, header)
    if header.site != site:
        raise InvalidSeal(f"a question for the site {header.site} reached {site}")
    if header.version not in versions:
        known = ", ".join(map(str, versions))
        raise InvalidSeal(f"a question has protocol version {header.version}; the accepted versions are {known}")
    opened = _open(data, header, start, receiver, sender)
    if header.terms != terms:
        raise TermsMismatch(
            f"the coordinator's study is {header.terms.hex()[:12]}…, but this site agreed to {terms.hex()[:12]}…: the "
            "two copies of federation.toml differ"
        )
    return opened


def open_answer(data: bytes, receiver: Identity, sender: PublicIdentity, limit: int, expected: Header) -> Opened:
    """Open a site's answer.

    Parameters
    ----------
    data
        The sealed bytes from an untrusted source.
    receiver, sender
        The coordinator, and the site in its terms.
    limit
        The maximum number of bytes of the body; the sealed message may have OVERHEAD more.
    expected
        `reply_header` of the sealed question that was sent to this site.

    Raises
    ------
    InvalidSeal
        If this is not the site's answer to that question.
    """
    header, start = _parse_limited(data, limit)
    _check_kind(ANSWER, expected)
    for name, found, wanted in zip(Header._fields, header, expected, strict=True):
        if found != wanted:
            raise InvalidSeal(f"an answer has another {name} than its question")
    return _open(data, header, start, receiver, sender)


def verify_evidence(record: Any, body: bytes, coordinator: PublicIdentity, site: PublicIdentity) -> Header:
    """Return the header that stored evidence is about, if its sender did send this body.

    Parameters
    ----------
    record
        `Signed.to_json` of a question or an answer, perhaps from a file.
    body
        The message that it came with; for the final model, the bytes of CloseRequest.
    coordinator, site
        The two parties: the coordinator signed a question, the site an answer.

    Raises
    ------
    InvalidSeal
        If the record is not such evidence.
    """
    try:
        head, *rest = (bytes.fromhex(record[name]) for name in ("head", "body_sha256", "signature"))
        signed = Signed(_parse(head)[0], *rest)
        if signed.to_json() != record:  # one byte more or less, another spelling, another key
            raise ValueError("the record is not in canonical form")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidSeal("this is not a record of a signed message") from error
    if hashlib.sha256(body).digest() != signed.body_sha256:
        raise InvalidSeal("the evidence is about another message")
    sender, receiver = (coordinator, site) if signed.header.kind == QUESTION else (site, coordinator)
    if not sender.verify(_statement(signed.header, sender, receiver, signed.body_sha256), signed.signature):
        raise InvalidSeal(f"the identity {sender.fingerprint} did not sign this for {receiver.fingerprint}")
    return signed.header


def _seal(kind: str, body: bytes, header: Header, sender: Identity, receiver: PublicIdentity) -> bytes:
    _check_kind(kind, header)
    head = _head(header)
    signature = sender.sign(_statement(header, sender.public, receiver, hashlib.sha256(body).digest()))
    return head + receiver.encrypt(signature + body, head)


def _open(data: bytes, header: Header, start: int, receiver: Identity, sender: PublicIdentity) -> Opened:
    """Decrypt a message and verify its signature."""
    inside = receiver.decrypt(data[start:], data[:start])
    if inside is None:
        raise InvalidSeal("a message was changed in transit or is for another receiver")
    signature, body = inside[:_SIGNATURE], inside[_SIGNATURE:]
    signed = Signed(header, hashlib.sha256(body).digest(), signature)
    if not sender.verify(_statement(header, sender, receiver.public, signed.body_sha256), signature):
        raise InvalidSeal(f"the identity {sender.fingerprint} did not sign a message for this receiver")
    return Opened(header, body, signed)


def _statement(header: Header, sender: PublicIdentity, receiver: PublicIdentity, body_sha256: bytes) -> bytes:
    """Return the bytes that are signed; a head holds its own length, and the other parts have fixed lengths."""
    return DOMAIN + _head(header) + sender.keys + receiver.keys + body_sha256


def _head(header: Header) -> bytes:
    """Return the only encoding of a header."""
    version, kind, terms, experiment, site, answers = header
    valid = (
        type(version) is int
        and 0 <= version < 2**16
        and kind in _KINDS
        and (len(terms), len(experiment), len(answers)) == (32, 16, 32)
        and (kind == ANSWER) == (answers != _NO_QUESTION)
        and SITE_NAME.fullmatch(site)
    )
    if not valid:
        raise InvalidSeal(f"there is no message with the header {tuple(header)!r:.200}")
    name = site.encode()
    return _LAYOUT.pack(MAGIC, version, _KINDS[kind], terms, experiment, answers, len(name)) + name


def _parse(data: bytes) -> tuple[Header, int]:
    """Return the header at the beginning of bytes and the position where it ends."""
    if not isinstance(data, bytes) or not data.startswith(MAGIC) or len(data) < _LAYOUT.size:
        raise InvalidSeal("these bytes are not a sealed message of Taciturn")
    _, version, kind, terms, experiment, answers, length = _LAYOUT.unpack_from(data)
    end = _LAYOUT.size + length
    name = data[_LAYOUT.size : end].decode("latin-1")
    header = Header(version, _NAMES.get(kind, ""), terms, experiment, name, answers)
    if _head(header) != data[:end]:
        raise InvalidSeal("the head of a sealed message is truncated")
    return header, end


def _parse_limited(data: bytes, limit: int) -> tuple[Header, int]:
    """Parse the header of bytes that are not too long, before any of them are copied."""
    if isinstance(data, bytes) and len(data) > limit + OVERHEAD:
        raise InvalidSeal(f"a sealed message has {len(data)} bytes, and at most {limit + OVERHEAD} are allowed")
    header, start = _parse(data)
    size = len(data) - start - HPKE_BYTES - _SIGNATURE
    if size > limit:
        raise InvalidSeal(f"a sealed message has a body of {size} bytes, and at most {limit} are allowed")
    return header, start


def _check_kind(kind: str, header: Header) -> None:
    if header.kind != kind:
        raise InvalidSeal(f"this is a sealed {header.kind}, but a sealed {kind} is expected")
