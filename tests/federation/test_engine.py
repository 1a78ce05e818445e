"""The engine's program: what it is given, and the user it runs as."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from taciturn.errors import InputError
from taciturn.federation.engine import Engine, hub_address
from taciturn.federation.kits import HUB, provision
from taciturn.federation.terms import read_terms
from tests.federation.helpers import write_terms

pytestmark = pytest.mark.linux


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    kits = provision(read_terms(write_terms(tmp_path)), tmp_path / "kits")
    return Engine("north", [HUB], kits["north"], "localhost:9", 1000, tmp_path / "engine.log")


def test_a_kit_that_is_not_given_cannot_be_read(engine: Engine, tmp_path: Path) -> None:
    trial = engine.try_barriers({"other kit": [tmp_path / "kits" / "south"], "terms": [tmp_path / "federation.toml"]})
    trial.require()
    assert all(barrier.holds for barrier in trial.barriers if barrier.name in ("other kit", "terms"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can choose another user")
@pytest.mark.parametrize("user", ["", "daemon"])
def test_it_runs_as_the_user_it_is_given(engine: Engine, tmp_path: Path, user: str) -> None:
    """Root's engines run as nobody unless another user is named; files of that user stay closed all the same."""
    table = tmp_path / "table.csv"
    table.write_text("age,ill\n41,yes\n")
    os.chown(table, pwd.getpwnam(user or "nobody").pw_uid, -1)
    running = replace(engine, user=user).start({"records": [table]})
    try:
        uid = pwd.getpwnam(user or "nobody").pw_uid
        children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
        assert [Path(f"/proc/{child}").stat().st_uid for child in children] == [uid]
    finally:
        running.stop()


def test_a_user_that_does_not_exist_is_refused(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nobody-here"):
        replace(engine, user="nobody-here").start({"terms": [tmp_path / "federation.toml"]})


def test_a_hub_listens_on_loopback_where_the_sites_are_there() -> None:
    assert hub_address("localhost", 8002) == "localhost:8002"
    assert hub_address("center.example.org", 8002) == "0.0.0.0:8002"
