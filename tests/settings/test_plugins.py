"""Plugins: components from the user's own files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taciturn
from taciturn.errors import Interrupted
from tests.cli import helpers

PLUGIN = """
from taciturn.algorithms import ALGORITHMS, AlgorithmSpec
from taciturn.algorithms.iadmm import Iadmm
from taciturn.algorithms.schedules import NoiseFreeStep

ALGORITHMS.register("{name}")(
    AlgorithmSpec("IADMM by another name", "as iadmm", lambda r: Iadmm(r.problem, r.rho, r.eta, r.closing), noisy=False,
           modes=("certified", "paper"), step_kind=NoiseFreeStep)
)
"""
SETTINGS: dict[str, Any] = {
    "features": "none",
    "data": "mnist14",
    "total_epsilon": "inf",
    "rounds": 4,
    "agents": 2,
    "checkpoint_seconds": 0,
}


def plugin(folder: Path, name: str) -> Path:
    file = folder / f"{name}.py"
    file.write_text(PLUGIN.format(name=name))
    return file


def test_a_plugins_algorithm_is_trained_recorded_and_named(tmp_path: Path) -> None:
    file = plugin(tmp_path, "twin")
    flags = (
        "--plugins twin.py --algorithm twin,iadmm --features none --total-epsilon inf --rounds 2 --agents 2 --out run"
    )
    helpers.taciturn("run", *flags.split(), cwd=tmp_path)
    run = taciturn.open_run(tmp_path / "run")
    np.testing.assert_array_equal(run.w[0], run.w[1])
    assert run.folder.read_config()["plugins"] == [str(file)]
    first = run.folder.read_ledger()[0]
    assert first["plugins"] == {"twin.py": hashlib.sha256(file.read_bytes()).hexdigest()}
    assert "Against mistakes in twin.py" in (tmp_path / "run" / "report.html").read_text()
    assert "from a plugin" in helpers.taciturn("show", tmp_path / "run").stdout
    assert "IADMM by another name" in helpers.taciturn("algorithms", "--plugins", file).stdout
    helpers.taciturn("evaluate", tmp_path / "run", "mnist14")  # its config names the plugin
    assert "no algorithm 'twin'" in helpers.refused("run", "--algorithm", "twin", cwd=tmp_path)


def test_a_changed_plugin_prevents_resuming(tmp_path: Path) -> None:
    file = plugin(tmp_path, "other")
    rounds = iter(range(2))
    with pytest.raises(Interrupted):
        taciturn.run(
            plugins=str(file),
            algorithm="other",
            out=tmp_path / "run",
            stop=lambda: next(rounds, None) is None,
            **SETTINGS,
        )
    file.write_text(file.read_text() + "\n# another version\n")
    helpers.taciturn("algorithms", "--plugins", file)  # which allows it as it is now
    assert "other.py changed after the run began" in helpers.refused("resume", tmp_path / "run")


def test_files_that_are_not_plugins_are_refused(tmp_path: Path) -> None:
    plugin(tmp_path, "third")
    with pytest.raises(taciturn.InputError, match=r"no plugin .*thirt\.py \(did you mean '.*third\.py'"):
        taciturn.dry_run(plugins=str(tmp_path / "thirt.py"))
    (tmp_path / "broken.py").write_text("import nowhere_at_all\n")
    with pytest.raises(taciturn.InputError, match=r"cannot be loaded: ModuleNotFoundError"):
        taciturn.dry_run(plugins=[str(tmp_path / "broken.py")])
    (tmp_path / "text.txt").write_text("no code\n")
    with pytest.raises(taciturn.InputError, match="is not a Python file"):
        taciturn.dry_run(plugins=[str(tmp_path / "text.txt")])


def test_a_foreign_run_folder_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that another person's config names does not run before the user has named it."""
    plugin(tmp_path, "fourth")
    taciturn.run(plugins=str(tmp_path / "fourth.py"), algorithm="fourth", out=tmp_path / "run", **SETTINGS)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))  # another user's machine
    assert "was never allowed" in helpers.refused("evaluate", tmp_path / "run", "mnist14")
    helpers.taciturn("show", tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    assert "was never allowed" in helpers.taciturn("resume", tmp_path / "run", code=2).stderr
    helpers.taciturn("algorithms", "--plugins", tmp_path / "fourth.py")
    helpers.taciturn("resume", tmp_path / "run")


def test_the_ledger_has_what_was_run(tmp_path: Path) -> None:
    file = plugin(tmp_path, "fifth")
    taciturn.dry_run(plugins=str(file))
    file.write_text(file.read_text() + "\n# another version\n")
    with pytest.raises(taciturn.InputError, match="changed since this process loaded it"):
        taciturn.dry_run(plugins=str(file))
    (tmp_path / "more").mkdir()
    with pytest.raises(taciturn.InputError, match=r"two plugins are named sixth\.py"):
        taciturn.dry_run(plugins=[str(plugin(tmp_path, "sixth")), str(plugin(tmp_path / "more", "sixth"))])


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    (tmp_path / "again.py").write_text(PLUGIN.format(name="iadmm"))
    with pytest.raises(taciturn.InputError, match="two components of kind algorithm are named 'iadmm'"):
        taciturn.dry_run(plugins=str(tmp_path / "again.py"))
    settings = {**SETTINGS, "rounds": 1, "algorithm": "iadmm", "out": tmp_path / "run"}
    assert taciturn.run(**settings).summary["runs"][0]["algorithm"] == "iadmm"  # what was there is there still


TWICE = """
from taciturn.algorithms import ALGORITHMS, AlgorithmSpec
from taciturn.algorithms.iadmm import DpIadmm


def build(r):
    return DpIadmm(r.problem, r.rho, r.eta, r.release, 2, r.closing)


ALGORITHMS.register("twice")(AlgorithmSpec("more than it says", "z", build, modes=("certified",)))
"""


def test_a_method_that_releases_more_often_than_planned_is_stopped(tmp_path: Path) -> None:
    """An algorithm declares its cost and its steps separately: if they disagree, the run stops in the first round."""
    (tmp_path / "twice.py").write_text(TWICE)
    run = ("run", "--plugins", "twice.py", "--algorithm", "twice", "--features", "none", "--rounds", "2", "--out", "r")
    said = helpers.taciturn(*run, code=3, cwd=tmp_path).stderr
    assert "twice released 2 times in round 1, and its plan has 1" in said


@pytest.mark.parametrize("wrong", ["step_kind='fast'", "noise_on='everything'"])
def test_a_method_with_a_name_nobody_knows_is_refused_at_once(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "twice.py").write_text(TWICE.replace("modes=", f"{wrong}, modes="))
    said = helpers.refused("algorithms", "--plugins", "twice.py", cwd=tmp_path)
    assert f"no {wrong.partition('=')[0]} " in said


MAP = """
from taciturn.data.feature_maps import MAPS, FeatureMap

MAPS.register("{name}")(FeatureMap("half of every record", lambda raw: raw.width, lambda raw: lambda x: {made}))
"""


def test_a_plugins_feature_map_is_used_and_held_to_its_length(tmp_path: Path) -> None:
    for name, made in (("halves", "x / (2 * len(x[0]) ** 0.5)"), ("longer", "x * 0 + 2.0")):
        (tmp_path / f"{name}.py").write_text(MAP.format(name=name, made=made))
    asked = ("run", *helpers.CERTIFIED, "--rounds", "2")
    own = ("--plugins", "halves.py", "--features", "halves", "--out", "run")
    helpers.taciturn(*asked, *own, cwd=tmp_path)
    assert taciturn.open_run(tmp_path / "run").folder.read_model()["feature_names"][0] == "halves_0"
    assert "halves" in helpers.taciturn("data", "maps", "--plugins", "halves.py", cwd=tmp_path).stdout
    said = helpers.refused(*asked, "--plugins", "longer.py", "--features", "longer", cwd=tmp_path)
    assert "it must be 1 or 0" in said
