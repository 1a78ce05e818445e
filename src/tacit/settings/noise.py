"""Which noise a run has: the operating system's for private records, a seed's for simulations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tacit.algorithms import ALGORITHMS
from tacit.data import source_for
from tacit.errors import InputError
from tacit.privacy.noise import HARDENED, SEEDED

if TYPE_CHECKING:
    from tacit.settings.settings import Settings

FIRST_SEED = 1
SIMULATE = "--seed N makes the run a simulation, which protects nobody"


def choose_noise(settings: Settings) -> Settings:
    """The settings with their noise named, and a first seed only where there is one.

    Where nothing is said, records that are not published get the operating system's noise. A seed makes a simulation,
    and so do a published data set, a run without noise and mode paper, which have nothing to protect or promise.
    """
    if settings.noise == HARDENED and settings.seed != "auto":
        raise InputError(
            f"seed is {settings.seed}, but noise is hardened, which has no seed: leave one of them out; {SIMULATE}"
        )
    noise = _by_default(settings) if settings.noise == "auto" else settings.noise
    if noise == SEEDED and settings.seed == "auto":
        settings = replace(settings, seed=FIRST_SEED)
    return replace(settings, noise=noise)


def _by_default(settings: Settings) -> str:
    seeded = settings.seed != "auto" or settings.seeds > 1
    private = settings.mode == "certified" and min(settings.total_epsilon) < math.inf
    return HARDENED if private and not seeded and not source_for(settings.data).published else SEEDED


def check_exact(settings: Settings) -> None:
    """Refuse what hardened noise cannot do."""
    if settings.noise != HARDENED:
        return
    for name in settings.algorithm:
        if not ALGORITHMS[name].hardened:
            exact = [other for other in ALGORITHMS if ALGORITHMS[other].hardened and _private(other)]
            raise InputError(
                f"{name} has no noise that is exact, which private records need: {', '.join(exact)} have it; {SIMULATE}"
            )
    if len({math.isinf(epsilon) for epsilon in settings.total_epsilon}) > 1:
        raise InputError(
            "total-epsilon has inf beside a budget: with hardened noise that would put a model without noise beside "
            f"it, so give the two a run each; {SIMULATE}"
        )
    if settings.seeds > 1:
        raise InputError(
            f"seeds is {settings.seeds}, but hardened noise has no seeds: every run of it releases the data once more"
        )


def _private(name: str) -> bool:
    return ALGORITHMS[name].noisy and "certified" in ALGORITHMS[name].modes
