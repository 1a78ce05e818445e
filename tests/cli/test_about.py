"""What the command line says about itself."""

from __future__ import annotations

import pytest

from tacit.algorithms import ALGORITHMS
from tacit.cli import cli
from tacit.data import SOURCES
from tacit.data.maps import MAPS
from tacit.settings.settings import FIELDS
from tests.cli.helpers import tacit, tacit_json


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
    text = tacit(*command, "--help").stdout
    assert "Usage: tacit" in text
    if command not in {("data",), ("config",)}:
        words = command[:1] if command == ("ledger", "show") else command  # whose name is left out
        assert f"tacit {' '.join(words)}".strip() in text.split("Usage:")[1].split("\n", 1)[1]


def test_algorithms_and_data_sets_are_listed() -> None:
    text = tacit("algorithms").stdout
    assert all(ALGORITHMS[name].equation in text for name in ALGORITHMS)
    assert set(tacit_json("data", "list")) == set(SOURCES)
    assert set(tacit_json("data", "maps")) == {"none", *MAPS}
    assert "scattering  an image's wavelets" in tacit("data", "maps").stdout
    info = tacit_json("data", "info", "mnist14", "--agents", "4", "--partition", "dirichlet")
    assert len(info["agents"]) == 4
    assert (info["features"], info["feature_map"]) == (196, "scattering")
    assert sum(info["agents"].values()) == 60000
