"""The three locks of a site, and the same for the server: no submitted code, an allow list, a result filter.

They are files of the start-up kit that NVFlare reads; `site start` refuses a kit whose locks are not these.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tacit.errors import InputError
from tacit.federation.flare.names import CONTROLLER, EXECUTOR, FILTER, SCOPE, SERVER_LAUNCHER, SITE_LAUNCHER
from tacit.results.files import write_text

NOTHING = "none"
PERMISSIONS = {  # of the coordinator, at a site: to run the site's own program, and to look whether it is there
    "submit_job": "any",
    "clone_job": NOTHING,
    "manage_job": "any",
    "download_job": NOTHING,
    "view": "any",
    "operate": NOTHING,
    "shell_commands": NOTHING,
    "byoc": NOTHING,
    "server-predeployed-flwr": NOTHING,
}
AT_SERVER = PERMISSIONS | {"operate": "any", "download_job": "any"}


def _authorization(permissions: dict[str, str]) -> dict[str, Any]:
    return {"format_version": "1.0", "permissions": {"project_admin": permissions}}


def _component(name: str, path: str, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "path": path, "args": arguments}


def site_locks() -> dict[str, dict[str, Any]]:
    """The files of a site's kit, by name."""
    common = "nvflare.app_common"
    resources = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [EXECUTOR, FILTER],
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [
            _component(
                "resource_manager",
                f"{common}.resource_managers.gpu_resource_manager.GPUResourceManager",
                num_of_gpus=0,
                mem_per_gpu_in_GiB=0,
                expiration_period=300,
            ),
            _component("resource_consumer", f"{common}.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"),
            _component("process_launcher", SITE_LAUNCHER),
        ],
    }
    privacy = {
        "scopes": [{"name": SCOPE, "properties": {}, "task_result_filters": [{"path": FILTER, "args": {}}]}],
        "default_scope": SCOPE,
    }
    return {
        "authorization.json": _authorization(PERMISSIONS),
        "resources.json": resources,
        "privacy.json": privacy,
    }


def server_locks(kit: Path, sites: int) -> dict[str, dict[str, Any]]:
    """The files of the server's kit, by name; it keeps its jobs beside it."""
    common = "nvflare.app_common"
    storage = f"{common}.storages.filesystem_storage.FilesystemStorage"
    resources = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [CONTROLLER],
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": max(100, sites + 10),
                "heart_beat_timeout": 120,
                "download_job_url": "http://download.server.com/",
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": f"{common}.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": {
                "uri_root": "/",
                "storage": {"path": storage, "args": {"root_dir": str(kit.resolve() / "snapshots"), "uri_root": "/"}},
            },
        },
        "components": [
            _component("job_scheduler", f"{common}.job_schedulers.job_scheduler.DefaultJobScheduler", max_jobs=4),
            _component(
                "job_manager",
                "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                uri_root=str(kit.resolve() / "jobs"),
                job_store_id="job_store",
            ),
            {"id": "job_store", "path": storage},
            _component("process_launcher", SERVER_LAUNCHER),
        ],
    }
    return {"authorization.json": _authorization(AT_SERVER), "resources.json": resources}


def write_locks(kit: Path, locks: dict[str, dict[str, Any]]) -> None:
    """Put the files into a kit, in the place of NVFlare's own defaults."""
    local = kit / "local"
    for name, content in locks.items():
        write_text(local / name, json.dumps(content, indent=1) + "\n")
    for leftover in (*local.glob("*.default"), *local.glob("*.sample")):
        leftover.unlink()
    write_text(local / "log_config.json", json.dumps(LOGGING, indent=1) + "\n")


def check_locks(kit: Path) -> None:
    """Refuse a site's kit that is not locked as Tacit locks it."""
    for name, wanted in site_locks().items():
        path = kit / "local" / name
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = None
        if found != wanted:
            raise InputError(f"{path} is not the lock that Tacit puts into a kit: ask for a new kit")
    for extra in ("custom", "local/custom"):
        if (kit / extra).exists():
            raise InputError(f"{kit / extra} holds code that is not Tacit's: remove it")


LOGGING = {  # into the kit's own folder, ten files of ten megabytes at most, and nothing on the terminal
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {
        "file": {
            "class": "logging.handlers.RotatingFileHandler",
            "level": "INFO",
            "formatter": "plain",
            "filename": "log.txt",
            "mode": "a",
            "maxBytes": 10_000_000,
            "backupCount": 9,
        },
        "errors": {
            "class": "logging.handlers.RotatingFileHandler",
            "level": "ERROR",
            "formatter": "plain",
            "filename": "log_error.txt",
            "mode": "a",
            "maxBytes": 10_000_000,
            "backupCount": 9,
        },
    },
    "loggers": {"root": {"level": "INFO", "handlers": ["file", "errors"]}},
}
