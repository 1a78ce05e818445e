"""What a malicious coordinator may try on real agents, with a colluding site that runs an agent too.

Each script is refused with its reason. With its guards taken out it recovers the numbers of fewer sites than any agreed
to: so the guards are needed, and the script is known to bite. The scripts against the rules alone are in
tests/secure_sum/test_cheats.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from taciturn.algorithms.noisy_gradient import SummedGradient
from taciturn.federation import agreement as agreement_module
from taciturn.federation import messages as wire
from taciturn.federation import sum_session
from taciturn.federation.agent import INTERNAL_ERROR, STUDY_BROKEN
from taciturn.federation.messages import Invitation, SumRequest
from taciturn.federation.study_ledger import StudyLedger
from taciturn.federation.sum_journal import SumJournal
from taciturn.privacy.events import NON_PRIVATE, BatchEvent
from taciturn.secure_sum.epoch import DealtEpoch, EpochRules, KeptEpoch, make_directory, read_announcement
from taciturn.secure_sum.epoch_messages import Announcement, Directory, EpochRequest, Roll
from taciturn.secure_sum.masking import Integers, centred, pair_key, pair_mask, self_mask, unpack
from taciturn.secure_sum.shamir import join, lagrange_weights, read_elements
from taciturn.secure_sum.slot import SlotRules
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
from tests.federation.helpers import EXPERIMENT
from tests.federation.sum_adversary import NOTHING, Crew, SiteRefused, coalition_of, crew
from tests.secure_sum.coalition import OWN, PAIR, Coalition
from tests.secure_sum.helpers import deliveries_of, identity, roll_of
from tests.secure_sum.test_cheats import (
    BothShares,
    Gullible,
    Keeping,
    NoCohort,
    NoDirectory,
    NoModel,
    NoQuorum,
    NoReceipts,
    NoSignatures,
    NoSlot,
    SeveralQuestions,
    SeveralSets,
    TwoDirectories,
)


class Opened(NamedTuple):
    """What a script has read, and what the sites had sent."""

    read: Integers
    sent: Integers


def both_ways(made: Crew) -> Opened:
    """4: site 1 is alive to everybody, then missing to everybody."""
    bad, question = coalition_of(made, 6), made.question(0)
    bad.upload((1, 2, 3, 4, 5), question, NOTHING)
    bad.reveal((1, 2, 3, 4, 5), question, question.roster)
    alive = (2, 3, 4, 5, 6)
    bad.reveal((2, 3, 4, 5), question, alive, bad.agree((2, 3, 4, 5), question, alive))
    return Opened(bad.opened((1,), question, bad.context(1, question)), made.integers(1, question))


def two_contexts(made: Crew, bad: Coalition, slot: int = 0) -> tuple[SumQuestion, SumQuestion]:
    """Site 5 is asked with the roster 1, 2, 5, 6, the other sites with everybody."""
    victim, others = made.question(slot, (1, 2, 5, 6)), made.question(slot)
    bad.upload((1, 2, 3, 4), others, NOTHING)
    bad.upload((5,), victim, NOTHING)
    return victim, others


def unsigned_lists(made: Crew) -> Opened:
    """5: shares for a set that nobody signed."""
    bad = coalition_of(made, 6)
    victim, others = two_contexts(made, bad)
    bad.reveal((1, 2, 3), others, (3, 4, 5, 6), {})
    return Opened(bad.opened((5,), victim, bad.context(5, victim)), made.integers(5, victim))


def below_the_quorum(made: Crew) -> Opened:
    """6: a set of one."""
    bad, question = coalition_of(made, 6), made.question(0)
    bad.upload((1, 2, 3, 4, 5), question, NOTHING)
    bad.reveal((1, 2, 3, 4), question, (1,), bad.agree((1, 2, 3, 4), question, (1,)))
    return Opened(bad.opened((1,), question, bad.context(1, question)), made.integers(1, question))


def another_question(made: Crew) -> Opened:
    """8: the same slot again, with a smaller roster, so that two sums differ by one site."""
    bad, first = coalition_of(made, 6), made.question(0)
    second = made.question(0, (2, 3, 4, 5, 6))
    bad.upload((1, 2, 3, 4, 5), first, NOTHING)
    bad.upload((2, 3, 4, 5), second, NOTHING)
    bad.reveal((1, 2, 3, 4, 5), first, first.roster)
    whole = bad.opened((1, 2, 3, 4, 5), first, bad.context(1, first))
    rest = bad.opened((2, 3, 4, 5), second, bad.context(2, second))
    return Opened(whole - rest, made.integers(1, first))  # seeded noise: equal in both


def late_answers(made: Crew) -> Opened:
    """9: a second attempt without site 1, and then the shares of the first: more sums than were meant."""
    bad, first, second = coalition_of(made, 6), made.question(0), made.question(1, (2, 3, 4, 5, 6))
    bad.upload((1, 2, 3, 4, 5), first, NOTHING)
    bad.upload((2, 3, 4, 5), second, NOTHING)
    bad.reveal((2, 3, 4, 5), second, second.roster)
    bad.reveal((1, 2, 3, 4, 5), first, first.roster)
    whole = bad.opened((1, 2, 3, 4, 5), first, bad.context(1, first))
    rest = bad.opened((2, 3, 4, 5), second, bad.context(2, second))
    sent = made.total((1, 2, 3, 4, 5), first) - made.total((2, 3, 4, 5), second)
    return Opened(whole - rest, sent)


def another_model(made: Crew) -> Opened:
    """10: another model to everybody but site 1."""
    bad, mine, theirs = coalition_of(made, 6), made.question(0), made.question(0, w=b"\x07")
    bad.upload((1,), mine, NOTHING)
    bad.upload((2, 3, 4, 5), theirs, NOTHING)
    bad.reveal((1, 2, 3, 4, 5), mine, mine.roster)
    read = bad.opened((1, 2, 3, 4, 5), mine, bad.context(1, mine))
    return Opened(read, made.integers(1, mine) + made.total((2, 3, 4, 5), theirs))


def mixed_contexts(made: Crew) -> Opened:
    """11: the victim has a roster of its own; the others leave out exactly its neighbours."""
    bad = coalition_of(made, 6)
    victim, others = two_contexts(made, bad)
    signed = bad.agree((1, 2, 3), others, (3, 4, 5, 6))
    bad.reveal((1, 2, 3), others, (3, 4, 5, 6), signed)
    return Opened(bad.opened((5,), victim, bad.context(5, victim)), made.integers(5, victim))


def two_epochs(made: Crew) -> Opened:
    """12: shares of an epoch that another one has followed."""
    bad, first = coalition_of(made, 6), made.question(0)
    bad.upload((1, 2, 3, 4, 5), first, NOTHING)
    context, old = bad.context(1, first), {site: member.now for site, member in made.members.items()}
    made.begin_epoch(1)
    if made.members[1].slots.__class__ is Keeping:
        for site, member in made.members.items():
            member.session.state = old[site]
    bad.reveal((1, 2, 3, 4, 5), first, first.roster)
    return Opened(bad.opened((1, 2, 3, 4, 5), first, context), made.total((1, 2, 3, 4, 5), first))


def replayed_receipt(made: Crew) -> Opened:
    """14: the victim's receipt of another slot."""
    bad = coalition_of(made, 6)
    bad.upload((5,), made.question(0), NOTHING)
    victim, others = two_contexts(made, bad, slot=1)
    signed = bad.agree((1, 2, 3), others, (3, 4, 5, 6))
    bad.reveal((1, 2, 3), others, (3, 4, 5, 6), signed)
    return Opened(bad.opened((5,), victim, bad.context(5, victim)), made.integers(5, victim))


SCRIPTS: list[tuple[Callable[[Crew], Opened], type[SlotRules], str]] = [
    (both_ways, SeveralSets, "agreed to another set"),
    (unsigned_lists, NoSignatures, "this set has 0 of the 4 signatures needed"),
    (below_the_quorum, NoQuorum, "a sum of 1 sites has too little noise: the quorum is 4"),
    (late_answers, Keeping, "slot 0 has ended here: slot 1 has begun"),
    (another_model, NoModel, "used for another question"),
    (mixed_contexts, NoReceipts, "no receipt of site 5 for this context"),
    (two_epochs, Keeping, "about epoch 0; epoch 1 has begun"),
    (replayed_receipt, NoSlot, "no receipt of site 5 for this context"),
]


@pytest.mark.parametrize(("script", "careless", "reason"), SCRIPTS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_cheat_is_refused_and_works_without_its_guard(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: Callable[[Crew], Opened],
    careless: type[SlotRules],
    reason: str,
) -> None:
    with crew(tmp_path / "careful") as made, pytest.raises(SiteRefused, match=reason):
        script(made)
    monkeypatch.setattr(sum_session, "SlotRules", careless)
    if careless is Keeping:  # the journal has a guard of its own against these
        with crew(tmp_path / "half careless") as made, pytest.raises(SiteRefused, match="privacy violation"):
            script(made)
        monkeypatch.setattr(SumJournal, "_check_live", lambda *_: None)
    with crew(tmp_path / "careless") as made:
        found = script(made)
        assert np.array_equal(found.read, found.sent)


def _no_such_slot(real: Any) -> Any:
    """Take away the database's guard: a second upload in a slot replaces the first one."""

    def write(self: SumJournal, state: Any, step: Any, *more: Any) -> None:
        self._run("delete from sum_uploads where experiment = ? and slot = ?", step.slot)
        real(self, state, step, *more)

    return write


def _no_such_place(real: Any) -> Any:
    """Take away the ledger's guard: a second upload in a slot is charged as if it were the first."""

    def charge(self: StudyLedger, charge: Any) -> None:
        self.uploads = {}
        real(self, charge)

    return charge


def test_a_second_upload_in_a_slot_is_refused_by_rules_database_and_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with crew(tmp_path / "careful") as made, pytest.raises(SiteRefused, match="used for another question"):
        another_question(made)
    guards = [
        (sum_session, "SlotRules", SeveralQuestions, INTERNAL_ERROR),
        (SumJournal, "write_upload", _no_such_slot(SumJournal.write_upload), STUDY_BROKEN),
        (StudyLedger, "charge", _no_such_place(StudyLedger.charge), ""),
    ]
    for number, (owner, name, without, reason) in enumerate(guards):
        monkeypatch.setattr(owner, name, without)
        with crew(tmp_path / str(number)) as made:
            if reason:
                with pytest.raises(SiteRefused, match=reason):
                    another_question(made)
                continue
            found = another_question(made)
            assert np.array_equal(found.read, found.sent)


def test_both_shares_of_a_site_have_no_place_in_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 7
    for rules in (SlotRules, BothShares):
        monkeypatch.setattr(sum_session, "SlotRules", rules)
        with crew(tmp_path / rules.__name__) as made:
            bad, question = coalition_of(made, 6), made.question(0)
            bad.upload((1, 2, 3, 4, 5), question, NOTHING)
            request = ShareRequest(question, question.roster, (), b"").to_bytes()
            for site in (1, 2, 3, 4, 5):
                values = read_elements(RevealedShares.from_bytes(made.members[site].reveal(request)).shares)
                bad.learn(site, question, question.roster, values)
                for dealer, value in zip(question.roster, values[6:], strict=False):
                    bad.shares[0, 0, dealer, PAIR][site] = value
            context = bad.context(1, question)
            if rules is BothShares:
                assert np.array_equal(bad.opened((1,), question, context), made.integers(1, question))
            else:
                assert np.array_equal(
                    bad.opened((1, 2, 3, 4, 5), question, context), made.total((1, 2, 3, 4, 5), question)
                )
                with pytest.raises(AssertionError, match="no pair secret of 1 and 2 is known"):
                    bad.opened((1,), question, context)


def puppets(made: Crew, keys: dict[int, Any]) -> Opened:
    """1 and 2: sites 2 to 6 are the server's, with these identities; site 1 is an honest agent."""
    made.members[1].agent.answer(wire.encode(Invitation(EXPERIMENT, made.federation.terms.digest)))
    victim, study, request = made.members[1], made.study, EpochRequest(0, 1)
    gullible = Gullible(study.terms, study.experiment, study.parameters, study.identities, study.noise)
    everybody = frozenset(range(1, 7))
    rules = {site: EpochRules(gullible, site, keys[site], everybody) for site in range(2, 7)}
    announced: dict[int, Any] = {site: one.announce(0, 1) for site, one in rules.items()}
    mine = victim.step(wire.ANNOUNCE, request.to_bytes())
    everyone = {1: mine} | {site: data for site, (_, data) in announced.items()}
    directory = Directory.of([Announcement.from_bytes(data) for data in everyone.values()])
    made.directory = directory
    deal = victim.step(wire.DEAL, directory.to_bytes())
    dealt = {site: one.deal(announced[site][0], directory.to_bytes()) for site, one in rules.items()}
    boxes = deliveries_of(directory, {1: deal} | {site: data for site, (_, data) in dealt.items()})
    held = victim.step(wire.KEEP, boxes[1])
    kept = {site: one.keep(dealt[site][0], boxes[site]) for site, one in rules.items()}
    victim.step(wire.BEGIN, roll_of(gullible, directory, {1: held} | {site: data for site, (_, data) in kept.items()}))
    question = made.question(0)
    words = unpack(MaskedUpload.from_bytes(victim.upload(question, NOTHING, b"")).packed, study.parameters.width)
    shares = {site: state.shares[0][1].own for site, (state, _) in kept.items()}  # type: ignore[index]
    own = join(lagrange_weights(sorted(shares)), [shares[site] for site in sorted(shares)])
    context, count = question.context(study, directory.digest), study.parameters.dimension
    for site, (state, _) in kept.items():
        secret = state.secrets[0]
        assert secret is not None
        public = directory.announcements[1].pair_public(0)
        words = words - pair_mask(pair_key(secret.pair), public, (1, site), context, count)
    read = centred(words - self_mask(own, 1, context, count), study.parameters.width)
    return Opened(read, made.integers(1, question))


def test_the_servers_keys_in_place_of_the_sites_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 1
    foreign = {site: identity(40 + site) for site in range(2, 7)}
    with crew(tmp_path / "careful", begun=False) as made:
        reason = "the announcement of site 2 is not signed by the identity in the terms"
        with pytest.raises(SiteRefused, match=reason):
            puppets(made, foreign)
    monkeypatch.setattr(SumStudy, "verify", lambda *given: True)
    with crew(tmp_path / "careless", begun=False) as made:
        found = puppets(made, foreign)
        assert np.array_equal(found.read, found.sent)


def test_sites_that_the_server_invented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 2: the people of site 1 have compared identities with site 2 alone, and one site may collude
    def alone(root: Path) -> Any:
        return crew(root, begun=False)

    def forget(made: Crew) -> dict[int, Any]:
        peers = made.federation.site("s1").peers
        lines = [line for line in peers.read_text().splitlines() if line.startswith(("#", "s2"))]
        peers.write_text("\n".join(lines) + "\n")
        return {site: made.signer(site) for site in range(2, 7)}

    def verified(*given: Any) -> frozenset[int]:
        return frozenset({2})

    with alone(tmp_path / "terms") as made:
        forget(made)
        reply = wire.decode_reply(
            made.agents["s1"].answer(wire.encode(Invitation(EXPERIMENT, made.federation.terms.digest))), 1 << 20
        )
        assert (
            isinstance(reply, wire.Refusal)
            and "verified the identities of s3, s4, s5, s6: they count as" in reply.reason
        )
    monkeypatch.setattr(agreement_module, "_sum_objections", lambda *given: [])
    with (
        alone(tmp_path / "cohort") as made,
        pytest.raises(SiteRefused, match=r"verified the identities of sites 3, 4, 5, 6"),
    ):
        puppets(made, forget(made))
    monkeypatch.setattr(sum_session, "EpochRules", NoCohort)
    with alone(tmp_path / "careless") as made:
        found = puppets(made, forget(made))
        assert np.array_equal(found.read, found.sent)


def test_different_directories_for_different_sites(tmp_path: Path) -> None:
    # 3: colluder 6 announces twice, so two directories have the same announcements of honest sites
    with crew(tmp_path, begun=False) as made:
        made.invite()
        request, ask = EpochRequest(0, 1), {site: member.step for site, member in made.members.items()}
        announced = {
            site: read_announcement(made.study, request, site, one(wire.ANNOUNCE, request.to_bytes()))
            for site, one in ask.items()
        }
        again = EpochRules(made.study, 6, made.signer(6), frozenset(range(1, 7))).announce(0, 1)[0].announcement
        first, second = (Directory.of([*announced.values()]), Directory.of([*(announced | {6: again}).values()]))
        dealt = {site: ask[site](wire.DEAL, first.to_bytes()) for site in (1, 2, 6)}
        dealt |= {site: ask[site](wire.DEAL, second.to_bytes()) for site in (3, 4, 5)}
        with pytest.raises(SiteRefused, match="shared its secrets under another directory of this epoch"):
            ask[1](wire.DEAL, second.to_bytes())
        boxes = deliveries_of(first, dealt)
        with pytest.raises(SiteRefused, match="box of site 3 for site 1 is not signed by it under this directory"):
            ask[1](wire.KEEP, boxes[1])
        with pytest.raises(SiteRefused, match="no epoch has begun at this site"):
            made.directory = first
            made.members[1].upload(made.question(0), NOTHING, b"")


def two_directories(made: Crew) -> Opened:
    """3: cohorts of twelve and nine sites in one epoch, each with enough opinions for a set of its own.

    Site 12 colludes. Sites 1 to 6 open a set without site 4, sites 7 to 11 one without site 5: both secrets of site 4
    are known.
    """
    made.invite()
    study, everybody, roster = made.study, tuple(range(1, 13)), tuple(range(4, 13))
    ask, request = {site: made.members[site].step for site in everybody[:-1]}, EpochRequest(0, 1)
    colluder = TwoDirectories(study, 12, made.signer(12), frozenset(everybody))
    state, announced = colluder.announce(0, 1)
    messages = {site: one(wire.ANNOUNCE, request.to_bytes()) for site, one in ask.items()} | {12: announced}
    read = {site: read_announcement(study, request, site, data) for site, data in messages.items()}
    first, second = (make_directory(study, {site: read[site] for site in sites}) for sites in (everybody, roster))
    dealt: dict[Directory, dict[int, bytes]] = {first: {}, second: {}}
    orders = [((1, 2, 3), (first,)), ((4, 5, 6), (second, first)), ((7, 8, 9, 10, 11), (first, second))]
    for sites, order in orders:  # the last one is what a site continues with
        for directory in order:
            dealt[directory] |= {site: ask[site](wire.DEAL, directory.to_bytes()) for site in sites}
    kept: dict[Directory, KeptEpoch] = {}
    for directory, group in ((first, range(1, 7)), (second, range(7, 12))):
        mine, dealt[directory][12] = colluder.deal(state, directory.to_bytes())
        boxes = deliveries_of(directory, dealt[directory])
        kept[directory], _ = colluder.keep(mine, boxes[12])
        roll = Roll(0, directory.sites, bytes(64 * len(directory.sites))).to_bytes()
        for site in group:
            ask[site](wire.KEEP, boxes[site])
            ask[site](wire.BEGIN, roll)
    made.directory = first
    question = made.question(0, roster)
    context = made.members[1].slots.context(made.members[1].now, question)
    uploads = {site: MaskedUpload.from_bytes(made.members[site].upload(question, NOTHING, b"")) for site in roster[:-1]}
    receipts = {site: upload.receipt for site, upload in uploads.items()}
    receipts[12] = made.signer(12).sign(receipt_statement(study, context, 12))
    known: dict[str, int] = {}
    for directory, group, missing, kind in ((first, range(1, 7), 4, PAIR), (second, range(7, 12), 5, OWN)):
        alive = tuple(site for site in roster if site != missing)
        asked = AliveRequest(question, alive, b"".join(receipts[site] for site in alive)).to_bytes()
        signed = {12: made.signer(12).sign(alive_statement(study, context, alive, 12))}
        for site in group:
            signed[site] = AliveSignature.from_bytes(made.members[site].agree(asked)).signature
        signers = tuple(sorted(signed))
        opening = ShareRequest(question, alive, signers, b"".join(signed[site] for site in signers)).to_bytes()
        shares = {}
        for site in group:
            answer = RevealedShares.from_bytes(made.members[site].reveal(opening))
            shares[site] = read_elements(answer.shares)[roster.index(4)]
        held = kept[directory].shares[0]
        assert held is not None
        shares[12] = held[4].pair if kind == PAIR else held[4].own
        known[kind] = join(lagrange_weights(sorted(shares)), [shares[site] for site in sorted(shares)])
    count, width = study.parameters.dimension, study.parameters.width
    words = unpack(uploads[4].packed, width) - self_mask(known[OWN], 4, context, count)
    for other in roster:
        if other != 4:
            public = first.announcements[other].pair_public(0)
            words = words - pair_mask(pair_key(known[PAIR]), public, (4, other), context, count)
    return Opened(centred(words, width), made.integers(4, question))


def test_two_directories_in_one_epoch_would_open_a_single_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 3: an agent refuses a second directory; without its rules and the journal's unique rows, site 4 is read
    names = tuple(f"s{number}" for number in range(1, 13))

    def twelve(root: Path) -> Any:
        return crew(root, names, missing=4, begun=False)

    reason = "shared its secrets under another directory of this epoch"
    with twelve(tmp_path / "careful") as made, pytest.raises(SiteRefused, match=reason):
        two_directories(made)
    monkeypatch.setattr(sum_session, "EpochRules", TwoDirectories)
    monkeypatch.setattr(sum_session, "SlotRules", NoDirectory)
    real = SumJournal.write_dealt

    def write(self: SumJournal, state: DealtEpoch) -> None:
        self._run("delete from sum_deals where experiment = ? and epoch = ?", state.directory.epoch)
        real(self, state)

    monkeypatch.setattr(SumJournal, "write_dealt", write)
    with twelve(tmp_path / "careless") as made:
        found = two_directories(made)
        assert np.array_equal(found.read, found.sent)


def test_selective_drops_give_sums_with_all_their_noise_and_each_upload_is_charged(tmp_path: Path) -> None:
    # 13: nothing is refused; each sum has honest shares of at least h = q - c sites, and the plan pays for every upload
    with crew(tmp_path) as made:
        made.begin_epoch(1, 7)
        bad, honest = coalition_of(made), made.study.parameters.honest
        for slot, dropped in enumerate((1, 2, 3, 4, 5, 1, 2)):
            question = made.question(slot, tuple(site for site in range(1, 7) if site != dropped))
            bad.upload(question.roster, question, NOTHING)
            bad.reveal(question.roster, question, question.roster)
            read = bad.opened(question.roster, question, bad.context(question.roster[0], question))
            assert np.array_equal(read, made.total(question.roster, question)) and len(question.roster) > honest
        made.begin_epoch(2, 7)
        with pytest.raises(
            SiteRefused, match="made 7 uploads in this study; the plan pays for 4 rounds and a reserve of 3"
        ):
            made.members[6].upload(made.question(0), NOTHING, b"")
        slots = [row["slot"] for row in made.federation.released("s6")]
        assert slots == [f"1/{slot}" for slot in range(7)]


def test_an_upload_beyond_the_plan_is_refused_by_rules_and_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlotRules, "check_charges", lambda *given: None)
    with crew(tmp_path) as made:
        made.begin_epoch(1, 7)
        for slot in range(7):
            made.members[1].upload(made.question(slot), NOTHING, b"")
        made.begin_epoch(2, 7)
        with pytest.raises(SiteRefused, match="round 1 would exceed the budget that is reserved for this study"):
            made.members[1].upload(made.question(0), NOTHING, b"")
        assert len(made.federation.released("s1")) == 7


def test_noise_that_is_not_the_plans_does_not_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = SummedGradient.__call__

    def silent(release: SummedGradient, *given: Any) -> Any:
        return real(release, *given)._replace(event=BatchEvent((NON_PRIVATE,)))

    with crew(tmp_path) as made:
        monkeypatch.setattr(SummedGradient, "__call__", silent)
        with pytest.raises(SiteRefused, match=STUDY_BROKEN):
            made.members[1].upload(made.question(0), NOTHING, b"")
        assert made.federation.released("s1") == []


def test_messages_of_another_study_of_the_same_terms(tmp_path: Path) -> None:
    # 14: a second experiment; the site reserves its whole plan once more, and nothing of the first one is of use
    with crew(tmp_path) as made:
        for site in made.federation.sites:
            made.federation.change(
                site, {"accept": {"algorithms": ["dpgd"], "study_epsilon_max": 10.0, "open_studies_max": 2}}
            )
        made.invite()
        old, question = made.now, made.question(0)
        bad = coalition_of(made, 6)
        bad.upload((1, 2, 3, 4, 5), question, NOTHING)
        receipts = dict(bad.receipts)
        made.experiment = "f" * 32
        made.invite()
        victim = made.members[1]
        victim.step(wire.ANNOUNCE, EpochRequest(0, 4).to_bytes())
        with pytest.raises(SiteRefused, match="another announcement of this site than the one it made"):
            victim.step(wire.DEAL, old.to_bytes())
        made.begin_epoch(1)
        again = replace(made.question(0), epoch=1)
        other = coalition_of(made, 6)
        other.receipts |= receipts
        other.upload((1, 2, 3), again, NOTHING)
        with pytest.raises(SiteRefused, match="no receipt of site 4 for this context"):
            other.agree((1, 2, 3), again, (1, 2, 3, 4))
        with pytest.raises(SiteRefused, match="not in session here; the coordinator must invite this site first"):
            victim.ask(SumRequest(EXPERIMENT, wire.REVEAL, ShareRequest(question, question.roster, (), b"").to_bytes()))
        assert len(made.federation.account("s1").state().studies) == 2


def test_a_site_that_is_broken_into_later_has_nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 15: secrets of slot 0, and what they protect, are in no file once slot 1 has begun
    for rules in (SlotRules, Keeping):
        monkeypatch.setattr(sum_session, "SlotRules", rules)
        with crew(tmp_path / rules.__name__) as made:
            bad = coalition_of(made, 6)
            bad.upload((1, 2, 3, 4, 5), made.question(0), NOTHING)
            bad.upload((1, 2, 3, 4, 5), made.question(1), NOTHING)
            question, keys = made.question(0), made.members[1].now.keys
            if rules is SlotRules:
                assert keys.secrets[:2] == (None, None) and keys.shares[0] is None
                continue
            for site in (1, 2, 3, 4, 5):  # whoever keeps them can be robbed of them
                held = made.members[site].now.keys.shares[0]
                assert held is not None
                bad.shares[0, 0, 1, OWN][site] = held[1].own
            bad.given[0, 0, 1] = keys.secrets[0].pair if keys.secrets[0] else 0
            assert np.array_equal(bad.opened((1,), question, bad.context(1, question)), made.integers(1, question))


def test_an_upload_that_is_asked_for_after_an_opinion(tmp_path: Path) -> None:
    with crew(tmp_path) as made:
        bad, question = coalition_of(made, 6), made.question(0)
        bad.upload((1, 2, 3, 4), question, NOTHING)
        bad.agree((5,), question, (1, 2, 3, 4))
        with pytest.raises(
            SiteRefused, match="agreed to a set of this slot without an upload, so it cannot upload now"
        ):
            bad.upload((5,), question, NOTHING)
        assert made.federation.released("s5") == []


def test_an_opinion_outlives_the_process(tmp_path: Path) -> None:
    with crew(tmp_path) as made:
        bad, question = coalition_of(made, 6), made.question(0)
        bad.upload((1, 2, 3, 4), question, NOTHING)
        signed = bad.agree((1, 2, 3, 4, 5), question, (1, 2, 3, 4))
        bad.reveal((1,), question, (1, 2, 3, 4), signed)
        for member in made.members.values():
            member.agent._session = None
        made.invite()
        first = bad.shares[0, 0, 2, OWN][1]
        bad.reveal((1,), question, (1, 2, 3, 4), signed)  # the same again
        assert bad.shares[0, 0, 2, OWN][1] == first
        for site in (1, 5):
            with pytest.raises(SiteRefused, match="agreed to another set"):
                bad.agree((site,), question, (1, 2, 3, 4, 6))
            with pytest.raises(SiteRefused, match="agreed to another set"):
                bad.reveal((site,), question, question.roster)
