"""All agents in one process, or dealt out to several, a batch of runs at a time."""

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

LARGE = 5_000_000  # multiplications of an agent's step, from which on handing it to a thread pays
DRAW = 64  # multiplications that take as long as drawing a number


class SimulationState(NamedTuple):
    """Everything a simulation needs to go on."""

    round: int  # rounds done
    server: FullState | SumsState
    agents: tuple[Agent, ...]  # those that are worked at in this process
    averages: Averages | None


class Round(NamedTuple):
    """One round, done."""

    t: int
    state: SimulationState
    w: Array  # [J, R, K]  the model of this round
    residual: Array  # [R]  ||A w - z||, the consensus residual
    noise: Array  # [R]  mean |xi| over agents, updates and parameters
    rho: Array  # [R]
    eta: Array  # [R]  of the first agent
    events: Counter[tuple[int, BatchEvent]]  # how often each agent that is worked at here drew


def start(
    shards: Sequence[Shard], runs: int, server: str = "full", averages: bool = True, agents: int | None = None
) -> SimulationState:
    """The state before round 1: z = lambda = 0 everywhere; `agents`: how many there are, where some are elsewhere."""
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
    noise: Callable[[int, int], NoiseSource],  # of agent and round
    rounds: int,
    state: SimulationState,
    answering: Callable[[int], Collection[int]] | None = None,  # the agents that answer in a round; None: all
    group: ProcessGroup = SINGLE_PROCESS,
) -> Iterator[Round]:
    """Rounds state.round + 1 to `rounds`, one at a time; agents work and are summed in their order.

    An agent that does not answer in a round keeps its state, and so does what the server knows of it. The theorems'
    averages are defined for agents that all answer. Shards and state are those of the agents `group` has here.
    """
    here = group.partition(state.server.agents)[group.rank]
    for t in range(state.round + 1, rounds + 1):
        server, w = algorithm.server_send(t, state.server)
        asked = here if answering is None else sorted(answering(t))
        held = dict(zip(here, zip(state.agents, shards, strict=True), strict=True))
        steps = dict(zip(asked, _steps(algorithm, t, w, held, noise, asked), strict=True))
        answers = group.reduce_updates(w, steps)
        server = algorithm.server_receive(t, w, server, answers.received)
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
            model,
            answers.residual(model),
            answers.noise,
            algorithm.rho(t)[:, 0],
            next(iter(steps.values())).eta[:, 0],
            Counter((p, event) for p, step in steps.items() for event in step.events),
        )


def _steps(
    algorithm: Algorithm,
    t: int,
    w: Array,
    held: Mapping[int, tuple[Agent, Shard]],
    noise: Callable[[int, int], NoiseSource],
    asked: Sequence[int],
) -> Iterator[Step]:
    """The steps of the agents asked, in their order; large ones in numpy are worked at side by side."""

    def step(p: int) -> Step:
        return algorithm.agent_step(t, w, *held[p], noise(p, t))

    rows = sum(len(held[p][1].x) + DRAW for p in asked) / max(1, len(asked))
    large = namespace(w) is np and rows * w.size >= LARGE
    return parallel_map(step, asked) if large else map(step, asked)
