"""One federated study with real processes, measured: what a round takes, and what a site needs for it.

    python -m benchmarks.federation_play FOLDER [--sites 3] [--rounds 60] [--table] [--delay 0.05 --rate 1e6]

The benchmarks `federation-speed` and `federation-many` start it. It uses the Taciturn on PYTHONPATH, this version or
another one, and prints one JSON object. As root it has its own network, in which no other bytes are counted. With a
delay (seconds, one way) and a rate (bytes a second and direction) the sites' connections go through a slow proxy.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from benchmarks.program import enter_namespace

from taciturn.core.storage import read_arrays
from taciturn.federation.agreement import derive_agreement, load_site_dataset
from taciturn.federation.coordinator import round_milliseconds
from taciturn.federation.local_cluster import LocalFederation, replay
from taciturn.federation.policy import read_site
from taciturn.federation.run_folder import read_rounds
from taciturn.federation.terms import read_terms
from taciturn.privacy.trust import AGENTS, SECURE_SUM
from taciturn.runs.folder import RunFolder, read_lines

WARM = 5  # rounds that are not counted
AT_ONCE = 5  # sites that are started together, where there are many
SCHEMA = """\
[label]
column = "ill"
classes = ["no", "yes"]

[columns.age]
kind = "numeric"
bounds = [0, 100]

[columns.weight]
kind = "numeric"
bounds = [0, 200]
"""
HUB, PROXY = "127.0.0.1", "127.0.0.2"  # what `localhost` is for the coordinator, and for sites behind a slow line


class Slow(threading.Thread):
    """A proxy that holds every byte back, and carries so many bytes a second in each direction."""

    def __init__(self, port: int, delay: float, rate: float) -> None:
        super().__init__(daemon=True)
        self.port, self.delay, self.rate = port, delay, rate

    def run(self) -> None:
        while True:  # until the coordinator listens
            with contextlib.suppress(OSError), socket.create_connection((HUB, self.port)):
                break
            time.sleep(0.1)
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, PROXY, self.port)
        async with server:
            await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HUB, self.port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            free = 0.0  # when the line has carried all that came before
            while True:
                try:
                    data = await reader.read(1 << 16)
                except OSError:
                    data = b""
                free = max(free, time.monotonic()) + len(data) / self.rate
                held.put_nowait((free + self.delay, data))
                if not data:
                    return

        async def write() -> None:
            while True:
                due, data = await held.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    writer.close()
                    return
                try:
                    writer.write(data)
                except OSError:
                    return

        await asyncio.gather(read(), write())


class Watched(LocalFederation):
    """A local federation that can have small tables, and sites behind a slow line."""

    tables = False
    losing = ""  # the site whose upload gets lost in every round
    slow: Slow | None = None

    def prepare(self) -> Any:
        terms = super().prepare()
        if self.tables:
            terms = self._with_tables()
        return terms

    def _with_tables(self) -> Any:
        """A small table at every site in place of its share of published records."""
        text = self.terms.read_text().replace(f'data = "{self.data}"', 'schema = "schema.toml"')
        for folder in (self.root, *(self.site(name).parent for name in self.sites)):
            (folder / "schema.toml").write_text(SCHEMA)
            (folder / "federation.toml").write_text(text)
        terms = read_terms(self.terms)
        declared = f'schema_sha256 = "{terms.schema_sha256}"'
        for number, site in enumerate(map(self.site, self.sites)):
            _write_table(site.parent / "table.csv", number)
            kept = [line for line in site.read_text().splitlines() if not line.startswith(("published", "schema"))]
            place = kept.index("[data]") + 1
            kept[place:place] = ['table = "table.csv"', 'schema = "schema.toml"', declared]
            site.write_text("\n".join(kept) + "\n")
        return terms

    def matches_simulation(self) -> bool:
        """As for published records, with those of the tables."""
        if not self.tables:
            return super().matches_simulation()
        agreement, folder = derive_agreement(read_terms(self.terms)), RunFolder.open(self.run)
        shards = [load_site_dataset(read_site(self.site(name)), agreement).train[0] for name in self.sites]
        replayed = replay(agreement, shards, self.seed or 0, read_rounds(folder))
        kept = read_arrays(folder.checkpoints / f"{agreement.part.batch.algorithm}.npz")
        return np.array_equal(replayed.w, kept["w"]) and np.array_equal(replayed.lam, kept["server_lam"])

    def start_coordinator(self, **variables: str) -> None:
        if self.losing:
            words = [str(self.terms), "--kits", str(self.kits), "--out", str(self.run), "--json"]
            program = [sys.executable, "-m", "benchmarks.lossy_coordinator", self.losing, *words]
            with (self.root / "coordinator.txt").open("ab") as file:
                self.coordinator = subprocess.Popen(program, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
        else:
            super().start_coordinator(**variables)
        if self.slow and not self.slow.is_alive():
            self.slow.start()

    def start_agent(self, name: str, **variables: str) -> None:
        if self.slow is None:
            super().start_agent(name, **variables)
            return
        hosts = self.root / "hosts"
        hosts.write_text(f"{PROXY} localhost\n")
        apart = ["unshare", "--mount", "sh", "-c", f'mount --bind {hosts} /etc/hosts && exec "$@"', "sh"]
        words = ["federation", "site", "start", str(self.site(name)), "--seeded", str(self.seed)]
        with (self.root / f"{name}.txt").open("ab") as file:
            self.agents[name] = subprocess.Popen(
                [*apart, sys.executable, "-m", "taciturn", *words], stdout=file, stderr=file, stdin=subprocess.DEVNULL
            )


def _write_table(path: Path, seed: int, rows: int = 12) -> None:
    rng = np.random.default_rng(seed)
    lines = ["age,weight,ill"]
    for _ in range(rows):
        age, weight = rng.integers(20, 90), rng.integers(40, 160)
        lines.append(f"{age},{weight},{'yes' if age + weight / 2 + rng.normal(0, 15) > 105 else 'no'}")
    path.write_text("\n".join(lines) + "\n")


class Needs(threading.Thread):
    """What the processes of a party need, seen a few times a second: memory, threads, processes."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.party, self.ended = psutil.Process(pid), threading.Event()
        self.rows: list[dict[str, int]] = []

    def run(self) -> None:
        while not self.ended.wait(0.25):
            row = {"rss": 0, "pss": 0, "threads": 0, "processes": 0}
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in (self.party, *self.party.children(recursive=True)):
                    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
                        row["rss"] += process.memory_info().rss
                        row["pss"] += _pss(process.pid)
                        row["threads"] += process.num_threads()
                        row["processes"] += 1
            self.rows.append(row)

    def found(self) -> dict[str, int]:
        """At rest (in the middle of the rows) and at most."""
        self.ended.set()
        self.join()
        middle = {f"{name}_median": int(statistics.median(row[name] for row in self.rows)) for name in self.rows[0]}
        return middle | {f"{name}_max": max(row[name] for row in self.rows) for name in self.rows[0]}


def _pss(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process and its children have taken."""
    party = psutil.Process(pid)
    times = [process.cpu_times() for process in (party, *party.children(recursive=True))]
    return float(sum(time.user + time.system for time in times))


def loopback() -> int:
    """Bytes that went over this network's loopback, with all headers."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[9]) for line in lines if line.strip().startswith("lo:"))


def round_rows(federation: LocalFederation) -> tuple[list[dict[str, Any]], list[float]]:
    """Return the lines of the rounds, and the milliseconds of each."""
    return list(read_lines(federation.run / "rounds.jsonl")), round_milliseconds(RunFolder.open(federation.run))


def play(root: Path, given: argparse.Namespace) -> dict[str, Any]:
    records = 20 if given.table else 60_000 // given.sites + 1
    sites = {f"site-{n:02d}": records for n in range(given.sites)}
    study = {"algorithm": given.algorithm, "trust": given.trust, "total_epsilon": 3.0, "rounds": given.rounds}
    study |= {"missing": given.missing, "reserve": given.rounds} if given.trust == SECURE_SUM else {}
    running = {"quorum": given.sites - given.missing, "answer_seconds": 120, "ready_seconds": 300}
    federation = Watched(root, "mnist14", sites, study, running, patience=1800.0)
    federation.tables, federation.losing = given.table, given.losing
    began = time.monotonic()
    try:
        terms = federation.prepare()
        if given.delay:
            federation.slow = Slow(terms.port, given.delay, given.rate)
        federation.start_coordinator()
        for number, site in enumerate(sites):
            federation.start_agent(site)
            if given.sites > AT_ONCE and number % AT_ONCE == AT_ONCE - 1:
                time.sleep(given.pause)
        federation.wait_for_round(WARM)
        first = time.monotonic() - began
        for site in list(sites)[1 : 1 + given.killed]:
            federation.agents[site].kill()
        if given.killed:
            federation.wait_for_round(federation.rounds_done + WARM)
        warm = federation.rounds_done
        commands = [federation.agents["site-00"], federation.coordinator]
        pids = [command.pid for command in commands if command is not None]
        needs = [Needs(pid) for pid in pids]
        for need in needs:
            need.start()
        bytes_before, done, clock = loopback(), federation.rounds_done, time.monotonic()
        before = [processor_seconds(pid) for pid in pids]
        federation.wait_for_round(given.rounds - 1)  # after the last one processes end
        taken = [processor_seconds(pid) - then for pid, then in zip(pids, before, strict=True)]
        measured = federation.rounds_done - done
        federation.wait_for_round(given.rounds)
        seconds = time.monotonic() - clock
        carried = loopback() - bytes_before
        own, hub = (
            need.found() | {"cpu_ms_a_round": round(1000.0 * cpu / measured, 2)}
            for need, cpu in zip(needs, taken, strict=True)
        )
        closing = Needs(federation.agents["site-00"].pid)
        closing.start()
        federation.wait_for_end()
        own |= {f"{name}_closing": most for name, most in closing.found().items() if name.endswith("max")}
        rows, times = round_rows(federation)
    finally:
        federation.stop()
    pairs = list(zip(rows, times, strict=True))[warm:]
    if given.losing:  # the rounds in which it was asked; it is invited again in between
        asked = {
            entry.slot for entry in RunFolder.open(federation.run).read_ledger().releases if entry.agent == given.losing
        }
        pairs = [(row, took) for row, took in pairs if row["slot"] in asked]
    counted = sorted(took for _, took in pairs)
    last = rows[-1]
    said = (last["bytes_up"] + last["bytes_down"]) / given.sites
    return {
        "sites": given.sites,
        "rounds": len(rows),
        "counted": len(counted),
        "trust": given.trust,
        "answered_at_least": min(len(row["answered"]) for row in rows),
        "all_answered": all(len(row["answered"]) == given.sites for row in rows),
        "median_ms": round(statistics.median(counted), 1),
        "p95_ms": round(counted[int(0.95 * len(counted))], 1),
        "wall_ms_a_round": round(1000.0 * seconds / (given.rounds - done), 1),
        "seconds_to_first_rounds": round(first, 1),
        "message_bytes_a_round_and_site": round(said),
        "carried_bytes_a_round_and_site": round(carried / (given.rounds - done) / given.sites),
        "site": own,
        "coordinator": hub,
        "identical_to_simulation": federation.matches_simulation(),
    }


def main() -> None:
    """Play, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument(
        "--table", action="store_true", help="12 records of two columns at every site; else MNIST 14x14"
    )
    parser.add_argument("--algorithm", default="objp")
    parser.add_argument("--trust", default=AGENTS, choices=(AGENTS, SECURE_SUM))
    parser.add_argument("--missing", type=int, default=0, help="sites that need not answer")
    parser.add_argument("--killed", type=int, default=0, help="sites that are killed after the first rounds")
    parser.add_argument("--losing", default="", help="the site whose upload gets lost in every round")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds one way")
    parser.add_argument("--rate", type=float, default=1e6, help="bytes a second in each direction of a connection")
    parser.add_argument("--pause", type=float, default=14.0, help=f"seconds after every {AT_ONCE} sites that start")
    given = parser.parse_args()
    enter_namespace("--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    print(json.dumps(play(given.root.resolve(), given)))


if __name__ == "__main__":
    main()
