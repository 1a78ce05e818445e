"""Everything that a study with a secure sum sends, and what its coordinator stores: no secret, no number of a site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from taciturn.algorithms import Agent
from taciturn.algorithms.base import SummableAlgorithm
from taciturn.federation import messages as wire
from taciturn.federation.coordinator import FINISHED
from taciturn.federation.sum_coordinator import SumCoordinator
from taciturn.federation.sum_session import SumSession
from taciturn.federation.sum_terms import noise_number
from taciturn.privacy.noise import SeededNoise
from taciturn.secure_sum.epoch import AnnouncedEpoch
from taciturn.secure_sum.masking import pack, unpack
from taciturn.secure_sum.shamir import PRIME
from taciturn.secure_sum.slot_messages import MaskedUpload, RevealedShares, SumQuestion
from tests.data.helpers import schema_text
from tests.federation import helpers, sum_helpers
from tests.federation.helpers import SEED, Local, conducted
from tests.federation.sum_adversary import NOTHING, crew
from tests.federation.sum_helpers import Losses, SumFederation, asked_in, losing, make_sums, replies_of

WINDOW = 8  # bytes in a row that must not be found
Integers = NDArray[np.int64]


@dataclass
class Tapped(Local):
    """Keeps every byte string that is sent, and every secret that the agents hold in between."""

    wire: list[bytes] = field(default_factory=list)
    secrets: set[int] = field(default_factory=set)  # a and b, in all epochs
    box_keys: set[bytes] = field(default_factory=set)
    questions: dict[tuple[int, int], SumQuestion] = field(default_factory=dict)

    def request(self, questions: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        replies = super().request(questions, seconds)
        self.wire += [*questions.values(), *(data for left in self.left.values() for data in left[-1:])]
        for data in questions.values():
            question = asked_in(wire.decode_question(data, 1 << 22))
            if question is not None:
                self.questions[question.epoch, question.slot] = question
        for agent in self.agents.values():
            self.learn(agent._session)
        return replies

    def learn(self, session: Any) -> None:
        prepared = session.prepared if isinstance(session, SumSession) else None
        if isinstance(prepared, AnnouncedEpoch):
            self.box_keys.add(prepared.box_key)
            for own in prepared.secrets:
                self.secrets |= {own.pair, own.own}


def windows(data: bytes) -> set[bytes]:
    return {data[at : at + WINDOW] for at in range(len(data) - WINDOW + 1)}


def forms(numbers: Integers) -> list[bytes]:
    """Return how numbers may be written: 40 to 64 bits, whole or floating, in either order of the bytes."""
    words = numbers.view(np.uint64)
    found = [numbers.astype(kind).tobytes() for kind in ("<i8", ">i8", "<f8", ">f8")]
    for width in (40, 48, 56):
        found += [pack(words, width), pack(words.byteswap() >> np.uint64(64 - width), width)]
    return found


def significant(data: bytes) -> set[bytes]:
    """Return the windows that are not mostly the padding of a small number."""
    return {one for one in windows(data) if len(set(one)) > 4}


@dataclass
class Site:
    """What one site wants to hide in a slot: its numbers, their noise, and the records' part."""

    sent: Integers
    noise: Integers
    clean: Integers


class Silent:
    """A noise source that draws zeros."""

    def integers(self, update: int, mechanism: str, scale: Any, like: Any) -> Integers:
        return np.zeros(like.shape, np.int64)


def hidden(federation: SumFederation, site: int, question: SumQuestion, sent: Any) -> Site:
    agreement = federation.agreement
    algorithm = cast(SummableAlgorithm, agreement.algorithm)
    zero, shard = agreement.zero, federation.shards()[site]
    number = noise_number(question.epoch, question.slot)
    sources: list[Any] = [SeededNoise((SEED,), site, number, agreement.part.batch.streams), Silent()]
    found = [
        np.asarray(algorithm.local_gradient(question.round, sent, Agent(zero, zero), shard, noise).gradient, np.int64)
        for noise in sources
    ]
    whole, clean = (one.reshape(-1) for one in found)
    return Site(whole, whole - clean, clean)


def test_the_wire_holds_no_secret_and_no_number_of_a_single_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sites are lost before the upload and before the shares, so that every step of the protocol is on the wire."""
    monkeypatch.setattr(helpers, "SCHEMA", schema_text("ill", ["no", "yes"], age=[0, 100], weight=[0, 200]))
    names = ("s1", "s2", "s3", "s4", "s5", "s6", "s7")
    federation = make_sums(tmp_path, {"study": {"missing": 2, "features": "bins"}}, names=names)
    with federation.agents() as agents:
        exchange, study = Tapped(agents), federation.summing()
        losses: Losses = {("s2", wire.UPLOAD, 2): "answer", ("s3", wire.UPLOAD, 3): "question"}
        losses |= {("s4", wire.REVEAL, 2): "question", ("s5", wire.AGREE, 3): "answer"}
        exchange.fault = losing(exchange, losses)
        assert conducted(study, exchange) == FINISHED
    sent = {asked.w: message.w for message, _ in exchange.asked
            if isinstance(message, wire.SumRoundRequest) and (asked := asked_in(message))}  # fmt: skip
    on_wire = set[bytes]().union(*map(windows, exchange.wire))
    assert len(exchange.secrets) == 7 * 2 * 7 and len(exchange.box_keys) == 7
    for key in exchange.box_keys:
        assert not windows(key) & on_wire
    revealed = {value for name in names for value in joined(exchange, name)}
    for secret in exchange.secrets:
        for order in ("big", "little"):
            assert not windows(secret.to_bytes(32, order)) & on_wire
        assert secret not in revealed  # shares leave; secrets do not
    stored = stored_bytes(study)
    looked = 0
    for question in exchange.questions.values():
        for site in range(7):
            secret_numbers = hidden(federation, site, question, sent[question.w])
            for numbers in (secret_numbers.sent, secret_numbers.noise, secret_numbers.clean):
                for form in forms(numbers):
                    looked += len(significant(form))
                    assert not significant(form) & on_wire
                    assert not significant(form) & stored
    assert looked > 100_000
    for name in names:  # not even under its masks is a single upload stored
        for data in replies_of(exchange, name, wire.UPLOAD):
            packed = MaskedUpload.from_bytes(data).packed
            assert not windows(packed) & stored
            assert not windows(unpack(packed, 40).tobytes()) & stored


def joined(exchange: Tapped, site: str) -> list[int]:
    """Return the field elements that a site sent as shares."""
    shares = [RevealedShares.from_bytes(data).shares for data in replies_of(exchange, site, wire.REVEAL)]
    found = [int.from_bytes(one[at : at + 32], "big") for one in shares for at in range(0, len(one), 32)]
    assert all(value < PRIME for value in found)
    return found


def stored_bytes(study: SumCoordinator) -> set[bytes]:
    """Return all windows of the files in the coordinator's folder."""
    files = [path for path in study.folder.path.rglob("*") if path.is_file()]
    assert {"sum-masked.npz", "sum-question.npz", "sum-epoch.npz"} <= {path.name for path in files}
    return set[bytes]().union(*(windows(path.read_bytes()) for path in files))


COLUMNS = {f"column{n}": [f"v{k}" for k in range(250)] for n in range(20)}


def test_masked_uploads_of_zeros_are_uniform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200,000 numbers of a real agent whose gradient and noise are zero: bytes, pairs of bytes and lowest bits."""
    monkeypatch.setattr(helpers, "SCHEMA", schema_text("ill", ["no", "yes"], **COLUMNS))
    monkeypatch.setattr(sum_helpers, "write_table", write_wide)
    real = SumSession._gradient

    def zeros(self: SumSession, *given: Any) -> Any:
        integers, event = real(self, *given)
        return np.zeros_like(integers), event

    monkeypatch.setattr(SumSession, "_gradient", zeros)
    monkeypatch.setattr(sum_helpers, "SUM_STUDY", sum_helpers.SUM_STUDY | {"features": "bins", "rounds": 17})
    with crew(tmp_path, ("s1", "s2", "s3"), missing=0, begun=False) as made:
        made.invite()
        made.begin_epoch(0, 20)
        packed = []
        for slot in range(20):
            upload = MaskedUpload.from_bytes(made.members[1].upload(made.question(slot), NOTHING, b""))
            packed.append(np.frombuffer(upload.packed, np.uint8))
    data = np.concatenate(packed)
    numbers = data.reshape(-1, 5)
    assert len(numbers) > 200_000
    low = np.packbits((numbers[: len(numbers) // 8 * 8, 0] & 1).reshape(-1, 8), axis=1)[:, 0]
    for values, kinds in ((data, 256), (data[: len(data) // 2 * 2].view("<u2"), 65536), (low, 256)):
        counts = np.bincount(values, minlength=kinds)
        statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
        assert 1e-5 < chi2.sf(statistic, kinds - 1) < 1 - 1e-5


def write_wide(path: Path, seed: int, rows: int = 12) -> Path:
    def cells(row: int) -> list[str]:
        return [*(f"v{(seed + row + n) % 250}" for n in range(len(COLUMNS))), "yes" if row % 2 else "no"]

    lines = [",".join(line) for line in ([*COLUMNS, "ill"], *map(cells, range(rows)))]
    path.write_text("\n".join(lines) + "\n")
    return path
