"""Settings for every test."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

from taciturn.reporting import report
from tests.cli import warm

settings.register_profile("taciturn", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("taciturn")
PICTURE = report._picture
gc.disable()  # until all tests are collected: what imports make stays, and to search it for garbage takes seconds


MEMORY = Path("/dev/shm")
ROOM = 3 << 30  # bytes; the temporary folders of a whole session take less than half of it
PROCESSES = ("test_security.py", "test_demo.py", "test_journey.py")  # they start many, and mostly wait
LONG = (  # the longest first: what is long and comes last leaves the other workers without work
    "test_documents.py",
    "test_site.py",
    "test_power_cut.py",
    "test_certified.py",
    "test_hostile_server.py",
    "test_ranks.py",
    "test_process_group.py",
    "test_interrupted.py",
    "test_sum_power_cut.py",
    "test_sum_crashes.py",
    "test_evaluations.py",
    "test_sum_study.py",
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
    "test_cold_start.py",
    "test_watchdog.py",
    "test_serve.py",
    "test_operated.py",
    "test_maps.py",
    "test_sum_wire.py",
    "test_takeover.py",
    "test_theory.py",
    "test_metrics.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """What takes too long for every day."""
    parser.addoption(
        "--all-states",
        action="store_true",
        help="let every single operation of a federation's disks fail, in every way",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Temporary folders are in memory, where there is room: tests flush files thousands of times."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


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


def pytest_sessionfinish() -> None:
    """One search for garbage, which warns of files that were left open; pytest would make ten."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The heads of ledgers that tests make are kept in a folder of the tests' own."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(autouse=True, scope="session")
def what_workers_share(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The features of published data sets, none at first, and the processes from which commands are forked."""
    own = tmp_path_factory.getbasetemp()
    base = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    os.environ["XDG_CACHE_HOME"] = str(base / "cache")
    os.environ.pop("TACITURN_FEATURE_CACHE", None)
    os.environ[warm.PLACE] = str(base)


@pytest.fixture(autouse=True)
def no_records_are_tied(own_state_folder: None) -> None:
    """Every test begins ledgers of its own for the same few tables."""
    shutil.rmtree(Path(os.environ["XDG_STATE_HOME"]) / "taciturn" / "records", ignore_errors=True)


@pytest.fixture(autouse=True, scope="session")
def plain_reports() -> Iterator[None]:
    """Reports have words in place of figures, which take most of a small run's time to draw."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "_picture", warm.in_words)
        yield


@pytest.fixture(scope="session")
def with_figures() -> Callable[[], AbstractContextManager[None]]:
    """A context in which reports have their figures, for tests that look at them."""

    @contextmanager
    def drawn() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(report, "_picture", PICTURE)
            yield

    return drawn


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets, for the tests marked real_data."""
    folder = os.environ.get("TACITURN_DATA", "")
    if not (folder and (Path(folder) / "mnist").is_dir()):
        pytest.skip("set TACITURN_DATA to a folder that holds mnist/ to run this test")
    return Path(folder)


@pytest.fixture(scope="module")
def on_disk(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder on the disk, for confined programs, which see nothing of ours in memory; kept when a test fails."""
    failed = request.session.testsfailed
    folder = Path(tempfile.mkdtemp(prefix="taciturn-"))
    yield folder
    if request.session.testsfailed == failed:
        shutil.rmtree(folder)
