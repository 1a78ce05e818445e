"""The interface of an algorithm: pure server and agent steps over explicit state, and its registration."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from taciturn.algorithms.noisy_gradient import NoisyGradient, ReleasedGradient
from taciturn.algorithms.privacy_costs import PrivacyCost, per_update_cost
from taciturn.algorithms.schedules import LinearisedStep, Schedule, StepKind
from taciturn.algorithms.server import Received, Server
from taciturn.core.registry import Registry
from taciturn.errors import unknown_name
from taciturn.objectives import Problem
from taciturn.objectives.clipping import NO_CLIPPING, Clipping
from taciturn.privacy.events import BatchEvent
from taciturn.privacy.mechanisms import MECHANISMS, NO_NOISE, OutputNoise
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, ColumnBlock, Shard

S = TypeVar("S", bound=Server)
NOISE_ON = ("gradients", "hidden", "uploads", "samples", "objectives")
DEFAULT_GUARANTEES = {
    "certified": "approximate, in total; pure as well with --mechanism laplace",
    "paper": "nominal per update in mode paper",
}


class Agent(NamedTuple):
    """The state that an agent keeps between rounds. It never leaves the agent.

    Parameters
    ----------
    z : Array, [J, R, K]
        The last local iterate, z^{t,E+1}.
    lam : Array, [J, R, K]
        The agent's copy of its dual.

    Examples
    --------
    >>> import numpy as np
    >>> zero = np.zeros((4, 2, 3))  # J = 4 features, R = 2 runs, K = 3 outputs
    >>> Agent(z=zero, lam=zero).z.shape
    (4, 2, 3)
    """

    z: Array
    lam: Array


class Upload(NamedTuple):
    """Everything that leaves an agent. A method that sends more declares its own NamedTuple with a field z.

    Parameters
    ----------
    z : Array, [J, R, K]
        z^{t+1}.
    """

    z: Array


class Step(NamedTuple):
    """The result of one agent's round.

    Parameters
    ----------
    agent : Agent
        The agent's new state.
    upload : Upload
        Or the method's own NamedTuple of arrays [J, R, K].
    events : tuple of BatchEvent
        One event for each noise draw.
    noise : Array, [R]
        Mean |xi| in numpy: a diagnostic that stays with the agent.
    eta : Array, [R, 1]
        The proximity used: a diagnostic that stays with the agent.
    """

    agent: Agent
    upload: Any
    events: tuple[BatchEvent, ...]
    noise: Array
    eta: Array


class Algorithm(Protocol):
    """A method. Round t is `server_send`, the `agent_step` of every agent, `server_receive`.

    The steps are pure functions of their arguments: they do not print, write, measure time or draw noise by themselves.
    docs/howto/add-an-algorithm.md shows a complete one.
    """

    @property
    def rho(self) -> Schedule:
        """The penalty of every round."""

    @property
    def iterates_sent(self) -> int:
        """The number of local iterates that an upload averages: E, or 1 if the last one is sent."""

    def server_send(self, t: int, server: S) -> tuple[S, Array]:
        """Return the server's state, and the model w that goes to every agent, [J, R, K]."""

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Return the result of one agent's round.

        Parameters
        ----------
        t : int
            The round, from 1.
        w : Array, [J, R, K]
            The model that the server sent.
        agent : Agent
            The agent's state.
        shard : Shard
            The agent's records.
        noise : NoiseSource
            The agent's randomness in this round.

        Returns
        -------
        Step
        """

    def server_receive(self, t: int, w: Array, server: S, received: Received) -> S:
        """Return the server's state after the agents' uploads."""

    def requires_all(self, t: int) -> bool:
        """Return whether round t must have the answers of all agents."""

    def model(self, t: int, w: Array, server: Server) -> Array:
        """Return the method's parameters after round t, [J, R, K]."""

    def coefficients(self, model: Array, server: Server) -> Array:
        """Return the method's parameters as those of the features, which are evaluated and stored, [J, R, K]."""


class SummableAlgorithm(Algorithm, Protocol):
    """A method that a server can run on sums of noisy gradients, without seeing what a single agent sends.

    Agents take the gradient of round t at a common point, and `local_step` is linear in that gradient and in the
    agent's state, with the same factors at every agent. So the mean over agents of z and lambda follows the same step
    with the mean gradient. The server keeps one agent, the mean of all, and takes its `local_step`; agents need no
    state. `agent_step` is `local_step` after `local_gradient`. docs/explanation/trust.md has the proof.
    """

    @property
    def problem(self) -> Problem:
        """The learning problem."""

    @property
    def eta(self) -> Schedule:
        """The proximity of every round."""

    @property
    def release(self) -> NoisyGradient:
        """How an agent computes its noisy gradient; a `SummedGradient` where only sums are opened."""

    def gradient_point(self, t: int, w: Array) -> Array:
        """Return the parameters at which agents take the gradient of round t, [J, R, K]; w is what was sent."""

    def shared_state(self, t: int, agent: Agent) -> Array | None:
        """Return what agents need besides w for the gradient of round t, from the mean agent's state; it is public."""

    def local_gradient(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> ReleasedGradient:
        """Return what an agent releases in round t; of its state only `lam` is read, and only as `shared_state`."""

    def local_step(self, t: int, w: Array, agent: Agent, noisy: Array) -> tuple[Agent, Upload]:
        """Return an agent's new state and its upload, given its noisy gradient [J, R, K]."""


class AdmmServer:
    """The server of Algorithm 1, lines 4-9. Methods that differ only at the agent inherit from it.

    Attributes
    ----------
    rho : Schedule
        The penalty of every round.
    iterates_sent : int
        See `Algorithm`.
    closing : bool
        Whether the model of a round is line 5 of the next round, after the uploads. The paper evaluates the w that was
        sent (False); certified mode evaluates after the uploads (True).

    Examples
    --------
    >>> AdmmServer.closing, AdmmServer().iterates_sent
    (False, 1)
    """

    rho: Schedule
    closing: bool = False

    @property
    def iterates_sent(self) -> int:
        """1: an upload is the last local iterate."""
        return 1

    @classmethod
    def from_config(cls, config: AlgorithmConfig, **values: Any) -> Self:
        """Build the method from those fields of the configuration that its dataclass declares.

        Parameters
        ----------
        config : AlgorithmConfig
            The configuration.
        **values
            Fields with other values than the configuration's, or that it does not have.
        """
        method: Any = cls
        declared = {field.name for field in dataclasses.fields(method)}
        known = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.name in declared}
        built: Self = method(**known | values)
        return built

    def server_send(self, t: int, server: S) -> tuple[S, Array]:
        """Return w^{t+1} (lines 5 and 6)."""
        return server, server.consensus(self.rho(t))

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Return the result of one agent's round; every method has its own."""
        raise NotImplementedError

    def server_receive(self, t: int, w: Array, server: S, received: Received) -> S:
        """Store the uploads and update the duals (lines 7 and 8)."""
        return server.receive(received).update_duals(self.rho(t), w, received.uploads.keys())

    def requires_all(self, t: int) -> bool:
        """Return False: agents may miss rounds."""
        return False

    def model(self, t: int, w: Array, server: Server) -> Array:
        """Return w^{t+1} as it was sent, or with `closing` line 5 of the next round."""
        return server.consensus(self.rho(t + 1)) if self.closing else w

    def coefficients(self, model: Array, server: Server) -> Array:
        """Return the parameters unchanged: they are those of the features."""
        return model


class AveragingServer(AdmmServer):
    """A server without duals: w is the mean of the uploads, because every dual stays 0."""

    def server_receive(self, t: int, w: Array, server: S, received: Received) -> S:
        """Store the uploads (line 7)."""
        return server.receive(received)


@dataclass(frozen=True, eq=False)
class AlgorithmConfig:
    """Everything that a method may be built from; each takes the fields that it declares.

    Parameters
    ----------
    problem : Problem
        The learning problem.
    epsilon : Array, [R]
        The nominal budget of one local update; in certified mode the total budget.
    rho, eta : Schedule
        Penalty and proximity of every round.
    release : NoisyGradient
        Computes noisy gradients.
    noise : OutputNoise
        For methods that add noise to something other than a gradient.
    clipping : Clipping
        The bound on what one record can contribute.
    sensitivity : float
        Delta: the L2 sensitivity of an agent's clipped gradient; public.
    trace : float
        The most that one unit changes the trace of the Hessian of an agent's objective.
    rank : int
        K times the records in which neighbours differ.
    sampling : float
        q: the probability that a record is in an update's sample.
    closing : bool
        See `AdmmServer`.
    local_updates : int
        E.
    delta : float
        The delta of (epsilon, delta).
    tolerance : float
        Of subproblem solvers.
    radius, radius_scale : str, float
        The trust region of objt.
    outp_noise : str
        The noise level of outp in mode paper.
    record_bound : float
        A public bound on ||x||_2.
    blocks : tuple of ColumnBlock
        The features of each column of a table, after the feature map bins.
    rounds : int
        T.
    clip : float
        The L2 bound on a record's gradient, a little below the setting because of rounding.
    """

    problem: Problem
    epsilon: Array
    rho: Schedule
    eta: Schedule
    release: NoisyGradient
    noise: OutputNoise = NO_NOISE
    clipping: Clipping = NO_CLIPPING
    sensitivity: float = math.inf
    trace: float = math.inf
    rank: int = 1
    sampling: float = 1.0
    closing: bool = False
    local_updates: int = 1
    delta: float = 1e-6
    tolerance: float = 1e-8
    radius: str = "constant"
    radius_scale: float = 1.0
    outp_noise: str = "published"
    record_bound: float = 1.0
    blocks: tuple[ColumnBlock, ...] = ()
    rounds: int = 1
    clip: float = math.inf


@dataclass(frozen=True)
class AlgorithmSpec:
    """The registration of an algorithm: what it is, its equation, and how to build it.

    Parameters
    ----------
    summary, equation : str
        One line each, for `taciturn algorithms`.
    build : callable
        Builds the algorithm from an `AlgorithmConfig`, e.g. the `from_config` of its class.
    local_updates : int, optional
        The method's default E, if it takes several local updates.
    sampling : float, optional
        The method's default q, if its updates may use random samples of the records.
    noisy : bool
        Whether the method adds noise, so that epsilon has a meaning.
    modes : tuple of str
        The modes in which the cost of its noise is known.
    backends : tuple of str
        The array libraries on which its steps run.
    guarantee : str
        The guarantee in one line, if it is not the default of its modes.
    reference : str
        The publication.
    privacy_cost : PrivacyCost
        The events of its rounds as a function of the noise.
    noise_on : str
        One of `NOISE_ON`: what the noise is added to.
    scales_records : bool
        Whether whole records are scaled to a bound, rather than their gradients clipped.
    requires_contraction : bool
        Whether the guarantee needs eta L <= 2.
    step_kind : type
        The `StepKind` by which the planner sets rho and eta.
    hardened : bool
        Whether its noise has an exact form in integers.
    mechanisms : tuple of str
        The noise distributions that its guarantee covers.
    central : bool
        Whether a trusted curator holds all records: a reference, not a federation.
    rounds : int, optional
        The method's fixed number of rounds.
    min_rounds : int
        The fewest rounds that give a model.
    counts_first : bool
        Whether the first rounds release counts, of every column and of two classes, instead of gradients.
    upload : type
        The NamedTuple that an agent sends.
    allows_aggregate_noise : bool
        Whether noise on the sum over all agents is enough: gradients are taken at w, and uploads are linear in them.
    batched : bool
        Whether several runs can share their passes over the data.
    without_noise : str
        The method that replaces it if the budget is infinite.

    Raises
    ------
    InputError
        If `noise_on` is unknown, or `step_kind` is not a `StepKind`.

    Examples
    --------
    >>> ALGORITHMS["objp"].promise
    'approximate, in total; pure as well with --mechanism laplace; nominal per update in mode paper'
    """

    summary: str
    equation: str
    build: Callable[[AlgorithmConfig], Algorithm]
    local_updates: int | None = None
    sampling: float | None = None
    noisy: bool = True
    modes: tuple[str, ...] = ("paper",)
    backends: tuple[str, ...] = ("numpy", "torch")
    guarantee: str = ""
    reference: str = ""
    privacy_cost: PrivacyCost = per_update_cost
    noise_on: str = "gradients"
    scales_records: bool = False
    requires_contraction: bool = False
    step_kind: type[StepKind] = LinearisedStep
    hardened: bool = True
    mechanisms: tuple[str, ...] = MECHANISMS
    central: bool = False
    rounds: int | None = None
    min_rounds: int = 1
    counts_first: bool = False
    upload: type = Upload
    allows_aggregate_noise: bool = False
    batched: bool = True
    without_noise: str = ""

    def __post_init__(self) -> None:
        """Check the names; a wrong one would fail only in the middle of a plan."""
        if self.noise_on not in NOISE_ON:
            raise unknown_name("noise_on", self.noise_on, NOISE_ON)
        if not (isinstance(self.step_kind, type) and issubclass(self.step_kind, StepKind)):
            kinds = (kind.__name__ for kind in StepKind.__subclasses__())
            raise unknown_name("step_kind", self.step_kind, kinds)

    @property
    def promise(self) -> str:
        """The guarantee in one line."""
        if not self.noisy:
            return "none: there is no noise"
        return self.guarantee or "; ".join(
            DEFAULT_GUARANTEES[mode] for mode in DEFAULT_GUARANTEES if mode in self.modes
        )

    @property
    def federated(self) -> bool:
        """Whether sites can run the method over a network: its noise is exact, and it sends z alone."""
        return self.noisy and self.hardened and self.upload is Upload


ALGORITHMS: Registry[AlgorithmSpec] = Registry("algorithm", "taciturn.algorithms")
