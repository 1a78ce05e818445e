"""Objective perturbation: a random linear term in the objective, whose exact minimiser may then be seen."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taciturn.algorithms.base import AlgorithmConfig
from taciturn.algorithms.privacy_costs import BY_LENGTH, PublicParameters, upload_event
from taciturn.algorithms.subproblem import Solver, solver_for
from taciturn.privacy.events import NON_PRIVATE, BatchEvent, Event, Objective
from taciturn.privacy.mechanisms import OutputNoise
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, Shard

CARE = 20.0  # times the multiplier, for the noise that hides the solver's error: it costs next to nothing


class Perturbed(NamedTuple):
    """The minimiser of a perturbed objective, and what seeing it costs."""

    z: Array  # [J, R, K]
    events: tuple[BatchEvent, BatchEvent]
    magnitude: Array  # [R]


@dataclass(frozen=True, eq=False)
class ObjectivePerturbation:
    """argmin f_p(z) - <lambda, z> + <b, z> + (rho/2) ||w - z||^2, with a little noise that hides the solver's error.

    docs/explanation/objective-perturbation.md proves what this costs.
    """

    solver: Solver
    noise: OutputNoise
    moved: float  # how far one unit moves f'_p
    trace: float  # how far it moves the trace of the Hessian of f_p
    rank: int  # K, times the records in which neighbours differ

    def __call__(self, rho: Array, w: Array, lam: Array, start: Array, shard: Shard, noise: NoiseSource) -> Perturbed:
        """The solution of every run."""
        length = np.full(w.shape[1], self.moved)
        b = self.noise.xi(0, length, w, noise)
        z = self.solver(rho, w, lam - b, start, shard)
        apart = 2.0 * self.solver.error(rho[:, 0])
        care = OutputNoise(self.noise.kind, CARE * self.noise.multiplier)
        xi, second = care.draw(1, apart, z, noise)
        first = self.event(self.noise.scale(length), self.solver.convexity(rho[:, 0]))
        return Perturbed(z + xi, (first, second), self.noise.magnitude(length, w[:, 0].size))

    def event(self, scale: Array, convexity: Array) -> BatchEvent:
        """What the perturbed minimisers cost, of every run."""
        known = self.moved, self.trace, self.rank, self.noise.kind
        pairs = zip(scale, convexity, strict=True)
        return BatchEvent(
            tuple(minimiser_event(float(s), float(c), *known) if s > 0.0 else NON_PRIVATE for s, c in pairs)
        )


def perturbation(name: str, recipe: AlgorithmConfig) -> ObjectivePerturbation:
    """Of a method by name."""
    r = recipe
    return ObjectivePerturbation(solver_for(name, r), r.noise, r.moved, r.trace, r.rank)


def minimiser_event(scale: float, convexity: float, moved: float, trace: float, rank: int, kind: str) -> Objective:
    """ln det moves by at most trace / (rho + alpha), the smallest that an eigenvalue can be."""
    return Objective(scale, moved, trace / convexity, rank, f"objective-{kind}")


def per_objective_cost(public: PublicParameters, multiplier: float, rounds: int) -> Counter[Event]:
    """Every round's perturbed minimiser, and the noise that hides the solver's error."""
    events: Counter[Event] = Counter()
    kind, l2 = BY_LENGTH[public.mechanism], public.moved.l2
    for t in range(1, rounds + 1):
        convexity = public.rho(t) + public.convexity
        events[minimiser_event(multiplier * l2, convexity, l2, public.trace, public.rank, kind)] += 1
        events[upload_event(public.mechanism, CARE * multiplier, 2.0 * public.tolerance / convexity)] += 1
    return events
