"""`taciturn reproduce` as a reader of the paper uses it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.cli.helpers import PATIENCE, ROOT, refused, started, taciturn, taciturn_json, wait_for
from tests.research.reproduction_helpers import small_mnist

COMMITTED = ROOT / "docs" / "reproduction"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_mnist(tmp_path_factory.mktemp("data"))


def test_a_quick_one_shows_table_figures_and_ordering(data: Path, tmp_path: Path) -> None:
    quick = ("reproduce", "mnist", "--quick", "--rounds", "20", "--device", "cpu", "--data-dir", data)
    done = taciturn(*quick, cwd=tmp_path)
    assert "MNIST, 20 rounds, 1 seed" in done.stdout
    assert "only the ordering" in done.stdout
    assert "ObjPM < ObjP < OutP" in done.stdout
    table = [line for line in done.stdout.splitlines() if line.startswith(("OutP", "ObjP "))]
    assert len(table) == 10
    assert max(map(len, table)) <= 80
    folder = tmp_path / "runs" / "reproduce-mnist-quick"
    names = {path.name for path in (folder / "figures").iterdir()}
    drawn = {"figure-1-testing-errors", "figure-2-best-errors", "figure-3-noise"}
    assert {f"{name}.{kind}" for name in drawn for kind in ("png", "svg")} | {"table-mnist.md"} == names
    again = taciturn_json(*quick, cwd=tmp_path)["reproductions"][0]
    assert set(again["ordering"]) == {"0.05", "0.1", "1", "5"}
    paper = {(row["algorithm"], row["epsilon"]): row["paper"] for row in again["rows"]}
    assert (paper["objpm", 0.05], paper["outp", 0.05], paper["objp", 0.05]) == (11.74, 21.79, None)


def test_the_same_command_continues_a_killed_or_stopped_reproduction(data: Path, tmp_path: Path) -> None:
    grid = ("mnist", "--rounds", "16", "--seeds", "1", "--figures", "1", "--device", "cpu")
    arguments = ("reproduce", *grid, "--data-dir", str(data), "--out")
    for number, code in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):
        process = started(*arguments, tmp_path / "r")
        _wait_for(tmp_path / "r" / "stages" / ("outp.npz" if number == signal.SIGKILL else "objp.npz"))
        process.send_signal(number)
        said = process.communicate(timeout=PATIENCE)[1]
        assert process.returncode == code
    assert f"the same command continues {tmp_path / 'r'}" in said
    assert (tmp_path / "r" / "checkpoint" / "objpm.npz").is_file()
    taciturn(*arguments, tmp_path / "r")
    taciturn(*arguments, tmp_path / "straight")
    for stage in ("outp", "objp", "objpm"):
        mine, theirs = (np.load(tmp_path / name / "stages" / f"{stage}.npz") for name in ("r", "straight"))
        np.testing.assert_array_equal(mine["test_error"], theirs["test_error"])


def _wait_for(path: Path) -> None:
    wait_for(path.is_file, str(path))


def test_the_committed_results_are_drawn_anywhere(tmp_path: Path) -> None:
    places = ("--from", COMMITTED / "mnist", "--from", COMMITTED / "femnist")
    found = taciturn_json("reproduce", *places, "--out", tmp_path / "f")
    assert [r["data"] for r in found["reproductions"]] == ["mnist", "femnist"]
    for path in map(Path, found["figures"]):
        kept = COMMITTED / "figures" / path.name
        assert path.suffix == ".png" or path.read_bytes() == kept.read_bytes(), path.name
        assert path.stat().st_size > 10_000
    for name in ("table-mnist.md", "table-femnist.md"):
        assert (tmp_path / "f" / name).read_text() == (COMMITTED / "figures" / name).read_text()


def test_the_committed_results_are_the_paper_s() -> None:
    mnist, femnist = (json.loads((COMMITTED / data / "summary.json").read_text()) for data in ("mnist", "femnist"))
    assert (mnist["rounds"], mnist["seeds"], femnist["rounds"], femnist["seeds"]) == (20000, 10, 20000, 3)

    def best(summary: dict[str, object], **wanted: object) -> float:
        groups = [g for g in summary["groups"] if all(g[k] == v for k, v in wanted.items())]  # type: ignore[attr-defined]
        return 100 * float(groups[0]["final"]["best"])

    published = {"algorithm": "outp", "outp_noise": "published", "penalty": "dynamic"}
    assert best(mnist, algorithm="objpm", epsilon=0.05) == pytest.approx(11.74, abs=0.35)
    assert best(mnist, **published, epsilon=0.05) == pytest.approx(21.79, abs=1.0)
    assert best(mnist, algorithm="objpm", epsilon="inf") < 9.1
    assert best(mnist, **published, epsilon="inf") == pytest.approx(12.30, abs=0.02)
    assert best(mnist, algorithm="objp", epsilon="inf") == pytest.approx(11.01, abs=0.02)
    for epsilon in (0.05, 0.1, 1.0, 5.0):
        objpm, objp = (best(mnist, algorithm=name, epsilon=epsilon) for name in ("objpm", "objp"))
        assert objpm < objp < best(mnist, **published, epsilon=epsilon)
    for epsilon in (0.05, 0.1):
        objpm, objp = (best(femnist, algorithm=name, epsilon=epsilon, eta_scale=100.0) for name in ("objpm", "objp"))
        assert objpm < objp < best(femnist, **published, epsilon=epsilon)
    assert best(femnist, algorithm="objpm", epsilon="inf", eta_scale=100.0) <= 33.0
    assert best(femnist, algorithm="objpm", epsilon=1.0, eta_scale=100.0) <= 38.0


def test_refusals(tmp_path: Path, data: Path) -> None:
    assert "mnist or femnist" in refused("reproduce")
    assert "did you mean 'mnist'" in refused("reproduce", "mnst")
    assert "--figures is 5" in refused("reproduce", "mnist", "--figures", "5")
    assert "no products 'int8'" in refused("reproduce", "mnist", "--products", "int8", "--device", "cuda")
    for device in ("tpu", "cudafoo", "cuda:x"):
        assert "cpu, cuda or cuda:N" in refused("reproduce", "mnist", "--device", device)
    assert "a CPU uses float32" in refused("reproduce", "mnist", "--device", "cpu", "--products", "tf32")
    assert "is not a finished reproduction" in refused("reproduce", "--from", tmp_path / "none")
    assert not (tmp_path / "none").exists()
    for more in (("mnist",), ("--quick",), ("--rounds", "3"), ("--device", "cpu"), ("--products", "tf32")):
        assert "--figures, --out and --json" in refused("reproduce", *more, "--from", COMMITTED / "mnist")
    twice = ("--from", COMMITTED / "mnist", "--from", COMMITTED / "mnist")
    assert "two folders of one data set" in refused("reproduce", *twice, "--out", tmp_path / "twice")
    for name, text in (("run", '{"runs": []}'), ("list", "[]"), ("cut", '{"data": "mni')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(text)
        assert "summary.json" in refused("reproduce", "--from", tmp_path / name)
    assert "MNIST is not complete" in refused(
        "reproduce", "mnist", "--quick", "--device", "cpu", "--data-dir", tmp_path
    )
