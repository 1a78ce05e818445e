"""A fit as a certified study of records in memory: planned, reserved in the ledger, trained and settled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.data import Facts, Schema, schema_facts
from taciturn.data.assemble import RawRecords, assemble
from taciturn.data.partition import Units, agent_names
from taciturn.data.schema import Numeric, Unit
from taciturn.errors import InputError
from taciturn.objectives import LOSSES, REGULARISERS
from taciturn.planning.plan import load_data, plan_from_facts
from taciturn.privacy.budget_state import BudgetState
from taciturn.settings import Settings, resolve
from taciturn.settings.rules import integer
from taciturn.sklearn.declared import numeric_rules
from taciturn.training.in_memory import Trained, train_in_memory
from taciturn.training.record_ties import array_digest, warn_without_ledger
from taciturn.training.setup import set_aside
from taciturn.types import Array, Dataset, Range, Target

SCALE = "symmetric"  # of a table's two scales the better one with noise, unless most values are 0
MOST_ROUNDS = 100  # of exact ADMM, which stops when its model no longer changes
TOLERANCE = 1e-6  # relative change below which a model counts as unchanged


class PrivacyUnits(NamedTuple):
    """The unit that a fit protects, and which rows belong to which."""

    rule: Unit
    of: NDArray[np.int32] | None  # [n] the unit of each row; None: identical rows are one record


@dataclass(frozen=True, eq=False)
class FitData:
    """The settings and records of a fit."""

    settings: Settings
    x: NDArray[np.float64]  # [n, J] in the user's units
    labels: NDArray[Any]  # [n] class numbers, or values
    bounds: NDArray[np.float64]  # [J, 2]
    target: Target
    parties: Agents
    units: PrivacyUnits | None = None  # None: no privacy, so every row is used

    @cached_property
    def rules(self) -> tuple[Numeric, ...]:
        """How every feature is scaled, [J]."""
        return numeric_rules(self.bounds, self.settings.intercept)

    @property
    def facts(self) -> Facts:
        """The public facts, which are all that the plan may use."""
        total = int(self.settings.total_records)
        return schema_facts(
            self.settings.name,
            Schema("label", self.target, self.rules, scale=SCALE, unit=self.units and self.units.rule),
            intercept=self.settings.intercept,
            agents=len(self.parties.names),
            total_records=total,
            records_max=total,
            test="none",
        )

    @cached_property
    def used(self) -> Agents:
        """The rows of each party that are used: of each unit the first max_records."""
        if self.units is None:
            return self.parties
        of = identical_rows(self.x, self.labels) if self.units.of is None else self.units.of
        return bound_units(self.parties, Units(self.units.rule, (), of))[0]

    @property
    def left_out(self) -> int:
        """The number of rows that are not used."""
        return sum(map(len, self.parties.records)) - sum(map(len, self.used.records))

    def dataset(self) -> Dataset:
        """Return the records, clipped to their bounds, scaled and partitioned."""
        x = np.empty(self.x.shape)
        for j, rule in enumerate(self.rules):
            x[:, j] = rule.scaled(np.clip(self.x[:, j], *self.bounds[j]), SCALE)
        labels, names = self.labels, [rule.name for rule in self.rules]
        if isinstance(self.target, Range):
            labels = np.clip(labels, self.target.low, self.target.high)
        options = self.settings.data_options()
        records = RawRecords(x, labels)
        return assemble(self.settings.name, options, records, self.used, features=names, target=self.target)


def study_settings(given: Mapping[str, Any]) -> Settings:
    """Return the settings of a study in memory; the planner chooses those that are None."""
    return resolve({"data": "table", "averages": False} | {k: v for k, v in given.items() if v is not None})


def assign_parties(agents: Any, rows: int) -> Agents:
    """Return which party holds which rows: the named ones, or a single one if `agents` is None."""
    if agents is None:
        return Agents(agent_names(1), [np.arange(rows)])
    return by_column(*_encode_names("agents", "party", agents, rows))


def privacy_units(groups: Any, rows: int, max_records: Any) -> PrivacyUnits:
    """Return the units that `groups` names; without it, identical rows count as one record.

    Parameters
    ----------
    groups : array-like [n] or None
        The unit of each row. A pandas Series gives the unit its name.
    rows : int
        The number of rows, n.
    max_records : int
        Rows of one unit at one party that are used.
    """
    most = integer(1)("max_records", max_records)
    if groups is None:
        return PrivacyUnits(Unit("record", most), None)
    name = str(getattr(groups, "name", None) or "group")
    return PrivacyUnits(Unit(name, most), _encode_names("groups", "unit", groups, rows)[1])


def _encode_names(what: str, kind: str, given: Any, rows: int) -> tuple[list[str], NDArray[np.int32]]:
    """Return the distinct names, sorted, and the index of each row's name."""
    named = np.asarray(given, dtype=object)
    if named.shape != (rows,):
        raise InputError(f"{what} has shape {named.shape}: it must name the {kind} of each of the {rows} records")
    if any(name is None or name != name for name in named):  # noqa: PLR0124  NaN differs from itself
        raise InputError(f"{what} has a missing value: every record needs its {kind}")
    names, of = np.unique(named.astype(str), return_inverse=True)
    return [str(name) for name in names], of.astype(np.int32)


def identical_rows(x: NDArray[np.float64], labels: NDArray[Any]) -> NDArray[np.int32]:
    """Return a number for each row, equal for rows that agree in every bit, including the label, [n]."""
    rows = np.ascontiguousarray(np.column_stack([x, labels.astype(np.float64)]))
    as_bytes = rows.view(np.dtype((np.void, rows[0].nbytes)))[:, 0]
    return np.unique(as_bytes, return_inverse=True)[1].astype(np.int32)


def train(data: FitData) -> tuple[Trained, dict[str, Any] | None]:
    """Train a model within its budget.

    A failure before the first round returns the reservation to the ledger; a later one leaves the whole plan spent.

    Parameters
    ----------
    data : FitData
        Settings and records.

    Returns
    -------
    trained : Trained
        The model and the ledger of the fit.
    account : dict or None
        The state of the ledger over studies afterwards, if there is one.
    """
    plan = plan_from_facts(data.settings, data.facts)
    with set_aside(plan) if data.settings.ledger else nullcontext() as reservation:
        _check_total_records(data)
        study = load_data(plan, data.dataset())
        if reservation is not None:
            reservation.has_records(array_digest(data.x, data.labels))
    if reservation is None:
        if data.settings.noise == "hardened":
            warn_without_ledger(lambda: array_digest(data.x, data.labels))
        return train_in_memory(study, TOLERANCE), None
    try:
        reservation.start()
        trained = train_in_memory(study, TOLERANCE)
        reservation.account.settle(reservation.name, trained.ledger.cost())
        return trained, reservation.account.state()
    finally:
        reservation.release()


def _check_total_records(data: FitData) -> None:
    total = int(data.settings.total_records)
    if max(map(len, data.used.records)) > total:
        raise InputError(
            f"total_records is {total}, but one party has more records: give a round number that is not below all"
        )


def noiseless_settings(settings: Settings, algorithm: str | None, features: int, parties: int) -> dict[str, Any]:
    """Return settings with which a run without noise converges quickly.

    Exact ADMM, for losses it can solve, takes rho = sqrt(mu L), where mu is the curvature of the regulariser alone and
    L the largest that the records can add. A single party has nothing to agree on and takes a small rho. Inexact ADMM
    takes the planner's steps, which assume bounded gradients, and 1/L if gradients are not bounded.

    Parameters
    ----------
    settings : Settings
        With the loss and the regulariser.
    algorithm : str or None
        The algorithm; None: chosen here.
    features : int
        Number of features, including the intercept.
    parties : int
        Number of parties.
    """
    loss, regulariser = LOSSES[settings.loss](), REGULARISERS[settings.regulariser]()
    if algorithm is None:
        algorithm = "admm" if math.isfinite(loss.curvature + regulariser.curvature) else "iadmm"
    largest = loss.curvature * features / parties
    if algorithm == "admm":
        share = regulariser.strong_convexity * settings.beta / parties / largest
        alone = parties == 1
        return {
            "algorithm": (algorithm,),
            "rounds": MOST_ROUNDS,
            "rho": largest * (1e-6 if alone else math.sqrt(max(share, 1e-6))),
            "tolerance": 1e-8 if alone else 1e-6,  # one step among many need not be exact to the last digit
        }
    if algorithm == "iadmm" and math.isinf(loss.residual_bound):
        return {"algorithm": (algorithm,), "rho": largest, "eta": 1.0 / largest}
    return {"algorithm": (algorithm,)}


def in_user_units(w: Array, data: FitData) -> tuple[Array, Array]:
    """Return parameters of scaled features as coefficients [K, J] and constants [K] of the original features."""
    a, b = np.array([rule.scaling(SCALE) for rule in data.rules]).T
    scaled = w[: len(data.rules)]
    slopes, constants = a[:, None] * scaled, b @ scaled
    return slopes.T, constants + w[-1] if data.settings.intercept else constants
