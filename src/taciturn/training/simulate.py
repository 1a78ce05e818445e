"""Simulation of all agents and the server: the rounds of one batch of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from taciturn.algorithms.averages import Averages, average, no_averages
from taciturn.algorithms.base import Agent, Algorithm, Step
from taciturn.algorithms.server import FullState, SumsState, new_server
from taciturn.core.arrays import namespace
from taciturn.kernels.threads import parallel_map
from taciturn.privacy.events import BatchEvent
from taciturn.privacy.noise import NoiseSource
from taciturn.training.process_group import SINGLE_PROCESS, ProcessGroup
from taciturn.types import Array, Shard

MIN_WORK_FOR_THREADS = 5_000_000  # multiplications of an agent's step
DRAW_COST = 64  # multiplications that take as long as drawing a number


class SimulationState(NamedTuple):
    """Everything a simulation needs to continue."""

    round: int  # rounds done
    server: FullState | SumsState
    agents: tuple[Agent, ...]  # those of this process
    averages: Averages | None


class Round(NamedTuple):
    """A finished round."""

    t: int
    state: SimulationState
    w: Array  # [J, R, K]  the model of this round, in parameters of the features
    residual: Array | None  # [R]  ||A w - z||, the consensus residual; None: no one sees the uploads of single agents
    noise: Array  # [R]  mean |xi| over agents, updates and parameters
    rho: Array  # [R]
    eta: Array  # [R]  of the first agent
    events: Counter[tuple[int, BatchEvent]]  # how often each agent of this process drew noise
    senders: int  # how many agents of this process sent something


def start(
    shards: Sequence[Shard], runs: int, server: str = "full", averages: bool = True, agents: int | None = None
) -> SimulationState:
    """Return the state before round 1, in which z = lambda = 0.

    Parameters
    ----------
    shards
        The records of the agents of this process.
    runs
        R, the number of runs of the batch.
    server
        "full" if the server stores the variables of every agent, "sums" if it stores their sums.
    averages
        Whether to keep the theorems' averages: three arrays of the size of all agents' variables.
    agents
        P, the number of agents, if some are in other processes.
    """
    x, y = shards[0].x, shards[0].y
    zero = namespace(x).zeros((x.shape[1], runs, y.shape[1]), dtype=x.dtype, device=x.device)
    return SimulationState(
        0,
        new_server(server, zero, len(shards) if agents is None else agents),
        tuple(Agent(zero, zero) for _ in shards),
        no_averages(zero, len(shards)) if averages else None,
    )


def simulate(
    algorithm: Algorithm,
    shards: Sequence[Shard],
    noise: Callable[[int, int], NoiseSource],
    rounds: int,
    state: SimulationState,
    answering: Callable[[int], Collection[int]] | None = None,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Iterator[Round]:
    """Yield rounds state.round + 1 to `rounds`. Agents are computed and summed in their order.

    Parameters
    ----------
    algorithm
        The algorithm of the batch.
    shards
        The records of this process's agents.
    noise
        Returns the noise source of an agent in a round.
    rounds
        T, the last round.
    state
        The state to continue from, of this process's agents.
    answering
        Returns the agents that answer in a round; None: all. An agent that does not answer keeps its state, and so
        does the server's knowledge of it. The theorems' averages assume that all answer.
    group
        The processes of the simulation.
    """
    own = group.partition(state.server.agents)[group.rank]
    for t in range(state.round + 1, rounds + 1):
        server, w = algorithm.server_send(t, state.server)
        active = own if answering is None else sorted(answering(t))
        held = dict(zip(own, zip(state.agents, shards, strict=True), strict=True))
        steps = dict(zip(active, _steps(algorithm, t, w, held, noise, active), strict=True))
        updates = group.reduce_updates(w, steps)
        server = algorithm.server_receive(t, w, server, updates.received)
        model = algorithm.model(t, w, server)
        agents = tuple(steps[p].agent if p in steps else agent for p, (agent, _) in held.items())
        averages = state.averages
        if averages is not None:
            uploads = [step.upload for step in steps.values()]
            averages = average(t, averages, model, uploads, state.agents, agents, algorithm.iterates_sent)
        state = SimulationState(t, server, agents, averages)
        yield Round(
            t,
            state,
            algorithm.coefficients(model, server),
            updates.residual(model),
            updates.noise,
            algorithm.rho(t)[:, 0],
            next(iter(steps.values())).eta[:, 0],
            Counter((p, event) for p, step in steps.items() for event in step.events),
            len(steps),
        )


def _steps(
    algorithm: Algorithm,
    t: int,
    w: Array,
    held: Mapping[int, tuple[Agent, Shard]],
    noise: Callable[[int, int], NoiseSource],
    active: Sequence[int],
) -> Iterator[Step]:
    """Compute the steps of the active agents in their order; large numpy steps run in parallel threads."""

    def step(p: int) -> Step:
        return algorithm.agent_step(t, w, *held[p], noise(p, t))

    large = namespace(w) is np and step_work(w, [held[p][1] for p in active]) >= MIN_WORK_FOR_THREADS
    return parallel_map(step, active) if large else map(step, active)


def step_work(w: Array, shards: Sequence[Shard]) -> float:
    """Return the multiplications of one agent's gradient and noise, on average over the agents."""
    rows = sum(len(shard.x) + DRAW_COST for shard in shards) / max(1, len(shards))
    return rows * w.size
