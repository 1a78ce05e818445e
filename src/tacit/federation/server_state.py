"""The coordinator's state on the disk: what it goes on from after a crash, and the w it was about to send."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tacit.algorithms.server import Full, new_server
from tacit.errors import InputError
from tacit.results.files import flushed_size, make_file, read_arrays, write_arrays
from tacit.results.folder import RunFolder
from tacit.types import Array


class ServerState(NamedTuple):
    """After some rounds."""

    round: int
    server: Full
    bases: tuple[int, ...]  # [P]  the last round accepted from each site
    w: Array  # [J, 1, K]  the model so far
    seconds: float
    sent: tuple[int, int]  # bytes of messages, up and down


def fresh(zero: Array, sites: int) -> ServerState:
    """Before the first round."""
    server = new_server("full", zero, sites)
    if not isinstance(server, Full):
        raise TypeError("a federation keeps every site's z and dual")
    return ServerState(0, server, (0,) * sites, zero, 0.0, (0, 0))


def save(folder: RunFolder, name: str, state: ServerState) -> None:
    """A checkpoint that knows how long the lines beside it were."""
    place = [flushed_size(path) for path in lines_of(folder)]
    arrays = {
        "round": np.array(state.round),
        "server_z": state.server.z,
        "server_lam": state.server.lam,
        "bases": np.array(state.bases),
        "w": state.w,
        "seconds": np.array(state.seconds),
        "sent": np.array(state.sent),
        "place": np.array(place),
    }
    write_arrays(folder.checkpoints / f"{name}.npz", arrays)


def restore(folder: RunFolder, name: str, start: ServerState) -> ServerState:
    """The last checkpoint, with the lines beside it cut to where they were then; `start` where there is none."""
    file = folder.checkpoints / f"{name}.npz"
    places = (0, 0)
    if file.exists():
        found = read_arrays(file)
        places = (int(found["place"][0]), int(found["place"][1]))
        server = Full(found["server_z"], found["server_lam"])
        bases = tuple(int(base) for base in found["bases"])
        sent = (int(found["sent"][0]), int(found["sent"][1]))
        start = ServerState(int(found["round"]), server, bases, found["w"], float(found["seconds"]), sent)
    for path, size in zip(lines_of(folder), places, strict=True):
        make_file(path)
        if path.stat().st_size < size:
            raise InputError(f"{path} is shorter than its checkpoint says: the run folder was changed by hand")
        os.truncate(path, size)
    return start


def journal_w(folder: RunFolder, t: int, w: Array) -> Array:
    """The w of round t, on the disk before it is sent; where it is there already, it is that one."""
    file = folder.checkpoints / "sending.npz"
    if file.exists():
        kept = read_arrays(file)
        if int(kept["round"]) == t:
            return kept["w"]
    write_arrays(file, {"round": np.array(t), "w": w})
    return w


def lines_of(folder: RunFolder) -> tuple[Path, Path]:
    """The files that grow by a line a round."""
    rounds = folder.path / "rounds.jsonl"
    if not rounds.exists():
        make_file(rounds)
    return folder.metrics, rounds
