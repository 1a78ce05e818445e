"""Grids: which settings vary, which runs share a folder, and the grid of a frontier."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from taciturn.algorithms import ALGORITHMS
from taciturn.data import source_for
from taciturn.errors import InputError
from taciturn.planning.study import batches, with_absolute_paths
from taciturn.reporting.tables import format_setting
from taciturn.settings import Settings, resolve
from taciturn.settings.resolve import load_plugins, parse
from taciturn.settings.rules import choices_of, several
from taciturn.settings.settings import FIELDS

BATCHED = ("algorithm", "total_epsilon", "epsilon")  # trained side by side in one run folder, as seeds are
NOT_SWEPT = {
    "seeds": "give --seeds NUMBER: every point is run with all seeds",
    "seed": "give --seeds NUMBER: every point is run with all seeds",
    "out": "give --out FOLDER: the points lie in it",
    "name": "points are named by their settings",
    "ledger": "one ledger counts all studies on the same records",
    "records_max": "it is a fact about the records",
}
LONGEST_NAME = 80  # letters of a folder's name


@dataclass(frozen=True)
class GridPoint:
    """One run folder of a sweep."""

    name: str
    values: Mapping[str, Any]  # of the settings that vary between points
    settings: Settings

    @property
    def runs(self) -> int:
        """How many runs it has: algorithms, budgets and seeds."""
        return sum(batch.size for batch in batches(self.settings))


@dataclass(frozen=True)
class Grid:
    """All of a sweep."""

    over: Mapping[str, tuple[Any, ...]]  # setting -> its values, in the order given
    points: tuple[GridPoint, ...]

    @property
    def runs(self) -> int:
        """How many runs it has in all."""
        return sum(point.runs for point in self.points)

    @property
    def between(self) -> tuple[str, ...]:
        """The settings that vary from point to point."""
        return tuple(name for name in self.over if name not in BATCHED)

    def document(self) -> dict[str, Any]:
        """What was asked, complete: `over`, and every setting that all points have in common."""
        written = [point.settings.written() for point in self.points]
        first = written[0]
        common = {name: first[name] for name in first if all(one.get(name) == first[name] for one in written)}
        if any(point.settings.private for point in self.points):
            common["partition_key"] = "auto"  # it is in local-only
        return {
            "over": {name: list(values) for name, values in self.over.items()},
            "settings": {name: value for name, value in common.items() if name not in self.over},
        }


def make_grid(config: Mapping[str, Any], given: Mapping[str, Any], over: Mapping[str, Any]) -> Grid:
    """The grid of what a file, flags and `over` say; every point's settings are checked here."""
    axes = _axes(given, over)
    beside = {name: values for name, values in axes.items() if name in BATCHED}
    between = [name for name in axes if name not in BATCHED]
    chosen = [dict(zip(between, values, strict=True)) for values in itertools.product(*(axes[n] for n in between))]
    for values in chosen:
        check_noise({**config, **given, **beside, **values}, "a sweep")
    settings = [with_absolute_paths(resolve(config, given, beside, one)) for one in chosen]
    for one in settings:
        check_test(one, "a sweep compares")
    points = points_of(settings, between)
    found = {name: tuple(dict.fromkeys(point.values[name] for point in points)) for name in between}
    return Grid({name: found.get(name, values) for name, values in axes.items()}, points)


def points_of(settings: Sequence[Settings], between: Sequence[str]) -> tuple[GridPoint, ...]:
    """A point for each of these settings, named by its number and what varies between them."""
    width = len(str(len(settings)))
    values = [{name: getattr(one, name) for name in between} for one in settings]
    return tuple(
        GridPoint(_name(number, width, mine), mine, one)
        for number, (mine, one) in enumerate(zip(values, settings, strict=True), 1)
    )


def _axes(given: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    named = {name.replace("-", "_"): values for name, values in over.items()}
    if not named:
        raise InputError("nothing is swept: give --over NAME=VALUE,VALUE, as in --over clip=0.5,1,2")
    for name in named:
        flag = name.replace("_", "-")
        if name in NOT_SWEPT:
            raise InputError(f"{flag} cannot be swept: {NOT_SWEPT[name]}")
        if name in given:
            raise InputError(f"{flag} is swept and given as well: leave --{flag} out")
        if name not in FIELDS:
            parse({name: None})  # refuses the name, with the nearest
    return {name: _values(name, values) for name, values in named.items()}


def _values(name: str, given: Any) -> tuple[Any, ...]:
    rule = FIELDS[name].metadata["rule"]
    parsed: tuple[Any, ...] = (rule if name in BATCHED else several(rule))(name.replace("_", "-"), given)
    if not parsed:
        raise InputError(f"{name.replace('_', '-')} is swept over no value: it needs at least one")
    return parsed


def check_noise(asked: Mapping[str, Any], what: str) -> None:
    """Refuse many runs on private records where nothing says whether they are simulated or real."""
    names = ("data", "mode", "total_epsilon", "noise", "seed")
    usual: dict[str, Any] = {name: FIELDS[name].default for name in names}
    chosen = usual | parse({name: asked[name] for name in names if name in asked})
    said = (chosen["noise"], chosen["seed"]) != ("auto", "auto") or chosen["mode"] == "paper"
    if said or source_for(chosen["data"]).published or min(chosen["total_epsilon"] or (1.0,)) == math.inf:
        return
    raise InputError(
        f"{what} trains many models on the private records of {Path(chosen['data']).name}: --seed N simulates it, "
        "which protects nobody, so that all of it stays with the owner of the records; --noise hardened protects them, "
        "and all runs together spend the sum of their budgets"
    )


def check_test(settings: Settings, purpose: str) -> None:
    """Refuse a table without test records; `purpose` says what its errors are for."""
    if not (source_for(settings.data).name != "table" or settings.test or settings.test_share):
        raise InputError(f"{purpose} test errors, and this table has no test records: give --test-share or --test")


def _name(number: int, width: int, values: Mapping[str, Any]) -> str:
    """The folder of a point: its number, and its settings as far as a name can hold them."""
    parts = [f"{name.replace('_', '-')}={format_setting(value)}" for name, value in values.items()]
    text = "-".join([f"{number:0{width}d}", *parts])
    return re.sub(r"[^A-Za-z0-9._=-]+", "_", text)[:LONGEST_NAME].rstrip("_.")


BETWEEN = ("features", "trust")  # what a run folder has one value of
AXES = (*BETWEEN, "algorithm", "total_epsilon")
USUAL = {"agents": ("objp", "dpgd"), "secure-sum": ("objw", "dpgd"), "server": ("objw", "dpgd")}
BUDGETS, SEEDS = (0.5, 1.0, 3.0, 8.0), 3
CURATED = "it needs all records in one place, which only a trusted server has"
NOT_SUMMED = "noise on the sum is not proven to be enough for what it keeps at the agents"
BELONGS = {"colluders": "secure-sum"}  # a setting that means something under one trust model alone
BY_HAND = ("mechanism", "clip", "clip_l1", "noise_multiplier", "record_bound")  # beside two groups of settings


class LeftOut(NamedTuple):
    """A method that was asked for and does not fit a trust model."""

    trust: str
    algorithm: str
    reason: str


def frontier_grid(config: Mapping[str, Any], given: Mapping[str, Any]) -> Grid:
    """The grid of what a file and flags say, in which the four axes may have several values each."""
    asked = {**config, **given}
    load_plugins(parse({"plugins": asked.get("plugins", ())})["plugins"])
    axes = {name: _values_grid(name, asked[name]) for name in AXES if name in asked}
    trusts = axes.get("trust") or tuple(choices_of(FIELDS["trust"].metadata["rule"]))
    algorithms, budgets = axes.get("algorithm", ()), tuple(sorted(axes.get("total_epsilon") or BUDGETS))
    own = parse({name: asked[name] for name, trust in BELONGS.items() if name in asked and trust in trusts})
    rest = {name: value for name, value in asked.items() if name not in {*AXES, *own}}
    _check_mode(rest)
    check_noise({**rest, "total_epsilon": budgets}, "a frontier")
    usual = {"seeds": 1 if rest.get("noise") == "hardened" else SEEDS}
    settings = [
        with_absolute_paths(
            resolve(usual, rest, one, _there(own, trust), {"algorithm": fitting, "total_epsilon": budgets})
        )
        for one in [{"features": name} for name in axes.get("features", ())] or [{}]  # else the data set's own
        for trust in trusts
        if (fitting := methods(algorithms, trust))
    ]
    _check(settings, left_out(trusts, algorithms))
    maps = tuple(dict.fromkeys(one.features for one in settings))
    over = {"features": maps, "trust": trusts, "algorithm": algorithms, "total_epsilon": budgets}
    return Grid(over | {name: (value,) for name, value in own.items()}, points_of(settings, BETWEEN))


def grid_again(document: Mapping[str, Any]) -> Grid:
    """The grid that was written down."""
    over = {name: values[0] if name in BELONGS else values for name, values in document["over"].items()}
    return frontier_grid({}, document["settings"] | over)


def methods(algorithms: Sequence[str], trust: str) -> list[str]:
    """The methods of a trust model: those asked for that fit it, or its usual ones where none is asked for."""
    return [name for name in algorithms or USUAL[trust] if not reason_against(name, trust)]


def reason_against(algorithm: str, trust: str) -> str:
    """Why a method cannot run under a trust model; empty where it can."""
    method = ALGORITHMS[algorithm]
    if method.central:
        return "" if trust == "server" else CURATED
    return "" if trust == "agents" or method.allows_aggregate_noise else NOT_SUMMED


def left_out(trusts: Sequence[str], algorithms: Sequence[str]) -> list[LeftOut]:
    """The methods that were asked for and do not run under some trust model."""
    found = [LeftOut(trust, name, reason_against(name, trust)) for trust in trusts for name in algorithms]
    return [one for one in found if one.reason]


def left_out_words(found: Sequence[LeftOut]) -> list[str]:
    """One line for each method and reason, with the trust models it is left out under."""
    return list(dict.fromkeys(f"left out: {_sentence(one, found)}" for one in found))


def by_hand(settings: Settings) -> dict[str, Any]:
    """The hyperparameters that are neither a default nor the data set's preset: somebody chose them."""
    usual = {name: entry.default for name, entry in FIELDS.items()} | parse(source_for(settings.data).preset)
    names = [n for n, entry in FIELDS.items() if entry.metadata["group"] in {"Problem", "Algorithm"} or n in BY_HAND]
    chosen = [name for name in names if name not in {*AXES, "plugins"}]
    return {name: value for name in chosen if (value := getattr(settings, name)) != usual[name]}


def _there(own: Mapping[str, Any], trust: str) -> dict[str, Any]:
    """The trust model, with the settings that belong to it."""
    return {"trust": trust} | {name: value for name, value in own.items() if BELONGS[name] == trust}


def _sentence(one: LeftOut, found: Sequence[LeftOut]) -> str:
    trusts = [other.trust for other in found if other[1:] == one[1:]]
    return f"{one.algorithm} under {' and '.join(trusts)}: {one.reason}"


def _values_grid(name: str, given: Any) -> tuple[Any, ...]:
    """The values of an axis; none stand for the usual ones."""
    rule = FIELDS[name].metadata["rule"]
    listed = isinstance(FIELDS[name].default, tuple)
    values: tuple[Any, ...] = (rule if listed else several(rule))(name.replace("_", "-"), given)
    return values


def _check(settings: Sequence[Settings], missing: Sequence[LeftOut]) -> None:
    if not settings:
        reasons = "; ".join(dict.fromkeys(_sentence(one, missing) for one in missing))
        raise InputError(f"no algorithm is left: {reasons}")
    check_test(settings[0], "a frontier is made of")


def _check_mode(given: Mapping[str, Any]) -> None:
    if given.get("mode", "certified") == "paper":
        raise InputError("mode is paper, which has no total epsilon to draw errors against: a frontier needs certified")
