"""Messages between coordinator and sites, and their encoding as bytes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias, get_type_hints

import numpy as np

from taciturn.errors import InputError
from taciturn.federation import SPEAKS
from taciturn.types import Array


class Invitation(NamedTuple):
    """The coordinator asks a site to take part; what is trained, and at which price, is in the site's own files."""

    experiment: str
    terms: str  # the hash of the study's terms
    speaks: tuple[int, int] = (SPEAKS[0], SPEAKS[-1])  # the first and last version of the messages


class RoundRequest(NamedTuple):
    """Line 6 of Algorithm 1 over a network: w, and for every site the round the server last accepted from it."""

    experiment: str
    round: int
    bases: Mapping[str, int]
    w: Array  # [J, 1, K]


class CloseRequest(NamedTuple):
    """The study has ended; this is its model."""

    experiment: str
    rounds: int
    w: Array  # [J, 1, K]


class Ready(NamedTuple):
    """The site takes part. Invitation, Ready and Refusal stay as they are, so that any two releases can read them."""

    experiment: str
    site: str
    non_private: str  # "seeded" where its noise is no protection, else empty
    version: int  # of every later message between the two


class Answer(NamedTuple):
    """The upload of one round."""

    experiment: str
    site: str
    round: int
    z: Array  # [J, 1, K]


class Refusal(NamedTuple):
    """The site does not do what it was asked to; the reason is made of public facts and its own policy."""

    experiment: str
    site: str
    reason: str


class Closed(NamedTuple):
    """The site has closed its books on the study."""

    experiment: str
    site: str


Question: TypeAlias = Invitation | RoundRequest | CloseRequest
Reply: TypeAlias = Ready | Answer | Refusal | Closed

QUESTIONS: dict[str, type[Invitation] | type[RoundRequest] | type[CloseRequest]] = {
    "invitation": Invitation,
    "round": RoundRequest,
    "close": CloseRequest,
}
REPLIES: dict[str, type[Ready] | type[Answer] | type[Refusal] | type[Closed]] = {
    "ready": Ready,
    "answer": Answer,
    "refusal": Refusal,
    "closed": Closed,
}


def highest_common(theirs: tuple[int, int], ours: range = SPEAKS) -> int:
    """The version that a site answers an invitation with: the highest that both speak."""
    found = min(theirs[1], ours[-1])
    if found < max(theirs[0], ours[0]):
        older = "the coordinator" if theirs[1] < ours[0] else "this site"
        raise InputError(
            f"the coordinator speaks protocol {_shown(*theirs)}, and this site {_shown(ours[0], ours[-1])}: "
            f"{older} needs a newer Taciturn"
        )
    return found


def _shown(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


MAGIC = b"TACITURN\x01"
HEADER_LIMIT = 1 << 16
TEXT_LIMIT = 4096
DTYPES = ("<f4", "<f8")
KINDS: dict[type[Any], str] = {kind: name for name, kind in (QUESTIONS | REPLIES).items()}


class Malformed(InputError):
    """Bytes that are not a message."""


def encode(message: Question | Reply) -> bytes:
    """The message as bytes."""
    fields = message._asdict()
    arrays = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
    header: dict[str, Any] = {"kind": KINDS[type(message)]} | {n: v for n, v in fields.items() if n not in arrays}
    body = b""
    for value in arrays.values():  # at most one
        little = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
        header["array"] = {"dtype": little.dtype.str, "shape": list(little.shape)}
        body = little.tobytes()
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    return MAGIC + len(text).to_bytes(4, "big") + text + body


def question(data: bytes, limit: int) -> Question:
    """A message to a site, of at most `limit` bytes."""
    found: Question = _decode(data, limit, QUESTIONS)
    return found


def reply(data: bytes, limit: int) -> Reply:
    """A message from a site, of at most `limit` bytes."""
    found: Reply = _decode(data, limit, REPLIES)
    return found


def kind_of(data: bytes) -> str:
    """The kind that a message's header names; nothing where it cannot be read."""
    start = len(MAGIC) + 4
    size = int.from_bytes(data[len(MAGIC) : start], "big")
    try:
        return str(json.loads(data[start : start + min(size, HEADER_LIMIT)])["kind"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def digest(data: bytes) -> str:
    """SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def array_digest(array: Array) -> str:
    """SHA-256 of an array's numbers and shape."""
    return digest(repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())


def _decode(data: Any, limit: int, kinds: Mapping[str, Any]) -> Any:
    if not isinstance(data, bytes) or not data.startswith(MAGIC):
        raise Malformed("these bytes are no message of Taciturn's")
    if len(data) > limit:
        raise Malformed(f"a message of {len(data)} bytes is longer than the {limit} it may have")
    start = len(MAGIC) + 4
    size = int.from_bytes(data[len(MAGIC) : start], "big")
    if size > HEADER_LIMIT or start + size > len(data):
        raise Malformed("the header of a message is cut off or too long")
    try:
        header = json.loads(data[start : start + size])
        kind = kinds[header.pop("kind")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Malformed("the header of a message cannot be read") from None
    values = {"array": _array(header.pop("array"), data[start + size :])} if "array" in header else {}
    if not values and len(data) > start + size:
        raise Malformed("there are bytes behind a message without numbers")
    return _made(kind, header, values.get("array"))


def _array(described: Any, body: bytes) -> Array:
    try:
        dtype, shape = described["dtype"], described["shape"]
    except (KeyError, TypeError):
        raise Malformed("the numbers of a message are not described") from None
    whole = isinstance(shape, list) and len(shape) == 3 and all(type(n) is int and 0 < n < 2**31 for n in shape)
    if dtype not in DTYPES or not whole:
        raise Malformed(f"numbers of dtype {dtype!r:.20} and shape {shape!r:.40} are not parameters")
    if len(body) != math.prod(shape) * np.dtype(dtype).itemsize:
        raise Malformed(f"{len(body)} bytes are not numbers of shape {shape!r:.40}")
    return np.frombuffer(body, dtype=dtype).reshape(shape).astype(np.dtype(dtype).newbyteorder("="))


def _made(kind: Any, header: dict[str, Any], array: Array | None) -> Any:
    hints = _hints(kind)
    numbers = [name for name, hint in hints.items() if hint == "array"]
    if set(header) != set(hints) - set(numbers) or (array is None) != (not numbers):
        raise Malformed(f"a message of kind {KINDS[kind]} does not have the right fields")
    for name, value in header.items():
        if not _fits(hints[name], value):
            raise Malformed(f"{name} of a message of kind {KINDS[kind]} has the wrong type")
    plain = {name: tuple(value) if hints[name] == "versions" else value for name, value in header.items()}
    return kind(**plain, **dict.fromkeys(numbers, array))


@cache
def _hints(kind: Any) -> dict[str, str]:
    """What each field of a message is: int, str, counts, versions or array."""
    names = {int: "int", str: "str", Mapping[str, int]: "counts", tuple[int, int]: "versions"}
    return {name: names.get(hint, "array") for name, hint in get_type_hints(kind).items()}


def _fits(hint: str, value: Any) -> bool:
    match hint:
        case "int":
            return type(value) is int and value >= 0
        case "str":
            return isinstance(value, str) and len(value) < TEXT_LIMIT
        case "versions":
            numbers = isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value)
            return numbers and 0 < value[0] <= value[1] < 2**16
    return isinstance(value, dict) and all(type(v) is int and v >= 0 for v in value.values())
