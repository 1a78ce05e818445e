"""Only uploads that records and noise within the terms can produce count; one bad site cannot end a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from taciturn.algorithms import Agent
from taciturn.algorithms.additive import Additive
from taciturn.algorithms.noisy_gradient import HardenedGradient, ReleasedGradient
from taciturn.core.storage import read_arrays, write_arrays
from taciturn.errors import CorruptFile, InputError, TrainingDiverged
from taciturn.federation import messages as wire
from taciturn.federation import server_state, validation
from taciturn.federation.agent import SiteAgent
from taciturn.federation.coordinator import FINISHED, MAX_BAD_ANSWERS, site_events_path
from taciturn.federation.messages import Answer, Question, RoundRequest
from taciturn.federation.upload_coordinator import UploadCoordinator
from taciturn.federation.validation import Iterate, Reach, Rejected, check_reach, compute_reach, gradient_norm_bound
from taciturn.objectives.clipping import LARGEST_PARAMETER
from taciturn.privacy.events import NON_PRIVATE
from taciturn.privacy.mechanisms import Calibrated
from taciturn.privacy.noise import SYSTEM_NOISE
from taciturn.runs.folder import read_lines
from taciturn.types import Array, Shard
from tests.federation.helpers import LIMIT, SITES, Federation, Local, conducted, keep_open, make_federation, uploading

METHODS: list[dict[str, Any]] = [
    {"algorithm": "dpgd"},
    {"algorithm": "objw"},
    {"algorithm": "objp"},
    {"algorithm": "objp", "regulariser": "l1", "beta": 0.1},
    {"algorithm": "objp", "set": "box", "set_size": 0.5, "precision": "float32"},
    {"algorithm": "objpm", "local_updates": 4},
    {"algorithm": "objpm", "local_updates": 3, "regulariser": "l1", "beta": 0.1, "set": "l2-ball", "set_size": 2.0},
    {"algorithm": "objpm", "local_updates": 3, "mechanism": "laplace"},
    {"algorithm": "objpm", "local_updates": 10, "regulariser": "l2", "beta": 3.3, "eta": 1.0},
    {"algorithm": "objt"},
    {"algorithm": "additive", "features": "bins"},
    {"algorithm": "additive", "features": "bins", "regulariser": "l2", "beta": 0.1},
]
ACCEPT = {"algorithms": ["additive", "dpgd", "objw", "objp", "objpm", "objt"], "mechanisms": ["gaussian", "laplace"]}


@pytest.fixture
def agents(federation: Federation) -> Iterator[dict[str, SiteAgent]]:
    with federation.agents(None) as found:
        yield found


class Pushed:
    """A release whose gradient always has the largest possible norm."""

    def __init__(self, release: Any, numbers: int, rng: np.random.Generator) -> None:
        self.release, self.numbers, self.rng = release, numbers, rng
        self.mechanism = release.mechanism

    def __call__(self, update: int, problem: Any, z: Array, shard: Any, noise: Any) -> ReleasedGradient:
        way = self.rng.normal(size=z.shape) if self.rng.random() < 0.5 else np.ones(z.shape)
        push = gradient_norm_bound(self.release, problem, self.numbers) * way / np.linalg.norm(way)
        return ReleasedGradient(
            (problem.shrinkage(z) + push).astype(z.dtype), self.release.mechanism.event, np.zeros(1)
        )


@pytest.mark.parametrize("study", METHODS)
def test_the_most_extreme_honest_site_stays_within_its_reach(tmp_path: Path, study: dict[str, Any]) -> None:
    """Over ten rounds with gradients of the largest norm, uploads come close to the bound."""
    agreement = make_federation(tmp_path, {"study": {"noise_multiplier": 100.0, **study}}, ACCEPT).agreement
    rng, algorithm, zero = np.random.default_rng(1), agreement.algorithm, agreement.zero
    honest: Any = replace(algorithm, release=Pushed(algorithm.release, zero.size, rng))  # type: ignore[type-var,attr-defined]
    agent, start, shares = Agent(zero, zero), Iterate(zero, 0.0), []
    shard = Shard(np.zeros((0, len(zero)), zero.dtype), np.zeros(0))
    for t in range(1, 11):
        w = (agent.z + rng.normal(size=zero.shape)).astype(zero.dtype)
        expected = compute_reach(algorithm, t, w, agent.lam, start)
        step = honest.agent_step(t, w, agent, shard, SYSTEM_NOISE)
        check_reach(step.upload.z, expected)
        shares.append(np.linalg.norm(step.upload.z - expected.z) / expected.radius)
        agent = step.agent
        start = expected.after if algorithm.iterates_sent > 1 else Iterate(step.upload.z, 0.0)
    assert study.get("set") or study["algorithm"] == "objt" or max(shares) > 0.03  # a bound that means something


def test_the_first_step_of_an_additive_model_is_from_where_the_counts_put_it(tmp_path: Path) -> None:
    study = {"algorithm": "additive", "features": "bins", "noise_multiplier": 100.0}
    agreement = make_federation(tmp_path, {"study": study}, ACCEPT).agreement
    algorithm, zero = cast(Additive, agreement.algorithm), agreement.zero
    release = replace(cast(HardenedGradient, algorithm.release), mechanism=Calibrated("gaussian", (NON_PRIVATE,)))
    algorithm = replace(algorithm, release=release)
    t = algorithm.counting + 1
    w = np.full_like(zero, 1e-3)
    w[-1] = 0.3 * algorithm._intercept_unit(w) / algorithm.problem.agents / 2.0  # one class is 0.3 larger
    found = compute_reach(algorithm, t, w, zero, Iterate(zero, 0.0))
    point = algorithm.gradient_point(t, w)
    assert np.linalg.norm(point) > 0.25 and np.linalg.norm(found.z - point) < 1e-3


@pytest.mark.parametrize("study", METHODS)
def test_honest_sites_are_never_turned_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study: Any) -> None:
    """Hardened noise is far from its largest norm."""
    federation = make_federation(tmp_path, {"study": {"noise_multiplier": 100.0, **study}}, ACCEPT)
    assert federation.agreement.part.rounds == 4
    shares: list[float] = []

    def noted(z: Array, expected: Reach) -> None:
        shares.append(float(np.linalg.norm(z - expected.z)) / expected.radius)
        check_reach(z, expected)

    monkeypatch.setattr(validation, "check_reach", noted)
    with federation.agents(None) as agents:
        made = federation.coordinator()
        assert made.run(Local(agents, keep_open)) == FINISHED
    assert len(shares) == 12 and max(shares) < 0.5


def test_steps_that_take_a_model_beyond_all_bounds_are_called_so(tmp_path: Path) -> None:
    steep = {"algorithm": "objpm", "local_updates": 10, "regulariser": "l2", "beta": 50.0, "eta": 1.0}
    federation = make_federation(tmp_path, {"study": {"noise_multiplier": 100.0, **steep}}, ACCEPT)
    with federation.agents(None) as agents, pytest.raises(TrainingDiverged, match=r"round 1 .* choose a smaller eta"):
        federation.coordinator().run(Local(agents, keep_open))
    assert federation.coordinator().state.round == 0  # nothing of it was saved


def forging(forged: Callable[[Answer], Array]) -> Any:
    def forge(site: str, message: Question, data: bytes) -> bytes:
        found = wire.decode_reply(data, LIMIT)
        if site != "west" or not isinstance(found, Answer):
            return data
        with np.errstate(all="ignore"):
            return wire.encode(found._replace(z=np.asarray(forged(found), found.z.dtype)))

    return forge


SIGNS = np.array([[[1.0, -1.0]], [[-1.0, 1.0]], [[1.0, 1.0]]])
HOSTILE: dict[str, Callable[[Answer], Array]] = {
    "1.7e308": lambda a: a.z * 0.0 + 1.7e308,
    "-1.7e308": lambda a: a.z * 0.0 - 1.7e308,
    "mixed": lambda a: SIGNS * 1.7e308,
    "1e150": lambda a: a.z * 0.0 + 1e150,
    "1e5": lambda a: a.z + 1e5,
    "nan": lambda a: a.z * np.nan,
    "one nan": lambda a: np.where(SIGNS > 0.0, a.z, np.nan),
    "inf": lambda a: a.z + np.inf,
}


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [("objp", kind) for kind in HOSTILE] + [("dpgd", "1e5"), ("objw", "mixed"), ("objpm", "1e150")],
)
def test_a_hostile_site_ends_no_study(tmp_path: Path, kind: str, algorithm: str) -> None:
    several = {"local_updates": 3, "noise_multiplier": 40.0} if algorithm == "objpm" else {}
    federation = make_federation(tmp_path, {"study": {"algorithm": algorithm, **several}}, ACCEPT)
    with federation.agents(None) as agents:
        study, exchange = federation.coordinator(), Local(agents, keep_open, forging(HOSTILE[kind]))
        assert study.run(exchange) == FINISHED
    rows = list(read_lines(study.folder.path / "rounds.jsonl"))
    assert [row["answered"] for row in rows] == [["north", "south"]] * 4
    assert [sorted(row["rejected"]) for row in rows] == [["west"]] * MAX_BAD_ANSWERS + [[]]
    assert np.abs(study.state.w).max() < 100.0 and np.isfinite(study.state.server.lam).all()
    assert not study.state.server.z[2].any()  # nothing of west's was taken


def test_a_site_at_the_edge_of_its_reach_does_not_take_the_model_away(tmp_path: Path) -> None:
    """All pushes have one direction, alternate, or are random: each counts, and the study ends with ordinary values."""
    rng = np.random.default_rng(3)
    patterns: list[Callable[[int], Array]] = [
        lambda t: np.ones((3, 1, 2)),
        lambda t: SIGNS * (-1.0) ** t,
        lambda t: rng.choice([-1.0, 1.0], (3, 1, 2)),
    ]
    sizes = []
    for number, pattern in enumerate(patterns):
        federation = make_federation(tmp_path / str(number), {"study": {"rounds": 12, "noise_multiplier": 40.0}})
        with federation.agents(None) as agents:
            study = federation.coordinator()

            def forge(site: str, message: Question, data: bytes, study: Any = study, pattern: Any = pattern) -> bytes:
                found = wire.decode_reply(data, LIMIT)
                if site != "west" or not isinstance(found, Answer) or not isinstance(message, RoundRequest):
                    return data
                expected = study._reach("west", message.round, message.w)
                way = pattern(message.round)
                push = 0.999 * expected.radius * way / np.linalg.norm(way)
                return wire.encode(found._replace(z=expected.z + push))

            exchange = Local(agents, keep_open, forge)
            assert study.run(exchange) == FINISHED
        assert all(row["answered"] == list(SITES) for row in read_lines(study.folder.path / "rounds.jsonl"))
        radius = study._reach("north", 12, study.state.w).radius
        sizes.append(float(np.abs(study.state.w).max()) / radius)
    assert max(sizes) < 24.0  # it adds up as the gradients of an honest site do that has such records


def test_a_model_beyond_all_bounds_is_not_saved(
    federation: Federation, agents: dict[str, SiteAgent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new w is checked before it is saved, even if nothing is known about the algorithm."""
    saved: list[float] = []
    real = server_state.save_state

    def save(folder: Any, name: str, state: Any) -> None:
        saved.append(max(float(np.abs(of).max()) for of in (state.w, state.server.z, state.server.lam)))
        real(folder, name, state)

    monkeypatch.setattr(validation, "compute_reach", lambda a, t, w, lam, start: Reach(w, np.inf, start))
    monkeypatch.setattr(validation, "check_reach", lambda z, expected: None)
    monkeypatch.setattr(server_state, "save_state", save)
    study = federation.coordinator()
    assert study.run(Local(agents, keep_open, forging(HOSTILE["1.7e308"]))) == FINISHED
    assert max(saved) < 1e3
    rejected = [line for line in read_lines(site_events_path(study.folder)) if line["event"] == "rejected"]
    assert [line["site"] for line in rejected] == ["west"] and "largest admissible" in rejected[0]["reason"]


def test_a_hostile_site_ends_no_study_while_another_is_missing(
    federation: Federation, agents: dict[str, SiteAgent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too few sites are left in that round, so it is repeated, and the study continues."""
    monkeypatch.setattr(validation, "compute_reach", lambda a, t, w, lam, start: Reach(w, np.inf, start))
    monkeypatch.setattr(validation, "check_reach", lambda z, expected: None)
    lost: list[str] = []

    def fault(site: str, message: Question) -> str:
        if site == "south" and isinstance(message, RoundRequest) and not lost:
            lost.append(site)
            return "question"
        return keep_open(site, message)

    study = federation.coordinator()
    exchange = Local(agents, fault, forging(HOSTILE["1.7e308"]))
    assert conducted(study, exchange) == FINISHED and lost
    assert np.abs(study.state.w).max() < 1e3


def test_an_upload_of_an_unknown_method_is_bounded_like_any_w() -> None:
    zero = np.zeros((3, 1, 2))
    unknown = compute_reach(object(), 1, zero, zero, Iterate(zero, 0.0))  # type: ignore[arg-type]
    check_reach(zero + LARGEST_PARAMETER, unknown)
    for z in (zero + 2.0 * LARGEST_PARAMETER, zero + np.nan, zero - np.inf):
        with pytest.raises(Rejected, match="larger than any model needs"):
            check_reach(z, unknown)


# ---- going on without a site


def without(federation: Federation, *sites: str) -> UploadCoordinator:
    return uploading(federation.opened(sites))


def stop_after(study: UploadCoordinator, rounds: int) -> Any:
    def fault(site: str, message: Question) -> str:
        if isinstance(message, RoundRequest) and message.round > rounds:
            return "question"
        return keep_open(site, message)

    return fault


def test_a_study_continues_without_a_site(federation: Federation, agents: dict[str, SiteAgent]) -> None:
    study = federation.coordinator()
    study.run(Local(agents, stop_after(study, 2)))
    before = study.state
    study = without(federation, "west")
    assert study.agents == ("north", "south") and study.state.round == 2
    rho = study.agreement.algorithm.rho(3)
    rest = [before.server.z[p] - before.server.lam[p] / rho for p in (0, 1)]
    assert np.allclose(study.state.w, sum(rest) / 2.0)  # line 5 over those that are left
    exchange = Local(agents, keep_open)
    assert study.run(exchange) == FINISHED
    assert {site for message, sites in exchange.asked for site in sites} == {"north", "south"}
    rows = list(read_lines(study.folder.path / "rounds.jsonl"))
    assert [row["answered"] for row in rows] == [list(SITES)] * 2 + [["north", "south"]] * 2
    assert [row["missing"] for row in rows[2:]] == [[], []]
    assert any("Left out by the coordinator: west" in line for line in study._report_lines())
    assert study.folder.read_json("federation.json")["without"] == ["west"]
    notes = [line for line in read_lines(site_events_path(study.folder)) if line["event"] == "left out"]
    assert [(line["site"], line["round"]) for line in notes] == [("west", 2)]
    with pytest.raises(InputError, match="has ended"):
        without(federation, "south")


def test_a_site_that_was_left_out_stays_out(federation: Federation, agents: dict[str, SiteAgent]) -> None:
    study = without(federation, "west", "west")
    study.run(Local(agents, stop_after(study, 1)))
    again = federation.coordinator()  # without a word of it
    assert again.agents == ("north", "south") and again.excluded == ("west",) and again.state.round == 1
    assert again.run(Local(agents, keep_open)) == FINISHED


def test_which_sites_can_be_left_out(federation: Federation) -> None:
    with pytest.raises(InputError, match="no site 'wset' \\(did you mean 'west'\\?\\): there are north, south, west"):
        without(federation, "wset")
    with pytest.raises(InputError, match="there are 1 sites, but quorum is 2"):
        without(federation, "west", "south")
    assert federation.coordinator().agents == SITES  # nothing came of it


def test_the_round_under_way_keeps_its_w(federation: Federation, agents: dict[str, SiteAgent]) -> None:
    """North has answered the round already; another w would be a fork."""
    study = federation.coordinator()

    def fault(site: str, message: Question) -> str:
        late = isinstance(message, RoundRequest) and message.round == 2 and site != "north"
        return "question" if late else keep_open(site, message)

    first = Local(agents, fault)
    study.run(first)
    study, second = without(federation, "west"), Local(agents, keep_open)
    assert study.run(second) == FINISHED
    asked = [m for m, _ in (*first.asked, *second.asked) if isinstance(m, RoundRequest) and m.round == 2]
    assert len(asked) == 2 and asked[0].w.tobytes() == asked[1].w.tobytes()
    assert [row["first"] for row in federation.released("north", study.experiment)] == [1, 2, 3, 4]


@pytest.mark.parametrize("value", [1.7e308, np.inf, np.nan])
def test_a_poisoned_checkpoint_names_the_way_on(
    federation: Federation, agents: dict[str, SiteAgent], value: float
) -> None:
    """Values that no check has seen are in the checkpoint and in the w to be sent."""
    study = federation.coordinator()
    study.run(Local(agents, stop_after(study, 2)))
    files = [study.folder.checkpoints / name for name in ("objp.npz", "sending.npz")]
    kept = read_arrays(files[0])
    kept["server_z"][2], kept["w"] = value, kept["w"] * 0.0 + value
    write_arrays(files[0], kept)
    write_arrays(files[1], {"round": np.array(3), "w": kept["w"]})
    with pytest.raises(CorruptFile, match=r"from west that no honest site sends.*with --without west"):
        federation.coordinator()
    study, exchange = without(federation, "west"), Local(agents, keep_open)
    assert study.run(exchange) == FINISHED
    assert np.abs(study.state.w).max() < 100.0
    assert {site: len(federation.released(site, study.experiment)) for site in ("north", "south")} == {
        "north": 4,
        "south": 4,
    }


def test_a_checkpoint_that_is_completely_poisoned_cannot_continue(
    federation: Federation, agents: dict[str, SiteAgent]
) -> None:
    study = federation.coordinator()
    study.run(Local(agents, stop_after(study, 2)))
    file = study.folder.checkpoints / "objp.npz"
    kept = read_arrays(file)
    kept["server_z"] += 1e149
    write_arrays(file, kept)
    with pytest.raises(CorruptFile, match=r"from north, south, west .* with another --out"):
        federation.coordinator()
    kept["server_z"][:] = 0.0
    kept["w"] += 1e149
    write_arrays(file, kept)
    with pytest.raises(CorruptFile, match=r"from its sites .* with another --out"):
        federation.coordinator()


def test_a_left_out_site_is_not_told_of_the_end(federation: Federation, agents: dict[str, SiteAgent]) -> None:
    pytest.importorskip("nvflare")

    study = federation.coordinator()
    study.run(Local(agents, stop_after(study, 1)))
    study = without(federation, "west")
    assert conducted(study, Local(agents, keep_open)) == FINISHED
    assert study.unclosed_sites == ["north", "south"]
