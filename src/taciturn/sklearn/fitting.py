"""A fit as a certified study of records in memory: planned, reserved in the ledger, trained and settled."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taciturn.data import Facts, apply_feature_map, schema_facts
from taciturn.data.assemble import RawRecords, assemble
from taciturn.data.feature_mapping import schema_shape
from taciturn.data.partition import Partition, Units, agent_names, limit_unit_rows, partition_by_name
from taciturn.data.schema import Unit
from taciturn.data.table_cells import Table, unit_name
from taciturn.errors import InputError
from taciturn.kernels.library import library
from taciturn.objectives import LOSSES, REGULARISERS
from taciturn.planning.plan import load_data, plan_from_facts
from taciturn.planning.study import Study
from taciturn.privacy.budget_state import BudgetState
from taciturn.settings import Settings, resolve
from taciturn.settings.rules import integer
from taciturn.sklearn.columns import Encoder, raw_rows
from taciturn.training.in_memory import TrainedModel, train_in_memory
from taciturn.training.record_ties import array_digest, warn_without_ledger
from taciturn.training.setup import reserve_plan
from taciturn.types import Dataset, Range, Target

TOLERANCE = 1e-6  # relative change below which a model counts as unchanged


class PrivacyUnits(NamedTuple):
    """The unit that a fit protects, and which rows belong to which."""

    rule: Unit
    of: NDArray[np.int32] | None  # [n] the unit of each row; None: identical rows are one record


@dataclass(frozen=True, eq=False)
class FitData:
    """The settings and records of a fit."""

    settings: Settings
    table: Table  # the cells of X
    labels: NDArray[Any]  # [n] class numbers, or values
    encoder: Encoder
    target: Target
    parties: Partition
    units: PrivacyUnits | None = None  # None: no privacy, so every row is used
    weights: NDArray[np.float64] | None = None  # [n] within [0, 1]

    @property
    def facts(self) -> Facts:
        """The public facts, which are all that the plan may use."""
        total = int(self.settings.total_records)
        return schema_facts(
            self.settings.name,
            replace(self.encoder.schema, target=self.target, unit=self.units and self.units.rule),
            intercept=self.settings.intercept,
            agents=len(self.parties.names),
            total_records=total,
            records_max=total,
            test="none",
            features=self.settings.features,
        )

    @cached_property
    def raw(self) -> NDArray[np.float64]:
        """The cells as numbers, [n, columns], by which records are told apart."""
        return raw_rows(self.table)

    @cached_property
    def used(self) -> Partition:
        """The rows of each party that are used: of each unit the first max_records."""
        if self.units is None:
            return self.parties
        of = identical_rows(self.raw, self.labels) if self.units.of is None else self.units.of
        return limit_unit_rows(self.parties, Units(self.units.rule, (), of))[0]

    @property
    def left_out(self) -> int:
        """The number of rows that are not used."""
        return sum(map(len, self.parties.records)) - sum(map(len, self.used.records))

    def dataset(self) -> Dataset:
        """Return the records, clipped to their bounds, encoded, mapped and partitioned."""
        labels, schema = self.labels, self.encoder.schema
        if isinstance(self.target, Range):
            labels = np.clip(labels, self.target.low, self.target.high)
        options = self.settings.data_options()
        records = RawRecords(self.encoder.encoded(self.table), labels, weights=self.weights)
        made = assemble(self.settings.name, options, records, self.used, features=schema.features, target=self.target)
        return apply_feature_map(made, options, schema_shape(schema))


def study_settings(given: Mapping[str, object]) -> Settings:
    """Return the settings of a study in memory; the planner chooses those that are None."""
    return resolve({"data": "table"} | {k: v for k, v in given.items() if v is not None})


def assign_parties(agents: Any, rows: int, declared: Sequence[str]) -> Partition:
    """Return which party holds which rows: the named ones, or a single one if `agents` is None.

    If the parties are declared, all of them exist, also those without rows, and all names are among them.
    """
    if agents is None:
        return Partition(agent_names(1), [np.arange(rows)])
    names, of = _encode_names("agents", "party", agents, rows)
    if declared:
        places = np.array([declared.index(name) for name in names], dtype=np.int32)
        return partition_by_name(list(declared), places[of])
    return partition_by_name(names, of)


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
    return PrivacyUnits(Unit(name, most), _encode_names("groups", "unit", groups, rows, unit_name)[1])


def _encode_names(
    what: str, kind: str, given: Any, rows: int, meaning: Callable[[str], str] = str
) -> tuple[list[str], NDArray[np.int32]]:
    """Return the distinct names, sorted, and the index of each row's name; `meaning`: what a text stands for."""
    named = np.asarray(given, dtype=object)
    if named.shape != (rows,):
        raise InputError(f"{what} has shape {named.shape}: it must name the {kind} of each of the {rows} records")
    if any(name is None or name != name for name in named):  # noqa: PLR0124  NaN differs from itself
        raise InputError(f"{what} has a missing value: every record needs its {kind}")
    texts, own = np.unique(named.astype(str), return_inverse=True)
    names, of = np.unique([meaning(str(text)) for text in texts], return_inverse=True)
    return [str(name) for name in names], of[own].astype(np.int32)


def identical_rows(x: NDArray[np.float64], labels: NDArray[Any]) -> NDArray[np.int32]:
    """Return a number for each row, equal for rows that agree in every bit, including the label, [n]."""
    rows = np.ascontiguousarray(np.column_stack([x, labels.astype(np.float64)]))
    as_bytes = rows.view(np.dtype((np.void, rows[0].nbytes)))[:, 0]
    return np.unique(as_bytes, return_inverse=True)[1].astype(np.int32)


def train(data: FitData) -> tuple[TrainedModel, BudgetState | None]:
    """Train a model within its budget.

    A failure before the first round returns the reservation to the ledger; a later one leaves the whole plan spent.

    Parameters
    ----------
    data : FitData
        Settings and records.

    Returns
    -------
    trained : TrainedModel
        The model and the ledger of the fit.
    account : BudgetState or None
        The state of the ledger over studies afterwards, if there is one.
    """
    plan = plan_from_facts(data.settings, data.facts)
    with reserve_plan(plan) if data.settings.ledger else nullcontext() as reservation:
        _check_total_records(data)
        study = load_data(plan, data.dataset())
        if reservation is not None:
            reservation.note_records(array_digest(data.raw, data.labels))
    if reservation is None:
        if data.settings.hardened:
            warn_without_ledger(lambda: array_digest(data.raw, data.labels))
        return _train_in_memory(study), None
    try:
        reservation.start()
        trained = _train_in_memory(study)
        reservation.budget.settle(reservation.name, trained.ledger.cost)
        return trained, reservation.budget.state()
    finally:
        reservation.release()


def _train_in_memory(study: Study) -> TrainedModel:
    """Train without the threads of matrix products, which wait busily: the compiled passes have their own."""
    with threadpool_limits(None if library() is None else 1, user_api="blas"):
        return train_in_memory(study, TOLERANCE)


def _check_total_records(data: FitData) -> None:
    total = int(data.settings.total_records)
    if max(map(len, data.used.records)) > total:
        raise InputError(
            f"total_records is {total}, but one party has more records: give a round number that is not below all"
        )


def reference_settings(settings: Settings, facts: Facts) -> Settings:
    """Return settings with the method of a fit without noise: the converged optimum, or ADMM if that is not smooth.

    ADMM takes the planner's steps, which assume bounded gradients; if they are not, steps of 1/L.
    """
    loss, regulariser = LOSSES[settings.loss](), REGULARISERS[settings.regulariser]()
    if math.isfinite(loss.curvature + regulariser.curvature):
        return replace(settings, algorithm=("optimum",))
    if math.isfinite(loss.residual_bound):
        return replace(settings, algorithm=("iadmm",))
    largest = loss.curvature * facts.bound**2 / facts.agents
    return replace(settings, algorithm=("iadmm",), rho=largest, eta=1.0 / largest)
