"""What a round costs over the network: MNIST (784 x 10), three sites on this machine, mutual TLS.

    python -m benchmarks.federation_speed [--rounds 60] [--out FILE]

The same study with the same steps is played in one process beside it, so that the engine's share can be seen. Needs the
data in TACIT_DATA.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data import load
from tacit.engine.simulate import simulate, start
from tacit.federation.agreement import agree
from tacit.federation.coordinator import round_times
from tacit.federation.journal import Journal
from tacit.federation.local_cluster import LocalFederation, local_federation
from tacit.federation.policy import read_site
from tacit.federation.terms import read_terms
from tacit.privacy.noise import SeededNoise
from tacit.results.folder import RunFolder

SITES = dict.fromkeys(("north", "south", "west"), 20_000)
RESULTS = Path(__file__).parent / "results" / "federation_speed.json"


def network(rounds: int, precision: str, root: Path) -> tuple[dict[str, Any], LocalFederation]:
    study = {"algorithm": "objp", "total_epsilon": 3.0, "rounds": rounds, "precision": precision}
    with local_federation(root, "mnist", SITES, study, {"quorum": 3}, patience=400.0) as federation:
        federation.prepare()
        for site in SITES:
            federation.start_agent(site)
        federation.start_coordinator()
        federation.finish()
        times = sorted(round_times(RunFolder(federation.run)))
        body = 784 * 10 * np.dtype(precision).itemsize
        upload = uploads(federation)
        return {
            "precision": precision,
            "rounds": rounds,
            "median_ms": statistics.median(times),
            "p95_ms": times[int(0.95 * len(times))],
            "bytes_of_z": body,
            "bytes_of_an_upload": upload,
            "over_z_percent": round(100.0 * (upload / body - 1.0), 2),
            "identical_to_simulation": federation.same_as_simulation(),
        }, federation


def uploads(federation: LocalFederation) -> int:
    """The length of an upload, as the journal of a site has it."""
    with Journal.read(read_site(federation.site("north")).state) as journal:
        return max(departure.bytes for departure in journal.departures() if departure.kind == "answer")


def envelope(federation: LocalFederation) -> int | None:
    """The size of a whole message of the engine's with an upload in it, from a site's log."""
    sizes = []
    for path in federation.kits.glob("north/*/log.txt"):
        lines = path.read_text(errors="replace").splitlines()
        sizes += [int(line.split("(")[1].split(" Bytes")[0]) for line in lines if "SubmitUpdate to" in line]
    return max(sizes, default=None)


def one_process(federation: LocalFederation, rounds: int) -> float:
    """Milliseconds of the same rounds without a network: agents one after the other."""
    terms = read_terms(federation.terms)
    agreement, dataset = agree(terms), load(terms.options())
    part = agreement.part
    times, began = [], time.perf_counter()
    steps = simulate(
        part.algorithm,
        dataset.train,
        lambda p, t: SeededNoise((7,), p, t, part.batch.streams),
        rounds,
        start(dataset.train, 1, averages=False),
    )
    for _ in steps:
        times.append(1000.0 * (time.perf_counter() - began))
        began = time.perf_counter()
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    found = []
    for precision in ("float64", "float32"):
        with tempfile.TemporaryDirectory() as folder:
            row, federation = network(arguments.rounds, precision, Path(folder))
            row["engine_message_bytes"] = envelope(federation)
            row["one_process_median_ms"] = round(one_process(federation, 20), 1)
        found.append(row)
        print(row, flush=True)
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
