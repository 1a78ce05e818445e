"""Studies among real sites: who agrees to what, what leaves a site, and how a study survives crashes.

Everything here is independent of the engine that carries messages; `flare` holds the adapter to NVFlare.
"""

from __future__ import annotations

PROTOCOL = 1  # of the messages and files two parties must share; a party that speaks another is refused
