"""Objective perturbation: a random linear term in the objective, so that its minimiser may be released."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taciturn.algorithms.base import AlgorithmConfig
from taciturn.algorithms.privacy_costs import L2_MECHANISMS, PublicParameters, upload_event
from taciturn.algorithms.subproblem import Solver, solver_for
from taciturn.privacy.events import NON_PRIVATE, BatchEvent, Event, Objective
from taciturn.privacy.mechanisms import OutputNoise
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, Shard

ERROR_NOISE = 20.0  # times the multiplier, for the noise that hides the solver's error: it costs almost nothing


class PerturbedMinimiser(NamedTuple):
    """The minimiser of a perturbed objective, and the events of its release.

    Parameters
    ----------
    z : Array, [J, R, K]
        The iterate.
    events : tuple of BatchEvent
        The events.
    magnitude : Array, [R]
        E|b|.
    """

    z: Array
    events: tuple[BatchEvent, BatchEvent]
    magnitude: Array


@dataclass(frozen=True, eq=False)
class ObjectivePerturbation:
    """argmin f_p(z) - <lambda, z> + <b, z> + (rho/2) ||w - z||^2, plus a little noise that hides the solver's error.

    docs/explanation/objective-perturbation.md proves its cost.

    Parameters
    ----------
    solver : Solver
        Solves the subproblem.
    noise : OutputNoise
        The noise b, and the noise that hides the error.
    sensitivity : float
        Delta: the L2 sensitivity of f'_p.
    trace : float
        The most that one unit changes the trace of the Hessian of f_p.
    rank : int
        K times the records in which neighbours differ.
    """

    solver: Solver
    noise: OutputNoise
    sensitivity: float
    trace: float
    rank: int

    def __call__(
        self, rho: Array, w: Array, lam: Array, start: Array, shard: Shard, noise: NoiseSource
    ) -> PerturbedMinimiser:
        """Return the perturbed minimiser of every run; rho is [R, 1], the other arrays are [J, R, K]."""
        delta = np.full(w.shape[1], self.sensitivity)
        b = self.noise.xi(0, delta, w, noise)
        z = self.solver(rho, w, lam - b, start, shard)
        error_noise = OutputNoise(self.noise.kind, ERROR_NOISE * self.noise.multiplier)
        xi, second = error_noise.draw(1, 2.0 * self.solver.error(rho[:, 0]), z, noise)
        first = self.event(self.noise.scale(delta), self.solver.convexity(rho[:, 0]))
        return PerturbedMinimiser(z + xi, (first, second), self.noise.magnitude(delta, w[:, 0].size))

    def event(self, scale: Array, convexity: Array) -> BatchEvent:
        """Return the events of the minimisers of all runs, for noise scales and convexities [R]."""
        public = self.sensitivity, self.trace, self.rank, self.noise.kind
        pairs = zip(scale, convexity, strict=True)
        return BatchEvent(
            tuple(minimiser_event(float(s), float(c), *public) if s > 0.0 else NON_PRIVATE for s, c in pairs)
        )


def objective_perturbation(name: str, config: AlgorithmConfig) -> ObjectivePerturbation:
    """Return the objective perturbation of the method `name`."""
    return ObjectivePerturbation(solver_for(name, config), config.noise, config.sensitivity, config.trace, config.rank)


def minimiser_event(
    scale: float, convexity: float, sensitivity: float, trace: float, rank: int, kind: str
) -> Objective:
    """Return the event of a minimiser: ln det changes by at most trace / (rho + alpha), its smallest eigenvalue."""
    return Objective(scale, sensitivity, trace / convexity, rank, f"objective-{kind}")


def per_objective_cost(public: PublicParameters, multiplier: float, rounds: int) -> Counter[Event]:
    """Return the events of every round's perturbed minimiser and of the noise that hides the solver's error."""
    events: Counter[Event] = Counter()
    kind, l2 = L2_MECHANISMS[public.mechanism], public.sensitivity.l2
    for t in range(1, rounds + 1):
        convexity = public.rho(t) + public.convexity
        events[minimiser_event(multiplier * l2, convexity, l2, public.trace, public.rank, kind)] += 1
        events[upload_event(public.mechanism, ERROR_NOISE * multiplier, 2.0 * public.tolerance / convexity)] += 1
    return events
