"""What a site and a server refuse, with real processes, sockets and certificates."""

from __future__ import annotations

import datetime
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tacit.federation.flare import processes
from tacit.federation.flare.job import write_job
from tacit.federation.flare.local import LocalFederation, local_federation
from tacit.federation.flare.names import ADMIN_KIT, EXECUTOR, SITE_VARIABLE
from tacit.federation.flare.provision import provision
from tacit.federation.flare.session import Server, connect

from tacit.federation.journal import Journal
from tacit.federation.policy import read_site
from tacit.federation.terms import read_terms
from tacit.privacy.composition import Cost
from tacit.results.account import Account
from tacit.results.folder import read_lines

pytestmark = pytest.mark.federation

HOSTILE = Path(__file__).parent / "hostile"
SITES = dict.fromkeys(("good", "fine", "strict", "spent", "tamper", "nonsense"), 10_000)  # of mnist14's 60,000
ROUNDS = 1000  # more than will be played: the study goes on while jobs are refused
ENOUGH = 14  # rounds in which every kind of nonsense was sent


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """One study with two honest sites, two that must refuse, two hostile ones, and a coordinator with open locks."""
    root = tmp_path_factory.mktemp("security")
    study = {"features": "none", "algorithm": "objp", "rounds": ROUNDS, "total_epsilon": 3.0}
    running = {"quorum": 2, "answer_seconds": 8, "ready_seconds": 20}
    with local_federation(root, "mnist14", SITES, study, running, patience=120.0) as made:
        made.prepare()
        strict = made.site("strict")
        strict.write_text(strict.read_text().replace("study_epsilon_max = 10.0", "study_epsilon_max = 1.0"))
        Account.open(read_site(made.site("spent")).ledger).reserve("another study", Cost(3.2, 1.6))
        for name in SITES:
            if name not in ("tamper", "nonsense"):
                made.start_agent(name)
        for name in ("tamper", "nonsense"):
            made.start_agent(name, TACIT_HOSTILE=name, PYTHONPATH=str(HOSTILE))
        made.start_coordinator(TACIT_HOSTILE="coordinator", PYTHONPATH=str(HOSTILE))
        made.wait(1)
        yield made


@pytest.fixture(scope="module")
def server(federation: LocalFederation) -> Iterator[Server]:
    with connect(federation.kits / ADMIN_KIT) as session:
        yield session


def events(federation: LocalFederation, site: str) -> list[dict[str, Any]]:
    lines = list(read_lines(federation.run / "checkpoint" / "sites.jsonl"))
    return [line for line in lines if line.get("site") == site]


def nothing_left(federation: LocalFederation, site: str) -> None:
    """No round answered, no budget set aside, and nothing but refusals on the wire."""
    read = read_site(federation.site(site))
    with Journal.read(read.state) as journal:
        assert journal.experiments() == []
        assert {departure.kind for departure in journal.departures()} == {"refusal"}


def test_a_larger_epsilon_than_the_policy_allows_is_refused(federation: LocalFederation) -> None:
    refused = [line for line in events(federation, "strict") if line["event"] == "refused"]
    assert "total_epsilon is 3, and this site accepts at most 1" in refused[0]["reason"]
    nothing_left(federation, "strict")
    assert Account.open(read_site(federation.site("strict")).ledger).state()["studies"] == []


def test_a_data_set_whose_budget_is_spent_is_refused(federation: LocalFederation) -> None:
    refused = [line for line in events(federation, "spent") if line["event"] == "refused"]
    assert "budget for these records is exhausted" in refused[0]["reason"]
    nothing_left(federation, "spent")
    assert len(Account.open(read_site(federation.site("spent")).ledger).state()["studies"]) == 1


def test_a_job_that_ships_code_is_refused(federation: LocalFederation, server: Server, tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 1, ["good"], 1)
    (job / "app" / "custom").mkdir()
    (job / "app" / "custom" / "thief.py").write_text("raise SystemExit\n")
    status, detail = outcome(server, job)
    assert status == "FINISHED:FAILED_TO_RUN"
    assert "server: OK" in detail  # the coordinator's own server let it pass
    assert "good: NVFLARE_ERROR: BYOC not permitted" in detail
    assert not list((federation.kits / "good").rglob("thief.py"))


def test_a_job_that_names_another_class_is_refused(federation: LocalFederation, server: Server, tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 1, ["good"], 1)
    config = job / "app" / "config" / "config_fed_client.json"
    content = json.loads(config.read_text())
    command = {
        "path": "nvflare.app_common.executors.client_api_launcher_executor.ClientAPILauncherExecutor",
        "args": {},
    }
    content["executors"][0]["executor"] = command
    config.write_text(json.dumps(content))
    assert EXECUTOR not in config.read_text()
    server.submit(job)
    refusal = "ClientAPILauncherExecutor' at config path 'executors.#1.executor' is not in allow_list"
    end = time.monotonic() + 30.0
    while refusal not in log(federation, "good") and time.monotonic() < end:
        time.sleep(0.3)
    assert refusal in log(federation, "good")


def test_an_upload_that_was_tampered_with_does_not_leave(federation: LocalFederation) -> None:
    federation.wait(3)
    noted = events(federation, "tamper")
    assert noted[0]["event"] == "ready"
    assert "kept the answer back" in noted[1]["reason"]
    assert all("tamper" not in row["answered"] for row in read_lines(federation.run / "rounds.jsonl"))
    assert "these bytes are not in the journal" in log(federation, "tamper")


def test_foreign_and_expired_certificates_get_nothing(
    federation: LocalFederation, server: Server, tmp_path: Path
) -> None:
    """A good certificate of the same authority is let in first: it is the certificate that keeps the others out."""
    wider = federation.root / "wider.toml"
    wider.write_text(federation.terms.read_text().replace("[sites]\n", "[sites]\nstranger = 10000\n"))
    terms = read_terms(wider)
    foreign, kit = provision(terms, tmp_path / "kits")["stranger"], provision(terms, federation.kits)["stranger"]
    good = processes.start_client(kit, "stranger", {SITE_VARIABLE: ""})
    try:
        end = time.monotonic() + 30.0
        while "stranger" not in server.sites():
            assert time.monotonic() < end, "a good certificate is not let in"
            time.sleep(0.3)
    finally:
        processes.stop(good, 2.0)
    heard = server.sites()["stranger"]
    expire(kit, federation.kits / "authority" / "tacit" / "state" / "cert.json")
    clients = [processes.start_client(place, "stranger", {SITE_VARIABLE: ""}) for place in (foreign, kit)]
    try:
        end = time.monotonic() + 8.0
        while time.monotonic() < end:
            assert server.sites().get("stranger", heard) == heard
            time.sleep(0.5)
    finally:
        for client in clients:
            processes.stop(client, 2.0)


def test_nonsense_is_rejected_and_counted_and_the_study_goes_on(federation: LocalFederation) -> None:
    federation.wait(ENOUGH)
    assert federation.coordinator is not None
    federation.coordinator.terminate()
    assert federation.coordinator.wait(30.0) == 130  # stopped, and can go on
    rows = list(read_lines(federation.run / "rounds.jsonl"))
    assert all({"good", "fine"} <= set(row["answered"]) for row in rows)
    reasons = " ".join(row["rejected"].get("nonsense", "") for row in rows)
    for part in ("finite", "shape", "float32", "it is of round", "longer than", "no message", "in the name of"):
        assert part in reasons, part
    assert federation.same_as_simulation()  # only what was accepted was averaged
    assert federation.releases("good") >= len(rows)


def outcome(server: Server, job: Path) -> tuple[str, str]:
    """How a job ended, and what the engine says about it."""
    name = server.submit(job)
    end = time.monotonic() + 30.0
    while time.monotonic() < end:
        status = server.status(name)
        if status not in ("SUBMITTED", "APPROVED", "DISPATCHED", "RUNNING", ""):
            break
        time.sleep(0.3)
    return status, "\n".join(server.detail(name))


def log(federation: LocalFederation, site: str) -> str:
    """Everything a site's processes wrote down."""
    kit = federation.kits / site
    return "\n".join(path.read_text(errors="replace") for path in sorted(kit.rglob("log*.txt")))


def expire(kit: Path, state: Path) -> None:
    """Replace a kit's certificate by one of the same authority that ended yesterday."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    path = kit / "startup" / "client.crt"
    old = x509.load_pem_x509_certificate(path.read_bytes())
    kept = json.loads(state.read_text())
    key = serialization.load_pem_private_key(kept["root_pri_key"].encode(), None)
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(old.issuer)
        .public_key(old.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=9))
        .not_valid_after(now - datetime.timedelta(days=1))
    )
    for extension in old.extensions:
        made = made.add_extension(extension.value, extension.critical)
    signed = made.sign(key, hashes.SHA256())  # type: ignore[arg-type]
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    shutil.rmtree(kit / "transfer", ignore_errors=True)
