"""What the lines of a ledger over studies say: its budget, its studies with their states, and what is left.

A reservation is `reserved` until noise is about to be drawn, then `started`, and ends `settled`, `given back` or
`violated`: a study that spent more than was set aside for it, or that a privacy violation stopped, counts with all that
it spent, and with its whole plan at least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tacit.errors import InputError
from tacit.privacy.accountants.gdp import Slack
from tacit.privacy.composition import FREE, Cost, Filter, together

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


def filter_of(state: Mapping[str, Any], first: Cost) -> Filter:
    """The stop rule that the first reservation fixed; where there is none yet, the one that `first` would fix."""
    budget, rule = (state["total_epsilon"], state["delta"]), state["rule"]
    if rule is None:
        return Filter.begin(*budget, first)
    return Filter(*budget, rule["accountant"], Slack(rule["above"], rule["below"], rule["outside"]))


def rule_of(state: Mapping[str, Any], first: Cost) -> dict[str, Any]:
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
            study |= {"cost": asdict(Cost.read(row["cost"]))} if "cost" in row else {}
            study |= {"head": row["head"]} if "head" in row else {}
            study |= {"started": row["time"]} if study["state"] == STARTED else {}
            study |= {"settled": row["time"]} if study["state"] not in OPEN else {}
    used = together(Cost.read(study["cost"]) for study in studies.values())
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
