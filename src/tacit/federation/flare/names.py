"""The words that the two sides and the files of NVFlare share."""

from __future__ import annotations

TASK = "tacit"  # the only task a site knows
PAYLOAD = "tacit"  # the only field a message has: bytes
SCOPE = "tacit"  # the only privacy scope
EXECUTOR = "tacit.federation.flare.executor.SiteExecutor"
FILTER = "tacit.federation.flare.filter.ReleaseFilter"
CONTROLLER = "tacit.federation.flare.controller.StudyController"
SITE_LAUNCHER = "tacit.federation.flare.launchers.SiteLauncher"
SERVER_LAUNCHER = "tacit.federation.flare.launchers.ServerLauncher"
ADMIN = "coordinator@tacit.local"
SERVER_KIT, ADMIN_KIT = "server", "coordinator"


def organisation(site: str) -> str:
    """A site's name as NVFlare wants it of an organisation."""
    return site.replace("-", "_")


SITE_VARIABLE = "TACIT_SITE"  # the path of site.toml, for the processes of an agent
SEED_VARIABLE = "TACIT_SEEDED"  # a seed, where noise is to be no protection
RUN_VARIABLE = "TACIT_FEDERATION_RUN"  # the coordinator's run folder, for the server's processes
TERMS_VARIABLE = "TACIT_FEDERATION_TERMS"  # the coordinator's federation.toml
