"""All agents in one process, a batch of runs at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tacit.algorithms.averages import Averages, average, no_averages
from tacit.algorithms.base import Agent, Algorithm
from tacit.algorithms.server import Full, Sums, new_server
from tacit.arrays import namespace
from tacit.privacy.events import BatchEvent
from tacit.privacy.noise import NoiseSource
from tacit.types import Array, Shard


class State(NamedTuple):
    """Everything a simulation needs to go on."""

    round: int  # rounds done
    server: Full | Sums
    agents: tuple[Agent, ...]
    averages: Averages | None


class Round(NamedTuple):
    """One round, done."""

    t: int
    state: State
    w: Array  # [J, R, K]  the model of this round
    residual: Array  # [R]  ||A w - z||, the consensus residual
    noise: Array  # [R]  mean |xi| over agents, updates and parameters
    rho: Array  # [R]
    eta: Array  # [R]  of the first agent
    events: Counter[tuple[int, BatchEvent]]  # how often each agent drew


def start(shards: Sequence[Shard], runs: int, server: str = "full", averages: bool = True) -> State:
    """The state before round 1: z = lambda = 0 everywhere."""
    x, y = shards[0].x, shards[0].y
    zero = namespace(x).zeros((x.shape[1], runs, y.shape[1]), dtype=x.dtype, device=x.device)
    return State(
        0,
        new_server(server, zero, len(shards)),
        tuple(Agent(zero, zero) for _ in shards),
        no_averages(zero, len(shards)) if averages else None,
    )


def simulate(
    algorithm: Algorithm,
    shards: Sequence[Shard],
    noise: Callable[[int, int], NoiseSource],  # of agent and round
    rounds: int,
    state: State,
) -> Iterator[Round]:
    """Rounds state.round + 1 to `rounds`, one at a time; agents work and are summed in their order."""
    for t in range(state.round + 1, rounds + 1):
        server, w = algorithm.server_send(t, state.server)
        steps = [
            algorithm.agent_step(t, w, agent, shard, noise(p, t))
            for p, (agent, shard) in enumerate(zip(state.agents, shards, strict=True))
        ]
        uploads = [step.upload for step in steps]
        server = algorithm.server_receive(t, w, server, uploads)
        model = algorithm.model(t, w, server)
        agents = tuple(step.agent for step in steps)
        averages = state.averages
        if averages is not None:
            averages = average(t, averages, model, uploads, state.agents, agents, algorithm.iterates_sent)
        state = State(t, server, agents, averages)
        yield Round(
            t,
            state,
            model,
            namespace(w).sqrt(sum(((model - upload.z) ** 2).sum(axis=(0, 2)) for upload in uploads)),
            np.mean([step.noise for step in steps], axis=0),
            algorithm.rho(t)[:, 0],
            steps[0].eta[:, 0],
            Counter((p, event) for p, step in enumerate(steps) for event in step.events),
        )
