"""The coordinator's state on the disk: what it goes on from after a crash, and the w it was about to send."""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

import numpy as np

from taciturn.algorithms.server import FullState, new_server
from taciturn.core.storage import flushed_size, make_file, read_arrays, write_arrays
from taciturn.errors import InputError
from taciturn.federation.validation import Iterate
from taciturn.objectives.clipping import admissible
from taciturn.runs.folder import RunFolder
from taciturn.types import Array


class ServerState(NamedTuple):
    """After some rounds."""

    round: int
    server: FullState
    bases: tuple[int, ...]  # [P]  the last round accepted from each site
    w: Array  # [J, 1, K]  the model so far
    sent: tuple[int, int]  # bytes of messages, up and down
    sites: tuple[str, ...]  # [P]  those whose z and dual these are
    last: tuple[Iterate, ...]  # [P]  the iterate that each goes on from, as far as the server knows it

    @property
    def unsound(self) -> list[str]:
        """The sites of which the server holds numbers that it would not take now."""
        found = zip(self.sites, self.server.z, self.server.lam, strict=True)
        return [site for site, z, lam in found if not (admissible(z) and np.isfinite(lam).all())]

    def only(self, sites: Container[str]) -> ServerState:
        """The state of these sites alone; what the others have sent counts no more, and `w` is of all of them still."""
        kept = [p for p, site in enumerate(self.sites) if site in sites]
        return self._replace(
            server=FullState(self.server.z[kept], self.server.lam[kept]),
            bases=tuple(self.bases[p] for p in kept),
            sites=tuple(self.sites[p] for p in kept),
            last=tuple(self.last[p] for p in kept),
        )


def fresh(zero: Array, sites: tuple[str, ...]) -> ServerState:
    """Before the first round."""
    server = new_server("full", zero, len(sites))
    if not isinstance(server, FullState):
        raise TypeError("a federation keeps every site's z and dual")
    none, start = (0,) * len(sites), (Iterate(zero, 0.0),) * len(sites)
    return ServerState(0, server, none, zero, (0, 0), sites, start)


def save(folder: RunFolder, name: str, state: ServerState) -> None:
    """A checkpoint that knows how long the lines beside it were."""
    place = [flushed_size(path) for path in lines_of(folder)]
    arrays = {
        "round": np.array(state.round),
        "server_z": state.server.z,
        "server_lam": state.server.lam,
        "bases": np.array(state.bases),
        "w": state.w,
        "sent": np.array(state.sent),
        "place": np.array(place),
        "sites": np.array(state.sites),
    }
    if any(one.stray for one in state.last):  # else it is what each site sent
        arrays["last"] = np.stack([one.z for one in state.last])
        arrays["stray"] = np.array([one.stray for one in state.last])
    write_arrays(folder.checkpoints / f"{name}.npz", arrays)


def restore(folder: RunFolder, name: str, start: ServerState) -> ServerState:
    """The last checkpoint, with the lines beside it cut to where they were then; `start` where there is none."""
    file = folder.checkpoints / f"{name}.npz"
    places = (0, 0)
    if file.exists():
        found = read_arrays(file)
        places = (int(found["place"][0]), int(found["place"][1]))
        server = FullState(found["server_z"], found["server_lam"])
        bases = tuple(int(base) for base in found["bases"])
        sent = (int(found["sent"][0]), int(found["sent"][1]))
        sites = tuple(map(str, found.get("sites", start.sites)))
        iterates = found.get("last", server.z), found.get("stray", np.zeros(len(sites)))
        last = tuple(Iterate(z, float(stray)) for z, stray in zip(*iterates, strict=True))
        start = ServerState(int(found["round"]), server, bases, found["w"], sent, sites, last)
    for path, size in zip(lines_of(folder), places, strict=True):
        make_file(path)
        if path.stat().st_size < size:
            raise InputError(f"{path} is shorter than its checkpoint says: the run folder was changed by hand")
        os.truncate(path, size)
    return start


def journal_w(folder: RunFolder, t: int, w: Array) -> Array:
    """The w of round t, on the disk before it is sent; where it is there already, it is that one.

    Sites refuse a w that is not admissible, so that one which is there has no answer, and is replaced.
    """
    file = folder.checkpoints / "sending.npz"
    if file.exists():
        kept = read_arrays(file)
        if int(kept["round"]) == t and admissible(kept["w"]):
            return kept["w"]
    write_arrays(file, {"round": np.array(t), "w": w})
    return w


def lines_of(folder: RunFolder) -> tuple[Path, Path]:
    """The files that grow by a line a round."""
    rounds = folder.path / "rounds.jsonl"
    if not rounds.exists():
        make_file(rounds)
    return folder.metrics, rounds
