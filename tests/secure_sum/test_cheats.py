"""What a malicious server may try with its colluders. Each script runs twice.

Against the real rules it is refused. Against a copy of the rules without one guard it recovers the numbers of a single
site: so the guard is needed, and the script is known to bite.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from taciturn.secure_sum import masking
from taciturn.secure_sum.epoch import AnnouncedEpoch, BegunEpoch, BoxesUnopened, DealtEpoch, EpochRules, KeptEpoch
from taciturn.secure_sum.epoch_messages import Announcement, BoxAddress, Deal, Directory, Roll
from taciturn.secure_sum.masking import Integers, Words, centred, derive, keystream, pair_secret, self_mask, unpack
from taciturn.secure_sum.shamir import element_bytes, join, lagrange_weights, read_elements
from taciturn.secure_sum.slot import SlotRecord, SlotRules, SlotState, SlotStep
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
from taciturn.secure_sum.sum_context import SIGNATURE_BYTES, SumStudy
from taciturn.secure_sum.sum_wire import SumRefused
from tests.secure_sum.coalition import OWN, PAIR, Coalition, coalition
from tests.secure_sum.helpers import (
    Group,
    W,
    begin_epoch,
    deliveries_of,
    directory_of,
    group,
    identity,
    numbers_of,
    play,
    roll_of,
    study_of,
)

Y = {site: np.array([1, 10, 100, 1000]) * 7**site for site in range(1, 13)}


class Careless(SlotRules):
    """Without the second check of rules 1 to 3, which would hide the absence of a first one."""

    def check_change(self, before: SlotRecord | None, after: SlotRecord) -> None:
        pass


class SeveralSets(Careless):
    def check_one_set(self, record: SlotRecord | None, alive: tuple[int, ...]) -> None:
        pass


class NoSignatures(Careless):
    def check_signatures(
        self, state: SlotState, context: bytes, alive: tuple[int, ...], signatures: Mapping[int, bytes]
    ) -> None:
        pass


class NoReceipts(Careless):
    def check_receipts(self, context: bytes, alive: tuple[int, ...], receipts: Mapping[int, bytes]) -> None:
        pass


class NoQuorum(Careless):
    def check_quorum(self, question: SumQuestion, alive: tuple[int, ...]) -> None:
        pass


class BothShares(Careless):
    def reveal(self, state: SlotState, data: bytes) -> SlotStep:
        request, step = ShareRequest.from_bytes(data), super().reveal(state, data)
        held = state.keys.shares[request.question.slot]
        assert held is not None
        pairs = b"".join(element_bytes(held[site].pair) for site in request.question.roster)
        answer = RevealedShares.from_bytes(step.reply)
        return step._replace(reply=replace(answer, shares=answer.shares + pairs).to_bytes())


class Keeping(Careless):
    """Old slots continue, and their secrets stay."""

    def without_old_slots(self, state: SlotState) -> SlotState:
        return state

    def check_live(self, state: SlotState, question: SumQuestion) -> None:
        pass


class SeveralQuestions(Keeping):
    def upload(self, state: SlotState, data: bytes, w: bytes, draw: Callable[[], Integers]) -> SlotStep:
        return super().upload(replace(state, records=MappingProxyType({}), newest=-1), data, w, draw)

    def check_context(self, record: SlotRecord | None, context: bytes) -> None:
        pass

    def check_uploaded(self, record: SlotRecord | None, context: bytes) -> None:
        pass


class NoModel(Careless):
    def context(self, state: SlotState, question: SumQuestion) -> bytes:
        return super().context(state, replace(question, w=bytes(32)))


class NoSlot(Careless):
    def context(self, state: SlotState, question: SumQuestion) -> bytes:
        return super().context(state, replace(question, slot=0))


class SeveralEpochs(Keeping):
    """A site that still answers from the state of an older epoch."""


def both_ways(rules: type[SlotRules]) -> Integers:
    """4: site 1 is alive to everybody, then missing to everybody."""
    bad = coalition(rules, 5, 4, (5,))
    question = bad.made.question(0)
    bad.upload((1, 2, 3, 4), question, Y)
    bad.reveal((1, 2, 3, 4), question, question.roster)
    alive = (2, 3, 4, 5)
    bad.reveal((2, 3, 4), question, alive, bad.agree((2, 3, 4), question, alive))
    return bad.opened((1,), question, bad.context(1, question))


def unsigned_lists(rules: type[SlotRules]) -> Integers:
    """5: shares for a set that nobody signed."""
    bad, victim, others = _two_contexts(rules)
    bad.reveal((1, 2, 3), others, (3, 4, 5, 6), {})
    return bad.opened((5,), victim, bad.context(5, victim))


def below_the_quorum(rules: type[SlotRules]) -> Integers:
    """6: a set of one."""
    bad = coalition(rules, 5, 4, (5,))
    question = bad.made.question(0)
    bad.upload((1, 2, 3, 4), question, Y)
    bad.reveal((1, 2, 3), question, (1,), bad.agree((1, 2, 3), question, (1,)))
    return bad.opened((1,), question, bad.context(1, question))


def another_question(rules: type[SlotRules]) -> Integers:
    """8: the same slot again, with a smaller roster."""
    bad = coalition(rules, 6, 4, (6,))
    first, second = bad.made.question(0), bad.made.question(0, (2, 3, 4, 5, 6))
    bad.upload((1, 2, 3, 4, 5), first, Y)
    bad.upload((2, 3, 4, 5), second, Y)
    bad.reveal((1, 2, 3, 4, 5), first, first.roster)
    whole = bad.opened((1, 2, 3, 4, 5), first, bad.context(1, first))
    return whole - bad.opened((2, 3, 4, 5), second, bad.context(2, second))


def late_answers(rules: type[SlotRules]) -> Integers:
    """9: a second attempt without site 1, and then the shares of the first."""
    bad = coalition(rules, 6, 4, (6,))
    first, second = bad.made.question(0), bad.made.question(1, (2, 3, 4, 5, 6))
    bad.upload((1, 2, 3, 4, 5), first, Y)
    bad.upload((2, 3, 4, 5), second, Y)
    bad.reveal((2, 3, 4, 5), second, second.roster)
    bad.reveal((1, 2, 3, 4, 5), first, first.roster)
    whole = bad.opened((1, 2, 3, 4, 5), first, bad.context(1, first))
    return whole - bad.opened((2, 3, 4, 5), second, bad.context(2, second))


def another_model(rules: type[SlotRules]) -> Integers:
    """10: a model at which only site 1 has a gradient."""
    bad = coalition(rules, 5, 4, (5,))
    mine, theirs = bad.made.question(0), bad.made.question(0, w=b"flat")
    nothing = {site: np.zeros(4, np.int64) for site in Y}
    bad.upload((1,), mine, Y)
    bad.upload((2, 3, 4), theirs, nothing, b"flat")
    bad.reveal((1, 2, 3, 4), mine, mine.roster)
    return bad.opened((1, 2, 3, 4), mine, bad.context(1, mine))


def mixed_contexts(rules: type[SlotRules]) -> Integers:
    """11: the victim has a roster of its own; the others leave out exactly its neighbours."""
    bad, victim, others = _two_contexts(rules)
    signed = bad.agree((1, 2, 3), others, (3, 4, 5, 6))
    bad.reveal((1, 2, 3), others, (3, 4, 5, 6), signed)
    return bad.opened((5,), victim, bad.context(5, victim))


def two_epochs(rules: type[SlotRules]) -> Integers:
    """12: the same records in two epochs, without site 1 in the second."""
    bad = coalition(rules, 6, 4, (6,))
    assert isinstance(bad.made, Group)
    first = bad.made.question(0)
    bad.upload((1, 2, 3, 4, 5), first, Y)
    context = bad.context(1, first)
    old = {site: member.state for site, member in bad.made.members.items()}
    begin_epoch(bad.made, 1, 2)
    bad.learn_colluders()
    second = bad.made.question(0, (2, 3, 4, 5, 6))
    bad.upload((2, 3, 4, 5), second, Y)
    bad.reveal((2, 3, 4, 5), second, second.roster)
    rest = bad.opened((2, 3, 4, 5), second, bad.context(2, second))
    if rules is SeveralEpochs:
        for site, member in bad.made.members.items():
            member.state = old[site]
    bad.reveal((1, 2, 3, 4, 5), first, first.roster)
    return bad.opened((1, 2, 3, 4, 5), first, context) - rest


def replayed_receipt(rules: type[SlotRules]) -> Integers:
    """14: the victim's receipt of another slot."""
    bad = coalition(rules, 6, 4, (6,))
    bad.upload((5,), bad.made.question(0), Y)
    bad, victim, others = _two_contexts(rules, bad, slot=1)
    signed = bad.agree((1, 2, 3), others, (3, 4, 5, 6))
    bad.reveal((1, 2, 3), others, (3, 4, 5, 6), signed)
    return bad.opened((5,), victim, bad.context(5, victim))


def _two_contexts(
    rules: type[SlotRules], bad: Coalition | None = None, slot: int = 0
) -> tuple[Coalition, SumQuestion, SumQuestion]:
    """Six sites, q = tau = 4. Site 5 is asked with the roster 1, 2, 5, 6, the other sites with everybody."""
    bad = bad or coalition(rules, 6, 4, (6,))
    victim, others = bad.made.question(slot, (1, 2, 5, 6)), bad.made.question(slot)
    bad.upload((1, 2, 3, 4), others, Y)
    bad.upload((5,), victim, Y)
    return bad, victim, others


SCRIPTS = [
    (both_ways, SeveralSets, 1, "agreed to another set"),
    (unsigned_lists, NoSignatures, 5, "this set has 0 of the 4 signatures needed"),
    (below_the_quorum, NoQuorum, 1, "a sum of 1 sites has too little noise: the quorum is 4"),
    (another_question, SeveralQuestions, 1, "used for another question"),
    (late_answers, Keeping, 1, "slot 0 has ended here: slot 1 has begun"),
    (another_model, NoModel, 1, "used for another question"),
    (mixed_contexts, NoReceipts, 5, "no receipt of site 5 for this context"),
    (two_epochs, SeveralEpochs, 1, "about epoch 0; epoch 1 has begun"),
    (replayed_receipt, NoSlot, 5, "no receipt of site 5 for this context"),
]


@pytest.mark.parametrize(
    ("script", "careless", "victim", "reason"), SCRIPTS, ids=lambda one: getattr(one, "__name__", "")
)
def test_a_cheat_is_refused_and_works_without_its_guard(
    script: Callable[[type[SlotRules]], Integers], careless: type[SlotRules], victim: int, reason: str
) -> None:
    with pytest.raises(SumRefused, match=reason):
        script(SlotRules)
    assert np.array_equal(script(careless), Y[victim])


def test_the_site_that_answers_a_second_question_would_have_other_masks_anyway() -> None:
    bad = coalition(SeveralQuestions, 6, 4, (6,))
    first, second = bad.made.question(0), bad.made.question(0, round_number=2)
    bad.upload((1,), first, Y)
    bad.upload((1,), second, Y)
    (_, one), (_, other) = bad.uploads.values()
    assert not np.any((one - other) << np.uint64(24) == 0)  # equal numbers would show equal masks


class Gullible(SumStudy):
    """A study whose identities are not checked."""

    def verify(self, site: int, statement: bytes, signature: bytes) -> bool:
        return True


class NoCohort(EpochRules):
    def check_cohort(self, directory: Directory) -> None:
        pass


class NoRoll(EpochRules):
    def check_roll(self, directory: Directory, signatures: Mapping[int, bytes]) -> None:
        pass


def puppets(victim: EpochRules, signers: int) -> Integers:
    """1 and 2: sites 2 to 5 are the server's; their identities are `signers` to `signers` + 3."""
    study = Gullible(victim.study.terms, victim.study.experiment, victim.study.parameters, victim.study.identities)
    everybody = frozenset(range(1, 6))
    rules = {site: EpochRules(study, site, identity(signers + site - 2), everybody) for site in range(2, 6)}
    announced = {site: one.announce(0, 1) for site, one in ({1: victim} | rules).items()}
    directory = Directory.of([Announcement.from_bytes(data) for _, data in announced.values()])
    state, deal = victim.deal(announced[1][0], directory.to_bytes())
    dealt = {site: one.deal(announced[site][0], directory.to_bytes()) for site, one in rules.items()}
    boxes = deliveries_of(directory, {1: deal} | {site: data for site, (_, data) in dealt.items()})
    kept, held = victim.keep(state, boxes[1])
    puppet = {site: one.keep(dealt[site][0], boxes[site]) for site, one in rules.items()}
    roll = roll_of(study, directory, {1: held} | {site: data for site, (_, data) in puppet.items()})
    begun = SlotState(victim.begin(kept, roll))
    question = SumQuestion(0, 0, 1, directory.sites, _sha(W))
    step = SlotRules(victim.study, 1, victim.signer).upload(begun, question.to_bytes(), W, lambda: Y[1])
    words = unpack(MaskedUpload.from_bytes(step.reply).packed, 40)
    shares = {site: keys.shares[0][1].own for site, (keys, _) in puppet.items()}  # type: ignore[index]
    own = join(lagrange_weights(sorted(shares)), [shares[site] for site in sorted(shares)])
    context = question.context(victim.study, directory.digest)
    for site, (keys, _) in puppet.items():
        public = directory.announcements[1].pair_public(0)
        secret = keys.secrets[0]
        assert secret is not None
        words = words - masking.pair_mask(masking.pair_key(secret.pair), public, (1, site), context, 4)
    return centred(words - self_mask(own, 1, context, 4), 40)


def _sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def test_the_servers_keys_in_place_of_the_sites_keys() -> None:
    study, everybody = study_of(5, 1, 4), frozenset(range(1, 6))
    with pytest.raises(SumRefused, match="announcement of site 2 is not signed by the identity in the terms"):
        puppets(EpochRules(study, 1, identity(1), everybody), signers=30)
    careless = Gullible(study.terms, study.experiment, study.parameters, study.identities)
    assert np.array_equal(puppets(EpochRules(careless, 1, identity(1), everybody), signers=30), Y[1])


def test_sites_that_the_server_invented() -> None:
    study = study_of(5, 1, 4)
    with pytest.raises(SumRefused, match=r"verified the identities of sites 3, 4, 5.*at most 1 may be unverified"):
        puppets(EpochRules(study, 1, identity(1), frozenset({2})), signers=2)
    assert np.array_equal(puppets(NoCohort(study, 1, identity(1), frozenset({2})), signers=2), Y[1])


def test_different_directories_for_different_sites() -> None:
    # 3: colluder 5 announces twice, so two directories have the same announcements of honest sites
    study, everybody = study_of(5, 1, 4), frozenset(range(1, 6))
    for kind in (EpochRules, NoRoll):
        rules = {site: kind(study, site, identity(site), everybody) for site in everybody}
        announced = {site: one.announce(0, 1) for site, one in rules.items()}
        again = rules[5].announce(0, 1)
        first = directory_of(study, {site: data for site, (_, data) in announced.items()})
        second = directory_of(study, {site: data for site, (_, data) in (announced | {5: again}).items()})
        dealt = {site: rules[site].deal(announced[site][0], first.to_bytes()) for site in (1, 2)}
        dealt |= {site: rules[site].deal(announced[site][0], second.to_bytes()) for site in (3, 4)}
        with pytest.raises(SumRefused, match="shared its secrets under another directory"):
            rules[1].deal(dealt[1][0], second.to_bytes())
        dealt[5] = rules[5].deal(announced[5][0], first.to_bytes())
        boxes = deliveries_of(first, {site: data for site, (_, data) in dealt.items()})
        with pytest.raises(SumRefused, match="box of site 3 for site 1 is not signed by it under this directory"):
            rules[1].keep(dealt[1][0], boxes[1])


class TwoDirectories(NoRoll):
    """A site that shares its secrets under any directory, and begins without the signatures of its cohort."""

    def deal(self, state: AnnouncedEpoch | DealtEpoch, data: bytes) -> tuple[DealtEpoch, bytes]:
        return super().deal(state.announced if isinstance(state, DealtEpoch) else state, data)


class NoDirectory(Careless):
    """Without the directory in the context."""

    def context(self, state: SlotState, question: SumQuestion) -> bytes:
        return question.context(self.study, bytes(32))


def two_directories(epochs: type[EpochRules], slots: type[SlotRules]) -> Integers:
    """3: cohorts of twelve and nine sites in one epoch, each with enough opinions for a set of its own.

    Sites 1 to 6 open a set without site 4, sites 7 to 11 one without site 5: both secrets of site 4 are known.
    """
    study, everybody, roster = study_of(12, 1, 8), frozenset(range(1, 13)), tuple(range(4, 13))
    rules = {site: epochs(study, site, identity(site), everybody) for site in everybody}
    announced = {site: one.announce(0, 1) for site, one in rules.items()}
    begun: dict[tuple[tuple[int, ...], int], SlotState] = {}
    tau = {}
    first, second = tuple(range(1, 7)), tuple(range(7, 12))
    for group_, cohort in ((first, tuple(range(1, 13))), (second, roster)):
        directory = directory_of(study, {site: announced[site][1] for site in cohort})
        dealt = {site: rules[site].deal(announced[site][0], directory.to_bytes()) for site in cohort}
        announced |= {site: (state, announced[site][1]) for site, (state, _) in dealt.items()}  # type: ignore[misc]
        boxes = deliveries_of(directory, {site: data for site, (_, data) in dealt.items()})
        kept = {site: rules[site].keep(dealt[site][0], boxes[site]) for site in (*group_, 12)}
        roll = Roll(0, cohort, bytes(64 * len(cohort))).to_bytes()
        begun |= {(group_, site): SlotState(rules[site].begin(kept[site][0], roll)) for site in (*group_, 12)}
        tau[group_] = study.parameters.threshold(len(cohort))
    members = {site: slots(study, site, identity(site)) for site in everybody}
    question = SumQuestion(0, 0, 1, roster, _sha(W))
    context = members[1].context(begun[first, 1], question)
    uploads: dict[int, MaskedUpload] = {}
    for group_, site in begun:
        if site in roster and site != 12:
            step = members[site].upload(begun[group_, site], question.to_bytes(), W, lambda site=site: Y[site])  # type: ignore[misc]
            begun[group_, site], uploads[site] = step.state, MaskedUpload.from_bytes(step.reply)
    receipts = {site: upload.receipt for site, upload in uploads.items()}
    receipts[12] = identity(12).sign(receipt_statement(study, context, 12))
    known = {}
    for group_, missing, kind in ((first, 4, PAIR), (second, 5, OWN)):
        alive = tuple(site for site in roster if site != missing)
        request = AliveRequest(question, alive, b"".join(receipts[site] for site in alive)).to_bytes()
        signed = {12: identity(12).sign(alive_statement(study, context, alive, 12))}
        for site in group_:
            step = members[site].agree(begun[group_, site], request)
            begun[group_, site], signed[site] = step.state, AliveSignature.from_bytes(step.reply).signature
        assert len(signed) == tau[group_]
        signers = tuple(sorted(signed))
        opening = ShareRequest(question, alive, signers, b"".join(signed[site] for site in signers)).to_bytes()
        shares = {}
        for site in group_:
            answer = RevealedShares.from_bytes(members[site].reveal(begun[group_, site], opening).reply)
            shares[site] = read_elements(answer.shares)[roster.index(4)]
        held = begun[group_, 12].keys.shares[0]
        assert held is not None
        shares[12] = held[4].pair if kind == PAIR else held[4].own
        known[kind] = join(lagrange_weights(sorted(shares)), [shares[site] for site in sorted(shares)])
    words = unpack(uploads[4].packed, 40) - self_mask(known[OWN], 4, context, 4)
    for other in roster:
        if other != 4:
            public = directory.announcements[other].pair_public(0)
            words = words - masking.pair_mask(masking.pair_key(known[PAIR]), public, (4, other), context, 4)
    return centred(words, 40)


def test_two_directories_in_one_epoch_would_open_a_single_site() -> None:
    with pytest.raises(SumRefused, match="site 1 has not signed that it holds its shares under this directory"):
        two_directories(EpochRules, SlotRules)
    with pytest.raises(SumRefused, match="shared its secrets under another directory of this epoch"):
        two_directories(NoRoll, SlotRules)
    with pytest.raises(SumRefused, match="no receipt of site"):  # the contexts of the two cohorts differ
        two_directories(TwoDirectories, SlotRules)
    assert np.array_equal(two_directories(TwoDirectories, NoDirectory), Y[4])


def test_a_cohort_that_does_not_hold_its_shares_under_one_directory_does_not_begin() -> None:
    made = group(study_of(5, 1, 4))
    keys = made.members[1].now.keys
    with pytest.raises(SumRefused, match="this epoch has not begun"):
        SlotState(KeptEpoch(keys.directory, keys.secrets, keys.shares))  # type: ignore[arg-type]
    other = group(study_of(5, 1, 4))
    theirs = {site: other.members[site].epochs._held(other.now) for site in range(1, 6)}
    with pytest.raises(SumRefused, match="site 1 has not signed that it holds its shares under this directory"):
        made.members[1].epochs.begin(keys, roll_of(other.study, other.now, theirs))


def test_both_shares_of_a_site_have_no_place_in_an_answer() -> None:
    # 7
    for rules in (SlotRules, BothShares):
        bad = coalition(rules, 5, 4, (5,))
        question = bad.made.question(0)
        bad.upload((1, 2, 3, 4), question, Y)
        request = ShareRequest(question, question.roster, (), b"").to_bytes()
        for site in (1, 2, 3, 4):
            values = read_elements(RevealedShares.from_bytes(bad.made.members[site].reveal(request)).shares)
            assert (len(values) == 5) == (rules is SlotRules)
            bad.learn(site, question, question.roster, values)
            for dealer, value in zip(question.roster, values[5:], strict=False):
                bad.shares[0, 0, dealer, PAIR][site] = value
        if rules is BothShares:
            assert np.array_equal(bad.opened((1,), question, bad.context(1, question)), Y[1])
        else:
            with pytest.raises(AssertionError, match="no pair secret of 1 and 2 is known"):
                bad.opened((1,), question, bad.context(1, question))


def test_lists_that_differ_would_open_fewer_than_anybody_agreed_to() -> None:
    # 5 again, under one context: n = 7, c = 1, q = tau = 5. Noise is for four honest sites, and three are opened.
    def views(rules: type[SlotRules]) -> Integers:
        bad = coalition(rules, 7, 5, (7,))
        question = bad.made.question(0)
        bad.upload((1, 2, 3, 4, 5, 6), question, Y)
        for site, gone in zip(range(1, 7), ((4, 5), (4, 5), (4, 6), (4, 6), (5, 6), (5, 6)), strict=True):
            bad.reveal((site,), question, tuple(one for one in question.roster if one not in gone), {})
        return bad.opened((1, 2, 3), question, bad.context(1, question))

    with pytest.raises(SumRefused, match="this set has 0 of the"):
        views(SlotRules)
    assert np.array_equal(views(NoSignatures), Y[1] + Y[2] + Y[3])


def test_selective_drops_give_sums_with_all_their_noise_and_each_upload_is_charged() -> None:
    # 13: nothing is refused; every opened sum has h = 3 honest sites at least, and the plan pays for every upload
    made = group(study_of(5, 1, 4, rounds=1), slots=6)
    honest = {1, 2, 3, 4}
    for slot, dropped in enumerate((1, 2, 3, 4)):
        uploading = tuple(site for site in range(1, 6) if site != dropped)
        opened = play(made, made.question(slot), numbers_of(made, slot), uploading, uploading)
        assert len(honest & set(opened.alive)) >= made.study.parameters.honest
    assert [made.members[site].charges for site in range(1, 6)] == [3, 3, 3, 3, 4]
    with pytest.raises(SumRefused, match="made 4 uploads in this study; the plan pays for 1 rounds and a reserve of 3"):
        made.members[5].upload(made.question(4), Y[5])


def test_a_site_that_is_broken_into_later_has_nothing_left() -> None:
    # 15
    for rules in (SlotRules, Keeping):
        bad = coalition(rules, 5, 4, (5,))
        question = bad.made.question(0)
        for slot in (0, 1):
            bad.upload((1, 2, 3, 4), bad.made.question(slot), Y)
        keys = bad.made.members[1].now.keys
        if rules is SlotRules:
            assert keys.secrets == (None, None) and keys.shares[0] is None
            continue
        secrets = keys.secrets[0]
        assert secrets is not None
        bad.given[0, 0, 1] = secrets.pair
        bad.shares[0, 0, 1, OWN] |= dict(zip((1, 2, 3, 4), _resplit(secrets.own), strict=True))
        assert np.array_equal(bad.opened((1,), question, bad.context(1, question)), Y[1])


def _resplit(secret: int) -> list[int]:
    return [secret] * 4  # a constant polynomial: any weights give it back


def nameless_pair_mask(
    private: X25519PrivateKey, public: bytes, pair: tuple[int, int], context: bytes, count: int
) -> Words:
    mask = keystream(derive(pair_secret(private, public), b"pair", context), count)
    return mask if pair[0] < pair[1] else np.negative(mask)


def test_a_colluder_that_copies_another_sites_public_key(monkeypatch: pytest.MonkeyPatch) -> None:
    # Colluders 1 and 2 announce the keys of 4 and 5. Without names in the masks, site 3 adds and subtracts the same.
    def copied() -> Integers:
        study, everybody = study_of(5, 2, 4), frozenset(range(1, 6))
        rules = {site: EpochRules(study, site, identity(site), everybody) for site in everybody}
        announced = {site: rules[site].announce(0, 1) for site in everybody}
        for colluder, model in ((1, 4), (2, 5)):
            state, copy = announced[colluder][0], announced[model][0].announcement
            keys = copy.keys[:32] + state.announcement.keys[32:]
            unsigned = replace(state.announcement, keys=keys)
            signed = replace(unsigned, signature=identity(colluder).sign(unsigned.statement(study)))
            announced[colluder] = replace(state, announcement=signed), signed.to_bytes()
        directory = directory_of(study, {site: data for site, (_, data) in announced.items()})
        dealt = {site: one.deal(announced[site][0], directory.to_bytes()) for site, one in rules.items()}
        boxes = deliveries_of(directory, {site: data for site, (_, data) in dealt.items()})
        kept = {site: one.keep(dealt[site][0], boxes[site])[0] for site, one in rules.items()}
        question = SumQuestion(0, 0, 1, directory.sites, _sha(W))
        begun = BegunEpoch(directory, kept[3].secrets, kept[3].shares)
        step = SlotRules(study, 3, identity(3)).upload(SlotState(begun), question.to_bytes(), W, lambda: Y[3])
        words = unpack(MaskedUpload.from_bytes(step.reply).packed, 40)
        shares = [one.shares[0][3].own for one in kept.values()]  # type: ignore[index]  # U = R: everybody reveals
        own = join(lagrange_weights(list(kept)), shares)
        return centred(words - self_mask(own, 3, question.context(study, directory.digest), 4), 40)

    assert not np.any(copied() == Y[3])
    monkeypatch.setattr(masking, "pair_mask", nameless_pair_mask)
    assert np.array_equal(copied(), Y[3])


def copied_boxes() -> Integers:
    """Colluder 5 signs the boxes of site 1 as its own, and is then missing: its pair secret has the shares of 1's.

    Sites give shares of the self secret of 1, which uploaded, and of the pair secret of 5, which did not. So both
    secrets of site 1 would be known.
    """
    study, everybody = study_of(5, 1, 4), frozenset(range(1, 6))
    rules = {site: EpochRules(study, site, identity(site), everybody) for site in everybody}
    announced = {site: one.announce(0, 1) for site, one in rules.items()}
    directory = directory_of(study, {site: data for site, (_, data) in announced.items()})
    dealt = {site: one.deal(announced[site][0], directory.to_bytes()) for site, one in rules.items()}
    model, mine = (Deal.from_bytes(dealt[site][1]) for site in (1, 5))
    boxes = [mine.by_receiver[1]]
    for receiver in (2, 3, 4):
        sealed = model.by_receiver[receiver][:-SIGNATURE_BYTES]
        statement = BoxAddress(0, directory.digest, 5, receiver).statement(study, sealed)
        boxes.append(sealed + identity(5).sign(statement))
    deals = {site: data for site, (_, data) in dealt.items()} | {5: replace(mine, boxes=b"".join(boxes)).to_bytes()}
    delivered = deliveries_of(directory, deals)
    kept = {site: one.keep(dealt[site][0], delivered[site]) for site, one in rules.items()}
    roll = roll_of(study, directory, {site: data for site, (_, data) in kept.items()})
    bad = coalition(SlotRules, 5, 4, (5,))
    for site, member in bad.made.members.items():
        member.state = SlotState(rules[site].begin(kept[site][0], roll))  # type: ignore[attr-defined]
    bad.made.directory = directory  # type: ignore[attr-defined]
    bad.shares.clear()
    bad.learn_colluders()
    question, alive = bad.made.question(0), (1, 2, 3, 4)
    bad.upload(alive, question, Y)
    bad.reveal(alive, question, alive, bad.agree(alive, question, alive))
    for site in (2, 3, 4):
        bad.shares[0, 0, 1, PAIR][site] = bad.shares[0, 0, 5, PAIR][site]
    return bad.opened((1,), question, bad.context(1, question))


def test_a_colluder_that_deals_the_boxes_of_another_site_as_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BoxesUnopened, match="the box of site 5 does not open"):
        copied_boxes()

    monkeypatch.setattr(BoxAddress, "binding", lambda address, study: study.statement(b"box", address.directory))
    assert np.array_equal(copied_boxes(), Y[1])
