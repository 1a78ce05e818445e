"""Alternative recipes for private models of tables, compared with Taciturn's at equal privacy.

    TACITURN_DATA=DIR taciturn bench table-recipes [--splits 20] [--tables adult,heart]

Every recipe is a plain reading in torch of `taciturn.algorithms.additive` with one change; "additive" is what Taciturn
does. The noise is Gaussian, calibrated in closed form to ε = 1 and 3 with δ = 1e-6. Ten parties (heart: four) add it
ten times. Recipes marked "oracle" choose something on the training records without paying for it, so that
they show the most that a charged choice could reach.

Writes benchmarks/results/table_recipes.json and prints its lines.
Takes minutes on a GPU and an hour on a CPU.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
import torch
from benchmarks.program import arguments, write_results
from benchmarks.tables.splits import TABLES, TableSource
from torch import Tensor

from taciturn.data.feature_maps.bins import KNOTS
from taciturn.data.schema import Categorical
from taciturn.types import Classes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DELTA, EPSILONS = 1e-6, (1.0, 3.0)
GROUPS = 6  # levels of an ordered column in a pair


@dataclass(frozen=True)
class Recipe:
    """The constants of the planner and of `additive`, and what a recipe does differently."""

    about: str
    rounds: int = 100
    counting: int = 5
    momentum: float = 0.9
    kappa: float = 0.57 * math.sqrt(2.0)  # of one log-odds score instead of two
    knots: str = "bins"
    smoothness: float = 1.0  # the power of the singular values of an ordered column's coordinates
    shrinkage: float = 0.0  # of every column towards 0, over its expected noise
    products: int = 0  # random products of two columns
    pairs: int = 0  # oracle: the pairs with the largest residuals
    reweighted: int = 0  # rounds after which columns are weighted by their noisy gradients
    newton: float = 0.0  # share of the budget for a noisy Gram matrix, which preconditions the gradients
    statistics: bool = False  # squared loss: one release of the Gram matrix and the products with y, oracle ridge


RECIPES = {
    "additive": Recipe("as shipped"),
    "200 rounds": Recipe("twice the rounds", rounds=200, counting=10),
    "finer knots": Recipe("129 even knots and more near the ends", knots="finer"),
    "smoother curves": Recipe("singular values of a column's coordinates to the power 1.5", smoothness=1.5),
    "shrunk columns": Recipe("James-Stein shrinkage of each column", shrinkage=0.5),
    "column weights": Recipe("columns weighted by their noisy gradients after 8 rounds", reweighted=8),
    "random products": Recipe("600 random products of two columns, a fifth of the squared norm", products=600),
    "best pair": Recipe("oracle: the pair with the largest residuals", pairs=1),
    "best 3 pairs": Recipe("oracle: the three pairs with the largest residuals", pairs=3),
    "noisy Gram matrix": Recipe("a tenth of the budget for a Gram matrix, then 25 Newton-like rounds",
                                newton=0.1, rounds=25, counting=2, momentum=0.0),
    "sufficient statistics": Recipe("squared loss: Gram matrix and X'y in one release, oracle ridge", statistics=True),
}  # fmt: skip


def gaussian_mu(epsilon: float) -> float:
    """Return mu of the Gaussian mechanism that is exactly (epsilon, DELTA), by bisection."""

    def normal(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2.0))

    low, high = 1e-3, 20.0
    for _ in range(100):
        mu = (low + high) / 2
        delta = normal(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal(-mu / 2 - epsilon / mu)
        low, high = (low, mu) if delta > DELTA else (mu, high)
    return low


@dataclass(frozen=True)
class Block:
    """The levels of one column: [n, width], the last of which is "missing" where there is one."""

    ordered: bool
    missing: bool
    levels: Tensor


@dataclass(frozen=True)
class Records:
    """A table: its columns' levels and its labels, 0 or 1, or scaled to [0, 1]."""

    name: str
    parties: int
    blocks: tuple[Block, ...]
    y: Tensor
    unit: float  # of a label of 1; 0 for classes

    @property
    def bounded(self) -> bool:
        """Whether it is a classification, whose residuals are bounded."""
        return self.unit == 0.0


def load(source: TableSource, knots: str) -> Records:
    """Return a table of the benchmark, encoded."""
    grid = KNOTS
    if knots == "finer":
        grid = np.unique(
            np.concatenate([np.arange(129) / 128, 2.0 ** -(np.arange(14, 34) / 2), 1 - 2.0 ** -np.arange(7, 11)])
        )
    blocks = []
    for column in source.schema.columns:
        cells = [row[column.name] for row in source.rows]
        if isinstance(column, Categorical):
            names = list(column.categories)
            index = np.array([names.index(cell) if cell in names else len(names) for cell in cells])
            levels = np.eye(len(names) + 1)[index][:, : len(names) + int((index == len(names)).any())]
            blocks.append(Block(False, False, torch.tensor(levels, dtype=torch.float64, device=DEVICE)))
            continue
        values = np.array([float(cell) if cell else np.nan for cell in cells])
        absent = np.isnan(values)
        u = np.clip((np.where(absent, column.low, values) - column.low) / (column.high - column.low), 0, 1)
        left = np.clip(np.searchsorted(grid, u, side="right") - 1, 0, len(grid) - 2)
        share = (u - grid[left]) / (grid[left + 1] - grid[left])
        levels = np.zeros((len(u), len(grid) + int(absent.any())))
        levels[np.arange(len(u)), left], levels[np.arange(len(u)), left + 1] = 1 - share, share
        if absent.any():
            levels[absent] = 0.0
            levels[absent, -1] = 1.0
        blocks.append(Block(True, bool(absent.any()), torch.tensor(levels, dtype=torch.float64, device=DEVICE)))
    labels, target = [row[source.schema.label] for row in source.rows], source.schema.target
    if isinstance(target, Classes):
        y, unit = [float(target.names.index(label)) for label in labels], 0.0
    else:
        y, unit = [float(label) / target.high for label in labels], target.high
    return Records(
        source.name, source.parties, tuple(blocks), torch.tensor(y, dtype=torch.float64, device=DEVICE), unit
    )


def distribution(frequencies: Tensor) -> Tensor:
    """Return noisy frequencies as probabilities, none of which is 0."""
    positive = frequencies.clamp(0.0, 1.0)
    shares = positive / positive.sum() if positive.sum() > 0 else torch.full_like(positive, 1 / len(positive))
    return 0.98 * shares + 0.02 / len(shares)


def ordered_part(own: Tensor, missing: bool, smoothness: float) -> Tensor:
    """Return the cumulative coordinates of an ordered column's levels, with steps at its quantiles."""
    count = len(own) - missing
    shares = own[:count] / own[:count].sum()
    below = torch.cumsum(shares, 0)[:-1]
    steps = torch.unique(torch.searchsorted(below, (torch.arange(64, device=DEVICE) + 0.5) / 64))
    steps = steps[steps < count - 1]
    weights = torch.full((count - 1,), (0.1 if len(steps) else 1.0) / (count - 1), dtype=own.dtype, device=DEVICE)
    weights[steps] += 0.9 / max(1, len(steps))
    above = torch.arange(count, device=DEVICE)[:, None] > torch.arange(count - 1, device=DEVICE)
    cumulative = 2.0 * weights.sqrt() * (above.to(own.dtype) - (1.0 - below))
    if smoothness != 1.0:
        root = shares.sqrt()[:, None]
        left, values, _ = torch.linalg.svd(root * cumulative, full_matrices=False)
        powers = values**smoothness
        cumulative = (left * powers * ((values**2).sum() / (powers**2).sum()).sqrt() / root).clamp(-3, 3)
    part = torch.zeros(len(own), len(own), dtype=own.dtype, device=DEVICE)
    part[:count, : cumulative.shape[1]] = cumulative
    if missing:
        part[:, -1] = -own[-1]
        part[-1, -1] += 1.0
    return 1.5 * part


class Coding:
    """The coordinates that noisy frequencies give: records have norm 1 on average."""

    def __init__(
        self, records: Records, frequencies: list[Tensor], recipe: Recipe, weights: Tensor | None = None
    ) -> None:
        """Compute the recoding of every column."""
        self.records, parts, total = records, [], 0.0
        for i, (block, noisy) in enumerate(zip(records.blocks, frequencies, strict=True)):
            own = distribution(noisy)
            eye = torch.eye(len(own), dtype=own.dtype, device=DEVICE)
            part = ordered_part(own, block.missing, recipe.smoothness) if block.ordered else eye - own
            part = part * (1.0 if weights is None else weights[i])
            total += float(own @ (part**2).sum(1))
            parts.append(part)
        constant = 0.7 * math.sqrt(total / len(parts))
        self.scale = 1.0 / math.sqrt(total + constant**2)
        self.parts = [(self.scale * part).clamp(-1.0, 1.0) for part in parts]
        self.constant = min(1.0, self.scale * constant)

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the coordinates of some records."""
        found = [block.levels[rows] @ part for block, part in zip(self.records.blocks, self.parts, strict=True)]
        return torch.cat([*found, torch.full((len(rows), 1), self.constant, dtype=torch.float64, device=DEVICE)], 1)


@dataclass(frozen=True)
class Budget:
    """The noise of a training: mu, and how often it is added."""

    mu: float
    parties: int

    def deviation(self, releases: int, share: float = 1.0) -> float:
        """Return the standard deviation in a sum of records of norm 1, of each of several releases."""
        return math.sqrt(self.parties * releases / share) / self.mu


@dataclass(frozen=True)
class Training:
    """One training: records for training and testing, the recipe, the budget and the noise's generator."""

    records: Records
    train: Tensor
    test: Tensor
    recipe: Recipe
    budget: Budget
    generator: torch.Generator

    def noise(self, *shape: int) -> Tensor:
        """Return standard normal numbers."""
        return torch.randn(*shape, dtype=torch.float64, device=DEVICE, generator=self.generator)

    def frequencies(self, share: float) -> list[Tensor]:
        """Release the frequencies of all levels in the counting rounds."""
        recipe, blocks, n = self.recipe, self.records.blocks, len(self.train)
        deviation = self.budget.deviation(recipe.rounds, share) / math.sqrt(recipe.counting)
        deviation *= math.sqrt(2 * len(blocks)) / n
        return [b.levels[self.train].mean(0) + deviation * self.noise(b.levels.shape[1]) for b in blocks]

    def run(self) -> float:
        """Train, and return the metric on the test records."""
        if self.recipe.statistics:
            return self.solve_statistics()
        share = 1.0 - self.recipe.newton
        frequencies = self.frequencies(share)
        coding = Coding(self.records, frequencies, self.recipe)
        x, x_test = coding(self.train), coding(self.test)
        if self.recipe.products:
            x, x_test = (
                self.with_products(x, frequencies, self.train),
                self.with_products(x_test, frequencies, self.test),
            )
        clip, step = self.clip_and_step(share)
        deviation = clip * self.budget.deviation(self.recipe.rounds, share) / len(x)
        solve = self.preconditioner(x) if self.recipe.newton else None
        w, before = torch.zeros(x.shape[1], dtype=torch.float64, device=DEVICE), None
        first, gradients, widths = self.recipe.counting + 1, 0.0, [len(part) for part in coding.parts]
        for t in range(first, self.recipe.rounds + 1):
            if self.recipe.pairs and t == first + 30:
                x, x_test, w, before = self.with_pairs(x, x_test, w, before, frequencies)
            if self.recipe.reweighted and t == first + self.recipe.reweighted:
                weights = column_weights(
                    gradients / self.recipe.reweighted, widths, deviation**2 / self.recipe.reweighted
                )
                new = Coding(self.records, frequencies, self.recipe, weights)
                change = [coding.scale / (new.scale * float(weight)) for weight in weights] + [
                    coding.constant / new.constant
                ]
                factors = torch.repeat_interleave(
                    torch.tensor(change, device=DEVICE), torch.tensor([*widths, 1], device=DEVICE)
                )
                coding, w, before = new, w * factors, before * factors
                x, x_test = coding(self.train), coding(self.test)
            gradient = self.clipped_gradient(x, w, clip) + deviation * self.noise(len(w))
            gradients = gradients + gradient if t < first + self.recipe.reweighted else gradients
            fall = min(1.0, (1 - (t - 1) / self.recipe.rounds) / min(1.0, 60 / self.recipe.rounds))
            move = fall * (solve(gradient) if solve else step * gradient)
            w, before = w - move + (self.recipe.momentum * (w - before) if before is not None else 0.0), w
        if self.recipe.shrinkage:
            w = self.shrunk(w, widths, step, deviation)
        return self.metric(x_test @ w)

    def clip_and_step(self, share: float) -> tuple[float, float]:
        """Return the planner's clip and step."""
        recipe, n = self.recipe, len(self.train)
        noise = self.budget.deviation(1, share) / n
        training = recipe.rounds - recipe.counting
        mean, kappa = 1 - min(1.0, 60 / training) / 2, recipe.kappa if self.records.bounded else 0.2
        clip = min(1.0, 0.15 * noise**-0.2) if self.records.bounded else min(0.5, 0.003 / math.sqrt(noise))
        stable = 2.4 / (0.25 if self.records.bounded else 1.0)
        return clip, min(kappa * (1 - recipe.momentum) / (clip * noise * training * mean), stable)

    def residuals(self, scores: Tensor) -> Tensor:
        """Return the residuals of the training records."""
        return (torch.sigmoid(scores) if self.records.bounded else scores) - self.records.y[self.train]

    def clipped_gradient(self, x: Tensor, w: Tensor, clip: float) -> Tensor:
        """Return the mean of the clipped gradients."""
        r = self.residuals(x @ w)
        return x.T @ (r * torch.clamp(clip / (x.norm(dim=1) * r.abs() + 1e-12), max=1.0)) / len(x)

    def metric(self, scores: Tensor) -> float:
        """Return the area under the ROC curve, or the root mean squared error in the label's unit."""
        y = self.records.y[self.test]
        if not self.records.bounded:
            return float(((scores.clamp(0, 1) - y) ** 2).mean().sqrt()) * self.records.unit
        ranks = torch.empty_like(scores)
        ranks[torch.argsort(scores)] = torch.arange(1, len(y) + 1, dtype=scores.dtype, device=DEVICE)
        positive = float(y.sum())
        return (float(ranks[y > 0].sum()) - positive * (positive + 1) / 2) / (positive * (len(y) - positive))

    def shrunk(self, w: Tensor, widths: list[int], step: float, deviation: float) -> Tensor:
        """Shrink every column by the noise of its coefficients, that of a random walk."""
        beta, rounds = self.recipe.momentum, self.recipe.rounds
        steps = [step * min(1.0, (1 - (t - 1) / rounds) / 0.6) for t in range(self.recipe.counting + 1, rounds + 1)]
        gains = [(1 - beta ** (len(steps) - i)) / (1 - beta) for i in range(len(steps))]
        variance = sum((s * g * deviation) ** 2 for s, g in zip(steps, gains, strict=True))
        parts = torch.split(w, [*widths, 1])
        kept = [p * max(0.0, 1 - self.recipe.shrinkage * variance * len(p) / float((p**2).sum())) for p in parts[:-1]]
        return torch.cat([*kept, parts[-1]])

    def preconditioner(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a Newton-like step from a noisy Gram matrix of the records, shortened to norm 1."""
        short = x / x.norm(dim=1, keepdim=True).clamp(min=1.0)
        deviation = self.budget.deviation(1, self.recipe.newton) / len(x)
        gram = short.T @ short / len(x) + symmetric(self.noise(x.shape[1], x.shape[1])) * deviation
        values, vectors = torch.linalg.eigh(gram)
        floor = max(2.0 * deviation * math.sqrt(x.shape[1]), 1e-3)
        curvature = 0.15 if self.records.bounded else 1.0
        return lambda gradient: vectors @ ((vectors.T @ gradient) / (curvature * values.clamp(min=floor))) * 0.5

    def solve_statistics(self) -> float:
        """Release the Gram matrix and X'y at once, and solve with the ridge that is best on the test records."""
        if self.records.bounded:
            return math.nan
        coding = Coding(self.records, self.frequencies(0.5), self.recipe)
        x, x_test = coding(self.train), coding(self.test)
        short = x / x.norm(dim=1, keepdim=True).clamp(min=1.0)
        deviation = self.budget.deviation(2, 0.5)  # half of the rest for each
        gram = short.T @ short + deviation * symmetric(self.noise(x.shape[1], x.shape[1]))
        products = short.T @ self.records.y[self.train] + deviation * self.noise(x.shape[1])
        values, vectors = torch.linalg.eigh(gram)
        ridges = [deviation * math.sqrt(x.shape[1]) * 2.0**k for k in range(-6, 5)]
        found = [vectors @ ((vectors.T @ products) / (values.clamp(min=0.0) + ridge)) for ridge in ridges]
        return min(self.metric(x_test @ w) for w in found)

    def with_products(self, x: Tensor, frequencies: list[Tensor], rows: Tensor) -> Tensor:
        """Add random products of two centred columns: above a quantile, or in a random half of the categories."""
        draws, sides = np.random.default_rng(5), []
        for block, noisy in zip(self.records.blocks, frequencies, strict=True):
            own = distribution(noisy)
            if block.ordered:
                count = len(own) - block.missing
                below = torch.cumsum(own[:count] / own[:count].sum(), 0)[:-1]
                cuts = torch.searchsorted(below, (torch.arange(8, device=DEVICE) + 0.5) / 8).clamp(max=count - 2)
                chosen = (torch.arange(len(own), device=DEVICE)[:, None] > cuts).to(own.dtype)
            else:
                chosen = torch.tensor(draws.integers(0, 2, (len(own), 8)), dtype=own.dtype, device=DEVICE)
            sides.append(block.levels[rows] @ (chosen - own @ chosen))
        pairs = [
            (*draws.choice(len(sides), 2, replace=False), *draws.integers(8, size=2))
            for _ in range(self.recipe.products)
        ]
        added = torch.stack([sides[a][:, i] * sides[b][:, j] for a, b, i, j in pairs], 1)
        return torch.cat([math.sqrt(0.8) * x, math.sqrt(0.2) * added / (0.25 * math.sqrt(len(pairs)))], 1)

    def with_pairs(
        self, x: Tensor, x_test: Tensor, w: Tensor, before: Tensor, frequencies: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Add the pairs of columns whose cells have the largest residuals of the model without noise."""
        r = self.residuals(x @ self.optimum(x))
        groups = [coarse(b, distribution(f)) for b, f in zip(self.records.blocks, frequencies, strict=True)]
        train = [b.levels[self.train] @ g for b, g in zip(self.records.blocks, groups, strict=True)]
        test = [b.levels[self.test] @ g for b, g in zip(self.records.blocks, groups, strict=True)]
        energy = {}
        for a in range(len(train)):
            for b in range(a):
                g = (train[a] * r[:, None]).T @ train[b]
                g = g - g.mean(0) - g.mean(1)[:, None] + g.mean()
                energy[a, b] = float((g**2 / (torch.outer(train[a].sum(0), train[b].sum(0)) / len(x) + 25)).sum())
        best = sorted(energy, key=lambda pair: energy[pair])[-self.recipe.pairs :]
        share = 0.1 + 0.05 * self.recipe.pairs
        sides = [centred(own, own, b.ordered) for own, b in zip(train, self.records.blocks, strict=True)]
        others = [centred(own, ref, b.ordered) for own, ref, b in zip(test, train, self.records.blocks, strict=True)]
        added, added_test = (
            torch.cat([(s[a][:, :, None] * s[b][:, None, :]).flatten(1) for a, b in best], 1) for s in (sides, others)
        )
        scale = math.sqrt(share) / float((added**2).sum(1).mean().sqrt().clamp(min=1e-3))
        rest, zeros = math.sqrt(1 - share), torch.zeros(added.shape[1], dtype=w.dtype, device=DEVICE)
        grown = [torch.cat([rest * old, scale * new], 1) for old, new in ((x, added), (x_test, added_test))]
        return grown[0], grown[1], torch.cat([w / rest, zeros]), torch.cat([before / rest, zeros])

    def optimum(self, x: Tensor) -> Tensor:
        """Return the model without noise, by Newton's method with a small ridge."""
        w, ridge = torch.zeros(x.shape[1], dtype=x.dtype, device=DEVICE), 1e-4
        for _ in range(20 if self.records.bounded else 1):
            scores = x @ w
            p = torch.sigmoid(scores)
            h = (p * (1 - p)).clamp(min=1e-6) if self.records.bounded else torch.ones_like(scores)
            hessian = (x * h[:, None]).T @ x / len(x) + ridge * torch.eye(len(w), dtype=x.dtype, device=DEVICE)
            w = w - torch.linalg.solve(hessian, x.T @ self.residuals(scores) / len(x) + ridge * w)
        return w


def symmetric(noise: Tensor) -> Tensor:
    """Return a symmetric matrix of noise: one draw for each entry on or above the diagonal."""
    upper = torch.triu(noise)
    return upper + torch.triu(noise, 1).T


def column_weights(gradient: Tensor, widths: list[int], variance: float) -> Tensor:
    """Return weights of the columns between 0.6 and above, by the norms of their gradients less their noise."""
    parts = torch.split(gradient[: sum(widths)], widths)
    norms = torch.stack([((p**2).sum() - variance * len(p)).clamp(min=0.0).sqrt() for p in parts])
    return 0.6 + 0.4 * norms / norms.mean().clamp(min=1e-12)


def coarse(block: Block, own: Tensor) -> Tensor:
    """Return a matrix that joins the levels of an ordered column to a few groups of about equal frequency."""
    if not block.ordered:
        return torch.eye(len(own), dtype=own.dtype, device=DEVICE)
    count = len(own) - block.missing
    shares = own[:count] / own[:count].sum()
    group = ((torch.cumsum(shares, 0) - shares / 2) * GROUPS).long().clamp(0, GROUPS - 1)
    found = torch.zeros(len(own), GROUPS + block.missing, dtype=own.dtype, device=DEVICE)
    found[torch.arange(count, device=DEVICE), group] = 1.0
    if block.missing:
        found[-1, -1] = 1.0
    return found


def centred(own: Tensor, reference: Tensor, ordered: bool) -> Tensor:
    """Return the groups of a column, cumulative if it is ordered, minus their means over the reference."""
    if not ordered:
        return own - reference.mean(0)
    above, mean = (m.flip(1).cumsum(1).flip(1)[:, 1:] for m in (own, reference))
    return 2 * (above - mean.mean(0)) / math.sqrt(above.shape[1])


def splits(count: int, n: int) -> list[tuple[Tensor, Tensor]]:
    """Return random 80/20 splits: training and test rows."""
    draws, found = np.random.default_rng(77), []
    for _ in range(count):
        rows = torch.tensor(draws.permutation(n), device=DEVICE)
        found.append((rows[n // 5 :], rows[: n // 5]))
    return found


def main() -> None:
    """Train every recipe on every table, and write means and standard errors."""
    parser = arguments(__doc__, "table_recipes")
    parser.add_argument("--splits", type=int, default=20, help="number of random splits")
    parser.add_argument("--tables", default=",".join(TABLES), help=f"some of {', '.join(TABLES)}")
    options = parser.parse_args()
    entries: list[dict[str, object]] = []
    for table in options.tables.split(","):
        kinds = {knots: load(TABLES[table], knots) for knots in ("bins", "finer")}
        for name, recipe in RECIPES.items():
            for epsilon in EPSILONS:
                for parties in (1, TABLES[table].parties):
                    records, budget, found = kinds[recipe.knots], Budget(gaussian_mu(epsilon), parties), []
                    for number, (train, test) in enumerate(splits(options.splits, len(kinds["bins"].y))):
                        generator = torch.Generator(device=DEVICE).manual_seed(number)
                        found.append(Training(records, train, test, recipe, budget, generator).run())
                    if math.isfinite(found[0]):
                        entries.append(entry(table, name, epsilon, parties, found))
                        print(json.dumps(entries[-1]), flush=True)
    about = {name: recipe.about for name, recipe in RECIPES.items()}
    head = {"what": "recipes for private models of tables at equal privacy", "delta": DELTA, "splits": options.splits}
    write_results(options.out, head | {"device": DEVICE, "recipes": about, "points": entries})


def entry(table: str, recipe: str, epsilon: float, parties: int, found: list[float]) -> dict[str, object]:
    """Return a line of the results."""
    digits = 0 if TABLES[table].classes is False else 5
    error = stdev(found) / math.sqrt(len(found)) if len(found) > 1 else 0.0
    return {"table": table, "recipe": recipe, "epsilon": epsilon, "parties": parties,
            "mean": round(fmean(found), digits), "error": round(error, digits)}  # fmt: skip


if __name__ == "__main__":
    main()
