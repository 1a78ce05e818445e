"""Minimisers of many runs at once: solved with less work, and the exact likelihood of perturbed ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taciturn.algorithms import Algorithm
from taciturn.algorithms.admm import AdmmObjp, AdmmOutp
from taciturn.algorithms.subproblem import Solver, bounded
from taciturn.types import Array, Shard

NEWTON = 20  # steps, before the solver itself takes over


class Alike(Solver):
    """Runs that all have the same subproblem: it is solved once."""

    def __call__(self, rho: Array, w: Array, lam: Array, start: Array, shard: Shard) -> Array:
        """The one solution, for every run."""
        one = super().__call__(rho[:1], w[:, :1], lam[:, :1], start[:, :1], shard)
        return np.repeat(one, w.shape[1], axis=1)


class AllAtOnce(Solver):
    """Newton's method in all runs at once, to the same tolerance; what it does not reach is left to the solver."""

    def __call__(self, rho: Array, w: Array, lam: Array, start: Array, shard: Shard) -> Array:
        """The solutions."""
        z, own, penalty = start, bounded(shard, self.limit), float(rho[0, 0])
        for _ in range(NEWTON):
            slope = self.problem.gradient(z, own).value + rho * (z - w) - lam
            far = np.sqrt((slope**2).sum(axis=(0, 2))) > self.tolerance
            if not far.any():
                return z
            step = np.linalg.solve(hessian(self, penalty, z, own), _flat(slope)[..., None])[..., 0]
            z = z - step.reshape(w.shape[1], len(w), -1).swapaxes(0, 1)
        z[:, far] = super().__call__(rho[far], w[:, far], lam[:, far], start[:, far], shard)
        return z


def hastened(algorithm: Algorithm) -> Algorithm:
    """The algorithm with a solver for many runs that differ in their noise alone."""
    match algorithm:
        case AdmmOutp(solver=solver):
            return replace(algorithm, solver=Alike(solver.problem, solver.tolerance, solver.limit))
        case AdmmObjp(perturbed=perturbed):
            solver = AllAtOnce(perturbed.solver.problem, perturbed.solver.tolerance, perturbed.solver.limit)
            return replace(algorithm, perturbed=replace(perturbed, solver=solver))
    return algorithm


def log_density(algorithm: AdmmObjp, w: Array, shard: Shard, scale: float, z: Array) -> Array:
    """ln of the density of perturbed minimisers, up to a constant, of every run: ln p(b) + ln det H at z."""
    perturbed, rho = algorithm.perturbed, float(algorithm.rho(1)[0, 0])
    own = bounded(shard, perturbed.solver.limit)
    b = -perturbed.solver.problem.gradient(z, own).value - rho * (z - w)  # which has z for its minimiser
    square = (b**2).sum(axis=(0, 2)) / scale**2
    noise = -square / 2.0 if perturbed.noise.kind == "gaussian" else -np.sqrt(square)
    density: Array = noise + np.linalg.slogdet(hessian(perturbed.solver, rho, z, own))[1]
    return density


def hessian(solver: Solver, rho: float, z: Array, shard: Shard) -> Array:
    """Of the subproblem of the softmax loss at z [J, R, K]: [R, J K, J K]."""
    of, runs, size = solver.problem, z.shape[1], len(z) * z.shape[2]
    h = of.loss.probabilities(np.einsum("ij,jrk->irk", shard.x, z))
    if h is None:
        raise TypeError("only a loss with probabilities is audited")
    curved = h[..., None] * (np.eye(z.shape[2]) - h[..., None, :])
    bent = np.einsum("ij,il,irkm->rjklm", shard.x, shard.x, curved, optimize=True) / of.records
    found: Array = bent.reshape(runs, size, size) + (rho + of.strong_convexity) * np.eye(size)
    return found


def _flat(z: Array) -> Array:
    """[J, R, K] -> [R, J K]."""
    return z.swapaxes(0, 1).reshape(z.shape[1], -1)
