"""The grid of a sweep: which settings vary, which of them share a run folder, and the points that are left."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.data import source_for
from tacit.errors import InputError
from tacit.settings import Settings, resolve
from tacit.settings.resolve import parse
from tacit.settings.rules import several
from tacit.settings.settings import FIELDS
from tacit.study.batches import batches
from tacit.study.begin import kept
from tacit.views.tables import format_setting

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
class Point:
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
    points: tuple[Point, ...]

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
    settings = [kept(resolve(config, given, beside, one)) for one in chosen]
    for one in settings:
        check_test(one, "a sweep compares")
    points = points_of(settings, between)
    found = {name: tuple(dict.fromkeys(point.values[name] for point in points)) for name in between}
    return Grid({name: found.get(name, values) for name, values in axes.items()}, points)


def points_of(settings: Sequence[Settings], between: Sequence[str]) -> tuple[Point, ...]:
    """A point for each of these settings, named by its number and what varies between them."""
    width = len(str(len(settings)))
    values = [{name: getattr(one, name) for name in between} for one in settings]
    return tuple(
        Point(_name(number, width, mine), mine, one)
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
