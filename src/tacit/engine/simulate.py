"""All agents in one process, a batch of runs at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tacit.algorithms.averages import Averages, average, no_averages
from tacit.algorithms.base import Agent, Algorithm
from tacit.algorithms.server import Full, Sums, new_server
from tacit.algorithms.steps import consensus_residual
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
    answering: Callable[[int], Collection[int]] | None = None,  # the agents that answer in a round; None: all
) -> Iterator[Round]:
    """Rounds state.round + 1 to `rounds`, one at a time; agents work and are summed in their order.

    An agent that does not answer in a round keeps its state, and so does what the server knows of it. The theorems'
    averages are defined for agents that all answer.
    """
    for t in range(state.round + 1, rounds + 1):
        server, w = algorithm.server_send(t, state.server)
        steps = {
            p: algorithm.agent_step(t, w, state.agents[p], shards[p], noise(p, t))
            for p in (range(len(shards)) if answering is None else sorted(answering(t)))
        }
        uploads = {p: step.upload for p, step in steps.items()}
        server = algorithm.server_receive(t, w, server, uploads)
        model = algorithm.model(t, w, server)
        agents = tuple(steps[p].agent if p in steps else agent for p, agent in enumerate(state.agents))
        averages = state.averages
        if averages is not None:
            averages = average(
                t, averages, model, list(uploads.values()), state.agents, agents, algorithm.iterates_sent
            )
        state = State(t, server, agents, averages)
        yield Round(
            t,
            state,
            model,
            consensus_residual(model, (upload.z for upload in uploads.values())),
            np.mean([step.noise for step in steps.values()], axis=0),
            algorithm.rho(t)[:, 0],
            next(iter(steps.values())).eta[:, 0],
            Counter((p, event) for p, step in steps.items() for event in step.events),
        )
