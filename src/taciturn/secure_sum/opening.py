"""The server's side of a slot: it checks what arrives, asks for shares, and opens the sum.

The server needs no secret of its own. What it checks here protects the sum against faulty sites; the privacy of sites
does not rest on it. It needs no single upload either: uploads are added as they are, and masks are taken off their sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, zip_longest

import numpy as np

from taciturn.errors import InputError, PeerLost
from taciturn.secure_sum.epoch_messages import Directory
from taciturn.secure_sum.masking import (
    Integers,
    Words,
    centred,
    fingerprint,
    pair_key,
    pair_mask,
    pair_public,
    self_mask,
    unpack,
)
from taciturn.secure_sum.shamir import PRIME, evaluate, join, lagrange_weights, read_elements
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
from taciturn.secure_sum.sum_context import SumStudy
from taciturn.secure_sum.sum_wire import SumRefused, sites_shown

SUBSETS_TRIED = 300  # groups of helpers that are left out in turn, in one opening, to find who sent wrong shares


class SlotLost(PeerLost):
    """Too few sites uploaded or answered: the slot is not opened, and the next attempt is another slot."""


class WrongShares(InputError):
    """Shares that do not give what a site announced.

    Attributes
    ----------
    dealers
        The sites whose secrets do not fit. If there are at most c of them, they dealt wrong shares or a helper changed
        the shares of exactly these. If there are more, a helper sent wrong shares.
    """

    def __init__(self, message: str, dealers: tuple[int, ...]) -> None:
        super().__init__(message)
        self.dealers = dealers


@dataclass(frozen=True)
class MaskedSum:
    """The uploads of a set, added up, with all masks in the sum.

    Attributes
    ----------
    receipts
        The receipt of every site of the set, 64 bytes each.
    total
        The sum of their uploads modulo 2^64.
    """

    receipts: Mapping[int, bytes] = field(repr=False)
    total: Words = field(repr=False)

    @property
    def alive(self) -> tuple[int, ...]:
        """U, the sites that uploaded, in order."""
        return tuple(sorted(self.receipts))


@dataclass(frozen=True)
class OpenedSum:
    """The sum over the sites of a set.

    Attributes
    ----------
    total
        The sum of their whole numbers.
    alive
        U, the sites whose numbers are in it.
    disputed
        Helpers whose share was wrong, and the dealers of these shares. One of the two is at fault.
    """

    total: Integers = field(repr=False)
    alive: tuple[int, ...]
    disputed: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True)
class SlotOpening:
    """One slot at the server.

    Attributes
    ----------
    study
        The study.
    directory
        The directory of the epoch.
    question
        What the roster was asked.

    Raises
    ------
    SumRefused
        If the question does not fit the directory.
    """

    study: SumStudy
    directory: Directory = field(repr=False)
    question: SumQuestion

    def __post_init__(self) -> None:
        directory, question = self.directory, self.question
        known = set(question.roster) <= set(directory.sites) and question.slot < directory.slots
        if question.epoch != directory.epoch or not known:
            raise SumRefused("the question is not about a slot and sites of this directory")

    @cached_property
    def context(self) -> bytes:
        """Chi, which all uploads and opinions of the slot are bound to."""
        return self.question.context(self.study, self.directory.digest)

    @property
    def numbers(self) -> int:
        """How many numbers are summed."""
        return self.study.parameters.size(self.question.subject)

    @property
    def threshold(self) -> int:
        """Tau of this cohort."""
        return self.study.parameters.threshold(len(self.directory.sites))

    def read_upload(self, site: int, data: bytes) -> MaskedUpload:
        """Return a site's upload.

        Raises
        ------
        SumRefused
            If it is malformed, of another slot or length, or its receipt is not for this context.
        """
        size = self.numbers * self.study.parameters.width // 8
        upload = MaskedUpload.from_bytes(data, size + 4096)
        self._check_sender(upload, site)
        if len(upload.packed) != size:
            raise SumRefused(
                f"the upload of site {site} has {len(upload.packed)} bytes of numbers; it must have {size}"
            )
        if not self.study.verify(site, receipt_statement(self.study, self.context, site), upload.receipt):
            raise SumRefused(f"the receipt of site {site} is not for this context")
        return upload

    def add(self, uploads: Mapping[int, MaskedUpload]) -> MaskedSum:
        """Return the sum of uploads, which come from `read_upload`; their sites are U.

        Raises
        ------
        SlotLost
            If fewer sites than the quorum uploaded.
        """
        quorum = self.study.parameters.quorum
        if not set(uploads) <= set(self.question.roster):
            raise SumRefused("there are uploads of sites that are not on the roster")
        if len(uploads) < quorum:
            raise SlotLost(f"{len(uploads)} sites uploaded in slot {self.question.slot}; the quorum is {quorum}")
        total = np.zeros(self.numbers, np.uint64)
        for upload in uploads.values():
            total += unpack(upload.packed, self.study.parameters.width)
        return MaskedSum({site: upload.receipt for site, upload in uploads.items()}, total)

    def alive_request(self, masked: MaskedSum) -> bytes:
        """Return the message that asks sites to sign the set of those that uploaded."""
        receipts = b"".join(masked.receipts[site] for site in masked.alive)
        return AliveRequest(self.question, masked.alive, receipts).to_bytes()

    def read_signature(self, site: int, alive: tuple[int, ...], data: bytes) -> bytes:
        """Return a site's signature on a set, 64 bytes.

        Raises
        ------
        SumRefused
            If it is malformed or of another context or set.
        """
        answer = AliveSignature.from_bytes(data, 4096)
        self._check_sender(answer, site)
        if not self.study.verify(site, alive_statement(self.study, self.context, alive, site), answer.signature):
            raise SumRefused(f"the signature of site {site} is not of this context and set")
        return answer.signature

    def share_request(self, alive: tuple[int, ...], signatures: Mapping[int, bytes]) -> bytes:
        """Return the message that asks for shares; with the signatures of tau sites if one is missing.

        Raises
        ------
        SlotLost
            If fewer than tau sites signed.
        """
        signers: tuple[int, ...] = ()
        if alive != self.question.roster:
            signers = tuple(sorted(signatures)[: self.threshold])
            if len(signers) < self.threshold:
                raise SlotLost(
                    f"the set of slot {self.question.slot} has {len(signers)} of the {self.threshold} signatures needed"
                )
        return ShareRequest(self.question, alive, signers, b"".join(signatures[one] for one in signers)).to_bytes()

    def read_shares(self, site: int, data: bytes) -> list[int]:
        """Return a site's shares, one for each site of the roster.

        Raises
        ------
        SumRefused
            If they are malformed, too few or too many, or not field elements.
        """
        answer = RevealedShares.from_bytes(data, 4096 + 32 * len(self.question.roster))
        self._check_sender(answer, site)
        try:
            shares = read_elements(answer.shares)
        except InputError as error:
            raise SumRefused(f"the shares of site {site} are not field elements") from error
        if len(shares) != len(self.question.roster):
            raise SumRefused(f"site {site} sent {len(shares)} shares for a roster of {len(self.question.roster)}")
        return shares

    def open(self, masked: MaskedSum, answers: Mapping[int, list[int]]) -> OpenedSum:
        """Take the masks off and return the sum.

        Parameters
        ----------
        masked : MaskedSum
            The uploads of U, from `add`.
        answers : mapping of int to list of int
            The shares of at least tau helpers, from `read_shares`. More helpers allow for wrong shares: half as many
            as there are helpers beyond tau, and up to all of these if there are few sites.

        Raises
        ------
        SlotLost
            If too few sites answered.
        WrongShares
            If shares do not give what a site announced; it names the sites.
        """
        alive = masked.alive
        if len(answers) < self.threshold:
            raise SlotLost(
                f"slot {self.question.slot} has shares of {len(answers)} of the {self.threshold} sites needed"
            )
        secrets, disputed = self._secrets(alive, answers)
        width, count = self.study.parameters.width, self.numbers
        total = masked.total.copy()
        for site in alive:
            total -= self_mask(secrets[site], site, self.context, count)
        for site in self.question.roster:
            if site not in alive:
                total -= self._masks_for(secrets[site], site, alive)
        return OpenedSum(centred(total, width), alive, disputed)

    def _masks_for(self, secret: int, missing: int, alive: Sequence[int]) -> Words:
        """Return what the sites of U added for their pairs with a missing site."""
        private, count = pair_key(secret), self.numbers
        total = np.zeros(count, np.uint64)
        for site in alive:
            public = self.directory.announcements[site].pair_public(self.question.slot)
            total += pair_mask(private, public, (site, missing), self.context, count)
        return total

    def _check_sender(self, answer: MaskedUpload | AliveSignature | RevealedShares, site: int) -> None:
        if (answer.site, answer.epoch, answer.slot) != (site, self.question.epoch, self.question.slot):
            raise SumRefused(f"an answer of site {site} names another site, epoch or slot")
        if site not in self.directory.sites:
            raise SumRefused(f"site {site} is not in the cohort")

    def _secrets(
        self, alive: Sequence[int], answers: Mapping[int, list[int]]
    ) -> tuple[dict[int, int], dict[int, tuple[int, ...]]]:
        """Return the secret of every site of the roster, and the helpers whose shares were wrong."""
        shares = _Shares(self.question.roster, self.threshold, answers)
        first, tries = shares.first(()), iter(range(SUBSETS_TRIED))
        secrets = {site: shares.joined(site, first) for site in self.question.roster}
        disputed: dict[int, tuple[int, ...]] = {}
        lost: tuple[int, ...] = ()
        for site in self.question.roster:
            if self._fits(site, secrets[site], site in alive):
                continue
            repaired = self._repair(shares, site, alive, tuple(sorted(disputed)), tries)
            if repaired is None:
                lost += (site,)
                continue
            secrets[site], liars = repaired
            disputed |= {helper: (*disputed.get(helper, ()), site) for helper in liars}
        if lost:
            colluders = self.study.parameters.colluders
            fault = (
                f"{sites_shown(lost)} dealt them wrongly, or a helper changed them"
                if len(lost) <= colluders
                else f"more than {colluders} sites are affected, so a helper sent wrong shares"
            )
            raise WrongShares(f"the shares of {sites_shown(lost)} do not give what was announced: {fault}", lost)
        return secrets, disputed

    def _repair(
        self, shares: _Shares, site: int, alive: Sequence[int], disputed: tuple[int, ...], tries: Iterator[int]
    ) -> tuple[int, tuple[int, ...]] | None:
        """Return a site's secret without some helpers, and those of them whose shares are wrong; None if none fits."""
        for left_out in shares.suspects(site, disputed, tries):
            helpers = shares.first(left_out)
            secret = shares.joined(site, helpers)
            if self._fits(site, secret, site in alive):
                return secret, tuple(helper for helper in left_out if shares.is_wrong(site, helper, helpers))
        return None

    def _fits(self, site: int, secret: int, is_alive: bool) -> bool:
        """Return whether a secret is the one that a site announced."""
        announcement, slot = self.directory.announcements[site], self.question.slot
        if is_alive:
            return fingerprint(secret) == announcement.fingerprint(slot)
        return pair_public(secret) == announcement.pair_public(slot)


@dataclass(frozen=True)
class _Shares:
    """The shares that helpers sent in a slot, of which some may be wrong.

    A secret can be checked, because its dealer announced a commitment to it. So the guesses made here about helpers
    may be wrong: they decide whose shares are tried, not what is opened.
    """

    roster: tuple[int, ...]
    threshold: int
    answers: Mapping[int, list[int]] = field(repr=False)
    _weights: dict[tuple[int, tuple[int, ...]], list[int]] = field(default_factory=dict, repr=False)

    def of(self, site: int, helpers: Sequence[int]) -> list[int]:
        """Return the shares of a site's secret that helpers sent."""
        index = self.roster.index(site)
        return [self.answers[helper][index] for helper in helpers]

    def first(self, left_out: Sequence[int]) -> tuple[int, ...]:
        """Return the first tau helpers without some."""
        return tuple(helper for helper in sorted(self.answers) if helper not in left_out)[: self.threshold]

    def joined(self, site: int, helpers: tuple[int, ...], at: int = 0) -> int:
        """Return the value at a point of the polynomial through tau shares; its value at 0 is the secret."""
        if (at, helpers) not in self._weights:
            self._weights[at, helpers] = lagrange_weights([(helper - at) % PRIME for helper in helpers])
        return join(self._weights[at, helpers], self.of(site, helpers))

    def is_wrong(self, site: int, helper: int, right: tuple[int, ...]) -> bool:
        """Return whether a helper's share does not agree with those of tau others, which are right."""
        return self.joined(site, right, helper) != self.of(site, [helper])[0]

    def suspects(self, site: int, known: tuple[int, ...], tries: Iterator[int]) -> Iterator[tuple[int, ...]]:
        """Yield helpers to leave out: those with wrong shares before, those that decoding finds, then some in turn."""
        helpers = sorted(self.answers)
        spare = len(helpers) - self.threshold
        if 0 < len(known) <= spare:
            yield known
        located = self._located(site, helpers)
        if 0 < len(located) <= spare:
            yield located
        for count in range(1, spare + 1):
            for group in combinations(helpers, count):
                if next(tries, None) is None:
                    return
                yield group

    def _located(self, site: int, helpers: Sequence[int]) -> tuple[int, ...]:
        """Return the helpers with wrong shares, found as errors in a Reed-Solomon code.

        They are right if there are at most half as many of them as there are helpers beyond tau. Syndromes are
        S_k = sum_x u_x x^k f(x), with u_x = 1 / prod_(m != x) (m - x); they are 0 if all shares are right.
        """
        values, terms = self.of(site, helpers), []
        weights = lagrange_weights(helpers)  # of x: prod_(m != x) m / (m - x), which is u_x prod_m m / x
        for helper, weight, value in zip(helpers, weights, values, strict=True):
            terms.append(weight * helper % PRIME * value % PRIME)
        syndromes = []
        for _ in range(len(helpers) - self.threshold):
            syndromes.append(sum(terms) % PRIME)
            terms = [term * helper % PRIME for term, helper in zip(terms, helpers, strict=True)]
        locator = _shortest_recurrence(syndromes)
        errors = zip(helpers, evaluate(locator[::-1], helpers), strict=True)  # the helpers at which it is 0
        return tuple(helper for helper, value in errors if value == 0)


def _shortest_recurrence(sequence: Sequence[int]) -> list[int]:
    """Return 1, c_1, ..., c_L with s_n + c_1 s_(n-1) + ... + c_L s_(n-L) = 0 for all n >= L (Berlekamp and Massey).

    Examples
    --------
    >>> _shortest_recurrence([1, 2, 4, 8]) == [1, PRIME - 2]
    True
    """
    current, before = [1], [1]
    length, shift, last = 0, 1, 1
    for n, value in enumerate(sequence):
        gap = (value + sum(current[i] * sequence[n - i] for i in range(1, min(length, len(current) - 1) + 1))) % PRIME
        if gap == 0:
            shift += 1
            continue
        factor, old = gap * pow(last, -1, PRIME) % PRIME, current
        terms = zip_longest(current, [0] * shift + before, fillvalue=0)
        current = [(c - factor * b) % PRIME for c, b in terms]
        if 2 * length <= n:
            length, before, last, shift = n + 1 - length, old, gap, 1
        else:
            shift += 1
    return [*current, *[0] * (length + 1 - len(current))][: length + 1]
