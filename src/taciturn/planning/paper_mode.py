"""A study in mode paper: settings are filled in from the data, as the paper does."""

from __future__ import annotations

import math
from dataclasses import replace

from taciturn.algorithms.noisy_gradient import PaperGradient
from taciturn.data import load, refuse_unseen_classes, source_for
from taciturn.errors import InputError
from taciturn.objectives import LOSSES, Problem
from taciturn.planning.step_sizes import checked_smoothness, eta_schedule, rho_schedule
from taciturn.planning.study import (
    Batch,
    Study,
    StudyPart,
    batches,
    build_algorithm,
    build_problem,
    check_record_bound,
    with_agents,
)
from taciturn.privacy.mechanisms import LaplaceDataDependent
from taciturn.settings import Settings
from taciturn.types import Classes, Dataset


def prepare_paper(settings: Settings) -> Study:
    """Load the data and build every algorithm; what cannot work stops here."""
    dataset = load(settings.data_options())
    if not source_for(settings.data).published:
        refuse_unseen_classes(dataset)
    settings = fill_in(settings, dataset)
    classes = isinstance(dataset.target, Classes)
    problem = build_problem(settings, dataset.name, classes, dataset.records, len(dataset.agents))
    settings = fill_in_constants(settings, problem, dataset)
    parts = [_part(settings, problem, dataset, batch) for batch in batches(settings)]
    return Study(with_agents(settings, dataset), dataset, problem, parts)


def _part(settings: Settings, problem: Problem, dataset: Dataset, batch: Batch) -> StudyPart:
    if batch.algorithm == "outp" and settings.outp_noise == "calibrated":
        check_record_bound(float(settings.record_bound), dataset)
    rho, eta = rho_schedule(settings, batch.epsilon), eta_schedule(settings, batch.epsilon)
    release = PaperGradient(LaplaceDataDependent(batch.epsilon))
    return StudyPart(batch, build_algorithm(settings, problem, batch, rho, eta, release), int(settings.rounds), eta)


def fill_in(settings: Settings, dataset: Dataset) -> Settings:
    """Replace `auto` by values: kind of label, range of features, numbers of records.

    With L = curvature * B^2 max_p I_p / I, where no record is longer than B, every f_p is L-smooth, and the steps that
    suit it scale as rho ~ L and eta ~ 1/L. The factors are what trains tables well in a hundred rounds: B is the worst
    case, so that steps well above 1/L pay where the loss has bounded gradients, and 1/L is taken where it has not.
    """
    classes = isinstance(dataset.target, Classes)
    loss_name = ("softmax" if classes else "squared") if settings.loss == "auto" else settings.loss
    loss = LOSSES[loss_name]()
    bound = math.sqrt(len(dataset.features)) if settings.record_bound == "auto" else float(settings.record_bound)
    share = max(len(shard.x) for shard in dataset.train) / dataset.records
    smoothness = (loss.curvature if math.isfinite(loss.curvature) else 1.0) * bound**2 * share
    filled = replace(settings, loss=loss_name, record_bound=bound)
    if filled.rho == "auto":
        filled = replace(filled, rho=smoothness / 1000.0)
    if filled.eta == "auto":
        bounded = math.isfinite(loss.residual_bound)
        step = ("nonsmooth", filled.eta_scale * 50.0 / smoothness) if bounded else (1.0 / smoothness, filled.eta_scale)
        filled = replace(filled, eta=step[0], eta_scale=step[1])
    return filled


def fill_in_constants(settings: Settings, problem: Problem, dataset: Dataset) -> Settings:
    """The constants of the theorems' eta, where it asks for them: L comes from the data, alpha from the regulariser."""
    if settings.eta == "smooth" and settings.smoothness == "auto":
        return replace(settings, smoothness=checked_smoothness(settings, problem.smoothness(dataset.train)))
    return fill_in_strong_convexity(settings, problem)


def fill_in_strong_convexity(settings: Settings, problem: Problem) -> Settings:
    """alpha of eta strong, from the regulariser."""
    if settings.eta != "strong" or settings.strong_convexity != "auto":
        return settings
    if problem.strong_convexity <= 0.0:
        raise InputError("eta strong needs a strongly convex f: use regulariser l2 with beta > 0")
    return replace(settings, strong_convexity=problem.strong_convexity)
