"""Help texts and catalogues of the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import reduce
from typing import Any, cast

import pytest

from taciturn.algorithms import ALGORITHMS
from taciturn.cli.command_line import cli
from taciturn.cli.front_page import OPTIONS, PURPOSE, front_page
from taciturn.data import SOURCES
from taciturn.data.feature_maps import MAPS
from taciturn.settings.settings import FIELDS
from tests.cli.helpers import COMMAND, taciturn, taciturn_json
from tests.cli.test_cold_start import command_paths


def test_every_setting_has_a_flag_of_its_name() -> None:
    flags = {name for parameter in cli.commands["run"].params for name in parameter.opts}
    assert {f"--{name.replace('_', '-')}" for name in FIELDS} <= flags


def test_every_command_has_help_with_an_example_of_itself() -> None:
    for name in cli.commands:
        for path in command_paths(cli.commands[name], (name,)):
            command = reduce(lambda group, sub: group.commands[sub], path, cast(Any, cli))
            if path not in {("data",), ("config",)}:
                words = path[:1] if path == ("ledger", "show") else path  # the name of the default command is left out
                assert f"      taciturn {' '.join(words)}" in (command.help or ""), path


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["-v", "--help"]])
def test_the_first_page_fits_a_terminal_and_is_the_same_however_it_is_asked_for(words: list[str]) -> None:
    page = taciturn(*words).stdout
    assert page.rstrip("\n") == front_page()
    assert all(len(line) <= 80 and line.isascii() for line in page.splitlines())
    assert all(f"\n  {name} " in page for name in cli.commands)


def test_the_first_page_has_the_options_of_the_group() -> None:
    flags = {
        flag
        for parameter in cli.get_params(cli.make_context("taciturn", [], resilient_parsing=True))
        for flag in parameter.opts
    }
    assert {flag for flags, _ in OPTIONS for flag in flags.split(", ")} == flags
    assert PURPOSE in (cli.help or "")


def test_the_first_page_is_bold_only_on_a_terminal() -> None:
    assert "\033[1mUsage:\033[0m" in front_page(color=True) and "\033" not in taciturn("--help").stdout


def test_the_first_page_and_the_version_import_no_library() -> None:
    for words in ("--help", "--version"):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "taciturn", words], capture_output=True, text=True, check=True
        )
        loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert "taciturn.cli.front_page" in loaded
        assert not loaded & {"click", "rich", "numpy", "taciturn.cli.command_line", "taciturn.settings"}


def test_nothing_is_printed_after_the_reader_closes_the_pipe() -> None:
    for words in ("--help", "algorithms"):
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "wb") as closed:
            done = subprocess.run([*COMMAND, words], stdout=closed, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr) == (141, "")


def test_algorithms_and_data_sets_are_listed() -> None:
    text = taciturn("algorithms").stdout
    listed = taciturn_json("algorithms")
    assert {"dpgd", "objp", "objpm", "outp"} <= set(listed) and all(
        ALGORITHMS[name].equation in text for name in listed
    )
    assert set(taciturn_json("data", "list")) == set(SOURCES)
    assert set(taciturn_json("data", "maps")) == {"none", *MAPS}
    assert all(name in taciturn("data", "maps").stdout for name in MAPS)
    info = taciturn_json("data", "info", "mnist14", "--agents", "4", "--partition", "dirichlet")
    assert len(info["agents"]) == 4
    assert (info["features"], info["feature_map"]) == (196, "scattering")
    assert sum(info["agents"].values()) == 60000
