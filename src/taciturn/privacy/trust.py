"""Trust models: who may see what single agents send, and so where the noise must be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from taciturn.errors import InputError

AGENTS, SECURE_SUM, SERVER = "agents", "secure-sum", "server"
TRUST = (AGENTS, SECURE_SUM, SERVER)


def noise_share(trust: str, agents: int, colluders: int) -> float:
    """What an agent adds, over the noise sigma that is charged: 1, or a share whose P - c together are sigma.

    Whoever colludes with the server knows its own share, so those of the other P - c must be enough. A server that is
    trusted draws one N(0, sigma^2) for the sum; a simulation adds P shares of sigma / sqrt(P), which have the same law.
    """
    if trust == AGENTS:
        return 1.0
    if trust == SECURE_SUM and colluders >= agents:
        raise InputError(
            f"colluders is {colluders}, but there {'is' if agents == 1 else 'are'} {agents} "
            f"agent{'s' * (agents > 1)}: it must be smaller, for the noise is that of the others"
        )
    return 1.0 / math.sqrt(agents - (colluders if trust == SECURE_SUM else 0))


def trust_of(study: Mapping[str, Any]) -> dict[str, Any]:
    """The trust model that a ledger's first line names; those of mode paper name none."""
    return {"trust": study.get("trust", AGENTS), "colluders": study.get("colluders", 0)}


def summed(known: Mapping[str, Any]) -> bool:
    """Whether noise is on the sum over all agents, by a ledger's first line or its totals."""
    return bool(known.get("trust", AGENTS) != AGENTS)


def trust_sentence(trust: str, colluders: int) -> str:
    """Who may see what, and what is assumed of whom."""
    if trust == AGENTS:
        return "nobody is trusted: every agent adds the noise itself, and everything that is sent may be seen"
    if trust == SERVER:
        return "the server is trusted: it sees what every agent sends, and adds the noise before others see the model"
    told = collusion(colluders, "agent")
    return f"only sums of what all agents send are seen, by the server too, and {told}; {SIMULATED}"


SIMULATED = "Taciturn simulates that secure sum, and brings no protocol for it"


def collusion(colluders: int, whom: str) -> str:
    """How many may tell the server what they know, in words."""
    if colluders == 0:
        return f"no {whom} tells the server what it knows"
    many = f"{colluders} {PLURAL[whom]} tell the server what they know"
    return f"at most {many if colluders > 1 else f'one {whom} tells the server what it knows'}"


PLURAL = {"agent": "agents", "party": "parties"}


def condition(totals: Mapping[str, Any]) -> str:
    """What the figure of a headline takes for granted of whom; nothing where nobody is trusted."""
    if not summed(totals):
        return ""
    if totals["trust"] == SERVER:
        return ", against all but the server, which is trusted with what every party sends"
    return f", if only sums of what all parties send are seen and {collusion(totals['colluders'], 'party')}"


def onlookers(totals: Mapping[str, Any]) -> str:
    """Against whom noise on the sum protects."""
    if totals["trust"] == SERVER:
        return (
            "all parties and whoever sees the model of one run, but not the server, which is trusted: it sees what "
            "every party sends, and nobody else may"
        )
    return (
        "the server and whoever sees the sums of what all parties sent in one run and its model, where "
        f"{collusion(totals['colluders'], 'party')}. Nobody may see what a single party sent; {SIMULATED}"
    )


def where_added(study: Mapping[str, Any]) -> str:
    """Who adds the noise, of a method without a curator."""
    if not summed(study):
        return "at the party before anything is sent"
    if study["trust"] == SERVER:
        return "by the server, to the sum over all parties, before anybody else sees it"
    parties, colluders = study["public"]["agents"], study["colluders"]
    enough = "all of them" if colluders == 0 else f"any {parties - colluders} of the {parties}"
    return f"in shares: every party adds its own before it sends, and those of {enough} come to all of it"


def uncovered(totals: Mapping[str, Any], by_record: bool) -> list[str]:
    """Against what noise on the sum does not protect."""
    whom = "Against the server: it sees what every party sends without noise."
    if totals["trust"] == SECURE_SUM:
        whom = (
            "Against whoever sees what a single party sends, or learns what more parties know than is said above: one "
            "share of the noise is too little. A secure sum has to see to it, and Taciturn brings no protocol for that."
        )
    if totals["trust"] == SECURE_SUM and totals["colluders"] == 0:
        whom = f"Against the parties themselves: each knows its own share, and the others' are not enough. {whom}"
    several = (
        "Whoever several parties know: all their records are in one sum, which protects them as several, not as one."
    )
    return [whom] if by_record else [whom, several]
