"""What an agent sends, with and without its noise: the rounds of a study with seeds, made again in memory."""

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
from taciturn.training.loop import Progress, noise_of, placed, rounds_of
from taciturn.training.process_group import SINGLE_PROCESS
from taciturn.training.simulate import Round, start
from taciturn.types import Array, Classes


class ReplayedUploads(NamedTuple):
    """One agent's upload in one round of one run; `clean` is for the owner of the records alone."""

    agent: str
    round: int
    clean: Array  # [J, K]  z without the noise of this round, from the same state
    noisy: Array  # [J, K]  z as it was sent
    model: Array  # [J, K]  w of the last round that was made again
    last: int  # that round
    differs: float | None  # the most a number of the model differs from the stored one; None: there is none yet
    label: RunLabel
    features: tuple[str, ...]  # J names
    classes: tuple[str, ...]  # K names; "" where the label is a number


class SilentNoise:
    """A noise source that is silent."""

    def laplace(self, update: int, scale: Array, like: Array) -> Array:
        """Zeros."""
        zeros: Array = namespace(like).zeros_like(like)
        return zeros

    def gaussian(self, update: int, std: Array, like: Array) -> Array:
        """Zeros."""
        return self.laplace(update, std, like)

    def integers(self, update: int, mechanism: str, scale: Array, like: Array) -> NDArray[np.int64]:
        """Zeros."""
        return np.zeros(like.shape, np.int64)

    def l2_laplace(self, update: int, scale: Array, like: Array) -> Array:
        """Zeros."""
        return self.laplace(update, scale, like)

    def poisson_sample(self, update: int, rate: float, records: int, like: Array) -> NDArray[np.bool_]:
        """All records: what a sample hides is shown."""
        return np.ones((records, like.shape[1]), np.bool_)


def replay_uploads(
    study: Study,
    folder: RunFolder,
    run: int = 0,
    agent: str | None = None,
    t: int = 1,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> ReplayedUploads:
    """The upload of an agent (None: the first) in round t of a run, and the model at the end.

    In the first round hardly anything but the agent's own records is in what it sends. Rounds are made again up to the
    end of the folder's run, so that the model can be held against the stored one.
    """
    if study.settings.noise == "hardened":
        raise InputError(
            "what an agent sent cannot be made again: hardened noise is drawn from the operating system, and nobody "
            "can draw it a second time; a simulation (--seed N) shows such a picture"
        )
    if study.settings.trust != AGENTS:
        raise InputError(
            f"trust is {study.settings.trust}: what one agent sends has too little noise for anybody to see; "
            "a run with --trust agents shows such a picture"
        )
    names = study.dataset.agents
    if agent is not None and agent not in names:
        raise unknown_name("agent", agent, names)
    with placed(study, SINGLE_PROCESS) as there:
        part, last = _part(there, folder, run), _rounds_done(folder, run)
        if is_central(part):
            raise InputError(f"{part.batch.algorithm} is a central reference: no agent sends anything but its records")
        if not 1 <= t <= last:
            raise InputError(f"there is no round {t}: this run has rounds 1 to {last}")
        return _replay(there, part, folder, run, names.index(agent or names[0]), t, last, watch)


def _replay(
    study: Study,
    part: StudyPart,
    folder: RunFolder,
    run: int,
    p: int,
    t: int,
    last: int,
    watch: Callable[[Progress], None],
) -> ReplayedUploads:
    settings, shards, r = study.settings, study.dataset.train, run - part.batch.first
    state = start(shards, part.batch.size, settings.server, averages=False)

    def told(done: Round) -> Round:
        watch(Progress(part.batch, done.t, last, None))
        return done

    for done in rounds_of(study, part, shards, t - 1, state):
        state = told(done).state
    _, w = part.algorithm.server_send(t, state.server)
    clean, noisy = (
        to_numpy(part.algorithm.agent_step(t, w, state.agents[p], shards[p], noise).upload.z)[:, r]
        for noise in (SilentNoise(), noise_of(study, part)(p, t))
    )
    for done in rounds_of(study, part, shards, last, state):
        model = to_numpy(told(done).w)[:, r]
    target = study.dataset.target
    return ReplayedUploads(
        study.dataset.agents[p],
        t,
        clean,
        noisy,
        model,
        last,
        _difference(folder, run, model),
        part.batch.labels()[r],
        study.dataset.features,
        target.names if isinstance(target, Classes) else ("",),
    )


def _part(study: Study, folder: RunFolder, run: int) -> StudyPart:
    runs = sum(part.batch.size for part in study.parts)
    if not 0 <= run < runs:
        raise InputError(f"there is no run {run} in {folder.path}: its runs are 0 to {runs - 1} (taciturn show)")
    return next(part for part in reversed(study.parts) if part.batch.first <= run)


def _rounds_done(folder: RunFolder, run: int) -> int:
    done = [row.round for row in folder.read_metrics() if row.run == run]
    if not done:
        raise InputError(f"run {run} of {folder.path} has no evaluated round yet: nothing is known to have been sent")
    return max(done)


def _difference(folder: RunFolder, run: int, model: Array) -> float | None:
    """The largest difference to the stored model, 0 where every byte is the same."""
    if not folder.finished:
        return None
    stored = folder.read_model()["w"]
    kept = stored[run] if stored.ndim == 3 else stored
    return 0.0 if kept.tobytes() == model.tobytes() else float(np.abs(kept - model).max())
