"""Trust models: who may see the upload of a single agent, and therefore where the noise must be added."""

from __future__ import annotations

import math
from enum import StrEnum

from taciturn.errors import InputError

AGENTS, SECURE_SUM, SERVER = "agents", "secure-sum", "server"
TRUST = (AGENTS, SECURE_SUM, SERVER)
PLURALS = {"agent": "agents", "party": "parties", "site": "sites"}

PAPER_HEADLINE = "No end-to-end guarantee: the total epsilon of this run is infinite."
SIMULATED_SUM = "one process simulates the secure sum, and no protocol hides what is added"


class Caveat(StrEnum):
    """A fact about a study that its reports must state, because no budget covers it."""

    DRAFTED = "drafted"  # the schema still has ranges that were read off the records
    LOST_MACHINE = "lost-machine"  # the budget ledger was recovered from an old copy
    FURTHER = "further"  # the records may have another budget ledger
    CARRIED = "carried"  # a transport sees when messages are sent, and how long they are


def noise_share(trust: str, agents: int, colluders: int, missing: int = 0) -> float:
    """Return the standard deviation of one agent's noise, relative to the noise sigma that is charged.

    With trust `agents` every agent adds all of the noise. With `secure-sum` it adds a share such that the shares of
    P - c - d agents add up to sigma: a colluder knows its own share, and a missing agent's is not in the sum. With
    `server` the server draws one N(0, sigma^2) for the sum; a simulation adds P shares of sigma / sqrt(P), which have
    the same distribution.

    Parameters
    ----------
    trust : str
        One of `TRUST`.
    agents : int
        P, the number of agents.
    colluders : int
        c, how many agents may tell the server what they know; only `secure-sum` uses it.
    missing : int, default 0
        d, how many agents may be missing from a sum; only `secure-sum` uses it.

    Raises
    ------
    InputError
        If all agents may collude or be missing: no noise would be left.

    Examples
    --------
    >>> noise_share("agents", 4, 0), noise_share("secure-sum", 7, 1, 2), noise_share("server", 4, 0)
    (1.0, 0.5, 0.5)
    """
    if trust == AGENTS:
        return 1.0
    honest = agents - colluders - missing if trust == SECURE_SUM else agents
    if honest < 1:
        given = f"colluders is {colluders}" + (f" and missing is {missing}" if missing else "")
        raise InputError(
            f"{given}, but there {'is' if agents == 1 else 'are'} {agents} agent{'s' * (agents > 1)}; "
            f"{'together they' if missing else 'it'} must be smaller, because the noise comes from the other agents"
        )
    return 1.0 / math.sqrt(honest)


def trust_sentence(trust: str, colluders: int) -> str:
    """Return a sentence that says who may see what under the trust model of a simulation, and what it assumes."""
    if trust == AGENTS:
        return "no one is trusted: every agent adds the noise itself, and everything that is sent may be seen"
    if trust == SERVER:
        return "the server is trusted: it sees what every agent sends, and adds the noise before others see the model"
    assumed = collusion(colluders, "agent")
    return f"only sums of what all agents send are seen, by the server too, and {assumed}; {SIMULATED_SUM}"


def opened_sums(parties: int, missing: int, whom: str) -> str:
    """Return in words what the protocol of a federation can open.

    Examples
    --------
    >>> opened_sums(5, 1, "site")
    'only sums over at least 4 of the 5 sites can be opened'
    """
    among = f"at least {parties - missing} of the {parties}" if missing else f"all {parties}"
    return f"only sums over {among} {PLURALS[whom]} can be opened"


def collusion(colluders: int, whom: str) -> str:
    """Return in words how many agents (`whom`: a key of `PLURALS`) may tell the server what they know."""
    if colluders == 0:
        return f"no {whom} tells the server what it knows"
    if colluders == 1:
        return f"at most one {whom} tells the server what it knows"
    return f"at most {colluders} {PLURALS[whom]} tell the server what they know"
