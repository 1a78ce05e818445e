"""The computation of a reproduction without its figures, for a machine that has only numpy, torch and triton."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from taciturn.core.signals import stop_signals
from taciturn.errors import TaciturnError
from taciturn.research.reproduction import ReproductionFolder, ReproductionInterrupted, ReproductionProgress
from taciturn.research.reproduction.paper_runs import DATA, make_plan, parse_figures
from taciturn.research.reproduction.reproduce import reproduce


def main() -> int:
    """Compute, and print where the results are."""
    parser = argparse.ArgumentParser(prog="python -m taciturn.research.reproduction", description=__doc__)
    parser.add_argument("data", choices=tuple(DATA))
    parser.add_argument("--out", type=Path, required=True, help="the folder; one that was begun is gone on with")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--products", help="on a GPU: half (the default), tf32 or float32")
    parser.add_argument("--data-dir", default="", help="where the data sets lie; else $TACITURN_DATA")
    parser.add_argument("--figures", help="the paper's figures that are wanted, 1,2,3,4")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    try:
        plan = make_plan(given.data, parse_figures(given.figures, given.quick), given.quick, given.rounds, given.seeds)
        with stop_signals(lambda text: print(text, file=sys.stderr)) as stop:
            folder = ReproductionFolder(given.out)
            reproduce(plan, folder, given.device, given.products, given.data_dir, _Lines(), stop)
    except (TaciturnError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (ReproductionInterrupted, KeyboardInterrupt):
        print("stopped: the same command goes on from here", file=sys.stderr)
        return 130
    print(f"done: draw it with 'taciturn reproduce --from {given.out}'", file=sys.stderr)
    return 0


class _Lines:
    """Prints a progress line every few seconds."""

    def __init__(self) -> None:
        self.spoke = 0.0
        self.began: dict[str, tuple[float, int]] = {}

    def __call__(self, progress: ReproductionProgress) -> None:
        name, now = progress.stage.name, time.monotonic()
        since, first = self.began.setdefault(name, (now, progress.t))
        if progress.test_error is None or (now - self.spoke < 10.0 and progress.t < progress.rounds):
            return
        self.spoke = now
        left = (now - since) / max(1, progress.t - first) * (progress.rounds - progress.t)
        best = 100.0 * min(progress.test_error)
        said = f"{name}: round {progress.t} of {progress.rounds}, lowest test error {best:.2f} %, {left:.0f} s left"
        print(said, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
