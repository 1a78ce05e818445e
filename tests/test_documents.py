"""Every example runs, and every snippet of the README and the docs does what it says."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from taciturn.data import DataOptions, load_unmapped
from tests.cli import warm
from tests.cli.helpers import ROOT, environment

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
TUTORIAL = [
    DOCS / "tutorial" / f"{name}.md"
    for name in ("first-run", "own-table", "private-budget", "use-the-model", "reading-the-report")
]
ELSEWHERE = {"federate-four-sites.md", "federate-five-sites.md"}  # of several parties: tests/federation/test_journey.py
SETUP = {"make", "git", "cd", "mkdir", "cp"}  # they set up a checkout, or a folder in it: the tests have one
LIBRARIES = ("sklearn.datasets", "sklearn.ensemble", "sklearn.model_selection", "sklearn.pipeline", "pandas", "polars")
COMES_ALONG = {"taciturn", "numpy", "scipy", "matplotlib"}  # with Taciturn itself
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def snippets(page: Path, language: str) -> list[str]:
    return [code for kind, code in BLOCK.findall(page.read_text()) if kind == language]


SINGLE = [
    page
    for page in PAGES
    if page not in TUTORIAL and page.name not in ELSEWHERE and (snippets(page, "sh") or snippets(page, "python"))
]


@dataclass(frozen=True)
class Reader:
    """A reader who follows a page in its order, in a separate folder."""

    folder: Path
    pictures: bool = False  # whether the reports of runs have them; what `taciturn plot` draws is always drawn

    def follow(self, page: Path) -> None:
        """Type the commands and save the files of a page; check that a tutorial shows what was printed."""
        printed = ""
        for language, code in BLOCK.findall(page.read_text()):
            match language:
                case "sh":
                    lines = code.replace("\\\n", " ").splitlines()
                    printed = "\n".join(self._type(line) for line in lines)
                case "python":
                    self._python(code)
                case "text" if page in TUTORIAL and printed:
                    self._compare(code, printed)

    def _type(self, line: str) -> str:
        words = shlex.split(line, comments=True)
        code = int(found[1]) if (found := re.search(r"# exit code (\d)$", line)) else 0
        match words:
            case []:
                return ""
            case ["taciturn", *rest]:
                return self._run(["-m", "taciturn", *rest], code)
            case ["python", file, *rest]:
                return self._run(["-c", (self.folder / file).read_text(), *rest], code)
            case [first, *_] if first in SETUP:
                return ""
        raise AssertionError(f"a reader cannot type this: {line}")

    def _python(self, code: str) -> None:
        """A snippet that begins with a file's name is saved and imported, any other is run."""
        if name := re.match(r"# (\w+)\.py\n", code):
            (self.folder / f"{name[1]}.py").write_text(code)
            code = f"import {name[1]}"
        self._run(["-c", code], 0)

    def _run(self, words: list[str], code: int) -> str:
        done = warm.run(words, self.folder, environment(), pictures=self.pictures, loaded=LIBRARIES)
        assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def _compare(self, shown: str, printed: str) -> None:
        """All but numbers and identifiers: noise and clocks are others every time."""
        there = [_shape(line) for line in printed.splitlines()]
        for line in shown.splitlines():
            assert _shape(line) in there, f"the page shows\n{line}\nand the command printed\n{printed}"


def _shape(line: str) -> str:
    return " ".join(re.sub(r"\b[0-9a-f]{12}\b|\d[\d.,]*(e-?\d+)?", "0", line).split())


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """In a folder with the examples in it, as a user's checkout has."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return Reader(tmp_path)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(example: Path, reader: Reader) -> None:
    done = warm.run(["-c", example.read_text()], reader.folder, environment(), pictures=False, loaded=LIBRARIES)
    assert done.returncode == 0 and done.stdout, done.stderr


def test_the_tutorial_can_be_followed(reader: Reader) -> None:
    for page in TUTORIAL:
        reader.follow(page)


def test_the_tutorial_says_what_constant_answers_would_give() -> None:
    text = " ".join(TUTORIAL[0].read_text().split())
    assert "--test-share 0.25" in text and "--partition-key 7" in text
    heart = ROOT / "examples" / "heart"
    options = DataOptions(
        str(heart / "heart.csv"), schema=str(heart / "schema.toml"), test_share=0.25, partition_key=7, private=True
    )
    held_out = load_unmapped(options).test
    assert held_out is not None
    of, ill = len(held_out.y), int(held_out.y[:, 1].sum())
    no, yes = (f"{100 * wrong / of:.0f} %" for wrong in (ill, of - ill))
    assert f'{ill} of these {of} patients are ill: always answering "no" would give {no}, always "yes" {yes}' in text


@pytest.mark.parametrize("page", SINGLE, ids=lambda path: path.name)
def test_a_page_can_be_followed(page: Path, reader: Reader) -> None:
    replace(reader, pictures=page.name == "README.md").follow(page)


def test_pages_can_be_followed_one_after_the_other_in_one_folder() -> None:
    """No command writes what another page has written: it would be refused."""
    written: dict[str, set[str]] = {}
    for page in (page for page in PAGES if page.name not in ELSEWHERE):
        for target in _written(page):
            written.setdefault(target, set()).add(page.name)
    assert {target: pages for target, pages in written.items() if len(pages) > 1} == {}


def test_nothing_that_a_page_writes_is_in_the_repository() -> None:
    """A reader's file, committed by mistake: the page's own command would refuse to write it."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is not a checkout")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = set(listed.stdout.splitlines())
    written = {target for page in PAGES for target in _written(page)}
    assert {"draft.toml", "effects.png"} <= written
    assert {
        name for name in tracked if name in written or name.startswith(tuple(f"{one}/" for one in written))
    } == set()


def _written(page: Path) -> Iterator[str]:
    """Yield the files and folders that a reader of a page writes."""
    lines = "\n".join(snippets(page, "sh")).replace("\\\n", " ")
    yield from re.findall(r"(?:--out|--plot|ledger init|config init|mkdir) +([\w./-]+)", lines)
    code = "\n".join(snippets(page, "python"))
    yield from re.findall(r"(?:save|savefig|to_csv|write_text|out)(?:\(|=)\"([\w./-]+)\"", code)


@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page, "python")], ids=lambda path: path.name)
def test_a_page_names_the_install_of_what_its_examples_import(page: Path) -> None:
    text = page.read_text()
    own = {name for code in snippets(page, "python") for name in re.findall(r"^# (\w+)\.py$", code, re.MULTILINE)}
    for found in BLOCK.finditer(text):
        if found[1] != "python":
            continue
        imported = re.findall(r"^(?:import|from) (\w+)", found[2], re.MULTILINE)
        for module in set(imported) - own - COMES_ALONG - sys.stdlib_module_names:
            named = re.search(rf"pip install [^\n`]*\b{module}\b", text[: found.start()])
            assert named, f"{page.name} imports {module} before it says how to install it"


def test_the_readmes_python_run_takes_at_most_six_lines() -> None:
    code = snippets(ROOT / "README.md", "python")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 6


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_pages_that_the_code_names_are_there() -> None:
    files = [path for folder in ("src", "examples", "benchmarks") for path in (ROOT / folder).rglob("*")]
    for path in files:
        if path.suffix in {".py", ".txt", ".c", ".h", ".html"} and "egg-info" not in str(path):
            for named in re.findall(r"docs/[\w/.-]+\.(?:md|png|ipynb)", path.read_text(encoding="utf-8")):
                assert (ROOT / named).exists(), f"{path} names {named}"
