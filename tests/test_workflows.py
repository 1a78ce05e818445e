"""The files that machines follow elsewhere: workflows, pre-commit, the Makefile, and what the distributions contain."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
OLD_PYTHON = "#!/bin/sh\necho 3.10.13\n"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for name, job in read(path)["jobs"].items():
            yield f"{path.name}: {name}", job


def commands() -> list[str]:
    return [step["run"] for _, job in jobs() for step in job["steps"] if "run" in step]


def pins() -> dict[str, str]:
    """The version of constraints.txt that this machine installs, by package."""
    lines = (line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines())
    wanted = [Requirement(line) for line in lines if line]
    here = (each for each in wanted if each.marker is None or each.marker.evaluate())
    return {canonicalize_name(each.name): str(each.specifier).removeprefix("==") for each in here}


def pythons() -> list[str]:
    """The versions of Python that the package claims, oldest first."""
    found = (
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each) for each in PROJECT["project"]["classifiers"]
    )
    return [each[1] for each in found if each]


def test_every_job_has_a_time_limit_and_only_the_permissions_it_needs() -> None:
    for path in WORKFLOWS:
        assert read(path)["permissions"] == {"contents": "read"}, path.name
    for name, job in jobs():
        assert job["timeout-minutes"] <= 60, name
        if "permissions" in job:
            assert job["permissions"] == {"id-token": "write"}, name
            assert "tag" in job["if"], f"{name} may publish without a tag"


def test_what_the_workflows_call_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    called = {name for each in commands() for name in re.findall(r"\bmake ([a-z]+)", each)}
    assert called == {"check", "test"} <= targets
    scripts = {name for each in commands() for name in re.findall(r"\bscripts/[\w.]+", each)}
    scripts |= set(re.findall(r"\bscripts/[\w.]+", MAKEFILE + PROJECT["tool"]["cibuildwheel"]["test-command"]))
    assert "scripts/smoke.sh" in scripts
    for script in scripts:
        assert (ROOT / script).is_file()
        assert script.endswith(".py") or os.access(ROOT / script, os.X_OK), f"{script} is not executable"


def test_workflows_are_started_by_files_that_exist() -> None:
    for path in WORKFLOWS:
        started = read(path)[True]["pull_request"] or {}  # YAML reads 'on' as True
        for each in started.get("paths", []):
            assert (ROOT / each.removesuffix("/**")).exists(), f"{path.name} waits for changes in {each}"


def test_every_extra_that_make_installs_exists() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    for name in re.findall(r"'\.\[([\w-]+)\]'", MAKEFILE):
        assert name in extras
    inside = [Requirement(each) for wanted in extras.values() for each in wanted]
    assert {name for each in inside if each.name == "taciturn" for name in each.extras} <= set(extras)


def test_python_versions_agree_everywhere() -> None:
    versions = pythons()
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["project"]["requires-python"] == f">={versions[0]}"
    tags = [f"cp{version.replace('.', '')}" for version in versions]
    assert PROJECT["tool"]["cibuildwheel"]["build"] == [f"{tag}-*" for tag in tags]
    assert f'"py_limited_api": "{tags[0]}"' in (ROOT / "setup.py").read_text(encoding="utf-8")
    assert f'"-{tags[0]}-abi3-"' in (ROOT / "scripts" / "check_distributions.py").read_text(encoding="utf-8")
    assert PROJECT["tool"]["ruff"]["target-version"] == tags[0].replace("cp", "py")
    assert PROJECT["tool"]["mypy"]["python_version"] == versions[0]
    assert read(ROOT / ".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"] == versions
    for _, job in jobs():
        fixed = [
            step["with"].get("python-version", "") for step in job["steps"] if "setup-python" in step.get("uses", "")
        ]
        assert all("matrix" in each or each in versions for each in fixed)


def test_ci_leaves_no_machine_and_no_python_out() -> None:
    matrix = read(ROOT / ".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    left_out = {(each["os"], each["python"]) for each in matrix["exclude"]}
    kept = {(os, python) for os in matrix["os"] for python in matrix["python"]} - left_out
    assert len(kept) == len(matrix["os"]) * len(matrix["python"]) - len(matrix["exclude"]), (
        "an exclusion matches nothing"
    )
    for machine in matrix["os"]:
        assert {(machine, matrix["python"][0]), (machine, matrix["python"][-1])} <= kept
    assert matrix["os"] == read(ROOT / ".github/workflows/release.yml")["jobs"]["wheels"]["strategy"]["matrix"]["os"]


def test_pre_commit_runs_the_tools_of_the_environment() -> None:
    (local, *_) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    tools = {Path(hook["entry"].split()[0]) for hook in local["hooks"]}
    assert tools == {Path(".venv/bin") / name for name in ("ruff", "mypy", "lint-imports")}
    for tool in tools:
        assert f"$(BIN)/{tool.name}" in MAKEFILE, f"make check does not run {tool.name}"
    wanted = {Requirement(each).name for each in PROJECT["project"]["optional-dependencies"]["test"]}
    for package in ("ruff", "mypy", "import-linter"):
        assert package in wanted
        assert pins()[canonicalize_name(package)] == importlib.metadata.version(package)


def test_constraints_satisfy_the_requirements() -> None:
    pinned = pins()
    extras = PROJECT["project"]["optional-dependencies"]
    for each in map(
        Requirement, [*PROJECT["project"]["dependencies"], *(one for some in extras.values() for one in some)]
    ):
        if each.name != "taciturn" and (each.marker is None or each.marker.evaluate()):
            assert SpecifierSet(str(each.specifier)).contains(pinned[canonicalize_name(each.name)]), each


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with what `make` reads before it installs anything."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "setup.py"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def test_make_with_an_old_python_says_which_one_is_needed(checkout: Path) -> None:
    old = program(checkout / "old" / "python3", OLD_PYTHON)
    made = subprocess.run(["make", "run", f"PYTHON={old}"], cwd=checkout, capture_output=True, text=True, check=False)
    assert made.returncode != 0
    assert "Taciturn needs Python 3.11 or newer; this is 3.10.13 (set PYTHON=…)" in made.stderr
    assert not (checkout / ".venv").exists()


def test_an_environment_of_an_old_python_is_made_again(checkout: Path) -> None:
    program(checkout / ".venv" / "bin" / "python", OLD_PYTHON)
    (checkout / ".venv" / "left").touch()
    new = program(checkout / "new" / "python3", f'#!/bin/sh\nexec "{sys.executable}" "$@" --without-pip\n')
    subprocess.run(["scripts/venv.sh", str(new)], cwd=checkout, check=True)
    assert not (checkout / ".venv" / "left").exists()
    asked = [str(checkout / ".venv/bin/python"), "-c", "import sys; print(*sys.version_info[:3])"]
    assert subprocess.check_output(asked, text=True).split() == [str(each) for each in sys.version_info[:3]]
    (checkout / ".venv" / "kept").touch()
    subprocess.run(["scripts/venv.sh", str(new)], cwd=checkout, check=True)
    assert (checkout / ".venv" / "kept").exists()


def test_make_help_names_every_target() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)", MAKEFILE, re.MULTILINE)
    shown = subprocess.check_output(["make", "--no-print-directory", "help"], cwd=ROOT, text=True).splitlines()
    assert [line.split()[1] for line in shown] == phony.split()


def test_distributions_hold_the_package_and_nothing_else(checkout: Path) -> None:
    """Built in a checkout with a library and byte code in it, and without a compiler."""
    for name in ("README.md", "LICENSE", "MANIFEST.in", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / name, checkout)
    shutil.copytree(
        ROOT / "src" / "taciturn", checkout / "src" / "taciturn", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    program(checkout / "tests" / "test_any.py", "")
    program(checkout / "src" / "taciturn" / "kernels" / "_compiled.abi3.so", "of another machine")
    program(checkout / "src" / "taciturn" / "__pycache__" / "api.cpython-311.pyc", "")
    build = "from setuptools import build_meta; build_meta.build_sdist('dist'); build_meta.build_wheel('dist')"
    subprocess.run(
        [sys.executable, "-c", build], cwd=checkout, env={**os.environ, "CC": "false"}, check=True, capture_output=True
    )
    check = [sys.executable, "scripts/check_distributions.py", "dist"]
    said = subprocess.run(check, cwd=checkout, capture_output=True, text=True, check=False).stdout.splitlines()
    (problem,) = said
    assert problem.endswith("has no taciturn/kernels/_compiled.abi3.so: the kernels were not compiled")
