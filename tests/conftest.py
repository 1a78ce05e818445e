"""Settings for every test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("tacit", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("tacit")


@pytest.fixture(autouse=True, scope="session")
def own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The heads of ledgers that tests make are kept in a folder of the tests' own."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets, for the tests marked real_data."""
    folder = os.environ.get("TACIT_DATA", "")
    if not (folder and (Path(folder) / "mnist").is_dir()):
        pytest.skip("set TACIT_DATA to a folder that holds mnist/ to run this test")
    return Path(folder)
