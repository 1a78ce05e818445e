"""The protocol of an algorithm: pure server and agent steps over explicit state."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from taciturn.algorithms.noisy_gradient import NoisyGradient
from taciturn.algorithms.privacy_costs import PrivacyCost, per_update_cost
from taciturn.algorithms.schedules import Schedule
from taciturn.algorithms.server import Received, Server
from taciturn.core.registry import Registry
from taciturn.errors import unknown_name
from taciturn.objectives import Problem
from taciturn.objectives.clipping import NO_CLIPPING, Clipping
from taciturn.privacy.events import BatchEvent
from taciturn.privacy.mechanisms import MECHANISMS, SILENT, OutputNoise
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, Shard

S = TypeVar("S", bound=Server)
NOISE_ON = ("gradients", "hidden", "uploads", "samples", "objectives")
PACES = ("falling", "explicit", "constant", "eager", "plain", "exact", "central")
USUAL = {
    "certified": "approximate, in total; pure as well with --mechanism laplace",
    "paper": "nominal per update in mode paper",
}


class Agent(NamedTuple):
    """What an agent keeps between rounds; it never leaves."""

    z: Array  # [J, R, K]  the last local iterate, z^{t,E+1}
    lam: Array  # [J, R, K]  its own copy of the dual


class Upload(NamedTuple):
    """All that ever leaves an agent; a method that sends more has an upload type of its own, which says so."""

    z: Array  # [J, R, K]  z^{t+1}


class Step(NamedTuple):
    """What one agent's round comes to."""

    agent: Agent
    upload: Any  # Upload, or the method's own NamedTuple of arrays [J, R, K], of which z is one
    events: tuple[BatchEvent, ...]  # one for each noise draw
    noise: Array  # [R]  mean |xi|, in numpy, and
    eta: Array  # [R, 1]  the proximity used: diagnostics that stay with the agent


class Algorithm(Protocol):
    """One round t is: send, every agent's step, receive. Nothing here prints, times, writes or draws by itself."""

    @property
    def rho(self) -> Schedule:
        """The penalty of every round."""
        ...

    @property
    def iterates_sent(self) -> int:
        """How many local iterates an upload is the mean of: E, or 1 where the last one is sent."""
        ...

    def server_send(self, t: int, server: S) -> tuple[S, Array]:
        """The w that goes to every agent, [J, R, K]."""
        ...

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """What agent p does with w."""
        ...

    def server_receive(self, t: int, w: Array, server: S, received: Received) -> S:
        """The server's state after agents answered."""
        ...

    def model(self, t: int, w: Array, server: Server) -> Array:
        """The parameters this round stands for when it is evaluated."""
        ...


class AdmmServer:
    """The server of Algorithm 1, lines 4-9; the methods that differ only at the agent inherit it."""

    rho: Schedule
    iterates_sent: int = 1
    closing: bool = False  # whether the model of a round is line 5 once more, after its uploads

    def server_send(self, t: int, server: S) -> tuple[S, Array]:
        """Lines 5 and 6."""
        return server, server.consensus(self.rho(t))

    def server_receive(self, t: int, w: Array, server: S, received: Received) -> S:
        """Lines 7 and 8."""
        return server.take(received).dual(self.rho(t), w, received.uploads.keys())

    def model(self, t: int, w: Array, server: Server) -> Array:
        """w^{t+1} of line 5, as the paper evaluates it; closing: line 5 of the next round, after the uploads."""
        return server.consensus(self.rho(t + 1)) if self.closing else w


class AveragingServer(AdmmServer):
    """A server without duals: they stay 0, so that w is the mean of what was sent."""

    def server_receive(self, t: int, w: Array, server: S, received: Received) -> S:
        """Line 7 alone."""
        return server.take(received)


@dataclass(frozen=True, eq=False)
class AlgorithmConfig:
    """Everything a method may be built from; each takes what it needs."""

    problem: Problem
    epsilon: Array  # [R]  nominal, per local update; in certified mode in total
    rho: Schedule
    eta: Schedule
    release: NoisyGradient  # what a noisy gradient is
    noise: OutputNoise = SILENT  # for what is perturbed in another way than by a release
    limit: Clipping = NO_CLIPPING  # on what one record can do
    moved: float = math.inf  # how far one unit moves an agent's gradient at most, in L2; public
    trace: float = math.inf  # how far it moves the trace of the Hessian of an agent's objective
    rank: int = 1  # K, times the records in which neighbours differ
    sampling: float = 1.0  # q, the probability with which a record is in an update's sample
    closing: bool = False
    local_updates: int = 1  # E
    delta: float = 1e-6
    tolerance: float = 1e-8
    radius: str = "constant"
    radius_scale: float = 1.0
    outp_noise: str = "published"
    record_bound: float = 1.0  # public bound on ||x||_2


@dataclass(frozen=True)
class AlgorithmSpec:
    """An algorithm by name: what it is, its equation, how to build it."""

    summary: str
    equation: str
    build: Callable[[AlgorithmConfig], Algorithm]
    local_updates: int | None = None  # its own E, for a method that takes several local updates
    sampling: float | None = None  # its own q, for a method whose updates may see random samples of the records
    noisy: bool = True  # whether epsilon means anything to it
    modes: tuple[str, ...] = ("paper",)  # the modes that know what its noise is worth
    backends: tuple[str, ...] = ("numpy", "torch")  # the array libraries its steps run on
    guarantee: str = ""  # what it promises in one line (see promise), where that is not the usual
    reference: str = ""  # where it was published
    charge: PrivacyCost = per_update_cost  # what its rounds cost, as the noise grows
    noise_on: str = "gradients"  # one of NOISE_ON: what its noise is added to
    bounded: bool = False  # whether whole records are scaled to a bound, rather than their gradients clipped
    contracts: bool = False  # whether its guarantee needs eta L <= 2
    pace: str = "falling"  # one of PACES: how the planner paces it
    hardened: bool = True  # whether its noise has an exact form in integers
    mechanisms: tuple[str, ...] = MECHANISMS  # the noise it may take
    central: bool = False  # whether a trusted curator holds all records: a reference, not a federation
    rounds: int | None = None  # its own number of rounds, where that is not for the settings to say
    upload: type = Upload
    summed: bool = False  # whether gradients are at w and uploads linear in the noisy ones: noise on the sum is enough

    def __post_init__(self) -> None:
        """A name that nobody knows would fail only in the middle of a plan."""
        if self.noise_on not in NOISE_ON:
            raise unknown_name("noise_on", self.noise_on, NOISE_ON)
        if self.pace not in PACES:
            raise unknown_name("pace", self.pace, PACES)

    @property
    def promise(self) -> str:
        """What certified mode promises of it."""
        if not self.noisy:
            return "none: there is no noise"
        parts = [words for mode, words in USUAL.items() if mode in self.modes]
        return self.guarantee or "; ".join(parts)

    @property
    def federated(self) -> bool:
        """Whether sites can run it over a network: exact noise, and z alone in what they send."""
        return self.noisy and self.hardened and self.upload is Upload


ALGORITHMS: Registry[AlgorithmSpec] = Registry("algorithm", "taciturn.algorithms")
