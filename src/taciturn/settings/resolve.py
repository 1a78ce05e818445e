"""From files, flags and keywords to the settings of a run; plugins are loaded first."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from taciturn.algorithms import ALGORITHMS
from taciturn.core.storage import state_folder
from taciturn.data import source_for
from taciturn.data.feature_maps import NONE
from taciturn.errors import InputError, missing_file, nearest
from taciturn.settings.checks import BY_MODE, check_backend, check_mode, choose_noise
from taciturn.settings.settings import FIELDS, Settings

_LOADED: dict[Path, str] = {}  # SHA-256 of what this process runs


def allow(paths: Iterable[str]) -> None:
    """Remember that the user named these files."""
    for path in _files(paths):
        known = _known(_digest(path))
        state_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        known.parent.mkdir(mode=0o700, exist_ok=True)
        known.touch(mode=0o600)
        known.write_text(f"{path}\n", encoding="utf-8")


def load_plugins(paths: Iterable[str]) -> None:
    """Run each file once in this process; what it registers can be named from then on."""
    for path in _files(paths):
        digest = _digest(path)
        if _LOADED.get(path, digest) != digest:
            raise InputError(f"the plugin {path} changed since this process loaded it: start Python anew")
        if not _known(digest).is_file():
            raise InputError(
                f"the run was made with the plugin {path}, which was never used here as it is now: look at it, for it "
                f"is a program; 'taciturn algorithms --plugins {path}' allows it"
            )
        if path not in _LOADED:
            _run(path)
            _LOADED[path] = digest


def digests(paths: Iterable[str]) -> dict[str, str]:
    """SHA-256 of each file that was loaded, by its name."""
    return {path.name: _LOADED[path] for path in _files(paths)}


def _files(paths: Iterable[str]) -> list[Path]:
    files = [Path(given).expanduser().resolve() for given in paths]
    for path in files:
        if not path.is_file():
            raise missing_file("plugin", path, "plugins names Python files")
        if path.suffix != ".py":
            raise InputError(f"{path} is not a Python file: plugins names files that end in .py")
        if [other.name for other in files].count(path.name) > 1:
            raise InputError(f"two plugins are named {path.name}: the ledger knows them by name, so rename one")
    return files


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _known(digest: str) -> Path:
    return state_folder() / "plugins" / digest


def _run(path: Path) -> None:
    name = f"taciturn_plugin_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses and pickles look for it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(f"the plugin {path} cannot be loaded: {type(error).__name__}: {error}") from None


def parse(given: Mapping[str, Any]) -> dict[str, Any]:
    """Values by the rules of the table; a key nobody knows is an error, never a silent default."""
    for key in given:
        if key not in FIELDS:
            raise InputError(f"no setting '{key}'{nearest(key, FIELDS)}: 'taciturn config init' shows all there are")
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
