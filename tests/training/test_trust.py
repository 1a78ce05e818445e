"""Trust models: how much noise each agent adds, what is planned and refused, and what is public in a run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taciturn
from taciturn.algorithms import ALGORITHMS
from taciturn.algorithms.gradient_descent import DpGd, DpSgd
from taciturn.algorithms.noisy_gradient import CertifiedGradient
from taciturn.core.storage import read_arrays
from taciturn.errors import InputError
from taciturn.planning.plan import StudyPlan, plan_study
from taciturn.planning.study import Study
from taciturn.privacy.events import Noise, Sampled
from taciturn.privacy.noise import SeededNoise
from taciturn.privacy.trust import noise_share
from taciturn.reporting.statements import guarantee
from taciturn.runs.folder import RunFolder
from taciturn.runs.ledger import RunLedger
from taciturn.settings import resolve
from taciturn.training.setup import plan_entries, study_header
from taciturn.types import Array, Classes, Dataset

CLINICS: dict[str, Any] = {
    "data": "tests/data/clinics/records.csv", "schema": "tests/data/clinics/schema.toml",
    "total_records": 600, "agents": 3,
    "noise": "seeded", "features": "none", "algorithm": "dpgd",
    "test_share": 0.25, "partition_key": 0, "rounds": 5,
}  # fmt: skip
DEALT = CLINICS | {"schema": "tests/data/clinics/without_agents.toml"}  # which names no agents
SUM, SERVER = {"trust": "secure-sum"}, {"trust": "server"}


def planned(**changes: Any) -> StudyPlan:
    return plan_study(resolve(CLINICS | {"algorithm": "dpgd"} | changes))


# ---- noise and charge


@pytest.mark.parametrize(
    ("changes", "enough"), [({}, 1), (SUM, 2), (SUM | {"colluders": 0}, 3), (SUM | {"colluders": 2}, 1), (SERVER, 3)]
)
def test_as_many_shares_as_are_honest_add_up_to_the_noise_that_is_charged(changes: dict[str, Any], enough: int) -> None:
    algorithm, plan = planned(**changes).parts[0].algorithm, planned().parts[0].plans[0]
    assert isinstance(algorithm, DpGd) and isinstance(algorithm.release, CertifiedGradient)
    mechanism, like = algorithm.release.mechanism, np.zeros((20_000, 1, 10))
    draws = [mechanism.draw(0, like, SeededNoise((1,), p, 1)) for p in range(enough)]
    assert isinstance(plan.event, Noise)
    assert np.std(sum(draw.xi for draw in draws)) == pytest.approx(plan.event.scale, rel=0.01)
    assert draws[0].event.runs == (plan.event,)
    assert mechanism.magnitude[0] == pytest.approx(np.abs(draws[0].xi).mean(), rel=0.01)


def test_samples_have_shares_too() -> None:
    made = planned(algorithm="dpsgd", **SUM).parts[0]
    event, algorithm, like = made.plans[0].event, made.algorithm, np.zeros((20_000, 1, 10))
    assert isinstance(algorithm, DpSgd) and isinstance(event, Sampled)
    xi = sum(algorithm.noise.xi(0, np.array([event.l2]), like, SeededNoise((1,), p, 1)) for p in range(2))
    assert np.std(xi) == pytest.approx(event.scale, rel=0.01)
    assert algorithm.event(np.array([event.l2])).runs == (event,)


@pytest.mark.parametrize("trust", ["secure-sum", "server"])
@pytest.mark.parametrize("name", ["dpgd", "objw", "dpsgd"])
def test_the_plan_is_that_of_one_release_of_the_sum_a_round(name: str, trust: str) -> None:
    assert (
        planned(algorithm=name, trust=trust).parts[0].plans[0].events
        == planned(algorithm=name).parts[0].plans[0].events
    )


def test_the_planner_accounts_for_shares() -> None:
    """The noise of the mean is sqrt(P) share sigma / I: less of it makes a longer path and a better verdict."""
    many = {"agents": 10, "total_records": 10_000, "rounds": 300, "algorithm": "dpgd"}
    apart, together = (taciturn.plan(**(DEALT | many | trust)) for trust in ({}, SUM))
    ratio = together.proposal.noise_to_signal / apart.proposal.noise_to_signal
    assert ratio == pytest.approx(noise_share("secure-sum", 10, 1)) == pytest.approx(1.0 / 3.0)
    assert together.proposal.eta == pytest.approx(apart.proposal.eta * 3.0)
    assert together.rounds_options[0].agent_noise == pytest.approx(apart.rounds_options[0].agent_noise / 3.0)
    assert together.rounds_options[0].noise_multiplier == apart.rounds_options[0].noise_multiplier


@pytest.mark.parametrize("rounds", [1, 7, 300])
def test_dpgd_covers_the_distance_of_objp(rounds: int) -> None:
    explicit, implicit = (planned(algorithm=name, rounds=rounds).parts[0] for name in ("dpgd", "objp"))
    eta, rho = (
        [float(schedule(t)[0, 0]) for t in range(1, rounds + 1)] for schedule in (implicit.eta, implicit.algorithm.rho)
    )
    steps = [1.0 / (r + 1.0 / e) for r, e in zip(rho, eta, strict=True)]
    assert math.fsum(float(explicit.eta(t)[0, 0]) for t in range(1, rounds + 1)) == pytest.approx(math.fsum(steps))


# ---- refusals


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (SUM | {"algorithm": "objp"}, "not proven to be enough for objp: .* use additive, dpgd, dpsgd, objw,"),
        (SERVER | {"algorithm": "dpgd,dp-fedavg"}, "for dp-fedavg: an agent.s state carries a record"),
        (SUM | {"algorithm": "iadmm", "total_epsilon": "inf"}, "not proven to be enough for iadmm"),
        (SUM | {"algorithm": "erm-outp"}, "erm-outp gives all records to one curator: use --trust server"),
        (SUM | {"set": "box"}, "set is box, but trust secure-sum needs all: a projection at an agent is not linear"),
        (SERVER | {"mechanism": "laplace"}, "mechanism is laplace, but trust server needs gaussian"),
        (SUM | {"server": "full"}, "server is full, but with trust secure-sum"),
        (SUM | {"colluders": 3}, "colluders is 3, but there are 3 agents"),
        (SUM | {"agents": 1, "schema": DEALT["schema"]}, "colluders is 1, but there is 1 agent"),
        (SUM | {"colluders": -1}, "colluders is -1"),
        ({"colluders": 2}, "colluders is 2, but trust is agents: it belongs to --trust secure-sum"),
        ({"trust": "nobody"}, "no trust 'nobody': there are agents, secure-sum, server"),
        (SUM | {"mode": "paper", "algorithm": "objp", "total_records": "auto"}, "--trust has no effect in --mode"),
    ],
)  # fmt: skip
def test_what_noise_on_the_sum_does_not_cover_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        planned(**changes)


def test_a_curator_may_be_the_trusted_server() -> None:
    given = {"algorithm": "erm-outp", "mechanism": "laplace"}
    assert planned(**SERVER, **given).parts[0].plans[0].events == planned(**given).parts[0].plans[0].events
    assert planned(**SERVER, server="full").settings.server == "full"
    assert not any(ALGORITHMS[name].allows_aggregate_noise and ALGORITHMS[name].central for name in ALGORITHMS)


# ---- what is said


def said(unit: str, **trust: Any) -> str:
    """What a statement says is not protected, and what it takes for public."""
    outlined = planned(**trust)
    facts = outlined.facts._replace(unit=unit, features_by="fourier")
    nobody = Dataset("clinics", (), (), None, (), Classes(("a",)))
    study = Study(outlined.settings, nobody, outlined.problem, outlined.parts, facts)
    ledger = RunLedger((study_header(study), *plan_entries(study)))
    found = guarantee(ledger.study, ledger.totals)
    return " ".join([*found.unprotected, *found.public])


def test_without_colluders_the_parties_themselves_are_not_covered() -> None:
    assert "Against the parties themselves" in said("record", **SUM, colluders=0)
    assert "Against the parties themselves" not in said("record", **SUM) + said("record", **SERVER)


@pytest.mark.parametrize(("trust", "words"), [({}, "is the sum"), (SUM, "in one sum"), (SERVER, "in one sum")])
def test_people_known_to_several_parties_are_mentioned(trust: dict[str, Any], words: str) -> None:
    text = said("patient", **trust)
    assert text.count("People with records at several parties") == 1 and words in text
    assert "the feature map fourier, which" in text


# ---- what anybody may see


class Shifted(SeededNoise):
    """The same noise in the sum, but two agents send other values."""

    by = 0.0

    def continuous(self, update: int, mechanism: str, scale: Array, like: Array) -> Array:
        return super().continuous(update, mechanism, scale, like) + {0: self.by, 1: -self.by}.get(self.agent, 0.0)


def trained(out: Path, shift: float, monkeypatch: pytest.MonkeyPatch, trust: str) -> RunFolder:
    monkeypatch.setattr(import_module("taciturn.training.loop"), "SeededNoise", Shifted)
    monkeypatch.setattr(Shifted, "by", shift)
    settings = CLINICS | {
        "algorithm": "dpgd,objw",
        "rounds": 3,
        "trust": trust,
        "averages": True,
        "out": str(out / "run"),
    }
    return taciturn.run(**settings).folder


OWNERS, FOR_GOING_ON = "local-only", "checkpoint"


def public_files(folder: RunFolder) -> list[str]:
    everything = (path.relative_to(folder.path) for path in folder.path.rglob("*") if path.is_file())
    return sorted(str(path) for path in everything if path.parts[0] not in (OWNERS, FOR_GOING_ON))


def figures(path: Path) -> Iterator[Any]:
    """Everything a file says, numbers as numbers; but for the chain of hashes."""
    if path.suffix == ".npz":
        arrays = read_arrays(path)
        yield list(arrays)
        yield from (array if array.dtype.kind == "f" else array.tolist() for array in arrays.values())
    elif path.suffix in (".json", ".jsonl"):
        yield from (leaf for line in path.read_text().splitlines() for leaf in leaves(json.loads(line)))
    elif path.name != "ledger.head":
        yield path.read_text()


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from () if key == "previous" else leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, float | np.ndarray) and isinstance(other, float | np.ndarray):
        return np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=1e-6, atol=1e-8)
    return bool(one == other)


def differing(first: RunFolder, second: RunFolder) -> list[str]:
    names = public_files(first)
    assert names == public_files(second)
    pairs = {name: (list(figures(first.path / name)), list(figures(second.path / name))) for name in names}
    return [name for name, (a, b) in pairs.items() if len(a) != len(b) or not all(map(alike, a, b))]


@pytest.mark.parametrize(
    ("trust", "telling"),
    [
        ("agents", ["averages.npz", "metrics.jsonl", "report.html", "summary.json"]),
        ("secure-sum", []),
        ("server", []),
    ],
)
def test_public_files_of_a_secure_sum_do_not_depend_on_single_uploads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trust: str, telling: list[str]
) -> None:
    """Two runs whose sums are the same and whose uploads are far apart."""
    first, second = (trained(tmp_path / str(shift), shift, monkeypatch, trust) for shift in (0.0, 1.0))
    assert differing(first, second) == telling
    owned, known = first.read_metrics(), first.read_metrics(local=False)
    assert all(row["consensus_residual"] > 0.0 for row in owned)
    assert {row["consensus_residual"] is None for row in known} == {trust != "agents"}
    assert ("z_smooth" in read_arrays(first.averages)) == (trust == "agents")
    assert dict(first.read_config())["trust"] == first.read_ledger()[0]["trust"] == trust
    assert first.read_summary()["privacy"]["trust"] == trust
