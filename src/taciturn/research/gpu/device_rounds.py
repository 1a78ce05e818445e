"""Rounds of one batch on the GPU, and conversion of its state to named arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from taciturn.algorithms.base import Algorithm
from taciturn.algorithms.iadmm import DpIadmm
from taciturn.algorithms.noisy_gradient import PaperGradient
from taciturn.algorithms.outp import OutputPerturbation
from taciturn.algorithms.steps import consensus
from taciturn.core.arrays import to_numpy
from taciturn.errors import InputError
from taciturn.objectives import Problem
from taciturn.objectives.constraints import Unconstrained
from taciturn.objectives.losses import Softmax
from taciturn.objectives.regularizers import L2
from taciturn.research.gpu.device_batch import BLOCKS, DeviceBatch
from taciturn.research.gpu.triton_kernels import objective_update, output_update
from taciturn.types import Array

TABLE = 500  # rounds whose schedules are put on the device at a time
WARPS = 2  # of a program of an update


class DeviceState(NamedTuple):
    """Everything that a batch needs to continue; the next round overwrites its arrays."""

    round: int  # rounds done
    z: torch.Tensor  # [P, R, J, K]
    lam: torch.Tensor  # [P, R, J, K]
    z_sum: torch.Tensor  # [R, J, K]  at the server
    lam_sum: torch.Tensor  # [R, J, K]
    silent: torch.Tensor  # [1]  1 once some noise was drawn for a sensitivity of 0, and so was none


class DeviceRound(NamedTuple):
    """One queued round; its results must be requested before the next round starts."""

    t: int
    state: DeviceState
    model: Callable[[], torch.Tensor]  # [J, R, K]  the model of this round
    noise: Callable[[], torch.Tensor]  # [R]  mean |xi| over agents, updates and parameters


def start(batch: DeviceBatch) -> DeviceState:
    """Return the state before round 1: z = lambda = 0."""
    agents, _, features = batch.stack.x.shape
    z, lam = torch.zeros((2, agents, batch.runs, features, batch.stack.classes), device=batch.device)
    z_sum, lam_sum = torch.zeros((2, *z.shape[1:]), device=batch.device)
    return DeviceState(0, z, lam, z_sum, lam_sum, torch.zeros(1, dtype=torch.int32, device=batch.device))


def simulate(algorithm: Algorithm, batch: DeviceBatch, rounds: int, state: DeviceState) -> Iterator[DeviceRound]:
    """Run rounds state.round + 1 to `rounds`, in place.

    Raises
    ------
    InputError
        If the algorithm or problem is not supported on the GPU.
    """
    match algorithm:
        case OutputPerturbation(problem=problem) if _known(problem):
            return _output(algorithm, batch, rounds, state)
        case DpIadmm(problem=problem, release=PaperGradient(mechanism=mechanism), closing=False) if _known(problem):
            return _objective(algorithm, mechanism.epsilon, batch, rounds, state)
    raise InputError("the GPU engine supports objp, objpm and outp in mode paper, with softmax, l2 and --set all")


def _known(problem: Problem) -> bool:
    parts = (problem.loss, problem.regulariser, problem.feasible)
    return all(isinstance(part, kind) for part, kind in zip(parts, (Softmax, L2, Unconstrained), strict=True))


def _objective(
    algorithm: DpIadmm, budgets: Array, batch: DeviceBatch, rounds: int, state: DeviceState
) -> Iterator[DeviceRound]:
    """Run Algorithm 1 with E local updates."""
    problem, stack, updates = algorithm.problem, batch.stack, algorithm.local_updates
    agents, runs = len(stack.x), batch.runs
    shape = (agents, runs, batch.size, stack.classes, batch.columns, batch.stride)
    epsilon = batch.put(budgets.astype(np.float32))
    total = torch.empty_like(state.z) if updates > 1 else state.z
    factor = batch.factor(state.z)
    sizes = torch.zeros((updates, agents, batch.tiles, runs), device=batch.device)

    def numbers(t: int) -> tuple[Array, ...]:
        return algorithm.rho(t)[:, 0], algorithm.eta(t)[:, 0]

    for t, (rho, eta) in _tables(batch, state.round, rounds, numbers):
        w = consensus(rho[:, None, None], state.z_sum, state.lam_sum, agents)  # line 5
        largest = torch.zeros((updates, agents, runs), device=batch.device)
        for e in range(updates):
            batch.differentiate(factor, largest[e])
            last = e == updates - 1
            objective_update[(batch.tiles, runs, 1 if last else agents)](
                *(state.z, state.lam, total, factor, batch.gradient, w, state.z_sum, state.lam_sum, largest[e]),
                *(rho, eta, epsilon, batch.keys, stack.keys, sizes[e], state.silent),
                *(t, e, float(problem.records), 2.0 * problem.beta / problem.agents, float(updates)),
                *(*shape, e == 0, last, BLOCKS),
                num_warps=WARPS,
            )
        state = state._replace(round=t)
        yield DeviceRound(t, state, partial(w.transpose, 0, 1), partial(_mean, batch, sizes, updates))


def _output(
    algorithm: OutputPerturbation, batch: DeviceBatch, rounds: int, state: DeviceState
) -> Iterator[DeviceRound]:
    """Run output perturbation, which updates z, then w, then lambda."""
    stack, runs = batch.stack, batch.runs
    agents = len(stack.x)
    shape = (agents, runs, batch.size, stack.classes, batch.columns, batch.stride)
    records = stack.records.double().cpu().numpy()[:, None]
    factor, sizes = batch.factor(state.z), torch.zeros((batch.tiles, runs), device=batch.device)
    largest = torch.zeros((agents, runs), device=batch.device)  # unused: the sensitivity is public

    def numbers(t: int) -> tuple[Array, ...]:
        rho, eta = algorithm.rho(t)[:, 0], algorithm.eta(t, records)
        return rho, algorithm.rho(t - 1)[:, 0], eta, algorithm.mechanism.std(algorithm.sensitivity(records, rho, eta))

    for t, (rho, before, eta, std) in _tables(batch, state.round, rounds, numbers):
        w = consensus(before[:, None, None], state.z_sum, state.lam_sum, agents)
        batch.differentiate(factor, largest)
        output_update[(batch.tiles, runs)](
            *(state.z, state.lam, factor, batch.gradient, w, state.z_sum, state.lam_sum),
            *(rho, before, eta, std, batch.keys, stack.records, stack.keys, sizes),
            *(t, 2.0 * algorithm.problem.beta, *shape, BLOCKS),
            num_warps=WARPS,
        )
        state = state._replace(round=t)
        model = partial(_model, rho, state, agents)
        yield DeviceRound(t, state, model, partial(_mean, batch, sizes, 1))


def _model(rho: torch.Tensor, state: DeviceState, agents: int) -> torch.Tensor:
    w: torch.Tensor = consensus(rho[:, None, None], state.z_sum, state.lam_sum, agents)
    return w.transpose(0, 1)


def _mean(batch: DeviceBatch, sizes: torch.Tensor, updates: int) -> torch.Tensor:
    return sizes.flatten(0, -2).sum(dim=0) / (len(batch.stack.x) * batch.size * updates)


def _tables(
    batch: DeviceBatch, done: int, rounds: int, numbers: Callable[[int], tuple[Array, ...]]
) -> Iterator[tuple[int, tuple[torch.Tensor, ...]]]:
    """Yield every remaining round with its numbers on the device, [..., R] each, copied many rounds at a time."""
    for first in range(done + 1, rounds + 1, TABLE):
        turns = range(first, min(first + TABLE, rounds + 1))
        columns = zip(*(numbers(t) for t in turns), strict=True)
        tables = [batch.put(np.stack(column).astype(np.float32)) for column in columns]
        yield from zip(turns, zip(*tables, strict=True), strict=True)


ARRAYS = tuple(name for name in DeviceState._fields if name != "round")


def to_arrays(state: DeviceState) -> dict[str, Array]:
    """Return a copy of the state as named arrays, for a checkpoint."""
    return {"round": np.array(state.round), **{name: np.array(to_numpy(getattr(state, name))) for name in ARRAYS}}


def from_arrays(arrays: Mapping[str, Array], batch: DeviceBatch) -> DeviceState:
    """Return the state that `to_arrays` saved.

    Raises
    ------
    InputError
        If the arrays do not fit the batch.
    """
    state = start(batch)
    fits = "round" in arrays and all(
        name in arrays and arrays[name].shape == tuple(getattr(state, name).shape) for name in ARRAYS
    )
    if not fits:
        raise InputError("the checkpoint does not fit the run: it was written with other settings or on another device")
    for name in ARRAYS:
        getattr(state, name).copy_(torch.from_numpy(arrays[name]))
    return state._replace(round=int(arrays["round"]))
