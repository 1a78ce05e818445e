"""What noise does to a model of a rare class: ranking and log loss beside the planner's verdict for that share.

    taciturn bench rare-classes

Tables of eight independent normal columns, of which five matter, and two classes; the share of the rarer class is 2 to
50 %. Every model is compared with the one without noise on the same records, on 20,000 new records.

Takes ten minutes.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from benchmarks.program import arguments, write_results

import taciturn
from taciturn.planning.heuristics import verdict, verdict_limits

EFFECTS = (1.2, -0.8, 0.6, 0.4, 0.3, 0.0, 0.0, 0.0)
INTERCEPTS = (0.0, -2.0, -3.5, -5.0)
RECORDS = {2000: 6, 7500: 6, 30000: 2}  # and how many tables of this size
BUDGETS = ((1.0, 10), (1.0, 1), (3.0, 10), (8.0, 1))  # total epsilon and agents
NAMES = tuple("abcdefgh")
COLUMNS: dict[str, Any] = {"rare": [False, True]} | dict.fromkeys(NAMES, (-6, 6))


class Quality(NamedTuple):
    """How good a model is on new records."""

    auroc: float
    log_loss: float
    base_rate: float  # the log loss of always predicting the share in the training records


def table(seed: int, records: int, intercept: float) -> pd.DataFrame:
    """Return a table whose classes have this intercept."""
    rng = np.random.default_rng([seed, records])
    values = rng.normal(size=(records, len(EFFECTS)))
    rare = rng.random(records) < 1.0 / (1.0 + np.exp(-values @ np.array(EFFECTS) - intercept))
    return pd.DataFrame(values, columns=list(NAMES)).assign(rare=rare)


def trained(train: pd.DataFrame, test: pd.DataFrame, seed: int, epsilon: float, agents: int) -> Quality:
    """Train a model and measure it."""
    with tempfile.TemporaryDirectory() as folder:
        run = taciturn.run(
            data=train,
            schema=taciturn.Schema.from_frame(train).declare(COLUMNS, label="rare"),
            total_records=len(train),
            agents=agents,
            total_epsilon=epsilon,
            seed=seed,
            out=Path(folder) / "run",
            progress=False,
        )
        found = run.evaluate(test)
    return Quality(found["auroc"], found["log_loss"], found["baseline"]["log_loss"])


def noise_to_signal(train: pd.DataFrame, epsilon: float, agents: int, share: float) -> tuple[float, str]:
    """Return nu of the plan, and the verdict for this share of the rarer class."""
    schema = taciturn.Schema.from_frame(train).declare(COLUMNS, label="rare")
    report = taciturn.plan(data=train, schema=schema, total_records=len(train), agents=agents, total_epsilon=epsilon)
    nu = report.proposal.noise_to_signal
    return nu, verdict(nu, verdict_limits(report.study.facts, min(share, 1.0 - share)))


def point(records: int, tables: int, intercept: float, epsilon: float, agents: int) -> dict[str, Any]:
    """Return the mean losses over several tables."""
    noisy, exact, shares = [], [], []
    for seed in range(tables):
        train, test = table(seed, records, intercept), table(1000 + seed, 20000, intercept)
        shares.append(float(test["rare"].mean()))
        noisy.append(trained(train, test, seed, epsilon, agents))
        exact.append(trained(train, test, seed, math.inf, agents))
    share = float(np.mean(shares))
    nu, words = noise_to_signal(train, epsilon, agents, share)
    with_noise, without = np.mean(noisy, axis=0), np.mean(exact, axis=0)
    return {
        "records": records,
        "tables": tables,
        "share": round(share, 4),
        "epsilon": epsilon,
        "agents": agents,
        "noise_to_signal": float(f"{nu:.4g}"),
        "verdict": words,
        "auroc": round(float(with_noise[0]), 4),
        "auroc_lost": round(float(without[0] - with_noise[0]), 4),
        "log_loss": round(float(with_noise[1]), 5),
        "base_rate": round(float(with_noise[2]), 5),
        "gain_lost": round(float((with_noise[1] - without[1]) / (with_noise[2] - without[1])), 3),
        "worse_than_base_rate": sum(one.log_loss > one.base_rate for one in noisy),
    }


def main() -> None:
    """Train all, print and store the results."""
    given = arguments(__doc__, "rare_classes").parse_args()
    found = []
    for records, tables in RECORDS.items():
        for intercept in INTERCEPTS:
            for epsilon, agents in BUDGETS:
                found.append(point(records, tables, intercept, epsilon, agents))
                print(found[-1], flush=True)
    write_results(given.out, {"what": "models of a rare class beside the planner's verdict", "points": found})


if __name__ == "__main__":
    main()
