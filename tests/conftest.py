"""Settings for every test."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.cli import warm

settings.register_profile("taciturn", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("taciturn")
gc.disable()  # until all tests are collected: what imports make stays, and to search it for garbage takes seconds


PLAIN = {
    "api",
    "audit",
    "data",
    "experiments",
    "export",
    "planning",
    "runs",
    "settings",
    "training",
    "test_headline.py",
    "test_statements.py",
    "test_torch.py",
    "test_violations.py",
}  # folders and files whose tests make runs in this process
PROCESSES = ("test_security.py", "test_demo.py", "test_journey.py")  # they start many, and mostly wait
LONG = (  # the longest first: what is long and comes last leaves the other workers without work
    "test_documents.py",
    "test_site.py",
    "test_power_cut.py",
    "test_certified.py",
    "test_ranks.py",
    "test_process_group.py",
    "test_interrupted.py",
    "test_coordinator.py",
    "test_torch.py",
    "test_conformance.py",
    "test_train.py",
    "test_signed_ledgers.py",
    "test_copies.py",
    "test_sweep.py",
    "test_reservations.py",
    "test_reproduce.py",
    "test_heuristics.py",
    "test_browser.py",
    "test_violations.py",
    "test_benchmarks.py",
    "test_mnist14.py",
    "test_gpu.py",
    "test_frontier.py",
    "test_mnist.py",
    "test_checks.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """What takes too long for every day."""
    parser.addoption(
        "--all-states",
        action="store_true",
        help="let every single operation of a federation's disks fail, in every way",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; those with many processes among them, so that they overlap with others and not each other."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    heavy = [path for name in PROCESSES for path in files if path.name == name]
    others = [path for path in files if path not in heavy]
    rank = {name: number for number, name in enumerate(LONG)}
    order = sorted(others, key=lambda path: (rank.get(path.name, len(LONG)), -len(files[path])))
    for number, path in enumerate(heavy):
        order.insert(4 * number, path)
    items[:] = [item for path in order for item in files[path]]
    if sys.platform != "linux":
        for item in items:
            if any(item.get_closest_marker(name) for name in ("federation", "linux")):
                item.add_marker(pytest.mark.skip(reason="needs Linux: it reads /proc or starts confined programs"))


def pytest_collection_finish() -> None:
    """Nothing of what was collected is garbage, so no search for garbage need look at it again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The heads of ledgers that tests make are kept in a folder of the tests' own."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(autouse=True, scope="session")
def shared_feature_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """All workers of a session keep the features of published data sets in one folder, which begins empty."""
    base = tmp_path_factory.getbasetemp()
    os.environ["XDG_CACHE_HOME"] = str((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache")
    os.environ.pop("TACITURN_FEATURE_CACHE", None)


@pytest.fixture(autouse=True)
def no_records_are_tied(own_state_folder: None) -> None:
    """Every test begins ledgers of its own for the same few tables."""
    shutil.rmtree(Path(os.environ["XDG_STATE_HOME"]) / "taciturn" / "records", ignore_errors=True)


@pytest.fixture(autouse=True)
def plain_reports(request: pytest.FixtureRequest) -> None:
    """Words for pictures where no test looks at them: to draw them takes most of a small run's time."""
    if {request.path.parent.name, request.path.name} & PLAIN:
        request.getfixturevalue("monkeypatch").setattr("taciturn.reporting.report._picture", warm.in_words)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets, for the tests marked real_data."""
    folder = os.environ.get("TACITURN_DATA", "")
    if not (folder and (Path(folder) / "mnist").is_dir()):
        pytest.skip("set TACITURN_DATA to a folder that holds mnist/ to run this test")
    return Path(folder)


@pytest.fixture
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory, where there is one: for tests that write thousands of small files."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path_factory.mktemp("memory")
        return
    with tempfile.TemporaryDirectory(prefix="taciturn-", dir=memory) as folder:
        yield Path(folder)
