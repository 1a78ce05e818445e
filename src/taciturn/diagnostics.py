"""Checks of the installation: package, machine, extras, data and writable folders."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement

from taciturn.core.storage import state_folder
from taciturn.data import SOURCES, data_folder
from taciturn.data.dataset_source import machine_memory, size_text
from taciturn.errors import TaciturnError
from taciturn.kernels.library import LEVELS, level
from taciturn.kernels.threads import cores
from taciturn.version import VERSION

PARTS = ("Taciturn", "Machine", "Extras", "Data", "Places")
WANTED_BY_TESTS = {"test", "docs"}  # extras of those who work on Taciturn itself
LITTLE_ROOM = 10**9  # bytes


class DiagnosticFinding(NamedTuple):
    """One line: good, something that could be had, or something to mend."""

    part: str  # of PARTS
    name: str
    state: str  # "good", "absent" or "bad"
    words: str
    advice: str = ""


def examine() -> list[DiagnosticFinding]:
    """Everything, in the order of PARTS."""
    return [*_taciturn(), *_machine(), *_extras(), *_data(), *_places()]


def _taciturn() -> Iterator[DiagnosticFinding]:
    yield DiagnosticFinding("Taciturn", "version", "good", f"{VERSION}, in {Path(__file__).parent}")
    yield DiagnosticFinding("Taciturn", "Python", "good", platform.python_version())
    lacking = [str(need) for need in _needs("") if not _met(need)]
    if lacking:
        yield DiagnosticFinding(
            "Taciturn", "requirements", "bad", f"lacks {', '.join(lacking)}", "pip install taciturn"
        )
    if level():
        yield DiagnosticFinding("Taciturn", "compiled", "good", f"built, for {LEVELS[level()]}")
    else:
        advice = "install a C compiler, then install Taciturn again; until then numpy does the same, two to four times slower"
        yield DiagnosticFinding("Taciturn", "compiled", "absent", "not built", advice)


def _machine() -> Iterator[DiagnosticFinding]:
    yield DiagnosticFinding("Machine", "system", "good", f"{platform.system()} {platform.machine()}")
    yield DiagnosticFinding("Machine", "cores", "good", str(cores()))
    yield DiagnosticFinding("Machine", "memory", "good", size_text(machine_memory()))
    yield _gpu()
    yield DiagnosticFinding(
        "Machine", "randomness", "good", f"the operating system's; {len(os.urandom(32))} bytes came at once"
    )


def _gpu() -> DiagnosticFinding:
    if util.find_spec("torch") is None:
        return DiagnosticFinding(
            "Machine", "GPU", "absent", "cannot tell without torch", "pip install 'taciturn[torch]'"
        )
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    if not names:
        return DiagnosticFinding("Machine", "GPU", "absent", "torch finds none; nothing but speed depends on it")
    return DiagnosticFinding("Machine", "GPU", "good", f"{', '.join(names)}: taciturn run --device cuda")


def _extras() -> Iterator[DiagnosticFinding]:
    """The optional parts that the installed package names itself."""
    for extra in sorted(_extra_names() - WANTED_BY_TESTS):
        needs = _needs(extra)
        lacking = [str(need.name) for need in needs if not _met(need)]
        if lacking:
            advice = f"pip install 'taciturn[{extra}]'"
            yield DiagnosticFinding("Extras", extra, "absent", f"not installed ({', '.join(lacking)})", advice)
        else:
            found = ", ".join(f"{need.name} {metadata.version(need.name)}" for need in needs)
            yield DiagnosticFinding("Extras", extra, "good", found)


def _extra_names() -> set[str]:
    try:
        return set(metadata.metadata("taciturn").get_all("Provides-Extra") or ())
    except metadata.PackageNotFoundError:  # run from its folder, without having been installed
        return set()


def _needs(extra: str) -> list[Requirement]:
    """What the core (no extra) or an extra asks for on this machine."""
    try:
        asked = [Requirement(text) for text in metadata.requires("taciturn") or ()]
    except metadata.PackageNotFoundError:
        return []
    if not extra:
        return [need for need in asked if need.marker is None]
    own = [need for need in asked if need.marker is not None and need.marker.evaluate({"extra": extra})]
    others = [more for need in own if need.name == "taciturn" for name in sorted(need.extras) for more in _needs(name)]
    return [*(need for need in own if need.name != "taciturn"), *others]


def _met(need: Requirement) -> bool:
    try:
        return need.specifier.contains(metadata.version(need.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False


def _data() -> Iterator[DiagnosticFinding]:
    folder = data_folder()
    chosen = "TACITURN_DATA" if os.environ.get("TACITURN_DATA") else "the default; TACITURN_DATA names another"
    yield DiagnosticFinding("Data", "folder", "good" if folder.is_dir() else "absent", f"{folder} ({chosen})")
    for name in SOURCES:
        source = SOURCES[name]
        if not source.published:
            continue
        if source.find is None:
            yield DiagnosticFinding("Data", name, "good", "comes with Taciturn")
            continue
        try:
            yield DiagnosticFinding("Data", name, "good", str(source.find(folder)))
        except TaciturnError:
            yield DiagnosticFinding("Data", name, "absent", "not there", source.origin)


def _places() -> Iterator[DiagnosticFinding]:
    yield _place("runs", Path("runs"), "where 'taciturn run' writes unless --out names another place")
    yield _place(
        "state",
        state_folder(),
        "the heads of ledgers, which show whether one was set back, and the keys that sign them",
    )
    yield _place("temporary", Path(tempfile.gettempdir()), "for records that do not fit into memory")


def _place(name: str, path: Path, use: str) -> DiagnosticFinding:
    """A place to write to: it, or the first folder above it that is there, must be writable and have room."""
    there = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        return DiagnosticFinding("Places", name, "bad", f"{path.absolute()} cannot be written to", f"it is {use}")
    free = shutil.disk_usage(there).free
    words = f"{path.absolute()}, {size_text(free)} free: {use}"
    if free < LITTLE_ROOM:
        return DiagnosticFinding("Places", name, "bad", words, "make room: a run that cannot write stops")
    return DiagnosticFinding("Places", name, "good", words)


def as_json(findings: list[DiagnosticFinding]) -> dict[str, Any]:
    """All of it as one object."""
    return {"good": all(one.state != "bad" for one in findings), "findings": [one._asdict() for one in findings]}
