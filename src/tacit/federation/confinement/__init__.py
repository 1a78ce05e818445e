"""Programs that are not trusted: started so that they reach nothing of a site but what they are given.

`launch` starts one. `holds` runs a program of ours in the same confinement which tries to break out, and `require`
refuses to go on unless the records, the journal and the keys stayed shut.
"""

from __future__ import annotations

from tacit.federation.confinement.start import Confined, launch

__all__ = ["Confined", "launch"]
