"""What a frontier leaves: points, a table, a page and a picture; private figures in local-only alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tacit.errors import InputError
from tacit.frontiers.grid import by_hand, left_out, left_out_words
from tacit.frontiers.page import page
from tacit.frontiers.points import FrontierPoint, marked, points_in
from tacit.frontiers.words import TEXT, TRUSTED, again, explained, rests_on, table
from tacit.results.files import to_json, write_text
from tacit.results.folder import read_key
from tacit.sweeps.cost import Cost
from tacit.sweeps.ended import Ended
from tacit.sweeps.folder import write_csv
from tacit.sweeps.outcome import cells
from tacit.views.tables import markdown_table

NAME = "frontier"


@dataclass(frozen=True)
class Frontier(Ended):
    """A frontier that has ended, read from its run folders."""

    cost: Cost
    failed: Mapping[str, str]  # run folders that diverged, and how

    @cached_property
    def points(self) -> list[FrontierPoint]:
        """Every method, feature map, trust model and budget, by trust model and budget."""
        return marked(one for point, folder in self.ended for one in points_in(point, folder))

    def table(self) -> str:
        """The points as a Markdown table."""
        headings, rows = table(self.points, self.regression)
        return markdown_table(headings, rows, TEXT)

    def picture(self, path: str | Path) -> None:
        """Draw the points into a file that ends in .png, .svg or .pdf."""
        from tacit.frontiers.picture import frontier_figure  # noqa: PLC0415  matplotlib takes its time
        from tacit.views.style import save  # noqa: PLC0415

        save(frontier_figure(self.points, self.regression, self.private), Path(path), self.private)

    @property
    def place(self) -> Path:
        """Where the figures are."""
        return self.folder.place(self.private)

    @property
    def given(self) -> dict[str, Any]:
        """The hyperparameters that were given by hand."""
        return {name: value for point in self.grid.points for name, value in by_hand(point.settings).items()}

    @property
    def left_out(self) -> list[str]:
        """What was asked for and is not there, and why."""
        found = left_out(self.grid.over["trust"], self.grid.over["algorithm"])
        return [*left_out_words(found), *(f"{name} did not end: {words}" for name, words in self.failed.items())]

    @property
    def spent(self) -> list[str]:
        """What all runs together cost, in words."""
        return [*self.cost.sentences(), *([TRUSTED] if len(self.grid.over["trust"]) > 1 else [])]

    @property
    def again(self) -> dict[str, str]:
        """For each trust model the command that trains its best point again; none for noise that has no seed."""
        seeded = all(point.settings.noise == "seeded" for point in self.grid.points)
        key = read_key(self.path / "local-only") if self.private else None
        return again(self.points, self.path, key) if seeded else {}

    @property
    def document(self) -> dict[str, Any]:
        """Everything `tacit frontier --json` prints."""
        return {
            "frontier": str(self.path),
            "local_only": self.private,
            "points": [one.facts() for one in self.points],
            "notes": list(explained(self.points, self.regression)),
            "left_out": self.left_out,
            "given_by_hand": self.given,
            "chosen": rests_on(self.given),
            "all_runs": [
                {**one.records._asdict(), "runs": one.runs, "epsilon": one.epsilon, "delta": one.delta}
                for one in self.cost.spending
            ],
            "spent": self.spent,
            "again": self.again,
        }


def conclude(done: Frontier) -> Frontier:
    """Write the table, the page and the picture; whatever holds a private figure goes into local-only."""
    if not done.points:
        words = "; ".join(f"{name}: {words}" for name, words in done.failed.items())
        raise InputError(f"no run of {done.path} came to an end: {words}")
    if done.private:
        write_text(done.path / f"{NAME}.md", page(done, local=False))
    place = done.place
    write_text(place / f"{NAME}.json", to_json(done.document) + "\n")
    write_csv(place / f"{NAME}.csv", [cells(one.facts()) for one in done.points])
    write_text(place / f"{NAME}.md", page(done, local=True))
    for ending in (".png", ".svg"):
        done.picture(place / f"{NAME}{ending}")
    return done
