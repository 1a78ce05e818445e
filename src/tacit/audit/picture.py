"""The picture of an audit: which errors the attack makes, and which ones the claim forces on every attack."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.audit.run import Audit
from tacit.errors import InputError
from tacit.types import Array
from tacit.views.plots import COLOURS, DASHES, STYLE

NAMES = ("null: the first data set", "null: the second data set")


def allowed(false_positive: Array, epsilon: float, delta: float) -> Array:
    """The smallest false negative rate under (epsilon, delta): max(0, 1 - d - e^eps a, e^-eps (1 - d - a))."""
    steep = 1.0 - delta - math.exp(epsilon) * false_positive
    flat = math.exp(-epsilon) * (1.0 - delta - false_positive)
    rate: Array = np.maximum(np.maximum(steep, flat), 0.0)
    return rate


def check_place(path: Path) -> None:
    """Refuse a picture that could not be saved, before anything is attacked for it."""
    formats = sorted(Figure().canvas.get_supported_filetypes())
    if path.suffix.lstrip(".") not in formats:
        raise InputError(f"{path} does not end in a picture's format: there are {', '.join(formats)}")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to put {path.name} into")


def tradeoff(audit: Audit) -> Figure:
    """False negatives against false positives of the strongest attack, above what the claim allows."""
    with rc_context(STYLE):
        drawn = Figure(figsize=(5.4, 5.8), layout="constrained")
        axes = drawn.subplots()
        _draw_claim(axes, audit)
        _draw_attack(axes, audit)
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
        axes.set_xlabel("false positive rate")
        axes.set_ylabel("false negative rate")
        axes.set_title(_title(audit), loc="left", fontweight="bold")
        drawn.legend(loc="outside lower center", ncols=2)
    return drawn


def _draw_claim(axes: Axes, audit: Audit) -> None:
    claim, rates = audit.claim, np.linspace(0.0, 1.0, 400)
    limit = allowed(rates, claim.epsilon, claim.delta)
    label = f"claim: ε = {claim.epsilon:g}, δ = {claim.delta:g}"
    axes.fill_between(rates, limit, color="#000000", alpha=0.06, linewidth=0)
    axes.plot(rates, limit, "-", color="#000000", label=label, linewidth=1.2)
    axes.plot([0.0, 1.0], [1.0, 0.0], ":", color="#999999", label="guessing", linewidth=1.2)


def _draw_attack(axes: Axes, audit: Audit) -> None:
    found = audit.strongest
    for i, curve in enumerate(found.curves):
        order = np.lexsort((-curve.false_negative, curve.false_positive))
        rates = curve.false_positive[order], curve.false_negative[order]
        axes.plot(*rates, DASHES[i], color=COLOURS[i], label=NAMES[i], linewidth=1.6)
    false, missed = found.counts.false_positives, found.counts.trials - found.counts.true_positives
    point = false / found.counts.trials, missed / found.counts.trials
    axes.plot(*point, "o", color=COLOURS[2], label="the attack that was judged", clip_on=False, zorder=3)


def _title(audit: Audit) -> str:
    claim = audit.claim
    updates = f"E = {claim.local_updates}"
    return (
        f"{claim.mode}, {claim.algorithm}, {updates}, {claim.mechanism}, {claim.adjacency}\n"
        f"ε is at least {audit.epsilon_lower:.3g} (confidence {audit.confidence:.4g})"
    )
