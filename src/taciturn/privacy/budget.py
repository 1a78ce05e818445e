"""The budget ledger of one data set: every study reserves its whole plan before it begins."""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from taciturn.core.locks import is_locked, locked
from taciturn.core.storage import make_folder, open_file, state_folder, write_text
from taciturn.errors import InputError, PrivacyViolation, missing_file
from taciturn.privacy.accountants.gdp import Slack
from taciturn.privacy.composition import FREE, Filter, StudyCost, largest, together
from taciturn.privacy.hash_chain import HashChain, head_elsewhere
from taciturn.privacy.ledger_transfer import HandOver, TransferRequest, check_hand_over, machine_id, signed_hand_over
from taciturn.privacy.signatures import NAME

RESERVED, STARTED, SETTLED, GIVEN_BACK, VIOLATED = "reserved", "started", "settled", "given back", "violated"
OPEN = (RESERVED, STARTED)
STATES = {  # by kind of row
    "reserve": RESERVED,
    "started": STARTED,
    "settle": SETTLED,
    "given-back": GIVEN_BACK,
    "violation": VIOLATED,
}
FROM = {  # the states that a kind of row may follow
    "reserve": ("",),
    "started": (RESERVED,),
    "settle": OPEN,
    "given-back": (RESERVED,),
    "violation": OPEN,
}


def filter_of(state: Mapping[str, Any], first: StudyCost) -> Filter:
    """The stop rule that the first reservation fixed; where there is none yet, the one that `first` would fix."""
    budget, rule = (state["total_epsilon"], state["delta"]), state["rule"]
    if rule is None:
        return Filter.begin(*budget, first)
    return Filter(*budget, rule["accountant"], Slack(rule["above"], rule["below"], rule["outside"]))


def rule_of(state: Mapping[str, Any], first: StudyCost) -> dict[str, Any]:
    """What the first reservation fixes, as its row says it."""
    rule = filter_of(state, first)
    return {"accountant": rule.accountant, **asdict(rule.room)}


def account_state(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the lines of a ledger over studies say: its budget, what is used or set aside or left, and the studies."""
    first = rows[0]
    studies: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["kind"] in FROM:
            study = studies.setdefault(row["reservation"], dict(row) | {"state": ""})
            if study["state"] not in FROM[row["kind"]]:
                raise InputError(f"the ledger has a line '{row['kind']}' for reservation {row['reservation']} too many")
            study["state"] = STATES[row["kind"]]
            study |= {"cost": asdict(StudyCost.read(row["cost"]))} if "cost" in row else {}
            study |= {"head": row["head"]} if "head" in row else {}
            study |= {"started": row["time"]} if study["state"] == STARTED else {}
            study |= {"settled": row["time"]} if study["state"] not in OPEN else {}
    used = together(StudyCost.read(study["cost"]) for study in studies.values())
    known = {name: first[name] for name in ("total_epsilon", "delta")}
    known["rule"] = next((row["rule"] for row in rows if "rule" in row), None)
    rule = filter_of(known, FREE)
    adopted = [row for row in rows if row["kind"] == "adopted"]
    return {
        "data": first["data"],
        "adjacency": first["adjacency"],
        "unit": first["unit"],
        "further": first.get("further", False),
        **known,
        "used": asdict(used),
        "epsilon_used": rule.epsilon(used),
        "epsilon_next": rule.next_epsilon(used),  # of one more study that uses all that is left
        "adopted": [row["time"] for row in adopted],
        "lost_machines": [row["time"] for row in adopted if row["lost_machine"]],
        "handed_over": rows[-1]["to"] if rows[-1]["kind"] == "handed-over" else "",
        "machine": home_of(rows),
        "studies": list(studies.values()),
    }


def home_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """The machine that a ledger is at home on: where it was begun, or adopted last."""
    named = (row["machine"] for row in reversed(rows) if "machine" in row and row["kind"] != "handed-over")
    return str(next(named, "(not named)"))


KIND = "taciturn data ledger"


class Hold:
    """A lock named after a reservation, for the process that works under it; it goes with the process."""

    def __init__(self, reservation: str) -> None:
        """Take it, or refuse where another process has it."""
        self._place = _hold_file(reservation)
        make_folder(self._place.parent, exist_ok=True)
        self._held = ExitStack()
        refusal = f"reservation {reservation} is held by a process that works under it"
        self._held.enter_context(locked(self._place, refusal))

    def note(self, folder: Path) -> None:
        """Where the work is, for those who look at the ledger on this machine; the ledger itself names no path."""
        self._place.write_bytes(os.fsencode(folder))

    def release(self) -> None:
        """Let it go."""
        self._held.close()

    def __enter__(self) -> Hold:
        """Hold it for a block."""
        return self

    def __exit__(self, *error: object) -> None:
        """Let it go, however the block ends."""
        self.release()


def is_held(reservation: str) -> bool:
    """Whether a process on this machine works under a reservation now."""
    return is_locked(_hold_file(reservation))


def folder_of(reservation: str) -> str:
    """Where the run under a reservation is, as far as this machine knows."""
    place = _hold_file(reservation)
    return os.fsdecode(place.read_bytes()) if place.is_file() else ""


def _hold_file(reservation: str) -> Path:
    return state_folder() / "reservations" / f"{Path(reservation).name}.lock"


@dataclass(frozen=True)
class BudgetLedger:
    """A ledger file; its head is kept in the user's state folder, where a restored backup does not reach."""

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
        """A new ledger with its budget, for one relation of neighbours: sums over several would hold for none.

        `further`: it may be used with records that have another ledger already; what both allow adds up.
        """
        if path.exists():
            raise InputError(f"{path} exists: a ledger is never begun anew")
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} to put {path.name} into")
        account = cls(path, uuid.uuid4().hex)
        make_folder(account._chain.head.parent, exist_ok=True)
        account._chain.create()
        first = {"kind": KIND, "id": account.identity, "data": name, "total_epsilon": total_epsilon, "delta": delta}
        first |= {"adjacency": adjacency, "unit": unit, "machine": machine_id(), "time": _now()}
        first |= {"further": True} if further else {}
        account._chain.append([first])
        return account

    @classmethod
    def open(cls, path: Path) -> BudgetLedger:
        """An existing ledger, which must be at home on this machine."""
        if not path.is_file():
            raise missing_file("ledger", path, f"'taciturn ledger init {path}' begins one")
        account = cls(path, identity_of(path))
        account._check_home(account._chain.read())
        return account

    @classmethod
    def adopt(cls, path: Path, lost_machine: bool = False, key: str = "") -> BudgetLedger:
        """Go on with a ledger that another machine handed over to this one; the row that says so is in it.

        `lost_machine`: there was no hand-over, because there is no machine left to make one. `key`: the id of the key
        that must have signed the hand-over.
        """
        account, here = cls(path, identity_of(path)), machine_id()
        with account._locked():
            rows, known = account._chain.rows(), account._chain.head.exists()
            if known:
                account._chain.read()  # an older copy than the one known here is refused
            if known and home_of(rows) == here:
                raise InputError(f"{path} {_handed_over(rows) or 'is known here already'}: there is nothing to adopt")
            row: dict[str, Any] = {"kind": "adopted", "machine": here, "time": _now(), "lost_machine": lost_machine}
            if lost_machine:
                row["nonce"], added = uuid.uuid4().hex, [row]
            elif rows[-1]["kind"] == "adopted" and home_of(rows) == here:
                row, added = dict(rows[-1]), []  # it was cut short before the head was kept
                if not row["lost_machine"]:
                    account._check_given(rows[-2], account._chain.hashes()[:-1], key)
            else:
                row["nonce"], added = account._check_given(rows[-1], account._chain.hashes(), key).nonce, [row]
            account._chain.append(added) if known else account._chain.adopt(added)
            write_text(account._mark(row["nonce"]), "")
        return account

    def _check_given(self, row: Mapping[str, Any], hashes: Sequence[str], key: str) -> HandOver:
        """The hand-over to this machine that a row is, which was not adopted yet."""
        given = check_hand_over(self.path, self.identity, row, hashes, key)
        if self._mark(given.nonce).exists():
            raise InputError(f"{self.path} was adopted on this machine already: a hand-over is adopted once")
        return given

    def _check_home(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Refuse a ledger that is at home on another machine, or that a copy of the state folder claims to be."""
        if (home := home_of(rows)) != machine_id():
            raise InputError(
                f"{self.path} is at home on machine {home}, and this is machine {machine_id()}: have it handed over, "
                "then adopt it; a state folder that was copied or moved is another machine, and one that several "
                "machines share needs 'taciturn ledger machine --shared' at its home"
            )

    def hand_over(self, to: TransferRequest) -> None:
        """Close the ledger on this machine, for the one that asked for it to go on with."""
        with self._locked():
            state = self._writable()
            for study in state["studies"]:
                if study["state"] == RESERVED or (study["state"] == STARTED and is_held(study["reservation"])):
                    raise InputError(
                        f"{self.path} cannot be handed over yet: reservation {study['reservation']} of "
                        f"{study['study']} is {study['state']}; let its run end, or give it back"
                    )
            hashes = self._chain.hashes()
            self._chain.append([signed_hand_over(self.identity, hashes, to).row() | {"time": _now()}])

    def reserve(
        self,
        study: str,
        cost: StudyCost,
        adjacency: str = "add-remove",
        unit: str = "record",
        non_private: str = "",
        name: str = "",
    ) -> str:
        """Set a study's whole plan aside, and give the reservation's name; what does not fit is refused.

        `non_private` says why the study's noise protects nobody, where it does not: its cost is nominal then. `name` is
        for whoever has to know the reservation's name before it is made.
        """
        with self._locked():
            state = self._writable()
            self.after(state, cost, adjacency, unit)
            if name in {study["reservation"] for study in state["studies"]}:
                raise InputError(f"{self.path} has a reservation {name} already: two of one name would count as one")
            name = name or uuid.uuid4().hex
            row = {"kind": "reserve", "reservation": name, "study": study, "cost": asdict(cost), "time": _now()}
            if state["rule"] is None:
                row["rule"] = rule_of(state, cost)
            self._chain.append([row | ({"non_private": non_private} if non_private else {})])
            return name

    def after(self, state: Mapping[str, Any], cost: StudyCost, adjacency: str, unit: str) -> float:
        """The epsilon used or set aside if one more study were; what does not fit is refused."""
        for what, given in (("adjacency", adjacency), ("unit", unit)):
            if given != state[what]:
                raise InputError(f"{self.path} counts for {what} {state[what]}, and the study's is {given}")
        if not cost.finite:
            raise InputError(f"{self.path} holds finite costs only, and this study's is {cost}")
        after = filter_of(state, cost).epsilon(together([StudyCost.read(state["used"]), cost]))
        if not self.has_room(state, cost):
            raise InputError(
                f"the budget of {self.path} is exhausted: it allows epsilon {state['total_epsilon']:g} at delta "
                f"{state['delta']:g}, {state['epsilon_used']:.4g} of it is used or set aside, and this study would "
                f"bring it to {after:.4g}; total-epsilon {state['epsilon_next']:.4g} still fits"
            )
        return after

    def has_room(self, state: Mapping[str, Any], cost: StudyCost) -> bool:
        """Whether one more study of this cost fits."""
        return filter_of(state, cost).allows(together([StudyCost.read(state["used"]), cost]))

    def start(self, reservation: str) -> None:
        """Note that noise is about to be drawn, on the disk before it is: what started is never given back.

        A run that goes on has started already.
        """
        with self._locked():
            if self._entry(self._writable(), reservation, OPEN)["state"] == RESERVED:
                self._chain.append([{"kind": "started", "reservation": reservation, "time": _now()}])

    def settle(self, reservation: str, cost: StudyCost, head: str = "") -> None:
        """Replace a reservation by what was really spent, once the study has ended; it is done once.

        `head` is the hash of the last line of the study's own ledger, by which a caller that was interrupted knows its
        own work again (`settled_from`); a second folder under the same reservation has another one, and is refused.

        Raises
        ------
        PrivacyViolation
            Where more was spent than was set aside: it is in the ledger then, in full.
        """
        with self._locked():
            planned = StudyCost.read(self._entry(self._writable(), reservation, OPEN)["cost"])
            kind = "settle" if planned.covers(cost) else "violation"
            self._end(kind, reservation, cost if kind == "settle" else largest([planned, cost]), head)
        if kind == "violation":
            raise self._violation(reservation)

    def violated(self, reservation: str, cost: StudyCost, head: str = "") -> None:
        """End the reservation of a study that a privacy violation stopped: it counts with its whole plan at least.

        Done again, it changes nothing.
        """
        with self._locked():
            study = self._entry(self._writable(), reservation, (*OPEN, VIOLATED))
            if study["state"] in OPEN:
                self._end("violation", reservation, largest([StudyCost.read(study["cost"]), cost]), head)

    def _end(self, kind: str, reservation: str, cost: StudyCost, head: str) -> None:
        row = {"kind": kind, "reservation": reservation, "cost": asdict(cost), "time": _now()}
        self._chain.append([row | ({"head": head} if head else {})])

    def _violation(self, reservation: str) -> PrivacyViolation:
        return PrivacyViolation(
            f"the study under reservation {reservation} of {self.path} spent more than was set aside for it, or was "
            "stopped by a violation; the ledger counts what it spent, and nothing of the study may be shown"
        )

    def settled_from(self, reservation: str, head: str) -> bool:
        """Whether a reservation was settled by the study whose ledger ends with this hash; a violation is raised."""
        found = [s for s in self.state()["studies"] if s["reservation"] == reservation and s.get("head") == head]
        if any(study["state"] == VIOLATED for study in found):
            raise self._violation(reservation)
        return bool(found)

    def give_back(self, reservation: str) -> None:
        """Give a reservation back that never started; while a process works under it, or once it started, refuse."""
        self._entry(self._writable(), reservation, (RESERVED,))
        with Hold(reservation):
            self.give_back_held(reservation)

    def give_back_held(self, reservation: str) -> None:
        """`give_back` for the process that holds the reservation."""
        with self._locked():
            self._entry(self._writable(), reservation, (RESERVED,))
            self._chain.append(
                [{"kind": "given-back", "reservation": reservation, "cost": asdict(FREE), "time": _now()}]
            )

    def check_open(self, reservation: str) -> None:
        """Refuse to go on under a reservation that was given back or settled."""
        self._entry(self._writable(), reservation, OPEN)

    def _entry(self, state: Mapping[str, Any], reservation: str, allowed: Sequence[str]) -> Mapping[str, Any]:
        """A reservation in one of the allowed states."""
        study = next((s for s in state["studies"] if s["reservation"] == reservation), None)
        if study is None:
            raise InputError(f"{self.path} has no reservation {reservation}")
        if study["state"] in allowed:
            return dict(study)
        if study["state"] == STARTED:
            raise InputError(
                f"reservation {reservation} of {self.path} has started, and cannot be given back: noise may have been "
                "drawn; 'taciturn resume' of its folder settles it, else its whole plan stays spent"
            )
        raise InputError(
            f"reservation {reservation} of {self.path} is {study['state']} already: it can neither be used nor settled "
            "again, and what a second folder under it released is in no ledger"
        )

    def _writable(self) -> dict[str, Any]:
        """The state of a ledger that goes on here."""
        rows = self._chain.read()
        self._check_home(rows)
        state = account_state(rows)
        if state["handed_over"]:
            raise InputError(f"{self.path} was handed over to key {state['handed_over']}: it goes on there, not here")
        return state

    def state(self) -> dict[str, Any]:
        """Budget, what is used or set aside, what is left, and the studies."""
        return account_state(self._chain.read())

    def doubts(self) -> list[str]:
        """What every report of a study in this ledger has to say about it."""
        state = self.state()
        return ["lost-machine"] * bool(state["lost_machines"]) + ["further"] * state["further"]

    @property
    def chain(self) -> HashChain:
        """Its lines, for those who check or sign them."""
        return self._chain

    @property
    def _chain(self) -> HashChain:
        return HashChain(self.path, head_elsewhere(self.identity))

    def _mark(self, nonce: str) -> Path:
        """The file that says that this machine adopted the ledger under this nonce."""
        return self._chain.head.with_name(f"{self.identity}.{Path(nonce).name}.adopted")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time of all copies of the ledger on this machine."""
        place = self._chain.head.with_suffix(".lock")
        make_folder(place.parent, exist_ok=True)
        handle = open_file(place, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def identity_of(path: Path) -> str:
    """The name in the first line of a ledger over studies."""
    try:
        with path.open("rb") as file:
            first = json.loads(file.readline(2**16))
        if first["kind"] == KIND and NAME.fullmatch(first["id"]):
            return str(first["id"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise InputError(f"{path} is not a ledger over studies: 'taciturn ledger init' begins one")


def _handed_over(rows: Sequence[Mapping[str, Any]]) -> str:
    """Where a ledger went from here, if it did."""
    to = rows[-1]["to"] if rows[-1]["kind"] == "handed-over" else ""
    return f"was handed over from this machine to key {to}" if to else ""


def _now() -> str:
    """The day: the hour would tell how long a study took, and so its rounds."""
    return time.strftime("%Y-%m-%d")
