"""The grid of a frontier: a run folder for each feature map and trust model, with the methods that fit there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tacit.algorithms import ALGORITHMS
from tacit.data import source_for
from tacit.errors import InputError
from tacit.settings import Settings, resolve
from tacit.settings.plugins import load_plugins
from tacit.settings.resolve import parse
from tacit.settings.rules import choices_of, several
from tacit.settings.settings import FIELDS
from tacit.study.begin import kept
from tacit.sweeps.grid import Grid, check_noise, check_test, points_of

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
    axes = {name: _values(name, asked[name]) for name in AXES if name in asked}
    trusts = axes.get("trust") or tuple(choices_of(FIELDS["trust"].metadata["rule"]))
    algorithms, budgets = axes.get("algorithm", ()), tuple(sorted(axes.get("total_epsilon") or BUDGETS))
    own = parse({name: asked[name] for name, trust in BELONGS.items() if name in asked and trust in trusts})
    rest = {name: value for name, value in asked.items() if name not in {*AXES, *own}}
    _check_mode(rest)
    check_noise({**rest, "total_epsilon": budgets}, "a frontier")
    usual = {"seeds": 1 if rest.get("noise") == "hardened" else SEEDS}
    settings = [
        kept(resolve(usual, rest, one, _there(own, trust), {"algorithm": fitting, "total_epsilon": budgets}))
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
    return "" if trust == "agents" or method.summed else NOT_SUMMED


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


def _values(name: str, given: Any) -> tuple[Any, ...]:
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
