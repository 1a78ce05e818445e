"""Grids of settings: which settings vary, which runs share a run folder, and which methods fit a trust model."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

from taciturn.algorithms import ALGORITHMS
from taciturn.data import source_for
from taciturn.errors import InputError
from taciturn.planning.study import batches, with_absolute_paths
from taciturn.reporting.tables import format_setting
from taciturn.settings import Settings, resolve
from taciturn.settings.resolve import load_plugins, parse
from taciturn.settings.rules import choices_of, flag_name, list_of
from taciturn.settings.settings import FIELDS

BATCHED = ("algorithm", "total_epsilon", "epsilon")  # trained side by side in one run folder, as seeds are
NOT_SWEPT = {
    "seeds": "use --seeds NUMBER; every point runs with all seeds",
    "seed": "use --seeds NUMBER; every point runs with all seeds",
    "out": "use --out FOLDER; all points are written to it",
    "name": "points are named after their settings",
    "ledger": "one ledger counts all studies on the same records",
    "records_max": "it is a fact about the records",
}
MAX_NAME_LENGTH = 80  # characters of a run folder's name


@dataclass(frozen=True)
class GridPoint:
    """One run folder of an experiment."""

    name: str
    values: Mapping[str, object]  # of the settings that vary between points
    settings: Settings

    @property
    def runs(self) -> int:
        """Number of runs: algorithms times budgets times seeds."""
        return sum(batch.size for batch in batches(self.settings))


class GridRequest(TypedDict):
    """An experiment as its TOML file describes it."""

    over: dict[str, list[Any]]
    settings: dict[str, object]  # those that all points share
    compare: NotRequired[list[str]]  # of a sweep


@dataclass(frozen=True)
class Grid:
    """The points of a sweep or frontier."""

    over: Mapping[str, tuple[Any, ...]]  # setting -> its values, in the order given
    points: tuple[GridPoint, ...]

    @property
    def runs(self) -> int:
        """Number of runs of all points."""
        return sum(point.runs for point in self.points)

    @property
    def between(self) -> tuple[str, ...]:
        """Settings that vary from point to point."""
        return tuple(name for name in self.over if name not in BATCHED)

    def request(self) -> GridRequest:
        """Return what is written to the experiment's TOML file: `over`, and every setting that all points share."""
        written = [point.settings.to_dict() for point in self.points]
        first = written[0]
        common = {name: first[name] for name in first if all(other.get(name) == first[name] for other in written)}
        if any(point.settings.private for point in self.points):
            common["partition_key"] = "auto"  # the key itself is private: it is in local-only
        return {
            "over": {name: list(values) for name, values in self.over.items()},
            "settings": {name: value for name, value in common.items() if name not in self.over},
        }


def sweep_grid(config: Mapping[str, object], given: Mapping[str, object], over: Mapping[str, object]) -> Grid:
    """Return the grid of a sweep; the settings of every point are checked.

    Parameters
    ----------
    config : mapping
        Settings of a config file.
    given : mapping
        Settings given by flags or keywords; they take precedence over the file.
    over : mapping
        The settings to vary, each with its values, as in `{"clip": [0.5, 1, 2]}` or `{"clip": "0.5,1,2"}`.

    Raises
    ------
    InputError
        If nothing is swept, a setting cannot be swept, or a point's settings are invalid.
    """
    axes = _parse_axes(given, over)
    batched = {name: values for name, values in axes.items() if name in BATCHED}
    between = [name for name in axes if name not in BATCHED]
    products = itertools.product(*(axes[name] for name in between))
    combinations = [dict(zip(between, values, strict=True)) for values in products]
    for values in combinations:
        check_noise({**config, **given, **batched, **values}, "a sweep")
    settings = [with_absolute_paths(resolve(config, given, batched, values)) for values in combinations]
    for checked in settings:
        _check_test_records(checked, "a sweep")
    points = _name_points(settings, between)
    resolved = {name: tuple(dict.fromkeys(point.values[name] for point in points)) for name in between}
    return Grid({name: resolved.get(name, values) for name, values in axes.items()}, points)


def _parse_axes(given: Mapping[str, object], over: Mapping[str, object]) -> dict[str, tuple[Any, ...]]:
    swept = {name.replace("-", "_"): values for name, values in over.items()}
    if not swept:
        raise InputError("nothing is swept; use --over NAME=VALUE,VALUE, as in --over clip=0.5,1,2")
    for name in swept:
        if name in NOT_SWEPT:
            raise InputError(f"{flag_name(name)} cannot be swept: {NOT_SWEPT[name]}")
        if name in given:
            raise InputError(f"{flag_name(name)} is both swept and given; remove --{flag_name(name)}")
        if name not in FIELDS:
            parse({name: None})  # raises, and suggests the nearest name
    axes = {name: _parse_values(name, values) for name, values in swept.items()}
    for name, values in axes.items():
        if not values:
            raise InputError(f"{flag_name(name)} is swept over no value; it needs at least one")
    return axes


def _parse_values(name: str, given: Any) -> tuple[Any, ...]:
    rule = FIELDS[name].metadata["rule"]
    values: tuple[Any, ...] = (rule if name in BATCHED else list_of(rule))(flag_name(name), given)
    return values


def _name_points(settings: Sequence[Settings], between: Sequence[str]) -> tuple[GridPoint, ...]:
    """Return a point for each of these settings, named by its number and the settings that vary."""
    width = len(str(len(settings)))
    points = []
    for number, own in enumerate(settings, 1):
        values = {name: getattr(own, name) for name in between}
        parts = [f"{flag_name(name)}={format_setting(value)}" for name, value in values.items()]
        text = re.sub(r"[^A-Za-z0-9._=-]+", "_", "-".join([f"{number:0{width}d}", *parts]))
        points.append(GridPoint(text[:MAX_NAME_LENGTH].rstrip("_."), values, own))
    return tuple(points)


def check_noise(given: Mapping[str, object], experiment: str) -> None:
    """Raise if many runs on private records are requested without saying whether they are simulated or real.

    Parameters
    ----------
    given : mapping
        Settings from file and flags, before defaults.
    experiment : str
        What trains the models, for the message: "a sweep" or "a frontier".
    """
    names = ("data", "mode", "total_epsilon", "noise", "seed")
    chosen = Settings(**parse({name: given[name] for name in names if name in given}))
    explicit = (chosen.noise, chosen.seed) != ("auto", "auto") or chosen.mode == "paper"
    if explicit or source_for(chosen.data).published or min(chosen.total_epsilon or (1.0,)) == math.inf:
        return
    raise InputError(
        f"{experiment} trains many models on the private records of {Path(chosen.data).name}; choose --seed N for a "
        "simulation, which protects no one, so that the results must stay with the owner of the records, or --noise "
        "hardened, which protects the records and spends the sum of the budgets of all runs"
    )


def _check_test_records(settings: Settings, experiment: str) -> None:
    """Raise if a table has no test records."""
    if source_for(settings.data).is_table and not (settings.test or settings.test_share):
        raise InputError(
            f"{experiment} needs test errors, and this table has no test records; use --test-share or --test"
        )


FRONTIER_BETWEEN = ("features", "trust")  # a run folder of a frontier has one value of each
FRONTIER_AXES = (*FRONTIER_BETWEEN, "algorithm", "total_epsilon")
DEFAULT_METHODS = {"agents": ("objp", "dpgd"), "secure-sum": ("objw", "dpgd"), "server": ("objw", "dpgd")}
DEFAULT_BUDGETS, DEFAULT_SEEDS = (0.5, 1.0, 3.0, 8.0), 3
NEEDS_ALL_RECORDS = "it needs all records in one place, which only a trusted server has"
NEEDS_LOCAL_NOISE = "noise on the sum is not proven to be enough for the state it keeps at the agents"
TRUST_SPECIFIC = dict.fromkeys(
    ("colluders", "missing", "reserve"), "secure-sum"
)  # settings that apply to one trust model
MANUAL_PRIVACY = ("mechanism", "clip", "clip_l1", "noise_multiplier", "record_bound")


class ExcludedMethod(NamedTuple):
    """A requested method that does not fit a trust model."""

    trust: str
    algorithm: str
    reason: str


def frontier_grid(config: Mapping[str, object], given: Mapping[str, object]) -> Grid:
    """Return the grid of a frontier.

    Parameters
    ----------
    config : mapping
        Settings of a config file.
    given : mapping
        Settings given by flags or keywords; they take precedence. Each of `FRONTIER_AXES` may have several values.

    Raises
    ------
    InputError
        If a setting is invalid, the mode is paper, or no method fits any of the trust models.
    """
    requested = {**config, **given}
    load_plugins(parse({"plugins": requested.get("plugins", ())})["plugins"])
    axes = {name: _parse_values(name, requested[name]) for name in FRONTIER_AXES if name in requested}
    trusts = axes.get("trust") or tuple(choices_of(FIELDS["trust"].metadata["rule"]))
    algorithms = axes.get("algorithm", ())
    budgets = tuple(sorted(axes.get("total_epsilon") or DEFAULT_BUDGETS))
    specific = parse(
        {name: requested[name] for name, trust in TRUST_SPECIFIC.items() if name in requested and trust in trusts}
    )
    rest = {name: value for name, value in requested.items() if name not in {*FRONTIER_AXES, *specific}}
    if rest.get("mode", "certified") == "paper":
        raise InputError("mode is paper, which has no total epsilon; a frontier needs --mode certified")
    check_noise({**rest, "total_epsilon": budgets}, "a frontier")
    defaults = {"seeds": 1 if rest.get("noise") == "hardened" else DEFAULT_SEEDS}
    settings = []
    for features in axes.get("features") or (None,):  # None: the data set's default
        for trust in trusts:
            methods = compatible_methods(algorithms, trust)
            own = {name: value for name, value in specific.items() if TRUST_SPECIFIC[name] == trust}
            own |= {"trust": trust, "algorithm": methods, "total_epsilon": budgets}
            own |= {} if features is None else {"features": features}
            if methods:
                settings.append(with_absolute_paths(resolve(defaults, rest, own)))
    if not settings:
        reasons = "; ".join(describe_exclusions(excluded_methods(trusts, algorithms)))
        raise InputError(f"no algorithm is left: {reasons}")
    _check_test_records(settings[0], "a frontier")
    maps = tuple(dict.fromkeys(own.features for own in settings))
    over = {"features": maps, "trust": trusts, "algorithm": algorithms, "total_epsilon": budgets}
    over |= {name: (value,) for name, value in specific.items()}
    return Grid(over, _name_points(settings, FRONTIER_BETWEEN))


def restore_frontier_grid(request: GridRequest) -> Grid:
    """Return the frontier grid that `Grid.request` described."""
    over = {name: values[0] if name in TRUST_SPECIFIC else values for name, values in request["over"].items()}
    shared = {name: value for name, value in request["settings"].items() if name not in TRUST_SPECIFIC}  # of defaults
    return frontier_grid({}, shared | over)


def compatible_methods(algorithms: Sequence[str], trust: str) -> list[str]:
    """Return the requested methods that fit a trust model, or its default methods if none are requested.

    >>> compatible_methods(["objp", "dpgd"], "secure-sum")
    ['dpgd']
    """
    return [name for name in algorithms or DEFAULT_METHODS[trust] if not incompatibility(name, trust)]


def incompatibility(algorithm: str, trust: str) -> str:
    """Return why a method cannot run under a trust model, or an empty string if it can."""
    method = ALGORITHMS[algorithm]
    if method.central:
        return "" if trust == "server" else NEEDS_ALL_RECORDS
    return "" if trust == "agents" or method.allows_aggregate_noise else NEEDS_LOCAL_NOISE


def excluded_methods(trusts: Sequence[str], algorithms: Sequence[str]) -> list[ExcludedMethod]:
    """Return the requested methods that do not run under one of the trust models."""
    found = [ExcludedMethod(trust, name, incompatibility(name, trust)) for trust in trusts for name in algorithms]
    return [excluded for excluded in found if excluded.reason]


def describe_exclusions(excluded: Sequence[ExcludedMethod]) -> list[str]:
    """Return one line for each method and reason, with the trust models that exclude it."""
    groups: dict[tuple[str, str], list[str]] = {}
    for trust, algorithm, reason in excluded:
        groups.setdefault((algorithm, reason), []).append(trust)
    return [f"{algorithm} under {' and '.join(trusts)}: {reason}" for (algorithm, reason), trusts in groups.items()]


def manual_hyperparameters(settings: Settings) -> dict[str, object]:
    """Return the hyperparameters that are neither a default nor from the data set's preset."""
    usual = {name: entry.default for name, entry in FIELDS.items()} | parse(source_for(settings.data).preset)
    return {
        name: value
        for name, entry in FIELDS.items()
        if (entry.metadata["group"] in {"Problem", "Algorithm"} or name in MANUAL_PRIVACY)
        and name not in {*FRONTIER_AXES, "plugins"}
        and (value := getattr(settings, name)) != usual[name]
    }
