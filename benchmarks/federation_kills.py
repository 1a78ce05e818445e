"""Kills and full disks at random moments of real federations: is the model the same, is every round charged once?

    taciturn bench federation-kills [--kills 40] [--disks 24] [--out FILE]

Three sites with small tables, all three needed for a round, seeded noise. A kill (SIGKILL) hits a command (a site's
vault or the coordinator), its engine, or the small process that confines the engine. Commands are started again at
once, as a service manager would, and engines restart by themselves. A full disk is a small file system of one party,
filled to the last page for a while: its state, or the folder with the heads of its ledgers (this needs root). A command
that ends then is started again when there is room. At the end the model and every dual are compared with one process,
bit by bit, and every site's ledger must have each round once.

Takes about ten minutes on two cores.
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
from benchmarks.program import arguments, enter_namespace, write_results

from taciturn.federation.journal import Journal
from taciturn.federation.policy import read_site
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


class Accidents(Watched):
    """A federation in which every party has small disks of its own, and things happen."""

    tables = True

    @property
    def run(self) -> Path:
        return self.disk("coordinator", "state") / "run"

    def disk(self, party: str, what: str) -> Path:
        """Where a party keeps its state, or the heads of its ledgers."""
        return self.root / "disks" / f"{party}-{what}"

    def prepare(self) -> Any:
        terms = super().prepare()
        for party in PARTIES:
            for what in PLACES:
                self.disk(party, what).mkdir(parents=True)
                if os.geteuid() == 0:
                    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(self.disk(party, what))]
                    subprocess.run(mount, check=True)
        for site in SITES:
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
        while done < rounds or rounds == ROUNDS:
            self.check_deadline()
            if self.command("coordinator").poll() == 0:
                break
            stuck = done < ROUNDS and time.monotonic() - since > STUCK
            for party in PARTIES:
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

    def gaps(self, since: float, until: float) -> float:
        """The longest time without a round, in seconds."""
        notes = read_lines(self.run / "checkpoint" / "sites.jsonl")
        times = [note["time"] for note in notes if note["event"] == "round"]
        near = [time for time in times if since - 2.0 < time < until]
        return round(max((b - a for a, b in pairwise(near)), default=0.0), 2)


Accident = tuple[str, str, int]  # "kill" or "full disk", the party, and which process or disk


def play(accidents: Sequence[Accident], seed: int | None, root: Path) -> dict[str, Any]:
    federation = Accidents(root, "mnist14", SITES, STUDY, RUNNING, seed=seed, patience=300.0)
    rows: list[dict[str, Any]] = []
    try:
        federation.prepare()
        for party in PARTIES:
            federation.begin(party)
        for number, (kind, party, which) in enumerate(accidents):
            low, high = (ROUNDS * (number + share) // (len(accidents) + 1) for share in (0.5, 1.0))
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
        rows[-1]["commands_given_again"] = federation.go_on(ROUNDS)
        for row, later in zip(rows, [*(row["when"] for row in rows[1:]), time.time()], strict=True):
            row["longest_gap_seconds"] = federation.gaps(row.pop("when"), later)
        charges = {site: federation.charge_counts(site) for site in SITES}
        return {
            "accidents": rows,
            "noise": "fresh" if seed is None else "seeded",
            "rounds": federation.rounds_done,
            "identical": None if seed is None else federation.matches_simulation(),
            "duals_equal": federation.duals_match(),
            "charged_once": all(found == Counter(range(1, ROUNDS + 1)) for found in charges.values()),
        }
    finally:
        federation.stop()


def main() -> None:
    """Play all studies; the results are written after each."""
    parser = arguments(__doc__, "federation_kills")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--disks", type=int, default=24)
    parser.add_argument("--seed", type=int, default=2026, help="of who is hit, and when")
    given = parser.parse_args()
    enter_namespace("--mount")  # its mounts end with it
    random.seed(given.seed)
    kills = [("kill", party, depth) for party in PARTIES for depth in DEPTHS]
    batches: list[tuple[list[Accident], int | None]] = [(batch, 7) for batch in _batches(kills, given.kills)]
    for which, seed in ((0, 7), (1, None)):  # seeded noise has no heads elsewhere
        disks = [("full disk", party, which) for party in PARTIES]
        batches += [(batch, seed) for batch in _batches(disks, given.disks // 2)]
    rows = []
    for batch, seed in batches:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            rows.append(play(batch, seed, Path(folder)))
            subprocess.run(["umount", "--recursive", *Path(folder).glob("disks/*")], check=False)
        rows[-1]["seconds"] = round(time.monotonic() - began, 1)
        print(json.dumps(rows[-1]), flush=True)
        write_results(given.out, _summary(rows))


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


if __name__ == "__main__":
    main()
