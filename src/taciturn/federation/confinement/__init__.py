"""Confinement of untrusted programs: they reach nothing of a site except what they are given.

`launch` starts a confined program. `try_confinement` runs a probe that tries to break out of the same confinement; its
result's `require` raises unless the records, the journal and the keys stayed closed and the site's own process stayed
out of reach. `shield` protects the memory of the process that holds them.
"""

from __future__ import annotations

from taciturn.federation.confinement.barriers import Barrier, Trial, try_confinement
from taciturn.federation.confinement.start import Confined, launch, shield

__all__ = ["Barrier", "Confined", "Trial", "launch", "shield", "try_confinement"]
