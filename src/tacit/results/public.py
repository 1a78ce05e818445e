"""A run's settings as anybody may see them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

PATHS = ("data", "data_dir", "schema", "test", "ledger")


def public_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings; of paths only the last part, for the others tell of a house's machines."""
    names = {key: Path(config[key]).name for key in PATHS if config.get(key)}
    plugins = {"plugins": [Path(path).name for path in config["plugins"]]} if config.get("plugins") else {}
    return {**config, **names, **plugins}
