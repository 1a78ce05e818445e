"""A site's session of one study: its records, ledger and journal, from the first round to the last.

The order of every round is fixed: the journal stores the answer, the ledger is charged, and only then may bytes leave.
"""

from __future__ import annotations

import math
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from taciturn.errors import PrivacyViolation
from taciturn.federation.agreement import Agreement
from taciturn.federation.journal import Charge, Experiment, Journal
from taciturn.federation.policy import Site
from taciturn.federation.run_folder import create_study_folder, federated_study, finish_study_folder, record_round
from taciturn.federation.study_ledger import EventsOfSides, StudyLedger, of_side
from taciturn.objectives.clipping import LARGEST_PARAMETER, admissible
from taciturn.planning.study import Study
from taciturn.privacy.budget import BudgetLedger, ReservationLock
from taciturn.privacy.budget_state import StudyReservation
from taciturn.privacy.events import BatchEvent
from taciturn.privacy.noise import SYSTEM_NOISE, NoiseSource, SeededNoise
from taciturn.runs.folder import RunFolder
from taciturn.runs.ledger import release_entries
from taciturn.runs.records import NonPrivateEntry, ReleaseEntry
from taciturn.training.finish import sign
from taciturn.types import Array, Dataset, Shard

T = TypeVar("T", bound="SiteSession")


class Refused(Exception):
    """A request that this site does not answer; the message contains only public facts and may leave the site."""


@dataclass
class SiteSession:
    """One study that is ready to answer rounds; `open_session` creates a subclass of it.

    Parameters
    ----------
    site, journal, experiment
        The site, its open journal, and the journal's entry of the study.
    agreement, study, folder
        The study as the terms define it, as a run, and its run folder at the site.
    shard, held_out : Shard
        The site's records: those that train, and those that are held out for evaluations.
    seed : int or None
        A seed for the noise, for tests: it gives no protection.
    reservation_lock : ReservationLock
        The lock on the study's reservation; it lasts as long as the session.
    """

    site: Site
    journal: Journal
    experiment: Experiment
    agreement: Agreement
    shard: Shard
    held_out: Shard
    study: Study
    folder: RunFolder
    seed: int | None
    reservation_lock: ReservationLock
    ledger: StudyLedger = field(init=False)
    agreed_files: tuple[bytes, ...] = field(init=False)  # content of the site's files when it agreed
    noise_announced: bool = False  # whether the budget ledger says that this study draws noise

    def __post_init__(self) -> None:
        """Reconcile the ledger with the journal: a crash may have separated them."""
        self.agreed_files = read_agreed_files(self.site)
        self.ledger = reconcile_ledger(self.journal, self.experiment, self.folder)
        plan = self.agreement.plan
        measured = plan.evaluation.events if plan.evaluation else {}
        if self.ledger.planned != of_side(plan.events, False) + of_side(measured, True):
            raise Refused(
                "this study began with another plan than this version of Taciturn computes; it cannot continue"
            )

    @property
    def _round_cost(self) -> EventsOfSides:
        plan = self.agreement.plan
        return of_side({event: count // plan.charges for event, count in plan.events.items()}, False)

    @property
    def _evaluation_cost(self) -> EventsOfSides:
        plan = self.agreement.plan.evaluation
        return of_side({plan.event: 1} if plan else {}, True)

    def _check_events(self, events: Sequence[BatchEvent], planned: EventsOfSides) -> None:
        """Raise if the events of a release are not exactly those of the plan."""
        drawn = Counter((event.runs[0], event.held_out) for event in events)
        if drawn != planned:
            raise PrivacyViolation(f"a release drew {dict(drawn)}; its plan has {dict(planned)}: nothing leaves")

    def _measure(self, t: int, w: Array, number: int) -> tuple[NDArray[np.int64], BatchEvent]:
        """Return the measures of the model w on the held-out records with noise, and the event of the draw.

        Raises
        ------
        Refused
            If the study has no evaluations, or no more of them, or w cannot be a model.
        PrivacyViolation
            If the noise drawn differs from the plan.
        """
        measure = self.agreement.measure
        if measure is None:
            raise Refused("the terms of this study have no evaluations")
        if not 1 <= t <= self.agreement.part.rounds:
            raise Refused(f"there is no model after round {t}: the study has {self.agreement.part.rounds} rounds")
        self._check_parameters(w)
        self._begin_draw(self._evaluation_cost, f"the evaluation of round {t}")
        released = measure(w, self.held_out, self._noise(number))
        self._check_events([released.event], self._evaluation_cost)
        return np.ascontiguousarray(released.integers[:, 0]), released.event

    def _entries(
        self, events: Sequence[BatchEvent], t: int, upload: str, slot: str | None = None
    ) -> tuple[ReleaseEntry, ...]:
        """Return the ledger entries of an upload."""
        counts = Counter((0, event) for event in events)
        labels = self.study.parts[0].batch.labels()
        return tuple(release_entries(counts, labels, [self.site.name], first=t, last=t, upload=upload, slot=slot))

    def close(self, w: Array) -> None:
        """Store the final model, and return the unspent budget to the budget ledger.

        Parameters
        ----------
        w : ndarray of shape [J, 1, K]
            The final model.
        """
        self._check_parameters(w)
        if self.ledger.uploads and not self.folder.finished:
            if not self.folder.read_metrics():  # a crash lost the only line
                size = (w.nbytes, w.nbytes)
                record_round(self.folder, self.study, max(self.ledger.rounds), w, math.nan, size, None)
            title = f"{self.experiment.study} at {self.site.name}"
            finish_study_folder(self.study, self.folder, w, title, self._report_lines())
        settle_study(self.site, self.journal, self.experiment, self.folder)

    def _report_lines(self) -> list[str]:
        return [
            f"This is {self.site.name}'s own folder of the study {self.experiment.study} (experiment "
            f"{self.experiment.id}): its ledger lists what this site released, and the model is the common one.",
            f"{self._participation()} 'taciturn federation site transcript' lists every byte string that left.",
            f"The cost is charged to the site's budget ledger {self.site.ledger.name}, as reservation "
            f"{self.experiment.reservation}.",
            "The file journal.sqlite in the site's state folder is private and must not leave the site.",
        ]

    def _participation(self) -> str:
        """Return in a sentence what the site sent in this study."""
        return f"The site answered {len(self.ledger.uploads)} of {self.agreement.part.rounds} rounds."

    def _charge(self, charge: Charge) -> None:
        """Charge an upload exactly once, even if others charge at the same time."""
        with self.journal.exclusive():
            self.ledger.charge(charge)
            self.ledger.check_not_overdrawn()

    def _begin_draw(self, cost: EventsOfSides, what: str) -> None:
        """Raise unless the reservation has room; write to the budget ledger that noise is about to be drawn."""
        if not self.ledger.has_room(cost):
            raise Refused(f"{what} would exceed the budget that is reserved for this study")
        if not self.noise_announced:
            self.reservation_lock.write_folder(self.folder.path.resolve())
            BudgetLedger.open(self.site.ledger).start(self.experiment.reservation)
            self.noise_announced = True

    def _check_parameters(self, w: Array) -> None:
        zero = self.agreement.zero
        if w.shape != zero.shape or w.dtype != zero.dtype or not admissible(w):
            raise Refused(
                f"w must have shape {zero.shape}, precision {zero.dtype} and finite values of at most "
                f"{LARGEST_PARAMETER:g}"
            )

    def _noise(self, number: int) -> NoiseSource:
        """Return the randomness of one upload; a number is used once in a study."""
        if self.seed is None:
            return SYSTEM_NOISE
        index = self.agreement.terms.agents.index(self.site.name)
        return SeededNoise((self.seed,), index, number, self.agreement.part.batch.streams)


def open_session(
    kind: type[T], site: Site, journal: Journal, name: str, agreement: Agreement, dataset: Dataset, seed: int | None
) -> T:
    """Begin or resume a study at a site: record it, reserve its whole plan, and create its folder.

    Steps that are done already are skipped. The journal comes first, so that a reservation without a journal entry
    means that the journal was lost.

    Parameters
    ----------
    kind : type
        The session's class.
    site, journal
        The site and its open journal.
    name : str
        The experiment, 32 hexadecimal digits.
    agreement : Agreement
        The study, to which the site has no objections.
    dataset : Dataset
        The site's records; its test records are held out.
    seed : int or None
        A seed for the noise, for tests; None for noise from the operating system.

    Raises
    ------
    Refused
        If the study began with another plan.
    CorruptFile
        If an old journal was restored.
    InputError
        If another process holds the reservation, or the folder belongs to another machine.
    """
    study, non_private = federated_study(agreement, site.table or site.published), non_private_reason(seed)
    begun = journal.experiment(name)
    if begun is None:
        begun = journal.begin(name, agreement.terms.name, agreement.terms.digest, uuid.uuid4().hex, non_private)
    reservation_lock, path = ReservationLock(begun.reservation), study_folder(site, name)
    with journal.exclusive():
        if find_reservation(site, begun) is None:
            plan = agreement.study_plan
            BudgetLedger.open(site.ledger).reserve(
                ledger_study_name(begun.study, name),
                plan.cost,
                adjacency=plan.settings.adjacency,
                unit=agreement.facts.unit,
                non_private=non_private,
                name=begun.reservation,
                held_out=plan.held_out_cost,
                split=agreement.terms.split,
            )
        if not path.exists() and not any(journal.charges(name)):
            note = [NonPrivateEntry(agent=site.name, reason=non_private)] if non_private else []
            create_study_folder(path, study, begun.reservation, ledger=note)
    folder = RunFolder.open(path)
    folder.check_home_machine()
    shard, held_out = dataset.train[0], dataset.held_out_shards[0]
    return kind(site, journal, begun, agreement, shard, held_out, study, folder, seed, reservation_lock)


def non_private_reason(seed: int | None) -> str:
    """Return why the noise gives no protection, or "" if it does.

    Examples
    --------
    >>> non_private_reason(7)
    'seeded'
    """
    return "" if seed is None else "seeded"


def reconcile_ledger(journal: Journal, experiment: Experiment, folder: RunFolder) -> StudyLedger:
    """Return a study's ledger after charging every upload of the journal that it does not have."""
    ledger = StudyLedger(folder.chain)
    with journal.exclusive():
        ledger.reconcile(journal.charges(experiment.id))
    return ledger


def settle_study(site: Site, journal: Journal, experiment: Experiment, folder: RunFolder) -> None:
    """Replace a study's reservation by its actual cost, and close it: no request in it is answered afterwards.

    Parameters
    ----------
    site, journal
        The site and its open journal.
    experiment : Experiment
        The study.
    folder : RunFolder
        The study's folder; its ledger decides the cost, after it is reconciled with the journal.

    Raises
    ------
    PrivacyViolation
        If the cost exceeds the reservation. It is charged in full all the same.
    """
    reconcile_ledger(journal, experiment, folder)
    spent = folder.read_ledger()
    sign(folder)
    budget, head = BudgetLedger.open(site.ledger), folder.chain.hashes()[-1]
    try:
        if not budget.is_settled_by(experiment.reservation, head):  # by a process that died before the next line
            budget.settle(experiment.reservation, spent.cost, head, spent.held_out_cost)
    except PrivacyViolation:
        journal.close(experiment.id)  # the budget ledger has all of it; nothing more is answered
        raise
    journal.close(experiment.id)


def cancel_study(site: Site, journal: Journal, experiment: Experiment) -> None:
    """Close a study that has no folder, and so never had a round: its whole reservation is returned.

    A crash can leave a study in this state, before its reservation or after it.
    """
    entry = find_reservation(site, experiment)
    if entry is not None and entry.is_open:
        BudgetLedger.open(site.ledger).give_back(experiment.reservation)
    journal.close(experiment.id)


def close_if_settled(site: Site, journal: Journal, experiment: Experiment) -> bool:
    """Close a study if a crash came between settling and closing it; return whether it is settled."""
    entry = find_reservation(site, experiment)
    if entry is None or entry.is_open:
        return False
    journal.close(experiment.id)
    return True


def open_studies(site: Site, journal: Journal, terms: str) -> list[Experiment]:
    """Return the studies of these terms that were begun here and have not ended."""
    begun = [one for one in journal.experiments() if one.terms == terms and not one.closed_at]
    return [one for one in begun if not close_if_settled(site, journal, one)]


def read_agreed_files(site: Site) -> tuple[bytes, ...]:
    """Return the content of the files that decide what this site takes part in."""
    return tuple(path.read_bytes() if path.exists() else b"" for path in (site.path, site.study, site.peers))


def study_folder(site: Site, name: str) -> Path:
    """Return the folder of a study's ledger and report."""
    return site.state / "studies" / name


def find_reservation(site: Site, experiment: Experiment) -> StudyReservation | None:
    """Return the study's entry in the site's budget ledger, or None."""
    return _find_budget_entry(site, "reservation", experiment.reservation)


def is_known_to_ledger(site: Site, study: str, name: str) -> bool:
    """Return whether the budget ledger has this study; if the journal does not, the journal was lost."""
    return _find_budget_entry(site, "study", ledger_study_name(study, name)) is not None


def ledger_study_name(study: str, name: str) -> str:
    """Return the name of a study in the budget ledger.

    Examples
    --------
    >>> ledger_study_name("heart", "0123")
    'heart/0123'
    """
    return f"{study}/{name}"


def _find_budget_entry(site: Site, key: str, value: str) -> StudyReservation | None:
    studies = BudgetLedger.open(site.ledger).state().studies
    return next((entry for entry in studies if getattr(entry, key) == value), None)
