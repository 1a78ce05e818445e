"""A site's records: no single one of them decides whether the site takes part in a study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tacit.federation.agreement import own_dataset, own_records
from tacit.federation.messages import Ready

from .helpers import answered, invite, make_federation, question

KEPT = ("heavy,70,yes", ",70,yes", "1e9,70,no", "inf,70,no")
LEFT_OUT = ("50,70,perhaps", "50,70,", "50,70", "50,70,no,1", '50,"70"kg,no')


@pytest.mark.parametrize("line", [*KEPT, *LEFT_OUT])
def test_a_record_with_a_bad_cell_keeps_no_site_out(tmp_path: Path, line: str) -> None:
    federation = make_federation(tmp_path / "f", only=("north",))
    table = federation.root / "north" / "table.csv"
    before = own_records(federation.site("north"), federation.agreement)
    table.write_text(table.read_text() + line + "\n")
    after = own_records(federation.site("north"), federation.agreement)
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
    """All rows of a site's table are its own, whatever its schema and its table say of agents."""
    federation = make_federation(tmp_path / "f", only=("north",))
    before = own_records(federation.site("north"), federation.agreement)
    table, schema = (federation.root / "north" / name for name in ("table.csv", "schema.toml"))
    header, *rows = table.read_text().splitlines()
    named = [f"{row},{cell if i == 1 else 'north'}" for i, row in enumerate(rows)]
    table.write_text("\n".join([f"{header},clinic", *named, ""]))
    schema.write_text(schema.read_text() + '[agent]\ncolumn = "clinic"\nnames = ["north", "south"]\n')
    after = own_records(federation.site("north"), federation.agreement)
    assert (after.x.tobytes(), after.y.tobytes()) == (before.x.tobytes(), before.y.tobytes())
    with federation.agent("north") as agent:
        assert isinstance(invite(agent, federation), Ready)
        answered(agent, question(federation, 1))


def test_the_files_of_a_folder_are_one_sites_own(tmp_path: Path) -> None:
    federation = make_federation(tmp_path / "f", only=("north",))
    site = federation.site("north")
    before = own_records(site, federation.agreement)
    header, *rows = Path(site.table).read_text().splitlines()
    folder = tmp_path / "months"
    folder.mkdir()
    for name, own in (("april", rows[:3]), ("may", rows[3:])):
        (folder / f"{name}.csv").write_text("\n".join([header, *own, ""]))
    after = own_records(replace(site, table=str(folder)), federation.agreement)
    assert after.x.tobytes() == before.x.tobytes()


@pytest.mark.parametrize("rows", [0, 1, 20, 21, 50])
def test_no_number_of_records_keeps_a_site_out(tmp_path: Path, rows: int) -> None:
    """One record above records_max does not, nor does the only one."""
    federation = make_federation(tmp_path / "f", only=("north",))
    lines = [f"{age},70,{'yes' if age % 2 else 'no'}" for age in range(rows)]
    (federation.root / "north" / "table.csv").write_text("\n".join(["age,weight,ill", *lines, ""]))
    found = own_dataset(federation.site("north"), federation.agreement)
    assert len(found.train[0].x) == min(rows, 20)
    assert len(found.notes) == (rows > 20)
    with federation.agent("north") as agent:
        assert isinstance(invite(agent, federation), Ready)
        answered(agent, question(federation, 1))
