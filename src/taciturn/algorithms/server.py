"""The server's state: z and lambda of every agent, or only the sums that line 5 needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol, Self

from taciturn.algorithms.steps import consensus, dual_step
from taciturn.core.arrays import double, in_precision_of, namespace
from taciturn.errors import InputError, unknown_name
from taciturn.types import Array


class Received(NamedTuple):
    """The uploads of one round; an upload is a NamedTuple of arrays [J, R, K] with a field z.

    Parameters
    ----------
    uploads : mapping of int to upload
        By agent, of the agents that this process simulates.
    total : upload
        The sums of its fields over all agents that answered in any process, in double precision.
    answered : int
        The number of these agents.
    """

    uploads: Mapping[int, Any]
    total: Any
    answered: int

    @classmethod
    def of(cls, uploads: Mapping[int, Any]) -> Self:
        """Return the uploads of agents that are all in this process, summed in their order."""
        first, *others = uploads.values()
        fields = zip(*others, strict=True) if others else ((),) * len(first)
        total = [sum(more, start=double(one)) for one, more in zip(first, fields, strict=True)]
        return cls(uploads, type(first)(*total), len(uploads))


class Server(Protocol):
    """The server's state."""

    @property
    def agents(self) -> int:
        """P, the number of agents."""

    @property
    def z(self) -> Array:
        """The iterates of all agents, or their sum."""

    @property
    def lam(self) -> Array:
        """The duals of all agents, or their sum."""

    @property
    def statistics(self) -> Array | None:
        """What a method measured before it trains, [J, R, K]; None for most methods."""

    def with_common(self, z: Array, lam: Array) -> Self:
        """Return the state in which all agents have the same z and lambda, [J, R, K]."""

    def with_statistics(self, statistics: Array) -> Self:
        """Return the state with other statistics."""

    def consensus(self, rho: Array) -> Array:
        """Return w (line 5), [J, R, K]."""

    def receive(self, received: Received) -> Self:
        """Store the new z of the agents that answered (line 7)."""

    def update_duals(self, rho: Array, w: Array, answered: Collection[int] | None = None) -> Self:
        """Update the dual of every agent that answered (line 8); None means all agents."""

    def receive_duals(self, received: Received) -> Self:
        """Store the duals of the agents that answered, for methods that send them."""


class FullState(NamedTuple):
    """z_p and lambda_p of every agent. Agents may miss rounds.

    Parameters
    ----------
    z, lam : Array, [P, J, R, K]
        Iterates and duals.
    statistics : Array, [J, R, K], optional
        What a method measured before it trains.
    """

    z: Array
    lam: Array
    statistics: Array | None = None

    @property
    def agents(self) -> int:
        """P, the number of agents."""
        return len(self.z)

    def with_common(self, z: Array, lam: Array) -> Self:
        """Return the state in which all agents have the same z and lambda, [J, R, K]."""
        stack = namespace(self.z).stack
        all_z, all_lam = (in_precision_of(stack([value] * self.agents), self.z) for value in (z, lam))
        return self._replace(z=all_z, lam=all_lam)

    def with_statistics(self, statistics: Array) -> Self:
        """Return the state with other statistics."""
        return self._replace(statistics=statistics)

    def consensus(self, rho: Array) -> Array:
        """Return w (line 5)."""
        return consensus(rho, self.z.sum(axis=0), self.lam.sum(axis=0), len(self.z))

    def receive(self, received: Received) -> Self:
        """Store the new z (line 7); an agent that did not answer keeps its old z."""
        return self._replace(z=_replaced(self.z, {p: upload.z for p, upload in received.uploads.items()}))

    def update_duals(self, rho: Array, w: Array, answered: Collection[int] | None = None) -> Self:
        """Update the duals (line 8); those of agents that did not answer stay, at the server and at the agent."""
        lam = dual_step(self.lam, rho, w, self.z)
        if answered is not None and len(answered) < len(self.lam):
            lam = _replaced(self.lam, {p: lam[p] for p in answered})
        return self._replace(lam=lam)

    def receive_duals(self, received: Received) -> Self:
        """Store the duals that were sent."""
        return self._replace(lam=_replaced(self.lam, {p: upload.lam for p, upload in received.uploads.items()}))


class SumsState(NamedTuple):
    """sum_p z_p and sum_p lambda_p: memory O(JK) instead of O(PJK), for full participation only.

    The sums are in double precision: a sum of duals is small compared with its terms, and an error that is rounded into
    it once would stay, because the agents keep their own duals.

    Parameters
    ----------
    z, lam : Array, [J, R, K]
        Iterates and duals.
    agents : int
        P.
    statistics : Array, [J, R, K], optional
        What a method measured before it trains.
    """

    z: Array
    lam: Array
    agents: int
    statistics: Array | None = None

    def with_common(self, z: Array, lam: Array) -> Self:
        """Return the state in which all agents have the same z and lambda, [J, R, K]."""
        return self._replace(z=self.agents * double(z), lam=self.agents * double(lam))

    def with_statistics(self, statistics: Array) -> Self:
        """Return the state with other statistics."""
        return self._replace(statistics=statistics)

    def consensus(self, rho: Array) -> Array:
        """Return w (line 5)."""
        return in_precision_of(consensus(rho, self.z, self.lam, self.agents), rho)

    def receive(self, received: Received) -> Self:
        """Store the sum of all z (line 7).

        Raises
        ------
        InputError
            If an agent did not answer.
        """
        if received.answered < self.agents:
            raise InputError(
                f"only {received.answered} of {self.agents} agents answered; server sums needs all, use server full"
            )
        return self._replace(z=received.total.z)

    def update_duals(self, rho: Array, w: Array, answered: Collection[int] | None = None) -> Self:
        """Update the sum of the duals (line 8): sum lambda + rho (P w - sum z)."""
        return self._replace(lam=dual_step(self.lam, rho, self.agents * double(w), self.z))

    def receive_duals(self, received: Received) -> Self:
        """Store the sum of the duals that were sent."""
        return self._replace(lam=received.total.lam)


def _replaced(values: Array, new: Mapping[int, Array]) -> Array:
    """Return the values of all agents, [P, J, R, K], with the new ones of some."""
    stacked: Array = namespace(values).stack([new.get(p, old) for p, old in enumerate(values)])
    return stacked


SERVERS = ("full", "sums")


def new_server(kind: str, zero: Array, agents: int) -> FullState | SumsState:
    """Return the server's state before the first round, z = lambda = 0.

    Parameters
    ----------
    kind : str
        One of `SERVERS`.
    zero : Array, [J, R, K]
        Gives shape and precision.
    agents : int
        P.

    Raises
    ------
    InputError
        If the kind is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> new_server("sums", np.zeros((4, 1, 3), np.float32), 5).z.dtype
    dtype('float64')
    """
    match kind:
        case "full":
            zeros = namespace(zero).stack([zero] * agents)
            return FullState(zeros, zeros)
        case "sums":
            return SumsState(double(zero), double(zero), agents)
    raise unknown_name("server state", kind, SERVERS)
