"""A job as NVFlare takes it: names of installed programs, the sites, and how often they look for work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.federation.flare.names import CONTROLLER, EXECUTOR, TASK

QUICK = 0.05  # seconds between two looks of a site for work, for a few sites
SHARE = 0.003  # more for every site, so that many do not keep the server busy with asking
CHECK = 0.02  # seconds between two looks of the server for answers, which cost little


def write_job(folder: Path, leg: int, sites: Sequence[str], quorum: int) -> Path:
    """The files of a job."""
    poll = max(QUICK, SHARE * len(sites))
    server = {
        "format_version": 2,
        "server": {"heart_beat_timeout": 600, "task_request_interval": poll},
        "workflows": [
            {"id": TASK, "path": CONTROLLER, "args": {"leg": leg, "sites": list(sites), "poll_seconds": CHECK}}
        ],
    }
    client = {"format_version": 2, "executors": [{"tasks": [TASK], "executor": {"path": EXECUTOR, "args": {}}}]}
    meta = {
        "name": f"tacit-{leg}",
        "min_clients": min(quorum, len(sites)),
        "deploy_map": {"app": ["server", *sites]},
        "resource_spec": {},
    }
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    _write(folder / "meta.json", meta)
    _write(config / "config_fed_server.json", server)
    _write(config / "config_fed_client.json", client)
    return folder


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
