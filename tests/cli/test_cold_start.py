"""Every command works in a fresh interpreter; the forked process of the other tests hides import failures."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import rich_click as click

import taciturn
from taciturn.cli.command_line import cli
from tests.cli.helpers import PATIENCE, environment

REFUSED = {2}
CALLS: dict[str, tuple[str, set[int]]] = {  # a cheap real call of each command, and its exit codes
    "algorithms": ("", {0}),
    "audit": ("--releases 500 --seed 1", {0}),
    "bench": ("", {0}),
    "compare": ("nowhere", REFUSED),
    "completion": ("bash", {0}),
    "config": ("init", {0}),
    "dashboard": ("--port x", REFUSED),
    "data": ("list", {0}),
    "doctor": ("", {0, 1}),
    "effects": ("nowhere", REFUSED),
    "evaluate": ("nowhere mnist14", REFUSED),
    "export": ("nowhere --to csv", REFUSED),
    "federation": ("terms nowhere.toml", REFUSED),
    "frontier": ("--dry-run --trust agents", {0}),
    "ledger": ("nowhere", REFUSED),
    "plan": ("", {0}),
    "plot": ("nowhere", REFUSED),
    "predict": ("nowhere records.csv", REFUSED),
    "report": ("nowhere", REFUSED),
    "reproduce": ("", REFUSED),
    "resume": ("nowhere", REFUSED),
    "run": ("--dry-run", {0}),
    "runs": (".", {0}),
    "show": ("nowhere", REFUSED),
    "sweep": ("--over clip=1,2 --dry-run", {0}),
    "theory": ("--gamma -1", REFUSED),
}
SCRIPT = """
import gc, json, os, sys
from taciturn.cli.command_line import cli, run

gc.disable()  # what short processes import stays: to search it takes a third of their time

def give_help_and_call(paths, call):
    for path in paths:
        cli([*path, "--help"], prog_name="taciturn", standalone_mode=False)
    sys.argv = ["taciturn", *call]
    run()

for name, (paths, call) in json.loads(sys.argv[1]).items():
    child = os.fork()  # nothing but the command line was imported
    if child == 0:
        for number, stream in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{name}.{stream}", os.O_WRONLY | os.O_CREAT), number)
        try:
            give_help_and_call(paths, call)
        except SystemExit as end:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code or 0)  # without the slow destruction of all modules
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(f"{name}.code", "w") as file:
        file.write(str(code))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What each command did in a process in which no other one had run: NAME.out, NAME.err and NAME.code."""
    folder = tmp_path_factory.mktemp("cold")
    tasks = {
        name: (command_paths(command, (name,)), [name, *CALLS[name][0].split()])
        for name, command in cli.commands.items()
    }
    subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(tasks)], cwd=folder, env=environment(), timeout=PATIENCE, check=True
    )
    return folder


def command_paths(command: click.Command, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the path of a command and those of its subcommands."""
    subcommands = getattr(command, "commands", {})
    return [path, *(found for name, sub in subcommands.items() for found in command_paths(sub, (*path, name)))]


def test_every_command_has_a_call() -> None:
    assert set(CALLS) == set(cli.commands)


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_a_command_starts_in_a_fresh_interpreter(name: str, outcomes: Path) -> None:
    said, complaints = ((outcomes / f"{name}.{stream}").read_text() for stream in ("out", "err"))
    assert int((outcomes / f"{name}.code").read_text()) in CALLS[name][1], complaints
    assert "Traceback" not in complaints
    for path in command_paths(cli.commands[name], (name,)):
        assert f"Usage: taciturn {' '.join(path)}" in said


def deferred_imports() -> list[tuple[str, str]]:
    """Return module and name of every `from taciturn... import` inside a function of the package."""
    found = set()
    for file in Path(taciturn.__file__).parent.rglob("*.py"):
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("taciturn"):
                        found |= {(node.module, alias.name) for alias in node.names}
    return sorted(found)


def test_imports_inside_functions_find_their_names() -> None:
    for module, name in deferred_imports():
        try:
            imported = importlib.import_module(module)
        except ModuleNotFoundError as error:
            assert not str(error.name).startswith("taciturn"), module  # an optional package is not installed
            continue
        assert hasattr(imported, name) or importlib.util.find_spec(f"{module}.{name}"), f"{module} has no {name}"
