"""Draw the pictures of the explanation pages, with the steps that training takes: `python docs/pictures/draw.py`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from taciturn.algorithms.steps import consensus, dual_step, linearised_step
from taciturn.data import DataOptions, load_unmapped
from taciturn.data.feature_maps import InputShape, build_map
from taciturn.data.feature_maps.images import as_bytes
from taciturn.data.feature_maps.scattering import DIRECTIONS, Scattering
from taciturn.objectives import SETS
from taciturn.reporting.figures.style import COLOURS, GREY, STYLE, heading, ink, save
from taciturn.types import Array

BLUE, RED, GREEN, PURPLE = COLOURS[:4]
HOMES = np.array([[-2.0, 0.4], [1.6, 2.0], [1.9, -1.8]])  # where each agent's own data pull
RHO = np.array([[1.0]])
COURSE = 40  # rounds
NOISE = 1.5  # of a gradient: standard deviation


class Round(NamedTuple):
    """The common model of a round, and the agents' models that came back."""

    w: Array  # [2]
    z: Array  # [P, 2]


def rounds(homes: Array, noise: float = 0.0, seed: int = 1) -> list[Round]:
    """Run ADMM with f_p(z) = ||z - home_p||^2 / 2 at agent p: the three steps of training, with eta falling to 0."""
    random = np.random.default_rng(seed)
    everywhere = SETS["all"](1.0)
    z: Array = np.zeros((len(homes), 2, 1, 1))
    lam = z
    found = []
    for t in range(COURSE):
        eta = np.array([[0.3 * (1.0 - t / COURSE)]])
        w = consensus(RHO, z.sum(axis=0), lam.sum(axis=0), len(homes))
        gradients = z - homes[:, :, None, None] + noise * random.standard_normal(z.shape)
        z = linearised_step(everywhere, RHO, eta, w, lam, z, gradients)
        lam = dual_step(lam, RHO, w, z)
        found.append(Round(w[:, 0, 0], z[:, :, 0, 0]))
    return found


def draw_round() -> Figure:
    """Draw the messages of a round."""
    drawn = Figure(figsize=(7.2, 3.9))
    axes = drawn.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, 72), ylim=(0, 39))
    axes.axis("off")
    _box(axes, 21, 29, 30, 9, GREY, "server", "averages what it receives")
    for place, colour in enumerate((BLUE, RED, GREEN, PURPLE)):
        left = 1 + 18 * place
        _box(
            axes,
            left,
            1,
            16,
            13,
            colour,
            f"hospital {place + 1}",
            "records stay here\none training step on\nthem + random noise",
        )
        middle, top = left + 8, 36 + 7 * (place - 1.5)
        _arrow(axes, (top - 1.5, 29), (middle - 1.5, 14), GREY)
        _arrow(axes, (middle + 1.5, 14), (top + 1.5, 29), colour)
    axes.text(1, 24, "the common model\ngoes out", va="center", color=GREY)
    axes.text(71, 24, "a noisy model is\nall that leaves", va="center", ha="right")
    return drawn


def draw_consensus() -> Figure:
    """Draw how the agents reach agreement, round by round."""
    drawn = Figure(figsize=(7.2, 2.1), layout="constrained")
    course = rounds(HOMES)
    panels = drawn.subplots(1, 4)
    for panel, number in zip(panels, (1, 3, 6, COURSE), strict=True):
        at = course[number - 1]
        for home, z, colour in zip(HOMES, at.z, COLOURS, strict=False):
            panel.plot(*np.stack([home, z]).T, color=colour, lw=0.8, ls=":")
            panel.plot(*home, "s", mfc="white", mec=colour, ms=8)
            panel.plot(*z, "o", color=colour, ms=6)
        _goal(panel)
        panel.plot(*at.w, "*", color="black", ms=9, mfc="white")
        heading(panel, f"round {number}")
        _bare(panel)
        panel.set(xlim=(-2.9, 2.9), ylim=(-2.9, 2.9))
    return drawn


def draw_averaging() -> Figure:
    """Draw why one noisy agent is far off and the mean of many is not."""
    drawn = Figure(figsize=(7.2, 3.0), layout="constrained")
    left, right = drawn.subplots(1, 2)
    last = rounds(np.repeat(HOMES, 10, axis=0), NOISE)[4]
    for p, z in enumerate(last.z):
        left.plot(*z, "o", color=COLOURS[p // 10], ms=4, alpha=0.7)
    _goal(left)
    left.plot(*last.w, "*", color="black", ms=12, mfc="white")
    heading(left, "30 noisy models, and their w")
    _bare(left)
    for colour, copies in zip(COLOURS, (1, 10, 100), strict=False):
        runs = [rounds(np.repeat(HOMES, copies, axis=0), NOISE, seed) for seed in range(20)]
        away = np.mean([[np.linalg.norm(at.w - HOMES.mean(axis=0)) for at in run] for run in runs], axis=0)
        right.plot(range(1, COURSE + 1), away, color=colour)
        right.annotate(
            f"{3 * copies} agents",
            (COURSE, away[-1]),
            (4, 0),
            textcoords="offset points",
            va="center",
            color=ink(colour),
        )
    right.set(xlabel="round", xlim=(1, COURSE), ylim=(0, None))
    heading(right, "distance of w from the goal")
    return drawn


def draw_epsilon() -> Figure:
    """Draw how certain an attacker can become."""
    drawn = Figure(figsize=(7.2, 3.0), layout="constrained")
    axes = drawn.subplots()
    epsilon = np.linspace(0.0, 8.0, 200)
    for colour, before in zip(COLOURS, (0.5, 0.1, 0.01, 0.001), strict=False):
        after = before * np.exp(epsilon) / (1.0 - before + before * np.exp(epsilon))
        axes.plot(epsilon, 100.0 * after, color=colour)
        place = np.searchsorted(after, 0.6)
        words = f"certain before: {100 * before:g} %" if before == 0.5 else f"{100 * before:g} %"
        axes.annotate(words, (epsilon[place], 60), (6, -6), textcoords="offset points", color=ink(colour))
    axes.set(xlabel="ε", ylabel="%", xlim=(0, 8), ylim=(0, 102))
    heading(axes, "how certain an attacker can be afterwards, at most")
    return drawn


def draw_scattering() -> Figure:
    """Draw a digit, its wavelets of two sizes in six directions, and their blurs, which are the features."""
    drawn = Figure(figsize=(7.2, 3.7))
    panels = drawn.subplots(3, 1 + DIRECTIONS)
    drawn.subplots_adjust(left=0.01, right=0.99, bottom=0.01, top=0.94, wspace=0.1, hspace=0.35)
    filters = build_map("scattering", InputShape(196, (14, 14)))
    if not isinstance(filters, Scattering):
        raise TypeError("scattering is built as such")
    digit = load_unmapped(DataOptions("mnist14")).train[0].x[7:8]
    channels = filters.channels(digit).reshape(-1, 4, 4)
    small, large = (wavelets(as_bytes(digit))[0] for wavelets in filters.first)
    _pixels(panels[0, 0], digit, "a digit")
    _pixels(panels[1, 0], channels[0], "blurred")
    panels[2, 0].axis("off")
    names = (
        "small strokes, by direction",
        "larger strokes, by direction",
        "small strokes, blurred: 6 × 16 of the features",
    )
    for row, (name, images) in enumerate(zip(names, (small, large, channels[1:]), strict=True)):
        for k in range(DIRECTIONS):
            _pixels(panels[row, 1 + k], images[k], "" if k else name)
    return drawn


LAYERS = (  # the import contracts in pyproject.toml, from the top down
    ("research",),
    ("cli",),
    ("experiments", "diagnostics"),
    ("api", "sklearn"),
    ("audit", "dashboard", "export"),
    ("federation",),
    ("secure_sum",),
    ("reporting", "training"),
    ("planning",),
    ("runs",),
    ("settings",),
    ("algorithms",),
    ("objectives", "privacy", "data"),
    ("types", "kernels", "core", "errors"),
)
LIFE = {"settings": 1, "planning": 2, "training": 3, "runs": 4, "reporting": 5}  # the life of a run, in order


def draw_layers() -> Figure:
    """Draw the packages in layers; the life of a run is numbered."""
    drawn = Figure(figsize=(7.2, 5.6))
    axes = drawn.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, 72), ylim=(-2, 54))
    axes.axis("off")
    for level, names in enumerate(LAYERS):
        y, width = 50 - 3.7 * level, 52 / len(names)
        for place, name in enumerate(names):
            colour = BLUE if name in LIFE else GREY
            left = 1 + place * width
            axes.add_patch(
                FancyBboxPatch(
                    (left, y), width - 1, 3, boxstyle="round,pad=0,rounding_size=0.6", ec=colour, fc="white", lw=1.2
                )
            )
            label = f"{LIFE[name]}  {name}" if name in LIFE else name
            axes.text(left + (width - 1) / 2, y + 1.4, label, ha="center", va="center", color=colour, fontsize=9)
    axes.text(55, 51.5, "nothing imports it", va="center", fontsize=9, color=GREY)
    _arrow(axes, (63, 44), (63, 8), GREY)
    axes.text(64.5, 26, "imports go\ndownwards\nonly", va="center", fontsize=9, color=GREY)
    axes.text(1, -1.4, "1–5: settings → plan → training → run record → report", va="bottom", fontsize=9, color=BLUE)
    return drawn


def _pixels(axes: Axes, image: Array, name: str) -> None:
    """Show a square image, dark where its values are large."""
    side = math.isqrt(image.size)
    axes.imshow(image.reshape(side, side), cmap="Greys", vmin=0.0)
    heading(axes, name)
    _bare(axes)


def _goal(axes: Axes) -> None:
    """Mark the minimiser of the sum of all objectives."""
    axes.plot(*HOMES.mean(axis=0), "+", color="black", ms=11, mew=1.4)


def _bare(axes: Axes) -> None:
    """Prepare axes without numbers."""
    axes.set(xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color("#cccccc")


def _box(axes: Axes, x: float, y: float, width: float, height: float, colour: str, name: str, text: str) -> None:
    axes.add_patch(
        FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=1.2", ec=colour, fc="white")
    )
    axes.text(x + width / 2, y + height - 2.2, name, ha="center", va="center", weight="bold", color=ink(colour))
    axes.text(x + width / 2, y + (height - 3) / 2, text, ha="center", va="center", fontsize=8)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=12, color=colour, lw=1.4))


PICTURES = {
    "round": draw_round,
    "consensus": draw_consensus,
    "averaging": draw_averaging,
    "epsilon": draw_epsilon,
    "scattering": draw_scattering,
    "layers": draw_layers,
}


def draw_all(folder: Path) -> None:
    """Draw every picture into this folder."""
    for name, picture in PICTURES.items():
        with rc_context(STYLE):
            save(picture(), folder / f"{name}.svg")


if __name__ == "__main__":
    draw_all(Path(__file__).parent)
