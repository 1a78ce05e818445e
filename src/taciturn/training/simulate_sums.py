"""Simulation of a secure sum: agents send whole numbers, and the server sees what they add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from taciturn.algorithms.averages import average, no_averages
from taciturn.algorithms.base import Agent, SummableAlgorithm
from taciturn.algorithms.noisy_gradient import ReleasedGradient, SummedGradient, sum_weight
from taciturn.algorithms.server import Received, new_server
from taciturn.core.arrays import to_numpy
from taciturn.kernels.threads import parallel_map
from taciturn.privacy.events import BatchEvent
from taciturn.privacy.noise import NoiseSource
from taciturn.training.simulate import MIN_WORK_FOR_THREADS, Round, SimulationState, step_work
from taciturn.types import Array, Shard

MEAN = 0  # the server's one agent, the mean of all


class SimulatedSum(NamedTuple):
    """What is known of one round's secure sum after it was opened; nothing else of an agent is kept."""

    total: NDArray[np.int64]  # [J, R, K]
    answered: tuple[int, ...]
    events: Counter[tuple[int, BatchEvent]]
    noise: Array  # [R]  mean |xi| of an agent's share, expected


def start_sums(shards: Sequence[Shard], runs: int, averages: bool = False) -> SimulationState:
    """Return the state before round 1: a server with one agent, the mean of all, in which z = lambda = 0.

    Parameters
    ----------
    shards
        The records of the agents.
    runs
        R, the number of runs of the batch.
    averages
        Whether to keep the theorems' averages, of the mean agent.
    """
    x, y = shards[0].x, shards[0].y
    zero = np.zeros((x.shape[1], runs, y.shape[1]), x.dtype)
    kept = no_averages(zero, 1) if averages else None
    return SimulationState(0, new_server("full", zero, 1), (Agent(zero, zero),), kept)


def simulate_sums(
    algorithm: SummableAlgorithm,
    shards: Sequence[Shard],
    noise: Callable[[int, int], NoiseSource],
    rounds: int,
    state: SimulationState,
    answering: Callable[[int], Collection[int]] | None = None,
    sizes: Sequence[int] | None = None,
) -> Iterator[Round]:
    """Yield rounds state.round + 1 to `rounds`, computed from sums over agents alone.

    Integers are added exactly, so the order of the agents does not matter, and a federation that opens the same sums
    has the same bits.

    Parameters
    ----------
    algorithm
        The algorithm of the batch, whose release is a `SummedGradient`.
    shards
        The records of all agents.
    noise
        Returns the noise source of an agent in a round.
    rounds
        T, the last round.
    state
        The state to continue from: `start_sums`, or that of a previous round.
    answering
        Returns the agents whose integers are in the sum of a round; None: all.
    sizes
        The declared records of every agent, which weight a sum that lacks some; None: the same for all.

    Raises
    ------
    TypeError
        If the algorithm's release is not for sums.
    """
    _summed(algorithm)
    sizes = (1,) * len(shards) if sizes is None else sizes
    for t in range(state.round + 1, rounds + 1):
        server, w = algorithm.server_send(t, state.server)
        (before,) = state.agents
        answered = range(len(shards)) if answering is None else sorted(answering(t))
        opened = open_sum(algorithm, t, w, before, {p: shards[p] for p in answered}, noise)
        noisy = mean_gradient(algorithm, t, w, opened.total, sizes, answered)
        after, upload = algorithm.local_step(t, w, before, noisy)
        server = algorithm.server_receive(t, w, server, Received.of({MEAN: upload}))
        model, averages = algorithm.model(t, w, server), state.averages
        if averages is not None:
            averages = average(t, averages, model, [upload], (before,), (after,), algorithm.iterates_sent)
        state = SimulationState(t, server, (after,), averages)
        yield Round(
            t,
            state,
            algorithm.coefficients(model, server),
            None,
            opened.noise,
            algorithm.rho(t)[:, 0],
            algorithm.eta(t)[:, 0],
            opened.events,
            len(answered),
        )


def open_sum(
    algorithm: SummableAlgorithm,
    t: int,
    w: Array,
    mean: Agent,
    shards: Mapping[int, Shard],
    noise: Callable[[int, int], NoiseSource],
) -> SimulatedSum:
    """Return the sum of the integers of these agents in round t; `mean` is the server's agent."""
    shared = algorithm.shared_state(t, mean)
    zero = np.zeros_like(w)
    known = Agent(zero, zero if shared is None else shared)  # agents have no state, and know what the server shows

    def release(p: int) -> ReleasedGradient:
        return algorithm.local_gradient(t, w, known, shards[p], noise(p, t))

    large = step_work(w, list(shards.values())) >= MIN_WORK_FOR_THREADS
    total = np.zeros(w.shape, np.int64)
    events: Counter[tuple[int, BatchEvent]] = Counter()
    sizes = []
    for p, released in zip(shards, parallel_map(release, list(shards)) if large else map(release, shards), strict=True):
        total += cast("NDArray[np.int64]", released.gradient)
        events[p, released.event] += 1
        sizes.append(released.magnitude)
    return SimulatedSum(total, tuple(shards), events, to_numpy(np.mean(sizes, axis=0)))


def mean_gradient(
    algorithm: SummableAlgorithm,
    t: int,
    w: Array,
    total: NDArray[np.int64],
    sizes: Sequence[int],
    answered: Collection[int],
) -> Array:
    """Return the mean noisy gradient of all agents from the opened sum of round t, [J, R, K].

    Raises
    ------
    TypeError
        If the algorithm's release is not for sums.
    """
    at, weight = algorithm.gradient_point(t, w), sum_weight(sizes, answered)
    return _summed(algorithm).mean(total, algorithm.problem, at, len(sizes), weight)


def _summed(algorithm: SummableAlgorithm) -> SummedGradient:
    if not isinstance(algorithm.release, SummedGradient):
        raise TypeError(f"a {type(algorithm.release).__name__} gives no whole numbers that can be added over agents")
    return algorithm.release
