"""The privacy officer's page: what it must say, and of which runs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import taciturn
from taciturn.reporting.narrative import result_sentences
from taciturn.reporting.statements import guarantee, headline
from taciturn.runs.folder import RunFolder
from tests.data.test_femnist import shard, writer

CLINICS: dict[str, Any] = {
    "data": "tests/data/clinics/records.csv", "schema": "tests/data/clinics/schema.toml", "rounds": 2,
    "total_records": 600, "agents": 3, "noise": "seeded",
}  # fmt: skip


def page(out: Path, **changes: Any) -> str:
    return taciturn.run(**(CLINICS | {"out": str(out)} | changes)).folder.report.read_text()


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        ({}, ["Simulated: nobody is protected, because the noise comes from a known seed. With exact noise from the "
              "operating system the same run would protect every record with total epsilon 1 at delta 1e-06.",
              "No one: this was a simulation.", "It would protect: every single record",
              "Neighbours (add-remove)", "Gaussian noise scaled to that amount"]),
        ({"noise": "hardened", "adjacency": "replace-one"},
         ["Every record is protected with total epsilon 1 at delta 1e-06.", "Protected: every single record",
          "Neighbours (replace-one)",
          "discrete Gaussian noise", "of exact integers as the page 'Discrete Gaussian noise' proves"]),
        ({"noise": "hardened", "trust": "secure-sum", "algorithm": "dpgd", "features": "none"},
         ["if only sums of what all parties send are seen and at most one party tells the server what it knows",
          "one process simulates the secure sum", "the shares of any 2 of the 3 add up to all of it",
          "Nothing in this run prevents it", "How: the gradient of every record is clipped",
          "more parties collude with the server than stated above"]),
        ({"mechanism": "laplace"}, ["Laplace noise", "at δ = 0"]),
        ({"delta": 1e-3}, ["at delta 0.001 (delta 0.001 is 0.6 times one over 600 records: it should be far smaller)"]),
        ({"total_epsilon": "inf"}, ["No guarantee: the run was made without noise"]),
        ({"total_epsilon": "1,inf"}, ["(the run without noise protects nobody)",
                                        "the total epsilon for an observer of all 2 runs is infinite"]),
        ({"seeds": 2}, ["the total epsilon for an observer of all 2 runs is"]),
        ({"algorithm": "hidden"}, ["every record is scaled to length", "the bound for its hidden updates"]),
        ({"algorithm": "dp-fedavg"}, ["changes what is sent by at most a known amount",
                                      "everything that is sent is charged"]),
        ({"algorithm": "objp,dpsgd"}, ["How (objp):", "How (dpsgd):", "amplified by its randomness"]),
        ({"algorithm": "objp,erm-outp"},
         ["Against: the server, all other parties", "who receives every party's records (erm-outp)"]),
        ({"algorithm": "erm-objp"}, ["Against: everyone who sees the model, but not the curator",
                                     "(erm-objp: against all but the curator, who holds every record)",
                                     "by the curator, who holds all records", "Against the curator of erm-objp",
                                     "A central reference is not audited itself"]),
        ({}, ["total_records 600 and records_max 600: declared by the parties, not counted", "The 3 parties",
              "A person with several records", "taciturn audit --run"]),
    ],
)  # fmt: skip
def test_it_says_what_holds(tmp_path: Path, changes: dict[str, Any], sentences: list[str]) -> None:
    text = page(tmp_path / "r", **changes).replace("&#39;", "'")
    for sentence in sentences:
        assert sentence in text, sentence


def test_a_reference_without_noise_is_no_part_of_the_guarantee(tmp_path: Path) -> None:
    """The optimum of a table clips nothing and adds no noise, so the statement does not describe any protection."""
    text = page(tmp_path / "r", total_epsilon="1,inf")
    assert "How: first noisy counts of every column (and of the classes, if there are two) are released" in text
    assert "Balle and Wang 2018); the runs without noise have no finite bound." in text
    ran = RunFolder.open(tmp_path / "r").read_summary(local=False)
    unmeasured = replace(ran, runs=tuple(replace(one, test_error=None) for one in ran.runs))
    said = f"trained 2 models together in {ran.runs[0].rounds} rounds each (optimum in {ran.runs[1].rounds} round"
    assert said in result_sentences(unmeasured)[0]
    assert "(optimum)" not in text and "everyone who sees the model, but not the curator" not in text


def test_on_femnist_the_writer_is_not_protected(tmp_path: Path) -> None:
    for part in ("train", "test"):
        shard(tmp_path / "femnist" / part / "a.json", {"ann": writer(3, 1), "bob": writer(3, 2)})
    text = page(
        tmp_path / "r", data="femnist", data_dir=str(tmp_path), schema="", total_records="auto", agents=10, rounds=1
    )
    assert "The writer: every party is one writer" in text
    assert "the sizes of the published data set" in text


def test_a_public_report_has_no_empty_columns_and_says_what_a_method_is(tmp_path: Path) -> None:
    text = page(tmp_path / "r", seeds=2, total_epsilon="1,2")
    own = (tmp_path / "r" / "local-only" / "report.html").read_text()
    heading = '<th scope="col">objective</th>'
    assert heading in own and "The objective is the loss" in own
    assert heading not in text and "The objective is the loss" not in text and ">lowest<" not in text
    assert "<strong>additive</strong>: an additive model of a table" in text
    assert "trained 4 models together in 2 rounds each without" in text
    assert "docs/explanation" not in text and "docs/howto" not in text
    assert text.count("Simulated: nobody is protected") == 1
    assert 'aria-label="Training, round by round"' in own and 'aria-label="Training, round by round"' not in text


def test_the_headline_follows_from_the_ledger_only(tmp_path: Path) -> None:
    run = taciturn.run(**(CLINICS | {"out": str(tmp_path / "r"), "noise": "hardened"}))
    ledger = run.folder.read_ledger()
    made = guarantee(ledger.study, run.summary.privacy)
    assert run.summary.privacy == ledger.totals
    assert made.headline == headline(run.summary.privacy)
    assert made.good


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-6, "1e-06"),
        (0.99999912, "1"),
        (3.2166, "3.2166"),
        (1.00001, "1.0001"),
        (0.000123456, "0.0001235"),
        (0.0, "0"),
    ],
)
def test_epsilons_are_rounded_upwards(value: float, text: str) -> None:
    from taciturn.reporting.tables import format_epsilon

    assert format_epsilon(value) == text
    assert format_epsilon(math.inf) == "infinite"
    assert format_epsilon(None) == "–"


def test_what_was_spent_beyond_the_budget_is_the_headline(tmp_path: Path) -> None:
    run = taciturn.run(**(CLINICS | {"out": str(tmp_path / "r")}))
    totals, study = run.summary.privacy, run.folder.read_ledger().study
    over = replace(totals, runs=(replace(totals.runs[0], spent_epsilon=3.3),))
    words = "No guarantee as planned: the ledger adds up to epsilon 3.3, more than the budget 1"
    assert headline(over).startswith(words)
    assert not guarantee(study, replace(over, noise="hardened")).good
    assert guarantee(study, replace(totals, noise="hardened")).good
