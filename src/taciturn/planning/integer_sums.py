"""The integers in which hardened gradients are summed: at one agent, and over all agents in a secure sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from taciturn.algorithms.noisy_gradient import MAX_BITS
from taciturn.algorithms.privacy_costs import IntegerGrid, SummedAgents
from taciturn.data import Facts
from taciturn.errors import InputError
from taciturn.objectives.clipping import rounding_slack
from taciturn.privacy.events import Discrete
from taciturn.privacy.sensitivity import ADJACENCIES
from taciturn.secure_sum.parameters import RESIDUAL_BITS, SumParameters, most_missing
from taciturn.settings import Settings

if TYPE_CHECKING:
    from taciturn.planning.noise_plan import RunPlan

MIN_BITS = 8  # of a residual's fraction
MIN_SHARE = 4.0  # of an agent's noise, in integers: below it, shares do not add up to one discrete Gaussian


def clip_bound(settings: Settings, facts: Facts, clip: float) -> float:
    """Return a bound on a record's gradient in the run's precision, a little below the setting."""
    slack = rounding_slack(facts.features, facts.outputs, settings.precision)
    return float(np.dtype(settings.precision).type(clip * slack))


def integer_grid(settings: Settings, facts: Facts) -> IntegerGrid:
    """Return the public numbers that determine the integers of a hardened release.

    Parameters
    ----------
    settings : Settings
        With the clip filled in.
    facts : Facts
        The public facts about the data.

    Returns
    -------
    IntegerGrid
        With `summed` if the settings ask for a secure sum.
    """
    summed = None
    if settings.integer_sums:
        summed = SummedAgents(facts.agents, settings.honest(facts.agents), facts.records_of_all)
    coordinates = facts.features * facts.outputs * int(ADJACENCIES[settings.adjacency])
    clip = clip_bound(settings, facts, float(settings.clip))
    return IntegerGrid(facts.total_records, facts.largest, clip, coordinates, summed=summed)


def check_participation(agents: int, colluders: int, missing: int) -> None:
    """Raise InputError unless a protocol can open sums of P agents with c colluders and d missing agents.

    The protocol (docs/explanation/secure-sum.md) needs P >= 3, from 1 to P - 2 colluders, and a quorum q = P - d of at
    least floor((P + c) / 2) + 1, because a smaller one lets two sums be opened from one slot.

    Examples
    --------
    >>> check_participation(agents=10, colluders=1, missing=4)
    >>> check_participation(agents=10, colluders=1, missing=5)
    Traceback (most recent call last):
    ...
    taciturn.errors.InputError: missing is 5, but of 10 agents with 1 colluder at most 4 may be missing from a sum...
    """
    if agents < 3:
        raise InputError(
            f"trust is secure-sum, but there {'is' if agents == 1 else 'are'} {agents} agent{'s' * (agents > 1)}: a "
            "secure sum with hardened noise needs at least 3; use --trust agents"
        )
    if not 1 <= colluders <= agents - 2:
        raise InputError(
            f"colluders is {colluders}, but a secure sum of {agents} agents with hardened noise needs 1 to "
            f"{agents - 2}: one agent may always collude, and two honest ones must be left"
        )
    most = most_missing(agents, colluders)
    if missing > most:
        raise InputError(
            f"missing is {missing}, but of {agents} agents with {colluders} colluder{'s' * (colluders > 1)} at most "
            f"{most} may be missing from a sum: with a smaller quorum two sums could be opened from one slot"
        )


def check_integers(grid: IntegerGrid, bits: int, events: Sequence[Discrete], share: float) -> None:
    """Raise InputError if integers leave too few bits for gradients, or too little noise for a share.

    Parameters
    ----------
    grid : IntegerGrid
        Of the release.
    bits : int
        The bits of a residual's fraction.
    events : sequence of Discrete
        Of one upload in every run with noise; in a secure sum it is that of the h honest shares together.
    share : float
        An agent's noise over that of the event.
    """
    if bits < MIN_BITS or any(share * event.sigma < 1.0 for event in events):
        raise InputError(
            "clip, noise-multiplier, records-max and total-records leave no integers for hardened noise: "
            f"a residual's fraction has {bits} bits, and needs {MIN_BITS} to {MAX_BITS}"
        )
    for event in events if grid.summed else ():
        width, _ = grid.number_format(event.scale)  # raises if no width has room
        least, bits = RESIDUAL_BITS[0], grid.bits(event.scale)
        if bits < least:
            raise InputError(
                f"clip, noise-multiplier, records-max and total-records leave {bits} bits for a residual's fraction in "
                f"a secure sum of {width} bits, and it needs {least}: declare fewer records or clip to a smaller norm"
            )
        if share * event.sigma < MIN_SHARE:
            raise InputError(
                f"an agent's share of the noise has a standard deviation of {share * event.sigma:.3g} integers, and a "
                f"secure sum needs {MIN_SHARE:g}: use a smaller total-epsilon or fewer agents"
            )


def sum_parameters(settings: Settings, facts: Facts, plan: RunPlan) -> SumParameters:
    """Return what all agents of a planned secure sum agree on before the first key is made.

    Parameters
    ----------
    settings : Settings
        Of the planned study: with the clip filled in.
    facts : Facts
        The public facts about the data.
    plan : RunPlan
        The plan of one run.

    Returns
    -------
    SumParameters

    Raises
    ------
    InputError
        If a protocol cannot open such sums.
    TypeError
        If the plan is not that of a secure sum with hardened noise.
    """
    if not (settings.integer_sums and isinstance(plan.event, Discrete)):
        raise TypeError("only a secure sum with hardened noise has integers that a protocol adds")
    evaluation, width = plan.evaluation, integer_grid(settings, facts).number_format(plan.event.scale).width
    return SumParameters(
        sites=facts.agents,
        colluders=settings.colluders,
        quorum=facts.agents - settings.missing,
        dimension=facts.features * facts.outputs,
        width=max(width, evaluation.width) if evaluation else width,
        rounds=plan.rounds,
        reserve=plan.reserve,
        measures=evaluation.numbers if evaluation else 0,
        evaluations=evaluation.charges if evaluation else 0,
    )
