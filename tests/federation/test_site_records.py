"""No single record decides whether a site takes part in a study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn.federation import agreement
from taciturn.federation.agreement import StudyLoader, load_site_dataset
from taciturn.federation.messages import Ready
from taciturn.privacy.events import Discrete
from taciturn.types import Dataset

from .helpers import SITES, answered, invite, make_federation, question, write_table

KEPT = ("heavy,70,yes", ",70,yes", "1e9,70,no", "inf,70,no")
LEFT_OUT = ("50,70,perhaps", "50,70,", "50,70", "50,70,no,1", '50,"70"kg,no')


@pytest.mark.parametrize("line", [*KEPT, *LEFT_OUT])
def test_a_record_with_a_bad_cell_keeps_no_site_out(tmp_path: Path, line: str) -> None:
    federation = make_federation(tmp_path / "f", only=("north",))
    table = federation.root / "north" / "table.csv"
    before = load_site_dataset(federation.site("north"), federation.agreement).train[0]
    table.write_text(table.read_text() + line + "\n")
    after = load_site_dataset(federation.site("north"), federation.agreement).train[0]
    assert len(after.x) - len(before.x) == (line in KEPT)
    for name in ("x", "y"):
        assert getattr(after, name)[: len(before.x)].tobytes() == getattr(before, name).tobytes()
    with federation.agent("north") as agent:
        assert isinstance(invite(agent, federation), Ready)
        answered(agent, question(federation, 1))


def test_a_site_without_a_usable_record_sends_noise(tmp_path: Path) -> None:
    federation = make_federation(tmp_path / "f", only=("north",))
    (federation.root / "north" / "table.csv").write_text("age,weight,ill\n50,70,perhaps\n")
    with federation.agent("north") as agent:
        assert isinstance(invite(agent, federation), Ready)
        assert answered(agent, question(federation, 1)).z.any()


@pytest.mark.parametrize("cell", ["north", "south", "", "No rth", "\x00", "N" * 10_000])
def test_no_cell_of_an_agent_column_keeps_a_site_out(tmp_path: Path, cell: str) -> None:
    """All rows of a site's table are its own, whatever its schema and table say about agents."""
    federation = make_federation(tmp_path / "f", only=("north",))
    before = load_site_dataset(federation.site("north"), federation.agreement).train[0]
    table, schema = (federation.root / "north" / name for name in ("table.csv", "schema.toml"))
    header, *rows = table.read_text().splitlines()
    named = [f"{row},{cell if i == 1 else 'north'}" for i, row in enumerate(rows)]
    table.write_text("\n".join([f"{header},clinic", *named, ""]))
    schema.write_text(schema.read_text() + '[agent]\ncolumn = "clinic"\nnames = ["north", "south"]\n')
    after = load_site_dataset(federation.site("north"), federation.agreement).train[0]
    assert (after.x.tobytes(), after.y.tobytes()) == (before.x.tobytes(), before.y.tobytes())
    with federation.agent("north") as agent:
        assert isinstance(invite(agent, federation), Ready)
        answered(agent, question(federation, 1))


def test_the_files_of_a_folder_are_one_sites_own(tmp_path: Path) -> None:
    federation = make_federation(tmp_path / "f", only=("north",))
    site = federation.site("north")
    before = load_site_dataset(site, federation.agreement).train[0]
    header, *rows = Path(site.table).read_text().splitlines()
    folder = tmp_path / "months"
    folder.mkdir()
    for name, own in (("april", rows[:3]), ("may", rows[3:])):
        (folder / f"{name}.csv").write_text("\n".join([header, *own, ""]))
    after = load_site_dataset(replace(site, table=str(folder)), federation.agreement).train[0]
    assert after.x.tobytes() == before.x.tobytes()


@pytest.mark.parametrize("rows", [0, 1, 20, 21, 50])
def test_no_number_of_records_keeps_a_site_out(tmp_path: Path, rows: int) -> None:
    """Neither one record above records_max nor the only record decides."""
    federation = make_federation(tmp_path / "f", only=("north",))
    lines = [f"{age},70,{'yes' if age % 2 else 'no'}" for age in range(rows)]
    (federation.root / "north" / "table.csv").write_text("\n".join(["age,weight,ill", *lines, ""]))
    found = load_site_dataset(federation.site("north"), federation.agreement)
    assert len(found.train[0].x) == rows
    assert len(found.notes) == (rows > 20)
    with federation.agent("north") as agent:
        assert isinstance(invite(agent, federation), Ready)
        answered(agent, question(federation, 1))


@pytest.mark.parametrize("rows", [19, 20, 21, 60])
def test_a_record_that_is_added_moves_the_sums_by_no_more_than_is_charged(tmp_path: Path, rows: int) -> None:
    """At records_max = 20 as anywhere: no record that is added pushes another one out."""
    federation = make_federation(tmp_path / "f", only=("north",))
    algorithm: Any = federation.agreement.algorithm
    release, problem, z = algorithm.release, algorithm.problem, federation.agreement.zero
    event = federation.agreement.plan.event
    assert isinstance(event, Discrete)

    def total(lines: list[str]) -> Any:
        (federation.root / "north" / "table.csv").write_text("\n".join(["age,weight,ill", *lines, ""]))
        shard = load_site_dataset(federation.site("north"), federation.agreement).train[0]
        return release.sum(problem, z, shard).astype(np.float64)

    lines = [f"{90 - row % 3},180,no" for row in range(rows)]
    change = np.linalg.norm(total(["91,181,yes", *lines]) - total(lines))
    assert 0.9 < change / (event.l2 * release.unit(problem)) <= 1.0


def test_records_are_read_once_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are loaded again at the start and at an invitation only if a file has changed."""
    federation = make_federation(tmp_path, only=SITES[:1])
    read: list[Dataset] = []
    site, prepared = federation.site("north"), StudyLoader()

    def reading(*given: Any) -> Dataset:
        read.append(load_site_dataset(*given))
        return read[-1]

    monkeypatch.setattr(agreement, "load_site_dataset", reading)
    assert prepared.dataset(site) is prepared.dataset(federation.site("north"))
    assert prepared.agreement(site) is prepared.agreement(site)
    assert len(read) == 1
    write_table(Path(site.table), 5, rows=9)
    assert len(prepared.dataset(site).train[0].x) == 9
    federation.change("north", {"data": {"records_max": 19}})
    prepared.dataset(federation.site("north"))
    terms = site.study.read_text()
    site.study.write_text(terms.replace("total_epsilon = 1.0", "total_epsilon = 0.5"))
    assert prepared.agreement(site).plan.total_epsilon == 0.5
    assert len(prepared.dataset(site).train[0].x) == 9
    schema = Path(site.schema)
    schema.write_text(schema.read_text() + "\n")
    prepared.dataset(site)
    assert len(read) == 5
