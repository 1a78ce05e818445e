"""Does a late round cost more than an early one? The first and the last hundred of 2,000 rounds at a site.

    taciturn bench federation-rounds [--rounds 2000] [--out FILE]

A site with 12 records of two columns, in this process without a network: journal, ledger and release check, with every
write on the disk. CPU time is compared, because other processes use the machine; bytes read are those of the process.

Takes half a minute.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.federation_play import Watched
from benchmarks.program import arguments, write_results

from taciturn.federation import messages as wire
from taciturn.federation.agent import SiteAgent
from taciturn.federation.journal import Journal
from taciturn.federation.messages import Invitation, RoundRequest
from taciturn.federation.policy import read_site
from taciturn.federation.release import ReleaseGate

EXPERIMENT = "0" * 32


def measure(root: Path, rounds: int) -> list[tuple[float, float, int]]:
    """CPU seconds, wall seconds and bytes read of each round."""
    os.environ["XDG_STATE_HOME"] = str(root / "state")
    study = {"algorithm": "objp", "total_epsilon": 3.0, "rounds": rounds}
    federation = Watched(root, "mnist14", {"north": 20}, study)
    federation.tables = True
    terms = federation.prepare()
    site, found = read_site(federation.site("north")), []
    with Journal.open(site.state) as journal:
        agent, release = SiteAgent(site.path, journal), ReleaseGate(journal)
        release.check(site, agent.answer(wire.encode(Invitation(EXPERIMENT, terms.digest))))
        zero = agent.loader.agreement(site).zero
        for t in range(1, rounds + 1):
            question = wire.encode(RoundRequest(EXPERIMENT, t, {"north": t - 1}, zero))
            began = time.process_time(), time.perf_counter(), _read()
            release.check(site, agent.answer(question))
            found.append((time.process_time() - began[0], time.perf_counter() - began[1], _read() - began[2]))
    return found


def _read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def _medians(rows: list[tuple[float, float, int]]) -> dict[str, Any]:
    cpu, wall, read = (statistics.median(column) for column in zip(*rows, strict=True))
    return {"cpu_ms": round(1000.0 * cpu, 2), "wall_ms": round(1000.0 * wall, 2), "bytes_read": int(read)}


def main() -> None:
    """Measure and write."""
    parser = arguments(__doc__, "federation_rounds")
    parser.add_argument("--rounds", type=int, default=2000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), given.rounds)
    first, last = _medians(rows[:100]), _medians(rows[-100:])
    found = {"rounds": given.rounds, "first_100": first, "last_100": last}
    found["cpu_ratio"] = round(last["cpu_ms"] / first["cpu_ms"], 2)
    write_results(given.out, found, show=True)


if __name__ == "__main__":
    main()
