"""What the server keeps: everything, or only the sums that line 5 needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol, Self

from tacit.algorithms.steps import consensus, dual_step
from tacit.arrays import double, in_precision_of, namespace
from tacit.errors import InputError, no_such
from tacit.types import Array


class Received(NamedTuple):
    """What came from the agents in one round."""

    z: Mapping[int, Array]  # by number, of the agents that are worked at in this process
    total: Array  # [J, R, K]  the sum over all agents that answered, wherever they are, in double precision
    answered: int  # how many those are

    @classmethod
    def of(cls, z: Mapping[int, Array]) -> Self:
        """From agents that are all here, added up in their order."""
        first, *others = z.values()
        return cls(z, sum(others, start=double(first)), len(z))


class Server(Protocol):
    """The server's copy of the state."""

    @property
    def agents(self) -> int:
        """P, the agents it is the server of."""
        ...

    def consensus(self, rho: Array) -> Array:
        """Line 5: the global w from what the server holds."""
        ...

    def take(self, received: Received) -> Self:
        """Line 7: the new z of the agents that answered."""
        ...

    def dual(self, rho: Array, w: Array, answered: Collection[int] | None = None) -> Self:
        """Line 8: the dual of every agent that answered, from what it sent; None: all of them."""
        ...


class Full(NamedTuple):
    """z_p and lambda_p of every agent."""

    z: Array  # [P, J, R, K]
    lam: Array  # [P, J, R, K]

    @property
    def agents(self) -> int:
        """P."""
        return len(self.z)

    def consensus(self, rho: Array) -> Array:
        """Line 5."""
        return consensus(rho, self.z.sum(axis=0), self.lam.sum(axis=0), len(self.z))

    def take(self, received: Received) -> Self:
        """Line 7; whoever is missing is not guessed."""
        return self._replace(z=namespace(self.z).stack([received.z.get(p, z) for p, z in enumerate(self.z)]))

    def dual(self, rho: Array, w: Array, answered: Collection[int] | None = None) -> Self:
        """Line 8; the duals of the others stay as they were on both sides."""
        moved = dual_step(self.lam, rho, w, self.z)
        if answered is not None and len(answered) < len(self.lam):
            kept = [new if p in answered else old for p, (new, old) in enumerate(zip(moved, self.lam, strict=True))]
            moved = namespace(moved).stack(kept)
        return self._replace(lam=moved)


class Sums(NamedTuple):
    """sum_p z_p and sum_p lambda_p: memory O(JK) instead of O(PJK), for full participation only.

    They are in double precision, whatever the agents compute in: a sum of duals is small beside its terms, and what is
    rounded off it in one round is never seen again by the agents, whose own duals it then no longer is the sum of.
    """

    z: Array  # [J, R, K]
    lam: Array  # [J, R, K]
    agents: int

    def consensus(self, rho: Array) -> Array:
        """Line 5."""
        return in_precision_of(consensus(rho, self.z, self.lam, self.agents), rho)

    def take(self, received: Received) -> Self:
        """Line 7, added up."""
        if received.answered < self.agents:
            raise InputError(
                f"only {received.answered} of {self.agents} agents answered: sums need all, use server full"
            )
        return self._replace(z=received.total)

    def dual(self, rho: Array, w: Array, answered: Collection[int] | None = None) -> Self:
        """Line 8, added up: sum lambda + rho (P w - sum z)."""
        return self._replace(lam=dual_step(self.lam, rho, self.agents * double(w), self.z))


SERVERS = ("full", "sums")


def new_server(kind: str, zero: Array, agents: int) -> Full | Sums:
    """A server before the first round, with z = lambda = 0 of the shape and precision of `zero` [J, R, K]."""
    match kind:
        case "full":
            zeros = namespace(zero).stack([zero] * agents)
            return Full(zeros, zeros)
        case "sums":
            return Sums(double(zero), double(zero), agents)
    raise no_such("server state", kind, SERVERS)
