"""What a server and its colluders can do with everything they see: shares, uploads, and the colluders' own secrets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from taciturn.secure_sum.epoch_messages import Directory
from taciturn.secure_sum.masking import Integers, Words, centred, pair_key, pair_mask, self_mask, unpack
from taciturn.secure_sum.shamir import join, lagrange_weights, read_elements
from taciturn.secure_sum.slot import SlotRules, SlotState
from taciturn.secure_sum.slot_messages import (
    AliveRequest,
    AliveSignature,
    MaskedUpload,
    RevealedShares,
    ShareRequest,
    SumQuestion,
    alive_statement,
    receipt_statement,
)
from taciturn.secure_sum.sum_context import Signer, SumStudy
from tests.secure_sum.helpers import W, group, study_of

PAIR, OWN = "pair", "own"


class Victim(Protocol):
    """A site that a malicious server asks: its rules alone, or a whole agent."""

    @property
    def now(self) -> SlotState: ...
    @property
    def slots(self) -> SlotRules: ...
    def upload(self, question: SumQuestion, y: Integers, w: bytes) -> bytes: ...
    def agree(self, data: bytes) -> bytes: ...
    def reveal(self, data: bytes) -> bytes: ...


class Sites(Protocol):
    """All sites of a study."""

    @property
    def study(self) -> SumStudy: ...
    @property
    def now(self) -> Directory: ...
    @property
    def members(self) -> Mapping[int, Victim]: ...
    def signer(self, site: int) -> Signer: ...
    def question(
        self, slot: int, roster: tuple[int, ...] | None = None, w: bytes = W, round_number: int = 1
    ) -> SumQuestion: ...


@dataclass
class Coalition:
    """A malicious server with the sites `colluders`."""

    made: Sites
    colluders: tuple[int, ...]
    shares: dict[tuple[int, int, int, str], dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    uploads: dict[tuple[int, bytes], tuple[SumQuestion, Words]] = field(default_factory=dict)
    receipts: dict[tuple[int, bytes], bytes] = field(default_factory=dict)

    given: dict[tuple[int, int, int], int] = field(default_factory=dict)  # the colluders' own pair secrets
    directories: dict[int, Directory] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.learn_colluders()

    @property
    def study(self) -> SumStudy:
        return self.made.study

    def learn_colluders(self) -> None:
        """Keep the colluders' shares and secrets of the current epoch."""
        epoch = self.made.now.epoch
        self.directories[epoch] = self.made.now
        for colluder in self.colluders:
            keys = self.made.members[colluder].now.keys
            for slot, secrets in enumerate(keys.secrets):
                if secrets is not None:
                    self.given[epoch, slot, colluder] = secrets.pair
            for slot, held in enumerate(keys.shares):
                for dealer, share in (held or {}).items():
                    self.shares[epoch, slot, dealer, PAIR][colluder] = share.pair
                    self.shares[epoch, slot, dealer, OWN][colluder] = share.own

    def context(self, site: int, question: SumQuestion) -> bytes:
        member = self.made.members[site]
        return member.slots.context(member.now, question)

    def upload(self, sites: tuple[int, ...], question: SumQuestion, y: dict[int, Integers], w: bytes = W) -> None:
        """Ask honest sites for uploads, and keep them with their receipts."""
        for site in sites:
            context = self.context(site, question)
            message = MaskedUpload.from_bytes(self.made.members[site].upload(question, y[site], w))
            self.uploads[site, context] = question, unpack(message.packed, self.study.parameters.width)
            self.receipts[site, context] = message.receipt

    def agree(self, sites: tuple[int, ...], question: SumQuestion, alive: tuple[int, ...]) -> dict[int, bytes]:
        """Ask honest sites to sign a set; colluders sign whatever is wanted."""
        context = self.context(sites[0], question)
        receipts = b"".join(self.receipt(site, context) for site in alive)
        request = AliveRequest(question, alive, receipts).to_bytes()
        signed = {}
        for site in sites:
            signed[site] = AliveSignature.from_bytes(self.made.members[site].agree(request)).signature
        for site in self.colluders:
            signed[site] = self.made.signer(site).sign(alive_statement(self.study, context, alive, site))
        return signed

    def receipt(self, site: int, context: bytes) -> bytes:
        """Return a receipt: a true one, one that a colluder signs, or one that is of something else."""
        if site in self.colluders:
            return self.made.signer(site).sign(receipt_statement(self.study, context, site))
        others = [receipt for (one, _), receipt in self.receipts.items() if one == site]
        return self.receipts.get((site, context), others[-1] if others else bytes(64))

    def reveal(
        self,
        sites: tuple[int, ...],
        question: SumQuestion,
        alive: tuple[int, ...],
        signed: dict[int, bytes] | None = None,
    ) -> None:
        """Ask honest sites for shares, and keep them."""
        signers = tuple(sorted(signed or {}))
        signatures = b"".join((signed or {})[site] for site in signers)
        request = ShareRequest(question, alive, signers, signatures).to_bytes()
        for site in sites:
            answer = RevealedShares.from_bytes(self.made.members[site].reveal(request))
            self.learn(site, question, alive, read_elements(answer.shares))

    def learn(self, site: int, question: SumQuestion, alive: tuple[int, ...], values: list[int]) -> None:
        for dealer, value in zip(question.roster, values[: len(question.roster)], strict=True):
            kind = OWN if dealer in alive else PAIR
            self.shares[question.epoch, question.slot, dealer, kind][site] = value

    def secret(self, question: SumQuestion, site: int, kind: str) -> int | None:
        """Return a secret of which tau shares are known."""
        found = self.shares[question.epoch, question.slot, site, kind]
        threshold = self.study.parameters.threshold(len(self.made.now.sites))
        if len(found) < threshold:
            return None
        points = sorted(found)[:threshold]
        return join(lagrange_weights(points), [found[point] for point in points])

    def colluder_secret(self, question: SumQuestion, site: int) -> int | None:
        """Return a pair secret that is known because its owner colludes, or because enough shares are."""
        return self.given.get((question.epoch, question.slot, site)) or self.secret(question, site, PAIR)

    def opened(self, sites: tuple[int, ...], question: SumQuestion, context: bytes) -> Integers:
        """Return the sum over some honest sites; raise AssertionError if a mask is not known."""
        count = self.study.parameters.dimension
        total = np.zeros(count, np.uint64)
        for site in sites:
            asked, words = self.uploads[site, context]
            own = self.secret(question, site, OWN)
            assert own is not None, f"the self secret of {site} is not known"
            total += words - self_mask(own, site, context, count)
            for other in asked.roster:
                if other not in sites:
                    total -= self.known_mask(question, site, other, context)
        return centred(total, self.study.parameters.width)

    def known_mask(self, question: SumQuestion, site: int, other: int, context: bytes) -> Words:
        count, directory = self.study.parameters.dimension, self.directories[question.epoch]
        for holder, peer in ((other, site), (site, other)):
            secret = self.colluder_secret(question, holder)
            if secret is not None:
                public = directory.announcements[peer].pair_public(question.slot)
                return pair_mask(pair_key(secret), public, (site, other), context, count)
        raise AssertionError(f"no pair secret of {site} and {other} is known")


def coalition(
    rules: type[SlotRules], sites: int, quorum: int, colluders: tuple[int, ...], slots: int = 2, rounds: int = 100
) -> Coalition:
    return Coalition(group(study_of(sites, len(colluders), quorum, rounds=rounds), slots, rules), colluders)
