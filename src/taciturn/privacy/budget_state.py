"""The contents of a budget ledger as typed records: its budget, what is used and left, and every reservation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

from taciturn.errors import LedgerTampered
from taciturn.privacy.composition import ZERO_COST, PrivacyFilter, StudyCost, total_cost

RESERVED, STARTED, SETTLED, GIVEN_BACK, VIOLATED = "reserved", "started", "settled", "given back", "violated"
OPEN = (RESERVED, STARTED)
_TRANSITIONS: dict[str, tuple[tuple[str, ...], str]] = {  # by kind of row: the states before it, the state after it
    "reserve": (("",), RESERVED),
    "started": ((RESERVED,), STARTED),
    "settle": (OPEN, SETTLED),
    "given-back": ((RESERVED,), GIVEN_BACK),
    "violation": (OPEN, VIOLATED),
}


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
        The reserved cost while the reservation is open, and what was spent after it ended.
    time
        The day on which it was reserved, as YYYY-MM-DD.
    rule
        The stopping rule, if this is the reservation that fixed it.
    non_private
        Why the study's noise protects nothing; empty for a private study.
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
    time: str
    rule: PrivacyFilter | None = None
    non_private: str = ""
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
        return {"kind": "reserve", **given, "cost": asdict(self.cost), **rule}

    def after(self, row: Mapping[str, Any]) -> StudyReservation:
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
            cost=StudyCost.read(row["cost"]) if "cost" in row else self.cost,
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
    def from_rows(cls, rows: Sequence[Mapping[str, Any]]) -> BudgetState:
        """Return the state that a ledger's rows describe.

        Raises
        ------
        LedgerTampered
            If a reservation has rows that cannot follow one another.
        KeyError, TypeError, IndexError
            If a row is not one of a budget ledger.
        """
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
                    row["time"],
                    rule=rule,
                    non_private=row.get("non_private", ""),
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
            "used": asdict(self.used),
            **{name: getattr(self, name) for name in later},
            "studies": [study.to_json() for study in self.studies],
        }

    @cached_property
    def used(self) -> StudyCost:
        """The cost of everything that is spent or reserved."""
        return total_cost(study.cost for study in self.studies)

    @cached_property
    def epsilon_used(self) -> float:
        """The epsilon of everything that is spent or reserved."""
        return self.filter_for(ZERO_COST).epsilon(self.used)

    @cached_property
    def epsilon_next(self) -> float:
        """The total-epsilon of one more study that uses all that is left."""
        return self.filter_for(ZERO_COST).next_epsilon(self.used)

    def filter_for(self, first: StudyCost) -> PrivacyFilter:
        """Return the stopping rule; before it is fixed, the one that a first study of this cost would fix."""
        return self.rule or PrivacyFilter.begin(self.total_epsilon, self.delta, first)

    def fits(self, cost: StudyCost) -> bool:
        """Return whether the budget allows one more study of this cost."""
        return self.filter_for(cost).allows(total_cost([self.used, cost]))


def machine_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the machine on which a ledger was created or last adopted."""
    named = (row["machine"] for row in reversed(rows) if "machine" in row and row["kind"] != "handed-over")
    return str(next(named, "(not named)"))
