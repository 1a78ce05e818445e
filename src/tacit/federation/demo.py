"""A whole federation on one machine, with a site and the server killed on the way, and compared with a simulation."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data import load
from tacit.errors import InputError
from tacit.federation.agreement import agree
from tacit.federation.at_work import study_folder
from tacit.federation.draft import draft_terms
from tacit.federation.flare.provision import provision
from tacit.federation.policy import read_site
from tacit.federation.replay import participation, replay
from tacit.federation.site_draft import draft
from tacit.federation.site_status import site_status
from tacit.federation.summary import federated
from tacit.federation.terms import Terms, read_terms
from tacit.privacy.totals import ledger_totals
from tacit.results.files import read_arrays, write_text
from tacit.results.folder import RunFolder, read_lines

SITES = {"north": 20_000, "south": 20_000, "west": 20_000}
SEED = 7
STUDY = """
local_updates = 5
rounds = {rounds}
"""
PATIENCE = 170.0  # seconds for all of it


@dataclass
class Demo:
    """The processes and files of a demonstration."""

    root: Path
    rounds: int
    say: Callable[[str], None]
    agents: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    coordinator: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    end: float = field(default_factory=lambda: time.monotonic() + PATIENCE)

    @property
    def terms(self) -> Path:
        """The terms."""
        return self.root / "federation.toml"

    @property
    def run(self) -> Path:
        """The coordinator's run folder."""
        return self.root / "run"

    def prepare(self) -> Terms:
        """Terms, kits and site files, as the commands make them."""
        port = _free_port()
        text = draft_terms("demo", "", "mnist14", SITES, 60_000, 3.0, 1e-6, "localhost", port)
        text = text.replace('algorithm = "objp" ', 'algorithm = "objpm"').replace("# rounds = 300 ", "# rounds")
        text = text.replace("\n[running]", STUDY.format(rounds=self.rounds) + "\n[running]")
        text = text.replace("answer_seconds = 30", "answer_seconds = 5")
        write_text(self.terms, text)
        terms = read_terms(self.terms)
        for name, kit in provision(terms, self.root / "kits").items():
            if name in SITES:
                write_text(kit / "site.toml", draft(kit, "", (10.0, 1e-6), ""))
        return terms

    def start_agent(self, site: str) -> None:
        """A site's agent, as its engineer would start it."""
        path = self.root / "kits" / site / "site.toml"
        self.agents[site] = _tacit(
            self.root / f"{site}.txt", "federation", "site", "start", str(path), "--seeded", str(SEED)
        )

    def start_coordinator(self) -> None:
        """The coordinator's command."""
        places = ("--kits", str(self.root / "kits"), "--out", str(self.run), "--json")
        self.coordinator = _tacit(self.root / "coordinator.txt", "federation", "run", str(self.terms), *places)

    def wait(self, rounds: int) -> None:
        """Wait for some rounds to be done."""
        while self.done < rounds:
            if self.coordinator is None or self.coordinator.poll() is not None:
                raise InputError(f"the coordinator has ended too early: see {self.root / 'coordinator.txt'}")
            self._check_time()
            time.sleep(0.1)

    def finish(self) -> None:
        """Wait for the coordinator's end."""
        while self.coordinator is not None and self.coordinator.poll() is None:
            self._check_time()
            time.sleep(0.1)
        if self.coordinator is None or self.coordinator.returncode:
            raise InputError(f"the coordinator failed: see {self.root / 'coordinator.txt'}")

    @property
    def done(self) -> int:
        """Rounds so far."""
        path = self.run / "rounds.jsonl"
        return max((row["round"] for row in read_lines(path)), default=0) if path.exists() else 0

    def _check_time(self) -> None:
        if time.monotonic() > self.end:
            raise InputError(f"the demonstration takes longer than {PATIENCE:g} s: see the files in {self.root}")


def run_demo(out: Path | None, rounds: int, calm: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Provision, start, kill, finish, compare; what came of it."""
    with _place(out) as root, _demo(root, rounds, say) as demo:
        terms = demo.prepare()
        say(f"provisioned kits for {', '.join(SITES)} in {root}")
        for site in SITES:
            demo.start_agent(site)
        demo.start_coordinator()
        say("started one server and three agents, with mutual TLS on loopback")
        demo.wait(1)
        if not calm:
            _disturb(demo)
        demo.finish()
        say("finished; comparing with a simulation in one process")
        return _result(demo, terms)


def _disturb(demo: Demo) -> None:
    """Kill a site, then the server, each at once and without a word."""
    demo.wait(demo.rounds // 4)
    demo.agents["south"].send_signal(signal.SIGKILL)
    demo.say(f"killed the agent of south after round {demo.done}")
    demo.wait(demo.done + 3)  # the others go on
    demo.start_agent("south")
    demo.say(f"started it again after round {demo.done}")
    _wait_for_return(demo, "south")
    if demo.coordinator is not None:
        demo.coordinator.send_signal(signal.SIGKILL)
        demo.coordinator.wait()
    demo.say(f"killed the server after round {demo.done}, and gave its command again")
    demo.start_coordinator()
    demo.restarts += 2


def _wait_for_return(demo: Demo, site: str) -> None:
    """Wait until a site answers again, or nearly all rounds are over."""
    seen = demo.done
    while demo.done < demo.rounds - 3:
        rows = [row for row in read_lines(demo.run / "rounds.jsonl") if row["round"] > seen]
        if any(site in row["answered"] for row in rows):
            return
        demo.wait(demo.done)
        time.sleep(0.1)


def _result(demo: Demo, terms: Terms) -> dict[str, Any]:
    folder = RunFolder.open(demo.run)
    agreement, dataset = agree(terms), load(terms.options())
    replayed = replay(agreement, dataset.train, SEED, participation(folder))
    kept = read_arrays(folder.checkpoints / f"{agreement.part.batch.algorithm}.npz")
    same = np.array_equal(replayed.w, kept["w"]) and np.array_equal(replayed.lam, kept["server_lam"])
    figures = federated(folder)
    status = {site: site_status(demo.root / "kits" / site / "site.toml")["studies"][0] for site in SITES}
    spent = {site: study["spent_epsilon"] for site, study in status.items()}
    return {
        "rounds": figures["rounds"],
        "sites": len(SITES),
        "test_error": folder.read_summary()["runs"][0]["test_error"],
        "identical_to_simulation": bool(same),
        "ms_per_round": figures["ms_per_round"],
        "budget_spent": max(spent.values()),
        "budget_planned": agreement.plan.bound.epsilon,
        "restarts": demo.restarts,
        "answered": figures["answered"],
        "spent_by_site": spent,
        "covered": all(
            _covered(demo.root / "kits" / site / "site.toml", figures["answered"].get(site, 0)) for site in SITES
        ),
        "non_private": ledger_totals(folder.read_ledger())["non_private"],
        "folder": str(demo.root),
    }


def _covered(path: Path, answered: int) -> bool:
    """Whether a site's ledger has at least what the server got from it."""
    site = read_site(path)
    study = site_status(path)["studies"][0]
    ledger = RunFolder.open(study_folder(site, study["experiment"])).read_ledger()
    return len({row["first"] for row in ledger if row["kind"] == "release"}) >= answered


@contextlib.contextmanager
def _place(out: Path | None) -> Iterator[Path]:
    if out is None:
        with tempfile.TemporaryDirectory(prefix="tacit-demo-") as folder:
            yield Path(folder)
        return
    if out.exists():
        raise InputError(f"{out} exists: choose another folder")
    out.mkdir(parents=True, mode=0o700)
    yield out


@contextlib.contextmanager
def _demo(root: Path, rounds: int, say: Callable[[str], None]) -> Iterator[Demo]:
    demo = Demo(root, rounds, say)
    try:
        yield demo
    finally:
        for process in (demo.coordinator, *demo.agents.values()):
            if process is not None and process.poll() is None:
                process.terminate()
        for process in (demo.coordinator, *demo.agents.values()):
            if process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(15.0)
                process.kill()


def _tacit(log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with log.open("ab") as file:
        command = [sys.executable, "-m", "tacit", *arguments]
        return subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=environment)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
