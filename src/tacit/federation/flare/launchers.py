"""How NVFlare starts the process of a job: as it always does, but not to live longer than whoever started it."""

from __future__ import annotations

from typing import Any

from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.server_process_launcher import ServerProcessJobLauncher

from tacit.federation.flare import processes


class SiteLauncher(ClientProcessJobLauncher):
    """At a site."""

    def get_command(self, job_meta: Any, fl_ctx: Any) -> str:
        """NVFlare's own command, through Tacit's."""
        return bound(super().get_command(job_meta, fl_ctx))


class ServerLauncher(ServerProcessJobLauncher):
    """At the server."""

    def get_command(self, job_meta: Any, fl_ctx: Any) -> str:
        """NVFlare's own command, through Tacit's."""
        return bound(super().get_command(job_meta, fl_ctx))


def bound(command: str) -> str:
    """`python -m module ...` becomes `python -m processes module ...`."""
    return command.replace(" -m nvflare.", f" -m {processes.__name__} nvflare.", 1)
