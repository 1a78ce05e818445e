"""The same study in one process: what a federation came to is compared with it, number by number."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w

from taciturn.core.storage import make_folder, read_arrays, write_text
from taciturn.data import load
from taciturn.errors import InputError
from taciturn.federation import PROTOCOL
from taciturn.federation.agreement import Agreement, agree
from taciturn.federation.drafts import IDENTITY, draft
from taciturn.federation.identity import Identity
from taciturn.federation.journal import Journal
from taciturn.federation.kits import provision
from taciturn.federation.messages import array_digest
from taciturn.federation.policy import read_site
from taciturn.federation.terms import Terms, read_terms
from taciturn.privacy.noise import SeededNoise
from taciturn.runs.folder import RunFolder, read_lines
from taciturn.training.simulate import simulate, start
from taciturn.types import Array, Shard


class Replayed(NamedTuple):
    """After the last round."""

    w: Array  # [J, 1, K]  the model
    lam: Array  # [P, J, 1, K]  the duals


def replay(agreement: Agreement, shards: Sequence[Shard], seed: int, answered: Sequence[Sequence[str]]) -> Replayed:
    """Simulate with seeded sites and the recorded participation: `answered` are the sites of each round."""
    agents, batch = agreement.terms.agents, agreement.part.batch
    rounds = simulate(
        agreement.algorithm,
        shards,
        lambda p, t: SeededNoise((seed,), p, t, batch.streams),
        len(answered),
        start(shards, 1, averages=False),
        lambda t: [agents.index(site) for site in answered[t - 1]],
    )
    *_, last = rounds
    return Replayed(last.w, last.state.server.lam)


def participation(folder: RunFolder) -> list[list[str]]:
    """Who answered in each round of a federated run."""
    return [row["answered"] for row in read_lines(folder.path / "rounds.jsonl")]


@dataclass
class LocalFederation:
    """Its files and processes."""

    root: Path
    data: str
    sites: Mapping[str, int]  # name -> records_max
    study: Mapping[str, Any]  # [study] beside the data
    running: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = 7
    patience: float = 170.0  # seconds for all of it
    agents: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    coordinator: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.end = time.monotonic() + self.patience

    @property
    def terms(self) -> Path:
        """The terms."""
        return self.root / "federation.toml"

    @property
    def run(self) -> Path:
        """The coordinator's run folder."""
        return self.root / "run"

    @property
    def identity(self) -> Path:
        """The coordinator's identity."""
        return self.root / "coordinator.identity"

    @property
    def kits(self) -> Path:
        """The start-up kits."""
        return self.root / "kits"

    def site(self, name: str) -> Path:
        """A site's file."""
        return self.root / "sites" / name / "site.toml"

    def prepare(self) -> Terms:
        """Terms, kits and site files, as the commands make them."""
        own = Identity.create(self.identity).public
        folders = {name: self.site(name).parent for name in self.sites}
        for folder in folders.values():
            make_folder(folder, private=True)
        identities = {name: str(Identity.create(folder / IDENTITY).public) for name, folder in folders.items()}
        terms = {
            "protocol": PROTOCOL,
            "name": "local",
            "server": {"host": "localhost", "port": free_port()},
            "sites": dict(self.sites),
            "coordinator": {"identity": str(own)},
            "identities": identities,
            "study": {"data": self.data, "total_records": sum(self.sites.values()), **self.study},
            "running": dict(self.running),
        }
        write_text(self.terms, tomli_w.dumps(terms))
        read = read_terms(self.terms)
        kits = provision(read, self.kits)
        for name, folder in folders.items():
            draft(folder, kits[name], self.terms, "", (10.0, 1e-6), "")
        return read

    def start_agent(self, name: str, **variables: str) -> None:
        """A site's agent, as its engineer would start it."""
        seeded = () if self.seed is None else ("--seeded", str(self.seed))
        words = ("federation", "site", "start", str(self.site(name)), *seeded)
        self.agents[name] = start_taciturn(self.root / f"{name}.txt", *words, **variables)

    def start_coordinator(self, **variables: str) -> None:
        """The coordinator's command; given again, it goes on with the study."""
        words = ("federation", "run", str(self.terms), "--kits", str(self.kits), "--out", str(self.run))
        self.coordinator = start_taciturn(self.root / "coordinator.txt", *words, "--json", **variables)

    def kill_coordinator(self) -> None:
        """As a power cut would."""
        if self.coordinator is not None:
            self.coordinator.send_signal(signal.SIGKILL)
            self.coordinator.wait()

    @property
    def done(self) -> int:
        """Rounds so far."""
        path = self.run / "rounds.jsonl"
        return max((row["round"] for row in read_lines(path)), default=0) if path.exists() else 0

    def wait(self, rounds: int) -> None:
        """Wait for some rounds to be done."""
        while self.done < rounds:
            if self.coordinator is None or self.coordinator.poll() is not None:
                raise InputError(f"the coordinator has ended too early: see {self.root / 'coordinator.txt'}")
            self.check_time()
            time.sleep(0.1)

    def finish(self) -> None:
        """Wait for the coordinator's end."""
        while self.coordinator is not None and self.coordinator.poll() is None:
            self.check_time()
            time.sleep(0.1)
        if self.coordinator is None or self.coordinator.returncode:
            raise InputError(f"the coordinator failed: see {self.root / 'coordinator.txt'}")

    def check_time(self) -> None:
        """Give up where it takes too long."""
        if time.monotonic() > self.end:
            raise InputError(f"this takes longer than {self.patience:g} s: see the files in {self.root}")

    def same_as_simulation(self) -> bool:
        """Whether model and duals are those of one process with the same seeds and participation, to the last bit."""
        terms, folder = read_terms(self.terms), RunFolder.open(self.run)
        agreement = agree(terms)
        replayed = replay(agreement, load(terms.options()).train, self.seed or 0, participation(folder))
        kept = read_arrays(folder.checkpoints / f"{agreement.part.batch.algorithm}.npz")
        return np.array_equal(replayed.w, kept["w"]) and np.array_equal(replayed.lam, kept["server_lam"])

    def duals_equal(self) -> bool:
        """Whether the server's copy of every dual is the site's own, after the last round accepted from it."""
        terms = read_terms(self.terms)
        kept = read_arrays(self.run / "checkpoint" / f"{terms.settings.algorithm[0]}.npz")
        for p, name in enumerate(terms.agents):
            base, state = int(kept["bases"][p]), read_site(self.site(name)).state
            if base == 0:
                continue
            with Journal.read(state) as journal:
                if journal.dual(journal.experiments()[-1].id, base) != array_digest(kept["server_lam"][p]):
                    return False
        return True

    def releases(self, name: str) -> int:
        """How many rounds a site's ledger has charged."""
        site = read_site(self.site(name))
        with Journal.read(site.state) as journal:
            names = [begun.id for begun in journal.experiments()]
        ledgers = [RunFolder.open(site.state / "studies" / one).read_ledger() for one in names]
        return sum(len({entry.first for entry in ledger.releases}) for ledger in ledgers)

    def stop(self) -> None:
        """End every process."""
        mine = [process for process in (self.coordinator, *self.agents.values()) if process is not None]
        for process in mine:
            if process.poll() is None:
                process.terminate()
        for process in mine:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20.0)
            process.kill()
            process.wait()


@contextlib.contextmanager
def local_federation(*arguments: Any, **settings: Any) -> Iterator[LocalFederation]:
    """A federation whose processes end with the block."""
    federation = LocalFederation(*arguments, **settings)
    try:
        yield federation
    finally:
        federation.stop()


def start_taciturn(log: Path, *words: str, **variables: str) -> subprocess.Popen[bytes]:
    """A command of Taciturn's, with what it says in a file."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | variables
    with log.open("ab") as file:
        command = [sys.executable, "-m", "taciturn", *words]
        return subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=environment)


def free_port() -> int:
    """A port of loopback that nobody uses now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
