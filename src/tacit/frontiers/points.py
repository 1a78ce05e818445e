"""The points of a frontier, and which of them are the lowest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tacit.algorithms import ALGORITHMS
from tacit.results.folder import RunFolder
from tacit.sweeps.grid import Point
from tacit.sweeps.rows import rows_of
from tacit.sweeps.statistics import Row, grouped, summaries
from tacit.views.intervals import Interval

TOLD_APART = ("algorithm", "epsilon")  # the runs of a run folder, but for their seeds


@dataclass(frozen=True)
class FrontierPoint:
    """One method, with one feature map, under one trust model, at one budget; over its seeds."""

    data: str
    features: str
    trust: str
    algorithm: str
    epsilon: float  # the total that was asked for
    spent: float  # the total by the ledger, of the seed that spent most
    delta: float
    rounds: int
    bytes_up: int  # sent by one agent in all rounds
    bytes_down: int  # received by it
    errors: tuple[float, ...]  # the test error of every seed
    error: Interval  # their mean
    run: str  # the name of its run folder
    lowest: bool = False  # whether it is on the frontier: see `marked`

    def facts(self) -> dict[str, Any]:
        """The point as values, for other programs."""
        return {
            "data": self.data,
            "features": self.features,
            "trust": self.trust,
            "algorithm": self.algorithm,
            "total_epsilon": self.epsilon,
            "spent_epsilon": self.spent,
            "delta": self.delta,
            "rounds": self.rounds,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "test_error": self.error.mean,
            "low": self.error.low,
            "high": self.error.high,
            "lowest": min(self.errors),
            "highest": max(self.errors),
            "seeds": len(self.errors),
            "frontier": self.lowest,
            "run": self.run,
        }


def points_in(point: Point, folder: RunFolder) -> list[FrontierPoint]:
    """The points of an ended run folder."""
    data = folder.read_start(local=False)["data"]
    rows = rows_of(point, folder, local=True)
    errors = summaries(rows, TOLD_APART, "seed")
    return [
        _point(point, data["name"], len(data["agents"]), found, errors[at])
        for at, found in grouped(rows, TOLD_APART).items()
    ]


def _point(point: Point, data: str, agents: int, rows: Sequence[Row], error: Interval) -> FrontierPoint:
    first = rows[0]
    up, down = (max(row[name] for row in rows) for name in ("bytes_up", "bytes_down"))
    return FrontierPoint(
        data,
        point.settings.features,
        point.settings.trust,
        first["algorithm"],
        first["epsilon"],
        max(row["spent_epsilon"] for row in rows),
        point.settings.delta,
        max(row["rounds"] for row in rows),
        *of_one_agent(first["algorithm"], agents, up, down),
        tuple(row["test_error"] for row in rows),
        error,
        point.name,
    )


def of_one_agent(algorithm: str, agents: int, up: int, down: int) -> tuple[int, int]:
    """What one agent sends and receives, of what all of them do; a curator's model is counted once, and goes to all."""
    central = algorithm in ALGORITHMS and ALGORITHMS[algorithm].central
    return math.ceil(up / agents), down if central else math.ceil(down / agents)


def marked(points: Iterable[FrontierPoint]) -> list[FrontierPoint]:
    """The points by trust model and budget; the lowest mean of each is on the frontier, of two alike the cheaper."""
    found = list(points)
    order = {trust: i for i, trust in enumerate(dict.fromkeys(one.trust for one in found))}
    best: dict[tuple[str, float], FrontierPoint] = {}
    for one in found:
        at = one.trust, one.epsilon
        if at not in best or _rank(one) < _rank(best[at]):
            best[at] = one
    sorted_points = sorted(found, key=lambda one: (order[one.trust], one.epsilon))
    return [replace(one, lowest=one is best[one.trust, one.epsilon]) for one in sorted_points]


def rises(points: Sequence[FrontierPoint]) -> list[tuple[FrontierPoint, FrontierPoint]]:
    """Neighbours on a frontier of which the one with the larger budget came out worse."""
    lowest = [one for one in points if one.lowest]
    return [(a, b) for a, b in itertools.pairwise(lowest) if a.trust == b.trust and b.error.mean > a.error.mean]


def _rank(point: FrontierPoint) -> tuple[float, int]:
    return point.error.mean, point.bytes_up + point.bytes_down
