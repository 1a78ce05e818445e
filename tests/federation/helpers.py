"""A tiny federation on disk, and a message exchange that is a function call."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from taciturn.core.storage import read_arrays
from taciturn.federation import messages as wire
from taciturn.federation.agent import SiteAgent
from taciturn.federation.agreement import Agreement, derive_agreement, load_site_dataset
from taciturn.federation.coordinator import FINISHED, Coordinator
from taciturn.federation.coordinator_process import begin_study, open_study
from taciturn.federation.journal import Journal
from taciturn.federation.local_cluster import replay
from taciturn.federation.messages import (
    Answer,
    Closed,
    CloseRequest,
    Invitation,
    Question,
    Ready,
    Refusal,
    Reply,
    RoundRequest,
)
from taciturn.federation.policy import Site, read_site
from taciturn.federation.run_folder import read_rounds
from taciturn.federation.site_session import study_folder
from taciturn.federation.sum_coordinator import SumCoordinator
from taciturn.federation.terms import Terms, read_terms
from taciturn.federation.upload_coordinator import UploadCoordinator
from taciturn.privacy.budget import BudgetLedger
from taciturn.runs.folder import RunFolder
from taciturn.runs.records import ReleaseEntry
from taciturn.types import Array, Shard
from tests.data.helpers import schema_text

SITES = ("north", "south", "west")
SEED = 7
LIMIT = 1 << 20
EXPERIMENT = "0123456789abcdef0123456789abcdef"
SCHEMA = schema_text("ill", ["no", "yes"], age=[0, 100], weight=[0, 200])
STUDY: dict[str, Any] = {
    "schema": "schema.toml", "total_records": 60, "algorithm": "objp", "rounds": 4, "total_epsilon": 1.0,
    "noise_multiplier": 20.0, "precision": "float64", "features": "none",
}  # fmt: skip
TERMS: dict[str, Any] = {
    "protocol": 1, "name": "tiny", "server": {"host": "localhost"}, "sites": dict.fromkeys(SITES, 20), "study": STUDY,
    "running": {"quorum": 2},
}  # fmt: skip
ACCEPT: dict[str, Any] = {
    "study_epsilon_max": 1.0, "delta_max": 1e-6, "mechanisms": ["gaussian"], "adjacency": ["add-remove"],
    "algorithms": ["objp"], "rounds_max": 100,
}  # fmt: skip


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested settings; values of `second` win, and None removes a key."""
    found = dict(first)
    for key, value in second.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(found.get(key), Mapping):
            found[key] = merged(found[key], value)
        else:
            found[key] = value
    return found


def write_toml(path: Path, content: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tomli_w.dumps(dict(content)), encoding="utf-8")
    return path


def write_terms(folder: Path, changes: Mapping[str, Any] | None = None) -> Path:
    """Write federation.toml and its schema."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schema.toml").write_text(SCHEMA)
    return write_toml(folder / "federation.toml", merged(TERMS, changes or {}))


def write_table(path: Path, seed: int, rows: int = 12) -> Path:
    """Write a table of patients; older and heavier ones are ill more often."""
    rng = np.random.default_rng(seed)
    lines = ["age,weight,ill"]
    for _ in range(rows):
        age, weight = rng.integers(20, 90), rng.integers(40, 160)
        lines.append(f"{age},{weight},{'yes' if age + weight / 2 + rng.normal(0, 15) > 105 else 'no'}")
    path.write_text("\n".join(lines) + "\n")
    return path


def site_settings(name: str, schema_sha256: str) -> dict[str, Any]:
    """Return the content of a site's site.toml."""
    declared = {"schema_sha256": schema_sha256, "total_records": 60, "records_max": 20}
    return {
        "protocol": 1,
        "site": name,
        "data": {"table": "table.csv", "schema": "schema.toml", **declared},
        "budget": {"ledger": "patients.ledger"},
        "accept": ACCEPT,
    }


@dataclass
class Federation:
    """The files of a federation: the coordinator's in `root`, and each site's in a folder of its name."""

    root: Path

    @property
    def terms(self) -> Terms:
        return read_terms(self.root / "federation.toml")

    @cached_property
    def agreement(self) -> Agreement:
        return derive_agreement(self.terms)

    @property
    def run(self) -> RunFolder:
        return RunFolder.open(self.root / "run")

    def file(self, site: str) -> Path:
        return self.root / site / "site.toml"

    def site(self, site: str) -> Site:
        return read_site(self.file(site))

    def change(self, site: str, changes: Mapping[str, Any]) -> None:
        """Rewrite a site's site.toml with changes."""
        write_toml(self.file(site), merged(site_settings(site, self.terms.schema_sha256), changes))

    def account(self, site: str) -> BudgetLedger:
        return BudgetLedger.open(self.site(site).ledger)

    def folder(self, site: str, experiment: str = EXPERIMENT) -> RunFolder:
        """Return the study's run folder at a site."""
        return RunFolder.open(study_folder(self.site(site), experiment))

    def released(self, site: str, experiment: str = EXPERIMENT) -> list[ReleaseEntry]:
        """Return the release entries of the study's ledger at a site."""
        return self.folder(site, experiment).read_ledger().releases

    def shards(self) -> list[Shard]:
        return [load_site_dataset(self.site(site), self.agreement).train[0] for site in self.terms.agents]

    def held_out(self) -> list[Shard]:
        """Return the records that the sites hold out for evaluations."""
        datasets = (load_site_dataset(self.site(site), self.agreement) for site in self.terms.agents)
        return [dataset.held_out_shards[0] for dataset in datasets]

    def journal(self, site: str) -> Any:
        return Journal.read(self.site(site).state)

    def opened(self, without: Sequence[str] = ()) -> Coordinator:
        """Begin or resume the study."""
        return open_study(begin_study(self.terms, self.root / "run"), without)

    def coordinator(self) -> UploadCoordinator:
        return uploading(self.opened())

    @contextmanager
    def agent(self, site: str, seed: int | None = SEED) -> Iterator[SiteAgent]:
        """Run a site's agent for the block."""
        with Journal.open(self.site(site).state, patience=0.0) as journal:
            agent = SiteAgent(self.file(site), journal, seed)
            yield agent
            agent._session = None  # which holds the study's reservation

    @contextmanager
    def agents(self, seed: int | None = SEED) -> Iterator[dict[str, SiteAgent]]:
        with ExitStack() as stack:
            yield {site: stack.enter_context(self.agent(site, seed)) for site in self.terms.agents}


def make_federation(
    root: Path,
    changes: Mapping[str, Any] | None = None,
    accept: Mapping[str, Any] | None = None,
    epsilon: float = 3.0,
    only: Sequence[str] = SITES,
) -> Federation:
    """Create three sites, or only some of them, with tables, ledgers of a total epsilon, and files."""
    write_terms(root, changes)
    found = Federation(root)
    for number, site in enumerate(only):
        home = root / site
        home.mkdir()
        for name in ("federation.toml", "schema.toml"):
            shutil.copy(root / name, home)
        write_table(home / "table.csv", number)
        BudgetLedger.create(home / "patients.ledger", site, epsilon, 1e-6)
        found.change(site, {"accept": accept or {}})
    return found


def ask(agent: SiteAgent, message: Question) -> Reply:
    """Return a site's reply to a message."""
    return wire.decode_reply(agent.answer(wire.encode(message)), LIMIT)


def invite(agent: SiteAgent, federation: Federation, experiment: str = EXPERIMENT) -> Ready | Refusal:
    found = ask(agent, Invitation(experiment, federation.terms.digest))
    assert isinstance(found, (Ready, Refusal))
    return found


def question(federation: Federation, t: int, base: int | None = None, shift: float = 0.0) -> RoundRequest:
    """Return the request of round t for every site, by default from the previous round, with its own w."""
    w = federation.agreement.zero + 0.01 * t + shift
    return RoundRequest(EXPERIMENT, t, dict.fromkeys(SITES, t - 1 if base is None else base), w)


def answered(agent: SiteAgent, message: RoundRequest) -> Answer:
    found = ask(agent, message)
    assert isinstance(found, Answer), found
    return found


def refused(agent: SiteAgent, message: Question) -> str:
    found = ask(agent, message)
    assert isinstance(found, Refusal), found
    return found.reason


def closed(agent: SiteAgent, federation: Federation, t: int) -> Reply:
    found = ask(agent, CloseRequest(EXPERIMENT, t, federation.agreement.zero))
    assert isinstance(found, (Closed, Refusal))
    return found


Fault = Callable[[str, Question], str]
"""Which message of a site is lost: "question", "answer", or "" for none."""


@dataclass
class Local:
    """An exchange in one process that can lose messages or replace a site's bytes."""

    agents: Mapping[str, SiteAgent]
    fault: Fault = lambda site, message: ""
    forge: Callable[[str, Question, bytes], bytes] = lambda site, message, data: data
    asked: list[tuple[Question, tuple[str, ...]]] = field(default_factory=list)
    left: dict[str, list[bytes]] = field(default_factory=dict)  # what every site's agent returned

    since: Counter[str] = field(default_factory=Counter)  # one more: the site has connected again
    _replies: dict[str, bytes | None] = field(default_factory=dict)

    def connected(self) -> Mapping[str, float]:
        return {site: float(self.since[site]) for site in self.agents}

    def invite(self, data: bytes, site: str, seconds: float) -> None:
        self._replies[site] = self.request({site: data}, seconds).get(site)

    def invitation_replies(self) -> Mapping[str, bytes | None]:
        found, self._replies = self._replies, {}
        return found

    def set_version(self, site: str, version: int) -> None:
        """Ignore the version: there is no envelope here."""

    def wait(self, seconds: float) -> bool:
        return False

    def request(self, questions: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        for data in dict.fromkeys(questions.values()):
            receivers = tuple(site for site, sent in questions.items() if sent == data)
            self.asked.append((wire.decode_question(data, LIMIT), receivers))
        replies = {}
        for site, data in questions.items():
            message = wire.decode_question(data, LIMIT)
            lost = self.fault(site, message)
            if lost == "question":
                continue
            answer = self.agents[site].answer(data)
            self.left.setdefault(site, []).append(answer)
            if not lost:
                replies[site] = self.forge(site, message, answer)
        return replies


def keep_open(site: str, message: Question) -> str:
    """Lose every close request, so that tests can inspect the states of the sites."""
    return "question" if isinstance(message, CloseRequest) else ""


def uploading(coordinator: Coordinator) -> UploadCoordinator:
    """Return the coordinator of a study in which every site adds the whole noise."""
    assert isinstance(coordinator, UploadCoordinator)
    return coordinator


def conducted(coordinator: Coordinator, exchange: Local, tries: int = 100) -> str:
    """Run a study until it is finished, and return the last outcome."""
    found = ""
    for _ in range(tries):
        found = coordinator.run(exchange)
        if found == FINISHED:
            break
    return found


def participation(folder: RunFolder) -> list[list[str]]:
    """Return the sites that answered in each round of a study."""
    return [line.answered for line in read_rounds(folder)]


def check_like_replay(federation: Federation, coordinator: UploadCoordinator | SumCoordinator) -> None:
    """Check that model, duals and evaluations equal those of the same study in one process bit for bit."""
    folder = coordinator.folder
    own, rows = federation.shards(), folder.read_evaluations()
    once = replay(federation.agreement, own, SEED, read_rounds(folder), federation.held_out(), rows)
    assert list(once.evaluations) == rows
    assert coordinator.state.w.tobytes() == once.w.tobytes()
    assert coordinator.state.server.lam.tobytes() == once.lam.tobytes()


def check_duals(federation: Federation, coordinator: UploadCoordinator) -> None:
    """Check that both copies of every dual are equal bit for bit; a method with statistics has no duals."""
    if coordinator.state.server.statistics is not None:
        return
    assert site_duals(federation, coordinator).tobytes() == server_duals(federation).tobytes()
    assert server_duals(federation).tobytes() == coordinator.state.server.lam.tobytes()


def check_covered(federation: Federation, exchange: Local, experiment: str) -> None:
    """Check that every upload is charged once in the site's ledger, and in the coordinator's."""
    expected = [(e["agent"], e["first"]) for e in federation.run.read_ledger() if e["kind"] == "release"]
    assert len(set(expected)) == len(expected)
    for site, left in exchange.left.items():
        messages = [(wire.decode_reply(data, LIMIT), wire.digest(data)) for data in left]
        uploads = {(found.round, name) for found, name in messages if isinstance(found, Answer)}
        charged = [(row["first"], row["upload"]) for row in federation.released(site, experiment)] if uploads else []
        assert uploads <= set(charged) and len(charged) == len({t for t, _ in charged})
        assert {(site, t) for t, _ in charged} <= set(expected)


def site_duals(federation: Federation, coordinator: UploadCoordinator) -> Array:
    """Return the sites' copies of their duals after the rounds that the server accepted, [P, J, 1, K]."""
    zero, kept = federation.agreement.zero, []
    for site, base in zip(federation.terms.agents, coordinator.state.bases, strict=True):
        with federation.journal(site) as journal:
            state = journal.agent_state(coordinator.experiment, base, zero)
        assert state is not None, f"{site} has no state after round {base}"
        kept.append(state.lam)
    return np.stack(kept)


def server_duals(federation: Federation) -> Array:
    """Return the server's copies of the duals from its checkpoint."""
    name = federation.agreement.part.batch.algorithm
    return read_arrays(federation.run.checkpoints / f"{name}.npz")["server_lam"]
