"""Federated studies between real sites: agreement, rounds, release control and crash recovery.

Nothing here depends on the engine that transports messages; only the programs in `nvflare` import NVFlare.
"""

from __future__ import annotations

PROTOCOL = 1  # version of the files that two parties share; files of another version are refused
MESSAGE_VERSIONS = range(1, 2)  # a release supports its own and the previous one, so N can talk to N+1
