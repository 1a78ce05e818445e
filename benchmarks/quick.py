"""The results of `taciturn reproduce --quick`, and how long it takes on this machine.

    taciturn bench quick

Needs MNIST and FEMNIST. Writes benchmarks/results/quick.json: the ordering ObjPM < ObjP < OutP at every epsilon, the
test errors in %, and seconds, which are those of the machine.

Takes three minutes.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.program import arguments, write_results

from taciturn.research.reproduction import ReproductionFolder, make_plan, reproduce
from taciturn.research.reproduction.paper_runs import DATA
from taciturn.research.reproduction.paper_table import comparison, ordering


def main() -> None:
    """Reproduce both data sets, one after the other."""
    given = arguments(__doc__, "quick").parse_args()
    found: dict[str, Any] = {"cores": os.cpu_count()}
    for data in DATA:
        plan = make_plan(data, (1, 2, 3), quick=True)
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            summary = reproduce(plan, ReproductionFolder(Path(folder) / "r"))
        rows = comparison(summary)
        found[data] = {
            "rounds": plan.rounds,
            "seconds": round(time.perf_counter() - began, 1),
            "ordering": {f"{epsilon:g}": holds for epsilon, holds in ordering(summary).items()},
            "test_error_percent": {
                f"{row['name']}, {row['epsilon']}": round(row["best"], 2) for row in rows if row["best"] is not None
            },
        }
        print(data, found[data], flush=True)
    write_results(given.out, found)


if __name__ == "__main__":
    main()
