"""From what a file, flags and keywords give to the settings of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tacit.algorithms import ALGORITHMS
from tacit.data import source_for
from tacit.data.maps import NONE
from tacit.errors import InputError, nearest
from tacit.settings.backends import check_backend
from tacit.settings.modes import BY_MODE, check_mode
from tacit.settings.noise import choose_noise
from tacit.settings.plugins import allow, load_plugins
from tacit.settings.settings import FIELDS, Settings


def parse(given: Mapping[str, Any]) -> dict[str, Any]:
    """Values by the rules of the table; a key nobody knows is an error, never a silent default."""
    for key in given:
        if key not in FIELDS:
            raise InputError(f"no setting '{key}'{nearest(key, FIELDS)}: 'tacit config init' shows all there are")
    return {key: FIELDS[key].metadata["rule"](key.replace("_", "-"), value) for key, value in given.items()}


def resolve_given(*layers: Mapping[str, Any]) -> Settings:
    """Settings as the user gives them; that they name a plugin allows it."""
    allow_plugins(*layers)
    return resolve(*layers)


def allow_plugins(*layers: Mapping[str, Any]) -> None:
    """Take the plugins that these layers name for the user's own word."""
    for layer in layers:
        allow(_plugins(layer))


def _plugins(layer: Mapping[str, Any]) -> tuple[str, ...]:
    found: tuple[str, ...] = parse({"plugins": layer.get("plugins", ())})["plugins"]
    return found


def resolve(*layers: Mapping[str, Any]) -> Settings:
    """Settings from layers, later ones first: defaults < the mode's < the data set's preset < a file < flags."""
    chosen: dict[str, Any] = {}
    for layer in layers:
        load_plugins(_plugins(layer))
    for layer in layers:
        chosen |= {name: value for name, value in parse(layer).items() if value != ()}  # () is the mode's default
    mode, source = chosen.get("mode", FIELDS["mode"].default), source_for(chosen.get("data", FIELDS["data"].default))
    preset = parse({**source.preset, **(source.paper if mode == "paper" else {})})
    if "eta" in chosen:
        preset.pop("eta_scale", None)  # it belongs to the preset's own eta
    settings = Settings(**{**BY_MODE[mode], **preset, **chosen})
    settings = check_backend(check_mode(choose_noise(settings), chosen), chosen)
    if settings.features == "auto":
        settings = dataclasses.replace(settings, features=source.features if mode == "certified" else NONE)
    if settings.partition == "auto":
        dealt = "hashed" if settings.private and source.name == "table" else "in-order"
        settings = dataclasses.replace(settings, partition=dealt)
    if settings.server == "auto":
        settings = dataclasses.replace(settings, server="sums")
    if settings.local_updates != "auto" and not any(ALGORITHMS[name].local_updates for name in settings.algorithm):
        takers = ", ".join(name for name in ALGORITHMS if ALGORITHMS[name].local_updates)
        raise InputError(
            f"local-updates is given, but {', '.join(settings.algorithm)} makes one: {takers} take several"
        )
    if settings.sampling_rate != "auto" and all(ALGORITHMS[name].sampling is None for name in settings.algorithm):
        takers = ", ".join(name for name in ALGORITHMS if ALGORITHMS[name].sampling is not None)
        raise InputError(
            f"sampling-rate is given, but {', '.join(settings.algorithm)} sees all records: {takers} take samples"
        )
    return settings
