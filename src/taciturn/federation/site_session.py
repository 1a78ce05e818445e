"""A site's session of one study: its records, ledger and journal, from the first round to the last."""

from __future__ import annotations

import math
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.algorithms import Step
from taciturn.algorithms.steps import consensus_residual
from taciturn.errors import InputError, PrivacyViolation
from taciturn.federation import messages as wire
from taciturn.federation.agreement import Agreement
from taciturn.federation.journal import Answered, Experiment, Journal
from taciturn.federation.messages import Answer, RoundRequest
from taciturn.federation.policy import Site
from taciturn.federation.run_folder import begin_books, close_books, record_round, round_row, study_of
from taciturn.objectives.clipping import LARGEST_PARAMETER, admissible
from taciturn.planning.study import Study
from taciturn.privacy.budget import BudgetLedger, ReservationLock
from taciturn.privacy.budget_state import StudyReservation
from taciturn.privacy.composition import cost_of, total_cost
from taciturn.privacy.events import Event, event_of
from taciturn.privacy.hash_chain import HashChain
from taciturn.privacy.noise import SYSTEM_NOISE, NoiseSource, SeededNoise
from taciturn.runs.folder import RunFolder
from taciturn.runs.ledger import RunLedger, release_entries
from taciturn.runs.records import NonPrivateEntry
from taciturn.training.finish import sign
from taciturn.types import Array, Shard


@dataclass
class Charged:
    """What the ledger of one study has charged; it is read again whenever something else has touched it."""

    chain: HashChain
    uploads: dict[str, int] = field(default_factory=dict)  # the hash of each upload -> its round
    rounds: set[int] = field(default_factory=set)  # those that were charged
    planned: Counter[Event] = field(default_factory=Counter)
    drawn: Counter[Event] = field(default_factory=Counter)
    _size: int = -1  # of the ledger when it was last read or written here

    def refresh(self) -> None:
        """Read the ledger, unless it is as this process left it."""
        size = self.chain.path.stat().st_size if self.chain.path.exists() else 0
        if size == self._size:
            return
        ledger = RunLedger.from_rows(self.chain.read(), self.chain.path)
        self.uploads = {entry.upload or "": entry.first or 0 for entry in ledger.releases}
        self.rounds = set(self.uploads.values())
        self.drawn = _counted(ledger.releases)
        self.planned = _counted(event for plan in ledger.plans.values() for event in plan.events)
        self._size = size

    def room_for(self, events: Counter[Event]) -> bool:
        """Whether the plan that was set aside covers these events too."""
        self.refresh()
        return self.drawn + events <= self.planned

    def charge(self, row: Answered) -> None:
        """Put a round's events into the ledger, unless they are there.

        A line whose head could not be kept (a full disk elsewhere) is in the ledger: it is not added again, and what it
        is about does not leave before the head is kept.
        """
        self.refresh()
        upload = row.events[0]["upload"]
        if upload in self.uploads:
            self.chain.keep_head()
            return
        if row.round in self.rounds:
            raise PrivacyViolation(f"the ledger has round {row.round} with another upload than the journal")
        self._size = -1  # whatever happens now, only the file knows
        self.chain.append(row.events)
        self.uploads[upload] = row.round
        self.rounds.add(row.round)
        self.drawn += _counted(row.events)
        self._size = self.chain.path.stat().st_size

    def refuse_overdrawn(self) -> None:
        """Refuse to let anything leave of a study that drew more than was set aside; the ledger has all of it."""
        self.refresh()
        if not self.drawn <= self.planned:
            raise PrivacyViolation("the ledger of the study has more than was set aside for it: nothing more leaves")

    def catch_up(self, rows: Iterable[Answered]) -> None:
        """Bring the ledger up to the journal; a journal that knows less is an old one."""
        self.refresh()
        found = list(rows)
        if lost := self.rounds - {row.round for row in found}:
            raise InputError(f"the ledger has round {min(lost)}, and the journal does not: an old journal was put back")
        for row in found:
            if row.events[0]["upload"] not in self.uploads:
                self.charge(row)


def _counted(rows: Iterable[Mapping[str, Any]]) -> Counter[Event]:
    found: Counter[Event] = Counter()
    for row in rows:
        found[event_of(row)] += row["count"]
    return found


class Refused(Exception):
    """Something this site does not do; the reason is made of public facts, and may be told."""


@dataclass
class SiteSession:
    """One study, ready to answer rounds."""

    site: Site
    journal: Journal
    experiment: Experiment
    agreement: Agreement
    shard: Shard
    books: Study
    folder: RunFolder
    seed: int | None  # noise from this seed: for tests, and of no protection
    hold: ReservationLock  # of the study's reservation, while it is at work
    charged: Charged = field(init=False)  # what the ledger has
    agreed: tuple[bytes, ...] = field(init=False)  # what the site's files said when it agreed
    started: bool = False  # whether the ledger over studies knows that noise is drawn

    def __post_init__(self) -> None:
        """Bring the ledger up to the journal: a crash may have come between the two."""
        self.agreed = agreed_files(self.site)
        self.charged = caught_up(self.journal, self.experiment, self.folder)
        if self.charged.planned != self.agreement.plan.events:
            raise Refused("this study was begun under another plan than this Taciturn makes: it cannot go on here")

    def answer(self, message: RoundRequest) -> bytes:
        """Lines 14-23 of Algorithm 1 between journal and send; the same question gets the same bytes again.

        From the look at the last round to the written answer nobody else writes to the journal, and the round is
        claimed before noise is drawn: neither threads nor processes that ask at once get two answers of one round.
        """
        t, w, name = message.round, wire.array_digest(message.w), self.experiment.id
        base = message.bases.get(self.site.name)
        if base is None:
            raise Refused("the message names no base for this site")
        with self.journal.alone():
            last = self.journal.last(name)
            before = last if last is not None and t <= last.round else None
            row, z = (before, message.w) if before else self._draw(message, base, w)
        if before:
            return self._again(before, t, w, base)
        self._charge(row)  # the noise is drawn, whatever becomes of it
        if row.upload is None:
            raise Refused(f"round {t} came to numbers that are not finite: it is charged, and they stay here")
        residual = float(consensus_residual(message.w, [z])[0])
        size = message.w.nbytes * len(self.charged.uploads)
        record_round(
            self.folder,
            round_row(self.books, t, message.w, residual, (size, size), None),
        )
        return row.upload

    def _draw(self, message: RoundRequest, base: int, w: str) -> tuple[Answered, Array]:
        """A round that was never answered: claim it, compute it, and write down all that may leave of it."""
        t, name = message.round, self.experiment.id
        agent = self.journal.state(name, base, self.agreement.zero)
        if agent is None or not base < t <= self.agreement.part.rounds:
            raise Refused(f"round {t} from base {base} does not follow from what this site has answered")
        self._check(message.w)
        if not self.charged.room_for(self._cost):
            raise Refused(f"round {t} would cost more than was set aside for this study")
        self._start()
        self.journal.claim(name, t, base, w)
        step = self.agreement.algorithm.agent_step(t, message.w, agent, self.shard, self._noise(t))
        self._check_events(step)
        data = wire.encode(Answer(name, self.site.name, t, step.upload.z))
        drawn = release_entries(
            Counter((0, event) for event in step.events),
            self.books.parts[0].batch.labels(),
            [self.site.name],
            first=t,
            last=t,
            upload=wire.digest(data),
        )
        finite = bool(np.isfinite(step.upload.z).all())
        row = Answered(t, base, w, [entry.to_json() for entry in drawn], data if finite else None)
        self.journal.write(name, row, step.agent)
        return row, step.upload.z

    @property
    def _cost(self) -> Counter[Event]:
        """What one round draws, by the plan."""
        plan = self.agreement.plan
        return Counter({event: count // plan.rounds for event, count in plan.events.items()})

    def _check_events(self, step: Step) -> None:
        """What was drawn must be what the plan has, to the bit."""
        drawn = Counter(event.runs[0] for event in step.events)
        if drawn != self._cost:
            raise PrivacyViolation(f"a round drew {dict(drawn)}, and its plan has {dict(self._cost)}: nothing leaves")

    def close(self, w: Array) -> None:
        """The model comes home, and what was not spent goes back to the ledger over studies."""
        self._check(w)
        if self.charged.uploads and not self.folder.finished:
            if not self.folder.read_metrics():  # a crash took the only line
                row = round_row(self.books, max(self.charged.rounds), w, math.nan, (w.nbytes, w.nbytes), None)
                record_round(self.folder, row)
            close_books(self.books, self.folder, w, f"{self.experiment.study} at {self.site.name}", self._lines())
        settle(self.site, self.journal, self.experiment, self.folder)

    def _lines(self) -> list[str]:
        """What this site's report says of its part."""
        return [
            f"This is {self.site.name}'s own folder of the study {self.experiment.study} (experiment "
            f"{self.experiment.id}): its ledger has what this site released, and the model is the common one.",
            f"It answered {len(self.charged.uploads)} of {self.agreement.part.rounds} rounds; "
            "'taciturn federation site transcript' lists every byte string that left.",
            f"It is charged to the site's ledger over studies {self.site.ledger.name}, as reservation "
            f"{self.experiment.reservation}.",
            "Beside this folder lies journal.sqlite, the site's private state: it must not leave the site.",
        ]

    def _again(self, last: Answered, t: int, w: str, base: int) -> bytes:
        if t < last.round:
            raise Refused(f"round {t} is stale: this site has answered round {last.round}")
        if (w, base) != (last.w, last.base):
            raise Refused(f"round {t} was answered for another w or base: that would be a fork of the study")
        if last.upload is None:
            raise Refused(f"round {t} is behind what the server has accepted")
        self._charge(last)  # where the ledger could not be written before
        return self.journal.depart_again(self.experiment.id, "answer again", t, last.upload).data

    def _charge(self, row: Answered) -> None:
        """The round's events in the study's ledger, once, even where others charge at the same time."""
        with self.journal.alone():
            self.charged.charge(row)
            self.charged.refuse_overdrawn()

    def _start(self) -> None:
        """The ledger over studies knows that noise is drawn before it is."""
        if not self.started:
            self.hold.write_folder(self.folder.path.resolve())
            BudgetLedger.open(self.site.ledger).start(self.experiment.reservation)
            self.started = True

    def _check(self, w: Array) -> None:
        zero = self.agreement.zero
        if w.shape != zero.shape or w.dtype != zero.dtype or not admissible(w):
            raise Refused(
                "w has not the shape, the precision or the finite numbers of this study's parameters, all within "
                f"{LARGEST_PARAMETER:g}"
            )

    def _noise(self, t: int) -> NoiseSource:
        if self.seed is None:
            return SYSTEM_NOISE
        index = self.agreement.terms.agents.index(self.site.name)
        return SeededNoise((self.seed,), index, t, self.agreement.part.batch.streams)


def begin(site: Site, journal: Journal, name: str, agreement: Agreement, shard: Shard, seed: int | None) -> SiteSession:
    """Take note of the study, set its whole plan aside, and begin its books; whatever of it is done already stays done.

    The journal comes first, so that a reservation without a journal means that the journal was lost.
    """
    books, marked = study_of(agreement, site.table or site.published), mark(seed)
    begun = journal.experiment(name)
    if begun is None:
        begun = journal.begin(name, agreement.terms.name, agreement.terms.digest, uuid.uuid4().hex, marked)
    hold = ReservationLock(begun.reservation)
    place = study_folder(site, name)
    with journal.alone():
        if reservation_of(site, begun) is None:
            adjacency, unit = agreement.outline.settings.adjacency, agreement.facts.unit
            BudgetLedger.open(site.ledger).reserve(
                in_account(begun.study, name), agreement.plan.cost, adjacency, unit, marked, begun.reservation
            )
        if not place.exists() and journal.last(name) is None:
            note = [NonPrivateEntry(agent=site.name, reason=marked)] if marked else []
            begin_books(place, books, begun.reservation, ledger=note)
    folder = RunFolder.open(place)
    folder.check_at_home()
    return SiteSession(site, journal, begun, agreement, shard, books, folder, seed, hold)


def mark(seed: int | None) -> str:
    """Why noise protects nobody, where it does not."""
    return "" if seed is None else "seeded"


def caught_up(journal: Journal, experiment: Experiment, folder: RunFolder) -> Charged:
    """A study's ledger, brought up to its journal."""
    charged = Charged(folder.chain)
    with journal.alone():
        charged.catch_up(journal.answered(experiment.id))
    return charged


def settle(site: Site, journal: Journal, experiment: Experiment, folder: RunFolder) -> None:
    """Replace a study's reservation by what it has spent; afterwards nothing more is answered in it."""
    caught_up(journal, experiment, folder)
    spent = [cost_of(events) for agents in folder.read_ledger().events.values() for events in agents.values()]
    sign(folder)
    account, head = BudgetLedger.open(site.ledger), folder.chain.hashes()[-1]
    try:
        if not account.is_settled_by(experiment.reservation, head):  # by a process that ended before the next line
            account.settle(experiment.reservation, total_cost(spent), head)
    except PrivacyViolation:
        journal.close(experiment.id)  # it is in the ledger over studies, in full: nothing more is answered
        raise
    journal.close(experiment.id)


def give_back(site: Site, journal: Journal, experiment: Experiment) -> None:
    """Close a study that has no folder yet, and so never had a round: its whole plan goes back to the ledger."""
    entry = reservation_of(site, experiment)
    if entry is not None and entry.is_open:
        BudgetLedger.open(site.ledger).give_back(experiment.reservation)
    journal.close(experiment.id)


def finish_closing(site: Site, journal: Journal, experiment: Experiment) -> bool:
    """Whether a crash came between settling a study and closing it; it is closed then."""
    entry = reservation_of(site, experiment)
    if entry is None or entry.is_open:
        return False
    journal.close(experiment.id)
    return True


def open_studies(site: Site, journal: Journal, terms: str) -> list[Experiment]:
    """The studies of these terms that were begun here and have not ended."""
    begun = [one for one in journal.experiments() if one.terms == terms and not one.closed]
    return [one for one in begun if not finish_closing(site, journal, one)]


def agreed_files(site: Site) -> tuple[bytes, ...]:
    """The content of the files that decide what this site takes part in."""
    return tuple(path.read_bytes() for path in (site.path, site.study))


def study_folder(site: Site, name: str) -> Path:
    """Where a study's ledger and report are."""
    return site.state / "studies" / name


def reservation_of(site: Site, experiment: Experiment) -> StudyReservation | None:
    """The study's place in the ledger over studies, where it has one."""
    return _entry(site, lambda entry: entry.reservation == experiment.reservation)


def forgotten(site: Site, study: str, name: str) -> bool:
    """Whether the ledger over studies knows a study that the journal does not: what was answered is forgotten."""
    return _entry(site, lambda entry: entry.study == in_account(study, name)) is not None


def in_account(study: str, name: str) -> str:
    """What a study is called in the ledger over studies."""
    return f"{study}/{name}"


def _entry(site: Site, wanted: Callable[[StudyReservation], bool]) -> StudyReservation | None:
    return next((entry for entry in BudgetLedger.open(site.ledger).state().studies if wanted(entry)), None)
