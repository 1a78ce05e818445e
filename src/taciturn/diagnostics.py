"""Checks of the installation: package, machine, optional packages, data sets and writable folders."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from taciturn.core.storage import format_bytes, state_folder
from taciturn.data import SOURCES, data_folder
from taciturn.data.dataset_source import machine_memory
from taciturn.errors import TaciturnError
from taciturn.kernels.library import LEVELS, level
from taciturn.kernels.threads import cores
from taciturn.version import VERSION

PARTS = ("Taciturn", "Machine", "Extras", "Data", "Places")
GOOD, ABSENT, BAD = "good", "absent", "bad"
DEVELOPMENT_EXTRAS = {"test", "docs"}
MIN_FREE = 10**9  # bytes


class DiagnosticFinding(NamedTuple):
    """The outcome of one check."""

    part: str  # one of PARTS
    name: str
    state: str  # GOOD, ABSENT (optional and missing) or BAD (must be fixed)
    words: str
    advice: str = ""


def check_installation() -> list[DiagnosticFinding]:
    """Return the findings of all checks, in the order of `PARTS`."""
    checks = {
        "Taciturn": _check_package,
        "Machine": _check_machine,
        "Extras": _check_extras,
        "Data": _check_data,
        "Places": _check_places,
    }
    return [DiagnosticFinding(part, *finding) for part, check in checks.items() for finding in check()]


def is_healthy(findings: Sequence[DiagnosticFinding]) -> bool:
    """Return whether nothing must be fixed."""
    return all(finding.state != BAD for finding in findings)


def _check_package() -> Iterator[tuple[str, ...]]:
    yield "version", GOOD, f"{VERSION}, in {Path(__file__).parent}"
    yield "Python", GOOD, platform.python_version()
    missing = [str(need) for need in _requirements("") if not _is_met(need)]
    if missing:
        yield "requirements", BAD, f"missing: {', '.join(missing)}", "pip install taciturn"
    if level():
        yield "compiled", GOOD, f"built, for {LEVELS[level()]}"
    else:
        advice = "install a C compiler and reinstall Taciturn; until then numpy is used, two to four times slower"
        yield "compiled", ABSENT, "not built", advice


def _check_machine() -> Iterator[tuple[str, ...]]:
    yield "system", GOOD, f"{platform.system()} {platform.machine()}"
    yield "cores", GOOD, str(cores())
    yield "memory", GOOD, format_bytes(machine_memory())
    yield _check_gpu()
    yield "randomness", GOOD, f"from the operating system; read {len(os.urandom(32))} bytes without waiting"


def _check_gpu() -> tuple[str, ...]:
    if util.find_spec("torch") is None:
        return "GPU", ABSENT, "unknown without torch", "pip install 'taciturn[torch]'"
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    if not names:
        return "GPU", ABSENT, "torch finds none; only speed depends on it"
    if util.find_spec("triton") is None:
        return "GPU", ABSENT, f"{', '.join(names)}: cannot be used without triton", "pip install 'taciturn[torch]'"
    return "GPU", GOOD, f"{', '.join(names)}: taciturn run --device cuda"


def _check_extras() -> Iterator[tuple[str, ...]]:
    """Check the optional dependencies that the installed package declares."""
    try:
        extras = set(metadata.metadata("taciturn").get_all("Provides-Extra") or ())
    except metadata.PackageNotFoundError:  # run from its folder without being installed
        return
    for extra in sorted(extras - DEVELOPMENT_EXTRAS):
        needs = _requirements(extra)
        missing = [str(need.name) for need in needs if not _is_met(need)]
        if missing:
            yield extra, ABSENT, f"not installed ({', '.join(missing)})", f"pip install 'taciturn[{extra}]'"
        else:
            yield extra, GOOD, ", ".join(f"{need.name} {metadata.version(need.name)}" for need in needs)


def _requirements(extra: str) -> list[Requirement]:
    """Return the requirements of the core (no extra) or of an extra on this machine."""
    try:
        declared = [Requirement(text) for text in metadata.requires("taciturn") or ()]
    except metadata.PackageNotFoundError:
        return []
    if not extra:
        return [need for need in declared if need.marker is None]
    own = [need for need in declared if need.marker is not None and need.marker.evaluate({"extra": extra})]
    nested = [
        more for need in own if need.name == "taciturn" for name in sorted(need.extras) for more in _requirements(name)
    ]
    return [*(need for need in own if need.name != "taciturn"), *nested]


def _is_met(need: Requirement) -> bool:
    try:
        return need.specifier.contains(metadata.version(need.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False


def _check_data() -> Iterator[tuple[str, ...]]:
    folder = data_folder()
    origin = "TACITURN_DATA" if os.environ.get("TACITURN_DATA") else "the default; TACITURN_DATA changes it"
    yield "folder", GOOD if folder.is_dir() else ABSENT, f"{folder} ({origin})"
    for name in SOURCES:
        source = SOURCES[name]
        if not source.published:
            continue
        if source.find is None:
            yield name, GOOD, "included in Taciturn"
            continue
        try:
            yield name, GOOD, str(source.find(folder))
        except TaciturnError:
            yield name, ABSENT, "not found", source.origin


def _check_places() -> Iterator[tuple[str, ...]]:
    yield _check_place("runs", Path("runs"), "where 'taciturn run' writes without --out")
    yield _check_place("state", state_folder(), "ledger heads, which detect a restored old ledger, and signing keys")
    yield _check_place("temporary", Path(tempfile.gettempdir()), "for records that do not fit into memory")


def _check_place(name: str, path: Path, use: str) -> tuple[str, ...]:
    """Check that a folder, or its nearest existing parent, is writable and has free space."""
    existing = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        return name, BAD, f"{path.absolute()} cannot be written to", f"it is {use}"
    free = shutil.disk_usage(existing).free
    words = f"{path.absolute()}, {format_bytes(free)} free: {use}"
    if free < MIN_FREE:
        return name, BAD, words, "free some space: a run that cannot write stops"
    return name, GOOD, words
