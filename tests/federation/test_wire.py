"""Encoded messages decode to the same bits; any other bytes raise Malformed and no other error."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from taciturn.federation import messages as wire
from taciturn.federation.messages import (
    QUESTIONS,
    REPLIES,
    Answer,
    Closed,
    CloseRequest,
    Invitation,
    Ready,
    Refusal,
    RoundRequest,
)
from taciturn.secure_sum.sum_wire import HEADER_LIMIT, MAGIC

LIMIT = 1 << 20
WORDS = st.text(max_size=60)
COUNTS = st.integers(0, 2**53)
VERSIONS = st.tuples(st.integers(1, 2**16 - 1), st.integers(1, 2**16 - 1)).map(lambda pair: (min(pair), max(pair)))
NUMBERS = st.sampled_from(["float32", "float64"]).flatmap(
    lambda dtype: arrays(dtype, st.tuples(st.integers(1, 5), st.just(1), st.integers(1, 4)))
)
ASKED = st.one_of(
    st.builds(Invitation, WORDS, WORDS, VERSIONS),
    st.builds(RoundRequest, WORDS, COUNTS, st.dictionaries(WORDS, COUNTS, max_size=4), NUMBERS),
    st.builds(CloseRequest, WORDS, COUNTS, NUMBERS),
)
SAID = st.one_of(
    st.builds(Ready, WORDS, WORDS, WORDS, COUNTS),
    st.builds(Answer, WORDS, WORDS, COUNTS, NUMBERS),
    st.builds(Refusal, WORDS, WORDS, WORDS),
    st.builds(Closed, WORDS, WORDS),
)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
ZERO = np.zeros((3, 1, 2))
ANSWER = Answer("e", "north", 3, ZERO)
EVERY: list[Any] = [
    Invitation("e", "t"),
    RoundRequest("e", 3, {"north": 2}, ZERO),
    CloseRequest("e", 3, ZERO),
    Ready("e", "north", "", 1),
    ANSWER,
    Refusal("e", "north", "no"),
    Closed("e", "north"),
]  # fmt: skip


def decoded(data: Any, limit: int = LIMIT) -> Any:
    """Decode a message of either direction, or return None if the bytes are malformed."""
    found = []
    for read in (wire.decode_question, wire.decode_reply):
        try:
            found.append(read(data, limit))
        except wire.Malformed as error:
            assert str(error)
    assert len(found) < 2  # nothing is a question and an answer
    return found[0] if found else None


def raw(header: Any, body: bytes = b"", size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return MAGIC + (len(text) if size is None else size).to_bytes(4, "big") + text + body


def parts(message: Any) -> tuple[dict[str, Any], bytes]:
    """Header and body of an encoded message."""
    data = wire.encode(message)
    start = len(MAGIC) + 4
    size = int.from_bytes(data[start - 4 : start], "big")
    return json.loads(data[start : start + size]), data[start + size :]


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    return bool(one == other)


@given(ASKED | SAID)
def test_what_is_encoded_comes_back_to_the_bit(message: Any) -> None:
    found = decoded(wire.encode(message))
    assert type(found) is type(message)
    for one, other in zip(found, message, strict=True):
        assert same(one, other)
    assert wire.encode(found) == wire.encode(message)


def test_numbers_travel_with_the_lowest_byte_first_whatever_the_machine() -> None:
    values = np.arange(6.0).reshape(3, 1, 2)
    data = [
        wire.encode(Answer("e", "s", 1, z))
        for z in (values.astype("<f8"), values.astype(">f8"), np.flip(np.flip(values)))
    ]
    assert data[0] == data[1] == data[2]
    turned = np.asfortranarray(values)
    assert same(decoded(wire.encode(Answer("e", "s", 1, turned))).z, values)


@given(ASKED | SAID, st.data())
def test_whatever_is_cut_off_is_refused(message: Any, data: st.DataObject) -> None:
    whole = wire.encode(message)
    assert decoded(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


@given(ASKED | SAID, st.binary(min_size=1, max_size=20))
def test_bytes_behind_a_message_are_refused(message: Any, behind: bytes) -> None:
    assert decoded(wire.encode(message) + behind) is None


@given(st.binary(max_size=200), st.binary(max_size=40))
def test_garbage_is_refused(garbage: bytes, body: bytes) -> None:
    for data in (garbage, MAGIC + garbage, raw(garbage, body)):
        assert decoded(data) is None


@given(ASKED | SAID, st.data())
def test_a_changed_byte_gives_another_message_or_none(message: Any, data: st.DataObject) -> None:
    whole = bytearray(wire.encode(message))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    decoded(bytes(whole))


@pytest.mark.parametrize("message", EVERY)
@given(data=st.data())
def test_a_field_of_another_type_is_refused(message: Any, data: st.DataObject) -> None:
    header, body = parts(message)
    name = data.draw(st.sampled_from(sorted(header)))
    value = data.draw(JSON)
    found = decoded(raw(header | {name: value}, body))
    if found is not None and name not in {"array", "kind"}:
        assert type(value) is type(header[name])


@pytest.mark.parametrize("message", EVERY)
def test_a_message_has_its_fields_and_no_other(message: Any) -> None:
    header, body = parts(message)
    for name in header:
        less = {key: value for key, value in header.items() if key != name}
        assert decoded(raw(less, b"" if name == "array" else body)) is None, name
        assert decoded(raw(less, body)) is None, name
    assert decoded(raw(header | {"records": 12}, body)) is None
    others = (QUESTIONS | REPLIES).keys() - {header["kind"]}
    for kind in (*others, "pickle", "", None, 3, ["answer"]):
        found = decoded(raw(header | {"kind": kind}, body))
        assert found is None or isinstance(found, (Ready, Refusal, Closed))  # which are made of words alone


@pytest.mark.parametrize(
    "header",
    [b"{}", b"[]", b"3", b'"kind"', b"null", b"\xff\xfe", b"", b'{"kind":', b"[" * 60_000, b'{"a":' * 10_000, b"NaN",
     b"1" * 60_000],
)  # fmt: skip
def test_headers_that_are_none(header: bytes) -> None:
    assert decoded(raw(header)) is None


@pytest.mark.parametrize("depth", [100, 400, 800, 900, 950])
def test_deep_nests_in_a_header_are_refused(depth: int) -> None:
    header, body = parts(ANSWER)
    deep = "[" * depth + "]" * depth
    for name in ("dtype", "shape"):
        described = json.dumps(header["array"] | {name: "HERE"}).replace('"HERE"', deep)
        text = json.dumps(header | {"array": "HERE"}).replace('"HERE"', described)
        assert decoded(raw(text.encode(), body)) is None


@pytest.mark.parametrize("size", [2**32 - 1, 2**31, HEADER_LIMIT + 1, 10_000])
def test_a_header_length_is_not_believed(size: int) -> None:
    header, body = parts(ANSWER)
    assert decoded(raw(header, body, size)) is None


def test_a_header_over_the_limit_is_refused_even_if_it_is_there() -> None:
    header, body = parts(RoundRequest("e", 1, {f"{n:03}" * 10: n for n in range(2500)}, ZERO))
    assert len(json.dumps(header)) > HEADER_LIMIT
    assert decoded(raw(header, body)) is None


@pytest.mark.parametrize("message", EVERY)
def test_a_message_may_be_as_long_as_its_limit_and_no_longer(message: Any) -> None:
    data = wire.encode(message)
    assert decoded(data, len(data)) is not None
    assert decoded(data, len(data) - 1) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "<f2"}, {"dtype": ">f8"}, {"dtype": "float64"}, {"dtype": "|O"}, {"dtype": "<i8"}, {"dtype": "<c16"},
        {"dtype": None}, {"dtype": ["<f8"]}, {"dtype": {"a": 1}}, {"dtype": "<f4"}, {"shape": [3, 2]}, {"shape": [6]},
        {"shape": [3, 1, 3]}, {"shape": [3, 1, 2, 1]}, {"shape": [3, 1, -2]}, {"shape": [0, 1, 2]}, {"shape": "312"},
        {"shape": [3.0, 1, 2]}, {"shape": [True, 3, 2]}, {"shape": [2**31 - 1] * 3}, {"shape": [2**63, 2**63, 0]},
        {"shape": None}, {"shape": [[3], 1, 2]},
    ],
)  # fmt: skip
def test_numbers_that_are_no_parameters_are_refused(changes: dict[str, Any]) -> None:
    header, body = parts(ANSWER)
    assert decoded(raw(header, body)) is not None
    assert decoded(raw(header | {"array": header["array"] | changes}, body)) is None
    others: list[Any] = [None, [], 3, "<f8", {}, {"dtype": "<f8"}, {"shape": [3, 1, 2]}]
    for described in others:
        assert decoded(raw(header | {"array": described}, body)) is None


@pytest.mark.parametrize("changes", [{"round": -1}, {"round": True}, {"round": 3.0}, {"round": "3"}, {"round": None},
                                     {"site": 3}, {"site": "s" * 4096}, {"experiment": None}])  # fmt: skip
def test_values_out_of_their_range_are_refused(changes: dict[str, Any]) -> None:
    header, body = parts(ANSWER)
    assert decoded(raw(header | changes, body)) is None


@pytest.mark.parametrize("bases", [[], {"north": -1}, {"north": True}, {"north": 1.5}, {"north": None}, "north", 3])
def test_bases_are_counts(bases: Any) -> None:
    header, body = parts(RoundRequest("e", 3, {"north": 2}, ZERO))
    assert decoded(raw(header | {"bases": bases}, body)) is None


@pytest.mark.parametrize("speaks", [[], [1], [1, 2, 3], [2, 1], [0, 1], [-1, 1], [1, 2**16], [1, 10**40], [True, 2],
                                    [1.0, 2], ["1", "2"], "12", {"1": 2}, 1, None, [[1], 2]])  # fmt: skip
def test_versions_are_a_first_and_a_last(speaks: Any) -> None:
    header, body = parts(Invitation("e", "t", (1, 2**16 - 1)))
    assert decoded(raw(header, body)).speaks == (1, 2**16 - 1)
    assert decoded(raw(header | {"speaks": speaks}, body)) is None


class Bomb:
    def __reduce__(self) -> Any:
        raise AssertionError("nothing is ever executed to read a message")


@pytest.mark.parametrize(
    "data", [None, "TACITURN", 3, bytearray(wire.encode(ANSWER)), memoryview(b"x"), [b"x"], ANSWER]
)
def test_what_is_not_bytes_is_refused(data: Any) -> None:
    assert decoded(data) is None


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_refused(protocol: int) -> None:
    for data in (pickle.dumps(list(ANSWER[:3]), protocol), pickle.dumps(Bomb, protocol)):
        assert decoded(data) is None and decoded(raw(data)) is None
        header, _ = parts(ANSWER)
        assert decoded(raw(header, data)) is None


def test_a_message_of_the_other_direction_is_refused() -> None:
    for message in EVERY:
        read = wire.decode_reply if type(message) in QUESTIONS.values() else wire.decode_question
        with pytest.raises(wire.Malformed):
            read(wire.encode(message), LIMIT)


@pytest.mark.parametrize("magic", [b"TACITURN\x02", b"taciturn\x01", b"\x00" * len(MAGIC)])
def test_a_message_of_another_protocol_is_refused(magic: bytes) -> None:
    for message in EVERY:
        assert decoded(magic + wire.encode(message)[len(MAGIC) :]) is None


def test_an_upload_is_hardly_longer_than_its_numbers() -> None:
    z = np.zeros((784, 1, 10), dtype="float32")
    data = wire.encode(Answer("0" * 32, "the-clinic-with-the-longest-name-of-all-41", 10**9, z))
    assert len(data) <= 1.1 * z.nbytes


def test_digests_tell_shapes_apart() -> None:
    assert wire.array_digest(np.zeros((2, 1, 3))) != wire.array_digest(np.zeros((3, 1, 2)))
    assert wire.array_digest(np.zeros((2, 1, 3))) != wire.array_digest(-np.zeros((2, 1, 3)))
    assert wire.array_digest(np.asfortranarray(np.ones((2, 1, 3)))) == wire.array_digest(np.ones((2, 1, 3)))
