"""Private models on tables: Taciturn beside other libraries, on the same splits.

    pip install -c constraints.txt -e '.[bench-tables]'
    taciturn bench tables [--only baselines] [--tables adult,heart] [--epsilons 1,inf] [--out FILE]

Four tables in the folder `tables` of the data folder (adult.csv, telco.csv, heart.csv, cal_housing.csv), random 80/20
splits, and the public schemas of benchmarks/table_schemas. Taciturn trains with one party, with ten (heart: its four
hospitals), and with them on a secure sum; nothing is set for a table but its public facts. DP-EBM (interpret) and
diffprivlib get all records and the same public facts; scikit-learn and EBM show what is possible without privacy.

Writes benchmarks/results/tables.json after every cell, so that an interrupted run continues, then the picture beside
it, and prints the results as Markdown.

Takes hours on two cores.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from benchmarks.program import arguments
from benchmarks.tables import baselines, own_runs, presentation, timing
from benchmarks.tables.results import Point, Results, quality
from benchmarks.tables.splits import TABLES, Split
from numpy.typing import NDArray

PARTS = ("baselines", "taciturn", "time", "picture")
METHODS = (*baselines.PUBLIC, *baselines.PRIVATE, *own_runs.SETUPS)
EPSILONS = "0.5,1,3,8,inf"


class Cell(NamedTuple):
    """One training: a method with a budget on a split."""

    point: Point
    split: Split
    predict: Callable[[], NDArray[np.float64]]


def cells(part: str, split: Split, epsilons: list[float]) -> Iterator[Cell]:
    """Yield the trainings of a part of the benchmark on a split."""
    source = split.source
    if part == "baselines":
        train, test = split.frames()
        finite = [epsilon for epsilon in epsilons if math.isfinite(epsilon)]
        budgets = {method: [math.inf] for method in baselines.PUBLIC} | dict.fromkeys(baselines.PRIVATE, finite)
        for method, epsilon in ((method, epsilon) for method, own in budgets.items() for epsilon in own):
            task = baselines.Task(source, train, test, epsilon, split.number)
            yield Cell(Point(source.name, method, epsilon), split, partial(baselines.predict, method, task))
    if part == "taciturn":
        files = split.write_files()
        for method, setup in own_runs.SETUPS.items():
            for epsilon in setup.budgets(epsilons):
                work = partial(own_runs.predict, source, files, method, epsilon, split.number)
                yield Cell(Point(source.name, method, epsilon), split, work)


def train(cell: Cell, results: Results) -> bool:
    """Train a cell and keep its metrics; return whether it succeeded."""
    point, split = cell.point, cell.split
    what = f"{point.table}, split {split.number}, {point.method}, epsilon {point.epsilon:g}"
    began = time.perf_counter()
    try:
        predicted = cell.predict()
    except own_runs.CommandFailed as error:
        print(f"{what}: failed: {error}", file=sys.stderr, flush=True)
        return False
    found = quality(split.labels, predicted, split.source.classes)
    results.add(point, split.number, found)
    metrics = ", ".join(f"{name} {value:.5g}" for name, value in found.items())
    print(f"{what}: {metrics} ({time.perf_counter() - began:.1f} s)", flush=True)
    return True


def some_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return a parser of names with commas between."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"there is no '{name}': the choices are {', '.join(known)}")
        return names

    return parse


def main() -> None:
    """Train what is not there yet, then draw and print all."""
    parser = arguments(__doc__, "tables")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; may be given several times")
    parser.add_argument("--tables", type=some_of(TABLES), default=list(TABLES), help=f"some of {', '.join(TABLES)}")
    parser.add_argument("--methods", type=some_of(METHODS), default=METHODS, help=f"some of {', '.join(METHODS)}")
    parser.add_argument("--epsilons", default=EPSILONS, help="total budgets, with commas between")
    parser.add_argument("--splits", type=int, default=5, help="number of random splits")
    parser.add_argument("--again", action="store_true", help="train what is there already, too")
    options = parser.parse_args()
    results, failed, parts = Results(options.out), 0, options.only or PARTS
    epsilons = [float(text) for text in options.epsilons.split(",")]
    for part in (part for part in ("baselines", "taciturn") if part in parts):
        for name in options.tables:
            for number in range(options.splits):
                for cell in cells(part, Split(TABLES[name], number), epsilons):
                    finished = results.has(cell.point, number) and not options.again
                    if cell.point.method in options.methods and not finished:
                        failed += not train(cell, results)
    if "time" in parts and (options.again or not results.time):
        results.add_time(timing.measure())
    presentation.draw(results)
    print(presentation.markdown(results))
    if failed:
        raise SystemExit(f"{failed} trainings failed")


if __name__ == "__main__":
    main()
