"""The numbers that the paper publishes, and the groups of runs to which they belong."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, TypedDict


class FinalErrors(TypedDict):
    """The test errors of a group's seeds after the last round; None where the error is no number."""

    round: int
    best: float | None
    mean: float | None
    low: float | None  # 20th percentile
    high: float | None  # 80th
    worst: float | None


CurveName: TypeAlias = Literal["mean", "low", "high", "noise"]


class GroupCurve(TypedDict, total=False):
    """A group's test error and noise by round; None where a value is no number."""

    round: list[int]
    mean: list[float | None] | None
    low: list[float | None] | None
    high: list[float | None] | None
    noise: list[float | None] | None


class Group(TypedDict):
    """The runs of a stage that differ in their seed alone."""

    stage: str
    algorithm: str
    epsilon: float | str  # or "inf"
    penalty: str
    outp_noise: str | None
    local_updates: int
    eta_scale: float | None
    seeds: int
    event: dict[str, object]
    final: FinalErrors
    curve: GroupCurve


class StageTime(TypedDict):
    """A stage that was computed."""

    name: str
    runs: int
    seconds: float


class Summary(TypedDict):
    """The JSON of a reproduction's results."""

    taciturn: str
    device: str
    digest: str
    agents: int
    records: int
    test_records: int
    data: str
    rounds: int
    seeds: int
    quick: bool
    stages: list[StageTime]
    groups: list[Group]


DATA = ("mnist", "femnist")  # from top to bottom in the paper
ALGORITHMS = {"outp": "OutP", "objp": "ObjP", "objpm": "ObjPM"}
NOISES = ("published", "published-formula", "calibrated")
PENALTY_NAMES = {"dynamic": "ρ̂ᵗ", "dynamic/100": "ρ̂ᵗ/100", "0.1": "ρ = 0.1", "1": "ρ = 1", "10": "ρ = 10"}
PENALTIES = tuple(PENALTY_NAMES)


def in_paper_order(summaries: Iterable[Summary]) -> list[Summary]:
    """Return the summaries in the paper's order of data sets; others come last."""
    return sorted(summaries, key=lambda summary: _place(DATA, summary["data"]))


def drawn(summary: Summary) -> list[Group]:
    """Return the groups of the paper's figures: the published noise and, of several steps, the largest."""
    largest: dict[str, float] = {}
    for group in summary["groups"]:
        largest[group["algorithm"]] = max(_scale(group), largest.get(group["algorithm"], 0.0))
    chosen = [group for group in summary["groups"] if _scale(group) == largest[group["algorithm"]]]
    return [group for group in chosen if group["outp_noise"] in {None, "published"}]


def find(summary: Summary, algorithm: str, epsilon: float, penalty: str = "dynamic") -> Group | None:
    """Return the drawn group of an algorithm at an epsilon under a penalty."""
    wanted = (algorithm, epsilon, penalty)
    found = (g for g in drawn(summary) if (g["algorithm"], float(g["epsilon"]), g["penalty"]) == wanted)
    return next(found, None)


def epsilons(summaries: Iterable[Summary]) -> list[float]:
    """Return the finite epsilons, rising."""
    every = {float(group["epsilon"]) for summary in summaries for group in summary["groups"]}
    return sorted(every - {math.inf})


def in_table_order(summary: Summary) -> list[Group]:
    """Return every group by algorithm, noise, penalty and step, then by epsilon."""
    return sorted(
        summary["groups"],
        key=lambda group: (
            _place(tuple(ALGORITHMS), group["algorithm"]),
            _place(NOISES, group["outp_noise"]),
            _place(PENALTIES, group["penalty"]),
            -_scale(group),
            float(group["epsilon"]),
        ),
    )


def group_name(summary: Summary, group: Group) -> str:
    """Return the name of a group's method, with the noise of OutP, E of the others, and a if not all steps are 1."""
    name = ALGORITHMS.get(group["algorithm"]) or str(group["algorithm"])
    if group["algorithm"] == "outp":
        return f"{name}, {group['outp_noise']} noise" if group["outp_noise"] else name
    scaled = f", a = {_scale(group):g}" if has_scales(summary) else ""
    return f"{name} (E = {group['local_updates']}){scaled}"


def has_scales(summary: Summary) -> bool:
    """Return whether a step was scaled differently than in the paper's text."""
    return any(_scale(group) != 1.0 for group in summary["groups"] if group["algorithm"] != "outp")


def describe(summaries: Sequence[Summary]) -> str:
    """Return data sets, rounds and seeds in words, with the drawn step where it is not that of the paper."""
    sizes = [f"{_count(summary['rounds'], 'round')}, {_count(summary['seeds'], 'seed')}" for summary in summaries]
    names = [data_name(s) + (f" (a = {max(map(_scale, s['groups'])):g})" if has_scales(s) else "") for s in summaries]
    if len(set(sizes)) == 1:
        return f"{' and '.join(names)}, {sizes[0]}"
    return "; ".join(f"{name}, {size}" for name, size in zip(names, sizes, strict=True))


def data_name(summary: Summary) -> str:
    """Return a data set's name as the paper writes it."""
    return str(summary["data"]).upper()


def _scale(group: Group) -> float:
    return float(group["eta_scale"] or 1.0)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _place(names: Sequence[str], name: str | None) -> int:
    return names.index(name) if name in names else len(names)


ROUNDS = 20_000
SEEDS = 10


class PublishedPoint(NamedTuple):
    """One published testing error, in %."""

    algorithm: str
    epsilon: float
    error: float
    where: str


NON_PRIVATE = "section IV-A: nonprivate IADMM"
BEST = "section IV-A: best of 10 runs after 20,000 rounds"

# The paper does not say how many local updates its nonprivate IADMM makes. ObjPM is the one whose errors it calls close
# to it at epsilon 1, so the number stands beside ObjPM without noise.
PUBLISHED: Mapping[str, tuple[PublishedPoint, ...]] = {
    "mnist": (
        PublishedPoint("outp", 0.05, 21.79, BEST),
        PublishedPoint("objpm", 0.05, 11.74, BEST),
        PublishedPoint("objpm", math.inf, 9.1, NON_PRIVATE),
    ),
    "femnist": (
        PublishedPoint("outp", 0.05, 91.05, BEST),
        PublishedPoint("objpm", 0.05, 59.42, BEST),
        PublishedPoint("objpm", math.inf, 37.27, NON_PRIVATE),
    ),
}
LOCAL_UPDATES = {"objp": 1, "objpm": 10}  # E


def published_error(data: str, group: Group) -> float | None:
    """Return the paper's error for a group's penalty, noise and E, in %; the scale of the step is ignored."""
    algorithm = group["algorithm"]
    same_noise = algorithm != "outp" or group["outp_noise"] == "published"
    same_updates = group["local_updates"] == LOCAL_UPDATES.get(algorithm, group["local_updates"])
    if group["penalty"] != "dynamic" or not same_noise or not same_updates:
        return None
    found = (
        p.error for p in PUBLISHED.get(data, ()) if (p.algorithm, p.epsilon) == (algorithm, float(group["epsilon"]))
    )
    return next(found, None)
