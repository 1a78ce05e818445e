"""The rules of a slot at a site. A slot serves one attempt at one round, once.

Each method of `SlotRules` takes the site's state and a message, and returns a `SlotStep`. The caller writes the step's
state to disk in one transaction, then charges the ledger if the step says so, and only then lets the reply leave.

1. A site uploads at most once in a slot, for one context. The same question gets the same bytes.
2. It has at most one opinion in a slot: one context and one set U. If U is not the roster, it signs U only with a
   receipt of every member for this context, and reveals shares only with the signatures of tau sites on exactly this.
   If U is the roster, only a site that uploaded under this context reveals. A site with an opinion and no upload does
   not upload any more. A site that uploaded has opinions under its own context only.
3. It never reveals shares of both secrets of one site. This follows from rule 2, and is checked again.
4. U has at least q sites, U is within the roster, and the roster is within the cohort.
5. An upload in a slot ends all older slots: their secrets, shares and records are struck out in the same transaction,
   and so are the site's own two secrets of this slot.
6. Numbers are drawn for one slot and used for nothing else. A site makes at most T + reserve uploads of gradients in a
   study, and as many of measures as its plan pays for. The two are counted apart.
7. State first, then the ledger, then the bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from taciturn.errors import PrivacyViolation
from taciturn.secure_sum.epoch import BegunEpoch, SlotSecrets
from taciturn.secure_sum.masking import Integers, masked, pack
from taciturn.secure_sum.parameters import MEASURES
from taciturn.secure_sum.shamir import element_bytes
from taciturn.secure_sum.slot_messages import (
    AliveRequest,
    AliveSignature,
    MaskedUpload,
    RevealedShares,
    ShareRequest,
    SumQuestion,
    alive_statement,
    receipt_statement,
    signatures_of,
)
from taciturn.secure_sum.sum_context import Signer, SumStudy
from taciturn.secure_sum.sum_wire import SumRefused

NONE_BEGUN = -1  # the newest slot before the first upload


@dataclass(frozen=True)
class SlotRecord:
    """What a site has said in a slot: one row of its journal.

    Attributes
    ----------
    context
        The one context of the slot at this site, 32 bytes.
    upload
        The bytes that left, or empty if there was no upload.
    alive
        The one set that the site has signed or revealed shares for, or empty.
    """

    context: bytes
    upload: bytes = field(default=b"", repr=False)
    alive: tuple[int, ...] = ()


@dataclass(frozen=True)
class SlotState:
    """A site's state in an epoch that has begun.

    Attributes
    ----------
    keys
        Directory, secrets and shares. Those of older slots are struck out.
    records
        What the site has said, by slot; nothing of slots that have ended.
    newest
        The newest slot in which it uploaded.
    charged
        Its uploads in the whole study, in all epochs: of gradients and of measures.

    Raises
    ------
    SumRefused
        If the epoch has not begun.
    """

    keys: BegunEpoch
    records: Mapping[int, SlotRecord] = field(default_factory=lambda: MappingProxyType({}))
    newest: int = NONE_BEGUN
    charged: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if not isinstance(self.keys, BegunEpoch):
            raise SumRefused("this epoch has not begun: the cohort has not signed that it holds its shares")


class SlotStep(NamedTuple):
    """The result of a rule: what is journaled, and what leaves."""

    state: SlotState  # to be on disk before the reply leaves; what it has struck out is deleted in the same transaction
    slot: int  # whose record changed
    record: SlotRecord
    reply: bytes  # leaves
    charge: bool  # whether a new upload must be charged before the reply leaves


def next_epoch(state: SlotState, keys: BegunEpoch) -> SlotState:
    """Return the state of a site that begins a newer epoch. Nothing of the older one is answered any more.

    Raises
    ------
    SumRefused
        If the epoch is not newer.
    """
    if keys.directory.epoch <= state.keys.directory.epoch:
        raise SumRefused(f"epoch {keys.directory.epoch} is not newer than epoch {state.keys.directory.epoch}")
    return SlotState(keys, charged=state.charged)


@dataclass(frozen=True)
class SlotRules:
    """One site's rules of a slot; see the module for the list.

    Attributes
    ----------
    study
        The study.
    site
        The number of this site.
    signer
        Its private identity.
    """

    study: SumStudy
    site: int
    signer: Signer = field(repr=False)

    def upload(self, state: SlotState, data: bytes, w: bytes, draw: Callable[[], Integers]) -> SlotStep:
        """Answer a question with masked numbers and a receipt.

        Parameters
        ----------
        state : SlotState
            The site's state.
        data : bytes
            A `SumQuestion`.
        w : bytes
            The model that came with it.
        draw : callable
            Returns the site's whole numbers with fresh noise. It is called at most once, and only for a new upload.

        Raises
        ------
        SumRefused
            If the question breaks a rule.
        """
        question = SumQuestion.from_bytes(data)
        context, record = self._find(state, question)
        self.check_model(question, w)
        self.check_context(record, context)
        if record is not None and record.upload:
            return SlotStep(state, question.slot, record, record.upload, charge=False)
        self.check_unused(state, question, record)
        self.check_roster(question)
        self.check_charges(state, question)
        secrets = self._secrets(state, question.slot)
        publics = state.keys.directory.announcements
        others = {site: publics[site].pair_public(question.slot) for site in question.roster if site != self.site}
        integers = self._checked(draw(), question)
        packed = pack(masked(integers, (secrets.pair, secrets.own), self.site, others, context), self._width)
        receipt = self.signer.sign(receipt_statement(self.study, context, self.site))
        reply = MaskedUpload(self.site, question.epoch, question.slot, packed, receipt).to_bytes()
        charged = [count + (subject == question.subject) for subject, count in enumerate(state.charged)]
        began = self.without_old_slots(replace(state, newest=question.slot, charged=(charged[0], charged[1])))
        return self._step(began, question.slot, SlotRecord(context, reply), reply, charge=True)

    def agree(self, state: SlotState, data: bytes) -> SlotStep:
        """Sign the set of sites that uploaded, if a site of the roster is missing.

        Parameters
        ----------
        state : SlotState
            The site's state.
        data : bytes
            An `AliveRequest`.

        Raises
        ------
        SumRefused
            If the request breaks a rule.
        """
        request = AliveRequest.from_bytes(data)
        question, alive = request.question, request.alive
        context, record = self._find(state, question)
        if alive == question.roster:
            raise SumRefused("nobody is missing, so there is nothing to sign: ask for the shares")
        self.check_opinion(state, question, record, context, alive)
        self.check_receipts(context, alive, signatures_of(alive, request.receipts))
        signature = self.signer.sign(alive_statement(self.study, context, alive, self.site))
        reply = AliveSignature(self.site, question.epoch, question.slot, signature).to_bytes()
        return self._step(state, question.slot, _with_opinion(record, context, alive), reply)

    def reveal(self, state: SlotState, data: bytes) -> SlotStep:
        """Reveal one share for each site of the roster.

        Parameters
        ----------
        state : SlotState
            The site's state.
        data : bytes
            A `ShareRequest`.

        Raises
        ------
        SumRefused
            If the request breaks a rule.
        """
        request = ShareRequest.from_bytes(data)
        question, alive = request.question, request.alive
        context, record = self._find(state, question)
        self.check_opinion(state, question, record, context, alive)
        if alive != question.roster:
            self.check_signatures(state, context, alive, signatures_of(request.signers, request.signatures))
        else:
            self.check_uploaded(record, context)
        held = state.keys.shares[question.slot]
        if held is None:
            raise SumRefused(f"the shares of slot {question.slot} were deleted")
        shares = [held[site].own if site in alive else held[site].pair for site in question.roster]
        packed = b"".join(map(element_bytes, shares))
        reply = RevealedShares(self.site, question.epoch, question.slot, packed).to_bytes()
        return self._step(state, question.slot, _with_opinion(record, context, alive), reply)

    def context(self, state: SlotState, question: SumQuestion) -> bytes:
        """Return chi of a question under this site's own directory."""
        return question.context(self.study, state.keys.directory.digest)

    def check_model(self, question: SumQuestion, w: bytes) -> None:
        """Raise unless the question names the model that came with it."""
        if hashlib.sha256(w).digest() != question.w:
            raise SumRefused("the question names another model than the one that came with it")

    def check_context(self, record: SlotRecord | None, context: bytes) -> None:
        """Raise if the slot was used for another question: rules 1 and 2."""
        if record is not None and record.context != context:
            raise SumRefused("this slot has been used for another question at this site")

    def check_unused(self, state: SlotState, question: SumQuestion, record: SlotRecord | None) -> None:
        """Raise if the slot cannot take an upload: an opinion was given, or a newer slot has begun (rules 2 and 5)."""
        if question.slot <= state.newest:
            raise SumRefused(f"slot {question.slot} has ended here: slot {state.newest} has begun")
        if record is not None:
            raise SumRefused("this site has agreed to a set of this slot without an upload, so it cannot upload now")

    def check_roster(self, question: SumQuestion) -> None:
        """Raise unless this site is on the roster, which has at least q sites (rule 4)."""
        quorum = self.study.parameters.quorum
        if self.site not in question.roster:
            raise SumRefused("this site is not on the roster of the question")
        if len(question.roster) < quorum:
            raise SumRefused(f"a roster of {len(question.roster)} sites is too small: the quorum is {quorum}")

    def check_charges(self, state: SlotState, question: SumQuestion) -> None:
        """Raise if the plan does not pay for another upload of what is asked (rule 6)."""
        parameters, subject = self.study.parameters, question.subject
        if state.charged[subject] >= parameters.paid(subject):
            what, paid = "uploads", f"{parameters.rounds} rounds and a reserve of {parameters.reserve}"
            if subject == MEASURES:
                what, paid = "evaluations", f"{parameters.evaluations}"
            raise SumRefused(
                f"this site has made {state.charged[subject]} {what} in this study; the plan pays for {paid}"
            )

    def check_opinion(
        self, state: SlotState, question: SumQuestion, record: SlotRecord | None, context: bytes, alive: tuple[int, ...]
    ) -> None:
        """Raise unless this site may hold this opinion: rules 2, 4 and 5."""
        self.check_live(state, question)
        self.check_quorum(question, alive)
        self.check_context(record, context)
        self.check_one_set(record, alive)
        if self.site in alive:
            self.check_uploaded(record, context)

    def check_one_set(self, record: SlotRecord | None, alive: tuple[int, ...]) -> None:
        """Raise if this site has agreed to another set of this slot (rule 2)."""
        if record is not None and record.alive and record.alive != alive:
            raise SumRefused("this site has agreed to another set of this slot")

    def check_live(self, state: SlotState, question: SumQuestion) -> None:
        """Raise if a newer slot has begun at this site (rule 5)."""
        if question.slot < state.newest:
            raise SumRefused(f"slot {question.slot} has ended here: slot {state.newest} has begun")

    def check_quorum(self, question: SumQuestion, alive: tuple[int, ...]) -> None:
        """Raise unless U is within the roster and has at least q sites (rule 4)."""
        quorum = self.study.parameters.quorum
        if not set(alive) <= set(question.roster):
            raise SumRefused("the set to open has sites that are not on the roster")
        if len(alive) < quorum:
            raise SumRefused(f"a sum of {len(alive)} sites has too little noise: the quorum is {quorum}")

    def check_uploaded(self, record: SlotRecord | None, context: bytes) -> None:
        """Raise unless this site has uploaded under this context."""
        if record is None or not record.upload or record.context != context:
            raise SumRefused("this site has not uploaded under this context, so it does not help to open this set")

    def check_receipts(self, context: bytes, alive: tuple[int, ...], receipts: Mapping[int, bytes]) -> None:
        """Raise unless every member of U has signed that it uploaded under this context (rule 2)."""
        for site in alive:
            if not self.study.verify(site, receipt_statement(self.study, context, site), receipts[site]):
                raise SumRefused(f"there is no receipt of site {site} for this context")

    def check_signatures(
        self, state: SlotState, context: bytes, alive: tuple[int, ...], signatures: Mapping[int, bytes]
    ) -> None:
        """Raise unless tau sites of the cohort have signed exactly this context and set (rule 2)."""
        cohort = state.keys.directory.sites
        threshold = self.study.parameters.threshold(len(cohort))
        for site, signature in signatures.items():
            statement = alive_statement(self.study, context, alive, site)
            if site not in cohort or not self.study.verify(site, statement, signature):
                raise SumRefused(f"the signature of site {site} is not of this context and set, or not of the cohort")
        if len(signatures) < threshold:
            raise SumRefused(f"this set has {len(signatures)} of the {threshold} signatures needed")

    def check_change(self, before: SlotRecord | None, after: SlotRecord) -> None:
        """Raise PrivacyViolation if a record would be replaced and not extended: rules 1 to 3 once more."""
        if before is not None and (
            before.context != after.context
            or before.upload not in (b"", after.upload)
            or before.alive not in ((), after.alive)
            or (before.alive and not before.upload and after.upload)
        ):
            raise PrivacyViolation("a slot of the secure sum would be used twice")

    def without_old_slots(self, state: SlotState) -> SlotState:
        """Return the state without shares and records of older slots, and without own secrets up to the newest one.

        After an upload nobody needs the site's own secrets again: the same question gets the bytes in the record.
        """
        old = state.newest
        keys = replace(
            state.keys,
            secrets=(None,) * (old + 1) + state.keys.secrets[old + 1 :],
            shares=(None,) * old + state.keys.shares[old:],
        )
        records = {slot: record for slot, record in state.records.items() if slot >= old}
        return replace(state, keys=keys, records=MappingProxyType(records))

    def _find(self, state: SlotState, question: SumQuestion) -> tuple[bytes, SlotRecord | None]:
        """Return the context of a question about a slot of this epoch and cohort, and what was said in the slot."""
        directory = state.keys.directory
        if question.epoch != directory.epoch:
            raise SumRefused(f"the question is about epoch {question.epoch}; epoch {directory.epoch} has begun here")
        if question.slot >= directory.slots:
            raise SumRefused(f"there is no slot {question.slot}: the epoch has {directory.slots}, counted from 0")
        if not set(question.roster) <= set(directory.sites):
            raise SumRefused("the roster has sites that are not in the cohort")
        if not 1 <= question.round <= self.study.parameters.rounds:
            raise SumRefused(f"there is no round {question.round}: the study has {self.study.parameters.rounds}")
        return self.context(state, question), state.records.get(question.slot)

    @property
    def _width(self) -> int:
        return self.study.parameters.width

    def _secrets(self, state: SlotState, slot: int) -> SlotSecrets:
        secrets = state.keys.secrets[slot]
        if secrets is None:
            raise SumRefused(f"the secrets of slot {slot} were deleted")
        return secrets

    def _checked(self, integers: Integers, question: SumQuestion) -> Integers:
        wanted = (self.study.parameters.size(question.subject),)
        if not isinstance(integers, np.ndarray) or integers.dtype != np.int64 or integers.shape != wanted:
            raise SumRefused(f"the numbers to sum must be whole numbers of 64 bits, {wanted[0]} of them")
        return integers

    def _step(
        self,
        state: SlotState,
        slot: int,
        record: SlotRecord,
        reply: bytes,
        charge: bool = False,
    ) -> SlotStep:
        self.check_change(state.records.get(slot), record)
        records = MappingProxyType({**state.records, slot: record})
        return SlotStep(replace(state, records=records), slot, record, reply, charge)


def _with_opinion(record: SlotRecord | None, context: bytes, alive: tuple[int, ...]) -> SlotRecord:
    return replace(record or SlotRecord(context), context=context, alive=alive)
