"""The benchmarks of a checkout: programs that read its tests and examples, and write its results, pages and pictures.

They are in the folder `benchmarks` of the repository, which no wheel contains. The docstring of a program says in its
first line what it measures, and in a sentence that begins with "Takes" how long it runs.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import taciturn

CHECKOUT = Path(taciturn.__file__).resolve().parents[2]
TAKES = re.compile(r"^Takes ([^.]+)\.", re.MULTILINE)


class RepositoryProgram(NamedTuple):
    """A program of the folder `benchmarks`."""

    module: str
    summary: str
    takes: str


def repository_programs(root: Path = CHECKOUT) -> dict[str, RepositoryProgram]:
    """Return the programs of a checkout by name; without a checkout there are none.

    Parameters
    ----------
    root : Path
        The folder that contains `pyproject.toml`, by default the one that this package was imported from.

    Returns
    -------
    dict
        The programs in the order of their names. Their docstrings are read, and nothing is imported.
    """
    if not (root / "pyproject.toml").is_file():
        return {}
    folder = root / "benchmarks"
    found = {}
    for path in sorted((*folder.glob("*.py"), *folder.glob("*/__main__.py"))):
        own = path.parent if path.name == "__main__.py" else path.with_suffix("")
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        takes = TAKES.search(text)
        if takes:
            summary = text.splitlines()[0].rstrip(".")
            program = RepositoryProgram(f"benchmarks.{own.name}", summary, " ".join(takes[1].split()))
            found[own.name.replace("_", "-")] = program
    return found


def run_program(program: RepositoryProgram, words: Sequence[str], root: Path = CHECKOUT) -> int:
    """Run a program in a process of its own, and return its exit code.

    Parameters
    ----------
    program : RepositoryProgram
        The program.
    words : sequence of str
        Its arguments.
    root : Path
        The checkout.
    """
    places = (str(root / "src"), str(root), os.environ.get("PYTHONPATH", ""))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}
    return subprocess.run([sys.executable, "-m", program.module, *words], env=environment, check=False).returncode
