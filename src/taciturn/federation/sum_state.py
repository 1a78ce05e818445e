"""The coordinator's state of a study with a secure sum, on disk.

Everything that was asked is on disk before it is asked: the question of a slot, and the set that uploaded before shares
of it are requested. So a coordinator that crashes asks the same again, gets the same bytes, and loses no slot. Uploads
are stored as their sum, under all masks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taciturn.algorithms import Agent
from taciturn.algorithms.server import FullState, new_server
from taciturn.core.storage import read_arrays, write_arrays
from taciturn.federation.journal import Slot
from taciturn.federation.server_state import read_checkpoint, write_checkpoint
from taciturn.runs.folder import RunFolder
from taciturn.secure_sum.epoch_messages import Directory
from taciturn.secure_sum.opening import MaskedSum
from taciturn.secure_sum.parameters import MEASURES
from taciturn.secure_sum.slot_messages import SumQuestion
from taciturn.types import Array

EPOCH_FILE, QUESTION_FILE, MASKED_FILE = "sum-epoch.npz", "sum-question.npz", "sum-masked.npz"


class SumState(NamedTuple):
    """The coordinator's state after some rounds. It runs one agent, the mean of all."""

    round: int
    server: FullState  # of one agent
    agent: Agent
    w: Array  # [J, 1, K]  the model so far, in parameters of the features
    sent: tuple[int, int]  # bytes of messages from the sites and to the sites


class EpochFile(NamedTuple):
    """The newest epoch at the coordinator."""

    number: int
    directory: Directory | None  # None until it has begun
    roll: bytes  # the signatures of the whole cohort


class SlotAttempt(NamedTuple):
    """One attempt at a round: what its roster is asked in a slot."""

    question: SumQuestion
    sent: Array  # [J, 1, K] or [2 J, 1, K]

    @property
    def slot(self) -> str:
        """The slot as ledgers name it."""
        return str(Slot(self.question.epoch, self.question.slot))


@dataclass(frozen=True)
class SumFiles:
    """The files of a study with a secure sum in the coordinator's run folder.

    Attributes
    ----------
    folder
        The run folder.
    name
        Name of the checkpoint: the algorithm.
    """

    folder: RunFolder
    name: str

    def save(self, state: SumState) -> None:
        """Write a checkpoint that also records the length of the line files next to it."""
        arrays = {"agent_z": state.agent.z, "agent_lam": state.agent.lam}
        write_checkpoint(self.folder, self.name, state, arrays)

    def restore(self, zero: Array) -> SumState:
        """Return the last checkpoint, or the state before the first round, with the line files as they were then.

        Raises
        ------
        CorruptFile
            If a line file is shorter than the checkpoint says.
        """
        stored = read_checkpoint(self.folder, self.name)
        if stored is None:
            server = new_server("full", zero, 1)
            if not isinstance(server, FullState):
                raise TypeError("the mean agent has a server of its own")
            return SumState(0, server, Agent(zero, zero), zero, (0, 0))
        agent = Agent(stored.arrays["agent_z"], stored.arrays["agent_lam"])
        return SumState(stored.round, stored.server, agent, stored.w, stored.sent)

    def write_epoch(self, epoch: EpochFile) -> None:
        """Store the number of an epoch before it is announced, and its directory before it begins."""
        directory = b"" if epoch.directory is None else epoch.directory.to_bytes()
        arrays = {"number": np.array(epoch.number), "directory": _bytes(directory), "roll": _bytes(epoch.roll)}
        write_arrays(self.folder.checkpoints / EPOCH_FILE, arrays)

    def read_epoch(self) -> EpochFile:
        """Return the newest epoch; its number is -1 before the first."""
        file = self.folder.checkpoints / EPOCH_FILE
        if not file.exists():
            return EpochFile(-1, None, b"")
        arrays = read_arrays(file)
        directory = arrays["directory"].tobytes()
        return EpochFile(
            int(arrays["number"]), Directory.from_bytes(directory) if directory else None, arrays["roll"].tobytes()
        )

    def write_attempt(self, attempt: SlotAttempt, lost: bool = False) -> None:
        """Store a question before any site is asked, and that its slot is lost before another one is tried."""
        arrays = {"question": _bytes(attempt.question.to_bytes()), "sent": attempt.sent, "lost": np.array(lost)}
        write_arrays(self.folder.checkpoints / QUESTION_FILE, arrays)

    def read_attempt(self, done: int, epoch: EpochFile) -> SlotAttempt | None:
        """Return the attempt that a crash has interrupted, if it may still be opened in this epoch.

        It is at the round after those that are done, or at the evaluation of the last of them.
        """
        file = self.folder.checkpoints / QUESTION_FILE
        if not file.exists():
            return None
        arrays = read_arrays(file)
        question = SumQuestion.from_bytes(arrays["question"].tobytes())
        t = done if question.subject == MEASURES else done + 1
        current = epoch.directory is not None and (question.round, question.epoch) == (t, epoch.number)
        return SlotAttempt(question, arrays["sent"]) if current and not arrays["lost"] else None

    def write_masked(self, question: SumQuestion, masked: MaskedSum) -> None:
        """Store the sum of a slot's uploads, and so the set that sites are asked to open, before they are asked."""
        arrays = {
            "slot": np.array([question.epoch, question.slot]),
            "sites": np.array(masked.alive),
            "receipts": np.stack([_bytes(masked.receipts[site]) for site in masked.alive]),
            "total": masked.total,
        }
        write_arrays(self.folder.checkpoints / MASKED_FILE, arrays)

    def read_masked(self, question: SumQuestion) -> MaskedSum | None:
        """Return the stored sum of a slot's uploads, or None if its set has not been decided yet."""
        file = self.folder.checkpoints / MASKED_FILE
        if not file.exists():
            return None
        arrays = read_arrays(file)
        if tuple(map(int, arrays["slot"])) != (question.epoch, question.slot):
            return None
        rows = zip(map(int, arrays["sites"]), arrays["receipts"], strict=True)
        return MaskedSum({site: receipt.tobytes() for site, receipt in rows}, arrays["total"].astype(np.uint64))


def _bytes(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(data, np.uint8)
