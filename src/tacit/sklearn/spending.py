"""What fits have cost: of one, and of all that one estimator and its clones made."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tacit.privacy.accountants.zcdp import zcdp_budget, zcdp_epsilon
from tacit.privacy.guarantee import headline
from tacit.settings.rules import integer, real
from tacit.views.tables import format_epsilon

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
class Spendings:
    """What an estimator and its clones have spent in one process."""

    costs: list[float] = field(default_factory=list)  # zCDP of every fit
    process: int = field(default_factory=os.getpid)
    noises: list[tuple[Any, ...]] = field(default_factory=list)  # seed, algorithm and budget of every simulated fit
    told: bool = False  # that they add up

    @property
    def shared(self) -> bool:
        """Whether two fits had the same noise: the difference of their models has none, whoever knows the seed."""
        return len(set(self.noises)) < len(self.noises)

    def __deepcopy__(self, memo: dict[int, Any]) -> Spendings:
        """A copy of an estimator spends from the same purse."""
        return self

    @property
    def away(self) -> bool:
        """Whether this is a copy in another process, of which the first will never hear."""
        return self.process != os.getpid()


def spent(totals: Mapping[str, Any], spendings: Spendings, account: Mapping[str, Any] | None) -> PrivacySpent:
    """A fit's cost from its ledger's totals, beside those before it; the ledger over studies has seen most of them.

    zCDP adds up even where a fit was chosen after seeing the ones before; a single fit may be bounded better.
    """
    epsilon, delta, costs = float(totals["total_epsilon"]), float(totals["delta"]), spendings.costs
    if account is not None:
        fits, together = len([s for s in account["studies"] if s["zcdp"]]), float(account["epsilon_used"])
    else:
        fits, together = len(costs), epsilon if len(costs) == 1 else zcdp_epsilon(math.fsum(costs), delta)
    simulated = totals["noise"] != "hardened" and math.isfinite(epsilon)
    words = headline(totals)
    if spendings.shared:
        words, together = f"{words} {SHARED}", math.inf
    elif fits > 1 and math.isfinite(together):
        words += f" All {fits} fits so far, of a search too, cost epsilon {format_epsilon(together)} together."
    return PrivacySpent(epsilon, delta, simulated, words, fits, together)


def epsilon_of_each(total_epsilon: float, delta: float, fits: int) -> float:
    """The total_epsilon that each of so many fits may have, so that all of them together keep the one given."""
    budget = zcdp_budget(real(0.0)("total_epsilon", total_epsilon), real(0.0, 1.0)("delta", delta))
    return BELOW * zcdp_epsilon(budget / integer(1)("fits", fits), delta)
