"""What an agent sends, with and without noise: pictures of the weights, or the largest coefficients by name."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.types import Array
from tacit.views.style import COLOURS, DIVERGING, PALE, STYLE, heading

UNIT = "parameter units (same as w)"
IMAGES = 10  # classes in a row
FEATURES = 20  # in a list
PANELS = 2  # classes beside each other
ALMOST_ALL = 99.5  # percent of the values within the colours' range
LETTERS = 17  # of a caption, to an inch


class Weights(NamedTuple):
    """What there is to draw."""

    clean: Array  # [J, K]  z without noise
    noisy: Array  # [J, K]  z as sent
    model: Array  # [J, K]  w
    features: tuple[str, ...]  # J names
    classes: tuple[str, ...]  # K names; "" for the only output


def sent_figure(weights: Weights, image: tuple[int, int] | None, title: str, caption: str) -> Figure:
    """An image for each class where features are pixels, else dots; `image`: its rows and columns."""
    with rc_context(STYLE):
        drawn = _images(weights, image) if image else _dots(weights)
        shown = min(len(weights.classes), IMAGES if image else PANELS)
        some = (
            f" The first {shown} of {len(weights.classes)} classes are shown." if shown < len(weights.classes) else ""
        )
        drawn.suptitle(title, x=0.01, ha="left", fontweight="bold")
        words = "\n".join(textwrap.wrap(caption + some, int(LETTERS * drawn.get_figwidth())))
        drawn.supxlabel(words, x=0.01, ha="left", fontsize=8)
    return drawn


def _images(weights: Weights, image: tuple[int, int]) -> Figure:
    shown = min(len(weights.classes), IMAGES)
    rows = {
        "z without\nnoise": weights.clean,
        "noise in it": weights.noisy - weights.clean,
        "z as sent": weights.noisy,
        "model w": weights.model,
    }
    drawn = Figure(figsize=(1.7 + 0.8 * shown, 4.3), layout="constrained")
    grid = drawn.subplots(len(rows), shown, squeeze=False)
    sent, model = _limit(weights.clean, weights.noisy), _limit(weights.model)
    for i, (name, values) in enumerate(rows.items()):
        for k in range(shown):
            pixels = values[: image[0] * image[1], k].reshape(image)
            _image(grid[i, k], pixels, model if name == "model w" else sent)
            grid[0, k].set_title(f"class {weights.classes[k]}" if k == 0 else weights.classes[k], fontsize=9)
        grid[i, 0].set_ylabel(name, rotation=0, ha="right", va="center")
    for axes, label in ((grid[:3], UNIT), (grid[3:], "units of w")):
        drawn.colorbar(axes[0, 0].images[0], ax=list(axes.flat), label=label, extend="both", aspect=10 * len(axes))
    return drawn


def _image(axes: Axes, pixels: Array, limit: float) -> None:
    axes.imshow(pixels, cmap=DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def _limit(*values: Array) -> float:
    """The colours reach from minus this to this."""
    return max(float(np.percentile(np.abs(one), ALMOST_ALL)) for one in values) or 1.0


def _dots(weights: Weights) -> Figure:
    """The features that weigh most: what is sent of each class, and beside it the model."""
    largest = np.maximum(np.abs(weights.clean), np.abs(weights.noisy)).max(axis=1)
    chosen = np.argsort(-largest, kind="stable")[:FEATURES][::-1]
    shown = min(len(weights.classes), PANELS)
    drawn = Figure(figsize=(2.6 + 3.6 * shown, 1.8 + 0.24 * len(chosen)), layout="constrained")
    panels = drawn.subplots(1, 2 * shown, squeeze=False, sharey=True, width_ratios=[3, 2] * shown)[0]
    for k in range(shown):
        _sent_dots(panels[2 * k], weights.clean[chosen, k], weights.noisy[chosen, k])
        panels[2 * k + 1].plot(weights.model[chosen, k], np.arange(len(chosen)), "o", color=COLOURS[6], markersize=5)
        name = f"class {weights.classes[k]}: " if weights.classes[k] else ""
        heading(panels[2 * k], f"{name}z")
        heading(panels[2 * k + 1], "model w")
    for axes in panels:
        axes.axvline(0.0, color=PALE, linewidth=0.8, zorder=1)
        axes.set_xlabel("parameter units")
    panels[0].set_yticks(range(len(chosen)), [_cut(weights.features[j]) for j in chosen])
    every = len(weights.features)
    panels[0].set_ylabel(f"features, the {len(chosen)} largest of {every}" if len(chosen) < every else "features")
    panels[-1].legend(*panels[0].get_legend_handles_labels(), loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawn


def _sent_dots(axes: Axes, clean: Array, noisy: Array) -> None:
    """Between the two dots of a feature lies what the noise did."""
    places = np.arange(len(clean))
    axes.hlines(places, clean, noisy, color=PALE, linewidth=1.2)
    axes.plot(clean, places, "o", color=COLOURS[0], markerfacecolor="white", markersize=6, label="z without noise")
    axes.plot(noisy, places, "o", color=COLOURS[1], markersize=5, label="z as sent")


def _cut(name: str) -> str:
    return textwrap.shorten(name, 28, placeholder="…") if " " in name else name if len(name) <= 28 else f"{name[:27]}…"
