"""What the command line says about itself."""

from __future__ import annotations

import pytest

from taciturn.algorithms import ALGORITHMS
from taciturn.cli import cli
from taciturn.data import SOURCES
from taciturn.data.feature_maps import MAPS
from taciturn.settings.settings import FIELDS
from tests.cli.helpers import taciturn, taciturn_json


def test_every_setting_has_a_flag_of_its_name() -> None:
    flags = {name for parameter in cli.commands["run"].params for name in parameter.opts}
    assert {f"--{name.replace('_', '-')}" for name in FIELDS} <= flags


def commands() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [()]
    for name, command in cli.commands.items():
        found.append((name,))
        found += [(name, sub) for sub in getattr(command, "commands", {})]
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_has_help_with_an_example(command: tuple[str, ...]) -> None:
    text = taciturn(*command, "--help").stdout
    assert "Usage: taciturn" in text
    if command not in {("data",), ("config",)}:
        words = command[:1] if command == ("ledger", "show") else command  # whose name is left out
        assert f"taciturn {' '.join(words)}".strip() in text.split("Usage:")[1].split("\n", 1)[1]


def test_algorithms_and_data_sets_are_listed() -> None:
    text = taciturn("algorithms").stdout
    assert all(ALGORITHMS[name].equation in text for name in ALGORITHMS)
    assert set(taciturn_json("data", "list")) == set(SOURCES)
    assert set(taciturn_json("data", "maps")) == {"none", *MAPS}
    assert "scattering  an image's wavelets" in taciturn("data", "maps").stdout
    info = taciturn_json("data", "info", "mnist14", "--agents", "4", "--partition", "dirichlet")
    assert len(info["agents"]) == 4
    assert (info["features"], info["feature_map"]) == (196, "scattering")
    assert sum(info["agents"].values()) == 60000
