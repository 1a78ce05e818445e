"""The ledger counts what was drawn."""

from __future__ import annotations

from collections import Counter

from taciturn.privacy.events import NON_PRIVATE, BatchEvent, Nominal
from taciturn.privacy.ledger import entries, nominal_sums
from taciturn.reporting.statements import statement

LAPLACE = Nominal("laplace-data-dependent", 0.5)


def test_entries_and_their_sums() -> None:
    batch = BatchEvent((LAPLACE, NON_PRIVATE))
    again = BatchEvent((LAPLACE, NON_PRIVATE))  # the same events made anew, as after a resume
    counts = Counter({(0, batch): 3, (1, batch): 2, (1, again): 2})
    runs = [{"run": 0, "algorithm": "objp", "seed": 1}, {"run": 1, "algorithm": "objp", "seed": 1}]
    found = list(entries(counts, runs, ("north", "south")))
    assert [(e["run"], e["agent"], e["mechanism"], e["count"]) for e in found] == [
        (0, "north", "laplace-data-dependent", 3),
        (0, "south", "laplace-data-dependent", 4),
        (1, "north", "none", 3),
        (1, "south", "none", 4),
    ]
    assert nominal_sums(found) == {0: 2.0, 1: float("inf")}  # the agent that released most
    made = statement(found)
    assert made["total_epsilon"] == float("inf")
    assert made["without_noise"] == [1]
    assert any("read off the private records" in reason for reason in made["reasons"])
