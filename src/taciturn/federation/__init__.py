"""Studies among real sites: who agrees to what, what leaves a site, and how a study survives crashes.

Everything here is independent of the engine that carries messages; `nvflare` holds the only programs that import it.
"""

from __future__ import annotations

PROTOCOL = 1  # of the files two parties must share; a file of another is refused
SPEAKS = range(1, 2)  # versions of the messages: a release speaks its own and the one before, so N talks to N+1
