"""All private algorithms on mnist14 at one total budget, beside each other: the page, the picture and the table.

    python -m benchmarks.algorithms
    python -m benchmarks.algorithms --quick      # one seed and two rounds: does everything still run?

Ten agents, total epsilon 1, delta 1e-6, five seeds, pixels as they are, and nothing else set: every algorithm has the
planner's own values.
The exact methods, which solve a problem in every round and have fewer of them, are a study of their own. Central
references have one round. What was published with pure noise runs with Laplace noise as well.

Takes about half an hour on two cores. The studies lie in runs/algorithms: one that has ended is kept, one that was
stopped goes on. Writes benchmarks/results/algorithms.json, the picture `algorithms.png` beside the other pictures of
the documentation, and the page `algorithms-compared.md` beside the one on algorithms. With --quick everything is made
anew in runs/algorithms-quick, and nothing gets into the documentation.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path("docs")
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
are a quarter of these; see [the frontier](frontier.md).) Every algorithm uses the planner's values, and none was tuned
for this table. But some of the planner's constants were once chosen by test errors on mnist14 ([how](planner.md)), so
all figures are optimistic. The exact methods solve a problem in every round, and have fewer rounds. `gaussian-exact`
and `laplace-exact` are the same methods with the two kinds of noise.

![The test error of every algorithm with its interval, the lowest on top](../images/algorithms.png)

{table}

This is one data set and one budget; others may give another order. The central references are not federated: one
trusted curator holds all records, and their bytes are those of the records. `python -m benchmarks.algorithms` generates
this page with

```text
{commands}
```
"""


@dataclass(frozen=True)
class Places:
    """Where things go."""

    runs: Path
    result: Path
    picture: Path
    page: Path


def places(quick: bool) -> Places:
    """Of a quick try nothing gets into the documentation."""
    if quick:
        runs = Path("runs/algorithms-quick")
        return Places(runs, runs / "algorithms.json", runs / "algorithms.png", runs / "algorithms-compared.md")
    page = DOCS / "explanation" / "algorithms-compared.md"
    return Places(
        Path("runs/algorithms"), Path("benchmarks/results/algorithms.json"), DOCS / "images" / "algorithms.png", page
    )


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
    put.result.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(table)


def main() -> None:
    """Train, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="one seed and two rounds, and nothing in the documentation"
    )
    quick = bool(parser.parse_args().quick)
    put = places(quick)
    if quick:
        shutil.rmtree(put.runs, ignore_errors=True)
    studies = [command(name, put.runs, quick) for name in STUDIES]
    for words in studies:
        train(Path(words[-1]), words)
    write(put, studies)


if __name__ == "__main__":
    main()
