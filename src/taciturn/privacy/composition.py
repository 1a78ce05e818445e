"""Adaptive composition over studies whose plans depend on what earlier studies released.

A privacy filter adds up one kind of cost and stops before its limit: mu^2 of Gaussian DP (Smith and Thakurta 2022) or
rho of zCDP (Whitehouse et al. 2023). The first study fixes the kind, and how much slack discrete noise may use, before
anything is released: choosing the smaller of two sums afterwards is not known to be a valid stopping rule
(docs/explanation/discrete-gaussian.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass
from typing import NamedTuple, TypedDict

from taciturn.privacy.accountants import Counts
from taciturn.privacy.accountants.gdp import NO_SLACK, Slack, gdp_budget, gdp_epsilon, gdp_mu_squared, slack_of
from taciturn.privacy.accountants.zcdp import zcdp_budget, zcdp_epsilon, zcdp_rho

ROUNDING = 1e-9  # relative tolerance for the same events added up in another order
SLACK_SHARES = (1e-6, 1e-8, 1e-10, 1e-12)  # of epsilon and of delta, that later studies may use up as slack


@dataclass(frozen=True)
class StudyCost:
    """The cost of releases in a budget ledger. Every field adds up over studies.

    Attributes
    ----------
    gdp
        mu^2 of Gaussian DP.
    zcdp
        rho of zero-concentrated DP.
    above, below, outside
        The slack of discrete Gaussian noise, which belongs to `gdp`; see `Slack`.
    """

    gdp: float = 0.0
    zcdp: float = 0.0
    above: float = 0.0
    below: float = 0.0
    outside: float = 0.0

    @classmethod
    def from_json(cls, fields: Mapping[str, float | str]) -> StudyCost:
        """Return the cost in a ledger row, where infinity is written as the string "inf".

        >>> StudyCost.from_json({"gdp": 0.02, "zcdp": "inf"})
        StudyCost(gdp=0.02, zcdp=inf, above=0.0, below=0.0, outside=0.0)
        """
        return cls(**{name: float(value) for name, value in fields.items()})

    @property
    def slack(self) -> Slack:
        """How far discrete Gaussian noise departs from continuous noise."""
        return Slack(self.above, self.below, self.outside)

    @property
    def finite(self) -> bool:
        """Whether every field is a number of at least 0, as a budget ledger requires."""
        return all(0.0 <= part < math.inf for part in astuple(self))

    def covers(self, other: StudyCost) -> bool:
        """Return whether no field of `other` exceeds this cost's, except by rounding.

        A cost with a negative or NaN field is never covered.

        >>> StudyCost(0.02, 0.01).covers(StudyCost(0.01, 0.01))
        True
        """
        return all(0.0 <= b <= a * (1.0 + ROUNDING) for a, b in zip(astuple(self), astuple(other), strict=True))


ZERO_COST = StudyCost()


def cost_of(counts: Counts) -> StudyCost:
    """Return the cost of counted events; a field is infinite if an event has no such cost.

    Parameters
    ----------
    counts
        How often each event occurs.
    """
    gdp, zcdp, slack = [], [], NO_SLACK
    for event, count in counts.items():
        if not count:
            continue
        mu_squared, rho = gdp_mu_squared(event), zcdp_rho(event)
        gdp.append(math.inf if mu_squared is None else count * mu_squared)
        zcdp.append(math.inf if rho is None else count * rho)
        slack += slack_of(event) * count
    return StudyCost(math.fsum(gdp), math.fsum(zcdp), slack.above, slack.below, slack.outside)


def total_cost(costs: Iterable[StudyCost]) -> StudyCost:
    """Return the sum of costs.

    >>> total_cost([StudyCost(0.25, 0.125), StudyCost(0.5, 0.25)])
    StudyCost(gdp=0.75, zcdp=0.375, above=0.0, below=0.0, outside=0.0)
    """
    return StudyCost(*(math.fsum(parts) for parts in zip(*map(astuple, costs), strict=True)))


def max_cost(costs: Iterable[StudyCost]) -> StudyCost:
    """Return the largest value of every field; infinite where one is negative or NaN.

    >>> max_cost([StudyCost(0.25, 0.5), StudyCost(0.5, math.nan)])
    StudyCost(gdp=0.5, zcdp=inf, above=0.0, below=0.0, outside=0.0)
    """
    fields = zip(astuple(ZERO_COST), *map(astuple, costs), strict=True)
    return StudyCost(*(max(parts) if all(part >= 0.0 for part in parts) else math.inf for parts in fields))


class SideCosts(NamedTuple):
    """Costs to a record that trains under a ledger's split, and to one that the split holds out."""

    training: StudyCost
    held_out: StudyCost

    def plus(self, other: SideCosts) -> SideCosts:
        """Return the sum on each side."""
        return SideCosts(*map(total_cost, zip(self, other, strict=True)))

    def largest(self, other: SideCosts) -> SideCosts:
        """Return the largest value of every field on each side; see `max_cost`."""
        return SideCosts(*map(max_cost, zip(self, other, strict=True)))


def accountant_for(first: StudyCost, delta: float) -> str:
    """Return the accountant, "gdp" or "zcdp", by which a first study of this cost has the smaller epsilon."""
    by_gdp = gdp_epsilon(first.gdp, first.slack, delta)
    return "gdp" if by_gdp <= zcdp_epsilon(first.zcdp, delta) else "zcdp"


def composed_epsilon(accountant: str, cost: StudyCost, delta: float) -> float:
    """Return the epsilon of releases with this total cost, by the accountant "gdp" or "zcdp"."""
    return zcdp_epsilon(cost.zcdp, delta) if accountant == "zcdp" else gdp_epsilon(cost.gdp, cost.slack, delta)


class FilterRow(TypedDict):
    """The stopping rule in a ledger row."""

    accountant: str
    above: float
    below: float
    outside: float


@dataclass(frozen=True)
class PrivacyFilter:
    """The stopping rule of one budget ledger.

    Attributes
    ----------
    total_epsilon, delta
        The budget of all studies.
    accountant
        "gdp" or "zcdp".
    slack_limit
        The slack that all studies may use up together; all zeros for zcdp.
    """

    total_epsilon: float
    delta: float
    accountant: str
    slack_limit: Slack = NO_SLACK

    @classmethod
    def begin(cls, total_epsilon: float, delta: float, first: StudyCost) -> PrivacyFilter:
        """Return the rule by which a first study costs least.

        For gdp, part of the budget that the first study leaves is set apart for the slack of later studies.
        """
        if accountant_for(first, delta) == "zcdp":
            return cls(total_epsilon, delta, "zcdp")
        epsilons = ((share * total_epsilon, share * delta) for share in SLACK_SHARES)
        limits = (first.slack + Slack(epsilon, epsilon, outside) for epsilon, outside in epsilons)
        fitting = (limit for limit in limits if gdp_epsilon(first.gdp, limit, delta) <= total_epsilon)
        return cls(total_epsilon, delta, "gdp", next(fitting, first.slack))

    @classmethod
    def from_json(cls, total_epsilon: float, delta: float, rule: FilterRow) -> PrivacyFilter:
        """Return the rule that a ledger row fixed for this budget."""
        slack = Slack(rule["above"], rule["below"], rule["outside"])
        return cls(total_epsilon, delta, rule["accountant"], slack)

    def to_json(self) -> dict[str, object]:
        """Return the rule as a ledger row writes it; the budget is in the ledger's first line."""
        return {"accountant": self.accountant, **asdict(self.slack_limit)}

    def allows(self, cost: StudyCost) -> bool:
        """Return whether all studies together may have this cost."""
        if self.accountant == "zcdp":
            return cost.zcdp <= zcdp_budget(self.total_epsilon, self.delta)
        within = all(used <= most for used, most in zip(astuple(cost.slack), astuple(self.slack_limit), strict=True))
        return within and gdp_epsilon(cost.gdp, self.slack_limit, self.delta) <= self.total_epsilon

    def epsilon(self, cost: StudyCost) -> float:
        """Return the epsilon that studies of this total cost spend."""
        return composed_epsilon(self.accountant, cost, self.delta)

    def next_epsilon(self, used: StudyCost) -> float:
        """Return the total-epsilon of one more study that uses all that is left."""
        if self.accountant == "zcdp":
            return zcdp_epsilon(zcdp_budget(self.total_epsilon, self.delta) - used.zcdp, self.delta)
        left = gdp_budget(self.total_epsilon, self.slack_limit, self.delta) - used.gdp
        return gdp_epsilon(max(left, 0.0), NO_SLACK, self.delta)
