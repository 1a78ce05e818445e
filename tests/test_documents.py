"""Every example runs, and every snippet of the README and the docs does what it says."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import COMMAND, ROOT, environment

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TYPED = [page for page in PAGES if page.name != "federation.md"]  # its agents stay up: tests/federation/test_journey.py
SETUP = {"make", "git", "cd"}  # the commands that set up a checkout, which is where the tests already are


def snippets(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples in it, as a user's checkout has."""
    folder = tmp_path_factory.mktemp("user")
    shutil.copytree(ROOT / "examples", folder / "examples")
    return folder


def run(command: list[str], cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment(), timeout=120, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(example: Path, place: Path) -> None:
    assert run([sys.executable, str(example)], place)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_python_snippets_run(page: Path, place: Path) -> None:
    for code in snippets(page, "python"):
        assert run([sys.executable, "-c", code], place)


@pytest.mark.parametrize("page", TYPED, ids=lambda path: path.name)
def test_shell_snippets_run(page: Path, place: Path, tmp_path: Path) -> None:
    """One after the other, in one folder, as a reader would type them."""
    folder = tmp_path / "reader"
    shutil.copytree(place / "examples", folder / "examples")
    for code in snippets(page, "sh"):
        for line in code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] not in SETUP:
                assert words[0] == "tacit", f"{page.name}: {line}"
                run([*COMMAND, *words[1:]], folder)


def test_the_readmes_python_run_takes_at_most_six_lines() -> None:
    code = snippets(ROOT / "README.md", "python")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 6


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
