"""The coordinator's state on disk: checkpoints for recovery after a crash, and the w of the round being sent."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from taciturn.algorithms.server import FullState, new_server
from taciturn.core.storage import flushed_size, make_file, read_arrays, write_arrays
from taciturn.errors import CorruptFile
from taciturn.federation.run_folder import rounds_path
from taciturn.federation.validation import Iterate
from taciturn.objectives.clipping import admissible
from taciturn.runs.folder import RunFolder
from taciturn.types import Array

if TYPE_CHECKING:
    from taciturn.federation.sum_state import SumState


class ServerState(NamedTuple):
    """The coordinator's state after some rounds."""

    round: int
    server: FullState
    bases: tuple[int, ...]  # [P]  the last round accepted from each site
    w: Array  # [J, 1, K]  the model so far
    sent: tuple[int, int]  # bytes of messages from the sites and to the sites
    sites: tuple[str, ...]  # [P]  the sites whose z and dual `server` holds
    last: tuple[Iterate, ...]  # [P]  the iterate from which each site continues

    @property
    def invalid_sites(self) -> list[str]:
        """The sites with values in the state that the coordinator would reject today."""
        rows = zip(self.sites, self.server.z, self.server.lam, strict=True)
        return [site for site, z, lam in rows if not (admissible(z) and np.isfinite(lam).all())]

    def restricted_to(self, sites: Container[str]) -> ServerState:
        """Return the state without the uploads of all other sites; `w` still contains them."""
        kept = [p for p, site in enumerate(self.sites) if site in sites]
        return self._replace(
            server=self.server._replace(z=self.server.z[kept], lam=self.server.lam[kept]),
            bases=tuple(self.bases[p] for p in kept),
            sites=tuple(self.sites[p] for p in kept),
            last=tuple(self.last[p] for p in kept),
        )


def initial_state(zero: Array, sites: tuple[str, ...]) -> ServerState:
    """Return the state before the first round.

    Parameters
    ----------
    zero : ndarray of shape [J, 1, K]
        The initial parameters.
    sites : tuple of str
        The sites, in the order of the agents.
    """
    server = new_server("full", zero, len(sites))
    if not isinstance(server, FullState):
        raise TypeError("a federation keeps every site's z and dual")
    return ServerState(0, server, (0,) * len(sites), zero, (0, 0), sites, (Iterate(zero, 0.0),) * len(sites))


def save_state(folder: RunFolder, name: str, state: ServerState) -> None:
    """Write a checkpoint that also records the length of the line files next to it.

    Parameters
    ----------
    folder : RunFolder
        The run folder.
    name : str
        Name of the checkpoint: the algorithm.
    state : ServerState
        The state after a round.
    """
    arrays = {"bases": np.array(state.bases), "sites": np.array(state.sites)}
    if any(iterate.error for iterate in state.last):  # otherwise the iterates are the uploads in server_z
        arrays["last"] = np.stack([iterate.z for iterate in state.last])
        arrays["errors"] = np.array([iterate.error for iterate in state.last])
    write_checkpoint(folder, name, state, arrays)


def write_checkpoint(folder: RunFolder, name: str, state: ServerState | SumState, more: Mapping[str, Array]) -> None:
    """Write what all checkpoints of a federation have, and more arrays."""
    statistics = state.server.statistics
    arrays = {
        "round": np.array(state.round),
        "server_z": state.server.z,
        "server_lam": state.server.lam,
        "w": state.w,
        "sent": np.array(state.sent),
        "line_file_sizes": np.array([flushed_size(path) for path in line_files(folder)]),
        **({} if statistics is None else {"server_statistics": statistics}),
    }
    write_arrays(folder.checkpoints / f"{name}.npz", {**arrays, **more})


class Checkpoint(NamedTuple):
    """What all checkpoints of a federation have."""

    round: int
    server: FullState
    w: Array
    sent: tuple[int, int]
    arrays: Mapping[str, Array]  # all that are in the file


def read_checkpoint(folder: RunFolder, name: str) -> Checkpoint | None:
    """Return the last checkpoint, or None if there is none yet; truncate the line files to their length at that time.

    Raises
    ------
    CorruptFile
        If a line file is shorter than the checkpoint says.
    """
    file = folder.checkpoints / f"{name}.npz"
    if not file.exists():
        truncate_lines(folder, (0, 0))
        return None
    arrays = read_arrays(file)
    truncate_lines(folder, _pair(arrays["line_file_sizes"]))
    server = FullState(arrays["server_z"], arrays["server_lam"], arrays.get("server_statistics"))
    return Checkpoint(int(arrays["round"]), server, arrays["w"], _pair(arrays["sent"]), arrays)


def _pair(numbers: Array) -> tuple[int, int]:
    first, second = map(int, numbers)
    return first, second


def restore_state(folder: RunFolder, name: str, initial: ServerState) -> ServerState:
    """Return the state at the last checkpoint; see `read_checkpoint`.

    Parameters
    ----------
    folder, name
        As for `save_state`.
    initial : ServerState
        The result if there is no checkpoint yet.

    Raises
    ------
    CorruptFile
        If a line file is shorter than the checkpoint says.
    """
    stored = read_checkpoint(folder, name)
    if stored is None:
        return initial
    arrays, sites = stored.arrays, tuple(map(str, stored.arrays["sites"]))
    iterates = arrays.get("last", stored.server.z), arrays.get("errors", np.zeros(len(sites)))
    return ServerState(
        round=stored.round,
        server=stored.server,
        bases=tuple(map(int, arrays["bases"])),
        w=stored.w,
        sent=stored.sent,
        sites=sites,
        last=tuple(Iterate(z, float(error)) for z, error in zip(*iterates, strict=True)),
    )


def truncate_lines(folder: RunFolder, sizes: tuple[int, int]) -> None:
    """Truncate the line files to their length at a checkpoint.

    Raises
    ------
    CorruptFile
        If a line file is shorter.
    """
    for path, size in zip(line_files(folder), sizes, strict=True):
        make_file(path)
        if path.stat().st_size < size:
            raise CorruptFile(f"{path} is shorter than its checkpoint says: the run folder was modified")
        os.truncate(path, size)


def journal_w(folder: RunFolder, t: int, w: Array) -> Array:
    """Write the w of round `t` to disk before it is sent, and return the w to send.

    If a w of this round is on disk already, sites may have seen it, so that one is returned. An inadmissible w has no
    answers, because sites refuse it, and is replaced.
    """
    file = folder.checkpoints / "sending.npz"
    if file.exists():
        arrays = read_arrays(file)
        if int(arrays["round"]) == t and admissible(arrays["w"]):
            return arrays["w"]
    write_arrays(file, {"round": np.array(t), "w": w})
    return w


def line_files(folder: RunFolder) -> tuple[Path, Path]:
    """Return the files that grow by a line per round: metrics.jsonl and rounds.jsonl."""
    return folder.metrics, rounds_path(folder.path)
