"""The first commands of a new user: doctor, dry runs, shell completion, and misspelt names."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest

from taciturn import diagnostics as doctor
from taciturn.cli import output
from taciturn.cli.catalog_commands import print_finding
from taciturn.privacy.accountants import tightest
from taciturn.privacy.events import Noise
from tests.cli.helpers import (
    CERTIFIED,
    COMMAND,
    EXAMPLE,
    PAPER,
    environment,
    messages,
    refused,
    taciturn,
    taciturn_json,
)

QUICK = ("--rounds", "5", "--noise", "hardened", "--total-epsilon", "2")


def test_a_dry_run_foresees_what_the_run_then_spends(tmp_path: Path) -> None:
    ledger, out = tmp_path / "clinics.ledger", tmp_path / "run"
    taciturn("ledger", "init", ledger, "--total-epsilon", "3")
    words = ("run", *CERTIFIED, *QUICK, "--ledger", ledger, "--out", out)
    foreseen = taciturn_json(*words, "--dry-run")
    assert not out.exists()
    assert foreseen["ledger"]["used"] == 0.0
    assert taciturn_json("ledger", ledger)["studies"] == []

    done = taciturn_json(*words)
    spent = taciturn_json("ledger", ledger)
    assert foreseen["run"] == done["run"]
    assert foreseen["runs"][0]["spends"] == pytest.approx(done["privacy"]["total_epsilon"], rel=1e-12)
    assert foreseen["runs"][0]["rounds"] == done["runs"][0]["rounds"] == 5
    assert foreseen["ledger"]["used_after"] == pytest.approx(spent["epsilon_used"], rel=1e-12)
    assert foreseen["bytes_up"] * 5 * 3 == done["runs"][0]["bytes_up"]  # three agents

    assert refused(*words, "--dry-run").endswith(f"{out} exists: choose another --out")  # there is nothing to continue
    more = ("run", *CERTIFIED, "--rounds", "5", "--noise", "hardened", "--ledger", ledger)
    assert "is exhausted" in refused(*more, "--total-epsilon", "2.9", "--dry-run")


def test_a_dry_run_reads_no_private_record(tmp_path: Path) -> None:
    """A table whose rows are nonsense is foreseen like any other: only its schema and the declared facts are used."""
    shutil.copytree(EXAMPLE, tmp_path / "clinics")
    table = tmp_path / "clinics" / "records.csv"
    table.write_text("not,a\ntable\n")
    words = [str(table) if word == str(EXAMPLE / "records.csv") else word for word in CERTIFIED]
    assert "no record was read" in taciturn("run", *words, "--dry-run", cwd=tmp_path).stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clinics"]


def test_a_dry_run_adds_up_the_cost_of_all_runs(tmp_path: Path) -> None:
    foreseen = taciturn_json(
        "run", *CERTIFIED, "--seed", "1", "--seeds", "3", "--rounds", "4", "--dry-run", cwd=tmp_path
    )
    clip, records = foreseen["noise"]["clip"], foreseen["data"]["records"]
    event = Noise("gaussian", foreseen["runs"][0]["noise_std"], clip * 11**0.5 / records, clip / records)
    expected = tightest(Counter({event: 4 * 3}), 1e-6).epsilon
    assert foreseen["all_runs_epsilon"] == pytest.approx(expected, rel=1e-9)
    shown = taciturn("run", "--dry-run", cwd=tmp_path).stdout
    assert "512 features by map scattering" in shown and "nothing was trained, written or spent" in shown
    paper = taciturn("run", *PAPER, "--epsilon", "1,inf", "--dry-run", cwd=tmp_path).stdout
    assert "No end-to-end guarantee" in paper
    assert not list(tmp_path.iterdir())


def test_a_draft_schema_causes_a_warning(tmp_path: Path) -> None:
    table = tmp_path / "odd.csv"
    table.write_text((EXAMPLE / "records.csv").read_text().replace("17.99", "?", 1))
    said = taciturn(
        "data", "schema", table, "--label", "diagnosis", "--agent", "clinic", "--out", tmp_path / "d.toml"
    ).stderr
    assert "note: column 'radius' is left out" in said and "'?'" in said
    words = ("--data", table, "--schema", tmp_path / "d.toml", "--agents", "3", "--total-records", "600", "--dry-run")
    assert "marked 'read off the data'" in taciturn("run", *words).stderr
    assert messages(taciturn("run", *CERTIFIED, "--dry-run").stderr) == []


def test_the_doctor_finds_what_is_here(tmp_path: Path) -> None:
    found = {(one["part"], one["name"]): one for one in taciturn_json("doctor", torch=True)["findings"]}
    assert found["Data", "mnist14"]["state"] == "good"
    assert found["Machine", "randomness"]["state"] == "good"
    assert ("Extras", "torch") in found and ("Extras", "test") not in found
    text = taciturn("doctor", torch=True).stdout
    assert all(part in text for part in doctor.PARTS)
    assert "everything works" in text
    assert "scikit-learn" in next(line for line in text.splitlines() if " sklearn " in line)


def test_the_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TACITURN_DATA", str(tmp_path))
    monkeypatch.setattr(metadata, "version", _nothing_installed)
    monkeypatch.setattr(doctor, "MIN_FREE", 10**18)
    found = {(one.part, one.name): one for one in doctor.check_installation()}
    assert found["Extras", "federation"].state == "absent"
    assert "pip install 'taciturn[federation]'" in found["Extras", "federation"].advice
    with output.stdout.capture() as shown:
        print_finding(found["Extras", "federation"])
    assert "'taciturn[federation]'" in shown.get()  # brackets are no markup
    assert found["Taciturn", "requirements"].state == "bad"
    assert found["Data", "mnist"].state == "absent" and "taciturn data fetch mnist" in found["Data", "mnist"].advice
    assert found["Places", "runs"].state == "bad" and "space" in found["Places", "runs"].advice
    assert not doctor.is_healthy(list(found.values()))


def _nothing_installed(name: str) -> str:
    raise metadata.PackageNotFoundError(name)


def test_a_folder_that_is_not_writable_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in its place")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    state = next(one for one in doctor.check_installation() if one.name == "state")
    assert state.state == "bad" and "cannot be written to" in state.words


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_commands_options_and_choices(tmp_path: Path) -> None:
    script = tmp_path / "completion.sh"
    script.write_text(taciturn("completion", "bash").stdout)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "taciturn").write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    (folder / "taciturn").chmod(0o755)

    def offered(*words: str) -> list[str]:
        line = f"""source {script}; COMP_WORDS=({" ".join(words)}) COMP_CWORD={len(words) - 1};
            _taciturn_completion taciturn; printf '%s\\n' "${{COMPREPLY[@]}}" """
        env = environment(PATH=f"{folder}:{os.environ['PATH']}")
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=env, cwd=tmp_path, check=True)
        return done.stdout.split()

    assert "run" in offered("taciturn", "r") and "plan" not in offered("taciturn", "r")
    assert offered("taciturn", "run", "--total-e") == ["--total-epsilon"]
    assert offered("taciturn", "run", "--algorithm", "objp,objp") == ["objp,objp", "objp,objpm"]
    assert offered("taciturn", "run", "--data", "mni") == ["mnist", "mnist14"]


def test_completion_names_its_shells() -> None:
    assert "no shell 'tcsh'" in refused("completion", "tcsh")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("show", "clinic"), "did you mean 'clinics'?"),
        (("run", "stuby.toml"), "did you mean 'study.toml'?"),
        (("run", "--data", "clinics/record.csv"), "did you mean 'clinics/records.csv'?"),
        (("run", "--data", "clinics/records.csv", "--schema", "clinics/scheme.toml"), "'clinics/schema.toml'?"),
        (("ledger", "stuby.toml"), "did you mean 'study.toml'?"),
        (("docter",), "did you mean 'doctor'?"),
        (("run", "--data", "clinics/records.csv", "--schema", "clinics/records.csv"), "is a table, not a schema"),
        (("help",), "use 'taciturn --help'"),
        (("data", "help"), "use 'taciturn data --help'"),
        (("data", "schema", "clinics/records.csv", "--label", "nolabel"), "compare it with the others"),
        (("run", "--algorithm", "hiden"), "did you mean 'hidden'?"),
    ],
)
def test_misspelt_words_get_a_suggestion(tmp_path: Path, words: tuple[str, ...], hint: str) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "clinics")
    (tmp_path / "study.toml").write_text("")
    schema = () if "--schema" in words or "--data" not in words else ("--schema", "clinics/schema.toml")
    assert hint in refused(*words, *schema, cwd=tmp_path)
    assert "did you mean" not in refused("run", "nofile.toml", cwd=tmp_path)  # that is no study.toml
