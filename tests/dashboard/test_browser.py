"""The page in a real browser, in one long session: an empty folder, runs that appear, grow, and are opened."""

from __future__ import annotations

import csv
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.browsers import CHROMIUM
from tests.cli.helpers import CERTIFIED, COMMAND, PATIENCE, environment, wait_for_rows

pytestmark = pytest.mark.browser
QUIETLY = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
SECONDS = 1000.0  # as the browser counts them
LEGEND = '[data-metric="{}"] .u-series:not(.band, :first-child)'


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    play = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine: install one to see the page in it")
    with play.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=[*QUIETLY, "--disable-component-update"])
        yield started
        started.close()


class Session:
    """A dashboard in its own process, a page of it, and all requests and console messages of that page."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "dashboard", str(folder), "--no-open", "--port", "0"],
            env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[0]
        self.page = browser.new_page(viewport={"width": 1440, "height": 1000}, accept_downloads=True)
        self.page.set_default_timeout(60 * SECONDS)
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type != "log" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def names(self) -> list[str]:
        return list(self.page.locator("#rows th").all_inner_texts())

    def row(self, name: str) -> Any:
        return self.page.locator(f'#rows tr:has(th[title="{name}"])')

    def open(self, name: str) -> None:
        self.row(name).locator("th").click()
        self.until("name => document.getElementById('title').textContent === name", name)
        self.page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)))")

    def until(self, condition: str, given: Any = None) -> None:
        """Wait for a condition; playwright's own function evaluates text, which the page's policy forbids."""
        for _ in range(1200):
            if self.page.evaluate(condition, given):
                return
            self.page.wait_for_timeout(0.05 * SECONDS)
        raise AssertionError(f"never: {condition} {given}")

    def lines(self, metric: str) -> Any:
        """Return the legend's rows of a chart; the first row is the round."""
        return self.page.locator(LEGEND.format(metric))

    def wait_for_lines(self, metric: str, count: int) -> None:
        selector = LEGEND.format(metric)
        self.until("() => document.getElementById('charts').ariaBusy === 'false'")
        self.until("([selector, count]) => document.querySelectorAll(selector).length === count", [selector, count])

    def last_round(self) -> int:
        words = self.page.locator('[data-metric="noise"]').get_attribute("aria-label")
        found = re.search(r"round ([\d,]+)", words or "")
        return int(found[1].replace(",", "")) if found else 0


@pytest.fixture(scope="module")
def session(browser: Any, made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("shown")
    opened = Session(browser, folder)
    try:
        opened.page.goto(opened.address)
        opened.page.wait_for_selector("#empty:not([hidden])")
        assert f"taciturn run --total-epsilon 1 --out {folder}/first" in opened.page.inner_text("#empty")
        opened.page.evaluate("window.sameDocument = true")
        staged = Path(shutil.copytree(made, folder.with_name("staged")))
        shutil.copytree(made / "budgets", staged / "cut")
        (staged / "cut" / "summary.json").write_text('{"runs": [')
        for run in staged.iterdir():
            run.rename(folder / run.name)
        opened.until("() => document.getElementById('count').textContent === '4 runs'")
        yield opened
        reloaded = not opened.page.evaluate("window.sameDocument")
    finally:
        opened.process.send_signal(signal.SIGINT)
        _, errors = opened.process.communicate(timeout=PATIENCE)  # Ctrl-C ends it though a page is open
    assert (opened.process.returncode, errors) == (0, "stopped\n")
    assert not reloaded, "the page was loaded once"
    places = {f"{parts.scheme}://{parts.netloc}/" for parts in map(urlsplit, opened.asked)}
    assert places <= {opened.address, "blob:///"}, "the page asked another host"
    assert opened.complaints == []


def test_the_list_is_sorted_filtered_and_gone_through_by_keys(session: Session) -> None:
    page = session.page
    assert sorted(session.names()) == ["budgets", "cut", "paper", "sweep/hardened"]
    assert page.locator("#own-note").is_visible()
    assert "†" in session.row("budgets").inner_text()
    assert "†" not in session.row("paper").inner_text()
    page.click("[data-key=name] button")
    assert page.locator("[data-key=name]").get_attribute("aria-sort") == "ascending"
    assert session.names() == ["budgets", "cut", "paper", "sweep/hardened"]
    page.click("[data-key=name] button")
    assert session.names() == ["sweep/hardened", "paper", "cut", "budgets"]
    page.focus("[data-key=rounds] button")
    page.keyboard.press("Enter")
    assert session.names() == ["cut", "sweep/hardened", "paper", "budgets"]

    page.keyboard.press("/")
    page.keyboard.type("certified hard")
    assert session.names() == ["sweep/hardened"]
    assert page.inner_text("#count") == "1 of 4 runs"
    page.keyboard.press("Escape")
    assert len(session.names()) == 4
    focused = "document.activeElement.dataset.id === document.querySelectorAll('#rows tr')[{}].dataset.id"
    assert page.evaluate(focused.format(0))
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused.format(2))
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    assert page.inner_text("#title") == "sweep/hardened"
    page.keyboard.press("Space")
    assert session.row("sweep/hardened").locator("input").is_checked()
    assert "sort=rounds" in page.url and "with=" in page.url
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()
    page.click("#untick")


def test_a_damaged_run_has_its_reason_in_its_row(session: Session) -> None:
    assert "damaged: cut/summary.json is damaged" in session.row("cut").inner_text()
    session.open("cut")
    assert "cut/summary.json is damaged" in session.page.inner_text("#facts")
    session.wait_for_lines("noise", 2)


def test_curves_are_drawn_over_each_other_and_read_by_keys(session: Session) -> None:
    page = session.page
    session.open("budgets")
    session.wait_for_lines("test_error", 2)
    assert page.locator('figure:has([data-metric="test_error"]) .own').is_visible()
    assert not page.locator('figure:has([data-metric="noise"]) .own').is_visible()
    for name in ("paper", "sweep/hardened"):
        session.row(name).locator("input").check()
    session.wait_for_lines("consensus_residual", 5)
    assert not page.locator("#legend").is_visible(), "five names fit into the charts"
    names = session.lines("test_error").evaluate_all("all => all.map(row => row.querySelector('.u-label').textContent)")
    colours = session.lines("test_error").evaluate_all(
        "all => all.map(row => getComputedStyle(row.querySelector('.u-marker')).borderBottomColor)"
    )
    assert len(set(names)) == len(set(colours)) == 5
    drawn = page.locator('[data-metric="test_error"] canvas').evaluate(COLOURS_DRAWN)
    assert all(min(distance(colour, pixel) for pixel in drawn) <= 8 for colour in colours), "every line is drawn"
    page.focus('[data-metric="test_error"]')
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    spoken = page.locator('figure:has([data-metric="test_error"]) p').inner_text()
    assert spoken.startswith("Test error, round 2: ")
    session.row("cut").locator("input").check()
    session.wait_for_lines("consensus_residual", 7)
    assert page.inner_text("#legend").count("#") == 7, "of many lines the charts show numbers"
    page.click("#untick")
    session.wait_for_lines("consensus_residual", 2)


def test_the_meter_the_settings_and_the_ledger(session: Session) -> None:
    page = session.page
    session.open("budgets")
    page.wait_for_selector(".meter")
    assert page.inner_text(".promise").startswith("Simulated:")
    assert page.locator(".meter").count() == 2
    assert "north, south, west" in page.locator(".meter").first.inner_text()
    assert page.locator("[role=meter]").first.get_attribute("aria-valuetext") == "spent ε 1 of 1, 0 left"
    page.click("#settings summary")
    page.select_option("#other", label="paper")
    page.wait_for_selector("tr.differs")
    page.check("#only")
    shown = dict(page.locator("#settings-table tbody tr").evaluate_all(
        "all => all.map(r => [r.children[0].textContent, r.children[1].textContent + ' ' + r.children[2].textContent])"
    ))  # fmt: skip
    assert shown["mode"] == "certified paper"
    assert "loss" not in shown
    assert "beside=" in page.url
    page.click("#ledger summary")
    page.wait_for_selector("#ledger-content table")
    assert "hash chain is intact" in page.inner_text("#ledger-content")
    session.open("paper")
    session.until("() => document.querySelector('.promise')?.textContent.startsWith('No end-to-end guarantee')")


def test_files_are_downloaded_and_say_when_they_are_the_owners(session: Session, tmp_path: Path) -> None:
    page = session.page
    session.open("budgets")
    session.wait_for_lines("test_error", 2)

    def saved(selector: str) -> Path:
        with page.expect_download() as waiting:
            page.click(selector)
        path = tmp_path / str(waiting.value.suggested_filename)
        waiting.value.save_as(path)
        return path

    own = saved('figure:has([data-metric="test_error"]) button')
    assert own.name == "budgets-test_error-local-only.svg"
    assert "for the data owner only" in own.read_text()
    assert own.read_text().startswith("<svg")
    assert saved('figure:has([data-metric="noise"]) button').name == "budgets-noise.svg"
    public, private = saved("#downloads a:text-is('CSV')"), saved("#downloads a:has-text('local-only')")
    assert (public.name, private.name) == ("budgets.csv", "budgets-local-only.csv")
    with private.open() as file:
        assert all(row["test_error"] for row in csv.DictReader(file))


def distance(first: str, second: str) -> int:
    """Return the largest difference between two colours, rgb(r, g, b), in one channel."""
    channels = zip(re.findall(r"\d+", first), re.findall(r"\d+", second), strict=True)
    return max(abs(int(a) - int(b)) for a, b in channels)


COLOURS_DRAWN = """canvas => {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const found = new Set();
  for (let i = 0; i < pixels.length; i += 4) {
    if (pixels[i + 3] === 255) found.add(`rgb(${pixels.slice(i, i + 3).join(", ")})`);
  }
  return [...found];
}"""
CONTRASTS = """() => {
  const linear = (v) => v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (e) => {
    const colour = numbers(getComputedStyle(e).backgroundColor);
    return colour.length < 4 || colour[3] > 0 ? colour : behind(e.parentElement);
  };
  const ratio = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((p, q) => p - q);
    return (high + 0.05) / (low + 0.05);
  };
  const words = (e) => [...e.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const ink = (e) => numbers(e instanceof SVGElement ? getComputedStyle(e).fill : getComputedStyle(e).color);
  const shown = [...document.querySelectorAll("body *")].filter((e) => e.getClientRects().length && words(e));
  return {
    texts: shown.map((e) => [e.textContent, ratio(ink(e), behind(e))]),
    page: light(numbers(getComputedStyle(document.body).backgroundColor)),
  };
}"""
LINES = "import('./charts.js').then(({ palette }) => [palette().lines, palette().page])"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_in_light_and_dark_and_in_a_narrow_window(session: Session, scheme: str) -> None:
    page = session.page
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 400, "height": 900})
    session.until("() => document.querySelector('[data-metric=noise] canvas').clientWidth < 400")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    found = page.evaluate(CONTRASTS)
    assert (found["page"] < 0.05) == (scheme == "dark")
    assert len(found["texts"]) > 50
    assert {text for text, ratio in found["texts"] if ratio < 4.5} == set()
    lines, behind = page.evaluate(LINES)
    if scheme == "dark":  # in light they are Okabe and Ito's own, with names in ink beside them
        assert min(ratio(line, behind) for line in lines) >= 3.0
    page.set_viewport_size({"width": 1440, "height": 1000})


def ratio(first: str, second: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted((light(first), light(second)))
    return (high + 0.05) / (low + 0.05)


def test_a_page_updates_while_a_run_continues(session: Session, tmp_path: Path) -> None:
    page, folder = session.page, Path(session.page.inner_text("#folder"))
    going = subprocess.Popen(
        [*COMMAND, "run", *CERTIFIED, "--rounds", "1000000", "--evaluate-every", "1", "--out", str(folder / "live")],
        env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for_rows(folder / "live", 3)
        session.row("live").wait_for()
        assert "running" in session.row("live").inner_text()
        session.open("live")
        session.wait_for_lines("noise", 1)
        first = session.last_round()
        for _ in range(1200):
            if session.last_round() > first:
                break
            page.wait_for_timeout(0.05 * SECONDS)
        assert session.last_round() > first
        assert page.inner_text("#news").startswith("1 running")
        session.until("() => document.querySelector('.figures')?.textContent.includes('next round')")
    finally:
        going.send_signal(signal.SIGINT)
        going.wait(timeout=PATIENCE)
    session.until("() => document.getElementById('facts').textContent.startsWith('stopped after')")
    assert f"taciturn resume {folder}/live" in page.inner_text("#facts")
    assert "live: stopped" in page.inner_text("#news")
