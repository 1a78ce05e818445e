"""Which noise a run has: the operating system's for private records, a seed's for simulations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tacit.algorithms import ALGORITHMS
from tacit.data import data_folder, source_for
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
    Several `seeds` choose nothing: beside the operating system's noise they are refused. Files in the place of a
    published data set's that are not its own are refused unless noise is said to be seeded.
    """
    if settings.noise == HARDENED and settings.seed != "auto":
        raise InputError(
            f"seed is {settings.seed}, but noise is hardened, which has no seed: leave one of them out; {SIMULATE}"
        )
    if settings.noise != SEEDED and settings.seed == "auto" and _promises(settings):
        _check_published(settings)
    noise = _by_default(settings) if settings.noise == "auto" else settings.noise
    if noise == SEEDED and settings.seed == "auto":
        settings = replace(settings, seed=FIRST_SEED)
    return replace(settings, noise=noise)


def _by_default(settings: Settings) -> str:
    hardened = _promises(settings) and settings.seed == "auto" and not source_for(settings.data).published
    return HARDENED if hardened else SEEDED


def _promises(settings: Settings) -> bool:
    return settings.mode == "certified" and min(settings.total_epsilon) < math.inf


def _check_published(settings: Settings) -> None:
    """Refuse files that stand in for a published data set: their sizes and agents would be taken for public."""
    source, folder = source_for(settings.data), data_folder(settings.data_dir)
    if source.published and source.known is not None and not source.known(folder):
        raise InputError(
            f"the files of {settings.data} in {folder} are not the published ones that Tacit knows by their checksums, "
            f"so their records count as private: {SIMULATE}; to protect records of your own, bring them as a table"
        )


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
            f"seeds is {settings.seeds}, but hardened noise has no seeds: every run of it releases the data once more; "
            f"{SIMULATE}"
        )


def _private(name: str) -> bool:
    return ALGORITHMS[name].noisy and "certified" in ALGORITHMS[name].modes
