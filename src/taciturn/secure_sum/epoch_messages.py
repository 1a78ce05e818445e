"""Messages of an epoch, in which keys for many slots are made ahead.

server → site   EpochRequest   number and length of a new epoch
site → server   Announcement   public keys of all slots, signed
server → site   Directory      the announcements of the cohort
site → server   Deal           a box of shares for every other site, each signed
server → site   BoxDelivery    the boxes for one site
site → server   HeldShares     a signature: this site has all its shares, under this directory
                UnopenedBoxes  or whose boxes it cannot open
server → site   Roll           the signatures of the whole cohort: the epoch begins
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from taciturn.secure_sum.masking import KEY_BYTES
from taciturn.secure_sum.parameters import SITES_LIMIT, SLOTS_LIMIT
from taciturn.secure_sum.shamir import ELEMENT_BYTES
from taciturn.secure_sum.sum_context import DIGEST_BYTES, HPKE_BYTES, SIGNATURE_BYTES, SumStudy, digest_of, numbers
from taciturn.secure_sum.sum_wire import SumMessage, by_site, is_increasing

SLOT_BYTES = 2 * KEY_BYTES  # of an announcement: the pair's public key and the fingerprint
SHARES_BYTES = 2 * ELEMENT_BYTES  # of a box, for each slot


@dataclass(frozen=True)
class EpochRequest(SumMessage):
    """The server asks for the keys of an epoch.

    `study` is the digest of the study as the server computes it, so that a site with another one can say so. Nothing
    rests on it: everything that a site signs names its own digest.
    """

    KIND = "sum-epoch"
    epoch: int
    slots: int
    study: bytes = b""  # 32 bytes, or empty

    def __post_init__(self) -> None:
        self.require(len(self.study) in (0, DIGEST_BYTES), "a digest of the study has 32 bytes")


@dataclass(frozen=True)
class Announcement(SumMessage):
    """A site's public keys of one epoch."""

    KIND = "sum-announcement"
    site: int
    epoch: int
    slots: int
    box: bytes  # 32: the X25519 key that shares are encrypted to
    keys: bytes  # for each slot: the pair's public key and the fingerprint of the self secret
    signature: bytes

    def __post_init__(self) -> None:
        self.require(1 <= self.site <= SITES_LIMIT, f"sites have the numbers 1 to {SITES_LIMIT}")
        self.require(1 <= self.slots <= SLOTS_LIMIT, f"an epoch has 1 to {SLOTS_LIMIT} slots")
        self.require(len(self.box) == KEY_BYTES, "a box key has 32 bytes")
        self.require(len(self.keys) == SLOT_BYTES * self.slots, "there are two keys for every slot")
        self.require(len(self.signature) == SIGNATURE_BYTES, "a signature has 64 bytes")

    def statement(self, study: SumStudy) -> bytes:
        """Return what the site signs."""
        return study.statement(b"announcement", numbers((self.site, self.epoch, self.slots)), self.box, self.keys)

    def pair_public(self, slot: int) -> bytes:
        """Return the public key of a slot, 32 bytes."""
        return self.keys[SLOT_BYTES * slot : SLOT_BYTES * slot + KEY_BYTES]

    def fingerprint(self, slot: int) -> bytes:
        """Return the fingerprint of the self secret of a slot, 32 bytes."""
        return self.keys[SLOT_BYTES * slot + KEY_BYTES : SLOT_BYTES * (slot + 1)]


@dataclass(frozen=True)
class Directory(SumMessage):
    """The announcements of a cohort, in the order of the sites."""

    KIND = "sum-directory"
    epoch: int
    slots: int
    sites: tuple[int, ...]
    entries: bytes  # for each site: box key, keys of the slots, signature

    def __post_init__(self) -> None:
        self.require(1 <= self.slots <= SLOTS_LIMIT, f"an epoch has 1 to {SLOTS_LIMIT} slots")
        self.require(is_increasing(self.sites), "the sites of a cohort must be in increasing order")
        self.require(len(self.entries) == self._size * len(self.sites), "every site has one announcement")

    @classmethod
    def of(cls, announcements: list[Announcement]) -> Directory:
        """Return the directory of announcements of one epoch."""
        ordered = sorted(announcements, key=lambda one: one.site)
        entries = b"".join(one.box + one.keys + one.signature for one in ordered)
        return cls(ordered[0].epoch, ordered[0].slots, tuple(one.site for one in ordered), entries)

    @property
    def _size(self) -> int:
        return KEY_BYTES + SLOT_BYTES * self.slots + SIGNATURE_BYTES

    @cached_property
    def announcements(self) -> dict[int, Announcement]:
        """The announcement of every site; nobody has verified its signature."""
        found = {}
        for site, entry in by_site(self.sites, self.entries, self._size).items():
            box, keys, signature = entry[:KEY_BYTES], entry[KEY_BYTES:-SIGNATURE_BYTES], entry[-SIGNATURE_BYTES:]
            found[site] = Announcement(site, self.epoch, self.slots, box, keys, signature)
        return found

    def others(self, site: int) -> tuple[int, ...]:
        """Return the cohort without one site."""
        return tuple(other for other in self.sites if other != site)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the directory; every key and signature of the epoch is bound to it."""
        return digest_of(b"directory", numbers((self.epoch, self.slots)), numbers(self.sites), self.entries)


def box_size(slots: int) -> int:
    """Return the bytes of one box with its signature."""
    return HPKE_BYTES + SHARES_BYTES * slots + SIGNATURE_BYTES


@dataclass(frozen=True)
class Deal(SumMessage):
    """A site's boxes for the other sites of the cohort: ciphertext and signature each."""

    KIND = "sum-deal"
    site: int
    epoch: int
    slots: int
    receivers: tuple[int, ...]
    boxes: bytes

    def __post_init__(self) -> None:
        _check_boxes(self, self.receivers, self.boxes, self.slots)

    @cached_property
    def by_receiver(self) -> dict[int, bytes]:
        """The box for each site."""
        return by_site(self.receivers, self.boxes, box_size(self.slots))


@dataclass(frozen=True)
class BoxDelivery(SumMessage):
    """The boxes of all other sites of the cohort for one site."""

    KIND = "sum-boxes"
    site: int  # the receiver
    epoch: int
    slots: int
    senders: tuple[int, ...]
    boxes: bytes

    def __post_init__(self) -> None:
        _check_boxes(self, self.senders, self.boxes, self.slots)

    @cached_property
    def by_sender(self) -> dict[int, bytes]:
        """The box of each site."""
        return by_site(self.senders, self.boxes, box_size(self.slots))


@dataclass(frozen=True)
class HeldShares(SumMessage):
    """A site has all its shares of an epoch, under a directory that its signature names."""

    KIND = "sum-held"
    site: int
    epoch: int
    signature: bytes

    def __post_init__(self) -> None:
        self.require(len(self.signature) == SIGNATURE_BYTES, "a signature has 64 bytes")


@dataclass(frozen=True)
class UnopenedBoxes(SumMessage):
    """A site cannot use boxes that these sites signed: they do not open, or do not hold field elements."""

    KIND = "sum-unopened"
    site: int
    epoch: int
    dealers: tuple[int, ...]

    def __post_init__(self) -> None:
        self.require(is_increasing(self.dealers) and self.site not in self.dealers, "the other sites must increase")


@dataclass(frozen=True)
class Roll(SumMessage):
    """The signatures of `HeldShares` of a whole cohort."""

    KIND = "sum-roll"
    epoch: int
    sites: tuple[int, ...]
    signatures: bytes = field(repr=False)

    def __post_init__(self) -> None:
        self.require(is_increasing(self.sites), "the sites of a cohort must be in increasing order")
        self.require(len(self.signatures) == SIGNATURE_BYTES * len(self.sites), "every site has one signature")


def held_statement(study: SumStudy, epoch: int, directory: bytes, site: int) -> bytes:
    """Return what a site signs when it has all its shares."""
    return study.statement(b"held", numbers((epoch, site)), directory)


class BoxAddress(NamedTuple):
    """Whose box for whom, and the epoch and the directory that it belongs to."""

    epoch: int
    directory: bytes  # its digest
    sender: int
    receiver: int

    def binding(self, study: SumStudy) -> bytes:
        """Return the info that the box is encrypted with."""
        return study.statement(b"box", self._numbers, self.directory)

    def statement(self, study: SumStudy, sealed: bytes) -> bytes:
        """Return what the sender of the box signs."""
        return study.statement(b"signed box", self._numbers, self.directory, sealed)

    @property
    def _numbers(self) -> bytes:
        return numbers((self.epoch, self.sender, self.receiver))


def _check_boxes(message: Deal | BoxDelivery, sites: tuple[int, ...], boxes: bytes, slots: int) -> None:
    message.require(1 <= slots <= SLOTS_LIMIT, f"an epoch has 1 to {SLOTS_LIMIT} slots")
    message.require(is_increasing(sites) and message.site not in sites, "the other sites must be in increasing order")
    message.require(len(boxes) == box_size(slots) * len(sites), "every other site has one box of the right size")
