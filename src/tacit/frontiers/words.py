"""A frontier in words: its table, what its figures rest on, and how to train one of its points again."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tacit.frontiers.points import FrontierPoint, rises
from tacit.views.intervals import mean_words
from tacit.views.tables import format_bytes, format_epsilon, format_setting, format_share

HEADINGS = (
    *("trust", "features", "algorithm", "total ε", "spent ε", "δ", "test error", "", "lowest", "highest"),
    *("seeds", "rounds", "sent", "received"),
)
TEXT = ("trust", "features", "algorithm")  # the columns that are words
TERMINAL = ("trust", "features", "algorithm", "total ε", "test error", "", "rounds", "sent")  # 80 columns
MARK = "*"
MARKED = f"{MARK} the lowest mean of its trust model at that budget"
GIVEN = "Given by hand: {given}; what that was chosen by is not counted here."
PLANNED = (
    "{what} the planner's, from public facts: no record and no test label was looked at to choose them, and that cost "
    "no budget."
)
PICKED = "The marks go by the test records: whoever chooses a method by them has looked there."
TRUSTED = "That total holds only where nobody sees more than the trust model of each run allows."
NOT_AGAIN = "Hardened noise cannot be drawn again: the models are those in runs, and every one of them was a release."
OWNERS = "These test errors are computed from private records without noise: for the owner of the records alone."


class Table(NamedTuple):
    """Headings and rows of text."""

    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]


def table(points: Sequence[FrontierPoint], regression: bool, shown: Sequence[str] = HEADINGS) -> Table:
    """The points under some of HEADINGS; what all points share is left out of TERMINAL's."""
    alike = shown != HEADINGS and len({one.features for one in points}) == 1
    chosen = [i for i, name in enumerate(HEADINGS) if name in shown and not (name == "features" and alike)]
    rows = [cells(one, regression) for one in points]
    return Table(tuple(HEADINGS[i] for i in chosen), [tuple(row[i] for i in chosen) for row in rows])


def cells(point: FrontierPoint, regression: bool) -> tuple[str, ...]:
    """A point as text, under HEADINGS."""
    return (
        point.trust,
        point.features,
        point.algorithm,
        budget(point.epsilon),
        format_epsilon(point.spent),
        f"{point.delta:g}",
        mean_words(point.error, regression),
        MARK if point.lowest else "",
        format_share(min(point.errors), regression),
        format_share(max(point.errors), regression),
        str(len(point.errors)),
        str(point.rounds),
        format_bytes(point.bytes_up),
        format_bytes(point.bytes_down),
    )


def budget(epsilon: float) -> str:
    """A total as it is asked for."""
    return "no noise" if math.isinf(epsilon) else f"{epsilon:g}"


def explained(points: Sequence[FrontierPoint], regression: bool) -> Iterator[str]:
    """What the figures of a table are, and what its marks go by."""
    n = max(one.error.n for one in points)
    means = f"mean of {n} seeds ± half its 95 % interval (Student t)" if n > 1 else "one seed, so no interval"
    yield f"{MARKED}; test error: {means}; sent: by one agent in all rounds"
    for before, after in rises(points):
        found = [format_share(one.error.mean, regression) for one in (before, after)]
        budgets = [budget(one.epsilon) for one in (before, after)]
        yield (
            f"{after.trust}: total epsilon {budgets[1]} came out worse than {budgets[0]} ({found[1]}, {found[0]}); it "
            "is shown as measured"
        )
    yield PICKED


def rests_on(given: Mapping[str, Any]) -> list[str]:
    """How the hyperparameters were chosen."""
    fixed = ", ".join(f"{name.replace('_', '-')} {format_setting(value)}" for name, value in given.items())
    by_hand = [GIVEN.format(given=fixed)] if given else []
    return [*by_hand, PLANNED.format(what="All else is" if given else "Rounds, clip and steps are")]


def again(points: Sequence[FrontierPoint], folder: Path, key: int | None) -> dict[str, str]:
    """The command that trains the best point of each trust model again, at the smallest budget that was asked for.

    `key`: by which private records were held out, where the command is for their owner.
    """
    lowest = [one for one in points if one.lowest]
    smallest = {one.trust: one for one in reversed(lowest)}  # budgets rise
    return {trust: _command(smallest[trust], folder, key) for trust in dict.fromkeys(one.trust for one in lowest)}


def _command(point: FrontierPoint, folder: Path, key: int | None) -> str:
    config = folder / "runs" / point.run / "config.toml"
    chosen = ["--algorithm", point.algorithm, "--total-epsilon", repr(point.epsilon).removesuffix(".0")]
    keyed = [] if key is None else ["--partition-key", str(key)]
    return shlex.join(["tacit", "run", str(config), *chosen, *keyed])
