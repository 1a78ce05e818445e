"""From settings to a run folder, in one process."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taciturn
from taciturn.data import load
from taciturn.errors import InputError, TaciturnError
from taciturn.planning.paper_mode import fill_in
from taciturn.settings import resolve

TABLE = Path("tests/data/clinics/records.csv")
CLINICS: dict[str, Any] = {
    "data": str(TABLE), "schema": "tests/data/clinics/schema.toml", "test_share": 0.25, "rounds": 5, "mode": "paper",
}  # fmt: skip


def train(out: Path, **changes: Any) -> taciturn.Run:
    return taciturn.run(**(CLINICS | {"out": str(out)} | changes))


def test_a_run_folder_holds_what_it_promises(tmp_path: Path) -> None:
    run = train(tmp_path / "r")
    names = {path.name for path in run.path.iterdir()}
    assert names == {
        "config.toml", "schema.toml", "start.json", "metrics.jsonl", "ledger.jsonl", "model.npz",
        "summary.json", "report.html", "checkpoint", "ledger.head",
    }  # fmt: skip
    rows = run.folder.read_metrics()
    assert [row["round"] for row in rows] == [1, 2, 3, 4, 5]
    expected = {"run", "algorithm", "epsilon", "seed", "round", "test_error", "train_objective", "consensus_residual",
                "noise", "rho", "eta", "seconds", "bytes_up", "bytes_down"}  # fmt: skip
    assert set(rows[0]) == expected
    assert rows[-1]["bytes_up"] == 5 * 3 * 11 * 2 * 8  # rounds, agents, features with intercept, classes, float64


def test_one_run_has_a_matrix_and_several_have_an_index(tmp_path: Path) -> None:
    one = train(tmp_path / "one").folder.read_model()
    assert one["w"].shape == (11, 2)
    assert one["classes"].tolist() == ["benign", "malignant"]
    assert one["feature_names"][-1] == "intercept"
    several = train(tmp_path / "several", epsilon="0.5,inf", seeds=2, algorithm="objp,outp").folder.read_model()
    assert several["w"].shape == (8, 11, 2)
    assert several["algorithm"].tolist() == ["objp"] * 4 + ["outp"] * 4
    assert several["epsilon"].tolist() == [0.5, 0.5, np.inf, np.inf] * 2
    assert several["seed"].tolist() == [1, 2] * 4


def test_runs_of_a_batch_are_the_single_runs(tmp_path: Path) -> None:
    batch = train(tmp_path / "batch", epsilon="0.5,5", seeds=2)
    alone = train(tmp_path / "alone", epsilon="5", seed=2)
    np.testing.assert_allclose(batch.w[3], alone.w, rtol=1e-10)


def test_the_ledger_counts_every_local_update(tmp_path: Path) -> None:
    run = train(tmp_path / "r", epsilon="0.5,inf", local_updates=4, checkpoint_seconds=0)
    totals: dict[tuple[int, str, str], int] = {}
    for entry in (entry for entry in run.folder.read_ledger() if entry["kind"] == "release"):
        key = entry["run"], entry["agent"], entry["mechanism"]
        totals[key] = totals.get(key, 0) + entry["count"]
    expected = {0: "laplace-data-dependent", 1: "none"}
    assert totals == {(r, agent, m): 20 for r, m in expected.items() for agent in ("north", "south", "west")}


def test_averages_are_written_where_they_are_asked_for(tmp_path: Path) -> None:
    with np.load(train(tmp_path / "with", averages=True).folder.averages) as stored:
        assert stored["w_plain"].shape == (11, 2)
        assert stored["z_strong"].shape == (3, 11, 2)
    assert not train(tmp_path / "without").folder.averages.exists()


def test_evaluations_can_be_rare_and_the_last_round_always_counts(tmp_path: Path) -> None:
    run = train(tmp_path / "r", evaluate_every=2)
    assert [row["round"] for row in run.folder.read_metrics()] == [2, 4, 5]


def test_without_a_test_set_there_is_no_test_error(tmp_path: Path) -> None:
    run = train(tmp_path / "r", test_share=0.0)
    assert run.runs[0]["test_error"] is None
    assert run.test_error is None
    assert "no test set" in run.folder.report.read_text()


@pytest.mark.parametrize(("loss", "target"), [("softmax", "log_loss"), ("hinge", "auroc"), ("squared", "auroc")])
def test_every_loss_trains(tmp_path: Path, loss: str, target: str) -> None:
    run = train(tmp_path / "r", loss=loss, epsilon="inf", rounds=60)
    assert run.test_error is not None
    assert run.test_error < 0.15
    assert run.runs[0]["quality"][target] is not None


def test_regression_on_a_table(tmp_path: Path) -> None:
    """Area from the other columns: the label has bounds, the error is in its unit."""
    schema = Path("tests/data/clinics/schema.toml").read_text()
    schema = schema.replace(
        'column = "diagnosis"\nclasses = ["benign", "malignant"]', 'column = "area"\nbounds = [0.0, 2500.0]'
    )
    schema = schema.replace('[columns.area]\nkind = "numeric"\nbounds = [0.0, 2500.0]\n', "")
    (tmp_path / "schema.toml").write_text(schema)
    run = train(tmp_path / "r", schema=str(tmp_path / "schema.toml"), epsilon="inf", rounds=200)
    assert run.runs[0]["quality"]["r2"] > 0.9
    assert run.test_error == pytest.approx(run.runs[0]["quality"]["rmse"])
    assert "label's unit" in run.folder.report.read_text()
    with pytest.raises(InputError, match="loss softmax needs classes"):
        train(tmp_path / "s", schema=str(tmp_path / "schema.toml"), loss="softmax")


def test_a_method_without_noise_has_one_run_and_no_budget(tmp_path: Path) -> None:
    run = train(tmp_path / "r", algorithm="iadmm,objp", epsilon="0.5,5", seeds=2)
    assert [(entry["algorithm"], entry["epsilon"], entry["seed"]) for entry in run.runs] == [
        ("iadmm", math.inf, 1), ("objp", 0.5, 1), ("objp", 0.5, 2), ("objp", 5.0, 1), ("objp", 5.0, 2),
    ]  # fmt: skip
    assert {e["run"] for e in run.folder.read_ledger() if e["kind"] == "release"} == set(range(5))


def test_auto_steps_hold_for_agents_of_very_different_size(tmp_path: Path) -> None:
    """Nine agents with one record each and one with 200: a step made for equal shares would diverge."""
    rng = np.random.default_rng(0)
    x = rng.random(209)
    rows = [f"{'big' if i < 200 else f'small{i}'},{x[i]},{1 - x[i]},{3 * x[i] + 1}" for i in range(209)]
    (tmp_path / "t.csv").write_text("\n".join(["agent,a,b,y", *rows]) + "\n")
    (tmp_path / "s.toml").write_text(
        '[label]\ncolumn = "y"\nbounds = [0.0, 5.0]\n[agent]\ncolumn = "agent"\n'
        '[columns.a]\nkind = "numeric"\nbounds = [0.0, 1.0]\n[columns.b]\nkind = "numeric"\nbounds = [0.0, 1.0]\n'
    )
    settings: dict[str, Any] = {"data": str(tmp_path / "t.csv"), "schema": str(tmp_path / "s.toml"), "epsilon": "inf"}
    run = taciturn.run(**settings, test=str(tmp_path / "t.csv"), rounds=300, mode="paper", out=str(tmp_path / "r"))
    assert run.test_error is not None
    assert run.test_error < 0.1


def test_auto_uses_public_facts_alone() -> None:
    """Other records under the same schema, agents and label give the same steps."""
    settings = resolve(CLINICS)
    dataset = load(settings.data_options())
    halved = type(dataset)(**{**dataset.__dict__, "train": tuple(type(s)(s.x / 2, s.y) for s in dataset.train)})
    assert fill_in(settings, dataset) == fill_in(settings, halved)
    assert fill_in(settings, dataset).loss == "softmax"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"eta": "smooth", "loss": "hinge"}, "eta smooth needs a smooth f: hinge with l2 is not"),
        ({"eta": "strong", "regulariser": "l1"}, "eta strong needs a strongly convex f"),
        ({"algorithm": "outp", "outp_noise": "calibrated", "record_bound": 0.1}, "a record of length .* exceeds it"),
        ({"eta": 1e300, "rho": 1e-300, "epsilon": "inf"}, "objpm diverged in round"),
        ({"rho": "dynamic", "rho_c1": 0, "epsilon": "inf"}, "then rho is 0"),
    ],
)
def test_impossible_combinations_are_refused(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TaciturnError, match=sentence):
        train(tmp_path / "r", **changes)


@pytest.mark.parametrize(
    ("eta", "constant"), [("smooth", "smoothness"), ("strong", "strong_convexity"), ("0.5", "eta")]
)
def test_every_eta_runs_and_its_constants_are_written_down(tmp_path: Path, eta: str, constant: str) -> None:
    run = train(tmp_path / "r", eta=eta, beta=0.1)
    assert run.runs[0]["rounds"] == 5
    assert isinstance(dict(run.folder.read_config())[constant], float)
    assert ("was computed from them" in run.folder.report.read_text()) == (eta == "smooth")


def test_nothing_is_written_when_the_data_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        train(tmp_path / "r", schema="")
    assert not (tmp_path / "r").exists()
