"""Which changes improve the frontier: one change at a time, at equal total privacy, in plain torch.

    taciturn bench raising [--device cuda] [--seeds 5] [--out FILE]
    taciturn bench raising --draw       # only the picture, from the results

MNIST, 10 agents with their own noise, delta 1e-6. Every trial uses the planner's clip, path and rounds, which do not
depend on MNIST's test records; none is tuned. The training is written a second time here, and shares only the feature
maps with Taciturn. Writes benchmarks/results/raising.json.

Takes minutes on a GPU, and hours on two cores.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.program import DOCS, arguments, read_results, write_results

from taciturn.data import DataOptions, load
from taciturn.data.feature_maps import InputShape, build_map
from taciturn.data.feature_maps.feature_map import unit_rows
from taciturn.data.feature_maps.images import as_bytes, gaussian, grid
from taciturn.data.feature_maps.scattering import Scattering

BUDGETS, DELTA = (0.5, 1.0, 3.0, 8.0), 1e-6
AGENTS, CLASSES, ROUNDS = 10, 10, 300
CLIP, NOISE_IN_A_SCORE, LARGEST_STEP = 0.075, 2.0, 500.0 / 3.0  # the planner's, for records of length 1
MEAN_SHARE = 0.02  # of the budget, in zCDP, for a mean with noise
ROWS = 15_000  # at a time
FALLS = ((0.2, ""), (1.0, ", steps that fall all the time"))
PICTURE = DOCS / "images" / "raising.png"


class Digits(NamedTuple):
    """Features and labels on the device; the last 10,000 are for testing."""

    x: torch.Tensor  # [70000, J]
    y: torch.Tensor  # [70000]
    test: int = 10_000


class Trial(NamedTuple):
    """One way of going down the same path."""

    falls: float = 0.2  # the last share of the rounds over which steps fall linearly to 0; 0.2 is the planner's
    average: float = 0.0  # the model is the mean over this last share of the rounds
    louder_late: bool = False  # noise by round so that what the steps collect of it is least
    correlation: float = 0.0  # beta: noise xi_t - beta xi_{t-1}
    method: str = "gd"  # or objp, objw
    budget_left: float = 1.0  # in zCDP, after a mean with noise


def release_noise(epsilon: float) -> float:
    """sigma_1: the multiplier of one Gaussian release that is (epsilon, delta), by its exact formula."""

    def delta(mu: float) -> float:
        a, b = epsilon / mu - mu / 2.0, epsilon / mu + mu / 2.0
        return 0.5 * math.erfc(a / math.sqrt(2.0)) - math.exp(epsilon) * 0.5 * math.erfc(b / math.sqrt(2.0))

    low, high = 1e-6, 100.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if delta(middle) < DELTA else (low, middle)
    return 1.0 / low


def train(digits: Digits, epsilon: float, trial: Trial, trust: str, seeds: int) -> list[float]:
    """Test errors in percent, one for each seed."""
    x, n = digits.x, len(digits.y) - digits.test
    device, width = x.device, x.shape[1]
    rng = torch.Generator(device=device)
    rng.manual_seed(1)
    sigma = release_noise(epsilon) / math.sqrt(trial.budget_left)
    felt = math.sqrt(AGENTS) if trust == "agents" else math.sqrt(AGENTS / (AGENTS - 1))
    path = min(NOISE_IN_A_SCORE * n / (felt * sigma), LARGEST_STEP * ROUNDS)  # sum of the steps, in units of 1 / C
    onehot = torch.nn.functional.one_hot(digits.y[:n], CLASSES).to(x.dtype)
    lengths = x[:n].norm(dim=1)
    left = torch.arange(ROUNDS, 0, -1, dtype=torch.float64) / ROUNDS
    shape_of_steps = torch.clamp(left / trial.falls, max=1.0) if trial.falls else torch.ones_like(left)
    steps = path * shape_of_steps / shape_of_steps.sum()
    multipliers = (
        sigma * math.sqrt(ROUNDS) * (torch.sqrt(steps.mean() / steps) if trial.louder_late else torch.ones(ROUNDS))
    )
    multipliers *= math.sqrt(float((1.0 / multipliers**2).sum())) * sigma  # together one release of sigma, exactly
    beta = trial.correlation
    powers = torch.tensor([sum(abs(beta) ** k for k in range(t + 1)) for t in range(ROUNDS)])
    stretch = float(powers.norm()) / math.sqrt(
        ROUNDS
    )  # || |C| 1 || over sqrt(T), C the inverse of (xi -> xi_t - beta xi_{t-1})

    def gradient(w: torch.Tensor, rows: slice) -> torch.Tensor:
        """Mean clipped gradient in units of C, w [J, R, K]."""
        total = torch.zeros(width, w.shape[1] * CLASSES, device=device)
        for start in range(rows.start, rows.stop, ROWS):
            some = slice(start, min(start + ROWS, rows.stop))
            scores = (x[some] @ w.reshape(width, -1)).reshape(-1, w.shape[1], CLASSES)
            residual = torch.softmax(scores, -1) - onehot[some][:, None]
            longest = (lengths[some][:, None] * residual.norm(dim=-1)).clamp_min(CLIP)
            total += x[some].T @ (residual / longest[..., None]).reshape(len(scores), -1)
        return total.reshape(w.shape) / n

    def noise(t: int, share: float) -> torch.Tensor:
        return share * float(multipliers[t]) / n * stretch * torch.randn(shape, device=device, generator=rng)

    shape = (width, seeds, CLASSES)
    w = torch.zeros(shape, device=device)
    kept, count, before = torch.zeros_like(w), 0, torch.zeros_like(w)
    z, lam = [w.clone() for _ in range(AGENTS)], [w.clone() for _ in range(AGENTS)]
    ends = [n * p // AGENTS for p in range(AGENTS + 1)]
    for t in range(ROUNDS):
        step = float(steps[t])
        if trial.method == "gd":
            fresh = noise(t, felt)
            w = w - step * (gradient(w, slice(0, n)) + fresh - beta * before)
            before = fresh
        else:
            rho = 0.5 / (AGENTS * float(steps[0]))  # half of the first 1 / step, the other half is 1 / eta
            eta = 1.0 / (1.0 / (AGENTS * step) - rho) if AGENTS * step * rho < 1.0 else math.inf
            w = (sum(z) - sum(lam) / rho) / AGENTS
            for p in range(AGENTS):
                at = z[p] if trial.method == "objp" else w
                g = gradient(at, slice(ends[p], ends[p + 1])) + noise(t, felt / math.sqrt(AGENTS))
                z[p] = (rho * w + lam[p] + z[p] / eta - g) / (rho + 1.0 / eta)
                lam[p] = lam[p] + rho * (w - z[p])
        if trial.average and t >= (1.0 - trial.average) * ROUNDS:
            kept, count = kept + w, count + 1
    model = kept / count if trial.average else w if trial.method == "gd" else (sum(z) - sum(lam) / rho) / AGENTS
    found = (x[n:] @ model.reshape(width, -1)).reshape(-1, seeds, CLASSES).argmax(-1)
    wrong: list[float] = (100.0 * (found != digits.y[n:, None]).double().mean(0)).tolist()
    return wrong


def unit(x: torch.Tensor) -> torch.Tensor:
    """Records of length 1."""
    return x / x.norm(dim=1, keepdim=True).clamp_min(1e-9)


def with_noisy_mean(x: torch.Tensor, train_records: int, epsilon: float) -> torch.Tensor:
    """Records less a mean that every agent released with noise, for MEAN_SHARE of the budget."""
    rng = torch.Generator(device=x.device)
    rng.manual_seed(2)
    sigma = release_noise(epsilon) / math.sqrt(MEAN_SHARE) * math.sqrt(AGENTS) / train_records
    drawn = torch.randn(x.shape[1], device=x.device, generator=rng)
    return unit(x - (x[:train_records].mean(0) + sigma * drawn))


def measured(digits: Digits, trial: Trial, seeds: int, trust: str = "agents", mean: bool = False) -> dict[str, Any]:
    """Mean, lowest and highest test error by budget."""
    rows: dict[str, Any] = {}
    for epsilon in BUDGETS:
        own = digits._replace(x=with_noisy_mean(digits.x, len(digits.y) - digits.test, epsilon)) if mean else digits
        errors = train(own, epsilon, trial, trust, seeds)
        rows[f"{epsilon:g}"] = {"mean": float(np.mean(errors)), "low": min(errors), "high": max(errors)}
    return rows


def draw(found: dict[str, Any], epsilon: str = "1") -> None:
    """Every trial at one budget: features on the left, ways of training on scattering's on the right."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from taciturn.reporting.figures.style import COLOURS, STYLE, heading, save

    groups = {
        "Features": [name for name in found if not name.startswith("scattering, ")],
        "Ways of training, on scattering": [name for name in found if name.startswith("scattering")],
    }
    with rc_context(STYLE):
        sizes = [len(names) for names in groups.values()]
        figure = Figure(figsize=(8.0, 1.6 + 0.24 * sum(sizes)), layout="constrained")
        panels = figure.subplots(2, 1, height_ratios=sizes)
        for axes, (title, names), colour in zip(panels, groups.items(), COLOURS, strict=False):
            rows = [found[name][epsilon] for name in names]
            means, places = [row["mean"] for row in rows], range(len(rows))
            reach = [[row["mean"] - row["low"] for row in rows], [row["high"] - row["mean"] for row in rows]]
            axes.errorbar(means, places, xerr=reach, fmt="o", color=colour, ms=4, lw=1)
            axes.set_yticks(places, [name.removeprefix("scattering, ") for name in names])
            axes.invert_yaxis()
            axes.set_xlim(left=0.0)
            axes.set_xlabel("test error in %: mean, lowest and highest of the seeds")
            heading(axes, f"{title} (MNIST, total ε = {epsilon})")
        save(figure, PICTURE)


def main() -> None:
    """All trials."""
    parser = arguments(__doc__, "raising")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--draw", action="store_true", help="only the picture, from the figures that are there")
    options = parser.parse_args()
    if options.draw:
        draw(read_results(options.out)["test_error_percent"])
        return
    data = load(DataOptions("mnist", precision="float32"))
    assert data.test is not None
    shards = (*data.train, data.test)
    pixels = np.concatenate([shard.x for shard in shards])
    y = torch.tensor(np.concatenate([shard.y for shard in shards]).argmax(1), device=options.device)
    raw = InputShape(784, (28, 28))
    smooth = as_bytes(pixels) @ gaussian(grid(28, 28), grid(28, 28), 1.0).astype(np.float32)

    def on_device(x: np.ndarray) -> Digits:
        return Digits(torch.tensor(np.asarray(x, np.float32), device=options.device), y)

    images = {
        "unit": on_device(pixels)._replace(x=unit(on_device(pixels).x)),
        "smooth": on_device(smooth)._replace(x=unit(on_device(smooth).x)),
        **{name: on_device(build_map(name, raw)(pixels)) for name in ("pixels", "fourier", "scattering")},
    }
    scattering = build_map("scattering", raw)
    assert isinstance(scattering, Scattering)
    channels = (unit_rows(scattering.deviations(pixels[i : i + ROWS])) for i in range(0, len(pixels), ROWS))
    images["channels"] = on_device(np.concatenate([rows.astype(np.float32) for rows in channels]))
    plain, sums = Trial(), partial(measured, trust="secure-sum")
    charged = Trial(budget_left=1.0 - MEAN_SHARE)
    trials: dict[str, Callable[[], dict[str, Any]]] = {
        "pixels of length 1": lambda: measured(images["unit"], plain, options.seeds),
        "pixels, centred by a mean with noise": lambda: measured(images["unit"], charged, options.seeds, mean=True),
        "pixels, smoothed": lambda: measured(images["smooth"], plain, options.seeds),
        "pixels, smoothed, centred by a mean with noise": lambda: measured(
            images["smooth"], charged, options.seeds, mean=True
        ),
        "pixels, smoothed, centred on strokes (map pixels)": lambda: measured(images["pixels"], plain, options.seeds),
        "random Fourier features (map fourier)": lambda: measured(images["fourier"], plain, options.seeds),
        "wavelets, not whitened": lambda: measured(images["channels"], plain, options.seeds),
        "scattering (gradient descent)": lambda: measured(images["scattering"], plain, options.seeds),
    }
    base = images["scattering"]
    ways = {
        "steps all alike": Trial(falls=0.0),
        "steps that fall all the time": Trial(falls=1.0),
        "steps that fall all the time, noise that grows": Trial(falls=1.0, louder_late=True),
        "steps all alike, mean of the last half": Trial(falls=0.0, average=0.5),
        "steps all alike, mean of all rounds": Trial(falls=0.0, average=1.0),
        **{f"correlated noise, beta {beta:g}": Trial(correlation=beta) for beta in (0.5, 0.9)},
        **{f"{method}{words}": Trial(falls, method=method) for method in ("objp", "objw") for falls, words in FALLS},
    }
    trials |= {f"scattering, {name}": partial(measured, base, way, options.seeds) for name, way in ways.items()}
    trials["scattering, centred by a mean with noise besides"] = lambda: measured(
        base, charged, options.seeds, mean=True
    )
    for falls, words in FALLS:
        trials[f"scattering, secure sum{words}"] = partial(sums, base, Trial(falls), options.seeds)
        trials[f"scattering, secure sum, objw{words}"] = partial(sums, base, Trial(falls, method="objw"), options.seeds)
    where = torch.cuda.get_device_name() if options.device.startswith("cuda") else "cpu"
    about = {
        "data": "mnist",
        "agents": AGENTS,
        "delta": DELTA,
        "rounds": ROUNDS,
        "seeds": options.seeds,
        "device": where,
    }
    found: dict[str, Any] = {}
    for name, one in trials.items():
        start = time.perf_counter()
        found[name] = one()
        said = "  ".join(f"{epsilon}: {row['mean']:.2f}" for epsilon, row in found[name].items())
        print(f"{name:60s} {said}  ({time.perf_counter() - start:.0f} s)", flush=True)
        write_results(options.out, {"about": about, "test_error_percent": found})


if __name__ == "__main__":
    main()
