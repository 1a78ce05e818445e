"""Minimisers of many runs at once: faster solvers, and the exact likelihood of perturbed minimisers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taciturn.algorithms import Algorithm
from taciturn.algorithms.admm import AdmmObjp, AdmmOutp
from taciturn.algorithms.subproblem import Solver, scale_records
from taciturn.types import Array, Shard

NEWTON_STEPS = 20  # before the general solver takes over


class SharedSolver(Solver):
    """Solves the one subproblem that all runs share."""

    def __call__(self, rho: Array, w: Array, lam: Array, start: Array, shard: Shard) -> Array:
        """Return the solution, repeated for every run, [J, R, K]."""
        solution = super().__call__(rho[:1], w[:, :1], lam[:, :1], start[:, :1], shard)
        return np.repeat(solution, w.shape[1], axis=1)


class NewtonSolver(Solver):
    """Newton's method for all runs at once, to the same tolerance; the general solver handles the rest."""

    def __call__(self, rho: Array, w: Array, lam: Array, start: Array, shard: Shard) -> Array:
        """Return the solutions of all runs, [J, R, K]."""
        z, scaled, penalty = start, scale_records(shard, self.clipping), float(rho[0, 0])
        for _ in range(NEWTON_STEPS):
            slope = self.problem.gradient(z, scaled).value + rho * (z - w) - lam
            far = np.sqrt((slope**2).sum(axis=(0, 2))) > self.tolerance
            if not far.any():
                return z
            flat = slope.swapaxes(0, 1).reshape(w.shape[1], -1, 1)  # [R, J K, 1]
            step = np.linalg.solve(hessian(self, penalty, z, scaled), flat)
            z = z - step.reshape(w.shape[1], len(w), -1).swapaxes(0, 1)
        z[:, far] = super().__call__(rho[far], w[:, far], lam[:, far], start[:, far], shard)
        return z


def with_batched_solver(algorithm: Algorithm) -> Algorithm:
    """Return the algorithm with a solver for many runs that differ only in their noise."""
    match algorithm:
        case AdmmOutp(solver=solver):
            return replace(algorithm, solver=SharedSolver(solver.problem, solver.tolerance, solver.clipping))
        case AdmmObjp(perturbed=perturbed):
            solver = perturbed.solver
            newton = NewtonSolver(solver.problem, solver.tolerance, solver.clipping)
            return replace(algorithm, perturbed=replace(perturbed, solver=newton))
    return algorithm


def log_density(algorithm: AdmmObjp, w: Array, shard: Shard, scale: float, z: Array) -> Array:
    """Return ln p(b) + ln det H at z: the log-density of perturbed minimisers up to a constant, of every run, [R]."""
    perturbed, rho = algorithm.perturbed, float(algorithm.rho(1)[0, 0])
    scaled = scale_records(shard, perturbed.solver.clipping)
    b = -perturbed.solver.problem.gradient(z, scaled).value - rho * (z - w)  # the b whose minimiser is z
    square = (b**2).sum(axis=(0, 2)) / scale**2
    noise = -square / 2.0 if perturbed.noise.kind == "gaussian" else -np.sqrt(square)
    density: Array = noise + np.linalg.slogdet(hessian(perturbed.solver, rho, z, scaled))[1]
    return density


def hessian(solver: Solver, rho: float, z: Array, shard: Shard) -> Array:
    """Return the Hessian of the subproblem of the softmax loss at z [J, R, K]: [R, J K, J K]."""
    problem, runs, size = solver.problem, z.shape[1], len(z) * z.shape[2]
    h = problem.loss.probabilities(np.einsum("ij,jrk->irk", shard.x, z))
    if h is None:
        raise TypeError("only a loss with probabilities can be audited")
    curvature = h[..., None] * (np.eye(z.shape[2]) - h[..., None, :])
    of_loss = np.einsum("ij,il,irkm->rjklm", shard.x, shard.x, curvature, optimize=True) / problem.records
    total: Array = of_loss.reshape(runs, size, size) + (rho + problem.strong_convexity) * np.eye(size)
    return total
