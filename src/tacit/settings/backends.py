"""The array libraries a run can use, and the settings that only one of them knows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tacit.algorithms import ALGORITHMS
from tacit.errors import InputError
from tacit.kernels.library import FOLDER, library
from tacit.privacy.noise import HARDENED
from tacit.settings.noise import SIMULATE
from tacit.settings.rules import text

if TYPE_CHECKING:
    from tacit.settings.settings import Settings

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
            f"backend is compiled, but there is no compiled library in {FOLDER}: install a C compiler, then Tacit "
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
