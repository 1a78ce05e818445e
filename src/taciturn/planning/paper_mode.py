"""Studies in mode paper: settings are filled in from the data, as the paper does."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from taciturn.algorithms.noisy_gradient import PaperGradient
from taciturn.data import load, refuse_unseen_classes, source_for
from taciturn.errors import InputError
from taciturn.objectives import LOSSES, Problem
from taciturn.planning.step_sizes import (
    L_OVER_RHO,
    NOISE_FREE_STEP,
    eta_schedule,
    fill_in_eta_constants,
    finite_curvature,
    rho_schedule,
)
from taciturn.planning.study import (
    Batch,
    Study,
    StudyPart,
    batches,
    build_algorithm,
    build_problem,
    loss_name,
    with_agents,
)
from taciturn.privacy.mechanisms import LaplaceDataDependent
from taciturn.settings import Settings
from taciturn.types import Classes, Dataset


def prepare_paper(settings: Settings) -> Study:
    """Load the data and build every algorithm.

    Parameters
    ----------
    settings : Settings
        The settings.

    Returns
    -------
    Study

    Raises
    ------
    InputError
        If the settings do not fit the data.
    """
    dataset = load(settings.data_options())
    if not source_for(settings.data).published:
        refuse_unseen_classes(dataset)
    settings = fill_in(settings, dataset)
    classes = isinstance(dataset.target, Classes)
    problem = build_problem(settings, dataset.name, classes, dataset.records, len(dataset.agents))
    settings = fill_in_eta_constants(settings, problem, lambda: problem.smoothness(dataset.train))
    if "outp" in settings.algorithm and settings.outp_noise == "calibrated":
        check_record_bound(float(settings.record_bound), dataset)
    parts = [paper_part(settings, problem, batch) for batch in batches(settings)]
    return Study(with_agents(settings, dataset), dataset, problem, parts)


def paper_part(settings: Settings, problem: Problem, batch: Batch) -> StudyPart:
    """Return a batch with the schedules of the settings and the paper's noise."""
    rho, eta = rho_schedule(settings, batch.epsilon), eta_schedule(settings, batch.epsilon)
    release = PaperGradient(LaplaceDataDependent(batch.epsilon))
    return StudyPart(batch, build_algorithm(settings, problem, batch, rho, eta, release), int(settings.rounds), eta)


def fill_in(settings: Settings, dataset: Dataset) -> Settings:
    """Replace `auto` by values for the loss, the record bound, rho and eta.

    With L = curvature * B^2 max_p I_p / I, where no record is longer than B, every f_p is L-smooth, and suitable steps
    scale as rho ~ L and eta ~ 1/L. The factors train tables well in a hundred rounds: B is a worst case, so steps well
    above 1/L pay where the loss has bounded gradients; otherwise eta is 1/L.
    """
    name = loss_name(settings, isinstance(dataset.target, Classes))
    loss = LOSSES[name]()
    bound = math.sqrt(len(dataset.features)) if settings.record_bound == "auto" else float(settings.record_bound)
    share = max(len(shard.x) for shard in dataset.train) / dataset.records
    smoothness = finite_curvature(loss) * bound**2 * share
    filled = replace(settings, loss=name, record_bound=bound)
    if filled.rho == "auto":
        filled = replace(filled, rho=smoothness / L_OVER_RHO)
    if filled.eta == "auto" and math.isfinite(loss.residual_bound):
        filled = replace(filled, eta="nonsmooth", eta_scale=filled.eta_scale * NOISE_FREE_STEP / smoothness)
    elif filled.eta == "auto":
        filled = replace(filled, eta=1.0 / smoothness)
    return filled


def check_record_bound(bound: float, dataset: Dataset) -> None:
    """Raise InputError if a record is longer than the bound."""
    blocks = (block for shard in dataset.train for block in shard.blocks())
    longest = max(float(np.sqrt((block.x**2).sum(axis=1)).max()) for block in blocks)
    if longest > bound * (1.0 + 1e-6):
        raise InputError(f"record-bound is {bound:g}, but a record of length {longest:g} exceeds it; raise the bound")
