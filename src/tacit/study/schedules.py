"""The settings' rho and eta as schedules."""

from __future__ import annotations

import math

from tacit.algorithms.schedules import Constant, DynamicRho, LevelEta, NonsmoothEta, Schedule, SmoothEta, StrongEta
from tacit.errors import InputError
from tacit.settings import Settings
from tacit.types import Array


def checked_smoothness(settings: Settings, smoothness: float) -> float:
    """L of eta smooth, which must exist."""
    if not math.isfinite(smoothness):
        raise InputError(f"eta smooth needs a smooth f: {settings.loss} with {settings.regulariser} is not")
    return smoothness


def rho_schedule(settings: Settings, epsilon: Array) -> Schedule:
    """The penalty of every run of a batch, epsilon [R]."""
    if settings.rho == "dynamic":
        s = settings
        rho = DynamicRho(epsilon, s.rho_c1, s.rho_c2, s.rho_tc, s.rho_growth, s.rho_max)
        if not (rho(1) > 0.0).all():
            raise InputError("rho-c1 is 0 and epsilon is inf: then rho is 0, and it must be above 0")
        return rho
    return Constant(float(settings.rho), epsilon)


def eta_schedule(settings: Settings, epsilon: Array) -> Schedule:
    """The proximity of every run of a batch, epsilon [R]."""
    scale = settings.eta_scale
    match settings.eta:
        case "smooth":
            return SmoothEta(epsilon, float(settings.smoothness), scale)
        case "nonsmooth":
            return NonsmoothEta(epsilon, scale)
        case "level":
            return LevelEta(epsilon, int(settings.rounds), scale)
        case "strong":
            return StrongEta(epsilon, float(settings.strong_convexity), scale)
    return Constant(scale * float(settings.eta), epsilon)
