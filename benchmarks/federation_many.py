"""Do many agents hold? 50 sites on one machine, 20 rounds, all of them answering.

python -m benchmarks.federation_many [--sites 50] [--rounds 20] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import psutil

from tacit.federation.coordinator import round_times
from tacit.federation.local_cluster import local_federation
from tacit.results.folder import RunFolder, read_lines

RESULTS = Path(__file__).parent / "results" / "federation_many.json"
AT_ONCE, PAUSE = 5, 14.0  # agents started together, seconds between: their imports are what takes the time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    count = arguments.sites
    sites = {f"site-{n:02d}": 60_000 // count + 1 for n in range(count)}
    study = {"algorithm": "objp", "total_epsilon": 3.0, "rounds": arguments.rounds}
    running = {"quorum": count, "answer_seconds": 120, "ready_seconds": 300}
    with (
        tempfile.TemporaryDirectory() as folder,
        local_federation(Path(folder), "mnist14", sites, study, running, patience=1800.0) as federation,
    ):
        began = time.monotonic()
        federation.prepare()
        federation.start_coordinator()
        for number, site in enumerate(sites):
            federation.start_agent(site)
            if number % AT_ONCE == AT_ONCE - 1:
                time.sleep(PAUSE)
        federation.wait(1)
        first = time.monotonic() - began
        agent = psutil.Process(federation.agents["site-00"].pid)
        memory = sum(process.memory_info().rss for process in (agent, *agent.children(recursive=True)))
        federation.finish()
        rows = list(read_lines(federation.run / "rounds.jsonl"))
        found = {
            "sites": count,
            "rounds": len(rows),
            "all_answered": all(len(row["answered"]) == count for row in rows),
            "median_ms": statistics.median(round_times(RunFolder(federation.run))),
            "seconds_to_first_round": round(first, 1),
            "megabytes_of_an_agent": round(memory / 1e6),
            "identical_to_simulation": federation.same_as_simulation(),
        }
    print(found)
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
