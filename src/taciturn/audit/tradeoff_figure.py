"""The figure of an audit: the errors of the attack, and the errors that the claim forces on every attack."""

from __future__ import annotations

import math

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from taciturn.audit.auditor import Audit
from taciturn.reporting.figures.style import COLOURS, DASHES, PALE, STYLE, heading
from taciturn.types import Array

NAMES = ("null: the first data set", "null: the second data set")


def allowed(false_positive: Array, epsilon: float, delta: float) -> Array:
    """Return the smallest false negative rate under (epsilon, delta): max(0, 1 - d - e^eps a, e^-eps (1 - d - a)).

    >>> allowed(np.array([0.0, 0.25, 1.0]), 0.0, 0.0).tolist()
    [1.0, 0.75, 0.0]
    """
    steep = 1.0 - delta - math.exp(epsilon) * false_positive
    flat = math.exp(-epsilon) * (1.0 - delta - false_positive)
    rate: Array = np.maximum(np.maximum(steep, flat), 0.0)
    return rate


def tradeoff(audit: Audit) -> Figure:
    """Draw false negatives against false positives of the strongest attack, and the bound that the claim implies."""
    with rc_context(STYLE):
        drawn = Figure(figsize=(5.4, 5.8), layout="constrained")
        axes = drawn.subplots()
        _draw_claim(axes, audit)
        _draw_attack(axes, audit)
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
        axes.set_xlabel("false positive rate, share of the games")
        axes.set_ylabel("false negative rate, share of the games")
        heading(axes, _title(audit))
        drawn.legend(loc="outside lower center", ncols=2)
    return drawn


def _draw_claim(axes: Axes, audit: Audit) -> None:
    claim, rates = audit.claim, np.linspace(0.0, 1.0, 400)
    limit = allowed(rates, claim.epsilon, claim.delta)
    label = f"claim: ε = {claim.epsilon:g}, δ = {claim.delta:g}"
    axes.fill_between(rates, limit, color="#000000", alpha=0.06, linewidth=0)
    axes.plot(rates, limit, "-", color="#000000", label=label, linewidth=1.2)
    axes.plot([0.0, 1.0], [1.0, 0.0], ":", color=PALE, label="guessing", linewidth=1.2)


def _draw_attack(axes: Axes, audit: Audit) -> None:
    found = audit.strongest
    for i, curve in enumerate(found.curves):
        order = np.lexsort((-curve.false_negative, curve.false_positive))
        rates = curve.false_positive[order], curve.false_negative[order]
        axes.plot(*rates, label=NAMES[i], linewidth=1.6, color=COLOURS[i], linestyle=DASHES[i])
    false, missed = found.counts.false_positives, found.counts.trials - found.counts.true_positives
    point = false / found.counts.trials, missed / found.counts.trials
    axes.plot(*point, "o", color=COLOURS[2], label="the attack that was judged", clip_on=False, zorder=3)


def _title(audit: Audit) -> str:
    claim = audit.claim
    updates = f"E = {claim.local_updates}"
    if claim.sampling_rate is not None and claim.sampling_rate < 1.0:
        updates += f", q = {claim.sampling_rate:g}"
    return (
        f"{claim.mode} {claim.algorithm}, {updates}\n{claim.mechanism} noise, {claim.adjacency}\n"
        f"ε is at least {audit.epsilon_lower:.3g} (confidence {audit.confidence:.4g})"
    )
