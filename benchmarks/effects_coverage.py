"""Do the standard errors of a model's effects cover the noise? Runs on fixed records that differ in their noise alone.

    taciturn bench effects-coverage

For every table and budget: the standard deviation of each point of each curve over the seeds, over the standard error
that the runs state, and how often a run's curve is within 1.96 of its own standard errors of the mean over seeds. For
every column: the stated standard error over the deviation, both averaged in the square over the column's records.
Schemas are drafts, whose bounds and categories come from the records: for an experiment, not for a private study.
The tables are those of the benchmark `tables`, in the data folder, and one whose columns are drawn independently.

Takes ten minutes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.program import arguments, write_results

import taciturn
from taciturn.data import data_folder
from taciturn.data.schema_draft import draft_schema
from taciturn.runs.effects import EffectsRecord, read_effects

SEEDS = 16
TABLES = {
    "heart": ("num", 920, "agents"),
    "telco": ("Churn", 7043, "agents"),
    "telco-sum": ("Churn", 7043, "server"),
    "adult": ("income-per-year", 32561, "agents"),
    "cal_housing": ("medianHouseValue", 20640, "agents"),
    "independent": ("y", 20000, "agents"),
}
BUDGETS = (1.0, 8.0)


def coverage(effects: EffectsRecord) -> dict[str, Any]:
    """Return how the standard errors of several runs compare with what the runs' curves differ by."""
    curves = np.array([[v for column in run.columns for row in column.effect for v in row] for run in effects.runs])
    errors = np.array(
        [[v for column in run.columns for row in column.error or () for v in row] for run in effects.runs]
    )
    apart = np.abs(curves - curves.mean(axis=0)) / np.sqrt(1.0 - 1.0 / len(curves))
    deviations, stated = curves.std(axis=0, ddof=1), np.sqrt((errors**2).mean(axis=0))
    ratio, widths, start = deviations / stated, {}, 0
    for column in effects.runs[0].columns:
        own = slice(start, start + len(column.effect) * len(column.shares))
        shares = np.tile(column.shares, len(column.effect))
        widths[column.column] = float(np.sqrt((shares @ stated[own] ** 2) / (shares @ deviations[own] ** 2)))
        start = own.stop
    return {
        "points": curves.shape[1],
        "coverage": round(float((apart <= 1.96 * errors).mean()), 4),
        "deviation_over_error": {f"{q:g}": round(float(np.quantile(ratio, q)), 3) for q in (0.05, 0.5, 0.95)},
        "error_over_deviation": {name: round(width, 2) for name, width in widths.items()},
        "mean_error": round(float(errors.mean()), 4),
        "mean_effect": round(float(np.abs(curves.mean(axis=0)).mean()), 4),
    }


def write_independent(path: Path, records: int) -> None:
    """Write a table of independent columns with strong and weak effects on two classes."""
    rng = np.random.default_rng(0)
    size, amount, noise = rng.normal(size=records), rng.exponential(size=records), rng.normal(size=records)
    group, grade, colour = (rng.integers(0, width, records) for width in (5, 4, 3))
    score = 0.8 * size + 0.5 * np.sin(2.0 * amount) + 0.3 * group - 0.6 + 0.7 * (grade - 1.5)
    y = (rng.random(records) < 1.0 / (1.0 + np.exp(-score))).astype(int)
    rows = zip(size, amount, noise, group, grade, colour, y, strict=True)
    lines = [f"{a:.3f},{b:.3f},{c:.3f},g{d},h{e},c{f},{'yes' if label else 'no'}" for a, b, c, d, e, f, label in rows]
    path.write_text("\n".join(["size,amount,noise,group,grade,colour,y", *lines]) + "\n")


def main() -> None:
    """Run every table and budget, print and store the results."""
    given = arguments(__doc__, "effects_coverage").parse_args()
    tables, found = data_folder() / "tables", []
    with tempfile.TemporaryDirectory() as folder:
        for name, (label, records, trust) in TABLES.items():
            data, schema = tables / f"{name.split('-')[0]}.csv", Path(folder) / f"{name}.toml"
            if name == "independent":
                data = Path(folder) / "independent.csv"
                write_independent(data, records)
            schema.write_text(draft_schema(data, label))
            for budget in BUDGETS:
                run = taciturn.run(
                    data=str(data),
                    schema=str(schema),
                    total_records=records,
                    agents=4,
                    trust=trust,
                    total_epsilon=budget,
                    seed=0,
                    seeds=SEEDS,
                    partition_key=1,
                    evaluate_every=1000,
                    out=f"{folder}/{name}-{budget:g}",
                )
                found.append({"table": name, "trust": trust, "epsilon": budget, **coverage(read_effects(run.folder))})
                print(found[-1], flush=True)
    write_results(given.out, {"seeds": SEEDS, "runs": found})


if __name__ == "__main__":
    main()
