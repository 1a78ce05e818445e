"""What fits have cost: of one, and of all that one estimator and its clones made."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from taciturn.privacy.accountants.gdp import NO_SLACK, gdp_budget, gdp_epsilon
from taciturn.privacy.budget_state import BudgetState
from taciturn.privacy.composition import StudyCost, accountant_for, composed_epsilon, total_cost
from taciturn.reporting.statements import headline
from taciturn.reporting.tables import format_epsilon
from taciturn.settings.rules import integer, real

SHARED = (
    "Together they protect nobody: fits with one random_state share their noise, and differences of models have none."
)
BELOW = 0.9999  # so that no rounding keeps the last of several fits out


class PrivacyWarning(UserWarning):
    """More of a privacy budget is spent than the code at hand seems to say."""


@dataclass(frozen=True)
class PrivacySpent:
    """The cost of a fit."""

    epsilon: float  # of this fit by itself
    delta: float
    simulated: bool  # noise came from a seed, and protects nobody
    statement: str  # the guarantee of this fit in one sentence
    fits: int  # how many there were so far: by this estimator and its clones, or on the ledger
    all_fits_epsilon: float  # what they cost together, with delta, or the ledger's delta


@dataclass
class FitHistory:
    """What an estimator, its clones and its copies have spent in one process.

    A copy made in the same process, by clone, deepcopy or pickle, shares them. In another process there is only
    an old picture of it, which is `away`.
    """

    costs: list[StudyCost] = field(default_factory=list)  # of every fit
    process: int = field(default_factory=os.getpid)
    noises: list[tuple[Any, ...]] = field(default_factory=list)  # seed, algorithm and budget of every simulated fit
    units: list[str] = field(default_factory=list)  # whom every fit protects
    told: bool = False  # that they add up
    name: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False)

    @classmethod
    def begun(cls) -> FitHistory:
        """New ones, of this process."""
        return _HERE.setdefault((made := cls()).name, made)

    @property
    def shared(self) -> bool:
        """Whether two fits had the same noise: the difference of their models has none, whoever knows the seed."""
        return len(set(self.noises)) < len(self.noises)

    def __deepcopy__(self, memo: dict[int, Any]) -> FitHistory:
        """A copy of an estimator shares its spendings."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """So does one that was pickled, where it is read by the same process."""
        return _restored, (self.name, self.process, self.costs, self.noises, self.units, self.told)

    @property
    def away(self) -> bool:
        """Whether this is a picture from another process, which will never hear of what is spent here."""
        return self.process != os.getpid() or _HERE.get(self.name) is not self


_HERE: dict[str, FitHistory] = {}  # those of this process, by name; a child process inherits them, but for its id


def _restored(name: str, process: int, *fields: Any) -> FitHistory:
    costs, noises, units, told = fields
    here = _HERE.get(name)
    if here is not None and here.process == os.getpid():
        return here
    return FitHistory(list(costs), process, list(noises), list(units), told, name)


def spent(totals: Mapping[str, Any], spendings: FitHistory, account: BudgetState | None) -> PrivacySpent:
    """A fit's cost from its ledger's totals, beside those before it; the ledger over studies has seen most of them.

    The sum is of one kind, fixed by the first fit. It tells how much was spent; a guarantee for fits that are chosen
    after seeing earlier ones is a limit fixed beforehand, which is what a ledger keeps.
    """
    epsilon, delta, costs = float(totals["total_epsilon"]), float(totals["delta"]), spendings.costs
    if account is not None:
        fits, all_fits = len([study for study in account.studies if study.cost.zcdp]), account.epsilon_used
    else:
        fits, all_fits = len(costs), epsilon if len(costs) == 1 else _together(costs, delta)
    simulated = totals["noise"] != "hardened" and math.isfinite(epsilon)
    words = headline(totals)
    if spendings.shared:
        words, all_fits = f"{words} {SHARED}", math.inf
    elif fits > 1 and math.isfinite(all_fits):
        whom = " to every single record, since not all were for the same unit" if len(set(spendings.units)) > 1 else ""
        words += f" All {fits} fits so far, of a search too, cost epsilon {format_epsilon(all_fits)} together{whom}."
    return PrivacySpent(epsilon, delta, simulated, words, fits, all_fits)


def _together(costs: Sequence[StudyCost], delta: float) -> float:
    return composed_epsilon(accountant_for(costs[0], delta), total_cost(costs), delta)


def epsilon_of_each(total_epsilon: float, delta: float, fits: int) -> float:
    """The total_epsilon that each of so many fits may have, so that all of them together keep the one given."""
    budget = gdp_budget(real(0.0)("total_epsilon", total_epsilon), NO_SLACK, real(0.0, 1.0)("delta", delta))
    return BELOW * gdp_epsilon(budget / integer(1)("fits", fits), NO_SLACK, delta)
