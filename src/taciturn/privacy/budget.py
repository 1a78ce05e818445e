"""The budget ledger of one data set: every study reserves its whole plan before it begins."""

from __future__ import annotations

import json
import math
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from taciturn.core.locks import is_locked, locked
from taciturn.core.storage import make_folder, require_folder, state_folder, write_text
from taciturn.errors import BudgetExhausted, CorruptFile, InputError, PrivacyViolation, missing_file
from taciturn.privacy.budget_state import OPEN, RESERVED, STARTED, VIOLATED, BudgetState, StudyReservation, machine_of
from taciturn.privacy.composition import ZERO_COST, SideCosts, StudyCost, max_cost
from taciturn.privacy.hash_chain import HashChain, state_head_path
from taciturn.privacy.ledger_transfer import HandOver, TransferRequest, check_hand_over, machine_id, signed_hand_over
from taciturn.privacy.signatures import HEX_ID
from taciturn.privacy.trust import Caveat

KIND = "taciturn data ledger"


class ReservationLock(ExitStack):
    """A lock on a reservation for the process that works under it; `close` or the end of the process releases it.

    Parameters
    ----------
    reservation
        The reservation's name.

    Raises
    ------
    InputError
        If another process holds it.
    """

    def __init__(self, reservation: str) -> None:
        super().__init__()
        self._file = _lock_file(reservation)
        make_folder(self._file.parent, exist_ok=True)
        folder = reservation_folder(reservation)
        work = f"{folder} is being trained" if folder else f"reservation {reservation[:12]} is being worked under"
        self.enter_context(locked(self._file, f"{work} by another process"))

    def write_folder(self, folder: Path) -> None:
        """Store the run's folder for `reservation_folder` on this machine; the ledger itself names no path."""
        self._file.write_bytes(os.fsencode(folder))


def is_reservation_held(reservation: str) -> bool:
    """Return whether a process on this machine works under a reservation now."""
    return is_locked(_lock_file(reservation))


def reservation_folder(reservation: str) -> str:
    """Return the folder of the run under a reservation, or an empty text if this machine does not know it."""
    file = _lock_file(reservation)
    return os.fsdecode(file.read_bytes()) if file.is_file() else ""


def _lock_file(reservation: str) -> Path:
    return state_folder() / "reservations" / f"{Path(reservation).name}.lock"


@dataclass(frozen=True)
class BudgetLedger:
    """A budget ledger file. Its head is stored in the user's state folder, which a backup of the file does not include.

    Attributes
    ----------
    path
        The ledger file.
    identity
        The ledger's name, 32 hexadecimal digits, which all of its copies share.
    """

    path: Path
    identity: str

    @classmethod
    def create(
        cls,
        path: Path,
        name: str,
        total_epsilon: float,
        delta: float,
        adjacency: str = "add-remove",
        unit: str = "record",
        further: bool = False,
    ) -> BudgetLedger:
        """Create a ledger with its budget.

        Parameters
        ----------
        path
            The ledger file, which must not exist.
        name
            The data set's name, for readers.
        total_epsilon, delta
            The budget of all studies together.
        adjacency, unit
            The relation of neighbours and the unit of privacy of all studies: costs of different ones do not add up.
        further
            Whether the records may have another ledger already; the two budgets then add up.

        Raises
        ------
        InputError
            If the file exists or its folder does not.
        """
        if path.exists():
            raise InputError(f"{path} exists: a ledger is never overwritten")
        require_folder(path)
        ledger = cls(path, uuid.uuid4().hex)
        make_folder(ledger.chain.head.parent, exist_ok=True)
        ledger.chain.create()
        first = {"kind": KIND, "id": ledger.identity, "data": name, "total_epsilon": total_epsilon, "delta": delta}
        first |= {"adjacency": adjacency, "unit": unit, "machine": machine_id(), "time": _today()}
        ledger.chain.append([first | _given(further=further)])
        return ledger

    @classmethod
    def open(cls, path: Path) -> BudgetLedger:
        """Open an existing ledger.

        Raises
        ------
        InputError
            If there is no such ledger or it belongs to another machine.
        LedgerTampered, CorruptFile
            If its chain or head does not verify.
        """
        if not path.is_file():
            raise missing_file("ledger", path, f"'taciturn ledger init {path}' creates one")
        ledger = cls(path, identity_of(path))
        ledger._check_machine(ledger.chain.read())
        return ledger

    @classmethod
    def adopt(cls, path: Path, lost_machine: bool = False, key: str = "") -> BudgetLedger:
        """Continue a ledger that another machine handed over to this one, and record that in it.

        Parameters
        ----------
        path
            The ledger file.
        lost_machine
            Accept a ledger without a hand-over, because its machine is lost.
        key
            The id of the key that must have signed the hand-over; empty accepts any.

        Raises
        ------
        InputError
            If there is nothing to adopt, or the ledger was not handed over to this machine or was adopted before.
        LedgerTampered, CorruptFile
            If the chain or the hand-over does not verify.
        """
        ledger, here = cls(path, identity_of(path)), machine_id()
        with ledger._locked():
            known = ledger.chain.head.exists()
            rows = ledger.chain.read() if known else ledger.chain.read_unverified()
            if known and machine_of(rows) == here:
                to = rows[-1]["to"] if rows[-1]["kind"] == "handed-over" else ""
                why = f"was handed over from this machine to key {to}" if to else "is already in use on this machine"
                raise InputError(f"{path} {why}: there is nothing to adopt")
            hashes = ledger.chain.hashes()
            row = {"kind": "adopted", "machine": here, "time": _today(), "lost_machine": lost_machine}
            if lost_machine:
                nonce, added = uuid.uuid4().hex, [row]
            elif rows[-1]["kind"] == "adopted" and machine_of(rows) == here:
                nonce, added = str(rows[-1]["nonce"]), []  # an adoption that was interrupted before the head was stored
                if not rows[-1]["lost_machine"]:
                    ledger._check_hand_over(rows[-2], hashes[:-1], key)
            else:
                nonce, added = ledger._check_hand_over(rows[-1], hashes, key).nonce, [row]
            added = [row | {"nonce": nonce} for row in added]
            if known:
                ledger.chain.append(added)
            else:
                ledger.chain.adopt(added)
            write_text(ledger._adoption_mark(nonce), "")
        return ledger

    def _check_hand_over(self, row: Mapping[str, object], hashes: Sequence[str], key: str) -> HandOver:
        hand_over = check_hand_over(self.path, self.identity, row, hashes, key)
        if self._adoption_mark(hand_over.nonce).exists():
            raise InputError(f"{self.path} was already adopted on this machine: a hand-over can be adopted once")
        return hand_over

    def _adoption_mark(self, nonce: str) -> Path:
        """Return the file that marks a hand-over as adopted on this machine."""
        return self.chain.head.with_name(f"{self.identity}.{Path(nonce).name}.adopted")

    def _check_machine(self, rows: Sequence[Mapping[str, object]]) -> None:
        if (machine := machine_of(rows)) != machine_id():
            raise InputError(
                f"{self.path} belongs to machine {machine}, and this is machine {machine_id()}: hand it over there, "
                "then adopt it here. A state folder that was copied or moved counts as another machine; if several "
                "machines share one state folder, run 'taciturn ledger machine --shared' on the ledger's machine"
            )

    def hand_over(self, to: TransferRequest) -> None:
        """Close the ledger on this machine so that the requesting machine can continue it.

        Raises
        ------
        InputError
            If a reservation has not started, or a process works under one.
        """
        with self._locked():
            for study in self._writable().studies:
                held = study.state == STARTED and is_reservation_held(study.reservation)
                if held or study.state == RESERVED:
                    raise InputError(
                        f"{self.path} cannot be handed over yet: reservation {study.reservation} of {study.study} is "
                        f"{study.state}; wait until its run ends, or give it back"
                    )
            row = signed_hand_over(self.identity, self.chain.hashes(), to).to_json()
            self.chain.append([row | {"time": _today()}])

    def reserve(
        self,
        study: str,
        cost: StudyCost,
        adjacency: str = "add-remove",
        unit: str = "record",
        non_private: str = "",
        name: str = "",
        held_out: StudyCost = ZERO_COST,
        split: str = "",
    ) -> str:
        """Reserve the cost of a study's whole plan.

        With add-remove, the first study with a split fixes that of the ledger: a record that its rule holds out never
        trains. Studies with this split are charged for training and for held-out records apart; any other study is
        charged for both on both sides.

        Parameters
        ----------
        study
            The study's name.
        cost
            The cost of its whole plan to training records.
        adjacency, unit
            The study's relation of neighbours and unit of privacy, which must be the ledger's.
        non_private
            Why the study's noise protects nothing; the cost is then nominal.
        name
            The reservation's name, for a caller that must know it in advance; drawn if empty.
        held_out
            The cost of its whole plan to held-out records.
        split
            The rule by which its records train or are held out; empty if all of them train.

        Returns
        -------
        str
            The reservation's name.

        Raises
        ------
        BudgetExhausted
            If the cost does not fit.
        InputError
            If the study cannot be counted in this ledger or the name is taken.
        """
        with self._locked():
            state = self._writable()
            self.epsilon_after(state, cost, adjacency, unit, held_out, split)
            if name in {known.reservation for known in state.studies}:
                raise InputError(
                    f"{self.path} already has a reservation {name}: two of the same name would count as one"
                )
            name = name or uuid.uuid4().hex
            following = state.next_study(cost, held_out, split)
            row = {"kind": "reserve", "reservation": name, "study": study, **_costs(following.costs)}
            row |= {"time": _today()}
            if split:
                row |= {"split": split, "apart": following.apart}
            if state.rule is None:
                row["rule"] = state.filter_for(max_cost(following.costs)).to_json()
            self.chain.append([row | _given(non_private=non_private)])
            return name

    def epsilon_after(
        self,
        state: BudgetState,
        cost: StudyCost,
        adjacency: str,
        unit: str,
        held_out: StudyCost = ZERO_COST,
        split: str = "",
    ) -> float:
        """Return the epsilon used with one more study of this cost.

        Raises
        ------
        BudgetExhausted
            If the study does not fit.
        InputError
            If the study has another adjacency or unit than the ledger, or an infinite cost.
        """
        for what, given, own in (("adjacency", adjacency, state.adjacency), ("unit", unit, state.unit)):
            if given != own:
                raise InputError(f"{self.path} counts for {what} {own}, but the study's is {given}")
        if not (cost.finite and held_out.finite):
            raise InputError(f"{self.path} holds only finite costs, but this study's is {cost}, {held_out}")
        after, fits = state.with_study(state.next_study(cost, held_out, split))
        if not fits:
            raise BudgetExhausted(
                f"the budget of {self.path} is exhausted: it allows epsilon {state.total_epsilon:g} at delta "
                f"{state.delta:g}, {state.epsilon_used:.4g} is used or reserved, and this study would bring it to "
                f"{after:.4g}; {state.room}"
            )
        return after

    def start(self, reservation: str) -> None:
        """Record, durably, that noise is about to be drawn; a reservation that has started is never given back.

        For a resumed run, which has already started, this does nothing.
        """
        with self._locked():
            if self._find(reservation).state == RESERVED:
                self.chain.append([{"kind": "started", "reservation": reservation, "time": _today()}])

    def settle(self, reservation: str, cost: StudyCost, head: str = "", held_out: StudyCost = ZERO_COST) -> None:
        """Replace a reservation by what the study spent. This is done once, after the study has ended.

        Parameters
        ----------
        reservation
            The reservation's name.
        cost
            What was spent on training records.
        head
            The hash of the last line of the study's own ledger, by which an interrupted caller recognises its own work
            (`is_settled_by`); a second folder under the same reservation has another one, and is refused.
        held_out
            What was spent on held-out records.

        Raises
        ------
        PrivacyViolation
            If more was spent than was reserved; the ledger then counts all of it.
        """
        with self._locked():
            study = self._find(reservation)
            spent = study.charged(cost, held_out)
            covered = all(reserved.covers(cost) for reserved, cost in zip(study.costs, spent, strict=True))
            if covered:
                self._end("settle", reservation, spent, head)
            else:
                self._end("violation", reservation, study.costs.largest(spent), head)
        if not covered:
            raise self._violation(reservation)

    def record_violation(
        self, reservation: str, cost: StudyCost, head: str = "", held_out: StudyCost = ZERO_COST
    ) -> None:
        """End the reservation of a study that a privacy violation stopped; it counts with at least its whole plan.

        Repeating this changes nothing.
        """
        with self._locked():
            study = self._find(reservation, (*OPEN, VIOLATED))
            if study.is_open:
                self._end("violation", reservation, study.costs.largest(study.charged(cost, held_out)), head)

    def _end(self, kind: str, reservation: str, spent: SideCosts, head: str = "") -> None:
        row = {"kind": kind, "reservation": reservation, **_costs(spent), "time": _today()}
        self.chain.append([row | _given(head=head)])

    def _violation(self, reservation: str) -> PrivacyViolation:
        return PrivacyViolation(
            f"the study under reservation {reservation} of {self.path} spent more than was reserved, or a violation "
            "stopped it; the ledger counts what it spent, and nothing of the study may be shown"
        )

    def is_settled_by(self, reservation: str, head: str) -> bool:
        """Return whether the study whose ledger ends with this hash has settled a reservation.

        Raises
        ------
        PrivacyViolation
            If it ended with a violation.
        """
        found = [each for each in self.state().studies if each.reservation == reservation and each.head == head != ""]
        if any(study.state == VIOLATED for study in found):
            raise self._violation(reservation)
        return bool(found)

    def give_back(self, reservation: str) -> None:
        """Give back a reservation that never started.

        Raises
        ------
        InputError
            If it has started or ended, or a process works under it.
        """
        self._find(reservation, (RESERVED,))
        with ReservationLock(reservation):
            self.give_back_held(reservation)

    def give_back_held(self, reservation: str) -> None:
        """Give back a reservation whose `ReservationLock` the caller holds."""
        with self._locked():
            self._find(reservation, (RESERVED,))
            self._end("given-back", reservation, SideCosts(ZERO_COST, ZERO_COST))

    def check_open(self, reservation: str) -> None:
        """Raise InputError if a reservation was given back or settled."""
        self._find(reservation)

    def _find(self, reservation: str, allowed: Iterable[str] = OPEN) -> StudyReservation:
        """Return a reservation of a ledger that continues here, in one of the allowed states."""
        study = next((each for each in self._writable().studies if each.reservation == reservation), None)
        if study is None:
            raise InputError(f"{self.path} has no reservation {reservation}")
        if study.state in allowed:
            return study
        if study.state == STARTED:
            raise InputError(
                f"reservation {reservation} of {self.path} has started and cannot be given back, because noise may "
                "have been drawn; 'taciturn resume' with its folder settles it, otherwise its whole plan stays spent"
            )
        raise InputError(
            f"reservation {reservation} of {self.path} is already {study.state}: it can be neither used nor settled "
            "again, and no ledger holds what a second folder under it released"
        )

    def _writable(self) -> BudgetState:
        """Return the state of a ledger that continues on this machine."""
        rows = self.chain.read()
        self._check_machine(rows)
        state = BudgetState.from_rows(rows)
        if state.handed_over:
            raise InputError(f"{self.path} was handed over to key {state.handed_over}: it continues there, not here")
        return state

    def state(self) -> BudgetState:
        """Return the budget, what is used and left, and the studies."""
        return BudgetState.from_rows(self.chain.read())

    def caveats(self) -> list[Caveat]:
        """Return the caveats that every report of a study in this ledger must state."""
        state = self.state()
        return [Caveat.LOST_MACHINE] * bool(state.lost_machines) + [Caveat.FURTHER] * state.further

    @property
    def chain(self) -> HashChain:
        """The ledger's lines, for verifying and signing them."""
        return HashChain(self.path, state_head_path(self.identity))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Allow one writer at a time to all copies of the ledger on this machine."""
        file = self.chain.head.with_suffix(".lock")
        make_folder(file.parent, exist_ok=True)
        with locked(file, "", timeout=math.inf):
            yield


def identity_of(path: Path) -> str:
    """Return the identity in the first line of a budget ledger.

    Raises
    ------
    CorruptFile
        If the file cannot be read or is not a budget ledger.
    """
    try:
        with path.open("rb") as file:
            first = json.loads(file.readline(2**16))
        if first["kind"] != KIND or not HEX_ID.fullmatch(first["id"]):
            raise ValueError("its first line is not that of a ledger")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptFile(f"{path} is not a budget ledger: 'taciturn ledger init' creates one") from error
    return str(first["id"])


def _given(**fields: str | bool) -> dict[str, object]:
    """Return the optional fields of a row that are not empty."""
    return {name: value for name, value in fields.items() if value}


def _costs(costs: SideCosts) -> dict[str, object]:
    """Return the costs of both sides as fields of a row; that of held-out records is left out where it is the same."""
    cost, held_out = costs
    return {"cost": asdict(cost)} | ({} if cost == held_out else {"held_out": asdict(held_out)})


def _today() -> str:
    """Return the date. The time of day would show how long a study took, and so its number of rounds."""
    return time.strftime("%Y-%m-%d")
