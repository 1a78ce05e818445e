"""All runs under a folder, and what is known of each; what has not changed is not read again."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tacit.dashboard.books import ledger, settings
from tacit.dashboard.curves import charts
from tacit.dashboard.damage import WRONG, told
from tacit.dashboard.find import Found, find
from tacit.dashboard.meter import meters
from tacit.dashboard.row import row
from tacit.dashboard.workers import Later
from tacit.results.folder import RunFolder
from tacit.results.growing import Metrics

SIGNS = ("config.toml", "start.json", "metrics.jsonl", "ledger.jsonl", "summary.json")
LOCAL_SIGNS = ("local-only/metrics.jsonl", "local-only/summary.json")
IN_MEMORY = 64  # runs whose metrics are kept parsed


class Catalogue:
    """What the dashboard's pages ask for; every answer is made of numbers and text, never of a file as it is."""

    def __init__(self, root: Path, local: bool) -> None:
        self.root, self.local = root, local
        self._found: dict[str, Found] = {}
        self._rows: dict[str, tuple[str, dict[str, Any]]] = {}  # identity -> version, row
        self._damaged: dict[str, tuple[str, str]] = {}  # identity -> version, what is wrong with its metrics
        self._metrics: OrderedDict[str, Metrics] = OrderedDict()
        self._looking, self._reading = threading.Lock(), threading.Lock()
        self._later = Later()

    def runs(self) -> dict[str, Any]:
        """The list, and whether it may hold figures that are the owner's alone."""
        with self._looking:
            self._found = {one.identity: one for one in find(self.root)}
            rows = [self._row(one) for one in self._found.values()]
            self._rows = {identity: self._rows[identity] for identity in self._found}
        return {"folder": str(self.root) if self.local else self.root.resolve().name, "local": self.local, "runs": rows}

    def some(self, identities: Sequence[str]) -> dict[str, Found]:
        """Those of these runs that there are; the folder is looked through once at most."""
        if not all(identity in self._found for identity in identities):
            self.runs()
        found = self._found
        return {identity: found[identity] for identity in identities if identity in found}

    def curves(self, one: Found) -> dict[str, Any]:
        """Every metric's lines."""
        version = _version(one.path, self.local)
        with self._reading:
            made = told(self.root, self.local, lambda: {"charts": charts(self._read(one))})
        self._damaged[one.identity] = (version, made.get("damaged", ""))  # the list reads the end of the metrics alone
        return made

    def privacy(self, one: Found) -> dict[str, Any]:
        """The meters; computing them may take seconds, so the newest known are given until they are there."""
        return self._slowly("privacy", one, lambda: meters(RunFolder(one.path).read_ledger(), self._done(one)))

    def ledger(self, one: Found) -> dict[str, Any]:
        """What the ledger comes to, and its newest lines."""
        return self._slowly("ledger", one, lambda: ledger(RunFolder(one.path)))

    def settings(self, one: Found, other: Found | None) -> dict[str, Any]:
        """Every setting, beside those of another run."""
        beside = RunFolder(other.path) if other else None
        return told(self.root, self.local, lambda: settings(RunFolder(one.path), beside, self.local))

    def _slowly(self, kind: str, one: Found, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        version = _version(one.path, self.local)
        return self._later.ask(f"{kind} {one.identity}", version, lambda: told(self.root, self.local, compute))

    def _row(self, one: Found) -> dict[str, Any]:
        busy = _busy(RunFolder(one.path))
        files = _version(one.path, self.local)
        seen, wrong = self._damaged.get(one.identity, ("", ""))
        version = f"{files}{'+' if busy else ''}{'!' if wrong and seen == files else ''}"
        known = self._rows.get(one.identity)
        if known is None or known[0] != version:
            made = row(one, self.root, self.local, busy) | {"version": version}
            made |= {"state": "damaged", "reason": wrong} if version.endswith("!") else {}
            self._rows[one.identity] = known = (version, made)
        return known[1]

    def _read(self, one: Found) -> Metrics:
        """The metrics so far; a damaged file is read from its beginning the next time."""
        metrics = self._metrics.pop(one.identity, None) or Metrics.of(RunFolder(one.path), self.local)
        metrics.refresh()
        self._metrics[one.identity] = metrics
        while len(self._metrics) > IN_MEMORY:
            self._metrics.popitem(last=False)
        return metrics

    def _done(self, one: Found) -> dict[int, int]:
        """The last evaluated round of every run; where the metrics are damaged, the ledger says enough."""
        with self._reading, suppress(*WRONG):
            values = self._read(one).public.values
            return {run: int(columns["round"][-1]) for run, columns in values.items()}
        return {}


def _busy(folder: RunFolder) -> bool:
    """Whether somebody works at it; nobody, as far as is known, where the folder may not be looked into."""
    try:
        return not folder.finished and folder.busy
    except OSError:
        return False


def _version(path: Path, local: bool) -> str:
    """A text that changes whenever the run does."""
    signs = []
    for name in SIGNS + (LOCAL_SIGNS if local else ()):
        try:
            found = (path / name).stat()
            signs.append((found.st_mtime_ns, found.st_size))
        except OSError:
            signs.append((0, 0))
    return hashlib.sha256(repr(signs).encode()).hexdigest()[:12]
