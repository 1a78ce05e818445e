"""Resolve files, flags and keywords to the settings of a run, after loading the plugins they name."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from taciturn.algorithms import ALGORITHMS
from taciturn.core.storage import make_folder, state_folder, write_text
from taciturn.data import source_for
from taciturn.data.feature_maps import BINS, NONE
from taciturn.errors import InputError, missing_file, nearest
from taciturn.settings.checks import BY_MODE, check_backend, check_mode, choose_noise
from taciturn.settings.rules import check_plain, flag_name
from taciturn.settings.settings import FIELDS, Settings

_LOADED: dict[Path, str] = {}  # SHA-256 of the plugins that this process runs


def resolve(*layers: Mapping[str, object]) -> Settings:
    """Combine layers of settings; later layers override earlier ones.

    The order of precedence is: defaults < the mode's defaults < the data set's preset < the layers in order, such as
    a config file and then flags.

    Parameters
    ----------
    *layers
        Values by setting name, as numbers, strings or lists.

    Raises
    ------
    InputError
        If a name is unknown, a value breaks its rule, a combination is invalid, or a plugin was never allowed.

    Examples
    --------
    >>> settings = resolve({"total_epsilon": "1,2", "rounds": 5}, {"rounds": "10"})
    >>> settings.total_epsilon, settings.rounds, settings.algorithm
    ((1.0, 2.0), 10, ('dpgd',))
    """
    chosen: dict[str, Any] = {}
    for layer in layers:
        load_plugins(_plugins(layer))
    for layer in layers:
        chosen |= {name: value for name, value in parse(layer).items() if value != ()}  # (): the mode's default
    mode, source = chosen.get("mode", FIELDS["mode"].default), source_for(chosen.get("data", FIELDS["data"].default))
    preset = parse({**source.preset, **(source.paper if mode == "paper" else {})})
    if "eta" in chosen:
        preset.pop("eta_scale", None)  # it belongs to the preset's eta
    settings = Settings(**{**BY_MODE[mode], **preset, **chosen})
    settings = check_backend(check_mode(choose_noise(settings), chosen))
    defaults: dict[str, Any] = {
        "features": source.features if mode == "certified" else NONE,
        "partition": "hashed" if settings.private and source.is_table else "in-order",
        "server": "sums",
    }
    settings = replace(settings, **{name: v for name, v in defaults.items() if getattr(settings, name) == "auto"})
    if mode == "certified" and "algorithm" not in chosen and settings.features == BINS and settings.backend != "torch":
        settings = replace(settings, algorithm=("additive",))
    if settings.local_updates != "auto":
        multiple = [name for name in ALGORITHMS if ALGORITHMS[name].local_updates]
        _check_supported(settings, "local-updates", "makes one local update per round", multiple)
    if settings.sampling_rate != "auto":
        sampling = [name for name in ALGORITHMS if ALGORITHMS[name].sampling is not None]
        _check_supported(settings, "sampling-rate", "uses all records", sampling)
    return settings


def resolve_given(*layers: Mapping[str, object]) -> Settings:
    """Resolve settings that the user gives, which allows the plugins they name."""
    allow_plugins(*layers)
    return resolve(*layers)


def parse(given: Mapping[str, object]) -> dict[str, Any]:
    """Parse values by the rules of the table.

    Raises
    ------
    InputError
        If a name is unknown or a value breaks its rule.
    """
    for key in given:
        if key not in FIELDS:
            raise InputError(f"no setting '{key}'{nearest(key, FIELDS)}: 'taciturn config init' lists all settings")
        check_plain(flag_name(key), given[key])
    return {key: FIELDS[key].metadata["rule"](flag_name(key), value) for key, value in given.items()}


def _check_supported(settings: Settings, name: str, otherwise: str, supporting: list[str]) -> None:
    if not set(settings.algorithm) & set(supporting):
        algorithms = ", ".join(settings.algorithm)
        raise InputError(f"{name} is given, but {algorithms} {otherwise}: {', '.join(supporting)} support it")


def allow_plugins(*layers: Mapping[str, object]) -> None:
    """Allow the plugins that these settings name, because the user named them."""
    for layer in layers:
        for path in _files(_plugins(layer)):
            allowed = _allowed(_digest(path))
            make_folder(allowed.parent, exist_ok=True)
            write_text(allowed, f"{path}\n")


def load_plugins(paths: Iterable[str]) -> None:
    """Run each plugin once in this process, so that the components it registers can be named.

    Raises
    ------
    InputError
        If a file is missing, was never allowed in its present form, changed since it was loaded, or fails to load.
    """
    for path in _files(paths):
        digest = _digest(path)
        if _LOADED.get(path, digest) != digest:
            raise InputError(f"the plugin {path} changed since this process loaded it: restart Python")
        if not _allowed(digest).is_file():
            raise InputError(
                f"the run used the plugin {path}, which was never allowed on this machine in its present form: review "
                f"it, because it is a program, then allow it with 'taciturn algorithms --plugins {path}'"
            )
        if path not in _LOADED:
            _run(path)
            _LOADED[path] = digest


def plugin_digests(paths: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each loaded plugin by file name."""
    return {path.name: _LOADED[path] for path in _files(paths)}


def _plugins(layer: Mapping[str, object]) -> tuple[str, ...]:
    found: tuple[str, ...] = parse({"plugins": layer.get("plugins", ())})["plugins"]
    return found


def _files(paths: Iterable[str]) -> list[Path]:
    files = [Path(given).expanduser().resolve() for given in paths]
    for path in files:
        if not path.is_file():
            raise missing_file("plugin", path, "--plugins takes Python files")
        if path.suffix != ".py":
            raise InputError(f"{path} is not a Python file: --plugins takes files that end in .py")
        if [other.name for other in files].count(path.name) > 1:
            raise InputError(f"two plugins are named {path.name}: the ledger identifies them by name, so rename one")
    return files


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _allowed(digest: str) -> Path:
    """Return the marker file of an allowed plugin."""
    return state_folder() / "plugins" / digest


def _run(path: Path) -> None:
    name = f"taciturn_plugin_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look the module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(f"the plugin {path} cannot be loaded: {type(error).__name__}: {error}") from error
