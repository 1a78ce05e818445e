"""How fast is `taciturn dashboard` with 200 runs of 20,000 rounds? Measured in a real browser.

    taciturn bench dashboard              writes benchmarks/results/dashboard.json
    taciturn bench dashboard --picture    makes docs/images/dashboard.png instead

The folders are copies of one real run whose metrics have 20,000 evaluated rounds. The files of metrics are hard links
to ten different ones, which saves disk space and does not affect the server. Times are milliseconds from the start of
the navigation, medians of several visits with an empty cache, and ratios to a bare static page that the same browser
opened in the same run. The first visit is to a server that has just started and has read nothing.

Takes minutes.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from benchmarks.program import DOCS, ROOT, arguments, write_results
from PIL import Image

import taciturn
from taciturn.core.storage import to_json

PICTURE = DOCS / "images" / "dashboard.png"
RUNS, ROUNDS, DIFFERENT, VISITS = 200, 20_000, 10, 7
COLOURS = 128  # of the picture
BARE = '<!doctype html><html lang="en"><title>bare</title><h1>A bare page</h1><p>Nothing but text.</p></html>'
QUIETLY = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
HOSPITALS: dict[str, Any] = {
    "data": ROOT / "examples" / "heart" / "heart.csv",
    "schema": ROOT / "examples" / "heart" / "schema.toml",
    "test_share": 0.25,
    "total_records": 700,
}
WATCH = f"""
  const seen = {{}};
  window.seen = seen;
  const note = (name) => {{
    if (!(name in seen)) {{ seen[name] = null; requestAnimationFrame(() => {{ seen[name] = performance.now(); }}); }}
  }};
  new MutationObserver(() => {{
    if (document.querySelectorAll("#rows tr").length === {RUNS}) note("table");
    if (document.querySelector(".uplot canvas")) note("chart");
  }}).observe(document, {{ subtree: true, childList: true }});
"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def make_runs(folder: Path) -> None:
    """200 run folders in the real format."""
    first = taciturn.run(**HOSPITALS, total_epsilon=1, rounds=2, out=folder / "run-000").path
    for name in ("config.toml", "summary.json", "local-only/summary.json"):
        text = (first / name).read_text()
        (first / name).write_text(
            text.replace("rounds = 2", f"rounds = {ROUNDS}").replace('"rounds": 2', f'"rounds": {ROUNDS}')
        )
    metrics = [_metrics(folder, seed) for seed in range(DIFFERENT)]
    for i in range(1, RUNS):
        shutil.copytree(first, folder / f"run-{i:03}")
    for i in range(RUNS):
        run = folder / f"run-{i:03}"
        for source, place in zip(metrics[i % DIFFERENT], ("metrics.jsonl", "local-only/metrics.jsonl"), strict=True):
            (run / place).unlink()
            os.link(source, run / place)
        os.utime(run / "config.toml", (1.7e9 + 3600 * i,) * 2)


def _metrics(folder: Path, seed: int) -> tuple[Path, Path]:
    """Two files of 20,000 lines: what anybody may see, and what is the owner's."""
    rng = np.random.default_rng(seed)
    t = np.arange(1, ROUNDS + 1)
    error, residual = (
        0.08 + 0.3 / np.sqrt(t) + 0.01 * rng.random(ROUNDS),
        6.0 / np.sqrt(t) * rng.lognormal(0, 0.1, ROUNDS),
    )
    nothing = dict.fromkeys(("test_error", "train_objective", "seconds"))
    public, local = folder / f".metrics-{seed}", folder / f".local-{seed}"
    with public.open("w") as first, local.open("w") as second:
        for i in range(ROUNDS):
            label = {"run": 0, "algorithm": "objp", "epsilon": 1.0, "seed": 1, "round": i + 1}
            more = {"consensus_residual": residual[i], "noise": 0.0044194, "rho": 0.0037266, "eta": 268.34}
            first.write(
                to_json(label | nothing | more | {"bytes_up": 528 * (i + 1), "bytes_down": 528 * (i + 1)}) + "\n"
            )
            own = {"train_objective": 2.0 * error[i], "seconds": 1e-4 * i, "test_error": error[i]}
            second.write(to_json({"run": 0, "round": i + 1} | own) + "\n")
    return public, local


@contextmanager
def dashboard(folder: Path) -> Iterator[str]:
    """A dashboard that has just started, at this address."""
    command = [sys.executable, "-m", "taciturn", "dashboard", folder.name, "--no-open", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder.parent)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[0]
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def bare_page() -> Iterator[str]:
    """A page of a few words, at this address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "index.html").write_text(BARE)
        (Path(folder) / "favicon.ico").touch()
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(QUIETLY))
        yield browser
        browser.close()


def visit(browser: Any, address: str, waits: tuple[str, ...]) -> dict[str, float]:
    """Milliseconds until the first paint, and until what is waited for is drawn."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(address)
    end = time.monotonic() + 60.0
    found: dict[str, Any] = {}
    while not all(found.get(name) for name in ("first_paint", *waits)):
        assert time.monotonic() < end, f"{address} never had {waits}: {found}"
        page.wait_for_timeout(20)
        found = {"first_paint": page.evaluate(PAINT), **page.evaluate("window.seen")}
    context.close()
    return found


def measure(out: Path) -> None:
    """Visit the dashboard, and write the times."""
    with tempfile.TemporaryDirectory() as name, chromium() as browser, bare_page() as bare:
        folder = Path(name)
        make_runs(folder)
        visit(browser, bare, ())
        plain = median(visit(browser, bare, ())["first_paint"] for _ in range(VISITS))
        with dashboard(folder) as address:
            first = visit(browser, address, ("table", "chart"))
            later = [visit(browser, address, ("table", "chart")) for _ in range(VISITS)]
    typical = {key: median(one[key] for one in later) for key in first}
    result = {
        "what": f"taciturn dashboard over {RUNS} runs of {ROUNDS:,} rounds, in Chromium",
        "milliseconds": {
            "bare page, first paint": round(plain),
            "first visit, server just started": {key: round(value) for key, value in first.items()},
            "later visits": {key: round(value) for key, value in typical.items()},
        },
        "over_a_bare_page": {
            "first visit, server just started": {key: round(value / plain, 1) for key, value in first.items()},
            "later visits": {key: round(value / plain, 1) for key, value in typical.items()},
        },
    }
    write_results(out, result, show=True)


def picture() -> None:
    """A page with a few runs on it, for the documents."""
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        folder = Path(name) / "runs"
        taciturn.run(total_epsilon=[1, 3], seeds=3, rounds=40, out=folder / "digits")
        taciturn.run(**HOSPITALS, total_epsilon=[1, 3, 8], seed=1, seeds=5, out=folder / "hospitals-budgets")
        taciturn.run(**HOSPITALS, total_epsilon=3, noise="hardened", out=folder / "hospitals")
        taciturn.run(
            **HOSPITALS, total_epsilon=8, rounds=60, algorithm="objpm", out=folder / "hospitals-several-updates"
        )
        with dashboard(folder) as address:
            page = browser.new_page(viewport={"width": 1280, "height": 1010})
            page.goto(address)
            page.locator('#rows tr:has(th[title="hospitals-budgets"]) th').click()
            page.wait_for_selector(".meter")
            page.wait_for_selector(".uplot canvas")
            page.wait_for_timeout(500)
            shot = Image.open(io.BytesIO(page.screenshot()))
    shot.quantize(COLOURS).save(PICTURE, optimize=True)
    print(f"{PICTURE}: {PICTURE.stat().st_size // 1000} kB")


def main() -> None:
    """Measure, or make the picture."""
    parser = arguments(__doc__, "dashboard")
    parser.add_argument("--picture", action="store_true", help="make the picture, and measure nothing")
    given = parser.parse_args()
    if given.picture:
        picture()
    else:
        measure(given.out)


if __name__ == "__main__":
    main()
