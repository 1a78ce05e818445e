"""From settings and data to a problem and an algorithm."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tacit.algorithms import ALGORITHMS, Algorithm, Recipe
from tacit.algorithms.schedules import Constant, DynamicRho, NonsmoothEta, Schedule, SmoothEta, StrongEta
from tacit.data import load
from tacit.errors import InputError
from tacit.problems import LOSSES, REGULARISERS, SETS, Problem
from tacit.settings import Settings
from tacit.study.batches import Batch, batches
from tacit.types import Array, Classes, Dataset


class Study(NamedTuple):
    """Everything a study needs, checked, before anything is written."""

    settings: Settings  # with nothing left to fill in
    dataset: Dataset
    problem: Problem
    plan: list[tuple[Batch, Algorithm]]


def prepare(settings: Settings) -> Study:
    """Load the data and build every algorithm; what cannot work stops here."""
    dataset = load(settings.data_options())
    settings = fill_in(settings, dataset)
    problem = build_problem(settings, dataset)
    settings = fill_in_constants(settings, problem, dataset)
    plan = [(batch, build_algorithm(settings, problem, dataset, batch)) for batch in batches(settings)]
    return Study(settings, dataset, problem, plan)


def fill_in(settings: Settings, dataset: Dataset) -> Settings:
    """Replace `auto` by values, from public facts only: kind of label, range of features, numbers of records.

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
        smoothness = problem.smoothness(dataset.train)
        if not math.isfinite(smoothness):
            raise InputError(f"eta smooth needs a smooth f: {settings.loss} with {settings.regulariser} is not")
        return replace(settings, smoothness=smoothness)
    if settings.eta == "strong" and settings.strong_convexity == "auto":
        if problem.strong_convexity <= 0.0:
            raise InputError("eta strong needs a strongly convex f: use regulariser l2 with beta > 0")
        return replace(settings, strong_convexity=problem.strong_convexity)
    return settings


def build_problem(settings: Settings, dataset: Dataset) -> Problem:
    """The objective that the settings and the data make."""
    loss = LOSSES[settings.loss]()
    if loss.needs_classes and not isinstance(dataset.target, Classes):
        raise InputError(
            f"loss {settings.loss} needs classes, but the label of {dataset.name} is a number: use squared"
        )
    return Problem(
        loss,
        REGULARISERS[settings.regulariser](),
        settings.beta,
        SETS[settings.set](settings.set_size),
        dataset.records,
        len(dataset.agents),
    )


def build_algorithm(settings: Settings, problem: Problem, dataset: Dataset, batch: Batch) -> Algorithm:
    """The batch's algorithm, ready to run."""
    method = ALGORITHMS[batch.algorithm]
    updates = (method.local_updates or 1) if settings.local_updates == "auto" else settings.local_updates
    if batch.algorithm == "outp" and settings.outp_noise == "calibrated":
        _check_record_bound(float(settings.record_bound), dataset)
    return method.build(
        Recipe(
            problem,
            batch.epsilon,
            _rho(settings, batch.epsilon),
            _eta(settings, batch.epsilon),
            local_updates=int(updates),
            delta=settings.delta,
            tolerance=settings.tolerance,
            radius=settings.radius,
            radius_scale=settings.radius_scale,
            outp_noise=settings.outp_noise,
            record_bound=float(settings.record_bound),
        )
    )


def _rho(settings: Settings, epsilon: Array) -> Schedule:
    if settings.rho == "dynamic":
        s = settings
        rho = DynamicRho(epsilon, s.rho_c1, s.rho_c2, s.rho_tc, s.rho_growth, s.rho_max)
        if not (rho(1) > 0.0).all():
            raise InputError("rho-c1 is 0 and epsilon is inf: then rho is 0, and it must be above 0")
        return rho
    return Constant(float(settings.rho), epsilon)


def _eta(settings: Settings, epsilon: Array) -> Schedule:
    scale = settings.eta_scale
    match settings.eta:
        case "smooth":
            return SmoothEta(epsilon, float(settings.smoothness), scale)
        case "nonsmooth":
            return NonsmoothEta(epsilon, scale)
        case "strong":
            return StrongEta(epsilon, float(settings.strong_convexity), scale)
    return Constant(scale * float(settings.eta), epsilon)


def _check_record_bound(bound: float, dataset: Dataset) -> None:
    longest = max(float(np.sqrt((shard.x**2).sum(axis=1)).max()) for shard in dataset.train)
    if longest > bound * (1.0 + 1e-6):
        raise InputError(f"record-bound is {bound:g}, but a record of length {longest:g} exceeds it: raise the bound")
