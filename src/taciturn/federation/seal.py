"""Envelopes: every message is signed by its sender and encrypted to its receiver, so that an engine carries noise.

A sealed message is a plain head, and behind it what only the receiver can read: a signature and the body. The head says
which study, site and question it is about; it is bound to the rest, and a changed bit anywhere leaves nothing that
opens. Signed are the head, the identities of sender and receiver, and the SHA-256 of the body. The receiver's identity
is among them because a site could otherwise encrypt to another what was signed for itself. The body of a question holds
round, w and bases, so its hash binds the signature to each of them.

What it does not hide: the length of a message, when it was sent, and the head. Who copies sealed messages and later
steals the receiver's identity can read them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from taciturn.errors import InputError
from taciturn.federation import SPEAKS
from taciturn.federation.identity import ENCRYPTION_OVERHEAD, Identity, PublicIdentity
from taciturn.federation.terms import SITE_NAME

MAGIC = b"TACITURN\x02"  # of this layout; what the messages inside mean is the version's affair
DOMAIN = b"taciturn sealed message 1\0"  # what stands before everything that is signed
HANDSHAKE = 0  # the version of an invitation and of the answer to it, which every release of Taciturn can read
QUESTION, ANSWER = "question", "answer"
_KINDS = {QUESTION: 1, ANSWER: 2}
_NAMES = {number: kind for kind, number in _KINDS.items()}
_NONE = bytes(32)  # what a question answers
_FIXED = len(MAGIC) + 2 + 1 + 32 + 16 + 32 + 1  # bytes of a head without the site's name
_SIGNATURE = 64
HEAD_LIMIT = _FIXED + 41  # bytes
OVERHEAD = HEAD_LIMIT + ENCRYPTION_OVERHEAD + _SIGNATURE  # bytes that sealing adds at most


class Unsealed(InputError):
    """Bytes that are not a message from this sender, to this receiver, about this; nothing in them was believed."""


class OtherTerms(Unsealed):
    """A question that the coordinator did sign, about terms that are not the site's: it deserves a refusal."""


class Header(NamedTuple):
    """What the outside of an envelope says."""

    version: int  # of the protocol; HANDSHAKE, or what coordinator and site agreed on
    kind: str  # QUESTION or ANSWER
    terms: bytes  # 32: SHA-256 of the terms
    experiment: bytes  # 16
    site: str  # whom a question is for, who gives an answer
    answers: bytes = _NONE  # 32: SHA-256 of the sealed question; zeros in a question


class Signed(NamedTuple):
    """Evidence that a party sent a body: its signature, and what else was signed."""

    header: Header
    body_sha256: bytes
    signature: bytes

    def record(self) -> dict[str, str]:
        """As values for JSON."""
        return {
            "head": _head(self.header).hex(),
            "body_sha256": self.body_sha256.hex(),
            "signature": self.signature.hex(),
        }


class Opened(NamedTuple):
    """A message whose sender is certain."""

    header: Header
    body: bytes
    signed: Signed  # worth keeping: with the body it shows others who sent it


def seal_question(body: bytes, header: Header, sender: Identity, receiver: PublicIdentity) -> bytes:
    """A question of the coordinator's to one site."""
    return _sealed(QUESTION, body, header, sender, receiver)


def seal_answer(body: bytes, header: Header, sender: Identity, receiver: PublicIdentity) -> bytes:
    """A site's answer; `reply_header` of the sealed question is its header."""
    return _sealed(ANSWER, body, header, sender, receiver)


def reply_header(question: bytes) -> Header:
    """The one header an answer to a sealed question has; the site puts it on, and the coordinator insists on it."""
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
    experiment: bytes | None = None,
    versions: Collection[int] = (HANDSHAKE, *SPEAKS),
) -> Opened:
    """What the coordinator asks this site.

    Parameters
    ----------
    data
        The sealed bytes, from anywhere.
    receiver, sender
        This site, and the coordinator in its terms.
    limit
        The most bytes that the body may have; sealed ones may have OVERHEAD more.
    site, terms
        This site's name, and the digest of its terms.
    experiment
        The study at work; None before there is one.
    versions
        The protocol versions it may be of.

    Raises
    ------
    OtherTerms
        The coordinator did ask this site, about other terms.
    Unsealed
        Anything else is wrong; this must not be answered.
    """
    header, start = _measured(data, limit)
    _check_kind(QUESTION, header)
    if header.site != site:
        raise Unsealed(f"a question for the site {header.site} came to {site}")
    if header.version not in versions:
        known = ", ".join(map(str, versions))
        raise Unsealed(f"a question is of protocol {header.version}, and here only {known} can be read")
    if experiment is not None and header.experiment != experiment:
        raise Unsealed(f"a question is about study {header.experiment.hex()}, and {experiment.hex()} is at work here")
    opened = _opened(data, header, start, receiver, sender)
    if header.terms != terms:
        raise OtherTerms(
            f"the coordinator's study is {header.terms.hex()[:12]}…, and this site agreed to {terms.hex()[:12]}…: the "
            "two copies of federation.toml differ"
        )
    return opened


def open_answer(data: bytes, receiver: Identity, sender: PublicIdentity, limit: int, expected: Header) -> Opened:
    """What a site answers.

    Parameters
    ----------
    data
        The sealed bytes, from anywhere.
    receiver, sender
        The coordinator, and the site in its terms.
    limit
        The most bytes that the body may have; sealed ones may have OVERHEAD more.
    expected
        `reply_header` of the sealed question that was sent to this site.

    Raises
    ------
    Unsealed
        This is not the site's answer to that question.
    """
    header, start = _measured(data, limit)
    _check_kind(ANSWER, expected)
    for name, found, right in zip(Header._fields, header, expected, strict=True):
        if found != right:
            raise Unsealed(f"an answer has another {name} than the question it should belong to")
    return _opened(data, header, start, receiver, sender)


def verify_evidence(record: Any, body: bytes, coordinator: PublicIdentity, site: PublicIdentity) -> Header:
    """What a kept signature is about, where its sender really sent this body.

    Parameters
    ----------
    record
        `Signed.record` of a question or an answer, perhaps from a file.
    body
        The message it came with: for the final model the bytes of Close.
    coordinator, site
        The two parties; a question was signed by the first, an answer by the second.

    Raises
    ------
    Unsealed
        The record shows nothing of that kind.
    """
    signed = _read_record(record)
    if hashlib.sha256(body).digest() != signed.body_sha256:
        raise Unsealed("the evidence is about another message than this one")
    ends = (coordinator, site) if signed.header.kind == QUESTION else (site, coordinator)
    if not ends[0].signed(_statement(signed.header, *ends, signed.body_sha256), signed.signature):
        raise Unsealed(f"the identity {ends[0].fingerprint} did not sign this for {ends[1].fingerprint}")
    return signed.header


def _sealed(kind: str, body: bytes, header: Header, sender: Identity, receiver: PublicIdentity) -> bytes:
    _check_kind(kind, header)
    head = _head(header)
    signature = sender.sign(_statement(header, sender.public, receiver, hashlib.sha256(body).digest()))
    return head + receiver.encrypt(signature + body, head)


def _opened(data: bytes, header: Header, start: int, receiver: Identity, sender: PublicIdentity) -> Opened:
    """The inside of a message, where receiver and sender are who they should be."""
    inside = receiver.decrypt(data[start:], data[:start])
    if inside is None:
        raise Unsealed("a message was changed on its way, or it is for somebody else")
    signature, body = inside[:_SIGNATURE], inside[_SIGNATURE:]
    signed = Signed(header, hashlib.sha256(body).digest(), signature)
    if not sender.signed(_statement(header, sender, receiver.public, signed.body_sha256), signature):
        raise Unsealed(f"a message was not signed by the identity {sender.fingerprint} for this receiver")
    return Opened(header, body, signed)


def _statement(header: Header, sender: PublicIdentity, receiver: PublicIdentity, body_sha256: bytes) -> bytes:
    """What is signed; a head says how long it is, and all else has one length."""
    return DOMAIN + _head(header) + sender.keys + receiver.keys + body_sha256


def _head(header: Header) -> bytes:
    """A header as bytes: the only ones it has."""
    version, kind, terms, experiment, site, answers = header
    fits = (
        type(version) is int
        and 0 <= version < 2**16
        and kind in _KINDS
        and (len(terms), len(experiment), len(answers)) == (32, 16, 32)
        and (kind == ANSWER) == (answers != _NONE)
        and SITE_NAME.fullmatch(site)
    )
    if not fits:
        raise Unsealed(f"there is no message with the header {tuple(header)!r:.200}")
    name = site.encode()
    numbers = version.to_bytes(2, "big") + bytes([_KINDS[kind]])
    return MAGIC + numbers + terms + experiment + answers + bytes([len(name)]) + name


def _parse(data: bytes) -> tuple[Header, int]:
    """The header at the beginning of bytes, and where it ends."""
    if not isinstance(data, bytes) or not data.startswith(MAGIC) or len(data) < _FIXED:
        raise Unsealed("these bytes are no sealed message of Taciturn's")
    end = _FIXED + data[_FIXED - 1]
    at = len(MAGIC)
    kind, name = _NAMES.get(data[at + 2], ""), data[_FIXED:end].decode("latin-1")
    version, rest = int.from_bytes(data[at : at + 2], "big"), data[at + 3 : _FIXED - 1]
    header = Header(version, kind, rest[:32], rest[32:48], name, rest[48:])
    if _head(header) != data[:end]:
        raise Unsealed("the head of a sealed message is cut off")
    return header, end


def _measured(data: bytes, limit: int) -> tuple[Header, int]:
    """The header of bytes that are not too long, before any of them is copied."""
    if isinstance(data, bytes) and len(data) > limit + OVERHEAD:
        raise Unsealed(f"a sealed message of {len(data)} bytes is longer than the {limit + OVERHEAD} it may have")
    header, start = _parse(data)
    size = len(data) - start - ENCRYPTION_OVERHEAD - _SIGNATURE
    if size > limit:
        raise Unsealed(f"a sealed message has a body of {size} bytes, and at most {limit} are allowed")
    return header, start


def _check_kind(kind: str, header: Header) -> None:
    if header.kind != kind:
        raise Unsealed(f"this is a sealed {header.kind}, where a sealed {kind} belongs")


def _read_record(record: Any) -> Signed:
    """A record as it was made, and no other."""
    try:
        head, body_sha256, signature = (bytes.fromhex(record[name]) for name in ("head", "body_sha256", "signature"))
        header, end = _parse(head)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Unsealed("this is no record of a signed message") from None
    signed = Signed(header, body_sha256, signature)
    if end != len(head) or not isinstance(record, Mapping) or signed.record() != record:
        raise Unsealed("this is no record of a signed message")
    return signed
