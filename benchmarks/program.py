"""What the programs of this folder share: arguments, places, results, and summaries over seeds.

It needs the standard library alone: some programs run where Taciturn is not installed, or with an older version of it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS, RESULTS = ROOT / "docs", ROOT / "benchmarks" / "results"
RUNS = Path("runs")  # of studies that are continued when a program is started again


def results_file(name: str) -> Path:
    """Return the committed file of a program's results."""
    return RESULTS / f"{name}.json"


def arguments(description: str | None, name: str) -> argparse.ArgumentParser:
    """Return the parser of a program, with the option --out for the file of its results.

    Parameters
    ----------
    description : str
        The docstring of the program.
    name : str
        The name of its module.
    """
    parser = argparse.ArgumentParser(
        prog=f"taciturn bench {name.replace('_', '-')}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=results_file(name), help="file of the results")
    return parser


def write_results(path: Path, document: Mapping[str, Any], show: bool = False) -> None:
    """Write results as JSON, and print them if `show`."""
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    if show:
        print(text, flush=True)


def read_results(path: Path) -> dict[str, Any]:
    """Read a file of results."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return mean, lowest and highest over seeds."""
    return {"mean": fmean(values), "min": min(values), "max": max(values)}


def rounded(value: Any, digits: int) -> Any:
    """Return a value with its numbers to so many significant digits; numbers that are not finite become text."""
    match value:
        case float():
            return float(f"{value:.{digits}g}") if math.isfinite(value) else str(value)
        case dict():
            return {key: rounded(item, digits) for key, item in value.items()}
        case list() | tuple():
            return [rounded(item, digits) for item in value]
    return value


def enter_namespace(*options: str) -> None:
    """As root, start this program again with `unshare` and these options; otherwise do nothing."""
    if os.geteuid() == 0 and "TACITURN_APART" not in os.environ:
        os.environ["TACITURN_APART"] = "1"
        os.execvp("unshare", ["unshare", *options, sys.executable, *sys.orig_argv[1:]])
