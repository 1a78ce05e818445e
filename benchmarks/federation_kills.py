"""Kills and full disks at random moments of real federations: is the model the same, is every round charged once?

    taciturn bench federation-kills [--kills 40] [--disks 24] [--sums 20] [--out FILE]

Three sites with small tables, all three needed for a round, seeded noise. A kill (SIGKILL) hits a command (a site's
vault or the coordinator), its engine, or the small process that confines the engine. Commands are started again at
once, as a service manager would, and engines restart by themselves. A full disk is a small file system of one party,
filled to the last page for a while: its state, or the folder with the heads of its ledgers (this needs root). A command
that ends then is started again when there is room. At the end the model and every dual are compared with one process,
bit by bit, and every site's ledger must have each round once.

Then studies with a secure sum of five sites, of which one may be missing, with four kills each. The model must be that
of one process, every slot charged once at a site and no more than the plan pays for, every sum's sites charged, and no
secret left in a journal.

Takes about half an hour on two cores.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from benchmarks.federation_play import Watched
from benchmarks.program import arguments, enter_namespace, read_results, write_results

from taciturn.federation.journal import Journal
from taciturn.federation.policy import read_site
from taciturn.federation.run_folder import read_rounds
from taciturn.privacy.budget import BudgetLedger
from taciturn.runs.folder import RunFolder, read_lines

ROUNDS, EACH = 120, 4  # of a study; accidents in it
SITES = dict.fromkeys(("north", "south", "west"), 20)
STUDY = {"algorithm": "objpm", "local_updates": 5, "total_epsilon": 3.0, "rounds": ROUNDS}
RUNNING = {"quorum": 3, "answer_seconds": 4, "ready_seconds": 20}
PARTIES = (*SITES, "coordinator")
DEPTHS = {0: "command", 1: "confining process", 2: "engine"}
PLACES = ("state", "heads")
DISK = "4m"
FULL_SECONDS = 1.5
STUCK = 8.0  # seconds without a round, after which somebody gives the commands again that refused or ended
SUM_ROUNDS, RESERVE = 60, 30
SUM_SITES = dict.fromkeys(("north", "south", "west", "east", "centre"), 20)
SUM_STUDY = {
    "algorithm": "dpgd", "trust": "secure-sum", "missing": 1, "reserve": RESERVE, "total_epsilon": 3.0,
    "rounds": SUM_ROUNDS,
}  # fmt: skip
SUM_TABLES = ("sum_secrets", "sum_shares", "sum_deals", "sum_opinions")


class Accidents(Watched):
    """A federation in which every party has small disks of its own, and things happen."""

    tables = True

    @property
    def parties(self) -> tuple[str, ...]:
        return (*self.sites, "coordinator")

    @property
    def last(self) -> int:
        """The study's rounds."""
        return int(str(self.study["rounds"]))

    @property
    def run(self) -> Path:
        return self.disk("coordinator", "state") / "run"

    def disk(self, party: str, what: str) -> Path:
        """Where a party keeps its state, or the heads of its ledgers."""
        return self.root / "disks" / f"{party}-{what}"

    def prepare(self) -> Any:
        terms = super().prepare()
        for party in self.parties:
            for what in PLACES:
                self.disk(party, what).mkdir(parents=True)
                if os.geteuid() == 0:
                    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(self.disk(party, what))]
                    subprocess.run(mount, check=True)
        for site in self.sites:
            state = self.disk(site, "state")
            os.environ["XDG_STATE_HOME"] = str(self.disk(site, "heads"))
            BudgetLedger.create(state / "records.ledger", "table", 10.0, 1e-6, terms.settings.adjacency)
            text = self.site(site).read_text().replace('"records.ledger"', f'"{state}/records.ledger"')
            self.site(site).write_text(text.replace('state = "state"', f'state = "{state}/state"'))
        return terms

    def begin(self, party: str) -> None:
        """Give a party's command."""
        heads = {"XDG_STATE_HOME": str(self.disk(party, "heads"))}
        if party == "coordinator":
            self.start_coordinator(**heads)
        else:
            self.start_agent(party, **heads)

    def command(self, party: str) -> subprocess.Popen[bytes]:
        """Its process."""
        found = self.coordinator if party == "coordinator" else self.agents[party]
        assert found is not None
        return found

    def go_on(self, rounds: int) -> int:
        """Wait for some rounds, or the end of the study; how often a command had to be given again."""
        again, done, since = 0, self.rounds_done, time.monotonic()
        while done < rounds or rounds == self.last:
            self.check_deadline()
            if self.command("coordinator").poll() == 0:
                break
            stuck = done < self.last and time.monotonic() - since > STUCK
            for party in self.parties:
                command = self.command(party)
                if stuck and party != "coordinator":
                    command.terminate()
                    command.wait()
                if command.poll() is not None:
                    self.begin(party)
                    again += 1
            if stuck or self.rounds_done != done:
                done, since = self.rounds_done, time.monotonic()
            time.sleep(0.1)
        return again

    def tell_everybody(self) -> None:
        """Give the coordinator's command again, until sites that were away at the end know that the study has ended."""
        for _ in range(5):
            journals = [read_site(self.site(name)).state for name in self.sites]
            for state in journals:
                with Journal.read(state) as journal:
                    if any(not begun.closed_at for begun in journal.experiments()):
                        break
            else:
                return
            self.begin("coordinator")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.command("coordinator").wait(30.0)
            self.kill_coordinator()

    def kill(self, party: str, depth: int) -> bool:
        """Kill a process; whether there was one."""
        command = self.command(party)
        family = [command.pid]
        for _ in range(depth):
            children = psutil.Process(family[-1]).children()
            if not children:
                return False
            family.append(children[-1].pid)
        os.kill(family[-1], signal.SIGKILL)
        if depth == 0:
            command.wait()
            self.begin(party)
        return True

    def fill(self, party: str, what: str) -> bool:
        """Let a disk be full for a while; whether it was."""
        place, full = self.disk(party, what) / "filler", False
        with contextlib.suppress(OSError), place.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError as error:
                full = error.errno == errno.ENOSPC
                time.sleep(FULL_SECONDS)
        place.unlink()
        return full

    def charge_counts(self, site: str) -> Counter[int]:
        """How often each round is in a site's ledger."""
        state = read_site(self.site(site)).state
        with Journal.read(state) as journal:
            names = [begun.id for begun in journal.experiments()]
        rows = [row for name in names for row in RunFolder.open(state / "studies" / name).read_ledger()]
        return Counter(row["first"] for row in rows if row["kind"] == "release")

    def sums_hold(self) -> dict[str, bool]:
        """What must be true of the charges and journals of a study with a secure sum that has ended."""
        opened = {line.slot: line.answered for line in read_rounds(RunFolder.open(self.run))}
        asked = {entry.slot for entry in RunFolder.open(self.run).read_ledger().releases}
        counts, struck = {}, True
        for name in self.sites:
            site = read_site(self.site(name))
            with Journal.read(site.state) as journal:
                experiments = [begun.id for begun in journal.experiments()]
                rows = [journal.database.connection.execute(f"select count(*) from {table}") for table in SUM_TABLES]
                struck = struck and not any(row.fetchone()[0] for row in rows)
            ledgers = [RunFolder.open(site.state / "studies" / one).read_ledger() for one in experiments]
            counts[name] = Counter(str(entry.slot) for ledger in ledgers for entry in ledger.releases)
        return {
            "charged_once": all(set(found.values()) == {1} for found in counts.values()),
            "charges_within_plan": max(map(len, counts.values())) <= SUM_ROUNDS + RESERVE >= len(asked),
            "sums_charged": all(slot in counts[site] for slot, sites in opened.items() for site in sites),
            "no_secret_left": struck,
        }

    def gaps(self, since: float, until: float) -> float:
        """The longest time without a round, in seconds."""
        notes = read_lines(self.run / "checkpoint" / "sites.jsonl")
        times = [note["time"] for note in notes if note["event"] == "round"]
        near = [time for time in times if since - 2.0 < time < until]
        return round(max((b - a for a, b in pairwise(near)), default=0.0), 2)


Accident = tuple[str, str, int]  # "kill" or "full disk", the party, and which process or disk


def play(accidents: Sequence[Accident], seed: int | None, root: Path, summed: bool = False) -> dict[str, Any]:
    study: dict[str, Any] = SUM_STUDY if summed else STUDY
    running = RUNNING | ({"quorum": 4} if summed else {})
    federation = Accidents(root, "mnist14", SUM_SITES if summed else SITES, study, running, seed=seed, patience=300.0)
    rows: list[dict[str, Any]] = []
    try:
        federation.prepare()
        for party in federation.parties:
            federation.begin(party)
        for number, (kind, party, which) in enumerate(accidents):
            low, high = (federation.last * (number + share) // (len(accidents) + 1) for share in (0.5, 1.0))
            again = federation.go_on(random.randint(int(low) + 1, int(high)))
            time.sleep(0.1 * random.random())
            at, when = federation.rounds_done, time.time()
            if kind == "kill":
                happened, what = federation.kill(party, which), DEPTHS[which]
            else:
                happened, what = federation.fill(party, PLACES[which]), PLACES[which]
            rows.append({kind: f"{party}, {what}", "happened": happened, "after_round": at, "when": when})
            if number:
                rows[-2]["commands_given_again"] = again
        rows[-1]["commands_given_again"] = federation.go_on(federation.last)
        for row, later in zip(rows, [*(row["when"] for row in rows[1:]), time.time()], strict=True):
            row["longest_gap_seconds"] = federation.gaps(row.pop("when"), later)
        found = {
            "accidents": rows,
            "noise": "fresh" if seed is None else "seeded",
            "rounds": federation.rounds_done,
            "identical": None if seed is None else federation.matches_simulation(),
        }
        if summed:
            federation.tell_everybody()
            return found | federation.sums_hold()
        charges = {site: federation.charge_counts(site) for site in SITES}
        once = all(counts == Counter(range(1, ROUNDS + 1)) for counts in charges.values())
        return found | {"duals_equal": federation.duals_match(), "charged_once": once}
    finally:
        federation.stop()


def main() -> None:
    """Play all studies; the results are written after each."""
    parser = arguments(__doc__, "federation_kills")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--disks", type=int, default=24)
    parser.add_argument("--sums", type=int, default=20, help="studies with a secure sum")
    parser.add_argument("--seed", type=int, default=2026, help="of who is hit, and when")
    given = parser.parse_args()
    enter_namespace("--mount")  # its mounts end with it
    random.seed(given.seed)
    results: dict[str, Any] = read_results(given.out) if given.out.exists() else {}
    kills = [("kill", party, depth) for party in PARTIES for depth in DEPTHS]
    batches: list[tuple[list[Accident], int | None]] = [(batch, 7) for batch in _batches(kills, given.kills)]
    for which, seed in ((0, 7), (1, None)):  # seeded noise has no heads elsewhere
        disks = [("full disk", party, which) for party in PARTIES]
        batches += [(batch, seed) for batch in _batches(disks, given.disks // 2)]
    rows: list[dict[str, Any]] = []
    for batch, seed in batches:
        rows.append(_played(batch, seed))
        results = _summary(rows) | {"sums": results.get("sums")}
        write_results(given.out, results)
    kills = [("kill", party, depth) for party in (*SUM_SITES, "coordinator") for depth in DEPTHS]
    summed: list[dict[str, Any]] = []
    for batch in _batches(kills, EACH * given.sums):
        summed.append(_played(batch, 7, summed=True))
        write_results(given.out, results | {"sums": _sum_summary(summed)})


def _played(batch: Sequence[Accident], seed: int | None, summed: bool = False) -> dict[str, Any]:
    """Play one study in a temporary folder, and print what was found."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        row = play(batch, seed, Path(folder), summed)
        subprocess.run(["umount", "--recursive", *Path(folder).glob("disks/*")], check=False)
    row["seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(row), flush=True)
    return row


def _batches(kinds: Sequence[Accident], count: int) -> list[list[Accident]]:
    """So many accidents, each kind as often as the others, in studies of EACH."""
    drawn: list[Accident] = []
    while len(drawn) < count:
        drawn += random.sample(kinds, min(len(kinds), count - len(drawn)))
    return [drawn[begin : begin + EACH] for begin in range(0, count, EACH)]


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    accidents = [accident for row in rows for accident in row["accidents"] if accident["happened"]]
    return {
        "studies": len(rows),
        "kills": sum("kill" in accident for accident in accidents),
        "full_disks": sum("full disk" in accident for accident in accidents),
        "all_identical": all(row["identical"] is not False and row["duals_equal"] for row in rows),
        "all_rounds_charged_once": all(row["charged_once"] for row in rows),
        "rows": rows,
    }


def _sum_summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    accidents = [accident for row in rows for accident in row["accidents"] if accident["happened"]]
    laws = ("identical", "charged_once", "charges_within_plan", "sums_charged", "no_secret_left")
    return {
        "studies": len(rows),
        "sites": len(SUM_SITES),
        "rounds": SUM_ROUNDS,
        "kills": len(accidents),
        **{f"all_{law}": all(row[law] for row in rows) for law in laws},
        "rows": rows,
    }


if __name__ == "__main__":
    main()
