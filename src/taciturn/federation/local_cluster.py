"""A federation whose processes all run on this machine, and a replay of its study in one process for comparison."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import tomli_w

from taciturn.algorithms.base import SummableAlgorithm
from taciturn.algorithms.server import FullState
from taciturn.core.storage import make_folder, read_arrays, write_text
from taciturn.data import load_unmapped
from taciturn.errors import PeerLost
from taciturn.federation import PROTOCOL
from taciturn.federation.agreement import Agreement, derive_agreement, published_shards
from taciturn.federation.coordinator_process import STUDY_FILE
from taciturn.federation.drafts import IDENTITY_FILE, write_site_draft
from taciturn.federation.identity import Identity
from taciturn.federation.journal import Journal, Place, Slot
from taciturn.federation.kits import provision
from taciturn.federation.messages import array_digest
from taciturn.federation.policy import read_site, write_peer
from taciturn.federation.run_folder import RoundLine, read_rounds, rounds_path
from taciturn.federation.site_session import study_folder
from taciturn.federation.sum_terms import noise_number
from taciturn.federation.terms import Terms, read_terms
from taciturn.privacy.noise import SeededNoise
from taciturn.runs.folder import RunFolder, read_lines
from taciturn.runs.records import EvaluationRow
from taciturn.training.private_evaluation import measure_held_out, private_quality
from taciturn.training.simulate import simulate, start
from taciturn.training.simulate_sums import simulate_sums, start_sums
from taciturn.types import Array, Shard


class ReplayResult(NamedTuple):
    """The result of a replay after the last round."""

    w: Array  # [J, 1, K]  the model
    lam: Array  # [P, J, 1, K]  the duals; of the mean agent alone after secure sums, [1, J, 1, K]
    evaluations: tuple[EvaluationRow, ...] = ()


def replay(
    agreement: Agreement,
    shards: Sequence[Shard],
    seed: int,
    rounds: Sequence[RoundLine],
    held_out: Sequence[Shard] = (),
    evaluations: Sequence[EvaluationRow] = (),
) -> ReplayResult:
    """Simulate a study in one process, with seeded noise and the recorded participation.

    Parameters
    ----------
    agreement : Agreement
        The study.
    shards : sequence of Shard
        The sites' records, in the order of the agents.
    seed : int
        The seed of every site's noise.
    rounds : sequence of RoundLine
        What the coordinator recorded: the sites that answered in each round, and the slot of a secure sum.
    held_out : sequence of Shard
        The records that the sites hold out, if there are evaluations.
    evaluations : sequence of EvaluationRow
        The evaluations that the coordinator recorded.
    """
    agents, batch, last = agreement.terms.agents, agreement.part.batch, len(rounds)

    def drawn(p: int, t: int, slot: str | None) -> SeededNoise:
        return SeededNoise((seed,), p, noise_number(*Slot.parse(slot)) if slot else t, batch.streams)

    def noise(p: int, t: int) -> SeededNoise:
        return drawn(p, t, rounds[t - 1].slot)

    def answering(t: int) -> list[int]:
        return [agents.index(site) for site in rounds[t - 1].answered]

    if agreement.sum_parameters is None:
        begin = start(shards, 1, averages=False)
        played = simulate(agreement.algorithm, shards, noise, last, begin, answering)
    else:
        algorithm, sizes = cast(SummableAlgorithm, agreement.algorithm), tuple(agreement.terms.sites.values())
        played = simulate_sums(algorithm, shards, noise, last, start_sums(shards, 1), answering, sizes)
    again: list[EvaluationRow] = []
    for end in played:
        rows = (row for row in evaluations if row.round == end.t)
        again += [_evaluated_again(agreement, row, end.w, held_out, drawn) for row in rows]
    if not isinstance(end.state.server, FullState):
        raise TypeError("a study's server knows the state of every agent")
    return ReplayResult(end.w, end.state.server.lam, tuple(again))


def _evaluated_again(
    agreement: Agreement,
    row: EvaluationRow,
    w: Array,
    held_out: Sequence[Shard],
    noise: Callable[[int, int, str | None], SeededNoise],
) -> EvaluationRow:
    """Return an evaluation repeated by the recorded sites, with the same noise."""
    measure = agreement.measure
    if measure is None or row.quality is None:
        return row
    shards = {
        agreement.terms.agents.index(site): held_out[agreement.terms.agents.index(site)] for site in row.answered or ()
    }
    found = measure_held_out(measure, w, shards, lambda p: noise(p, row.round, row.slot))
    return replace(row, quality=private_quality(measure, found.total, 0, len(shards), agreement.target))


@dataclass
class LocalFederation:
    """The files and processes of a federation on this machine.

    Parameters
    ----------
    root : Path
        Folder of all files.
    data : str
        A published data set.
    sites : Mapping[str, int]
        The maximum number of records of each site.
    study, running : Mapping
        Keys of [study], without the data, and of [running].
    seed : int or None
        Seed of the sites' noise.
    patience : float
        Seconds after which the whole federation has failed.
    """

    root: Path
    data: str
    sites: Mapping[str, int]
    study: Mapping[str, object]
    running: Mapping[str, object] = field(default_factory=dict)
    seed: int | None = 7
    patience: float = 500.0
    agents: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    coordinator: subprocess.Popen[bytes] | None = None
    watch: Callable[[int], None] = lambda done: None  # called with the finished rounds while something is waited for

    def __post_init__(self) -> None:
        self.terms = self.root / "federation.toml"
        self.kits = self.root / "kits"
        self.identity = self.root / "coordinator.identity"
        self.deadline = time.monotonic() + self.patience

    @property
    def run(self) -> Path:
        """The coordinator's run folder."""
        return self.root / "run"

    def site(self, name: str) -> Path:
        """Return the path of a site's site.toml."""
        return self.root / "sites" / name / "site.toml"

    def prepare(self) -> Terms:
        """Write terms, kits and site files as the commands do, and return the terms."""
        coordinator = Identity.create(self.identity).public
        folders = {name: self.site(name).parent for name in self.sites}
        for folder in folders.values():
            make_folder(folder, private=True)
        identities = {name: str(Identity.create(folder / IDENTITY_FILE).public) for name, folder in folders.items()}
        content = {
            "protocol": PROTOCOL,
            "name": "local",
            "server": {"host": "localhost", "port": find_free_port()},
            "sites": dict(self.sites),
            "coordinator": {"identity": str(coordinator)},
            "identities": identities,
            "study": {"data": self.data, "total_records": sum(self.sites.values()), **self.study},
            "running": dict(self.running),
        }
        write_text(self.terms, tomli_w.dumps(content))
        terms = read_terms(self.terms)
        kits = provision(terms, self.kits)
        for name, folder in folders.items():
            site = read_site(write_site_draft(folder, kits[name], self.terms, "", (10.0, 1e-6), ""))
            for peer in identities.keys() - {name}:
                write_peer(site, peer, identities[peer])  # one person has made them all
        return terms

    def start_agent(self, name: str, **variables: str) -> None:
        """Start a site's agent with additional environment variables."""
        seeded = () if self.seed is None else ("--seeded", str(self.seed))
        words = ("federation", "site", "start", str(self.site(name)), *seeded)
        self.agents[name] = start_taciturn(self.root / f"{name}.txt", *words, **variables)

    def start_coordinator(self, **variables: str) -> None:
        """Start the coordinator; a second start resumes the study."""
        words = ("federation", "run", str(self.terms), "--kits", str(self.kits), "--out", str(self.run))
        self.coordinator = start_taciturn(self.root / "coordinator.txt", *words, "--json", **variables)

    def kill_coordinator(self) -> None:
        """Kill the coordinator without warning."""
        if self.coordinator is not None:
            self.coordinator.send_signal(signal.SIGKILL)
            self.coordinator.wait()

    @property
    def rounds_done(self) -> int:
        """The number of finished rounds."""
        path = rounds_path(self.run)
        return max((row["round"] for row in read_lines(path)), default=0) if path.exists() else 0

    def wait_for_round(self, number: int) -> None:
        """Wait until a round is finished.

        Raises
        ------
        PeerLost
            If the coordinator ends before, or the time is over.
        """
        while (done := self.rounds_done) < number:
            self.watch(done)
            self.check_running()
            time.sleep(0.1)

    def wait_for_end(self) -> None:
        """Wait until the coordinator ends; raise `PeerLost` if it fails or the time is over."""
        while self.coordinator is not None and self.coordinator.poll() is None:
            self.watch(self.rounds_done)
            self.check_deadline()
            time.sleep(0.1)
        if self.coordinator is None or self.coordinator.returncode:
            raise PeerLost(f"the coordinator failed; see {self.root / 'coordinator.txt'}")

    def check_running(self) -> None:
        """Raise `PeerLost` if the coordinator has ended, or the federation takes too long."""
        if self.coordinator is None or self.coordinator.poll() is not None:
            raise PeerLost(f"the coordinator ended too early; see {self.root / 'coordinator.txt'}")
        self.check_deadline()

    def check_deadline(self) -> None:
        """Raise `PeerLost` if the federation takes too long."""
        if time.monotonic() > self.deadline:
            raise PeerLost(f"the federation takes longer than {self.patience:g} s; see the files in {self.root}")

    def matches_simulation(self) -> bool:
        """Return whether model and duals equal a simulation with the same seeds and participation bit for bit."""
        terms, folder = read_terms(self.terms), RunFolder.open(self.run)
        agreement = derive_agreement(terms)
        published, rows = load_unmapped(terms.data_options()), folder.read_evaluations()
        sides = [published_shards(terms, published, site) for site in terms.agents]
        shards, held_out = [own for own, _ in sides], [other for _, other in sides if other is not None]
        result = replay(agreement, shards, self.seed or 0, read_rounds(folder), held_out, rows)
        state = read_arrays(folder.checkpoints / f"{agreement.part.batch.algorithm}.npz")
        same = np.array_equal(result.w, state["w"]) and np.array_equal(result.lam, state["server_lam"])
        return same and list(result.evaluations) == rows

    def duals_match(self) -> bool:
        """Return whether the server's copy of every dual equals the site's, after the last round accepted from it."""
        terms = read_terms(self.terms)
        state = read_arrays(self.run / "checkpoint" / f"{terms.settings.algorithm[0]}.npz")
        for p, name in enumerate(terms.agents):
            base = int(state["bases"][p])
            if base == 0:
                continue
            with Journal.read(read_site(self.site(name)).state) as journal:
                if journal.dual_digest(journal.experiments()[-1].id, base) != array_digest(state["server_lam"][p]):
                    return False
        return True

    @property
    def experiment(self) -> str:
        """The study's identifier, once the coordinator has begun."""
        return str(RunFolder.open(self.run).read_json(STUDY_FILE)["experiment"])

    def journal(self, name: str) -> contextlib.AbstractContextManager[Journal]:
        """Open a site's journal for reading."""
        return Journal.read(read_site(self.site(name)).state)

    def charges(self, name: str) -> list[Place]:
        """Return the rounds, or the slots of a secure sum, that a site's ledgers have charged."""
        with self.journal(name) as journal:
            experiments = journal.experiments()
        folders = [study_folder(read_site(self.site(name)), begun.id) for begun in experiments]
        entries = [entry for folder in folders for entry in RunFolder.open(folder).read_ledger().releases]
        return list(dict.fromkeys(place for entry in entries if (place := entry.slot or entry.first)))

    def stop(self) -> None:
        """End every process."""
        processes = [process for process in (self.coordinator, *self.agents.values()) if process is not None]
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20.0)
            process.kill()
            process.wait()


@contextlib.contextmanager
def local_federation(*arguments: Any, **settings: Any) -> Iterator[LocalFederation]:
    """Yield a `LocalFederation` and end its processes with the block."""
    federation = LocalFederation(*arguments, **settings)
    try:
        yield federation
    finally:
        federation.stop()


def start_taciturn(log: Path, *words: str, **variables: str) -> subprocess.Popen[bytes]:
    """Start a `taciturn` command.

    Parameters
    ----------
    log : Path
        File to which its output is appended.
    words : str
        The command's arguments.
    variables : str
        Additional environment variables.
    """
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | variables
    with log.open("ab") as file:
        command = [sys.executable, "-m", "taciturn", *words]
        return subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=environment)


def find_free_port() -> int:
    """Return a loopback port that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
