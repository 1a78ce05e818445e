"""The frontier: the lowest error that a total budget buys with the planner's values, on MNIST and FEMNIST.

    taciturn bench frontier [--device cuda] [--only mnist,femnist]
    taciturn bench frontier --write       # only the page and the pictures, from finished frontiers

Every point uses the planner's own values: no record, test or private, was used to choose them. Needs MNIST and FEMNIST.
The frontiers are in runs/frontier-*, and an interrupted one continues. Writes benchmarks/results/frontier.json, and
the page frontier-measured.md of the documentation with its pictures.

Takes 16 minutes on one H200 GPU, nearly all of it for the 195 writers of FEMNIST, and hours on two cores.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.program import DOCS, RUNS, arguments, write_results

import taciturn
from taciturn.experiments.experiment_figures import frontier_figure
from taciturn.experiments.frontier_results import TEXT_COLUMNS, FrontierPoint, frontier_table, mark_lowest
from taciturn.reporting.figures.style import save
from taciturn.reporting.intervals import Interval
from taciturn.reporting.tables import markdown_table

PAGE = DOCS / "explanation" / "frontier-measured.md"
TRUSTS = ["agents", "secure-sum", "server"]
BOTH: dict[str, Any] = {"algorithm": ["objp", "objw", "dpgd"], "total_epsilon": [0.5, 1, 3, 8], "seeds": 5}
FRONTIERS: dict[str, dict[str, Any]] = {
    "mnist": {"data": "mnist", "features": ["scattering"], "trust": TRUSTS, **BOTH},
    "mnist-pixels": {"data": "mnist", "features": ["none", "pixels"], "trust": ["agents"], **BOTH},
    "femnist": {"data": "femnist", "features": ["scattering"], "trust": TRUSTS, **BOTH},
    "femnist-pixels": {"data": "femnist", "features": ["none"], "trust": TRUSTS, **BOTH},
}
PICTURES = {"mnist": ("mnist", "mnist-pixels"), "femnist": ("femnist", "femnist-pixels")}
QUICKLY: dict[str, Any] = {"evaluate_every": 1000}
AIMS = (  # what, map, trust model, epsilon, and the mean error in percent it must not exceed
    ("raw pixels", "pixels", "agents", 1.0, 9.8),
    ("a public feature map", "scattering", "agents", 1.0, 3.2),
    ("a public feature map", "scattering", "agents", 3.0, 2.4),
    ("on a secure sum", "scattering", "secure-sum", 1.0, 2.3),
)
IADMM, CLOSE = ("objp", "objw"), 0.1  # and how far IADMM may be from gradient descent, in points
TEXT = """# The frontier, measured

These are the figures behind [the frontier](frontier.md): test error against the *total* ε, at δ = 10⁻⁶, one record
added or removed. Every point uses the planner's own values, which are computed from public facts. No record, private or
test, was used to choose them, so they cost no budget. Figures are means of 5 seeds with their 95 % intervals.

## MNIST, 10 agents

![MNIST: test error against total epsilon, for three trust models and three feature maps](../images/frontier_mnist.png)

{mnist}

## FEMNIST, 195 writers, 62 classes

![FEMNIST: test error against total epsilon](../images/frontier_femnist.png)

{femnist}

## How to get these

```text
TACITURN_DATA=DIR taciturn bench frontier
```

generates this page ([benchmarks/results/frontier.json](../../benchmarks/results/frontier.json) has every point with
its rounds and bytes). It runs

```text
{commands}
```
"""


def command(name: str) -> str:
    """A frontier as it is typed."""
    words = [
        f"--{key.replace('_', '-')} {','.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in FRONTIERS[name].items()
    ]
    return f"taciturn frontier {' '.join(words)} --out frontier-{name}"


def draw(name: str, more: dict[str, Any]) -> None:
    """Go through a frontier, or on with it."""
    done = taciturn.frontier(**FRONTIERS[name], **QUICKLY, **more, out=RUNS / f"frontier-{name}", say=print)
    print(done.table(), flush=True)


def aims(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was to be reached, what was, and how far IADMM is from gradient descent there."""
    found = []
    for what, features, trust, epsilon, most in AIMS:
        here = {
            point["algorithm"]: 100.0 * point["test_error"]
            for point in points
            if (point["features"], point["trust"], point["total_epsilon"]) == (features, trust, epsilon)
        }
        iadmm = min(here[name] for name in IADMM if name in here)
        found.append(
            {
                "what": f"MNIST, {what}, total epsilon {epsilon:g}",
                "at_most_percent": most,
                "reached_percent": round(min(here.values()), 3),
                "iadmm_percent": round(iadmm, 3),
                "gradient_descent_percent": round(here["dpgd"], 3),
                "met": min(here.values()) <= most and iadmm <= most,
                "iadmm_within_a_tenth": iadmm - here["dpgd"] <= CLOSE,
            }
        )
    return found


def write(out: Path) -> None:
    """The page, the pictures and the figures, from what lies in runs."""
    found: dict[str, Any] = {"what": __doc__.splitlines()[0] if __doc__ else "", "delta": 1e-6}
    tables = {}
    for name in FRONTIERS:
        document = json.loads((RUNS / f"frontier-{name}" / "frontier.json").read_text())
        found[name] = {"command": command(name), "points": document["points"], "left_out": document["left_out"]}
    for picture, names in PICTURES.items():
        points = mark_lowest(_point(facts) for name in names for facts in found[name]["points"])
        save(frontier_figure(points, regression=False, private=False), DOCS / "images" / f"frontier_{picture}.png")
        headings, rows = frontier_table(points, regression=False)
        tables[picture] = markdown_table(headings, rows, TEXT_COLUMNS)
    found["aims"] = aims([point for name in PICTURES["mnist"] for point in found[name]["points"]])
    write_results(out, found)
    PAGE.write_text(TEXT.format(commands="\n".join(map(command, FRONTIERS)), **tables), encoding="utf-8")
    print(json.dumps(found["aims"], indent=1))


def _point(facts: dict[str, Any]) -> FrontierPoint:
    """A point as its file has it."""
    alike = ("data", "features", "trust", "algorithm", "delta", "rounds", "bytes_up", "bytes_down", "run")
    seeds: int = facts["seeds"]
    return FrontierPoint(
        **{name: facts[name] for name in alike},
        epsilon=facts["total_epsilon"],
        spent=facts["spent_epsilon"],
        errors=(facts["lowest"], *[facts["test_error"]] * (seeds - 2), facts["highest"])[:seeds],
        error=Interval(facts["test_error"], facts["low"], facts["high"], seeds),
    )


def main() -> None:
    """Train, then write."""
    parser = arguments(__doc__, "frontier")
    parser.add_argument("--device", default="cpu", help="cuda: on a GPU, with torch")
    parser.add_argument("--only", default=",".join(FRONTIERS), help="some of these, with commas between")
    parser.add_argument("--train", action="store_true", help="do not write the page")
    parser.add_argument("--write", action="store_true", help="train nothing")
    options = parser.parse_args()
    more = {} if options.device == "cpu" else {"backend": "torch", "device": options.device}
    for name in () if options.write else options.only.split(","):
        draw(name, more)
    if not options.train:
        write(options.out)


if __name__ == "__main__":
    main()
