"""Messages of a secure sum as bytes: the layout of the federation's messages, parsed strictly.

A message is a magic number, a JSON header with its length, and raw bytes. Numbers and lists of sites are in the header,
everything else in the raw bytes, whose lengths the header names. Equal messages have equal bytes: what is read is
written again and compared, so no second spelling of a message is accepted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, ClassVar, NamedTuple, Self, get_type_hints

from taciturn.errors import InputError
from taciturn.secure_sum.parameters import SITES_LIMIT

MAGIC = b"TACITURN\x01"  # of the federation's messages too
HEADER_LIMIT = 1 << 16  # bytes
NUMBER_LIMIT = 2**31
BODY_LIMIT = 1 << 31


class SumRefused(InputError):
    """A request that a site refuses, or an answer that the server does not use; the reason shows no secret."""


class SumMalformed(SumRefused):
    """Bytes that are not a valid message of a secure sum."""


class MessageParts(NamedTuple):
    """A message in its parts."""

    kind: str
    header: dict[str, Any]  # without the kind
    body: bytes


def pack_frame(header: Mapping[str, object], *parts: bytes) -> bytes:
    """Return a message as bytes: a magic number, the length of the header, the header as canonical JSON, raw bytes."""
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    return MAGIC + len(text).to_bytes(4, "big") + text + b"".join(parts)


def split_frame(data: Any, limit: int, malformed: type[InputError]) -> MessageParts:
    """Return the parts of a message in bytes from an untrusted source.

    Parameters
    ----------
    data : bytes
        The message.
    limit : int
        Maximum length in bytes.
    malformed : type
        The error that is raised if the bytes are too long or have no header with a kind.
    """
    if not isinstance(data, bytes) or not data.startswith(MAGIC):
        raise malformed("these bytes are not a Taciturn message")
    if len(data) > limit:
        raise malformed(f"a message has {len(data)} bytes; the limit is {limit}")
    start = len(MAGIC) + 4
    size = int.from_bytes(data[len(MAGIC) : start], "big")
    if size > HEADER_LIMIT or start + size > len(data):
        raise malformed("the header of a message is truncated or too long")
    try:
        header = json.loads(data[start : start + size])
        kind = header.pop("kind")
        if not isinstance(kind, str):
            raise TypeError(f"its kind is {kind!r:.40}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise malformed("the header of a message cannot be read") from error
    return MessageParts(kind, header, data[start + size :])


@dataclass(frozen=True)
class SumMessage:
    """A message of a secure sum; a subclass declares its fields and checks them in `__post_init__`.

    Fields are whole numbers, increasing lists of sites, bytes, or another message.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Greeting(SumMessage):
    ...     KIND = "sum-greeting"
    ...     sites: tuple[int, ...]
    ...     text: bytes
    >>> Greeting.from_bytes(Greeting((1, 3), b"hello").to_bytes()).sites
    (1, 3)
    """

    KIND: ClassVar[str]

    def to_bytes(self) -> bytes:
        """Return the only encoding of the message."""
        header: dict[str, Any] = {"kind": self.KIND}
        parts: list[bytes] = []
        for name in _fields(type(self)):
            value = getattr(self, name)
            if isinstance(value, bytes | SumMessage):
                parts.append(value if isinstance(value, bytes) else value.to_bytes())
            else:
                header[name] = value
        header["parts"] = [len(part) for part in parts]
        return pack_frame(header, *parts)

    @classmethod
    def from_bytes(cls, data: bytes, limit: int = BODY_LIMIT) -> Self:
        """Return the message in bytes from an untrusted source.

        Parameters
        ----------
        data : bytes
            The message.
        limit : int
            Maximum length in bytes.

        Raises
        ------
        SumMalformed
            If the bytes are too long, of another kind, or not in the only valid form.
        """
        kind, header, body = split_frame(data, limit, SumMalformed)
        if kind != cls.KIND:
            raise SumMalformed(f"a message is not of the kind {cls.KIND}")
        hints = _fields(cls)
        raw = [name for name, hint in hints.items() if hint not in (int, tuple[int, ...])]
        parts = header.pop("parts", None)
        if set(header) != set(hints) - set(raw) or not _is_list(parts, len(raw)) or sum(parts) != len(body):
            raise SumMalformed(f"a message of kind {cls.KIND} does not have the right fields")
        values: dict[str, Any] = {name: _plain(value, hints[name]) for name, value in header.items()}
        for name, (start, end) in zip(raw, pairwise(accumulate(parts, initial=0)), strict=True):
            part = body[start:end]
            values[name] = part if hints[name] is bytes else hints[name].from_bytes(part, limit)
        message = cls(**values)
        if message.to_bytes() != data:
            raise SumMalformed(f"a message of kind {cls.KIND} is not in its canonical form")
        return message

    def require(self, condition: bool, rule: str) -> None:
        """Raise SumMalformed, naming the kind and the rule, unless a condition holds."""
        if not condition:
            raise SumMalformed(f"a message of kind {self.KIND} is wrong: {rule}")


def is_increasing(sites: tuple[int, ...]) -> bool:
    """Return whether site numbers are within range and strictly increasing, so none repeats.

    Examples
    --------
    >>> is_increasing((1, 4)), is_increasing((1, 1)), is_increasing(())
    (True, False, False)
    """
    inside = 0 < len(sites) <= SITES_LIMIT and sites[0] >= 1 and sites[-1] <= SITES_LIMIT
    return inside and all(one < other for one, other in pairwise(sites))


def by_site(sites: tuple[int, ...], data: bytes, size: int) -> dict[int, bytes]:
    """Return the part of `size` bytes of each site, in data that holds them one after another.

    Examples
    --------
    >>> by_site((2, 5), b"aabb", 2)
    {2: b'aa', 5: b'bb'}
    """
    return {site: data[size * index : size * (index + 1)] for index, site in enumerate(sites)}


def sites_shown(sites: tuple[int, ...]) -> str:
    """Return site numbers for an error message.

    Examples
    --------
    >>> sites_shown((3,)), sites_shown((1, 2, 9))
    ('site 3', 'sites 1, 2, 9')
    """
    names = ", ".join(map(str, sites[:20])) + (", ..." if len(sites) > 20 else "")
    return f"site {names}" if len(sites) == 1 else f"sites {names}"


def _plain(value: Any, hint: Any) -> int | tuple[int, ...]:
    if hint is int and _is_number(value):
        return int(value)
    if hint is not int and _is_list(value):
        return tuple(value)
    raise SumMalformed("a field of a message has the wrong type")


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < NUMBER_LIMIT


def _is_list(value: Any, length: int | None = None) -> bool:
    right = isinstance(value, list) and (len(value) == length if length is not None else len(value) <= SITES_LIMIT)
    return right and all(map(_is_number, value))


def _fields(kind: Any) -> dict[str, Any]:
    """Return the types of a message's fields."""
    return _read_fields(kind)


@cache
def _read_fields(kind: Any) -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(kind).items() if name != "KIND"}
