"""The privacy cost of fits: of one, and of all fits of an estimator and its clones."""

from __future__ import annotations

import math
import os
import uuid
from dataclasses import dataclass, field
from typing import Any

from taciturn.privacy.accountants.gdp import NO_SLACK, gdp_budget, gdp_epsilon
from taciturn.privacy.budget_state import BudgetState
from taciturn.privacy.composition import StudyCost, accountant_for, composed_epsilon, total_cost
from taciturn.reporting.statements import headline
from taciturn.reporting.tables import format_epsilon
from taciturn.runs.records import PrivacyTotals
from taciturn.settings.rules import integer, real

SHARED_NOISE = (
    "Together they protect nobody: fits with the same random_state share their noise, so the difference of two models "
    "has none."
)
BELOW = 0.9999  # so that no rounding refuses the last of several fits


class PrivacyWarning(UserWarning):
    """More of a privacy budget is spent than the code seems to say."""


@dataclass(frozen=True)
class PrivacySpent:
    """The privacy cost of a fit."""

    epsilon: float  # of this fit alone
    delta: float
    simulated: bool  # whether the noise came from a seed and so gives no protection
    statement: str  # the guarantee of this fit in one sentence
    fits: int  # so far: by this estimator and its clones, or in the ledger
    all_fits_epsilon: float  # their total, at delta or at the ledger's delta


@dataclass
class FitHistory:
    """The fits of an estimator, its clones and its copies in one process.

    A copy in the same process, by clone, deepcopy or pickle, shares the history. In another process there is only a
    snapshot of it, which `is_snapshot` detects.
    """

    costs: list[StudyCost] = field(default_factory=list)  # of every fit
    process: int = field(default_factory=os.getpid)
    seeds: list[tuple[Any, ...]] = field(default_factory=list)  # seed, algorithm and budget of every simulated fit
    units: list[str] = field(default_factory=list)  # the unit that every fit protects
    warned: bool = False  # that fits add up
    name: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False)

    @classmethod
    def start(cls) -> FitHistory:
        """Return a new history of this process."""
        history = cls()
        _HISTORIES[history.name] = history
        return history

    @property
    def shares_noise(self) -> bool:
        """Whether two fits had the same noise, which the difference of their models removes."""
        return len(set(self.seeds)) < len(self.seeds)

    @property
    def is_snapshot(self) -> bool:
        """Whether this is a snapshot from another process, which does not see the fits of this one."""
        return self.process != os.getpid() or _HISTORIES.get(self.name) is not self

    def __deepcopy__(self, memo: dict[int, Any]) -> FitHistory:
        """Return the same history, as a copy of an estimator shares it."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it so that the same process restores the same history."""
        return _restore, (self.name, self.process, self.costs, self.seeds, self.units, self.warned)


_HISTORIES: dict[str, FitHistory] = {}  # of this process, by name; a forked process inherits them with another id


def _restore(name: str, process: int, costs: Any, seeds: Any, units: Any, warned: bool) -> FitHistory:
    known = _HISTORIES.get(name)
    if known is not None and known.process == os.getpid():
        return known
    return FitHistory(list(costs), process, list(seeds), list(units), warned, name)


def privacy_spent(totals: PrivacyTotals, history: FitHistory, account: BudgetState | None) -> PrivacySpent:
    """Return the cost of a fit, and of all fits so far.

    The sum is of one kind, fixed by the first fit. It says how much was spent. A guarantee for fits that are chosen
    after seeing earlier ones needs a limit fixed beforehand, which is what a ledger enforces.

    Parameters
    ----------
    totals : PrivacyTotals
        Totals of the fit's own ledger.
    history : FitHistory
        The fits of the estimator and its clones, including this one.
    account : BudgetState or None
        The state of the ledger over studies, if there is one; it has seen most fits.
    """
    epsilon, delta, costs = totals.total_epsilon, totals.delta, history.costs
    if account is not None:
        fits, all_fits = len([study for study in account.studies if study.cost.zcdp]), account.epsilon_used
    else:
        fits, all_fits = len(costs), epsilon
        if fits > 1:
            all_fits = composed_epsilon(accountant_for(costs[0], delta), total_cost(costs), delta)
    sentence = headline(totals)
    if history.shares_noise:
        sentence, all_fits = f"{sentence} {SHARED_NOISE}", math.inf
    elif fits > 1 and math.isfinite(all_fits):
        whom = " to every single record, since not all were for the same unit" if len(set(history.units)) > 1 else ""
        sentence += (
            f" All {fits} fits so far, including a search, cost epsilon {format_epsilon(all_fits)} together{whom}."
        )
    simulated = totals.noise != "hardened" and math.isfinite(epsilon)
    return PrivacySpent(epsilon, delta, simulated, sentence, fits, all_fits)


def epsilon_of_each(total_epsilon: float, delta: float, fits: int) -> float:
    """Return the total_epsilon that each of several fits may have, so that together they keep a budget.

    Parameters
    ----------
    total_epsilon, delta : float
        The budget of all fits together.
    fits : int
        Their number.

    Returns
    -------
    float
        The total_epsilon of each fit; more than an equal share, because Gaussian costs add up as mu^2.

    Raises
    ------
    InputError
        If a number is out of its range.

    Examples
    --------
    >>> each = epsilon_of_each(1.0, 1e-6, fits=10)
    >>> 1.0 / 10 < each < 1.0
    True
    """
    budget = gdp_budget(real(0.0)("total_epsilon", total_epsilon), NO_SLACK, real(0.0, 1.0)("delta", delta))
    return BELOW * gdp_epsilon(budget / integer(1)("fits", fits), NO_SLACK, delta)
