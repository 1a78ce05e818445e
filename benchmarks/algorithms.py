"""All private algorithms on mnist14 at one total budget.

    taciturn bench algorithms
    taciturn bench algorithms --quick      # one seed and two rounds: does everything still run?

Ten agents, total epsilon 1, delta 1e-6, five seeds, pixels as they are, and nothing else is set: every algorithm uses
the planner's own values. The exact methods, which solve a problem in every round and have fewer rounds, are a separate
study. Central references have one round. Methods that were published with pure noise also run with Laplace noise.

Takes about half an hour on two cores. The studies are in runs/algorithms: a finished one is kept, an interrupted one
continues. Writes benchmarks/results/algorithms.json, the picture `algorithms.png` and the page `algorithms-compared.md`
of the documentation. With --quick everything is written to runs/algorithms-quick.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.program import DOCS, RUNS, arguments, write_results

STUDY = ("--data", "mnist14", "--features", "none", "--agents", "10", "--total-epsilon", "1", "--delta", "1e-6")
ONLY_THE_END = ("--evaluate-every", "1000", "--no-averages")
STEPS = "objp,objpm,objw,objt,ceadmm,outp,hidden,dpgd,dp-fedavg,dp-fedprox,dpsgd"
EXACT = "admm-outp,admm-objp,erm-outp,erm-objp"
STUDIES: dict[str, tuple[str, ...]] = {
    "gaussian": ("--algorithm", STEPS),
    "gaussian-exact": ("--algorithm", EXACT),
    "laplace-exact": ("--algorithm", EXACT, "--mechanism", "laplace"),
}
PAGE = """# The algorithms at one budget

This page compares all private [algorithms](algorithms.md) on the raw pixels of mnist14 (60,000 handwritten digits) with
ten agents and total ε = 1 at δ = 10⁻⁶ for one record added or removed. (With a [feature map](feature-maps.md) errors
are a fifth of these; see [the frontier](frontier.md).) Every algorithm uses the planner's values, and none was tuned
for this table. But some of the planner's constants were once chosen by test errors on mnist14 ([how](planner.md)), so
all figures are optimistic. The exact methods solve a problem in every round, and have fewer rounds. `gaussian-exact`
and `laplace-exact` are the same methods with the two kinds of noise.

![The test error of every algorithm with its interval, the lowest on top](../images/algorithms.png)

{table}

This is one data set and one budget; others may give another order. The central references are not federated: one
trusted curator holds all records, and their bytes are those of the records. `taciturn bench algorithms` generates
this page with

```text
{commands}
```
"""


@dataclass(frozen=True)
class Places:
    """Where everything is written."""

    runs: Path
    result: Path
    picture: Path
    page: Path


def places(quick: bool, results: Path) -> Places:
    """Return them; a quick run writes nothing into the documentation."""
    if quick:
        runs = RUNS / "algorithms-quick"
        return Places(runs, runs / "algorithms.json", runs / "algorithms.png", runs / "algorithms-compared.md")
    page = DOCS / "explanation" / "algorithms-compared.md"
    return Places(RUNS / "algorithms", results, DOCS / "images" / "algorithms.png", page)


def command(name: str, runs: Path, quick: bool) -> list[str]:
    """One study."""
    pace = ("--rounds", "2", "--seeds", "1") if quick else ("--seeds", "5")
    return ["run", *STUDY, *STUDIES[name], *pace, *ONLY_THE_END, "--out", str(runs / name)]


def train(folder: Path, words: list[str]) -> None:
    """A study that has ended is kept, one that was stopped goes on."""
    if (folder / "summary.json").is_file():
        print(f"{folder} has ended", flush=True)
        return
    began = time.perf_counter()
    taciturn(["resume", str(folder)] if folder.exists() else words)
    print(f"{folder}: {time.perf_counter() - began:.0f} s", flush=True)


def taciturn(words: list[str], quiet: bool = False) -> str:
    """Run a command, and say which; quiet: what it prints is for us."""
    print(f"$ taciturn {' '.join(words)}", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "taciturn", *words], stdout=subprocess.PIPE if quiet else None, text=True, check=True
    )
    return done.stdout or ""


def write(put: Places, studies: list[list[str]]) -> None:
    """The page, the picture and the numbers, from the studies' run folders."""
    compare = ["compare", *(words[-1] for words in studies), "--ranked"]
    table = taciturn([*compare, "--markdown", "--out", str(put.picture)], quiet=True)
    found: dict[str, Any] = json.loads(taciturn([*compare, "--json"], quiet=True))
    typed = [*studies, [*compare, "--markdown", "--out", put.picture.name]]
    lines = [f"taciturn {' '.join(words)}" for words in typed]
    put.page.write_text(PAGE.format(table=table.strip(), commands="\n".join(lines)), encoding="utf-8")
    what = "private algorithms on mnist14, 10 agents, total epsilon 1, delta 1e-6, the planner's own values"
    result = {"what": what, "commands": lines, "ranking": found["ranking"]}
    write_results(put.result, result)
    print(table)


def main() -> None:
    """Train, compare, write."""
    parser = arguments(__doc__, "algorithms")
    parser.add_argument(
        "--quick", action="store_true", help="one seed and two rounds, and nothing in the documentation"
    )
    given = parser.parse_args()
    put = places(given.quick, given.out)
    if given.quick:
        shutil.rmtree(put.runs, ignore_errors=True)
    studies = [command(name, put.runs, given.quick) for name in STUDIES]
    for words in studies:
        train(Path(words[-1]), words)
    write(put, studies)


if __name__ == "__main__":
    main()
