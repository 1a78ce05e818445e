"""A site's records: no single one of them decides whether the site takes part in a study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tacit.federation import agreement
from tacit.federation.agreement import Prepared, own_records
from tacit.federation.messages import Ready
from tacit.types import Shard

from .helpers import SITES, answered, invite, make_federation, question, write_table

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


def test_records_are_read_once_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start and at every invitation the same question is asked: only a change is worth the time."""
    federation = make_federation(tmp_path, only=SITES[:1])
    read: list[Shard] = []
    site, prepared = federation.site("north"), Prepared()

    def reading(*given: Any) -> Shard:
        read.append(own_records(*given))
        return read[-1]

    monkeypatch.setattr(agreement, "own_records", reading)
    assert prepared.records(site) is prepared.records(federation.site("north"))
    assert prepared.agreement(site) is prepared.agreement(site)
    assert len(read) == 1
    write_table(Path(site.table), 5, rows=9)
    assert len(prepared.records(site).x) == 9
    federation.change("north", {"data": {"records_max": 19}})
    prepared.records(federation.site("north"))
    terms = site.study.read_text()
    site.study.write_text(terms.replace("total_epsilon = 1.0", "total_epsilon = 0.5"))
    assert prepared.agreement(site).plan.total_epsilon == 0.5
    assert len(prepared.records(site).x) == 9
    schema = Path(site.schema)
    schema.write_text(schema.read_text() + "\n")
    prepared.records(site)
    assert len(read) == 5
