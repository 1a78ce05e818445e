"""What the server keeps: everything, or only the sums that line 5 needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol, Self

from tacit.algorithms.steps import consensus, dual_step
from tacit.arrays import namespace
from tacit.errors import InputError, no_such
from tacit.types import Array


class Server(Protocol):
    """The server's copy of the state."""

    def consensus(self, rho: Array) -> Array:
        """Line 5: the global w from what the server holds."""
        ...

    def take(self, uploads: Mapping[int, Array]) -> Self:
        """Line 7: the new z of the agents that answered, by their number."""
        ...

    def dual(self, rho: Array, w: Array, answered: Collection[int] | None = None) -> Self:
        """Line 8: the dual of every agent that answered, from what it sent; None: all of them."""
        ...


class Full(NamedTuple):
    """z_p and lambda_p of every agent."""

    z: Array  # [P, J, R, K]
    lam: Array  # [P, J, R, K]

    def consensus(self, rho: Array) -> Array:
        """Line 5."""
        return consensus(rho, self.z.sum(axis=0), self.lam.sum(axis=0), len(self.z))

    def take(self, uploads: Mapping[int, Array]) -> Self:
        """Line 7; whoever is missing is not guessed."""
        return self._replace(z=namespace(self.z).stack([uploads.get(p, z) for p, z in enumerate(self.z)]))

    def dual(self, rho: Array, w: Array, answered: Collection[int] | None = None) -> Self:
        """Line 8; the duals of the others stay as they were on both sides."""
        moved = dual_step(self.lam, rho, w, self.z)
        if answered is not None and len(answered) < len(self.lam):
            kept = [new if p in answered else old for p, (new, old) in enumerate(zip(moved, self.lam, strict=True))]
            moved = namespace(moved).stack(kept)
        return self._replace(lam=moved)


class Sums(NamedTuple):
    """sum_p z_p and sum_p lambda_p: memory O(JK) instead of O(PJK), for full participation only."""

    z: Array  # [J, R, K]
    lam: Array  # [J, R, K]
    agents: int

    def consensus(self, rho: Array) -> Array:
        """Line 5."""
        return consensus(rho, self.z, self.lam, self.agents)

    def take(self, uploads: Mapping[int, Array]) -> Self:
        """Line 7, added up."""
        if len(uploads) < self.agents:
            raise InputError(f"only {len(uploads)} of {self.agents} agents answered: sums need all, use server full")
        first, *others = (uploads[p] for p in range(self.agents))
        return self._replace(z=sum(others, start=first))

    def dual(self, rho: Array, w: Array, answered: Collection[int] | None = None) -> Self:
        """Line 8, added up: sum lambda + rho (P w - sum z)."""
        return self._replace(lam=dual_step(self.lam, rho, self.agents * w, self.z))


SERVERS = ("full", "sums")


def new_server(kind: str, zero: Array, agents: int) -> Full | Sums:
    """A server before the first round, with z = lambda = 0 of the shape and precision of `zero` [J, R, K]."""
    match kind:
        case "full":
            zeros = namespace(zero).stack([zero] * agents)
            return Full(zeros, zeros)
        case "sums":
            return Sums(zero, zero, agents)
    raise no_such("server state", kind, SERVERS)
