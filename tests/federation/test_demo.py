"""The demonstration: real processes with mutual TLS and crashes give the same bits as one process."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from taciturn.algorithms import Agent
from taciturn.algorithms.base import SummableAlgorithm
from taciturn.cli.federation_commands import _print_demo
from taciturn.data import load_unmapped
from taciturn.errors import InputError
from taciturn.federation.agreement import derive_agreement, published_shards
from taciturn.federation.demo import Accident, DemoResult, DemoSite, _demo_folder
from taciturn.federation.identity import Identity
from taciturn.federation.run_folder import participation_totals, read_rounds
from taciturn.federation.site_operations import site_status
from taciturn.federation.sum_terms import noise_number
from taciturn.federation.terms import read_terms
from taciturn.privacy.noise import SeededNoise
from taciturn.runs.folder import RunFolder
from tests.cli.helpers import COMMAND, environment, taciturn, taciturn_json
from tests.federation.loopback import Recorder, can_record, count_found
from tests.federation.test_sum_wire import Silent, forms

pytestmark = pytest.mark.federation

ROUNDS, SUM_ROUNDS = 18, 60
SUM_SITES = ("north", "east", "south", "west", "centre")
RECORDED: dict[Path, Recorder] = {}  # by the folder of the demonstration


@pytest.fixture(scope="module")
def place(on_disk: Path) -> Path:
    """The folder of a finished demonstration."""
    return demonstrated(on_disk / "demo", "--rounds", str(ROUNDS))


@pytest.fixture(scope="module")
def sums(on_disk: Path) -> Path:
    """The folder of a finished demonstration of a secure sum."""
    words = ("--trust", "secure-sum", "--rounds", str(SUM_ROUNDS))
    with Recorder(on_disk / "sums") as recorder:
        found = demonstrated(on_disk / "sums", *words)
    RECORDED[found] = recorder
    return found


def demonstrated(folder: Path, *words: str) -> Path:
    command = [*COMMAND, "federation", "demo", "--json", "--out", str(folder), *words]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "result.json").write_text(done.stdout)
    return folder


def test_a_secure_sum_with_a_site_killed_in_an_upload_and_one_before_its_shares(sums: Path) -> None:
    """Real processes and sealed messages: each site got its own boxes, and the model is the simulation's."""
    found = json.loads((sums / "result.json").read_text())
    sites = {site["name"]: site for site in found["sites"]}
    assert len(sites) == 5 and found["rounds"] == SUM_ROUNDS and found["trust"] == "secure-sum"
    assert found["identical_to_simulation"] is True and found["ledgers_cover_uploads"] is True
    assert found["test_error"] < 0.2
    in_upload, before_shares = found["accidents"]
    assert (in_upload["site"], in_upload["charged"], in_upload["in_the_sum"]) == ("south", True, False)
    assert (before_shares["site"], before_shares["charged"], before_shares["in_the_sum"]) == ("west", True, True)
    assert found["slots_opened"] == SUM_ROUNDS <= found["slots_asked"] <= SUM_ROUNDS + 3
    assert 0 < found["budget_spent"] <= found["budget_planned"]
    for site in SUM_SITES:
        assert sites[site]["answered"] <= sites[site]["charged"] <= found["slots_asked"]
        path = sums / "sites" / site / "site.toml"
        if site in read_rounds(RunFolder.open(sums / "run"))[-1].answered:  # on a busy machine a site may come late
            assert site_status(path)["studies"][0]["model"].startswith("signed by the coordinator")
        transcript = taciturn_json("federation", "site", "transcript", path)
        assert transcript["covered"] is True
        kinds = {line["kind"] for line in transcript["departures"]}
        assert {"ready", "sum announce", "sum deal", "sum keep", "sum begin", "sum upload"} <= kinds


@pytest.mark.skipif(not can_record(), reason="the packets of the loopback device are for root")
def test_the_connections_of_a_secure_sum_carry_no_secret_and_no_number_of_a_single_site(sums: Path) -> None:
    """What really left the processes: TCP on the loopback device, in both directions, restarts of sites included."""
    recorder, run = RECORDED[sums], RunFolder.open(sums / "run")
    terms, totals = read_terms(sums / "federation.toml"), participation_totals(run)
    streams = recorder.streams(terms.port)
    assert sum(map(len, streams)) > totals.bytes_up + totals.bytes_down  # all messages are in it, and their envelopes
    assert len(recorder.elements) > 5 * 25 * 2 * 6  # five sites' secrets, and shares of five sites, of most slots
    needles = [*recorder.elements, *(element[::-1] for element in recorder.elements)]
    agreement, published = derive_agreement(terms), load_unmapped(terms.data_options())
    algorithm, zero = cast(SummableAlgorithm, agreement.algorithm), agreement.zero
    epoch, slot = map(int, str(read_rounds(run)[0].slot).split("/"))
    for index, site in enumerate(terms.agents):
        shard, _ = published_shards(terms, published, site)
        noise = SeededNoise((7,), index, noise_number(epoch, slot), agreement.part.batch.streams)
        sources: list[Any] = [noise, Silent()]
        numbers, clean = (
            np.asarray(algorithm.local_gradient(1, zero, Agent(zero, zero), shard, one).gradient, np.int64).reshape(-1)
            for one in sources
        )
        needles += [form for secret in (numbers, clean, numbers - clean) for form in forms(secret[:100])]
    assert count_found(needles, streams) == 0
    hidden = streams[0] + b"".join(needle[3:14] for needle in needles[:7])
    assert count_found(needles, [hidden]) >= 7 * 4  # it would be found


def test_crashes_change_nothing(place: Path) -> None:
    found = json.loads((place / "result.json").read_text())
    assert found["rounds"] == ROUNDS
    assert len(found["sites"]) == 3
    assert found["restarts"] == 2
    assert found["identical_to_simulation"] is True
    assert found["duals_equal"] is True
    assert found["test_error"] < 0.2
    assert found["ms_per_round"] > 0
    assert found["away"]["rounds"] > 0 and found["away"]["seconds"] > 0
    assert Path(found["folder"]) == place


def test_what_was_measured_with_noise_is_shown_after_the_end(place: Path) -> None:
    """The replay has compared the evaluations too. Sites answer no more, and the command needs none of them."""
    words = (place / "federation.toml", "--kits", place / "kits", "--out", place / "run")
    found = taciturn_json("federation", "evaluate", *words)
    assert (found["ended"], found["paid"], found["left"]) == (True, 2, 0)
    first, last = found["evaluations"]
    assert (first["round"], last["round"], last["agents"]) == (ROUNDS // 2, ROUNDS, 3)
    error, test_error = last["quality"]["error"], json.loads((place / "result.json").read_text())["test_error"]
    spread = 4.0 * (error["noise"] + error["sampling"])
    assert abs(error["value"] - test_error) < spread < 0.1
    shown = taciturn("federation", "evaluate", *words).stdout
    assert "confusion" not in shown and "the study has ended" in shown and "± sampling" in shown


def test_a_result_for_people_says_what_was_checked(capsys: pytest.CaptureFixture[str]) -> None:
    _print_demo(
        DemoResult(
            trust="secure-sum",
            rounds=60,
            test_error=0.0996,
            measured_with_noise="",
            ms_per_round=265.8,
            sites=(DemoSite("north", 60, 60, 2.92), DemoSite("south", 44, 45, 2.49)),
            budget_planned=3.0,
            identical_to_simulation=False,
            ledgers_cover_uploads=True,
            duals_equal=None,
            slots_asked=61,
            slots_opened=60,
            accidents=(Accident("south", "in its upload", "0/10", charged=True, in_the_sum=False),),
            away=None,
            restarts=2,
            non_private="seeded",
            folder="",
        )
    )
    said = capsys.readouterr().out
    assert re.search(r"south +44 of 60 +45 +2\.49", said)
    assert re.search(r"same as one process +NO, bit for bit", said) and "duals" not in said and "measured" not in said
    assert re.search(r"south was killed +in its upload, slot 0/10: charged, not in the sum", said)
    assert re.search(r"slots +61 asked, 60 opened", said) and "protection" in said


def test_every_site_has_the_model_signed(place: Path) -> None:
    coordinator = Identity.open(place / "coordinator.identity").public
    for site in ("north", "south", "west"):
        (study,) = site_status(place / "sites" / site / "site.toml")["studies"]
        assert study["model"] == f"signed by the coordinator {coordinator.fingerprint}"


def test_files_are_kept_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator gets their path; a temporary folder is removed after success."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said: list[str] = []
    with pytest.raises(InputError, match="too early"), _demo_folder(None, said.append) as root:
        (root / "coordinator.txt").write_text("why")
        raise InputError("the coordinator has ended too early")
    assert str(root) in said[0] and f"files stay in {root}" in said[1]
    assert (root / "coordinator.txt").read_text() == "why"
    with _demo_folder(None, said.append) as other:
        assert other.is_dir()
    assert not other.exists() and len(said) == 3 and "deleted at the end; --out DIR keeps them" in said[2]
    with _demo_folder(other, said.append):
        assert said[3].endswith(f"are in {other}")


def test_budgets_are_never_less_than_what_left(place: Path) -> None:
    found = json.loads((place / "result.json").read_text())
    assert found["ledgers_cover_uploads"] is True
    assert 0 < found["budget_spent"] <= found["budget_planned"]
    sites = {site["name"]: site for site in found["sites"]}
    for site in sites.values():
        assert 0 < site["answered"] <= ROUNDS
        if site["answered"] == ROUNDS:  # on a busy machine a site may come late
            assert site["spent_epsilon"] == found["budget_planned"]
    assert sites["south"]["answered"] < ROUNDS  # it was missed, and came back
    assert found["non_private"] == "seeded"


def test_every_site_can_say_what_left(place: Path) -> None:
    for site in ("north", "south", "west"):
        path = place / "sites" / site / "site.toml"
        found = taciturn_json("federation", "site", "transcript", path)
        assert found["covered"] is True
        kinds = [line["kind"] for line in found["departures"]]
        assert kinds.count("answer") >= 1
        assert set(kinds) <= {"ready", "answer", "answer again", "measures", "measures again", "closed"}


def test_the_reports_say_that_seeded_noise_protects_nobody(place: Path) -> None:
    folders = [place / "run", *(place / "sites").glob("*/state/studies/*")]
    assert len(folders) == 4
    for folder in folders:
        assert "No guarantee (non_private: seeded)" in (folder / "report.html").read_text()
