"""Checks of combinations of settings: those that cannot keep their guarantee or have no effect are refused."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from taciturn.algorithms import ALGORITHMS
from taciturn.data import data_folder, source_for
from taciturn.errors import InputError, shown
from taciturn.kernels.library import FOLDER, library
from taciturn.privacy.noise import HARDENED, SEEDED
from taciturn.privacy.trust import AGENTS, SECURE_SUM
from taciturn.settings.rules import flag_name, text

if TYPE_CHECKING:
    from taciturn.settings.settings import Settings

FIRST_SEED = 1
SIMULATE = "--seed N makes the run a simulation without protection"
COLLUDERS = 1  # the default: then no other agent learns more than the server does
FOR_SUMS = {"colluders": COLLUDERS, "missing": 0, "reserve": 0}  # settings of --trust secure-sum, with their defaults
BACKENDS = ("auto", "compiled", "numpy", "torch")
MODES = ("certified", "paper")
SUMS = "sums"
SIMULATIONS = ("agents", SUMS)  # whether a round has every agent's upload, or only their sum
BY_MODE: Mapping[str, Mapping[str, object]] = {
    "certified": {"algorithm": ("dpgd",), "total_epsilon": (1.0,)},
    "paper": {"algorithm": ("objpm",), "epsilon": (1.0,), "rounds": 100},
}
"""Defaults that depend on the mode."""

CERTIFIED_ONLY = {"total_epsilon", "mechanism", "adjacency", "clip", "clip_l1", "noise_multiplier", "trust"}
CERTIFIED_ONLY |= {"colluders", "missing", "reserve", "total_records", "records_max", "ledger"}
CERTIFIED_ONLY |= {"evaluations", "evaluation_epsilon", "simulate"}


def choose_noise(settings: Settings) -> Settings:
    """Replace noise "auto" by the source it stands for, and seed "auto" by the first seed if the noise is seeded.

    Private records get hardened noise by default. A seed makes the run a simulation; so do a published data set, a run
    without noise and mode paper, which have nothing to protect. The number of `seeds` does not choose: several seeds
    with hardened noise are refused.

    Raises
    ------
    InputError
        If hardened noise has a seed, or if the files of a published data set are not the published ones and the noise
        is not explicitly seeded.
    """
    protects = settings.mode == "certified" and min(settings.total_epsilon) < math.inf
    if settings.hardened and settings.seed != "auto":
        raise InputError(f"seed is {settings.seed}, but noise is hardened, which has no seed; {SIMULATE}")
    if settings.noise != SEEDED and settings.seed == "auto" and protects:
        _check_published(settings)
    noise = settings.noise
    if noise == "auto":
        hardened = protects and settings.seed == "auto" and not source_for(settings.data).published
        noise = HARDENED if hardened else SEEDED
    seed = FIRST_SEED if noise == SEEDED and settings.seed == "auto" else settings.seed
    return replace(settings, noise=noise, seed=seed)


def _check_published(settings: Settings) -> None:
    """Refuse substitutes for the files of a published data set: their sizes and agents would count as public."""
    source, folder = source_for(settings.data), data_folder(settings.data_dir)
    if source.published and source.known is not None and not source.known(folder):
        raise InputError(
            f"the files of {settings.data} in {folder} do not have the checksums of the published ones, so their "
            f"records count as private: {SIMULATE}; to protect records of your own, use a table"
        )


def check_backend(settings: Settings) -> Settings:
    """Return the settings with their backend chosen; a GPU implies torch.

    Raises
    ------
    InputError
        If the backend does not support the device, the algorithm or another setting.
    """
    if settings.backend == "auto" and settings.device != "cpu":
        settings = replace(settings, backend="torch")
    backend = settings.backend
    if settings.device != "cpu" and backend != "torch":
        raise InputError(f"device is {settings.device}, but backend {backend} supports only cpu: use --backend torch")
    if backend == "compiled" and library() is None:
        raise InputError(
            f"backend is compiled, but there is no compiled library in {FOLDER}: install a C compiler, then Taciturn "
            "again (pip install -e . in a checkout), or use --backend auto or numpy"
        )
    if settings.tf32 and (settings.device == "cpu" or settings.precision != "float32"):
        raise InputError("tf32 is for float32 matrix products on a GPU: it needs --device cuda and --precision float32")
    if settings.tf32 and settings.mode == "certified":
        raise InputError("tf32 needs --mode paper: in certified mode every sum over records is in double precision")
    if settings.threads != "auto" and backend in ("numpy", "torch"):
        advice = "set OMP_NUM_THREADS, or use --backend compiled"
        raise InputError(f"threads is {settings.threads}, but backend {backend} has its own threads: {advice}")
    if backend == "torch":
        _check_torch(settings)
    return settings


def check_device(name: str, given: Any) -> str:
    """Accept a device: cpu, cuda or cuda:N."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text(name, given)):
        raise InputError(f"{name} is {shown(given)}: it must be cpu, cuda or cuda:N")
    return str(given)


def _check_torch(settings: Settings) -> None:
    for name in settings.algorithm:
        if "torch" not in ALGORITHMS[name].backends:
            others = _names(lambda other: "torch" in ALGORITHMS[other].backends)
            raise InputError(f"backend is torch, but {name} supports only numpy: use {others}, or --backend numpy")
    if settings.hardened:
        raise InputError(
            "backend is torch, but hardened noise is added to exact integer sums, which torch does not compute: "
            f"use --backend compiled or numpy; {SIMULATE}"
        )


def check_mode(settings: Settings, chosen: Iterable[str]) -> Settings:
    """Return the settings if they fit their mode; in mode paper, methods without noise get epsilon inf.

    Parameters
    ----------
    settings
        All settings.
    chosen
        The names of the settings that the user gave.

    Raises
    ------
    InputError
        If a setting belongs to the other mode or cannot keep what the mode guarantees.
    """
    if settings.mode == "paper":
        return _check_paper(settings, epsilon_given="epsilon" in chosen)
    _check_certified(settings)
    return settings


def _names(wanted: Callable[[str], bool]) -> str:
    return ", ".join(name for name in ALGORITHMS if wanted(name))


def _certifiable(name: str) -> bool:
    return ALGORITHMS[name].noisy and "certified" in ALGORITHMS[name].modes


def _check_certified(settings: Settings) -> None:
    if settings.epsilon:
        raise InputError(
            f"epsilon is {settings.epsilon[0]:g}, the nominal budget of one local update, which is for --mode paper; "
            "certified mode takes --total-epsilon, the budget of the whole run"
        )
    smallest = min(settings.total_epsilon)
    for name in settings.algorithm:
        if "certified" not in ALGORITHMS[name].modes:
            raise InputError(f"{name} has no certified form: use {_names(_certifiable)}, or --mode paper")
        if not ALGORITHMS[name].noisy and smallest < math.inf:
            raise InputError(
                f"total-epsilon is {smallest:g}, but {name} adds no noise and cannot keep it: "
                f"use inf, or one of {_names(_certifiable)}"
            )
    if settings.noise_multiplier != "auto" and len(settings.total_epsilon) > 1:
        raise InputError("noise-multiplier is given, so several total-epsilon would give the same run: give one")
    if settings.hardened:
        _check_hardened(settings)
    _check_trust(settings)
    if settings.simulate == SUMS:
        _check_pooled(settings)
    _check_evaluations(settings)


def _check_evaluations(settings: Settings) -> None:
    """Refuse private evaluations without held-out records, or of a method whose records are in one place."""
    if not settings.evaluations:
        if settings.evaluation_epsilon != "auto":
            raise InputError(
                f"evaluation-epsilon is {float(settings.evaluation_epsilon):g}, but evaluations is 0: it is the budget "
                "of private evaluations, so give --evaluations N"
            )
        return
    if not settings.test_share:
        given = f"test is {settings.test}" if settings.test else "test-share is 0"
        raise InputError(
            f"evaluations is {settings.evaluations}, but {given}, so no records are held out: give --test-share S, the "
            "share of the records that never train"
        )
    for name in settings.algorithm:
        if ALGORITHMS[name].central:
            raise InputError(
                f"evaluations is {settings.evaluations}, but {name} gives all records to one curator: an evaluation is "
                "a sum over agents, so use another method, or evaluations 0"
            )


def _check_hardened(settings: Settings) -> None:
    """Refuse what hardened noise cannot do."""
    for name in settings.algorithm:
        if not ALGORITHMS[name].hardened:
            exact = _names(lambda other: ALGORITHMS[other].hardened and _certifiable(other))
            raise InputError(f"{name} has no exact noise, which private records need: use {exact}; {SIMULATE}")
    if len({math.isinf(epsilon) for epsilon in settings.total_epsilon}) > 1:
        raise InputError(
            "total-epsilon lists both inf and a finite budget: hardened noise would protect only some of the models; "
            f"use separate runs; {SIMULATE}"
        )
    if settings.seeds > 1:
        raise InputError(
            f"seeds is {settings.seeds}, but hardened noise has no seeds: every run is another release; {SIMULATE}"
        )


def _check_trust(settings: Settings) -> None:
    """Refuse what noise on the sum does not protect; docs/explanation/trust.md explains why."""
    trust = settings.trust
    for name, default in FOR_SUMS.items():
        if (given := getattr(settings, name)) != default and trust != SECURE_SUM:
            raise InputError(f"{name} is {given}, but trust is {trust}: it belongs to --trust secure-sum")
    if trust == AGENTS:
        return
    for name in settings.algorithm:
        method = ALGORITHMS[name]
        if method.central and trust == SECURE_SUM:
            raise InputError(f"trust is secure-sum, but {name} gives all records to one curator: use --trust server")
        if not method.central and not method.allows_aggregate_noise:
            usable = _names(lambda other: ALGORITHMS[other].allows_aggregate_noise)
            raise InputError(
                f"trust is {trust}, but noise on the sum is not proven to be enough for {name}: an agent's state "
                "carries a record from round to round, so plain composition undercounts (docs/explanation/trust.md); "
                f"use {usable}, which take the gradient at w, or --trust agents"
            )
    if not all(ALGORITHMS[name].central for name in settings.algorithm):
        _check_sum(settings)


def _check_sum(settings: Settings) -> None:
    trust = settings.trust
    if settings.set != "all":
        raise InputError(f"set is {settings.set}, but trust {trust} needs all: a projection at an agent is not linear")
    if settings.mechanism != "gaussian":
        raise InputError(
            f"mechanism is {settings.mechanism}, but trust {trust} needs gaussian: only Gaussian shares sum to noise "
            "of the same kind"
        )
    if settings.hardened and trust != SECURE_SUM:
        raise InputError(
            f"trust is {trust}, but noise is hardened, which needs --trust agents or secure-sum: the server's noise is "
            f"simulated by shares at the agents; {SIMULATE}"
        )
    if settings.integer_sums and max(settings.total_epsilon) == math.inf:
        raise InputError(
            "total-epsilon is inf, but a secure sum with hardened noise needs a finite budget; " + SIMULATE
        )
    if trust == SECURE_SUM and settings.server == "full":
        raise InputError("server is full, but with trust secure-sum the server receives only sums: use sums")


def _check_pooled(settings: Settings) -> None:
    """Refuse --simulate sums where one draw for all agents is not what their own draws add up to."""
    given, otherwise = "simulate is sums", "use --simulate agents"
    if settings.hardened:
        raise InputError(f"{given}, but hardened noise is drawn by every agent: {otherwise}; {SIMULATE}")
    for name in settings.algorithm:
        if not _sums_gradients(name):
            usable = _names(_sums_gradients)
            raise InputError(
                f"{given}, but {name} needs more than sums of gradients at w: {otherwise}, or one of {usable}"
            )
    if settings.mechanism != "gaussian":
        raise InputError(f"{given}, but mechanism is {settings.mechanism}: only Gaussian noise adds up to its own kind")
    if settings.set != "all":
        raise InputError(f"{given}, but set is {settings.set}: a projection at an agent is not linear; {otherwise}")
    if settings.server == "full":
        raise InputError(f"{given}, but server is full, which stores every agent's upload: use server sums")


def _sums_gradients(name: str) -> bool:
    method = ALGORITHMS[name]
    return method.allows_aggregate_noise and not method.central and method.noise_on == "gradients"


def _check_paper(settings: Settings, epsilon_given: bool) -> Settings:
    for entry in dataclasses.fields(settings):
        if entry.name in CERTIFIED_ONLY and getattr(settings, entry.name) != entry.default:
            name = flag_name(entry.name)
            raise InputError(f"--{name} has no effect in --mode paper; remove it or use --mode certified")
    if settings.hardened:
        raise InputError("noise is hardened, which --mode paper does not support: use --mode certified")
    for name in settings.algorithm:
        if "paper" not in ALGORITHMS[name].modes:
            raise InputError(f"{name} is not one of the paper's methods: it needs --mode certified")
    if any(ALGORITHMS[name].noisy for name in settings.algorithm):
        return settings
    if epsilon_given and min(settings.epsilon) < math.inf:
        noisy = _names(lambda name: ALGORITHMS[name].noisy and "paper" in ALGORITHMS[name].modes)
        raise InputError(
            f"epsilon is {min(settings.epsilon):g}, but {', '.join(settings.algorithm)} adds no noise and cannot keep "
            f"it: use inf, or one of {noisy}"
        )
    return replace(settings, epsilon=(math.inf,))
