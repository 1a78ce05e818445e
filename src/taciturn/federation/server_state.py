"""The coordinator's state on disk: checkpoints for recovery after a crash, and the w of the round being sent."""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

import numpy as np

from taciturn.algorithms.server import FullState, new_server
from taciturn.core.storage import flushed_size, make_file, read_arrays, write_arrays
from taciturn.errors import CorruptFile
from taciturn.federation.validation import Iterate
from taciturn.objectives.clipping import admissible
from taciturn.runs.folder import RunFolder
from taciturn.types import Array


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
    arrays = {
        "round": np.array(state.round),
        "server_z": state.server.z,
        "server_lam": state.server.lam,
        "bases": np.array(state.bases),
        "w": state.w,
        "sent": np.array(state.sent),
        "place": np.array([flushed_size(path) for path in line_files(folder)]),
        "sites": np.array(state.sites),
    }
    if state.server.statistics is not None:
        arrays["server_statistics"] = state.server.statistics
    if any(iterate.error for iterate in state.last):  # otherwise the iterates are the uploads in server_z
        arrays["last"] = np.stack([iterate.z for iterate in state.last])
        arrays["stray"] = np.array([iterate.error for iterate in state.last])
    write_arrays(folder.checkpoints / f"{name}.npz", arrays)


def restore_state(folder: RunFolder, name: str, initial: ServerState) -> ServerState:
    """Return the last checkpoint and truncate the line files to their length at that time.

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
    file = folder.checkpoints / f"{name}.npz"
    state, sizes = initial, (0, 0)
    if file.exists():
        arrays = read_arrays(file)
        sizes = (int(arrays["place"][0]), int(arrays["place"][1]))
        server = FullState(arrays["server_z"], arrays["server_lam"], arrays.get("server_statistics"))
        sites = tuple(map(str, arrays.get("sites", initial.sites)))
        iterates = arrays.get("last", server.z), arrays.get("stray", np.zeros(len(sites)))
        state = ServerState(
            round=int(arrays["round"]),
            server=server,
            bases=tuple(map(int, arrays["bases"])),
            w=arrays["w"],
            sent=(int(arrays["sent"][0]), int(arrays["sent"][1])),
            sites=sites,
            last=tuple(Iterate(z, float(error)) for z, error in zip(*iterates, strict=True)),
        )
    truncate_lines(folder, sizes)
    return state


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
    return folder.metrics, folder.path / "rounds.jsonl"
