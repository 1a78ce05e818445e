"""The ledger counts what was drawn, and its records survive the way through JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter

import pytest

from taciturn.core.storage import to_json
from taciturn.errors import CorruptFile
from taciturn.privacy.events import NON_PRIVATE, BatchEvent, Discrete, Noise, Nominal
from taciturn.reporting.statements import paper_statement
from taciturn.runs.ledger import RunLedger, release_entries
from taciturn.runs.records import EventCount, MethodFacts, PlanEntry, RunLabel, StudyHeader, ledger_entry

LAPLACE = Nominal("laplace-data-dependent", 0.5)
HEADER = StudyHeader(
    taciturn="0",
    mode="paper",
    noise="seeded",
    delta=1e-6,
    clip="auto",
    methods={"objp": MethodFacts(noise_on="gradients", scales_records=False, central=False, promise="none", rounds=3)},
)
PLAN = PlanEntry(
    run=0,
    algorithm="objp",
    epsilon=math.inf,
    total_epsilon=math.inf,
    delta=1e-6,
    planned_epsilon=0.5,
    accountant="gdp",
    rounds=3,
    events=(EventCount(event=Noise("gaussian", 1.0, 2.0, 3.0), count=3), EventCount(event=NON_PRIVATE, count=1)),
)


def runs(count: int) -> list[RunLabel]:
    return [RunLabel(run=r, algorithm="objp", epsilon=0.5, seed=1) for r in range(count)]


def test_entries_and_their_sums() -> None:
    batch = BatchEvent((LAPLACE, NON_PRIVATE))
    again = BatchEvent((LAPLACE, NON_PRIVATE))  # the same events in another object, as after a resume
    counts = Counter({(0, batch): 3, (1, batch): 2, (1, again): 2})
    found = list(release_entries(counts, runs(2), ("north", "south"), first=1, last=4))
    assert [(entry.run, entry.agent, entry["mechanism"], entry.count) for entry in found] == [
        (0, "north", "laplace-data-dependent", 3),
        (0, "south", "laplace-data-dependent", 4),
        (1, "north", "none", 3),
        (1, "south", "none", 4),
    ]
    ledger = RunLedger((HEADER, *found))
    assert ledger.nominal_sums == {0: 2.0, 1: math.inf}  # the agent that released most
    stated = paper_statement(ledger)
    assert (stated.nominal_sums, stated.without_noise) == ({0: 2.0}, [1])
    assert len(stated.reasons) > len(paper_statement(RunLedger((HEADER,))).reasons), "each mechanism has its reason"


@pytest.mark.parametrize(
    "entry",
    [
        HEADER,
        PLAN,
        *release_entries(
            {(0, BatchEvent((Discrete(0.1, 2.0, 30.0, 7),))): 2}, runs(1), ["north"], first=1, last=2, upload="ab"
        ),
    ],
)
def test_an_entry_is_read_back_as_it_was_written(entry: StudyHeader | PlanEntry) -> None:
    written = json.loads(to_json(entry))
    assert written == entry.to_json() and written["kind"] == entry.kind
    assert ledger_entry(written, "ledger") == entry
    assert set(written) == set(entry), "the mapping has the keys of the JSON form"
    optional = {field.name for field in dataclasses.fields(entry) if field.default is None}
    for key in set(written) - {"kind"} - optional:
        with pytest.raises(CorruptFile, match=key):
            ledger_entry({k: v for k, v in written.items() if k != key}, "ledger")


@pytest.mark.parametrize("changes", [{"delta": "small"}, {"delta": True}, {"methods": []}, {"kind": "study2"}])
def test_a_line_with_a_value_of_another_type_is_damaged(changes: dict[str, object]) -> None:
    with pytest.raises(CorruptFile, match="damaged"):
        ledger_entry(HEADER | changes, "ledger")
