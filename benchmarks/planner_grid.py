"""The planner's rule against a grid around it, in a second implementation of certified training that shares no code.

    taciturn bench planner-grid --pack FILE                                      # only data and planned values
    python -m benchmarks.planner_grid --packed FILE [--device cuda] [--out FILE]   # needs numpy and torch alone
    taciturn bench planner-grid                                                  # both at once

The planner's values are Taciturn's own, for the rounds of the rule and for those of the grid; the training is written
plainly in torch. The grid multiplies C, eta and rho, each by 0.3, 1 and 3. Its best point is chosen on the test set
from few seeds, which flatters it, so that point is trained again with fresh seeds. The ladder is the rule alone, from
budgets that drown the model to budgets that hardly touch it. Needs MNIST and FEMNIST.
Writes benchmarks/results/planner_grid.json.

Takes minutes on a GPU.
"""

from __future__ import annotations

import json
import math
import time
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks.program import arguments, write_results

DATA = ("mnist14", "mnist", "femnist")
BUDGETS, DELTA, BETA = (1.0, 3.0, 8.0), 1e-6, 1e-6
ROUNDS, FACTORS = (50, 100, 300), (0.3, 1.0, 3.0)
LADDER = (0.002, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 8.0, 30.0)
RULE_SEEDS, GRID_SEEDS, LADDER_SEEDS = 20, 3, 5
MEMORY = 60e9  # bytes that one batch of runs may take


class Point(NamedTuple):
    """One setting of certified objp."""

    rounds: int  # T
    clip: float  # C
    rho: float
    eta: float  # of most rounds; it falls linearly over the last 60
    sigma: float  # standard deviation of one release's noise over C / I, if the whole budget went into it
    nu: float


def pack(name: str) -> dict[str, Any]:
    """Records as bytes, whose they are, and the planner's values: for every budget its own, then those for ROUNDS."""
    from taciturn.data import DataOptions, load
    from taciturn.data.facts import published_facts
    from taciturn.objectives import LOSSES
    from taciturn.planning.heuristics import PlanRequest, propose, release_noise

    options = DataOptions(data=name)
    dataset = load(options)
    facts, loss, levels = published_facts(dataset, options), LOSSES["softmax"](), 15 if name == "mnist14" else 255

    def planned(budget: float, rounds: int | None = None) -> Point:
        asked = PlanRequest(budget, DELTA, rounds=rounds)
        made = propose(facts, loss, asked)
        noise = release_noise(facts, asked)
        return Point(made.rounds, made.clip, made.rho, made.eta, noise, made.noise_to_signal)

    assert dataset.test is not None
    x = np.concatenate([shard.x for shard in dataset.train])
    assert np.abs(np.rint(levels * x) - levels * x).max() < 1e-9
    return {
        "x": np.rint(levels * x).astype(np.uint8),
        "y": np.concatenate([shard.y for shard in dataset.train]).argmax(axis=1).astype(np.uint8),
        "owner": np.repeat(np.arange(facts.agents), [len(shard.x) for shard in dataset.train]).astype(np.uint16),
        "test_x": np.rint(levels * dataset.test.x).astype(np.uint8),
        "test_y": dataset.test.y.argmax(axis=1).astype(np.uint8),
        "shape": np.array([facts.outputs, levels]),
        "plans": np.array([planned(budget, rounds) for budget in BUDGETS for rounds in (None, *ROUNDS)]),
        "ladder": np.array([planned(budget) for budget in LADDER]),
    }


class Records:
    """All agents' records on the device, padded to the same number with records of length 0."""

    def __init__(self, packed: dict[str, Any], device: str) -> None:
        import torch

        self.K, levels = (int(v) for v in packed["shape"])
        counts = np.bincount(packed["owner"])
        self.I, self.P, self.n, self.J = len(packed["x"]), len(counts), int(counts.max()), packed["x"].shape[1]
        x = np.zeros((self.P, self.n, self.J), np.float32)
        y = np.zeros((self.P, self.n, 1, self.K), np.float32)
        for p in range(self.P):
            own = packed["owner"] == p
            x[p, : counts[p]] = packed["x"][own].astype(np.float32) / levels
            y[p, : counts[p], 0] = np.eye(self.K, dtype=np.float32)[packed["y"][own]]
        self.x, self.y = torch.as_tensor(x, device=device), torch.as_tensor(y, device=device)
        self.length = self.x.norm(dim=2)[:, :, None, None]
        self.test_x = torch.as_tensor(packed["test_x"].astype(np.float32) / levels, device=device)
        self.test_y = torch.as_tensor(packed["test_y"].astype(np.int64), device=device)


def train(records: Records, points: list[Point], seed: int) -> list[float]:
    """Test errors of certified objp at every point, side by side; all points have the same T."""
    import torch

    P, J, K, T, runs = records.P, records.J, records.K, points[0].rounds, len(points)
    x, y, x_t, device = records.x, records.y, records.x.transpose(1, 2), records.x.device
    draw = torch.Generator(device=device).manual_seed(seed)

    def column(values: list[float]) -> Any:
        return torch.tensor(values, dtype=torch.float32, device=device)[:, None]  # [R, 1], stands before K

    clip, rho, eta_1 = (column([getattr(point, name) for point in points]) for name in ("clip", "rho", "eta"))
    std = column([math.sqrt(T) * point.sigma * point.clip / records.I for point in points])
    z = torch.zeros(P, J, runs, K, device=device)
    lam = torch.zeros_like(z)
    noise = torch.empty_like(z)
    for t in range(1, T + 1):
        eta = eta_1 * min(1.0, (1.0 - (t - 1) / T) / min(1.0, 60 / T))
        w = (z - lam / rho).mean(dim=0)
        r = torch.softmax((x @ z.flatten(2)).unflatten(2, (runs, K)), dim=-1) - y
        r *= (clip / (records.length * r.norm(dim=-1, keepdim=True)).clamp_min(1e-30)).clamp_max(1.0)
        g = (x_t @ r.flatten(2)).unflatten(2, (runs, K)) / records.I
        g += 2.0 * BETA / P * z + std * noise.normal_(generator=draw)
        z = (rho * w + lam - g + z / eta) / (rho + 1.0 / eta)
        lam += rho * (w - z)
    w = (z - lam / rho).mean(dim=0)
    scores = (records.test_x @ w.flatten(1)).unflatten(1, (runs, K))
    wrong = (scores.argmax(dim=-1) != records.test_y[:, None]) | ~scores.isfinite().all(dim=-1)
    return [float(v) for v in wrong.double().mean(dim=0)]


def errors(records: Records, points: list[Point], seeds: int, first_seed: int) -> list[list[float]]:
    """For every point its test errors, one for each seed; points of equal T in batches that fit into memory."""
    one = 4.0 * records.K * records.P * (9 * records.J + 6 * records.n)
    size = max(1, int(MEMORY / one))
    found: list[list[float]] = [[] for _ in points]
    for T in sorted({point.rounds for point in points}):
        tasks = [i for _ in range(seeds) for i, point in enumerate(points) if point.rounds == T]
        for at in range(0, len(tasks), size):
            batch = tasks[at : at + size]
            for i, error in zip(batch, train(records, [points[i] for i in batch], first_seed + at), strict=True):
                found[i].append(error)
    return found


def measure(packed: dict[str, Any], device: str) -> dict[str, Any]:
    """Rule, grid, and the grid's best point again, for every budget; the ladder."""
    records = Records(packed, device)
    plans = _points(packed["plans"])
    each = 1 + len(ROUNDS)
    rules = plans[::each]
    places = [(T, c, e, q) for T in ROUNDS for c, e, q in product(FACTORS, FACTORS, FACTORS)]
    points = [
        base._replace(clip=c * base.clip, eta=e * base.eta, rho=q * base.rho)
        for b in range(len(BUDGETS))
        for T, c, e, q in places
        for base in [plans[b * each + 1 + ROUNDS.index(T)]]
    ]
    by_rule = errors(records, rules, RULE_SEEDS, 1)
    means = [float(np.mean(these)) for these in errors(records, points, GRID_SEEDS, 1000)]
    columns = [means[b * len(places) : (b + 1) * len(places)] for b in range(len(BUDGETS))]
    best = [int(np.argmin(column)) for column in columns]
    again = errors(records, [points[b * len(places) + i] for b, i in enumerate(best)], RULE_SEEDS, 2000)
    result: dict[str, Any] = {"records": records.I, "agents": records.P, "features": records.J, "outputs": records.K}
    for b, budget in enumerate(BUDGETS):
        rule, fresh = float(np.mean(by_rule[b])), float(np.mean(again[b]))
        result[str(budget)] = {
            "rule": {"mean": round(rule, 5), "min": round(min(by_rule[b]), 5), "max": round(max(by_rule[b]), 5)},
            "rule_at": _rounded(rules[b]),
            "grid_best": round(columns[b][best[b]], 5),
            "grid_best_at": dict(zip(("rounds", "clip_x", "eta_x", "rho_x"), places[best[b]], strict=True)),
            "difference": round(rule - columns[b][best[b]], 5),
            "grid_best_again": round(fresh, 5),
            "difference_again": round(rule - fresh, 5),
            "grid_median": round(float(np.median(columns[b])), 5),
            "grid_worst": round(max(columns[b]), 5),
        }
    rungs = _points(packed["ladder"])
    result["ladder"] = [
        {"total_epsilon": budget, "mean": round(float(np.mean(these)), 5), **_rounded(rung)}
        for budget, rung, these in zip(LADDER, rungs, errors(records, rungs, LADDER_SEEDS, 3000), strict=True)
    ]
    return result


def _points(rows: Any) -> list[Point]:
    return [Point(int(row[0]), *(float(v) for v in row[1:])) for row in rows]


def _rounded(point: Point) -> dict[str, float]:
    return {"rounds": point.rounds} | {k: float(f"{v:.4g}") for k, v in point._asdict().items() if k != "rounds"}


def main() -> None:
    """Pack, measure, or both."""
    parser = arguments(__doc__, "planner_grid")
    parser.add_argument("--pack", type=Path, help="write data and plans to this file, and stop")
    parser.add_argument("--packed", type=Path, help="read them from it")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    if args.packed:
        stored = np.load(args.packed)
        packed = {n: {k.split("/")[1]: stored[k] for k in stored.files if k.startswith(f"{n}/")} for n in args.data}
    else:
        packed = {name: pack(name) for name in args.data}
    if args.pack:
        np.savez_compressed(args.pack, **{f"{n}/{key}": v for n, found in packed.items() for key, v in found.items()})
        return
    result: dict[str, Any] = {
        "what": "certified objp, softmax, delta 1e-6, add-remove; test error, second implementation (torch, float32)",
        "seeds": {"rule": RULE_SEEDS, "grid": GRID_SEEDS, "grid_best_again": RULE_SEEDS, "ladder": LADDER_SEEDS},
        "grid": "rounds 50, 100, 300; C, eta and rho of the planner for those rounds, each times 0.3, 1 and 3",
    }
    for name, found in packed.items():
        began = time.perf_counter()
        result[name] = measure(found, args.device)
        print(name, json.dumps(result[name], indent=1), round(time.perf_counter() - began, 1), "s", flush=True)
        write_results(args.out, result)


if __name__ == "__main__":
    main()
