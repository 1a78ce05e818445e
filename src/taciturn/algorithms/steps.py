"""The equations that several algorithms share."""

from __future__ import annotations

from collections.abc import Iterable

from taciturn.core.arrays import namespace
from taciturn.objectives import FeasibleSet
from taciturn.types import Array


def consensus(rho: Array, z_sum: Array, lam_sum: Array, agents: int) -> Array:
    """Return w = (1/P) sum_p (z_p - lambda_p / rho)  (eq. ADMM-1; Algorithm 1, line 5).

    Parameters
    ----------
    rho : Array, [R, 1]
        The penalty.
    z_sum, lam_sum : Array, [J, R, K]
        The sums over all agents.
    agents : int
        P.

    Returns
    -------
    Array, [J, R, K]
    """
    return (z_sum - lam_sum / rho) / agents


def dual_step(lam: Array, rho: Array, w: Array, z: Array) -> Array:
    """Return lambda + rho (w - z)  (eq. ADMM-3; lines 8 and 23), for the server and for the agent.

    >>> dual_step(0.5, 2.0, w=1.0, z=0.25)
    2.0
    """
    return lam + rho * (w - z)


def consensus_residual(w: Array, uploads: Iterable[Array]) -> Array:
    """Return ||A w - z|| over the agents whose z [J, R, K] are given, of every run, [R]."""
    residual: Array = namespace(w).sqrt(sum(((w - z) ** 2).sum(axis=(0, 2)) for z in uploads))
    return residual


def linearised_step(feasible: FeasibleSet, rho: Array, eta: Array, w: Array, lam: Array, z: Array, g: Array) -> Array:
    """Return argmin_{v in W} <g, v> + ||v - z||^2 / (2 eta) + (rho/2) ||w - v + lambda/rho||^2  (eq. DPADMM-2-Prox).

    The quadratic is isotropic, so the constrained minimiser is the projection of the unconstrained one. The noise xi of
    the objective perturbation enters as g + xi.

    Parameters
    ----------
    feasible : FeasibleSet
        W.
    rho, eta : Array, [R, 1]
        Penalty and proximity.
    w, lam, z, g : Array, [J, R, K]
        Model, dual, iterate and (noisy) gradient.

    Returns
    -------
    Array, [J, R, K]
    """
    return feasible.project((rho * w + lam - g + z / eta) / (rho + 1.0 / eta))
