"""Replay of a seeded study in memory: what an agent sent, with and without its noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.core.arrays import namespace, to_numpy
from taciturn.errors import InputError, unknown_name
from taciturn.planning.study import Study, StudyPart
from taciturn.privacy.trust import AGENTS
from taciturn.runs.folder import RunFolder
from taciturn.runs.records import RunLabel
from taciturn.training.central import is_central
from taciturn.training.loop import TrainingProgress, noise_source, on_backend, training_rounds
from taciturn.training.process_group import SINGLE_PROCESS
from taciturn.training.simulate import start
from taciturn.types import Array, Classes


class ReplayedUploads(NamedTuple):
    """One agent's upload in one round of one run; `clean` is for the owner of the records only."""

    agent: str
    round: int
    clean: Array  # [J, K]  z without the noise of this round, from the same state
    noisy: Array  # [J, K]  z as it was sent
    model: Array  # [J, K]  w of the last replayed round
    last: int  # that round
    differs: float | None  # largest difference of a parameter from the stored model; None: there is none yet
    label: RunLabel
    features: tuple[str, ...]  # J names
    classes: tuple[str, ...]  # K names; "" where the label is a number


class SilentNoise:
    """A noise source that returns zeros, and samples every record."""

    def continuous(self, update: int, mechanism: str, scale: Array, like: Array) -> Array:
        """Return zeros instead of floating-point noise."""
        zeros: Array = namespace(like).zeros_like(like)
        return zeros

    def integers(self, update: int, mechanism: str, scale: Array, like: Array) -> NDArray[np.int64]:
        """Return zeros instead of integer noise."""
        return np.zeros(like.shape, np.int64)

    def poisson_sample(self, update: int, rate: float, records: int, like: Array) -> NDArray[np.bool_]:
        """Return a sample that contains every record."""
        return np.ones((records, like.shape[1]), np.bool_)


def replay_uploads(
    study: Study,
    folder: RunFolder,
    run: int,
    agent: str | None,
    t: int,
    watch: Callable[[TrainingProgress], None],
) -> ReplayedUploads:
    """Replay a run, and return the upload of an agent in one round.

    In round 1 an upload depends on little but the agent's own records. The replay continues to the last round of the
    folder, so that its model can be compared with the stored one.

    Parameters
    ----------
    study
        The study as it began.
    folder
        Its run folder.
    run
        Index of the run.
    agent
        Name of the agent; None: the first.
    t
        The round, from 1.
    watch
        Called after every replayed round.

    Raises
    ------
    InputError
        If the noise cannot be drawn again, uploads must not be seen, or the run, agent or round does not exist.
    """
    if study.settings.hardened:
        raise InputError(
            "hardened noise cannot be drawn again, because it comes from the operating system; only a simulation "
            "(--seed N) can be replayed"
        )
    if study.settings.trust != AGENTS:
        raise InputError(
            f"--trust is {study.settings.trust}, so a single upload has too little noise to be shown; only a run with "
            "--trust agents can be replayed"
        )
    if study.settings.pooled_sums:
        raise InputError(
            "--simulate is sums, so no single upload was computed; only a run with --simulate agents can be replayed"
        )
    names = study.dataset.agents
    if agent is not None and agent not in names:
        raise unknown_name("agent", agent, names)
    with on_backend(study, SINGLE_PROCESS) as placed:
        part, last = _part(placed, folder, run), _rounds_done(folder, run)
        if is_central(part):
            raise InputError(f"{part.batch.algorithm} is a central reference: no agent sends anything but its records")
        if not 1 <= t <= last:
            raise InputError(f"there is no round {t}: this run has rounds 1 to {last}")
        return _replay(placed, part, folder, run, names.index(agent or names[0]), t, last, watch)


def _replay(
    study: Study,
    part: StudyPart,
    folder: RunFolder,
    run: int,
    p: int,
    t: int,
    last: int,
    watch: Callable[[TrainingProgress], None],
) -> ReplayedUploads:
    settings, shards, r = study.settings, study.dataset.train, run - part.batch.first
    state = start(shards, part.batch.size, settings.server, averages=False)
    for done in training_rounds(study, part, shards, t - 1, state):
        watch(TrainingProgress(part.batch, done.t, last, None))
        state = done.state
    _, w = part.algorithm.server_send(t, state.server)
    clean, noisy = (
        to_numpy(part.algorithm.agent_step(t, w, state.agents[p], shards[p], noise).upload.z)[:, r]
        for noise in (SilentNoise(), noise_source(study, part)(p, t))
    )
    for done in training_rounds(study, part, shards, last, state):
        watch(TrainingProgress(part.batch, done.t, last, None))
        model = to_numpy(done.w)[:, r]
    target = study.dataset.target
    return ReplayedUploads(
        agent=study.dataset.agents[p],
        round=t,
        clean=clean,
        noisy=noisy,
        model=model,
        last=last,
        differs=_difference(folder, run, model),
        label=part.batch.labels()[r],
        features=study.dataset.features,
        classes=target.names if isinstance(target, Classes) else ("",),
    )


def _part(study: Study, folder: RunFolder, run: int) -> StudyPart:
    runs = sum(part.batch.size for part in study.parts)
    if not 0 <= run < runs:
        raise InputError(f"there is no run {run} in {folder.path}: its runs are 0 to {runs - 1} (taciturn show)")
    return next(part for part in reversed(study.parts) if part.batch.first <= run)


def _rounds_done(folder: RunFolder, run: int) -> int:
    done = [row.round for row in folder.read_metrics() if row.run == run]
    if not done:
        raise InputError(f"run {run} of {folder.path} has no evaluated round yet")
    return max(done)


def _difference(folder: RunFolder, run: int, model: Array) -> float | None:
    """Return the largest difference from the stored model, 0 where every byte is equal."""
    if not folder.finished:
        return None
    stored = folder.read_model()["w"]
    kept = stored[run] if stored.ndim == 3 else stored
    return 0.0 if kept.tobytes() == model.tobytes() else float(np.abs(kept - model).max())
