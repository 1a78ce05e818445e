"""What a trust model other than noise at every agent can keep, and what it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.algorithms import ALGORITHMS
from tacit.errors import InputError
from tacit.privacy.noise import HARDENED
from tacit.privacy.trust import AGENTS, SECURE_SUM
from tacit.settings.noise import SIMULATE

if TYPE_CHECKING:
    from tacit.settings.settings import Settings

COLLUDERS = 1  # by default: then no single fellow agent learns more than the server does


def check_trust(settings: Settings) -> None:
    """Refuse what noise on the sum does not cover; docs/explanation/trust.md says why."""
    trust = settings.trust
    if settings.colluders != COLLUDERS and trust != SECURE_SUM:
        raise InputError(f"colluders is {settings.colluders}, but trust is {trust}: it belongs to --trust secure-sum")
    if trust == AGENTS:
        return
    for name in settings.algorithm:
        _check_method(name, trust)
    if not all(ALGORITHMS[name].central for name in settings.algorithm):
        _check_sum(settings)


def _check_method(name: str, trust: str) -> None:
    method = ALGORITHMS[name]
    if method.central and trust == SECURE_SUM:
        raise InputError(f"trust is secure-sum, but {name} gives all records to one curator: use --trust server")
    if not method.central and not method.summed:
        known = ", ".join(other for other in ALGORITHMS if ALGORITHMS[other].summed)
        raise InputError(
            f"trust is {trust}, but noise on the sum is not proven to be enough for {name}: what an agent keeps to "
            "itself carries a record from round to round, so that plain composition undercounts "
            f"(docs/explanation/trust.md); there are {known}, which take the gradient at w, or --trust agents"
        )


def _check_sum(settings: Settings) -> None:
    trust = settings.trust
    if settings.set != "all":
        raise InputError(f"set is {settings.set}, but trust {trust} needs all: a projection at an agent is not linear")
    if settings.mechanism != "gaussian":
        raise InputError(
            f"mechanism is {settings.mechanism}, but trust {trust} needs gaussian: shares of it add up to Gaussian "
            f"noise, and shares of {settings.mechanism} noise to no noise with a guarantee of its own"
        )
    if settings.noise == HARDENED:
        raise InputError(
            f"trust is {trust}, but noise is hardened, which needs --trust agents: shares of discrete Gaussian noise "
            f"do not add up to an exactly discrete Gaussian; {SIMULATE}"
        )
    if trust == SECURE_SUM and settings.server == "full":
        raise InputError("server is full, but with trust secure-sum the server gets nothing but sums: use sums")
