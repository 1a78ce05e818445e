"""Combinations of settings that cannot give their guarantee, or would have no effect, are refused."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from taciturn.algorithms import ALGORITHMS
from taciturn.data import data_folder, source_for
from taciturn.errors import InputError
from taciturn.kernels.library import FOLDER, library
from taciturn.privacy.noise import HARDENED, SEEDED
from taciturn.privacy.trust import AGENTS, SECURE_SUM
from taciturn.settings.rules import text

if TYPE_CHECKING:
    from taciturn.settings.settings import Settings

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
            f"the files of {settings.data} in {folder} are not the published ones that Taciturn knows by their checksums, "
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


if TYPE_CHECKING:
    from taciturn.settings.settings import Settings

COLLUDERS = 1  # by default: then no single fellow agent learns more than the server does


def check_trust(settings: Settings) -> None:
    """Refuse what noise on the sum does not cover; docs/explanation/trust.md says why."""
    trust = settings.trust
    if settings.colluders != COLLUDERS and trust != SECURE_SUM:
        raise InputError(f"colluders is {settings.colluders}, but trust is {trust}: it belongs to --trust secure-sum")
    if trust == AGENTS:
        return
    for name in settings.algorithm:
        _check_method(name, trust)
    if not all(ALGORITHMS[name].central for name in settings.algorithm):
        _check_sum(settings)


def _check_method(name: str, trust: str) -> None:
    method = ALGORITHMS[name]
    if method.central and trust == SECURE_SUM:
        raise InputError(f"trust is secure-sum, but {name} gives all records to one curator: use --trust server")
    if not method.central and not method.allows_aggregate_noise:
        known = ", ".join(other for other in ALGORITHMS if ALGORITHMS[other].allows_aggregate_noise)
        raise InputError(
            f"trust is {trust}, but noise on the sum is not proven to be enough for {name}: what an agent keeps to "
            "itself carries a record from round to round, so that plain composition undercounts "
            f"(docs/explanation/trust.md); there are {known}, which take the gradient at w, or --trust agents"
        )


def _check_sum(settings: Settings) -> None:
    trust = settings.trust
    if settings.set != "all":
        raise InputError(f"set is {settings.set}, but trust {trust} needs all: a projection at an agent is not linear")
    if settings.mechanism != "gaussian":
        raise InputError(
            f"mechanism is {settings.mechanism}, but trust {trust} needs gaussian: shares of it add up to Gaussian "
            f"noise, and shares of {settings.mechanism} noise to no noise with a guarantee of its own"
        )
    if settings.noise == HARDENED:
        raise InputError(
            f"trust is {trust}, but noise is hardened, which needs --trust agents: shares of discrete Gaussian noise "
            f"do not add up to an exactly discrete Gaussian; {SIMULATE}"
        )
    if trust == SECURE_SUM and settings.server == "full":
        raise InputError("server is full, but with trust secure-sum the server gets nothing but sums: use sums")


if TYPE_CHECKING:
    from taciturn.settings.settings import Settings

BACKENDS = ("auto", "compiled", "numpy", "torch")


def device(name: str, given: Any) -> str:
    """A place to compute: cpu, cuda, or one of several, cuda:N."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text(name, given)):
        raise InputError(f"{name} is {given!r}: it must be cpu, cuda or cuda:N")
    return str(given)


def check_backend(settings: Settings, chosen: Mapping[str, Any]) -> Settings:
    """The settings, where their backend can keep them; a device that only torch has implies torch."""
    if settings.backend == "auto" and settings.device != "cpu":
        settings = replace(settings, backend="torch")
    if settings.device != "cpu" and settings.backend != "torch":
        raise InputError(
            f"device is {settings.device}, but backend {settings.backend} knows only cpu: use --backend torch"
        )
    if settings.backend == "compiled" and library() is None:
        raise InputError(
            f"backend is compiled, but there is no compiled library in {FOLDER}: install a C compiler, then Taciturn "
            "again (pip install -e . in a checkout), or use --backend auto or numpy"
        )
    if settings.tf32 and (settings.device == "cpu" or settings.precision != "float32"):
        raise InputError("tf32 is for float32 matrix products on a GPU: it needs --device cuda and --precision float32")
    if settings.tf32 and settings.mode == "certified":
        raise InputError("tf32 needs --mode paper: in certified mode every sum over records is in double precision")
    if settings.threads != "auto" and settings.backend in ("numpy", "torch"):
        raise InputError(
            f"threads is {settings.threads}, but backend {settings.backend} has threads of its own: "
            "set OMP_NUM_THREADS, or use --backend compiled"
        )
    if settings.backend == "torch":
        _refuse_numpy_only(settings)
    return settings


def _refuse_numpy_only(settings: Settings) -> None:
    for name in settings.algorithm:
        if "torch" not in ALGORITHMS[name].backends:
            known = ", ".join(other for other in ALGORITHMS if "torch" in ALGORITHMS[other].backends)
            raise InputError(
                f"backend is torch, but {name} knows only numpy: there are {known}, or --backend compiled or numpy"
            )
    if settings.noise == HARDENED:
        raise InputError(
            "backend is torch, but hardened noise is added to exact integer sums, which torch does not make: "
            f"use --backend compiled or numpy; {SIMULATE}"
        )


if TYPE_CHECKING:
    from taciturn.settings.settings import Settings

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
