"""The site builds without a warning, notebooks included; links lead somewhere, nothing comes from elsewhere."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from taciturn.settings.settings import FIELDS
from tests.cli import warm
from tests.cli.helpers import ROOT, environment

pytest.importorskip("sphinx", reason="the site needs pip install 'taciturn[docs]'")

LOADING = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}
BUILD = """
import gc, sys
from sphinx.cmd.build import main
gc.disable()  # a short process that keeps nearly all it makes: to search it takes a fifth of the time
sys.exit(main(sys.argv[1:]))
"""
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@dataclass
class Page(HTMLParser):
    """What a page links to, what it loads, and where it can be linked to."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in LOADING and LOADING[tag] in found and "search" not in found.get("rel", ""):
            self.loads.append(found[LOADING[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    options = ["-W", "--keep-going", "-q", "-b", "html", "-d", str(folder / "doctrees")]
    words = [*options, str(ROOT / "docs"), str(folder / "html")]
    done = warm.run(["-c", BUILD, *words], ROOT, environment(), timeout=600.0)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    found = {path: Page() for path in site.rglob("*.html")}
    for path, page in found.items():
        page.feed(path.read_text(encoding="utf-8"))
    return found


def test_every_link_within_the_site_leads_to_its_place(site: Path, pages: dict[Path, Page]) -> None:
    assert len(pages) > 30
    for path, page in pages.items():
        for link in page.links:
            address = urlsplit(link)
            if not address.scheme:
                target = (path.parent / unquote(address.path)).resolve() if address.path else path
                assert target.is_relative_to(site) and target.is_file(), f"{path.name}: {link}"
                if address.fragment and target in pages:
                    assert unquote(address.fragment) in pages[target].anchors, f"{path.name}: {link}"


def test_a_page_opened_from_the_disk_asks_no_other_machine(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for load in page.loads:
            address = urlsplit(load)
            assert address.scheme in {"", "data"} and not address.netloc, f"{path.name} loads {load}"
            if address.path and not address.scheme:
                assert (path.parent / unquote(address.path)).is_file(), f"{path.name} loads {load}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet
    for picture in site.rglob("*.svg"):
        assert not re.search(r"(href|src)=\"https?:", picture.read_text(encoding="utf-8")), picture


def test_the_reference_is_complete(site: Path) -> None:
    flags = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    table = (site / "reference" / "settings.html").read_text(encoding="utf-8")
    for name, entry in FIELDS.items():
        assert f'id="cmdoption-taciturn-run-{name.replace("_", "-")}"' in flags, name
        assert f">{name}</span>" in table, name
        assert entry.metadata["group"] in table
    for name in _commands():
        assert f'id="{name.replace(" ", "-")}"' in flags, name


def _commands() -> Iterator[str]:
    import click

    from taciturn.cli.command_line import cli

    def below(group: click.Command, path: str) -> Iterator[str]:
        yield path
        for name, command in getattr(group, "commands", {}).items():
            yield from below(command, f"{path} {name}")

    return below(cli, "taciturn")


def test_the_pictures_are_those_that_the_program_draws(tmp_path: Path) -> None:
    committed = ROOT / "docs" / "pictures"
    runpy.run_path(str(committed / "draw.py"))["draw_all"](tmp_path)
    drawn = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert drawn.keys() == {path.name for path in committed.glob("*.svg")}
    for name, picture in drawn.items():
        assert _words(picture) == _words((committed / name).read_text(encoding="utf-8")), name


def _words(picture: str) -> list[str]:
    """The text in a picture; the positions of its lines are up to the drawing library."""
    return re.findall(r">([^<>]*\S[^<>]*)</text>", picture)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_its_outputs(notebook: Path) -> None:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells if cell["cell_type"] == "code")
