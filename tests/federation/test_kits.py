"""A kit permits a connection and nothing else: other files are refused, and only the latest kit is valid."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from taciturn.errors import InputError, TaciturnError
from taciturn.federation.kits import (
    ADDRESS,
    CA,
    CERTIFICATE,
    FILES,
    HUB,
    KEY,
    check_address,
    provision,
    read_issued,
    read_kit,
)
from taciturn.federation.terms import read_terms
from tests.federation.helpers import write_terms


@pytest.fixture
def kits(tmp_path: Path) -> Path:
    provision(read_terms(write_terms(tmp_path)), tmp_path / "kits")
    return tmp_path / "kits"


def code(kit: Path) -> None:
    """Add a file that would execute code when NVFlare's own client starts."""
    (kit / "log_config.json").write_text('{"handlers": {"x": {"()": "subprocess.check_output", "args": ["id"]}}}')


def folder(kit: Path) -> None:
    (kit / "local").mkdir()
    code(kit / "local")


def link_to_a_secret(kit: Path) -> None:
    (kit / CA).unlink()
    (kit / CA).symlink_to(kit.parent.parent / "federation.toml")


def link_to_a_folder(kit: Path) -> None:
    (kit / "startup").symlink_to(kit.parent)


def pipe(kit: Path) -> None:
    (kit / CA).unlink()
    os.mkfifo(kit / CA)


def hidden(kit: Path) -> None:
    (kit / ".env").write_text("PYTHONSTARTUP=x")


def module(kit: Path) -> None:
    (kit / "sitecustomize.py").write_text("raise SystemExit")


def other_key(kit: Path) -> None:
    shutil.copy(kit.parent / "south" / KEY, kit / KEY)


def other_authority(kit: Path) -> None:
    provision(read_terms(kit.parent.parent / "federation.toml"), kit.parent.parent / "foreign")
    shutil.copy(kit.parent.parent / "foreign" / "north" / CA, kit / CA)


def other_site(kit: Path) -> None:
    for name in FILES:
        shutil.copy(kit.parent / "south" / name, kit / name)


def no_certificate(kit: Path) -> None:
    (kit / CERTIFICATE).write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")


def no_address(kit: Path) -> None:
    (kit / ADDRESS).write_text(json.dumps({"host": "localhost", "port": {"()": "os.system"}}))


HARM: list[tuple[Callable[[Path], None], str]] = [
    (code, "has log_config.json, which does not belong"),
    (folder, "has local, which does not belong"),
    (link_to_a_secret, "not a regular file"),
    (link_to_a_folder, "has startup, which does not belong"),
    (pipe, "not a regular file"),
    (hidden, "has .env, which does not belong"),
    (module, "has sitecustomize.py, which does not belong"),
    (other_key, "is not the key of"),
    (other_authority, "was not issued by the authority"),
    (other_site, "kit of south, not of north"),
    (no_certificate, "is damaged"),
    (no_address, "is damaged"),
]


@pytest.mark.parametrize(("harm", "said"), HARM, ids=lambda value: getattr(value, "__name__", ""))
def test_a_kit_has_exactly_its_owners_four_files(kits: Path, harm: Callable[[Path], None], said: str) -> None:
    assert read_kit(kits / "north", "north").owner == "north"
    harm(kits / "north")
    with pytest.raises(TaciturnError, match=said):
        read_kit(kits / "north", "north")


def test_kits_can_be_read_only_by_their_owners(kits: Path) -> None:
    for path in [kits, *kits.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_kit_of_another_address_is_refused(kits: Path, tmp_path: Path) -> None:
    terms = read_terms(write_terms(tmp_path / "other", {"server": {"host": "elsewhere"}}))
    with pytest.raises(InputError, match="renewed kits"):
        check_address(read_kit(kits / "north"), terms)


def test_only_the_last_kit_counts(kits: Path, tmp_path: Path) -> None:
    before, kept = (
        read_issued(kits),
        {name: (kits / name / CERTIFICATE).read_bytes() for name in ("north", "south", HUB)},
    )
    provision(read_terms(tmp_path / "federation.toml"), kits, ["north"])
    after = read_issued(kits)
    assert after.pop("north") != before.pop("north") and after == before
    now = {name: (kits / name / CERTIFICATE).read_bytes() for name in kept}
    assert [name for name in kept if now[name] != kept[name]] == ["north"]
    read_kit(kits / "north", "north")
