"""Which settings of a run may be made public."""

from __future__ import annotations

from taciturn.runs.folder import public_config


def test_only_the_last_part_of_a_path_is_public() -> None:
    private = {name: f"/home/anna/secret/{name}.x" for name in ("data", "data_dir", "schema", "test", "ledger")}
    config = {**private, "plugins": ["/home/anna/mine.py", "other.py"], "clip": 0.5, "name": "a/b"}
    shown = public_config(config)
    assert "anna" not in str(shown)
    assert shown == {
        **{name: f"{name}.x" for name in private},
        "plugins": ["mine.py", "other.py"],
        "clip": 0.5,
        "name": "a/b",
    }
    assert public_config({"data": "mnist14", "schema": ""}) == {"data": "mnist14", "schema": ""}
    assert config["plugins"] == ["/home/anna/mine.py", "other.py"]
