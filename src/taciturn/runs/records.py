"""Typed records of a run: the lines of its ledger, its start, its metrics, its privacy totals and its summary.

Every record is a frozen dataclass and at the same time a read-only mapping with the keys of its JSON form (see
`Record`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from taciturn.errors import CorruptFile
from taciturn.privacy.events import Event
from taciturn.privacy.trust import AGENTS
from taciturn.runs.json_record import Record
from taciturn.runs.private_quality import PrivateQuality
from taciturn.runs.quality import Quality

# The data


@dataclass(frozen=True, kw_only=True)
class PublicFacts(Record):
    """The facts about the data that a certified run takes for public (see `taciturn.data.Facts`)."""

    name: str
    features: int  # J, with the intercept
    outputs: int  # K
    classes: bool  # whether the label is a class, else it is a number
    agents: int  # P
    total_records: int  # as declared
    records_max: int | Mapping[str, int]  # upper bound on the training records of any agent, or of each by name
    unit: str  # "record", or the name of the unit column
    max_records: int  # upper bound on the rows that a unit contributes at one agent
    published: bool  # whether the sizes are those of a published data set
    test: str  # "public", "held-out" or "none"
    features_by: str  # the feature map

    @property
    def largest(self) -> int:
        """The upper bound on the training records of any agent."""
        return self.records_max if isinstance(self.records_max, int) else max(self.records_max.values())


@dataclass(frozen=True, kw_only=True)
class DeclaredFacts(PublicFacts):
    """The public facts with the length bound of a record that follows from them."""

    bound: float


@dataclass(frozen=True, kw_only=True)
class SourceFacts(Record):
    """What a report must know of the data source of a study."""

    built_in: bool  # whether it is one of Taciturn's data sets, else a table
    draws_split: bool  # whether training and test records are drawn by the partition key
    unprotected: str = ""  # what no budget covers in this data set, in words
    weights: str | None = None  # which records count how much, in words


@dataclass(frozen=True, kw_only=True)
class TargetDescription(Record):
    """What a model predicts: one of `names`, or a number between `low` and `high`."""

    names: tuple[str, ...] | None = None
    low: float | None = None
    high: float | None = None

    @property
    def is_number(self) -> bool:
        """Whether the label is a number rather than a class."""
        return self.low is not None


@dataclass(frozen=True, kw_only=True)
class DataDescription(Record):
    """The data of a run in numbers: counted by the owner, or, in the public files of a certified run, as declared."""

    name: str
    agents: Mapping[str, int | None]  # training records by agent; None: not public
    records: int
    test_records: int | None  # None: not public
    features: int
    target: TargetDescription
    nonzero_share: float | None = None  # of the feature values
    classes: Mapping[str, int] | None = None
    test_classes: Mapping[str, int] | None = None
    bounds: tuple[float, ...] | None = None
    declared: DeclaredFacts | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # only for the owner of the records, as the notes are

    @property
    def is_declared(self) -> bool:
        """Whether the number of records was declared by the owners rather than counted or published."""
        return self.declared is not None and not self.declared.published and None in self.agents.values()


@dataclass(frozen=True, kw_only=True)
class StartRecord(Record):
    """The file `start.json`: what the run began with."""

    config: str  # SHA-256 of config.toml
    data: DataDescription
    records: str | None = None  # digest of the records; None: they are elsewhere
    reservation: str | None = None  # its name in the budget ledger; empty: none
    id: str | None = None  # of a run with fresh noise


# The ledger


@dataclass(frozen=True, kw_only=True)
class RunLabel(Record):
    """What distinguishes one run of a study from the others."""

    run: int  # index in the study
    algorithm: str
    epsilon: float  # as given: in total, or in mode paper for one local update
    seed: int | None = None  # None: its noise has no seed


@dataclass(frozen=True, kw_only=True)
class MethodFacts(Record):
    """The facts about an algorithm that statements and figures need, as they were when the run began."""

    noise_on: str  # gradients, hidden, uploads, samples or objectives
    scales_records: bool = field(metadata={"key": "bounded"})  # else the gradient of every record is clipped
    central: bool  # whether a trusted curator holds all records
    promise: str = "not recorded"  # its privacy guarantee in one line
    rounds: int | None = None  # its own number of rounds, where the settings do not decide
    counts_first: bool = False  # whether its first rounds release counts instead of gradients
    summary: str = ""  # what it is, in one line


@dataclass(frozen=True, kw_only=True)
class StudyHeader(Record):
    """The first line of a ledger: the settings and facts that give its events their meaning."""

    kind: ClassVar[str] = "study"

    taciturn: str  # version
    mode: str  # certified or paper
    noise: str  # hardened or seeded
    delta: float
    plugins: Mapping[str, str] | None = None  # SHA-256 by file name
    doubts: tuple[str, ...] | None = None
    mechanism: str | None = None  # from here to `public`: certified mode only
    adjacency: str | None = None
    clip: float | str | None = None
    clip_l1: float | str | None = None
    record_bound: float | str | None = None
    trust: str | None = None
    colluders: int | None = None
    missing: int | None = None
    sum_protocol: bool | None = None  # True: a protocol opened the sums; else a simulation adds them
    pooled_sums: bool | None = None  # True: the simulation drew the noise of all agents at once
    algorithm: tuple[str, ...] | None = None
    local_updates: int | str | None = None
    rounds: int | str | None = None
    methods: Mapping[str, MethodFacts] | None = None
    source: SourceFacts | None = None
    public: PublicFacts | None = None
    id: str | None = None

    @property
    def method_facts(self) -> Mapping[str, MethodFacts]:
        """The facts of every algorithm by name; empty in ledgers of earlier versions in mode paper."""
        return self.methods or {}

    @property
    def facts(self) -> PublicFacts:
        """The public facts of a certified study.

        Raises
        ------
        CorruptFile
            If the ledger of a certified study does not hold them.
        """
        if self.public is None:
            raise CorruptFile("the first line of the ledger is damaged: it has no public facts")
        return self.public

    @property
    def trust_model(self) -> str:
        """The trust model; ledgers of mode paper name none, which means that no one is trusted."""
        return self.trust or AGENTS

    @property
    def noise_on_sum(self) -> bool:
        """Whether the noise protects the sum over all agents rather than each upload."""
        return self.trust_model != AGENTS

    @property
    def central(self) -> tuple[str, ...]:
        """The algorithms that are references with a trusted curator."""
        return tuple(name for name, method in self.method_facts.items() if method.central)


@dataclass(frozen=True, kw_only=True)
class EventCount(Record):
    """A privacy event and how often it happens."""

    event: Event
    count: int


@dataclass(frozen=True, kw_only=True)
class PlanEntry(RunLabel):
    """A ledger line: what one run plans to spend at every agent."""

    kind: ClassVar[str] = "plan"

    total_epsilon: float  # the budget
    delta: float
    planned_epsilon: float  # of all planned events; at most the budget
    accountant: str
    rounds: int
    reserve: int | None = None  # uploads beyond the rounds that are planned too; None: none
    events: tuple[EventCount, ...]  # of training records
    evaluations: int | None = None  # private evaluations that are paid; None: none
    held_out: tuple[EventCount, ...] | None = None  # events of held-out records

    @property
    def charges(self) -> int:
        """The uploads of an agent that are planned: those of all rounds, and the reserve."""
        return self.rounds + (self.reserve or 0)


@dataclass(frozen=True, kw_only=True)
class ReleaseEntry(Record):
    """A ledger line: an event of one agent in one run, and how often it happened in rounds `first` to `last`.

    A release of training records depends on no held-out record, and the other way round.
    """

    kind: ClassVar[str] = "release"

    run: int
    agent: str
    event: Event
    count: int
    first: int
    last: int
    session: int  # counts the processes that worked on the run
    upload: str | None = None  # SHA-256 of the message, in the ledger of a federation's site
    slot: str | None = None  # "epoch/slot" of a secure sum, in a federation's ledgers
    held_out: bool | None = None  # True: a private evaluation, of held-out records alone; else of training records


@dataclass(frozen=True, kw_only=True)
class NonPrivateEntry(Record):
    """A ledger line: why the noise of an agent protects no one."""

    kind: ClassVar[str] = "non_private"

    agent: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ViolationEntry(Record):
    """The last line of a ledger whose run released something that its plan does not cover."""

    kind: ClassVar[str] = "violation"

    algorithm: str
    round: int | None = None
    reason: str


LedgerEntry: TypeAlias = StudyHeader | PlanEntry | ReleaseEntry | NonPrivateEntry | ViolationEntry
ENTRY_KINDS: Mapping[str, type[LedgerEntry]] = {
    entry.kind: entry for entry in (StudyHeader, PlanEntry, ReleaseEntry, NonPrivateEntry, ViolationEntry)
}


def ledger_entry(row: Mapping[str, object], source: object) -> LedgerEntry:
    """Return the typed record of a ledger line.

    Raises
    ------
    CorruptFile
        If the line has no known kind, or not what a line of its kind holds.
    """
    kind = str(row.get("kind"))
    if kind not in ENTRY_KINDS:
        raise CorruptFile(f"{source} is damaged: it has a line of the unknown kind {kind!r}")
    return ENTRY_KINDS[kind].from_json(row, source)


# Privacy totals


@dataclass(frozen=True, kw_only=True)
class AgentTotals(Record):
    """The privacy loss of one agent in one run."""

    agent: str
    epsilon: float  # at the delta of the run
    left: float  # of the plan
    pure_epsilon: float | None  # at delta 0; None: infinite
    by_delta: Mapping[str, float]  # epsilon by delta


@dataclass(frozen=True, kw_only=True)
class RunTotals(Record):
    """The privacy loss of one run: that of the agent which spent most, since a record is held by one agent."""

    run: int
    algorithm: str
    total_epsilon: float  # the budget
    planned_epsilon: float
    spent_epsilon: float
    accountant: str  # that gave `spent_epsilon`
    agents: tuple[AgentTotals, ...]  # empty before the first release

    @property
    def overspent(self) -> bool:
        """Whether the ledger adds up to more than the budget, beyond rounding."""
        return math.isfinite(self.total_epsilon) and self.spent_epsilon > self.total_epsilon * (1.0 + 1e-6)


@dataclass(frozen=True, kw_only=True)
class EventTotal(Record):
    """How often an event happened at one agent in one run."""

    run: int
    agent: str
    event: Event
    count: int
    held_out: bool | None = None  # whether it is of held-out records


@dataclass(frozen=True, kw_only=True)
class PrivacyTotals(Record):
    """The totals of a ledger."""

    mode: str
    noise: str
    non_private: str | None  # why its noise protects no one
    violation: str | None  # why nothing of it may be shown
    unit: str
    central: tuple[str, ...]  # algorithms with a trusted curator
    trust: str
    colluders: int
    missing: int = 0
    sum_protocol: bool = False  # whether a protocol opened the sums; else a simulation adds them
    delta: float
    total_records: int = 0  # as declared; 0: not known
    total_epsilon: float  # the largest of all runs
    planned_epsilon: float
    all_runs_epsilon: float  # for an observer of all runs
    agents: tuple[AgentTotals, ...]  # of each agent the run that cost it most
    events: tuple[EventTotal, ...]
    runs: tuple[RunTotals, ...]

    @property
    def noise_on_sum(self) -> bool:
        """Whether the noise protects the sum over all agents rather than each upload."""
        return self.trust != AGENTS

    @property
    def budgets(self) -> list[float]:
        """The finite budgets of the runs, in increasing order; empty where no noise was added."""
        return sorted({run.total_epsilon for run in self.runs if math.isfinite(run.total_epsilon)})


# Metrics and the summary


@dataclass(frozen=True, kw_only=True)
class MetricsRow(RunLabel):
    """A line of `metrics.jsonl`: one evaluated round of one run. None: not measured, or not public."""

    round: int
    test_error: float | None
    train_objective: float | None
    consensus_residual: float | None
    noise: float  # mean |xi|
    rho: float
    eta: float
    seconds: float | None  # of training so far
    bytes_up: int
    bytes_down: int


@dataclass(frozen=True, kw_only=True)
class EvaluationRow(RunLabel):
    """A line of `evaluations.jsonl`: one private evaluation of one run."""

    round: int
    agents: int  # how many agents are in the sum
    quality: PrivateQuality | None  # None: the sum was lost, and the budget pays for no other
    answered: tuple[str, ...] | None = None  # their names, in a federation
    slot: str | None = None  # "epoch/slot" of a secure sum


@dataclass(frozen=True, kw_only=True)
class RunResult(Record):
    """The result of one run: its last row of metrics, and the quality of its model."""

    algorithm: str
    epsilon: float
    seed: int | None = None
    test_error: float | None
    train_objective: float | None
    consensus_residual: float | None
    noise: float
    rho: float
    eta: float
    seconds: float | None
    bytes_up: int
    bytes_down: int
    rounds: int
    quality: Quality | None = None
    private_quality: PrivateQuality | None = None  # of the last private evaluation
    private_test: bool | None = None  # whether the test error is for the owner of the records only


@dataclass(frozen=True, kw_only=True)
class FederationNote(Record):
    """What the summary of a federated study says of its federation."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RunSummary(Record):
    """The file `summary.json`: the result of a study. `run` is the folder, where the summary is shown."""

    run: str | None = None
    taciturn: str  # version
    ended: str | None = None  # ISO 8601; None: for the owner of the records only
    mode: str
    privacy: PrivacyTotals
    data: DataDescription
    runs: tuple[RunResult, ...]
    federation: FederationNote | None = None
