"""Where Tacit keeps what must outlive a run."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """tacit in the user's state folder."""
    given = os.environ.get("XDG_STATE_HOME", "")  # a relative path is ignored, as the XDG specification says
    return (Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "state") / "tacit"
