"""A site's kit is locked as Tacit locks it, or it is not used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tacit.federation.flare.locks import check_locks, server_locks, site_locks, write_locks
from tacit.federation.flare.names import CONTROLLER, EXECUTOR, FILTER

from tacit.errors import InputError


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    (tmp_path / "local").mkdir()
    for name in (
        "resources.json.default",
        "authorization.json.default",
        "privacy.json.sample",
        "log_config.json.default",
    ):
        (tmp_path / "local" / name).write_text("{}")
    write_locks(tmp_path, site_locks())
    return tmp_path


def test_what_is_written_is_accepted(kit: Path) -> None:
    check_locks(kit)
    assert not [path for path in (kit / "local").iterdir() if path.suffix in {".default", ".sample"}]


def leaves(value: Any) -> list[tuple[Any, ...]]:
    """The way to every value in a file."""
    if isinstance(value, (dict, list)) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [(key, *rest) for key, item in items for rest in leaves(item)]
    return [()]


@pytest.mark.parametrize("name", site_locks())
def test_any_change_of_a_lock_is_refused(kit: Path, name: str) -> None:
    path = kit / "local" / name
    whole = path.read_text()
    ways = leaves(json.loads(whole))
    assert len(ways) > 2
    for way in ways:
        changed = json.loads(whole)
        place = changed
        for key in way[:-1]:
            place = place[key]
        place[way[-1]] = "any other value"
        path.write_text(json.dumps(changed))
        with pytest.raises(InputError, match=f"{name} is not the lock that Tacit puts into a kit"):
            check_locks(kit)
    path.write_text(json.dumps(json.loads(whole)))  # spaces do not matter
    check_locks(kit)


@pytest.mark.parametrize("name", site_locks())
@pytest.mark.parametrize("content", [None, "", "{}", "[]", "null", "{", '{"more": 1}'])
def test_a_lock_that_is_gone_or_something_else_is_refused(kit: Path, name: str, content: str | None) -> None:
    path = kit / "local" / name
    if content is None:
        path.unlink()
    elif "more" in content:
        path.write_text(json.dumps(json.loads(path.read_text()) | json.loads(content)))
    else:
        path.write_text(content)
    with pytest.raises(InputError, match=name):
        check_locks(kit)


@pytest.mark.parametrize("folder", ["custom", "local/custom"])
def test_a_folder_of_code_is_refused(kit: Path, folder: str) -> None:
    (kit / folder).mkdir()
    with pytest.raises(InputError, match=r"holds code that is not Tacit's"):
        check_locks(kit)


def test_the_locks_are_closed() -> None:
    """No submitted code, nothing but Tacit's own program, and every result through Tacit's filter."""
    locks = site_locks()
    rights = locks["authorization.json"]["permissions"]
    assert list(rights) == ["project_admin"]
    assert {right for right, who in rights["project_admin"].items() if who != "none"} == {
        "submit_job", "manage_job", "view",
    }  # fmt: skip
    assert rights["project_admin"]["byoc"] == rights["project_admin"]["shell_commands"] == "none"
    resources, privacy = locks["resources.json"], locks["privacy.json"]
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert resources["class_allow_list"] == [EXECUTOR, FILTER] and not resources["allow_log_streaming"]
    (scope,) = privacy["scopes"]
    assert privacy["default_scope"] == scope["name"]
    assert scope["task_result_filters"] == [{"path": FILTER, "args": {}}]


def test_the_names_in_the_locks_are_programs() -> None:
    pytest.importorskip("nvflare")
    import importlib

    for path in (EXECUTOR, FILTER, CONTROLLER):
        module, _, name = path.rpartition(".")
        assert getattr(importlib.import_module(module), name).__module__ == module


def test_the_server_runs_tacits_controller_only(tmp_path: Path) -> None:
    locks = server_locks(tmp_path, 3)
    assert locks["resources.json"]["class_allow_list"] == [CONTROLLER]
    rights = locks["authorization.json"]["permissions"]["project_admin"]
    assert rights["byoc"] == rights["shell_commands"] == rights["clone_job"] == "none"
    (tmp_path / "local").mkdir()
    write_locks(tmp_path, locks)
    with pytest.raises(InputError):
        check_locks(tmp_path)  # a server's kit is no site's
