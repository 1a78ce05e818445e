"""Simulations in which the server sees sums alone: of the whole numbers that agents send, or drawn at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from taciturn.algorithms.averages import average
from taciturn.algorithms.base import Agent, SummableAlgorithm
from taciturn.algorithms.noisy_gradient import ReleasedGradient, SummedGradient, sum_weight
from taciturn.algorithms.server import Received
from taciturn.core.arrays import namespace, to_numpy
from taciturn.kernels.threads import parallel_map
from taciturn.privacy.events import BatchEvent
from taciturn.privacy.noise import NoiseSource
from taciturn.training.simulate import MIN_WORK_FOR_THREADS, Round, SimulationState, start, step_work
from taciturn.types import Array, Shard

MEAN = 0  # the server's one agent, the mean of all


class SimulatedSum(NamedTuple):
    """What is known of one round's secure sum after it was opened; nothing else of an agent is kept."""

    total: NDArray[np.int64]  # [J, R, K]
    answered: tuple[int, ...]
    events: Counter[tuple[int, BatchEvent]]
    noise: Array  # [R]  mean |xi| of an agent's share, expected


class MeanGradient(NamedTuple):
    """The mean noisy gradient of all agents in one round, and what it cost them."""

    noisy: Array  # [J, R, K]
    events: Counter[tuple[int, BatchEvent]]
    noise: Array  # [R]  mean |xi| of an agent's share, expected
    senders: int


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
    return start(shards[:1], runs, "full", averages)


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
    weights = (1,) * len(shards) if sizes is None else sizes

    def gradient(t: int, w: Array, mean: Agent) -> MeanGradient:
        answered = range(len(shards)) if answering is None else sorted(answering(t))
        opened = open_sum(algorithm, t, w, mean, {p: shards[p] for p in answered}, noise)
        noisy = mean_gradient(algorithm, t, w, opened.total, weights, answered)
        return MeanGradient(noisy, opened.events, opened.noise, len(answered))

    yield from _rounds(algorithm, rounds, state, gradient)


def simulate_pooled(
    algorithm: SummableAlgorithm,
    records: Shard,
    agents: int,
    noise: Callable[[int, int], NoiseSource],
    rounds: int,
    state: SimulationState,
) -> Iterator[Round]:
    """Yield rounds state.round + 1 to `rounds`, each from one pass over all records and one draw of the summed noise.

    The models have the distribution of `simulate`'s, and every agent is charged the same events. Uploads of single
    agents do not exist.

    Parameters
    ----------
    algorithm
        The algorithm of the batch, whose release is a `PooledGradient`.
    records
        The records of all agents.
    agents
        P.
    noise
        Returns the noise source of an agent in a round; the summed noise is that of agent P, which does not exist.
    rounds
        T, the last round.
    state
        The state to continue from: `start_sums`, or that of a previous round.
    """

    def gradient(t: int, w: Array, mean: Agent) -> MeanGradient:
        released = algorithm.local_gradient(t, w, _known_to_all(algorithm, t, w, mean), records, noise(agents, t))
        events = Counter({(p, released.event): 1 for p in range(agents)})
        return MeanGradient(released.gradient, events, to_numpy(released.magnitude), agents)

    yield from _rounds(algorithm, rounds, state, gradient)


def _rounds(
    algorithm: SummableAlgorithm,
    rounds: int,
    state: SimulationState,
    gradient: Callable[[int, Array, Agent], MeanGradient],
) -> Iterator[Round]:
    """Yield the rounds of a server that keeps one agent, the mean of all, given its gradient in each round."""
    for t in range(state.round + 1, rounds + 1):
        server, w = algorithm.server_send(t, state.server)
        (before,) = state.agents
        mean = gradient(t, w, before)
        after, upload = algorithm.local_step(t, w, before, mean.noisy)
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
            mean.noise,
            algorithm.rho(t)[:, 0],
            algorithm.eta(t)[:, 0],
            mean.events,
            mean.senders,
        )


def _known_to_all(algorithm: SummableAlgorithm, t: int, w: Array, mean: Agent) -> Agent:
    """Return what every agent knows in round t: agents have no state of their own, and see what the server shows."""
    zero, shared = namespace(w).zeros_like(w), algorithm.shared_state(t, mean)
    return Agent(zero, zero if shared is None else shared)


def open_sum(
    algorithm: SummableAlgorithm,
    t: int,
    w: Array,
    mean: Agent,
    shards: Mapping[int, Shard],
    noise: Callable[[int, int], NoiseSource],
) -> SimulatedSum:
    """Return the sum of the integers of these agents in round t; `mean` is the server's agent."""
    known = _known_to_all(algorithm, t, w, mean)

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
