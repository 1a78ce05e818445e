"""Check what the sdist and the wheels contain: python scripts/check_distributions.py dist [--complete].

With --complete, the sdist and a wheel for every platform of a release must be there.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

PLATFORMS = (
    ("manylinux", "x86_64"), ("manylinux", "aarch64"), ("musllinux", "x86_64"), ("musllinux", "aarch64"),
    ("macosx", "x86_64"), ("macosx", "arm64"),
)  # fmt: skip
LIBRARY = "taciturn/kernels/_compiled.abi3.so"
SOURCE = Path(__file__).parents[1] / "src"
NEVER = {"tests", "benchmarks", "docs", "examples", "deploy", "__pycache__"}


def problems_of(path: Path) -> list[str]:
    """List what is missing from one distribution, and what does not belong in it."""
    return [f"{path.name}: {problem}" for problem in (_wheel if path.suffix == ".whl" else _sdist)(path)]


def _wheel(path: Path) -> Iterator[str]:
    names = set(zipfile.ZipFile(path).namelist())
    if "-cp311-abi3-" not in path.name:
        yield "is not an abi3 wheel for Python 3.11 and newer"
    if LIBRARY not in names:
        yield f"has no {LIBRARY}: the kernels were not compiled"
    yield from (f"has no {name}" for name in sorted(_package() - names) if not name.endswith((".c", ".h")))
    yield from _strange(names - {LIBRARY})
    yield from (f"has {name}, which only a build needs" for name in sorted(names) if name.endswith((".c", ".h")))


def _sdist(path: Path) -> Iterator[str]:
    with tarfile.open(path) as archive:
        names = {str(PurePosixPath(*PurePosixPath(each.name).parts[1:])) for each in archive if each.isfile()}
    wanted = {f"src/{name}" for name in _package()} | {"LICENSE", "README.md", "pyproject.toml", "setup.py"}
    yield from (f"has no {name}" for name in sorted(wanted - names))
    yield from _strange(names)


def _strange(names: set[str]) -> Iterator[str]:
    for name in sorted(names):
        inside = set(PurePosixPath(name.removeprefix("src/taciturn/").removeprefix("taciturn/")).parts[:-1])
        top = PurePosixPath(name).parts[0]
        if top in NEVER or "__pycache__" in inside or name.endswith((".so", ".pyc")):
            yield f"has {name}, which does not belong in it"


def _package() -> set[str]:
    """Files of the package in this checkout, without what a build leaves there."""
    files = (path for path in (SOURCE / "taciturn").rglob("*") if path.is_file())
    return {
        path.relative_to(SOURCE).as_posix()
        for path in files
        if path.suffix not in {".so", ".pyc"} and "__pycache__" not in path.parts
    }


def _missing_platforms(paths: list[Path]) -> Iterator[str]:
    if not any(path.name.endswith(".tar.gz") for path in paths):
        yield "there is no sdist"
    for system, machine in PLATFORMS:
        if not any(f"-{system}" in path.name and path.name.endswith(f"_{machine}.whl") for path in paths):
            yield f"there is no wheel for {system} {machine}"


def main() -> int:
    """Print every problem; the exit code is 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--complete", action="store_true", help="a wheel for every platform must be there")
    given = parser.parse_args()
    paths = sorted([*given.folder.glob("*.whl"), *given.folder.glob("*.tar.gz")])
    problems = [problem for path in paths for problem in problems_of(path)]
    problems += _missing_platforms(paths) if given.complete else []
    problems += [] if paths else [f"there is no distribution in {given.folder}"]
    print(*(problems or [f"{len(paths)} distributions are complete"]), sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
