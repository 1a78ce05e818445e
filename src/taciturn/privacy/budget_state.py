"""The contents of a budget ledger as typed records: its budget, what is used and left, and every reservation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Required, TypedDict, cast

from taciturn.errors import LedgerTampered
from taciturn.privacy.composition import ZERO_COST, FilterRow, PrivacyFilter, SideCosts, StudyCost, max_cost, total_cost

RESERVED, STARTED, SETTLED, GIVEN_BACK, VIOLATED = "reserved", "started", "settled", "given back", "violated"
OPEN = (RESERVED, STARTED)
ROUNDED = 2.5e-6  # what rounding in composition may take off a whole budget, as a share of it
_TRANSITIONS: dict[str, tuple[tuple[str, ...], str]] = {  # by kind of row: the states before it, the state after it
    "reserve": (("",), RESERVED),
    "started": ((RESERVED,), STARTED),
    "settle": (OPEN, SETTLED),
    "given-back": ((RESERVED,), GIVEN_BACK),
    "violation": (OPEN, VIOLATED),
}


class BudgetRow(TypedDict, total=False):
    """A line of a budget ledger; its kind decides which of the other keys it has."""

    kind: Required[str]
    time: str
    machine: str
    # of the first line
    data: str
    adjacency: str
    unit: str
    further: bool
    total_epsilon: float
    delta: float
    # of a transfer between machines
    lost_machine: bool
    nonce: str
    to: str  # id of the key that may adopt the ledger
    # of a study
    reservation: str
    study: str
    cost: Mapping[str, float | str]
    held_out: Mapping[str, float | str]
    rule: FilterRow
    split: str
    apart: bool
    non_private: str
    head: str


@dataclass(frozen=True)
class StudyReservation:
    """A study in a budget ledger.

    Attributes
    ----------
    reservation
        The reservation's name.
    study
        The study's name.
    cost
        What it is charged for training records: the reserved cost while the reservation is open, and what was spent
        after it ended. Of a study that is not `apart` this is everything.
    held_out
        What it is charged for held-out records.
    time
        The day on which it was reserved, as YYYY-MM-DD.
    rule
        The stopping rule, if this is the reservation that fixed it.
    non_private
        Why the study's noise protects nothing; empty for a private study.
    split
        The rule by which the study's records train or are held out; empty if all of them train.
    apart
        Whether each side of the ledger's split is charged its own: the study has that split, and neighbours differ in
        the presence of one unit. Otherwise both sides are charged everything.
    state
        RESERVED, STARTED, SETTLED, GIVEN_BACK or VIOLATED.
    started, settled
        The days on which it started and ended; empty if it has not.
    head
        The hash of the last line of the study's own ledger when it ended, if known.
    """

    reservation: str
    study: str
    cost: StudyCost
    held_out: StudyCost
    time: str
    rule: PrivacyFilter | None = None
    non_private: str = ""
    split: str = ""
    apart: bool = False
    state: str = ""
    started: str = ""
    head: str = ""
    settled: str = ""

    @property
    def is_open(self) -> bool:
        """Whether the study may still spend what it reserved."""
        return self.state in OPEN

    def to_json(self) -> dict[str, object]:
        """Return the reservation as `taciturn ledger --json` prints it; empty optional fields are left out."""
        given = {field.name: value for field in fields(self) if (value := getattr(self, field.name))}
        rule = {"rule": self.rule.to_json()} if self.rule else {}
        costs = {"cost": asdict(self.cost), "held_out": asdict(self.held_out)}
        return {"kind": "reserve", **given, **costs, **rule}

    @property
    def costs(self) -> SideCosts:
        """What it is charged on both sides."""
        return SideCosts(self.cost, self.held_out)

    def charged(self, cost: StudyCost, held_out: StudyCost) -> SideCosts:
        """Return what each side is charged for a study of this cost to training and to held-out records."""
        if self.apart:
            return SideCosts(cost, held_out)
        everything = total_cost([cost, held_out])
        return SideCosts(everything, everything)

    def after(self, row: BudgetRow) -> StudyReservation:
        """Return the reservation as it is after a row of the ledger.

        Raises
        ------
        LedgerTampered
            If a row of this kind cannot follow the reservation's state.
        """
        before, state = _TRANSITIONS[row["kind"]]
        if self.state not in before:
            raise LedgerTampered(
                f"the ledger has one line '{row['kind']}' too many for reservation {self.reservation}, which is "
                f"{self.state or 'not in it'}"
            )
        return replace(
            self,
            state=state,
            started=row["time"] if state == STARTED else self.started,
            settled=self.settled if state in OPEN else row["time"],
            cost=StudyCost.from_json(row["cost"]) if "cost" in row else self.cost,
            held_out=StudyCost.from_json(row.get("held_out", row["cost"])) if "cost" in row else self.held_out,
            head=row.get("head", self.head),
        )


@dataclass(frozen=True)
class BudgetState:
    """The contents of a budget ledger.

    Attributes
    ----------
    data, adjacency, unit
        The data set, the relation of neighbouring data sets, and the unit of privacy.
    further
        Whether the records may have another ledger too; the two budgets then add up.
    total_epsilon, delta
        The budget of all studies.
    rule
        The stopping rule that the first reservation fixed; None before it.
    adopted, lost_machines
        The days on which the ledger was adopted, and those of them without a hand-over.
    handed_over
        The id of the key that the ledger was handed over to; empty while it continues here.
    machine
        The machine on which the ledger may be used.
    studies
        All reservations in the order in which they were made.
    """

    data: str
    adjacency: str
    unit: str
    further: bool
    total_epsilon: float
    delta: float
    rule: PrivacyFilter | None
    adopted: tuple[str, ...]
    lost_machines: tuple[str, ...]
    handed_over: str
    machine: str
    studies: tuple[StudyReservation, ...]

    @classmethod
    def from_rows(cls, lines: Sequence[Mapping[str, object]]) -> BudgetState:
        """Return the state that a ledger's lines describe.

        Raises
        ------
        LedgerTampered
            If a reservation has rows that cannot follow one another.
        KeyError, TypeError, IndexError
            If a row is not one of a budget ledger.
        """
        rows = cast(Sequence[BudgetRow], lines)
        first, budget = rows[0], (rows[0]["total_epsilon"], rows[0]["delta"])
        studies: dict[str, StudyReservation] = {}
        for row in rows:
            if row["kind"] in _TRANSITIONS:
                name = row["reservation"]
                rule = PrivacyFilter.from_json(*budget, row["rule"]) if "rule" in row else None
                study = studies.get(name) or StudyReservation(
                    name,
                    row.get("study", ""),
                    ZERO_COST,
                    ZERO_COST,
                    row["time"],
                    rule=rule,
                    non_private=row.get("non_private", ""),
                    split=row.get("split", ""),
                    apart=row.get("apart", False),
                )
                studies[name] = study.after(row)
        adopted = [row for row in rows if row["kind"] == "adopted"]
        return cls(
            first["data"],
            first["adjacency"],
            first["unit"],
            first.get("further", False),
            *budget,
            rule=next((study.rule for study in studies.values() if study.rule), None),
            adopted=tuple(row["time"] for row in adopted),
            lost_machines=tuple(row["time"] for row in adopted if row["lost_machine"]),
            handed_over=rows[-1]["to"] if rows[-1]["kind"] == "handed-over" else "",
            machine=machine_of(rows),
            studies=tuple(studies.values()),
        )

    def to_json(self) -> dict[str, object]:
        """Return the state as `taciturn ledger --json` prints it."""
        budget = ("data", "adjacency", "unit", "further", "total_epsilon", "delta")
        later = ("epsilon_used", "epsilon_next", "adopted", "lost_machines", "handed_over", "machine")
        return {
            **{name: getattr(self, name) for name in budget},
            "rule": self.rule.to_json() if self.rule else None,
            "split": self.split,
            "used": asdict(self.used),
            "used_held_out": asdict(self.used_held_out),
            **{name: getattr(self, name) for name in later},
            "studies": [study.to_json() for study in self.studies],
        }

    @cached_property
    def split(self) -> str:
        """The split of the studies that are charged apart; empty if there is none, and the next one fixes it.

        A study that was given back has released nothing, so it fixes nothing.
        """
        return next((study.split for study in self.studies if study.apart and study.state != GIVEN_BACK), "")

    @cached_property
    def used(self) -> StudyCost:
        """The cost of everything that is spent or reserved, to a record that trains under the ledger's split."""
        return total_cost(study.cost for study in self.studies)

    @cached_property
    def used_held_out(self) -> StudyCost:
        """The cost of everything that is spent or reserved, to a record that the ledger's split holds out."""
        return total_cost(study.held_out for study in self.studies)

    @cached_property
    def epsilon_used(self) -> float:
        """The epsilon of everything that is spent or reserved, to a record on the side that spent more."""
        return max(map(self.epsilon_of_side, (self.used, self.used_held_out)))

    def epsilon_of_side(self, cost: StudyCost) -> float:
        """Return the epsilon of this total cost to a record on one side."""
        return self.filter_for(ZERO_COST).epsilon(cost)

    @cached_property
    def epsilon_next(self) -> float:
        """The total-epsilon of one more study that uses all that is left on both sides."""
        rule = self.filter_for(ZERO_COST)
        return min(rule.next_epsilon(side) for side in (self.used, self.used_held_out))

    @property
    def room(self) -> str:
        """What is left, in words: of all figures for it, the only one that a next study can use."""
        return room_in_words(self.epsilon_next)

    def filter_for(self, first: StudyCost) -> PrivacyFilter:
        """Return the stopping rule; before it is fixed, the one that a first study of this cost would fix."""
        return self.rule or PrivacyFilter.begin(self.total_epsilon, self.delta, first)

    def next_study(self, cost: StudyCost, held_out: StudyCost, split: str) -> StudyReservation:
        """Return how one more study would be charged, as a reservation without a name.

        Parameters
        ----------
        cost, held_out
            Its cost to training records and to held-out records.
        split
            The rule by which its records train or are held out; empty if all of them train.
        """
        apart = bool(split) and self.adjacency == "add-remove" and split == (self.split or split)
        study = StudyReservation("", "", ZERO_COST, ZERO_COST, "", split=split, apart=apart)
        charged = study.charged(cost, held_out)
        return replace(study, cost=charged.training, held_out=charged.held_out)

    def fits(self, cost: StudyCost, held_out: StudyCost = ZERO_COST, split: str = "") -> bool:
        """Return whether the budget allows one more study; see `next_study`."""
        return self.with_study(self.next_study(cost, held_out, split))[1]

    def with_study(self, study: StudyReservation) -> tuple[float, bool]:
        """Return the epsilon used with one more study, and whether the budget allows it."""
        rule = self.filter_for(max_cost(study.costs))
        sides = SideCosts(self.used, self.used_held_out).plus(study.costs)
        return max(map(rule.epsilon, sides)), all(map(rule.allows, sides))


def room_in_words(epsilon: float) -> str:
    """Return in words that a study of this total epsilon fits into a budget; what is shown is never above it.

    Examples
    --------
    >>> room_in_words(2.80279), room_in_words(0.0)
    ('one more study of up to 2.802 fits', 'no further study fits')
    >>> room_in_words(2.999993)  # of 3, nothing is used
    'one more study of up to 3 fits'
    """
    if epsilon <= 0.0:
        return "no further study fits"
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 3)
    return f"one more study of up to {math.floor(epsilon / unit * (1.0 + ROUNDED)) * unit:.6g} fits"


def machine_of(rows: Sequence[Mapping[str, object]]) -> str:
    """Return the machine on which a ledger was created or last adopted."""
    named = (row["machine"] for row in reversed(rows) if "machine" in row and row["kind"] != "handed-over")
    return str(next(named, "(not named)"))
