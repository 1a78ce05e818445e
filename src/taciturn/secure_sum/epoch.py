"""A site's rules while an epoch is prepared, and the server's collection of its messages.

    announce → deal → keep → begin

Every step takes the state and returns new state and bytes. The state is written to disk before the bytes leave. A step
that is asked again with the same message returns the same bytes; with another message it refuses. So a site shares its
secrets under one directory only, and signs that it holds shares under one directory only.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from taciturn.secure_sum.epoch_messages import (
    Announcement,
    BoxAddress,
    BoxDelivery,
    Deal,
    Directory,
    EpochRequest,
    HeldShares,
    Roll,
    UnopenedBoxes,
    held_statement,
)
from taciturn.secure_sum.masking import fingerprint, is_sound_public, pair_public
from taciturn.secure_sum.parameters import SLOTS_LIMIT
from taciturn.secure_sum.shamir import element_bytes, random_element, read_elements, split
from taciturn.secure_sum.slot_messages import signatures_of
from taciturn.secure_sum.sum_context import SIGNATURE_BYTES, Signer, SumStudy, hpke_suite
from taciturn.secure_sum.sum_wire import SumMalformed, SumRefused, sites_shown

NEVER = -1  # the epoch number before the first


class BoxesUnopened(SumRefused):
    """Boxes that their dealers signed and that cannot be used. Either a dealer or the site that reports it is at fault.

    Attributes
    ----------
    dealers
        The sites that signed them.
    """

    def __init__(self, dealers: tuple[int, ...]) -> None:
        whose = "boxes" if len(dealers) > 1 else "box"
        verbs = ("do", "do") if len(dealers) > 1 else ("does", "does")
        super().__init__(
            f"the {whose} of {sites_shown(dealers)} {verbs[0]} not open or {verbs[1]} not hold field elements"
        )
        self.dealers = dealers


@dataclass(frozen=True)
class SlotSecrets:
    """What a site knows about one slot: its own two secrets, or a share of another site's."""

    pair: int = field(repr=False)  # a
    own: int = field(repr=False)  # b, for the mask of its own


@dataclass(frozen=True)
class AnnouncedEpoch:
    """A site's state after `announce`."""

    announcement: Announcement
    box_key: bytes = field(repr=False)  # X25519, private
    secrets: tuple[SlotSecrets, ...] = field(repr=False)  # of each slot


@dataclass(frozen=True)
class DealtEpoch:
    """A site's state after `deal`: the one directory that its secrets are shared under."""

    announced: AnnouncedEpoch
    directory: Directory = field(repr=False)
    kept: tuple[SlotSecrets, ...] = field(repr=False)  # its own shares of its own secrets, of each slot
    deal: bytes = field(repr=False)  # what left


@dataclass(frozen=True)
class KeptEpoch:
    """A site's state after `keep`: all its shares. The private box key and other sites' boxes are no longer needed."""

    directory: Directory = field(repr=False)
    secrets: tuple[SlotSecrets | None, ...] = field(repr=False)  # of each slot; None when struck out
    shares: tuple[Mapping[int, SlotSecrets] | None, ...] = field(repr=False)  # of each slot, by dealer


@dataclass(frozen=True)
class BegunEpoch(KeptEpoch):
    """A site's state after `begin`: the whole cohort holds its shares under this directory."""


@dataclass(frozen=True)
class EpochRules:
    """One site's rules of an epoch.

    Attributes
    ----------
    study
        The study.
    site
        The number of this site.
    signer
        Its private identity.
    verified
        The peers whose identities people at this site have compared with the peers themselves. Any other peer counts as
        a colluder.
    """

    study: SumStudy
    site: int
    signer: Signer = field(repr=False)
    verified: frozenset[int]

    def announce(self, epoch: int, slots: int, last: int = NEVER) -> tuple[AnnouncedEpoch, bytes]:
        """Make the keys of an epoch.

        Parameters
        ----------
        epoch, slots : int
            Number and length of the epoch.
        last : int
            The newest epoch that this site ever announced in this study.

        Raises
        ------
        SumRefused
            If the number is not above `last`, or the length is impossible.
        """
        if not (type(epoch) is int and last < epoch < 2**31):
            raise SumRefused(f"epoch {epoch!r:.20} is not new: this site has announced epoch {last}")
        if not (type(slots) is int and 1 <= slots <= SLOTS_LIMIT):
            raise SumRefused(f"an epoch cannot have {slots!r:.20} slots: it has 1 to {SLOTS_LIMIT}")
        box = X25519PrivateKey.generate()
        secrets = tuple(SlotSecrets(random_element(), random_element()) for _ in range(slots))
        keys = b"".join(pair_public(one.pair) + fingerprint(one.own) for one in secrets)
        unsigned = Announcement(
            self.site, epoch, slots, box.public_key().public_bytes_raw(), keys, bytes(SIGNATURE_BYTES)
        )
        announcement = replace(unsigned, signature=self.signer.sign(unsigned.statement(self.study)))
        return AnnouncedEpoch(announcement, box.private_bytes_raw(), secrets), announcement.to_bytes()

    def deal(self, state: AnnouncedEpoch | DealtEpoch, data: bytes) -> tuple[DealtEpoch, bytes]:
        """Check a directory, and share this site's secrets among its cohort.

        Raises
        ------
        SumRefused
            If the directory is invalid, or another one was accepted before.
        """
        directory = Directory.from_bytes(data)
        if isinstance(state, DealtEpoch):
            if state.directory.digest != directory.digest:
                raise SumRefused("this site has shared its secrets under another directory of this epoch")
            return state, state.deal
        self.check_cohort(directory)
        self.check_announcements(directory, state.announcement)
        threshold = self.study.parameters.threshold(len(directory.sites))
        pairs = [split(one.pair, threshold, directory.sites) for one in state.secrets]
        owns = [split(one.own, threshold, directory.sites) for one in state.secrets]
        boxes: list[bytes] = []
        kept: tuple[SlotSecrets, ...] = ()
        for index, receiver in enumerate(directory.sites):
            shares = [(pair[index], own[index]) for pair, own in zip(pairs, owns, strict=True)]
            if receiver == self.site:
                kept = tuple(SlotSecrets(*both) for both in shares)
            else:
                plain = b"".join(element_bytes(value) for both in shares for value in both)
                boxes.append(self._box(directory, receiver, plain))
        others = directory.others(self.site)
        deal = Deal(self.site, directory.epoch, directory.slots, others, b"".join(boxes)).to_bytes()
        return DealtEpoch(state, directory, kept, deal), deal

    def keep(self, state: DealtEpoch | KeptEpoch, data: bytes) -> tuple[KeptEpoch, bytes]:
        """Open the boxes for this site, and sign that it holds all its shares under its directory.

        Raises
        ------
        BoxesUnopened
            If boxes that their senders signed do not open. It names the senders.
        SumRefused
            If a box is missing, or not signed by its sender. The message names the sender.
        """
        if isinstance(state, KeptEpoch):
            return state, self._held(state.directory)
        delivery, directory = BoxDelivery.from_bytes(data), state.directory
        others = directory.others(self.site)
        if (delivery.site, delivery.epoch, delivery.slots) != (self.site, directory.epoch, directory.slots):
            raise SumRefused("these boxes are for another site or another epoch")
        if delivery.senders != others:
            raise SumRefused("these boxes are not those of all other sites of the cohort")
        dealt = {self.site: list(state.kept)}
        unopened: tuple[int, ...] = ()
        for sender in others:
            try:
                dealt[sender] = self._open(state, sender, delivery.by_sender[sender])
            except BoxesUnopened as refused:
                unopened += refused.dealers
        if unopened:
            raise BoxesUnopened(unopened)
        shares = tuple({site: dealt[site][slot] for site in directory.sites} for slot in range(directory.slots))
        return KeptEpoch(directory, state.announced.secrets, shares), self._held(directory)

    def begin(self, state: KeptEpoch, data: bytes) -> BegunEpoch:
        """Check that the whole cohort holds its shares under the same directory; only then may slots begin.

        Raises
        ------
        SumRefused
            If a site of the cohort has not signed.
        """
        roll, directory = Roll.from_bytes(data), state.directory
        if (roll.epoch, roll.sites) != (directory.epoch, directory.sites):
            raise SumRefused("this roll belongs to a different epoch or a different set of sites")
        self.check_roll(directory, signatures_of(roll.sites, roll.signatures))
        return BegunEpoch(directory, state.secrets, state.shares)

    def check_cohort(self, directory: Directory) -> None:
        """Raise unless the cohort is within the terms, large enough, and has at most c peers that nobody verified."""
        parameters = self.study.parameters
        if self.site not in directory.sites or directory.sites[-1] > parameters.sites:
            raise SumRefused("this cohort lacks this site or has sites that are not in the terms")
        if len(directory.sites) < parameters.quorum:
            raise SumRefused(
                f"a cohort of {len(directory.sites)} sites is too small: the quorum is {parameters.quorum}"
            )
        unknown = tuple(site for site in directory.sites if site != self.site and site not in self.verified)
        if len(unknown) > parameters.colluders:
            raise SumRefused(
                f"nobody here has verified the identities of {sites_shown(unknown)}: they count as colluders, and at "
                f"most {parameters.colluders} may be unverified"
            )

    def check_announcements(self, directory: Directory, own: Announcement) -> None:
        """Raise unless every announcement is signed by its site, has sound keys, and this site's is its own."""
        if directory.announcements[self.site] != own:
            raise SumRefused("the directory has another announcement of this site than the one it made")
        for announcement in directory.announcements.values():
            _check_announcement(self.study, announcement)

    def check_roll(self, directory: Directory, signatures: Mapping[int, bytes]) -> None:
        """Raise unless every site of the cohort signed that it holds its shares under this directory."""
        for site in directory.sites:
            statement = held_statement(self.study, directory.epoch, directory.digest, site)
            if not self.study.verify(site, statement, signatures[site]):
                raise SumRefused(f"site {site} has not signed that it holds its shares under this directory")

    def _box(self, directory: Directory, receiver: int, plain: bytes) -> bytes:
        address = BoxAddress(directory.epoch, directory.digest, self.site, receiver)
        public = X25519PublicKey.from_public_bytes(directory.announcements[receiver].box)
        sealed = hpke_suite().encrypt(plain, public, address.binding(self.study))
        return sealed + self.signer.sign(address.statement(self.study, sealed))

    def _open(self, state: DealtEpoch, sender: int, box: bytes) -> list[SlotSecrets]:
        address = BoxAddress(state.directory.epoch, state.directory.digest, sender, self.site)
        sealed = _check_box(self.study, address, box)
        try:
            private = X25519PrivateKey.from_private_bytes(state.announced.box_key)
            values = read_elements(hpke_suite().decrypt(sealed, private, address.binding(self.study)))
        except (InvalidTag, ValueError) as error:  # InputError of read_elements is a ValueError
            raise BoxesUnopened((sender,)) from error
        return [SlotSecrets(*both) for both in zip(values[::2], values[1::2], strict=True)]

    def _held(self, directory: Directory) -> bytes:
        statement = held_statement(self.study, directory.epoch, directory.digest, self.site)
        return HeldShares(self.site, directory.epoch, self.signer.sign(statement)).to_bytes()


def read_announcement(study: SumStudy, request: EpochRequest, site: int, data: bytes) -> Announcement:
    """Return a site's announcement of a requested epoch, at the server.

    Raises
    ------
    SumRefused
        If it is invalid, of another epoch, not signed by the site, or has a key that the other sites would refuse.
    """
    one = Announcement.from_bytes(data)
    if (one.site, one.epoch, one.slots) != (site, request.epoch, request.slots):
        raise SumRefused(f"the announcement of site {site} names another site or another epoch")
    _check_announcement(study, one)
    return one


def make_directory(study: SumStudy, announcements: Mapping[int, Announcement]) -> Directory:
    """Return the directory of the sites that announced, at the server.

    Parameters
    ----------
    study : SumStudy
        The study.
    announcements : mapping of int to Announcement
        What each site sent, from `read_announcement`.

    Raises
    ------
    SumRefused
        If fewer sites than the quorum announced.
    """
    if len(announcements) < study.parameters.quorum:
        raise SumRefused(f"only {len(announcements)} sites announced keys: the quorum is {study.parameters.quorum}")
    return Directory.of(list(announcements.values()))


def read_deal(study: SumStudy, directory: Directory, site: int, data: bytes) -> Deal:
    """Return a site's boxes for the other sites of a cohort, at the server.

    Raises
    ------
    SumRefused
        If they are malformed, for another cohort or epoch, or one is not signed by the site.
    """
    deal = Deal.from_bytes(data)
    others = directory.others(site)
    if (deal.site, deal.epoch, deal.slots, deal.receivers) != (site, directory.epoch, directory.slots, others):
        raise SumRefused(f"the boxes of site {site} are not for this cohort")
    for receiver, box in deal.by_receiver.items():
        _check_box(study, BoxAddress(directory.epoch, directory.digest, site, receiver), box)
    return deal


def make_deliveries(directory: Directory, deals: Mapping[int, Deal]) -> dict[int, bytes]:
    """Return, for every site of a cohort, the message with the boxes for it.

    Raises
    ------
    SumRefused
        If a site of the cohort has not shared its secrets; the message names the sites.
    """
    _require_all(directory, deals, "share secrets")
    return {site: _delivery(directory, deals, site) for site in directory.sites}


def read_held(study: SumStudy, directory: Directory, site: int, data: bytes) -> bytes:
    """Return a site's signature that it holds its shares under a directory, 64 bytes, at the server.

    Raises
    ------
    BoxesUnopened
        If the site says that boxes do not open.
    SumRefused
        If it is malformed, or of another site or directory.
    """
    try:
        complaint = UnopenedBoxes.from_bytes(data)
    except SumMalformed:
        held = HeldShares.from_bytes(data)
    else:
        if (complaint.site, complaint.epoch) != (site, directory.epoch) or not set(complaint.dealers) <= set(
            directory.sites
        ):
            raise SumRefused(f"the complaint of site {site} is not about this cohort")
        raise BoxesUnopened(complaint.dealers)
    statement = held_statement(study, directory.epoch, directory.digest, site)
    if (held.site, held.epoch) != (site, directory.epoch) or not study.verify(site, statement, held.signature):
        raise SumRefused(f"the signature of site {site} is not of this directory")
    return held.signature


def make_roll(directory: Directory, signatures: Mapping[int, bytes]) -> bytes:
    """Return the message that begins an epoch, from the signatures of its cohort.

    Raises
    ------
    SumRefused
        If a site of the cohort did not sign; the message names the sites.
    """
    _require_all(directory, signatures, "sign")
    return Roll(directory.epoch, directory.sites, b"".join(signatures[site] for site in directory.sites)).to_bytes()


def _require_all(directory: Directory, answered: Container[int], task: str) -> None:
    if lacking := tuple(site for site in directory.sites if site not in answered):
        raise SumRefused(f"{sites_shown(lacking)} did not {task}: begin another epoch without them")


def _check_announcement(study: SumStudy, one: Announcement) -> None:
    if not study.verify(one.site, one.statement(study), one.signature):
        raise SumRefused(f"the announcement of site {one.site} is not signed by the identity in the terms")
    if not all(map(is_sound_public, (one.box, *map(one.pair_public, range(one.slots))))):
        raise SumRefused(f"site {one.site} announced a key that is not canonical or is of small order")


def _check_box(study: SumStudy, address: BoxAddress, box: bytes) -> bytes:
    """Return what a box seals; raise unless its sender signed it."""
    sealed, signature, sender = box[:-SIGNATURE_BYTES], box[-SIGNATURE_BYTES:], address.sender
    if not study.verify(sender, address.statement(study, sealed), signature):
        raise SumRefused(
            f"the box of site {sender} for site {address.receiver} is not signed by it under this directory"
        )
    return sealed


def _delivery(directory: Directory, deals: Mapping[int, Deal], site: int) -> bytes:
    senders = directory.others(site)
    boxes = b"".join(deals[sender].by_receiver[site] for sender in senders)
    return BoxDelivery(site, directory.epoch, directory.slots, senders, boxes).to_bytes()
