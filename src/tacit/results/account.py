"""The ledger of one data set over all studies: every study's whole plan is reserved before it begins.

It adds up Gaussian or zero-concentrated DP, whichever is better for its first study: either sum is a valid stop rule
when later studies are chosen after seeing what earlier ones released; the smaller of both is not known to be one.
"""

from __future__ import annotations

import fcntl
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit.errors import InputError, absent
from tacit.privacy.accountants.gdp import Slack
from tacit.privacy.composition import FREE, Cost, Filter, together
from tacit.results.chain import Chain, head_elsewhere

KIND = "tacit data ledger"


@dataclass(frozen=True)
class Account:
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
    ) -> Account:
        """A new ledger with its budget, for one relation of neighbours: sums over several would hold for none."""
        if path.exists():
            raise InputError(f"{path} exists: a ledger is never begun anew")
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} to put {path.name} into")
        account = cls(path, uuid.uuid4().hex)
        account._chain.head.parent.mkdir(parents=True, exist_ok=True)
        account._chain.create()
        first = {"kind": KIND, "id": account.identity, "data": name, "total_epsilon": total_epsilon, "delta": delta}
        account._chain.append([first | {"adjacency": adjacency, "unit": unit, "time": _now()}])
        return account

    @classmethod
    def open(cls, path: Path) -> Account:
        """An existing ledger."""
        if not path.is_file():
            raise absent("ledger", path, f"'tacit ledger init {path}' begins one")
        account = cls(path, _identity(path))
        account._chain.read()
        return account

    @classmethod
    def adopt(cls, path: Path) -> Account:
        """Take a ledger that was moved here from another machine as it is, and say so in it."""
        account = cls(path, _identity(path))
        if account._chain.head.exists():
            raise InputError(f"{path} is known on this machine already: there is nothing to adopt")
        account._chain.head.parent.mkdir(parents=True, exist_ok=True)
        account._chain.adopt([{"kind": "adopted", "time": _now()}])
        return account

    def reserve(
        self,
        study: str,
        cost: Cost,
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
            state = self.state()
            self.after(state, cost, adjacency, unit)
            name = name or uuid.uuid4().hex
            row = {"kind": "reserve", "reservation": name, "study": study, "cost": asdict(cost), "time": _now()}
            if state["rule"] is None:
                row["rule"] = _rule(state, cost)
            self._chain.append([row | ({"non_private": non_private} if non_private else {})])
            return name

    def after(self, state: Mapping[str, Any], cost: Cost, adjacency: str, unit: str) -> float:
        """The epsilon used or set aside if one more study were; what does not fit is refused."""
        for what, given in (("adjacency", adjacency), ("unit", unit)):
            if given != state[what]:
                raise InputError(f"{self.path} counts for {what} {state[what]}, and the study's is {given}")
        after = _filter(state, cost).epsilon(together([Cost.read(state["used"]), cost]))
        if not self.has_room(state, cost):
            raise InputError(
                f"the budget of {self.path} is exhausted: it allows epsilon {state['total_epsilon']:g} at delta "
                f"{state['delta']:g}, {state['epsilon_used']:.4g} of it is used or set aside, and this study would "
                f"bring it to {after:.4g}; a study of total-epsilon {state['epsilon_next']:.4g} still fits"
            )
        return after

    def has_room(self, state: Mapping[str, Any], cost: Cost) -> bool:
        """Whether one more study of this cost fits."""
        return _filter(state, cost).allows(together([Cost.read(state["used"]), cost]))

    def settle(self, reservation: str, cost: Cost) -> None:
        """Replace a reservation by what was really spent, once the study has ended; settling again changes nothing."""
        with self._locked():
            if not any(row["kind"] == "settle" and row["reservation"] == reservation for row in self._chain.read()):
                self._chain.append(
                    [{"kind": "settle", "reservation": reservation, "cost": asdict(cost), "time": _now()}]
                )

    def check_open(self, reservation: str) -> None:
        """Refuse to go on under a reservation that was given back or settled."""
        study = next((s for s in self.state()["studies"] if s["reservation"] == reservation), None)
        if study is None or "settled" in study:
            raise InputError(f"{self.path} has no open reservation for this run: start a new one")

    def state(self) -> dict[str, Any]:
        """Budget, what is used or set aside, what is left, and the studies."""
        rows = self._chain.read()
        first, studies = rows[0], {row["reservation"]: dict(row) for row in rows if row["kind"] == "reserve"}
        for row in rows:
            if row["kind"] == "settle":
                studies[row["reservation"]] |= {"cost": row["cost"], "settled": row["time"]}
        used = together(Cost.read(study["cost"]) for study in studies.values())
        known = {name: first[name] for name in ("total_epsilon", "delta")}
        known["rule"] = next((row["rule"] for row in rows if "rule" in row), None)
        rule = _filter(known, FREE)
        return {
            "data": first["data"],
            "adjacency": first["adjacency"],
            "unit": first["unit"],
            **known,
            "used": asdict(used),
            "epsilon_used": rule.epsilon(used),
            "epsilon_next": rule.next_epsilon(used),  # of one more study that uses all that is left
            "adopted": [row["time"] for row in rows if row["kind"] == "adopted"],
            "studies": list(studies.values()),
        }

    @property
    def _chain(self) -> Chain:
        return Chain(self.path, head_elsewhere(self.identity))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self.path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _filter(state: Mapping[str, Any], first: Cost) -> Filter:
    """The stop rule that the first reservation fixed; where there is none yet, the one that `first` would fix."""
    budget, rule = (state["total_epsilon"], state["delta"]), state["rule"]
    if rule is None:
        return Filter.begin(*budget, first)
    return Filter(*budget, rule["accountant"], Slack(rule["above"], rule["below"], rule["outside"]))


def _rule(state: Mapping[str, Any], first: Cost) -> dict[str, Any]:
    """What the first reservation fixes, as its row says it."""
    rule = _filter(state, first)
    return {"accountant": rule.accountant, **asdict(rule.room)}


def _identity(path: Path) -> str:
    """The name in the first line of a ledger over studies."""
    try:
        first = json.loads(path.read_bytes().partition(b"\n")[0])
        if first["kind"] == KIND:
            return str(first["id"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise InputError(f"{path} is not a ledger over studies: 'tacit ledger init' begins one")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
