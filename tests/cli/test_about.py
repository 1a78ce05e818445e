"""Help texts and catalogues of the command line."""

from __future__ import annotations

from functools import reduce
from typing import Any, cast

from taciturn.algorithms import ALGORITHMS
from taciturn.cli import cli
from taciturn.data import SOURCES
from taciturn.data.feature_maps import MAPS
from taciturn.settings.settings import FIELDS
from tests.cli.helpers import taciturn, taciturn_json
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
