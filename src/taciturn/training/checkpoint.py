"""Conversion of a simulation's state to named arrays and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from taciturn.algorithms.averages import Averages
from taciturn.algorithms.base import Agent
from taciturn.core.arrays import as_like, to_numpy
from taciturn.errors import InputError
from taciturn.training.simulate import SimulationState
from taciturn.types import Array

OTHER_SHAPES = "the checkpoint's shapes differ from those of the run: the data or the settings have changed"
BY_AGENT = ("agents_z", "agents_lam", "mean_z_smooth", "mean_z_nonsmooth", "mean_z_strong")  # [P, J, R, K]


def to_arrays(state: SimulationState) -> dict[str, Array]:
    """Return everything a simulation needs to continue, as numpy arrays by name."""
    server = {f"server_{name}": to_numpy(v) for name, v in state.server._asdict().items() if v is not None}
    averages = {} if state.averages is None else {f"mean_{k}": to_numpy(v) for k, v in state.averages._asdict().items()}
    return {
        "round": np.array(state.round),
        "agents_z": np.stack([to_numpy(agent.z) for agent in state.agents]),
        "agents_lam": np.stack([to_numpy(agent.lam) for agent in state.agents]),
        **server,
        **averages,
    }


def from_arrays(arrays: Mapping[str, Array], like: SimulationState) -> SimulationState:
    """Return the state that the arrays hold, on the device and in the precision of `like`.

    Parameters
    ----------
    arrays
        What `to_arrays` returned.
    like
        The state in which the run starts.

    Raises
    ------
    InputError
        If the arrays do not fit the run.
    """

    def read(name: str, place: Array = like.agents[0].z) -> Array:
        return as_like(arrays[name], place)

    try:
        agents = tuple(Agent(z, lam) for z, lam in zip(read("agents_z"), read("agents_lam"), strict=True))
        z, lam = read("server_z", like.server.z), read("server_lam", like.server.lam)
        statistics = read("server_statistics", lam) if "server_statistics" in arrays else None
        state = SimulationState(
            int(arrays["round"]),
            like.server._replace(z=z, lam=lam, statistics=statistics),
            agents,
            None if like.averages is None else Averages(*(read(f"mean_{name}") for name in Averages._fields)),
        )
    except KeyError as error:
        raise InputError(f"the checkpoint lacks the array {error}: it was written under other settings") from error
    if len(agents) != len(like.agents) or agents[0].z.shape != like.agents[0].z.shape:
        raise InputError(OTHER_SHAPES)
    return state


def join_states(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Return the state of all agents from the states of blocks of agents, in their order."""
    if len(parts) == 1:
        return dict(parts[0])
    whole = {name: np.concatenate([part[name] for part in parts]) for name in BY_AGENT if name in parts[0]}
    return {**parts[0], **whole}


def split_state(arrays: Mapping[str, Array], blocks: Sequence[range]) -> list[dict[str, Array]]:
    """Return the states of blocks of agents from the state of all.

    Raises
    ------
    InputError
        If the state has another number of agents.
    """
    if len(blocks) == 1:
        return [dict(arrays)]
    if len(arrays.get("agents_z", ())) != blocks[-1].stop:
        raise InputError(OTHER_SHAPES)
    own = {name for name in BY_AGENT if name in arrays}
    return [{**arrays, **{name: arrays[name][block.start : block.stop] for name in own}} for block in blocks]
