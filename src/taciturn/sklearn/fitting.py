"""Records in memory become a certified study: planned, set aside, trained and settled as any other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.data import Facts, Schema, schema_facts
from taciturn.data.assemble import RawRecords, assemble
from taciturn.data.partition import Agents, Units, agent_names, bound_units, by_column
from taciturn.data.schema import Numeric, Unit
from taciturn.errors import InputError
from taciturn.objectives import LOSSES, REGULARISERS
from taciturn.planning.plan import load_data, plan_from_facts
from taciturn.settings import Settings, resolve
from taciturn.settings.rules import integer
from taciturn.sklearn.declared import rules
from taciturn.training.in_memory import TrainedModel, train_in_memory
from taciturn.training.record_ties import array_digest, warn_without_ledger
from taciturn.training.setup import reserve_plan
from taciturn.types import Array, Dataset, Range, Target

SCALE = "symmetric"  # of a table's two: with noise it is the better one for features that are not mostly 0
ROUNDS_AT_MOST = 100  # of exact ADMM, which ends when its model rests
TOLERANCE = 1e-6  # of a model at rest


@dataclass(frozen=True, eq=False)
class Given:
    """A study and its records, as an estimator's `fit` has them."""

    settings: Settings
    x: NDArray[np.float64]  # [n, J] in the user's units
    labels: NDArray[Any]  # [n] class numbers, or values
    bounds: NDArray[np.float64]  # [J, 2]
    target: Target
    parties: Agents
    whose: Whose | None = None  # None: every row is used, as nobody is protected

    @cached_property
    def rules(self) -> tuple[Numeric, ...]:
        """How every feature is scaled, [J]."""
        return rules(self.bounds, self.settings.intercept)

    @property
    def facts(self) -> Facts:
        """All that the plan may know."""
        total = int(self.settings.total_records)
        return schema_facts(
            self.settings.name,
            Schema("label", self.target, self.rules, scale=SCALE, unit=self.whose and self.whose.rule),
            intercept=self.settings.intercept,
            agents=len(self.parties.names),
            total_records=total,
            records_max=total,
            test="none",
        )

    @cached_property
    def held(self) -> Agents:
        """The rows that are used: of each unit at a party the first max_records."""
        if self.whose is None:
            return self.parties
        of = alike(self.x, self.labels) if self.whose.of is None else self.whose.of
        return bound_units(self.parties, Units(self.whose.rule, (), of))[0]

    @property
    def left_out(self) -> int:
        """How many rows are not used."""
        return sum(map(len, self.parties.records)) - sum(map(len, self.held.records))

    def dataset(self) -> Dataset:
        """The records, scaled and dealt out; values beyond their bounds are clipped."""
        x = np.empty(self.x.shape)
        for j, rule in enumerate(self.rules):
            x[:, j] = rule.scaled(np.clip(self.x[:, j], *self.bounds[j]), SCALE)
        labels, names = self.labels, [rule.name for rule in self.rules]
        if isinstance(self.target, Range):
            labels = np.clip(labels, self.target.low, self.target.high)
        options = self.settings.data_options()
        records = RawRecords(x, labels)
        return assemble(self.settings.name, options, records, self.held, features=names, target=self.target)


def settings_of(given: Mapping[str, Any]) -> Settings:
    """The settings of a study in memory; those that are None are the planner's."""
    return resolve({"data": "table", "averages": False} | {k: v for k, v in given.items() if v is not None})


def parties(agents: Any, rows: int) -> Agents:
    """Who holds which row: one party, or those that are named."""
    if agents is None:
        return Agents(agent_names(1), [np.arange(rows)])
    names, of = _named("agents", "party", agents, rows)
    return by_column(names, of)


def _named(what: str, kind: str, given: Any, rows: int) -> tuple[list[str], NDArray[np.int32]]:
    """The different names in order, and each row's by its place among them."""
    named = np.asarray(given, dtype=object)
    if named.shape != (rows,):
        raise InputError(f"{what} has shape {named.shape}: it must name the {kind} of each of the {rows} records")
    if any(name is None or name != name for name in named):  # noqa: PLR0124  what is not a number differs from itself
        raise InputError(f"{what} has a missing value: every record needs its {kind}")
    names, of = np.unique(named.astype(str), return_inverse=True)
    return [str(name) for name in names], of.astype(np.int32)


class Whose(NamedTuple):
    """Whom a fit protects, and which rows are whose."""

    rule: Unit
    of: NDArray[np.int32] | None  # [n] each row's unit; None: identical rows are one record's


def whose_rows(groups: Any, rows: int, max_records: Any) -> Whose:
    """The units that `groups` names, by its own name where it has one; without it, rows tell by what they say."""
    most = integer(1)("max_records", max_records)
    if groups is None:
        return Whose(Unit("record", most), None)
    return Whose(Unit(str(getattr(groups, "name", None) or "group"), most), _named("groups", "unit", groups, rows)[1])


def alike(x: NDArray[np.float64], labels: NDArray[Any]) -> NDArray[np.int32]:
    """The same number for rows that are the same to the last bit, label included, [n]."""
    whole = np.ascontiguousarray(np.column_stack([x, labels.astype(np.float64)]))
    as_bytes = whole.view(np.dtype((np.void, whole[0].nbytes)))[:, 0]
    return np.unique(as_bytes, return_inverse=True)[1].astype(np.int32)


def train(given: Given) -> tuple[TrainedModel, dict[str, Any] | None]:
    """The model with its ledger, and the state of the ledger over studies afterwards, where there is one.

    What fails before the first round gives its reservation back; what fails later leaves the whole plan set aside.
    """
    plan = plan_from_facts(given.settings, given.facts)
    ledger = Path(given.settings.ledger) if given.settings.ledger else None
    with nullcontext() if ledger is None else reserve_plan(plan) as reservation:
        _check_sizes(given)
        study = load_data(plan, given.dataset())
        if reservation is not None:
            reservation.has_records(array_digest(given.x, given.labels))
    if reservation is None:
        if given.settings.noise == "hardened":
            warn_without_ledger(lambda: array_digest(given.x, given.labels))
        return train_in_memory(study, TOLERANCE), None
    try:
        reservation.start()
        trained = train_in_memory(study, TOLERANCE)
        reservation.account.settle(reservation.name, trained.ledger.cost())
        return trained, reservation.account.state()
    finally:
        reservation.release()


def without_noise(settings: Settings, asked: str | None, features: int, parties: int) -> dict[str, Any]:
    """What settles a run without noise soon: the method, unless one is asked for, and its steps.

    Exact ADMM, where it knows the problem, takes rho = sqrt(mu L): mu is the curvature that the regulariser alone
    gives, L the most that the records can; one party has nobody to agree with, and takes a small rho. Inexact ADMM
    takes the planner's steps, which are for bounded gradients, and 1/L where they are not bounded.
    """
    loss, regulariser = LOSSES[settings.loss](), REGULARISERS[settings.regulariser]()
    algorithm = asked or ("admm" if math.isfinite(loss.curvature + regulariser.curvature) else "iadmm")
    most = loss.curvature * features / parties
    if algorithm == "admm":
        share = regulariser.strong_convexity * settings.beta / parties / most
        alone = parties == 1
        rho = most * (1e-6 if alone else math.sqrt(max(share, 1e-6)))
        return {
            "algorithm": (algorithm,),
            "rounds": ROUNDS_AT_MOST,
            "rho": rho,
            "tolerance": 1e-8 if alone else 1e-6,  # a step among many need not be exact to the last digit
        }
    if algorithm == "iadmm" and math.isinf(loss.residual_bound):
        return {"algorithm": (algorithm,), "rho": most, "eta": 1.0 / most}
    return {"algorithm": (algorithm,)}


def in_user_units(w: Array, given: Given) -> tuple[Array, Array]:
    """Parameters of scaled features as coefficients [K, J] and constants [K] of the features as they were."""
    a, b = np.array([rule.scaling(SCALE) for rule in given.rules]).T
    scaled = w[: len(given.rules)]
    slopes, constants = a[:, None] * scaled, b @ scaled
    return slopes.T, constants + w[-1] if given.settings.intercept else constants


def _check_sizes(given: Given) -> None:
    total = int(given.settings.total_records)
    if max(map(len, given.held.records)) > total:
        raise InputError(
            f"total_records is {total}, and a party alone has more: give a round number that is at least all records"
        )
