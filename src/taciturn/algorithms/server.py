"""What the server keeps: everything, or only the sums that line 5 needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol, Self

from taciturn.algorithms.steps import consensus, dual_step
from taciturn.core.arrays import double, in_precision_of, namespace
from taciturn.errors import InputError, unknown_name
from taciturn.types import Array


class Received(NamedTuple):
    """What came from the agents in one round; an upload is a NamedTuple of arrays [J, R, K], of which z is one."""

    uploads: Mapping[int, Any]  # by number, of the agents that are worked at in this process
    total: Any  # an upload whose fields are sums over all agents that answered, wherever they are, in double precision
    answered: int  # how many those are

    @classmethod
    def of(cls, uploads: Mapping[int, Any]) -> Self:
        """From agents that are all here, added up in their order."""
        first, *others = uploads.values()
        fields = zip(*others, strict=True) if others else ((),) * len(first)
        total = [sum(more, start=double(one)) for one, more in zip(first, fields, strict=True)]
        return cls(uploads, type(first)(*total), len(uploads))


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

    def take_dual(self, received: Received) -> Self:
        """The new dual of the agents that answered, where they send it."""
        ...


class FullState(NamedTuple):
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
        return self._replace(z=_put_in(self.z, {p: upload.z for p, upload in received.uploads.items()}))

    def dual(self, rho: Array, w: Array, answered: Collection[int] | None = None) -> Self:
        """Line 8; the duals of the others stay as they were on both sides."""
        moved = dual_step(self.lam, rho, w, self.z)
        if answered is not None and len(answered) < len(self.lam):
            kept = [new if p in answered else old for p, (new, old) in enumerate(zip(moved, self.lam, strict=True))]
            moved = namespace(moved).stack(kept)
        return self._replace(lam=moved)

    def take_dual(self, received: Received) -> Self:
        """As it was sent."""
        return self._replace(lam=_put_in(self.lam, {p: upload.lam for p, upload in received.uploads.items()}))


class SumsState(NamedTuple):
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
        return self._replace(z=received.total.z)

    def dual(self, rho: Array, w: Array, answered: Collection[int] | None = None) -> Self:
        """Line 8, added up: sum lambda + rho (P w - sum z)."""
        return self._replace(lam=dual_step(self.lam, rho, self.agents * double(w), self.z))

    def take_dual(self, received: Received) -> Self:
        """As they were sent, added up."""
        return self._replace(lam=received.total.lam)


def _put_in(held: Array, new: Mapping[int, Array]) -> Array:
    """What is held of every agent, [P, J, R, K], with the new values of some."""
    found: Array = namespace(held).stack([new.get(p, old) for p, old in enumerate(held)])
    return found


SERVERS = ("full", "sums")


def new_server(kind: str, zero: Array, agents: int) -> FullState | SumsState:
    """A server before the first round, with z = lambda = 0 of the shape and precision of `zero` [J, R, K]."""
    match kind:
        case "full":
            zeros = namespace(zero).stack([zero] * agents)
            return FullState(zeros, zeros)
        case "sums":
            return SumsState(double(zero), double(zero), agents)
    raise unknown_name("server state", kind, SERVERS)
