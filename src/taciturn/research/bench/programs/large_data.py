"""Training on a table of 8 GB in a process with less memory; its peak is measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from taciturn.errors import InputError
from taciturn.research.bench.benchmark import BENCHMARKS, Benchmark, Report
from taciturn.research.bench.measured_rounds import missing_packages, read
from taciturn.research.bench.timing import Options, Timing, seconds

NAME = "large-data"
FEATURES, CLASSES, AGENTS, ROUNDS = 100, 10, 10, 3
RECORDS, SMALL = 20_000_000, 50_000  # of FEATURES float32 numbers: 8 GB, 20 MB
GROUP = 200_000  # rows written at a time
ALLOWED, ALLOWED_SMALL = "1GB", "2MB"  # --memory


class Child(NamedTuple):
    """A process that has ended."""

    code: int
    peak: int  # bytes of memory it held at most, pages of files included


def run(options: Options) -> Report:
    """Write the table, train on it in another process, and compare its peak memory with the records' size."""
    records = SMALL if options.small else RECORDS
    with tempfile.TemporaryDirectory(prefix="taciturn-bench-") as name:
        folder = Path(name)
        write_table(folder, records, options)
        options.watch(f"training on {records:,} records")
        child = _train(folder, records, ALLOWED_SMALL if options.small else ALLOWED)
        if child.code:
            raise InputError(f"the run on the large table failed: {(folder / 'said').read_text()[-500:]}")
        rows = [json.loads(line) for line in (folder / "run" / "local-only" / "metrics.jsonl").read_text().splitlines()]
    size = records * (FEATURES + 1 + CLASSES) * 4  # with the intercept, and one-hot labels
    own = [after["seconds"] - before["seconds"] for before, after in pairwise(rows)]
    timings = {"Taciturn's round, from files": Timing(min(own), sorted(own)[len(own) // 2], len(own)), **_reading(size)}
    figures: dict[str, object] = {
        "peak_bytes": child.peak,
        "record_bytes": size,
        "share_in_memory": child.peak / size,
        "allowed": ALLOWED_SMALL if options.small else ALLOWED,
        "data": "synthetic, uniform, in a Parquet file",
        "records": records,
        "rounds": ROUNDS,
    }
    title = f"{records:,} records x {FEATURES} features ({size / 1e9:.1f} GB), --memory {figures['allowed']}"
    return Report(
        NAME, title, figures, timings, notes=("peak memory counts the pages of files", *missing_packages("pyarrow"))
    )


def write_table(folder: Path, records: int, options: Options) -> None:
    """Write a Parquet file of uniform features, with labels that depend on them, and its schema."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError("large-data writes a Parquet file: pip install 'taciturn[parquet]'") from error
    generator, writer, names = np.random.default_rng(0), None, [f"x{j}" for j in range(FEATURES)]
    weights = generator.normal(size=(FEATURES, CLASSES)).astype(np.float32)
    for done in range(0, records, GROUP):
        options.watch(f"writing a table: {done:,} of {records:,} records")
        x = generator.random((min(GROUP, records - done), FEATURES), np.float32)
        columns = {name: x[:, j].copy() for j, name in enumerate(names)}
        table = pa.table(columns | {"y": (x @ weights).argmax(axis=1).astype(np.int8)})
        writer = writer or pq.ParquetWriter(folder / "table.parquet", table.schema, compression="none")
        writer.write_table(table)
    if writer:
        writer.close()
    rules = [f'[columns.{name}]\nkind = "numeric"\nbounds = [0.0, 1.0]' for name in names]
    classes = json.dumps([str(k) for k in range(CLASSES)])
    (folder / "schema.toml").write_text("\n".join([f'[label]\ncolumn = "y"\nclasses = {classes}', *rules]))


def _train(folder: Path, records: int, allowed: str) -> Child:
    """Run `taciturn run` as a user does; the operating system reports the peak memory of the process."""
    places = ["--data", "table.parquet", "--schema", "schema.toml", "--out", "run", "--memory", allowed]
    counts = ["--agents", str(AGENTS), "--total-records", str(records), "--rounds", str(ROUNDS)]
    method = ["--features", "none", "--algorithm", "dpgd", "--precision", "float32"]
    command = [sys.executable, "-m", "taciturn", "run", *places, *counts, *method]
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Child(process.returncode, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def _reading(size: int) -> dict[str, Timing]:
    """Return the time to read so many bytes from memory."""
    part = min(size, 2**28)
    work = read(part)
    taken = sorted(seconds(work) * size / part for _ in range(5))
    return {"reading the records once, from memory": Timing(taken[0], taken[2], 5)}


BENCHMARKS.register(NAME)(
    Benchmark("a table of 8 GB trained with 1 GB of memory", "minutes, and 17 GB of disk", run, alone=False, long=True)
)
