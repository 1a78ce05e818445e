"""A site's records: no single one of them decides whether the site takes part in a study."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.federation.agreement import own_records
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
