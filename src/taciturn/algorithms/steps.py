"""The equations that several algorithms share, each in this one place."""

from __future__ import annotations

from collections.abc import Iterable

from taciturn.core.arrays import namespace
from taciturn.objectives import FeasibleSet
from taciturn.types import Array


def consensus(rho: Array, z_sum: Array, lam_sum: Array, agents: int) -> Array:
    """w = (1/P) sum_p (z_p - lambda_p / rho)  (eq. ADMM-1; Algorithm 1, line 5). It needs only the sums."""
    return (z_sum - lam_sum / rho) / agents


def dual_step(lam: Array, rho: Array, w: Array, z: Array) -> Array:
    """lambda + rho (w - z)  (eq. ADMM-3; lines 8 and 23): the same line at the server and at the agent."""
    return lam + rho * (w - z)


def consensus_residual(w: Array, uploads: Iterable[Array]) -> Array:
    """||A w - z|| over the agents whose z these are, of every run, [R]."""
    residual: Array = namespace(w).sqrt(sum(((w - z) ** 2).sum(axis=(0, 2)) for z in uploads))
    return residual


def linearised_step(feasible: FeasibleSet, rho: Array, eta: Array, w: Array, lam: Array, z: Array, g: Array) -> Array:
    """argmin_{v in W} <g, v> + ||v - z||^2 / (2 eta) + (rho/2) ||w - v + lambda/rho||^2  (eq. DPADMM-2-Prox).

    The quadratic is isotropic, so the constrained minimiser is the projection of the unconstrained one. The noise
    xi of the objective perturbation enters as g + xi.
    """
    return feasible.project((rho * w + lam - g + z / eta) / (rho + 1.0 / eta))
