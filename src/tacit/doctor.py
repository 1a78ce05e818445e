"""What Tacit finds on this machine: itself, the machine, the extras, the data, and the places it writes to."""

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

from tacit.data import SOURCES, data_folder
from tacit.data.memory import machine_memory, size_text
from tacit.errors import InputError
from tacit.kernels.library import LEVELS, level
from tacit.kernels.threads import cores
from tacit.state import state_folder
from tacit.version import VERSION

PARTS = ("Tacit", "Machine", "Extras", "Data", "Places")
WANTED_BY_TESTS = {"test", "docs"}  # extras of those who work on Tacit itself
LITTLE_ROOM = 10**9  # bytes


class Finding(NamedTuple):
    """One line: good, something that could be had, or something to mend."""

    part: str  # of PARTS
    name: str
    state: str  # "good", "absent" or "bad"
    words: str
    advice: str = ""


def examine() -> list[Finding]:
    """Everything, in the order of PARTS."""
    return [*_tacit(), *_machine(), *_extras(), *_data(), *_places()]


def _tacit() -> Iterator[Finding]:
    yield Finding("Tacit", "version", "good", f"{VERSION}, in {Path(__file__).parent}")
    yield Finding("Tacit", "Python", "good", platform.python_version())
    lacking = [str(need) for need in _needs("") if not _met(need)]
    if lacking:
        yield Finding("Tacit", "requirements", "bad", f"lacks {', '.join(lacking)}", "pip install tacit")
    if level():
        yield Finding("Tacit", "compiled", "good", f"built, for {LEVELS[level()]}")
    else:
        advice = (
            "install a C compiler, then install Tacit again; until then numpy does the same, two to four times slower"
        )
        yield Finding("Tacit", "compiled", "absent", "not built", advice)


def _machine() -> Iterator[Finding]:
    yield Finding("Machine", "system", "good", f"{platform.system()} {platform.machine()}")
    yield Finding("Machine", "cores", "good", str(cores()))
    yield Finding("Machine", "memory", "good", size_text(machine_memory()))
    yield _gpu()
    yield Finding("Machine", "randomness", "good", f"the operating system's; {len(os.urandom(32))} bytes came at once")


def _gpu() -> Finding:
    if util.find_spec("torch") is None:
        return Finding("Machine", "GPU", "absent", "cannot tell without torch", "pip install 'tacit[torch]'")
    import torch  # noqa: PLC0415  it takes its time

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    if not names:
        return Finding("Machine", "GPU", "absent", "torch finds none; nothing but speed depends on it")
    return Finding("Machine", "GPU", "good", f"{', '.join(names)}: tacit run --device cuda")


def _extras() -> Iterator[Finding]:
    """The optional parts that the installed package names itself."""
    for extra in sorted(_extra_names() - WANTED_BY_TESTS):
        needs = _needs(extra)
        lacking = [str(need.name) for need in needs if not _met(need)]
        if lacking:
            advice = f"pip install 'tacit[{extra}]'"
            yield Finding("Extras", extra, "absent", f"not installed ({', '.join(lacking)})", advice)
        else:
            found = ", ".join(f"{need.name} {metadata.version(need.name)}" for need in needs)
            yield Finding("Extras", extra, "good", found)


def _extra_names() -> set[str]:
    try:
        return set(metadata.metadata("tacit").get_all("Provides-Extra") or ())
    except metadata.PackageNotFoundError:  # run from its folder, without having been installed
        return set()


def _needs(extra: str) -> list[Requirement]:
    """What the core (no extra) or an extra asks for on this machine."""
    try:
        asked = [Requirement(text) for text in metadata.requires("tacit") or ()]
    except metadata.PackageNotFoundError:
        return []
    if not extra:
        return [need for need in asked if need.marker is None]
    own = [need for need in asked if need.marker is not None and need.marker.evaluate({"extra": extra})]
    others = [more for need in own if need.name == "tacit" for name in sorted(need.extras) for more in _needs(name)]
    return [*(need for need in own if need.name != "tacit"), *others]


def _met(need: Requirement) -> bool:
    try:
        return need.specifier.contains(metadata.version(need.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False


def _data() -> Iterator[Finding]:
    folder = data_folder()
    chosen = "TACIT_DATA" if os.environ.get("TACIT_DATA") else "the default; TACIT_DATA names another"
    yield Finding("Data", "folder", "good" if folder.is_dir() else "absent", f"{folder} ({chosen})")
    for name in SOURCES:
        source = SOURCES[name]
        if not source.published:
            continue
        if source.find is None:
            yield Finding("Data", name, "good", "comes with Tacit")
            continue
        try:
            yield Finding("Data", name, "good", str(source.find(folder)))
        except InputError:
            yield Finding("Data", name, "absent", "not there", source.origin)


def _places() -> Iterator[Finding]:
    yield _place("runs", Path("runs"), "where 'tacit run' writes unless --out names another place")
    yield _place(
        "state",
        state_folder(),
        "the heads of ledgers, which show whether one was set back, and the keys that sign them",
    )
    yield _place("temporary", Path(tempfile.gettempdir()), "for records that do not fit into memory")


def _place(name: str, path: Path, use: str) -> Finding:
    """A place to write to: it, or the first folder above it that is there, must be writable and have room."""
    there = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        return Finding("Places", name, "bad", f"{path.absolute()} cannot be written to", f"it is {use}")
    free = shutil.disk_usage(there).free
    words = f"{path.absolute()}, {size_text(free)} free: {use}"
    if free < LITTLE_ROOM:
        return Finding("Places", name, "bad", words, "make room: a run that cannot write stops")
    return Finding("Places", name, "good", words)


def as_json(findings: list[Finding]) -> dict[str, Any]:
    """All of it as one object."""
    return {"good": all(one.state != "bad" for one in findings), "findings": [one._asdict() for one in findings]}
