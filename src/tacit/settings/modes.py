"""The two modes: what each takes by default, and the settings that would mean nothing or promise too much in it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tacit.algorithms import ALGORITHMS
from tacit.errors import InputError
from tacit.privacy.noise import HARDENED
from tacit.settings.noise import check_exact
from tacit.settings.trust import check_trust

if TYPE_CHECKING:
    from tacit.settings.settings import Settings

MODES = ("certified", "paper")

BY_MODE: Mapping[str, Mapping[str, Any]] = {
    "certified": {"algorithm": ("dpgd",), "total_epsilon": (1.0,)},
    "paper": {"algorithm": ("objpm",), "epsilon": (1.0,), "rounds": 100},
}
CERTIFIED_ONLY = (
    "total_epsilon",
    "mechanism",
    "adjacency",
    "clip",
    "clip_l1",
    "noise_multiplier",
    "trust",
    "colluders",
    "total_records",
    "records_max",
    "ledger",
)


def check_mode(settings: Settings, chosen: Mapping[str, Any]) -> Settings:
    """The settings, where they can keep what their mode promises; `chosen` are those that were given."""
    return _certified(settings) if settings.mode == "certified" else _paper(settings, given="epsilon" in chosen)


def _certified(settings: Settings) -> Settings:
    if settings.epsilon:
        raise InputError(
            f"epsilon is {settings.epsilon[0]:g}, the nominal budget of one local update: that is --mode paper; "
            "certified mode takes --total-epsilon, the budget of the whole run"
        )
    for name in settings.algorithm:
        method = ALGORITHMS[name]
        if "certified" not in method.modes:
            known = ", ".join(other for other in ALGORITHMS if _certifiable(other))
            raise InputError(f"{name} has no certified form: there are {known}, or --mode paper")
        if not method.noisy and min(settings.total_epsilon) < math.inf:
            known = ", ".join(other for other in ALGORITHMS if _certifiable(other))
            raise InputError(
                f"total-epsilon is {min(settings.total_epsilon):g}, but {name} adds no noise and cannot keep it: "
                f"use inf, or one of {known}"
            )
    if settings.noise_multiplier != "auto" and len(settings.total_epsilon) > 1:
        raise InputError("noise-multiplier is given: then several total-epsilon would be the same run; give one")
    check_exact(settings)
    check_trust(settings)
    return settings


def _certifiable(name: str) -> bool:
    return ALGORITHMS[name].noisy and "certified" in ALGORITHMS[name].modes


def _paper(settings: Settings, given: bool) -> Settings:
    """Methods that add no noise keep no budget: one that was asked for stops the run, the default becomes inf."""
    for entry in dataclasses.fields(settings):
        if entry.name in CERTIFIED_ONLY and getattr(settings, entry.name) != entry.default:
            name, value = entry.name.replace("_", "-"), getattr(settings, entry.name)
            raise InputError(f"{name} is {_text(value)}, which --mode paper does not heed: it needs --mode certified")
    if settings.noise == HARDENED:
        raise InputError("noise is hardened, but the methods of --mode paper have no such form: use --mode certified")
    for name in settings.algorithm:
        if "paper" not in ALGORITHMS[name].modes:
            raise InputError(f"{name} is not one of the paper's methods: it needs --mode certified")
    if any(ALGORITHMS[name].noisy for name in settings.algorithm):
        return settings
    if given and min(settings.epsilon) < math.inf:
        names, budget = ", ".join(settings.algorithm), min(settings.epsilon)
        noisy = ", ".join(name for name in ALGORITHMS if ALGORITHMS[name].noisy and "paper" in ALGORITHMS[name].modes)
        raise InputError(
            f"epsilon is {budget:g}, but {names} adds no noise and cannot keep it: use inf, or one of {noisy}"
        )
    return dataclasses.replace(settings, epsilon=(math.inf,))


def _text(value: Any) -> str:
    return ", ".join(f"{item:g}" for item in value) if isinstance(value, tuple) else str(value)
