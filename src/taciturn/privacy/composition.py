"""Composition over studies, whose plans are chosen after seeing what earlier ones released.

A filter adds up one kind of cost and stops before its limit: mu^2 of Gaussian DP (Smith and Thakurta 2022) or rho of
zCDP (Whitehouse et al. 2023). Which kind it is, and how much slack discrete noise may take, is fixed by the first
study, before anything was released: the better of two sums, picked later, is not known to be a valid stop rule
(docs/explanation/discrete-gaussian.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from functools import reduce
from typing import Any

from taciturn.privacy.accountants import Counts
from taciturn.privacy.accountants.gdp import NO_SLACK, Slack, gdp_budget, gdp_epsilon, gdp_worth, slack_of
from taciturn.privacy.accountants.zcdp import zcdp_budget, zcdp_epsilon, zcdp_rho

ROUNDING = 1e-9  # relative: the same events, added up in another order
ROOMS = (1e-6, 1e-8, 1e-10, 1e-12)  # of epsilon and of delta, that studies after the first may use up as slack


@dataclass(frozen=True)
class StudyCost:
    """What releases cost a ledger over studies; every field adds up."""

    gdp: float = 0.0  # mu^2
    zcdp: float = 0.0  # rho
    above: float = 0.0  # the slack of discrete Gaussian noise, which goes with gdp
    below: float = 0.0
    outside: float = 0.0

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> StudyCost:
        """From a row that was written with these fields."""
        return cls(**{name: float(value) for name, value in fields.items()})

    @property
    def slack(self) -> Slack:
        """How discrete Gaussian noise departs from continuous noise."""
        return Slack(self.above, self.below, self.outside)

    @property
    def finite(self) -> bool:
        """Whether a ledger over studies can hold it: every field is a number of at least 0."""
        return all(0.0 <= part < math.inf for part in astuple(self))

    def covers(self, other: StudyCost) -> bool:
        """Whether another cost is no more than this one in any field, but for rounding; what is no cost is more."""
        return all(0.0 <= b <= a * (1.0 + ROUNDING) for a, b in zip(astuple(self), astuple(other), strict=True))


FREE = StudyCost()


def cost_of(counts: Counts) -> StudyCost:
    """The cost of these events; infinite where one of them has none."""
    gdp, zcdp, slack = [], [], NO_SLACK
    for event, count in counts.items():
        if not count:
            continue
        mu_squared, rho = gdp_worth(event), zcdp_rho(event)
        gdp.append(math.inf if mu_squared is None else count * mu_squared)
        zcdp.append(math.inf if rho is None else count * rho)
        slack += slack_of(event) * count
    return StudyCost(math.fsum(gdp), math.fsum(zcdp), slack.above, slack.below, slack.outside)


def together(costs: Iterable[StudyCost]) -> StudyCost:
    """The sum."""
    return StudyCost(*(math.fsum(parts) for parts in zip(*map(astuple, costs), strict=True)))


def largest(costs: Iterable[StudyCost]) -> StudyCost:
    """At least each of them, in every field; infinite in one where a cost is not a number of at least 0."""
    return reduce(lambda one, other: StudyCost(*map(_larger, astuple(one), astuple(other))), costs, FREE)


def _larger(one: float, other: float) -> float:
    return max(one, other) if one >= 0.0 and other >= 0.0 else math.inf


def accountant_for(first: StudyCost, delta: float) -> str:
    """By which sum a first study costs least: gdp or zcdp."""
    by_gdp = gdp_epsilon(first.gdp, first.slack, delta)
    return "gdp" if by_gdp <= zcdp_epsilon(first.zcdp, delta) else "zcdp"


def composed_epsilon(accountant: str, cost: StudyCost, delta: float) -> float:
    """What releases of this cost spend together, by one of the two sums."""
    return zcdp_epsilon(cost.zcdp, delta) if accountant == "zcdp" else gdp_epsilon(cost.gdp, cost.slack, delta)


@dataclass(frozen=True)
class Filter:
    """The stop rule of one ledger over studies."""

    total_epsilon: float
    delta: float
    accountant: str  # gdp or zcdp
    room: Slack = NO_SLACK  # all that studies may use up together

    @classmethod
    def begin(cls, total_epsilon: float, delta: float, first: StudyCost) -> Filter:
        """The rule by which the first study costs least; what it leaves of the budget makes room for slack."""
        if accountant_for(first, delta) == "zcdp":
            return cls(total_epsilon, delta, "zcdp")
        rooms = (first.slack + Slack(share * total_epsilon, share * total_epsilon, share * delta) for share in ROOMS)
        fitting = (room for room in rooms if gdp_epsilon(first.gdp, room, delta) <= total_epsilon)
        return cls(total_epsilon, delta, "gdp", next(fitting, first.slack))

    def allows(self, cost: StudyCost) -> bool:
        """Whether all studies may cost that much together."""
        if self.accountant == "zcdp":
            return cost.zcdp <= zcdp_budget(self.total_epsilon, self.delta)
        within = all(used <= room for used, room in zip(astuple(cost.slack), astuple(self.room), strict=True))
        return within and gdp_epsilon(cost.gdp, self.room, self.delta) <= self.total_epsilon

    def epsilon(self, cost: StudyCost) -> float:
        """What studies of this cost spend."""
        return composed_epsilon(self.accountant, cost, self.delta)

    def next_epsilon(self, used: StudyCost) -> float:
        """The total-epsilon of one more study that uses all that is left."""
        if self.accountant == "zcdp":
            left = zcdp_budget(self.total_epsilon, self.delta) - used.zcdp
            return zcdp_epsilon(left, self.delta)
        left = gdp_budget(self.total_epsilon, self.room, self.delta) - used.gdp
        return gdp_epsilon(max(left, 0.0), NO_SLACK, self.delta)
