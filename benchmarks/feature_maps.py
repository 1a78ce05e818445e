"""How much public feature maps lower the error, and how long they take.

    taciturn bench feature-maps

Writes benchmarks/results/feature_maps.json: test errors of the default method at total epsilon 1 over seeds, on a table
of rings, where a straight line fails, and on mnist14; and the time of scattering over that of its bare products.

Takes minutes.
"""

from __future__ import annotations

import csv
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.program import arguments, spread, write_results

import taciturn
from taciturn.data.feature_maps import InputShape, build_map
from taciturn.data.feature_maps.images import strokes
from taciturn.data.feature_maps.scattering import BLOCK, DIRECTIONS, Scattering
from taciturn.research.bench.timing import median_seconds

SEEDS, EPSILON, CALLS = 5, 1.0, 7
RECORDS, TEST, AGENTS = 20_000, 5_000, 10
RADII, WIDTH = (0.15, 0.45, 0.75), 0.07  # of the rings' middles, and how far records stray from them
SCHEMA = """
scale = "symmetric"
[label]
column = "ring"
classes = ["inner", "middle", "outer"]
[columns.x]
kind = "numeric"
bounds = [-1, 1]
[columns.y]
kind = "numeric"
bounds = [-1, 1]
"""


def write_rings(path: Path, records: int, seed: int) -> None:
    """Records on three rings, one for each class."""
    random = np.random.default_rng(seed)
    ring = random.integers(0, 3, records)
    radius, angle = np.array(RADII)[ring] + random.normal(0.0, WIDTH, records), random.uniform(0, 2 * math.pi, records)
    names = ("inner", "middle", "outer")
    rows = zip(radius * np.cos(angle), radius * np.sin(angle), ring, strict=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("x", "y", "ring"), *((f"{x:.4f}", f"{y:.4f}", names[k]) for x, y, k in rows)])


def errors(features: str, folder: Path, **more: Any) -> dict[str, float]:
    """Of a study with this map: mean, best and worst over the seeds."""
    place = folder / features
    run = taciturn.run(
        features=features, algorithm="objp", total_epsilon=EPSILON, seeds=SEEDS, averages=False, out=place, **more
    )
    return spread([entry["test_error"] for entry in run.runs])


def rings() -> dict[str, dict[str, float]]:
    """By map."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_rings(folder / "rings.csv", RECORDS, 1)
        write_rings(folder / "test.csv", TEST, 2)
        (folder / "schema.toml").write_text(SCHEMA)
        files = {"data": folder / "rings.csv", "schema": folder / "schema.toml", "test": folder / "test.csv"}
        own = files | {"agents": AGENTS, "total_records": RECORDS, "seed": 1}
        return {features: errors(features, folder, **own) for features in ("none", "unit", "fourier")}


def digits() -> dict[str, dict[str, float]]:
    """By map, on mnist14."""
    with tempfile.TemporaryDirectory() as place:
        maps = ("none", "unit", "fourier", "pixels", "scattering")
        return {features: errors(features, Path(place), data="mnist14") for features in maps}


def time_of(side: int) -> dict[str, float]:
    """Scattering of a block of images over its bare products; and multiplications for an image, done and dense."""
    phi, x = build_map("scattering", InputShape(side * side, (side, side))), strokes(side)[:BLOCK]
    if not isinstance(phi, Scattering):
        raise TypeError("scattering is built as such")
    products = [(BLOCK, band.weights) for one in phi.first for band in one.bands]
    products += [(BLOCK * DIRECTIONS, band.weights) for one in phi.second.values() for band in one.bands]
    inputs = [(np.ones((rows, len(weights)), np.float32), weights) for rows, weights in products]
    done = sum(rows // BLOCK * weights.size for rows, weights in products)
    dense = sum(one.weights.size for one in phi.first) + DIRECTIONS * sum(w.weights.size for w in phi.second.values())
    bare = median_seconds(lambda: [u @ weights for u, weights in inputs], CALLS)
    own = median_seconds(lambda: phi(x), CALLS)
    return {"over_bare_products": own / bare, "multiplications": done, "dense": dense}


def main() -> None:
    """Measure and write."""
    given = arguments(__doc__, "feature_maps").parse_args()
    times = {str(side): time_of(side) for side in (14, 28)}
    found = {"epsilon": EPSILON, "seeds": SEEDS, "rings": rings(), "mnist14": digits(), "scattering": times}
    write_results(given.out, found, show=True)


if __name__ == "__main__":
    main()
