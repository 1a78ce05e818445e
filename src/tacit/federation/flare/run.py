"""Conducting a study: the server, one job after the other, and whoever comes back is taken in again."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import Any

from tacit.errors import InputError
from tacit.federation.conduct import open_study
from tacit.federation.coordinator import FINISHED, REGROUP, STOPPED, Coordinator, request, sites_file
from tacit.federation.flare import processes
from tacit.federation.flare.address import check_address
from tacit.federation.flare.job import write_job
from tacit.federation.flare.locks import server_locks, write_locks
from tacit.federation.flare.names import ADMIN_KIT, RUN_VARIABLE, SERVER_KIT, TERMS_VARIABLE
from tacit.federation.flare.outcome import read_outcome
from tacit.federation.flare.session import Server, connect
from tacit.federation.terms import Terms
from tacit.results.folder import RunFolder, append_lines, read_lines

LOOK = 0.25  # seconds between two looks at the run folder
HEARD = 30.0  # seconds after which a site that was not heard of counts as gone; sites speak every five or so
LEAVING = 6.0  # seconds for a job to end
GATHER = 10.0  # seconds to wait for the last sites once a quorum is there
REST, LONGEST_REST = 15.0, 600.0  # seconds that a site that was lost again is left alone
MANY = 8
ENDED = ("FINISHED", "FAILED", "ABANDONED", "ABORTED")
WORDS = ("ready", "closed", "refused", "left out")  # what says whether a site waits for the end of a study

Say = Callable[[str], None]


@dataclass
class Conductor:
    """A study on its way; `run` comes back when it has ended or somebody asked to stop."""

    terms: Terms
    kits: Path
    coordinator: Coordinator
    say: Say
    stop: Callable[[], bool]
    watch: Callable[[dict[str, Any]], None]  # a line of rounds.jsonl or sites.jsonl
    read: dict[Path, int] = field(default_factory=dict)  # how far those files were shown
    away: dict[str, float] = field(default_factory=dict)  # sites that were lost, and from when on they count as back
    losses: Counter[str] = field(default_factory=Counter)
    refused: dict[str, str] = field(default_factory=dict)  # sites that do not take part, and why
    job: str = ""

    @property
    def folder(self) -> RunFolder:
        """The run folder."""
        return self.coordinator.folder

    def run(self) -> str:
        """Go through legs until the study has ended; a server that falls is started again."""
        self.read = {path: path.stat().st_size for path in self._files() if path.exists()}
        while True:
            outcome = self._serve()
            if outcome is not None:
                return outcome
            self.say("the server has ended: starting it again")
            time.sleep(1.0)

    def _serve(self) -> str | None:
        """One life of the server: how the study ended, or None where the server did."""
        kit = self.kits / SERVER_KIT
        for leftover in (kit / "jobs", kit / "snapshots"):  # of a server that was killed: nothing a study needs
            shutil.rmtree(leftover, ignore_errors=True)
        write_locks(kit, server_locks(kit, len(self.terms.sites)))
        variables = {RUN_VARIABLE: str(self.folder.path.resolve()), TERMS_VARIABLE: str(self.terms.path.resolve())}
        processes.check_free(self.terms.port)
        process = processes.start_server(kit, variables)
        try:
            processes.wait_for_port(self.terms.host, self.terms.port, process, kit)
            self.say(f"the server listens on port {self.terms.port}; waiting for sites")
            with connect(self.kits / ADMIN_KIT, lambda: process.poll() is None) as server:
                return self._legs(server, process)
        except ConnectionError:
            return None
        finally:
            self._show()
            processes.stop(process)

    def _legs(self, server: Server, process: Popen[bytes]) -> str:
        leg = 0
        while True:
            sites = self._gather(server)
            if sites is None:
                return STOPPED
            leg = max(leg + 1, int(time.time()))  # a number of its own, over restarts too
            for word in (STOPPED, REGROUP):
                request(self.folder, word).unlink(missing_ok=True)
            outcome = self._leg(server, process, leg, sites)
            self._end_job(server)
            self._show()
            if outcome in (FINISHED, STOPPED):
                return outcome

    def _end_job(self, server: Server) -> None:
        """See the job out, so that no process of it stays behind at a site."""
        server.abort(self.job)
        end = time.monotonic() + LEAVING
        while time.monotonic() < end and not server.status(self.job).startswith(ENDED):
            time.sleep(LOOK)

    def _gather(self, server: Server) -> list[str] | None:
        """The sites that are there, once they are enough; None: somebody asked to stop."""
        enough, told = 0.0, None
        while not self.stop():
            there = self._present(server)
            willing = self._willing()
            if len(willing) < self._quorum:
                reasons = "; ".join(f"{site}: {reason}" for site, reason in self.refused.items())
                raise InputError(f"the study cannot run, {self._quorum} sites must take part: {reasons}")
            if there != told:
                missing = [site for site in willing if site not in there]
                self.say(f"connected: {_names(there)}" + (f"; missing: {_names(missing)}" if missing else ""))
                told = there
            if there == willing:
                return there
            if len(there) >= self._quorum:
                enough = enough or time.monotonic()
                if time.monotonic() - enough > GATHER:
                    return there
            else:
                enough = 0.0
            time.sleep(LOOK)
        return None

    def _willing(self) -> list[str]:
        """The sites to wait for: all that have not refused; of a study that has ended, those it has not told yet."""
        wanted = untold(self.folder) if self.folder.finished else self.coordinator.agents
        return [site for site in wanted if site not in self.refused]

    @property
    def _quorum(self) -> int:
        return 1 if self.folder.finished else self.terms.quorum

    def _present(self, server: Server) -> list[str]:
        """The sites that were heard of lately, and since they were lost; one that refused is not asked again."""
        heard, now = server.sites(), time.time()
        willing = self._willing()
        alive = [site for site in willing if now - heard.get(site, 0.0) < HEARD]
        return [site for site in alive if heard[site] > self.away.get(site, 0.0)]

    def _leg(self, server: Server, process: Popen[bytes], leg: int, sites: list[str]) -> str:
        """One job; how it ended."""
        folder = self.folder.checkpoints / "job"
        shutil.rmtree(folder, ignore_errors=True)
        self.job = server.submit(write_job(folder, leg, sites, self._quorum))
        asked_at, looked = 0.0, time.monotonic()
        self.away.clear()
        while True:
            time.sleep(LOOK)
            self._show()
            if process.poll() is not None:
                raise ConnectionError("the server has ended")
            outcome = read_outcome(self.folder, leg)
            if outcome is not None:
                return outcome
            if self.stop() and not asked_at:
                asked_at = time.monotonic()
                request(self.folder, STOPPED).touch()
            if asked_at and time.monotonic() - asked_at > self.terms.answer_seconds + 10.0:
                server.abort(self.job)
                return STOPPED
            if time.monotonic() - looked > 2.0:
                looked = time.monotonic()
                if server.status(self.job).startswith(ENDED):
                    return self._failed(server)
                if self._returned(server, sites):
                    request(self.folder, REGROUP).touch()

    def _returned(self, server: Server, sites: list[str]) -> list[str]:
        """Sites that could take part and do not: those that came after the job began, and those that came back."""
        heard = server.sites()
        back = [site for site, lost in self.away.items() if heard.get(site, 0.0) > lost]
        return back + [site for site in self._present(server) if site not in sites]

    def _take(self, line: dict[str, Any]) -> None:
        match line.get("event"):
            case "missing":
                self.away[line["site"]] = line["time"] + self._rest(line["site"])
            case "ready":
                self.away.pop(line["site"], None)
                self.refused.pop(line["site"], None)
            case "refused":
                self.away.pop(line["site"], None)
                self.refused[line["site"]] = line["reason"]
        self.watch(line)

    def _rest(self, site: str) -> float:
        """How long a lost site is left alone: one that restarts is back at once, a slow one does not end every leg."""
        self.losses[site] += 1
        often = self.losses[site]
        return -self.terms.answer_seconds if often == 1 else min(LONGEST_REST, REST * 2.0 ** (often - 2))

    def _failed(self, server: Server) -> str:
        """A job that the engine ended: whoever is there goes on from the checkpoint."""
        details = [line for line in server.detail(self.job) if not line.endswith("OK")]
        line = {"time": round(time.time(), 3), "event": "job ended", "status": server.status(self.job)}
        append_lines(sites_file(self.folder), [line | {"details": details}])
        time.sleep(1.0)
        return REGROUP

    def _files(self) -> tuple[Path, Path]:
        return sites_file(self.folder), self.folder.path / "rounds.jsonl"

    def _show(self) -> None:
        """New lines of the two files, to whoever watches."""
        for path in self._files():
            if not path.exists():
                continue
            begin = min(self.read.get(path, 0), path.stat().st_size)  # a restored checkpoint cuts lines off
            with path.open("rb") as file:
                file.seek(begin)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    begin += len(line)
                    self._take(json.loads(line))
            self.read[path] = begin


def conduct(
    terms: Terms,
    kits: Path,
    out: Path,
    say: Say,
    stop: Callable[[], bool],
    watch: Callable[[dict[str, Any]], None],
    without: Sequence[str] = (),
) -> tuple[RunFolder, str]:
    """Run a study to its end, or take it up where it was left; some sites may be left out of it for good."""
    kits, out = kits.resolve(), out.resolve()  # the engine works in folders of its own
    for name in (SERVER_KIT, ADMIN_KIT):
        if not (kits / name / "startup").is_dir():
            raise InputError(f"there is no kit {kits / name}: 'tacit federation provision' makes the kits")
    check_address(kits / SERVER_KIT, terms)
    coordinator = open_study(terms, out, without)
    if coordinator.without:
        say(f"left out of this study: {', '.join(coordinator.without)}")
    if coordinator.folder.finished and not untold(coordinator.folder):
        return coordinator.folder, FINISHED
    conductor = Conductor(terms, kits, coordinator, say, stop, watch)
    return coordinator.folder, conductor.run()


def _names(sites: Sequence[str]) -> str:
    """Some names; where they are many, their number."""
    return (", ".join(sites) if len(sites) <= MANY else f"{len(sites)} sites") or "nobody yet"


def untold(folder: RunFolder) -> list[str]:
    """The sites that took part and have not been told that the study has ended."""
    path = sites_file(folder)
    lines = list(read_lines(path)) if path.exists() else []
    last = {line["site"]: line["event"] for line in lines if line["event"] in WORDS}
    return sorted(site for site, event in last.items() if event == "ready")
