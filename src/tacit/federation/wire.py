"""Messages as bytes: a short header in JSON, then the raw numbers. Nothing is ever executed to read one."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, get_type_hints

import numpy as np

from tacit.errors import InputError
from tacit.federation.messages import QUESTIONS, REPLIES, Question, Reply
from tacit.types import Array

MAGIC = b"TACIT\x01"
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
        raise Malformed("these bytes are no message of Tacit's")
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
