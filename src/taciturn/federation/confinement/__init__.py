"""Programs that are not trusted: started so that they reach nothing of a site but what they are given.

`launch` starts one. `holds` has a program of ours try to break out of the same confinement; the trial's `require`
refuses to go on unless the records, the journal and the keys stayed shut and the site's own process out of reach.
`shield` closes the memory of the process that keeps them.
"""

from __future__ import annotations

from taciturn.federation.confinement.barriers import Barrier, Trial, holds
from taciturn.federation.confinement.start import Confined, launch, shield

__all__ = ["Barrier", "Confined", "Trial", "holds", "launch", "shield"]
