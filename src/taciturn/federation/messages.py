"""Messages between the coordinator and the sites, and their encoding as bytes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias, get_type_hints

import numpy as np

from taciturn.errors import InputError
from taciturn.federation import MESSAGE_VERSIONS
from taciturn.secure_sum.sum_wire import HEADER_LIMIT, MAGIC, pack_frame, split_frame
from taciturn.types import Array


class Invitation(NamedTuple):
    """The coordinator invites a site; what is trained, and at what privacy cost, is in the site's own files."""

    experiment: str
    terms: str  # SHA-256 of the study's terms
    speaks: tuple[int, int] = (MESSAGE_VERSIONS[0], MESSAGE_VERSIONS[-1])  # of the coordinator: first, last


class RoundRequest(NamedTuple):
    """Line 6 of Algorithm 1 over a network: w, and for every site the last round the server accepted from it."""

    experiment: str
    round: int
    bases: Mapping[str, int]
    w: Array  # [J, 1, K]


class CloseRequest(NamedTuple):
    """The study has ended with this model."""

    experiment: str
    rounds: int
    w: Array  # [J, 1, K]


class SumRequest(NamedTuple):
    """A step of the secure sum that needs no model; see `taciturn.secure_sum`."""

    experiment: str
    step: str  # one of `SUM_STEPS`, except "upload"
    data: bytes  # the message of this step


class SumRoundRequest(NamedTuple):
    """The question of a round whose answers are summed: the slot, the roster, and what the gradient is taken at."""

    experiment: str
    data: bytes  # a `SumQuestion`
    w: Array  # [J, 1, K]  the model; [2 J, 1, K] with an additive model's statistics below it


class MeasureRequest(NamedTuple):
    """The question of an evaluation in which every site adds all the noise; a secure sum has `SumRoundRequest`."""

    experiment: str
    round: int  # after which the model was computed
    w: Array  # [J, 1, K]  the model, in parameters of the features


class Ready(NamedTuple):
    """The site takes part. Invitation, Ready and Refusal never change, so that any two releases can read them."""

    experiment: str
    site: str
    non_private: str  # "seeded" if the noise gives no protection, else empty
    version: int  # of every later message between the two


class Answer(NamedTuple):
    """The upload of one round."""

    experiment: str
    site: str
    round: int
    z: Array  # [J, 1, K]


class SumAnswer(NamedTuple):
    """The reply to a step of the secure sum. The masked upload of a round is the step "upload"."""

    experiment: str
    site: str
    step: str  # one of `SUM_STEPS`
    round: int  # of an upload, signature or shares; else 0
    data: bytes  # the message of this step; empty for "begin"


class MeasureAnswer(NamedTuple):
    """A site's measures of a model on its held-out records, with noise."""

    experiment: str
    site: str
    round: int
    data: bytes  # whole numbers of 64 bits, little-endian


class Refusal(NamedTuple):
    """The site refuses a request; the reason contains only public facts and the site's policy."""

    experiment: str
    site: str
    reason: str


class Closed(NamedTuple):
    """The site has closed the study."""

    experiment: str
    site: str


Question: TypeAlias = Invitation | RoundRequest | SumRequest | SumRoundRequest | MeasureRequest | CloseRequest
Reply: TypeAlias = Ready | Answer | SumAnswer | MeasureAnswer | Refusal | Closed

QUESTIONS: dict[str, type[Any]] = {
    "invitation": Invitation,
    "round": RoundRequest,
    "sum": SumRequest,
    "sum round": SumRoundRequest,
    "measure": MeasureRequest,
    "close": CloseRequest,
}
REPLIES: dict[str, type[Any]] = {
    "ready": Ready,
    "answer": Answer,
    "sum answer": SumAnswer,
    "measures": MeasureAnswer,
    "refusal": Refusal,
    "closed": Closed,
}
KINDS: dict[type[Any], str] = {kind: name for name, kind in (QUESTIONS | REPLIES).items()}

TEXT_LIMIT = 4096  # characters
DTYPES = ("<f4", "<f8")
ANNOUNCE, DEAL, KEEP, BEGIN, UPLOAD, AGREE, REVEAL = SUM_STEPS = (
    "announce", "deal", "keep", "begin", "upload", "agree", "reveal",
)  # fmt: skip


class Malformed(InputError):
    """Bytes that are not a valid message."""


def choose_version(theirs: tuple[int, int], ours: range) -> int:
    """Return the highest message version that both parties support.

    Parameters
    ----------
    theirs : tuple of int
        First and last version that the coordinator supports.
    ours : range
        The versions that this site supports.

    Raises
    ------
    InputError
        If there is no common version.

    Examples
    --------
    >>> choose_version((1, 3), range(2, 6))
    3
    """
    version = min(theirs[1], ours[-1])
    if version < max(theirs[0], ours[0]):
        older = "the coordinator" if theirs[1] < ours[0] else "this site"
        raise InputError(
            f"the coordinator supports message versions {theirs[0]} to {theirs[1]} and this site {ours[0]} to "
            f"{ours[-1]}; {older} needs a newer Taciturn"
        )
    return version


def message_limit(body_bytes: int = 0) -> int:
    """Return the maximum size in bytes of a message whose array and data have `body_bytes` bytes."""
    return HEADER_LIMIT + 1024 + body_bytes


def encode(message: Question | Reply) -> bytes:
    """Return a message as bytes: a magic number, a JSON header with its length, then its array and its data, if any.

    The encoding is canonical: equal messages have equal bytes. Arrays are little-endian.

    Examples
    --------
    >>> message = Closed("0123", "north")
    >>> decode_reply(encode(message), 1000) == message
    True
    """
    header: dict[str, object] = {"kind": KINDS[type(message)], **message._asdict()}
    body, data = b"", b""
    for name, value in message._asdict().items():
        if isinstance(value, np.ndarray):  # at most one field is an array
            del header[name]
            little = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
            header["array"] = {"dtype": little.dtype.str, "shape": list(little.shape)}
            body = little.tobytes()
        elif isinstance(value, bytes):  # at most one field has bytes
            data, header[name] = value, len(value)
    return pack_frame(header, body, data)


def decode_question(data: bytes, limit: int) -> Question:
    """Return a message to a site.

    Parameters
    ----------
    data : bytes
        Untrusted bytes.
    limit : int
        Maximum length in bytes.

    Raises
    ------
    Malformed
        If the bytes are too long or not a valid message of this direction.
    """
    message: Question = _decode(data, limit, QUESTIONS)
    return message


def decode_reply(data: bytes, limit: int) -> Reply:
    """Return a message from a site; parameters and errors are those of `decode_question`."""
    message: Reply = _decode(data, limit, REPLIES)
    return message


def upload_round(reply: Reply) -> int | None:
    """Return the round of a reply that holds an upload, or None."""
    if isinstance(reply, Answer | MeasureAnswer) or (isinstance(reply, SumAnswer) and reply.step == UPLOAD):
        return reply.round
    return None


def message_kind(data: bytes) -> str:
    """Return the kind that a message's header names, or "" if the header cannot be read."""
    start = len(MAGIC) + 4
    size = int.from_bytes(data[len(MAGIC) : start], "big")
    try:
        return str(json.loads(data[start : start + min(size, HEADER_LIMIT)])["kind"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def digest(data: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def array_bytes(array: Array) -> bytes:
    """Return an array's shape and values as bytes, for a digest."""
    return repr(array.shape).encode() + np.ascontiguousarray(array).tobytes()


def array_digest(array: Array) -> str:
    """Return the SHA-256 of an array's shape and values in hexadecimal."""
    return digest(array_bytes(array))


def _decode(data: Any, limit: int, kinds: Mapping[str, type[Any]]) -> Any:
    name, header, body = split_frame(data, limit, Malformed)
    if name not in kinds:
        raise Malformed("the header of a message cannot be read")
    kind: Any = kinds[name]
    for name in _data_fields(kind):
        if not _is_count(header.get(name)) or header[name] > len(body):
            raise Malformed(f"{name} of a message of kind {KINDS[kind]} is missing or truncated")
        end = len(body) - header[name]
        body, header[name] = body[:end], body[end:]
    array = _decode_array(header.pop("array"), body) if "array" in header else None
    if array is None and body:
        raise Malformed("a message without an array has trailing bytes")
    return _build(kind, header, array)


def _decode_array(description: Any, body: bytes) -> Array:
    try:
        dtype, shape = description["dtype"], description["shape"]
    except (KeyError, TypeError) as error:
        raise Malformed("the array of a message has no dtype or shape") from error
    valid = isinstance(shape, list) and len(shape) == 3 and all(type(n) is int and 0 < n < 2**31 for n in shape)
    if dtype not in DTYPES or not valid:
        raise Malformed(f"an array of dtype {dtype!r:.20} and shape {shape!r:.40} cannot hold parameters")
    if len(body) != math.prod(shape) * np.dtype(dtype).itemsize:
        raise Malformed(f"{len(body)} bytes do not fit an array of shape {shape!r:.40}")
    return np.frombuffer(body, dtype=dtype).reshape(shape).astype(np.dtype(dtype).newbyteorder("="))


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_version_range(value: Any) -> bool:
    numbers = isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value)
    return numbers and 0 < value[0] <= value[1] < 2**16


_FIELD_CHECKS: dict[Any, Callable[[Any], bool]] = {  # by the field's annotation; any other field is the array
    int: _is_count,
    bytes: lambda value: isinstance(value, bytes),
    str: lambda value: isinstance(value, str) and len(value) < TEXT_LIMIT,
    Mapping[str, int]: lambda value: isinstance(value, dict) and all(map(_is_count, value.values())),
    tuple[int, int]: _is_version_range,
}


def _build(kind: Any, header: dict[str, object], array: Array | None) -> Any:
    hints = _field_types(kind)
    array_fields = [name for name, hint in hints.items() if hint not in _FIELD_CHECKS]
    if set(header) != set(hints) - set(array_fields) or (array is None) != (not array_fields):
        raise Malformed(f"a message of kind {KINDS[kind]} does not have the right fields")
    for name, value in header.items():
        if not _FIELD_CHECKS[hints[name]](value):
            raise Malformed(f"{name} of a message of kind {KINDS[kind]} has the wrong type")
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in header.items()}
    return kind(**plain, **dict.fromkeys(array_fields, array))


@cache
def _field_types(kind: Any) -> dict[str, object]:
    return get_type_hints(kind)


def _data_fields(kind: Any) -> tuple[str, ...]:
    return tuple(name for name, hint in _field_types(kind).items() if hint is bytes)
