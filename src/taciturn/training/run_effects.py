"""The effects of a finished study's models, from released values alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from taciturn.algorithms.curve_noise import CurveNoise, KnownCurveNoise
from taciturn.data import read_schema
from taciturn.objectives import LOSSES
from taciturn.planning.study import Study, StudyPart
from taciturn.runs.effects import EffectsRecord, contrasts, run_effects
from taciturn.runs.folder import RunFolder
from taciturn.types import Array, Target

BINS = "bins"


def study_effects(study: Study, folder: RunFolder, stored: Sequence[Mapping[str, Array]]) -> EffectsRecord | None:
    """Return the effects of every run, or None if the models are not additive in a table's columns.

    Parameters
    ----------
    study
        The study, after training.
    folder
        Its run folder, which has the table's schema.
    stored
        The last checkpoint of every batch: `w` and, where the method measured some, `server_statistics`.
    """
    settings = study.settings
    if settings.features != BINS:
        return None
    schema = read_schema(folder.stored_schema())
    log_odds = LOSSES[settings.loss]().probabilities(np.zeros((1, study.dataset.target.width))) is not None
    runs = [
        run_effects(label, w, schema, settings.intercept, log_odds, noise)
        for part, arrays in zip(study.parts, stored, strict=True)
        for noise in [_noise(part, arrays, schema.target)]
        for label, w in zip(part.batch.labels(), np.moveaxis(arrays["w"], -2, 0), strict=True)
    ]
    return EffectsRecord(runs=tuple(runs))


def _noise(part: StudyPart, arrays: Mapping[str, Array], target: Target) -> CurveNoise | None:
    """Return the noise in a batch's curves, if its method knows it and its checkpoint has the statistics."""
    if not isinstance(part.algorithm, KnownCurveNoise) or "server_statistics" not in arrays:
        return None
    answered = tuple(map(int, arrays["answered"])) if "answered" in arrays else ()
    statistics, w = arrays["server_statistics"], arrays["w"]
    return part.algorithm.curve_noise(w[:, 0], statistics, int(arrays["round"]), contrasts(target), answered)
