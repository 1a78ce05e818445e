"""Simulations that draw the noise of all agents at once: the model's law, what is charged, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taciturn
from taciturn.algorithms.base import Agent
from taciturn.algorithms.gradient_at_model import GradientAtModel
from taciturn.algorithms.noisy_gradient import CertifiedGradient, PooledGradient
from taciturn.core.arrays import to_numpy
from taciturn.errors import InputError
from taciturn.planning.plan import load_data, plan_study
from taciturn.privacy.noise import SeededNoise
from taciturn.runs.records import ReleaseEntry
from taciturn.settings import resolve
from taciturn.training.central import dataset_for
from taciturn.training.loop import first_state, on_backend, training_rounds
from taciturn.training.process_group import SINGLE_PROCESS
from taciturn.types import Array, Shard, pool

CLINICS: dict[str, Any] = {
    "data": "tests/data/clinics/records.csv", "schema": "tests/data/clinics/schema.toml", "total_records": 600,
    "agents": 3, "noise": "seeded", "test_share": 0.25, "partition_key": 0, "rounds": 6,
}  # fmt: skip
LINEAR: dict[str, Any] = CLINICS | {"features": "none", "algorithm": "dpgd"}
SUMS: dict[str, Any] = {"simulate": "sums"}
NO_NOISE: dict[str, Any] = {"noise_multiplier": 1e-12, "total_epsilon": 1e30}  # or nearly none


def trained(out: Path, **given: Any) -> taciturn.Run:
    return taciturn.run(**LINEAR | given, out=str(out))


@pytest.mark.parametrize("beta", [1e-6, 0.1])
@pytest.mark.parametrize(
    "method", [{"algorithm": "dpgd"}, {"algorithm": "objw"}, {"algorithm": "additive", "features": "bins"}]
)
def test_without_noise_the_models_are_equal(tmp_path: Path, method: dict[str, Any], beta: float) -> None:
    given = LINEAR | NO_NOISE | method | {"beta": beta}
    apart, together = (trained(tmp_path / one, **given, simulate=one) for one in ("agents", "sums"))
    assert np.abs(apart.w).max() > 1e-3
    assert together.w == pytest.approx(apart.w, rel=1e-6, abs=1e-8)
    objectives = [run.folder.read_metrics()[-1].train_objective for run in (apart, together)]
    assert objectives[1] == pytest.approx(objectives[0], rel=1e-6)


@pytest.mark.parametrize("trust", ["agents", "secure-sum", "server"])
def test_one_draw_has_the_law_of_the_mean_of_all(trust: str) -> None:
    study = load_data(plan_study(resolve(LINEAR | {"trust": trust} | SUMS)), key=0)
    algorithm, problem, shards = study.parts[0].algorithm, study.problem, study.dataset.train
    assert isinstance(algorithm, GradientAtModel) and isinstance(algorithm.release, PooledGradient)
    release = algorithm.release
    z = np.zeros((shards[0].x.shape[1], 1, 2))
    draws = 400

    def noise_of(one: CertifiedGradient | PooledGradient, shard: Shard, agent: int) -> Array:
        silent = one(0, problem, z, shard, _Silent((1,), 0, 1)).gradient
        return np.stack(
            [one(0, problem, z, shard, SeededNoise((1,), agent, t)).gradient - silent for t in range(draws)]
        )

    apart = np.mean([noise_of(release.one, shard, p) for p, shard in enumerate(shards)], axis=0)
    together = noise_of(release, pool(shards), len(shards))
    assert apart.size > 5_000
    assert together.std() == pytest.approx(apart.std(), rel=0.03)
    assert abs(np.corrcoef(apart.ravel(), together.ravel())[0, 1]) < 0.05
    event = release(0, problem, z, pool(shards), SeededNoise((1,), 3, 1)).event.runs
    assert event == release.one(0, problem, z, shards[0], SeededNoise((1,), 0, 1)).event.runs


class _Silent(SeededNoise):
    def continuous(self, update: int, mechanism: str, scale: Array, like: Array) -> Array:
        return np.zeros(like.shape)


@pytest.mark.torch
def test_torch_has_the_same_rounds() -> None:
    """To rounding, with weights at some agents only."""
    pytest.importorskip("torch")
    models = []
    for backend in ("numpy", "torch"):
        study = load_data(plan_study(resolve(LINEAR | SUMS | {"backend": backend})), key=0)
        first, *others = study.dataset.train
        weighted = replace(first, weights=np.linspace(0.0, 1.0, len(first.x)))
        study = study._replace(dataset=replace(study.dataset, train=(weighted, *others)))
        with on_backend(study, SINGLE_PROCESS) as there:
            (part,) = there.parts
            records = dataset_for(there, part).train
            *_, last = training_rounds(
                there, part, records, part.rounds, first_state(there, part, records, averages=False)
            )
        models.append(to_numpy(last.w))
    assert np.abs(models[0]).max() > 1e-3
    np.testing.assert_allclose(models[1], models[0], rtol=1e-9, atol=1e-12)


def test_every_agent_is_charged_the_same(tmp_path: Path) -> None:
    apart, together = (trained(tmp_path / one, simulate=one) for one in ("agents", "sums"))

    def charged(run: taciturn.Run) -> list[ReleaseEntry]:
        return list(run.folder.read_ledger().releases)

    assert len({entry.agent for entry in charged(together)}) == 3
    assert charged(together) == charged(apart)
    assert "drew the sum of all parties" in together.folder.report.read_text()
    assert "drew the sum of all parties" not in apart.folder.report.read_text()


def test_it_continues_where_it_stopped() -> None:
    study = load_data(plan_study(resolve(LINEAR | SUMS)), key=0)
    (part,), records = study.parts, (pool(study.dataset.train),)

    def rounds(state: Any) -> list[Any]:
        return list(training_rounds(study, part, records, part.rounds, state))

    whole = rounds(first_state(study, part, records, averages=False))
    assert np.array_equal(rounds(whole[2].state)[-1].w, whole[-1].w)
    assert [len(done.events) for done in whole] == [3] * 6 and whole[0].senders == 3 and whole[0].residual is None


def test_no_single_upload_can_be_shown(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="simulate is sums, so no single upload was computed"):
        trained(tmp_path / "run", **SUMS).sent()


def test_a_single_agent_takes_no_step_with_it() -> None:
    algorithm = plan_study(resolve(LINEAR | SUMS)).parts[0].algorithm
    assert isinstance(algorithm, GradientAtModel)
    zero = np.zeros((2, 1, 2))
    with pytest.raises(TypeError, match="PooledGradient is a release of all agents together"):
        algorithm.agent_step(1, zero, Agent(zero, zero), Shard(zero[:, 0], zero[:, 0]), SeededNoise((1,), 0, 1))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"noise": "hardened"}, "simulate is sums, but hardened noise is drawn by every agent: use --simulate agents"),
        (
            {"algorithm": "objp"},
            "objp needs more than sums of gradients at w: use --simulate agents, or one of additive, dpgd, objw",
        ),
        ({"algorithm": "dpsgd"}, "dpsgd needs more than sums of gradients"),
        ({"algorithm": "dpgd,iadmm", "total_epsilon": "inf"}, "iadmm needs more than sums of gradients"),
        ({"mechanism": "laplace"}, "mechanism is laplace: only Gaussian noise"),
        ({"set": "box"}, "set is box: a projection at an agent is not linear"),
        ({"server": "full"}, "server is full, which stores every agent's upload"),
        ({"mode": "paper", "algorithm": "objp", "total_records": "auto"}, "--simulate has no effect in --mode paper"),
        ({"simulate": "sum"}, "no simulation 'sum' .did you mean 'sums'"),
    ],
)
def test_what_one_draw_cannot_stand_for_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        resolve(LINEAR | SUMS | changes)


def test_records_larger_than_the_memory_limit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pools all records in memory, and memory is 1kB"):
        trained(tmp_path / "run", memory="1kB", **SUMS)
