"""Messages of a slot, which serves one attempt at one round.

server → site   SumQuestion      model, roster and slot of a round
site → server   MaskedUpload     masked numbers, and a receipt for this context
server → site   AliveRequest     who uploaded, with all receipts; only if a site is missing
site → server   AliveSignature   this site agrees to this set, and to no other in this slot
server → site   ShareRequest     the set to open, with the signatures if a site is missing
site → server   RevealedShares   for each site of the roster one share: of its self secret or of its pair secret
"""

from __future__ import annotations

from dataclasses import dataclass, field

from taciturn.secure_sum.parameters import GRADIENT, SUBJECTS
from taciturn.secure_sum.shamir import ELEMENT_BYTES
from taciturn.secure_sum.sum_context import DIGEST_BYTES, SIGNATURE_BYTES, SumStudy, numbers
from taciturn.secure_sum.sum_wire import SumMessage, by_site, is_increasing


@dataclass(frozen=True)
class SumQuestion(SumMessage):
    """What a roster of sites is asked in one slot. The model itself travels beside it."""

    KIND = "sum-question"
    epoch: int
    slot: int
    round: int
    roster: tuple[int, ...]  # R
    w: bytes  # SHA-256 of the model
    subject: int = GRADIENT  # or MEASURES

    def __post_init__(self) -> None:
        self.require(is_increasing(self.roster), "the sites of a roster must be in increasing order")
        self.require(len(self.w) == DIGEST_BYTES, "a digest of the model has 32 bytes")
        self.require(self.subject in SUBJECTS, "a sum is of gradients (0) or of measures (1)")

    def context(self, study: SumStudy, directory: bytes) -> bytes:
        """Return chi; a site always computes it from the question and its own directory."""
        return study.context(self.epoch, directory, self.slot, self.round, self.roster, self.w, self.subject)


@dataclass(frozen=True)
class MaskedUpload(SumMessage):
    """A site's numbers under its masks, and the receipt: its signature that it uploaded under this context."""

    KIND = "sum-upload"
    site: int
    epoch: int
    slot: int
    packed: bytes = field(repr=False)
    receipt: bytes

    def __post_init__(self) -> None:
        self.require(len(self.receipt) == SIGNATURE_BYTES, "a receipt has 64 bytes")


@dataclass(frozen=True)
class AliveRequest(SumMessage):
    """The set U that the server wants to open, with a receipt of every member."""

    KIND = "sum-alive"
    question: SumQuestion
    alive: tuple[int, ...]  # U
    receipts: bytes = field(repr=False)

    def __post_init__(self) -> None:
        self.require(is_increasing(self.alive), "the sites of a set must be in increasing order")
        self.require(len(self.receipts) == SIGNATURE_BYTES * len(self.alive), "every member has one receipt")


@dataclass(frozen=True)
class AliveSignature(SumMessage):
    """A site's signature on a context and a set."""

    KIND = "sum-signature"
    site: int
    epoch: int
    slot: int
    signature: bytes

    def __post_init__(self) -> None:
        self.require(len(self.signature) == SIGNATURE_BYTES, "a signature has 64 bytes")


@dataclass(frozen=True)
class ShareRequest(SumMessage):
    """The set U to open. Where U is not the whole roster, it comes with the signatures of tau sites."""

    KIND = "sum-open"
    question: SumQuestion
    alive: tuple[int, ...]  # U
    signers: tuple[int, ...]
    signatures: bytes = field(repr=False)

    def __post_init__(self) -> None:
        self.require(is_increasing(self.alive), "the sites of a set must be in increasing order")
        self.require(not self.signers or is_increasing(self.signers), "signers must be in increasing order")
        self.require(len(self.signatures) == SIGNATURE_BYTES * len(self.signers), "every signer has one signature")


@dataclass(frozen=True)
class RevealedShares(SumMessage):
    """One share for each site of the roster, in its order.

    The message has no room for a second share: for a member of U it is a share of the self secret, for another site of
    the roster a share of the pair secret.
    """

    KIND = "sum-shares"
    site: int
    epoch: int
    slot: int
    shares: bytes = field(repr=False)

    def __post_init__(self) -> None:
        self.require(len(self.shares) % ELEMENT_BYTES == 0, "a share has 32 bytes")


def receipt_statement(study: SumStudy, context: bytes, site: int) -> bytes:
    """Return what a site signs when it uploads."""
    return study.statement(b"uploaded", context, numbers([site]))


def alive_statement(study: SumStudy, context: bytes, alive: tuple[int, ...], site: int) -> bytes:
    """Return what a site signs when it agrees to open a set."""
    return study.statement(b"alive", context, numbers(alive), numbers([site]))


def signatures_of(sites: tuple[int, ...], signatures: bytes) -> dict[int, bytes]:
    """Return the signature of each site."""
    return by_site(sites, signatures, SIGNATURE_BYTES)
