"""Taciturn on the same splits, through its command line, with nothing set for a table but its public facts."""

from __future__ import annotations

import csv
import math
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.tables.results import DELTA
from benchmarks.tables.splits import Files, TableSource
from numpy.typing import NDArray

from taciturn.types import Classes


class Setup(NamedTuple):
    """Who holds the records, and who is trusted."""

    parties: bool  # all parties of the table, or one that holds every record
    trust: str = "agents"

    def budgets(self, epsilons: Sequence[float]) -> list[float]:
        """Return those to train with: without noise, a secure sum gives the same model as agents."""
        return [epsilon for epsilon in epsilons if math.isfinite(epsilon) or self.trust == "agents"]


SETUPS = {
    "taciturn-one": Setup(parties=False),
    "taciturn-parties": Setup(parties=True),
    "taciturn-secure-sum": Setup(parties=True, trust="secure-sum"),
}


class CommandFailed(Exception):
    """A command ended with an error; the message is what it wrote to stderr."""


def predict(source: TableSource, files: Files, method: str, epsilon: float, seed: int) -> NDArray[np.float64]:
    """Train, and predict the test records: the probability of class 1, or a number."""
    setup, folder = SETUPS[method], files.test.parent / f"{method}-{epsilon:g}"
    predictions = folder.with_name(f"{folder.name}.csv")
    shutil.rmtree(folder, ignore_errors=True)
    predictions.unlink(missing_ok=True)
    agents = source.parties if setup.parties else 1
    command = run_command(source, files.parties if setup.parties else files.train, files.records, agents, epsilon)
    call([*command, "--trust", setup.trust, "--noise", "seeded", "--seed", str(seed), "--out", str(folder)])
    call([sys.executable, "-m", "taciturn", "predict", str(folder), str(files.test), "--out", str(predictions)])
    shutil.rmtree(folder)
    target = source.schema.target
    wanted = f"probability_{target.names[1]}" if isinstance(target, Classes) else "prediction"
    with predictions.open(encoding="utf-8", newline="") as file:
        return np.array([float(row[wanted]) for row in csv.DictReader(file)])


def run_command(source: TableSource, data: Path, records: int, agents: int, epsilon: float) -> list[str]:
    """Return `taciturn run` with the public facts and the budget."""
    facts = {"--data": data, "--schema": source.schema_file, "--total-records": records, "--agents": agents}
    budget = {"--total-epsilon": f"{epsilon:g}", "--delta": DELTA}
    words = [str(word) for pair in (facts | budget).items() for word in pair]
    return [sys.executable, "-m", "taciturn", "run", *words]


def call(command: Sequence[str]) -> None:
    """Run a command in a process of its own; raise CommandFailed if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandFailed(done.stderr.strip())
