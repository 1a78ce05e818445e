"""Certified runs keep their budget, reveal nothing private, and record every release in the ledger."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taciturn
from taciturn.algorithms import ALGORITHMS
from taciturn.errors import BudgetExhausted, InputError, Interrupted, LedgerTampered, PrivacyViolation
from taciturn.planning.noise_plan import gradient_bound
from taciturn.planning.plan import plan_study
from taciturn.privacy.accountants import tightest
from taciturn.privacy.events import Hidden, Noise
from taciturn.privacy.mechanisms import OutputNoise
from taciturn.settings import resolve
from taciturn.training.central import dataset_for
from taciturn.training.setup import prepare, public_description

TABLE = Path("tests/data/clinics/records.csv")
CLINICS: dict[str, Any] = {
    "data": str(TABLE), "schema": "tests/data/clinics/schema.toml", "test_share": 0.25, "rounds": 5,
    "total_records": 600, "agents": 3, "partition_key": 0, "noise": "seeded",
    "features": "none", "algorithm": "dpgd",
}  # fmt: skip


def train(out: Path, **changes: Any) -> taciturn.Run:
    return taciturn.run(**(CLINICS | {"out": str(out)} | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mechanism": "laplace"},
        {"mechanism": "laplace", "rounds": 1},
        {"adjacency": "replace-one", "algorithm": "objpm"},
        {"noise": "hardened"},
        {"noise": "hardened", "mechanism": "laplace"},
        {"algorithm": "hidden"},
        {"algorithm": "objt"},
        {"precision": "float32", "total_epsilon": 8.0, "delta": 1e-9},
        {"loss": "hinge"},
        {"loss": "squared", "algorithm": "objp", "local_updates": 3},
    ],
)
def test_the_whole_run_costs_its_budget_and_never_more(tmp_path: Path, changes: dict[str, Any]) -> None:
    run = train(tmp_path / "r", **changes)
    total, delta = changes.get("total_epsilon", 1.0), changes.get("delta", 1e-6)
    privacy = run.summary["privacy"]
    assert total * (1.0 - 1e-3) <= privacy["total_epsilon"] <= total
    assert privacy["planned_epsilon"] == pytest.approx(privacy["total_epsilon"])
    assert [agent["agent"] for agent in privacy["agents"]] == ["north", "south", "west"]
    for events in run.folder.read_ledger().events[0].values():  # and what the ledger says is what was drawn
        assert tightest(events, delta).epsilon == pytest.approx(privacy["total_epsilon"])
        updates = {"objpm": 10}.get(changes.get("algorithm", ""), changes.get("local_updates", 1))
        assert sum(events.values()) == changes.get("rounds", 5) * updates


def test_the_noise_that_is_drawn_is_the_noise_of_the_event(tmp_path: Path) -> None:
    """The spread of uploads over many seeds agrees with the scale that the ledger records."""
    run = train(tmp_path / "r", seeds=100, rounds=1, total_epsilon=0.1, set="all")
    event = next(iter(run.folder.read_ledger().events[0]["north"]))
    assert isinstance(event, Noise)
    row = run.folder.read_metrics()[0]
    spread = row["eta"] * event.scale / math.sqrt(3.0)  # after one round from zero: w = mean_p(-eta (g_p + xi_p))
    assert run.w.std(axis=0).mean() == pytest.approx(spread, rel=0.05)
    assert row["noise"] == pytest.approx(event.scale * math.sqrt(2.0 / math.pi))


def test_too_few_rounds_for_a_model_are_refused() -> None:
    with pytest.raises(InputError, match="rounds is 1; additive needs at least 2"):
        plan_study(resolve(CLINICS | {"features": "bins", "algorithm": "additive", "rounds": 1}))


def test_a_delta_that_allows_publishing_a_record_is_refused() -> None:
    """It does not matter where there is no noise."""
    with pytest.raises(InputError, match=r"delta 0\.5 is 300 times one over 600 records: it would allow publishing"):
        plan_study(resolve(CLINICS | {"delta": 0.5}))
    with pytest.raises(InputError, match="is 1 times one over 600 records"):
        plan_study(resolve(CLINICS | {"delta": 1 / 600}))
    plan_study(resolve(CLINICS | {"delta": 0.9 / 600}))
    plan_study(resolve(CLINICS | {"delta": 0.5, "total_epsilon": math.inf}))


def test_hidden_updates_are_one_event_a_round(tmp_path: Path) -> None:
    run = train(tmp_path / "r", algorithm="hidden", local_updates=7)
    events = run.folder.read_ledger().events[0]["north"]
    assert all(isinstance(event, Hidden) and event.updates == 7 for event in events)
    assert [event.contraction for event in events if isinstance(event, Hidden)] == [pytest.approx(0.5)]


RELEASED = {
    "effects.json",
    "metrics.jsonl",
    "model.npz",
    "averages.npz",
    "summary.json",
    "report.html",
    "ledger.jsonl",
    "ledger.head",
}


@pytest.mark.parametrize("method", [{}, {"features": "bins", "algorithm": "additive"}])
def test_what_is_no_release_does_not_depend_on_the_records(tmp_path: Path, method: dict[str, str]) -> None:
    """Other records at the same place: every file that holds no release is the same to the byte."""
    text = TABLE.read_text()
    table = tmp_path / "t.csv"
    made = {}
    for name, records in (("a", text), ("b", "".join(text.splitlines(keepends=True)[:-40]))):
        table.write_text(records)
        made[name] = train(tmp_path / name, data=str(table), **method)
    public = {path.name for path in made["a"].path.iterdir() if path.is_file()}
    assert {"config.toml", "schema.toml", "start.json"} <= public - RELEASED
    for name in public - RELEASED:
        assert (made["a"].path / name).read_bytes() == (made["b"].path / name).read_bytes(), name
    ledgers = [run.folder.ledger.read_bytes() for run in made.values()]
    assert ledgers[0] == ledgers[1]


def test_what_is_computed_without_noise_stays_in_its_folder(tmp_path: Path) -> None:
    run = train(tmp_path / "r")
    private = {"train_objective", "seconds", "test_error"}
    for line in run.folder.metrics.read_text().splitlines():
        assert all(json.loads(line)[name] is None for name in private)
    kept = [json.loads(line) for line in run.folder.local_metrics.read_text().splitlines()]
    assert set(kept[0]) == {"run", "round"} | private
    public = json.loads(run.folder.summary.read_text())
    assert all(public["runs"][0][name] is None for name in private)
    assert "quality" not in public["runs"][0]
    assert public["data"]["records"] == 600  # as declared: there are 569, and fewer to train on
    assert public["data"]["agents"] == {"north": None, "south": None, "west": None}
    assert "nonzero_share" not in public["data"] and "classes" not in public["data"]
    assert "LOCAL ONLY" in (run.folder.local / "README.txt").read_text()
    assert run.runs[0]["test_error"] is not None  # the owner sees it
    assert "local-only" in run.folder.report.read_text()
    owners, anybodys = (run.folder.local / "report.html").read_text(), run.folder.report.read_text()
    assert "It stays with the owner of the records" in owners
    assert "not public" in anybodys and "not public" not in owners.replace("not public, or", "")
    counts = taciturn.open_run(run.path).folder.read_start()["data"]["classes"]
    assert all(f">{count}<" not in anybodys for count in counts.values())


def test_a_public_test_file_may_be_shown(tmp_path: Path) -> None:
    shutil.copy(TABLE, tmp_path / "public.csv")
    run = train(tmp_path / "r", test=str(tmp_path / "public.csv"), test_share=0.0)
    public = json.loads(run.folder.summary.read_text())["runs"][0]
    assert public["test_error"] == run.runs[0]["test_error"] is not None
    assert public["train_objective"] is None


def test_a_class_without_records_is_legal(tmp_path: Path) -> None:
    schema = Path(CLINICS["schema"]).read_text().replace('["benign", "malignant"]', '["benign", "malignant", "rare"]')
    (tmp_path / "s.toml").write_text(schema)
    run = train(tmp_path / "r", schema=str(tmp_path / "s.toml"))
    assert run.w.shape == (11, 3)


def test_a_unit_with_several_records_needs_as_many_times_the_noise(tmp_path: Path) -> None:
    lines = TABLE.read_text().splitlines()
    rows = [f"{lines[0]},patient", *(f"{line},p{i // 3}" for i, line in enumerate(lines[1:]))]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    schema = Path(CLINICS["schema"]).read_text()
    (tmp_path / "s.toml").write_text(
        schema.replace("[label]", '[unit]\ncolumn = "patient"\nmax_records = 3\n\n[label]', 1)
    )
    unit = train(tmp_path / "u", data=str(tmp_path / "t.csv"), schema=str(tmp_path / "s.toml"))
    record = train(tmp_path / "r")
    scales = [float(run.summary["privacy"]["events"][0]["scale"]) for run in (unit, record)]
    assert scales[0] == pytest.approx(3.0 * scales[1])
    promised = "would protect every patient (all its records at one party) with total epsilon 1"
    assert promised in unit.folder.report.read_text()


@pytest.mark.parametrize("ask", [taciturn.run, taciturn.plan, taciturn.dry_run])
def test_more_rounds_than_a_given_noise_leaves_room_for_are_refused(tmp_path: Path, ask: Any) -> None:
    """Too many rounds are refused, not silently reduced."""
    given = {"noise_multiplier": 20.0, "rounds": 300, "total_epsilon": 1.0, "out": str(tmp_path / "r")}
    with pytest.raises(InputError) as refused:
        ask(**CLINICS | given)
    words = str(refused.value)
    for part in ("rounds is 300", "noise-multiplier 20 ", "total-epsilon 1:", "give rounds"):
        assert part in words, words
    fit = int(re.findall(r"only (\d+) rounds fit", words)[0])
    assert 1 < fit < 300
    assert not (tmp_path / "r").exists()
    with pytest.raises(InputError, match=f"only {fit} rounds fit"):
        ask(**CLINICS | given | {"rounds": fit + 1})
    taciturn.dry_run(**CLINICS | given | {"rounds": fit})


def test_rounds_left_open_are_planned_for_a_given_noise(tmp_path: Path) -> None:
    given = {"noise_multiplier": 20.0, "local_updates": 2, "algorithm": "objpm", "rounds": "auto"}
    run = train(tmp_path / "r", **given)
    done = run.runs[0]["rounds"]
    assert done == run.folder.read_config()["rounds"] == taciturn.plan(**CLINICS | given).part.rounds
    event = Noise("gaussian", 20.0, math.inf, 1.0)
    assert 1 < done < 100
    assert tightest({event: 2 * done}, 1e-6).epsilon <= 1.0 < tightest({event: 2 * done + 2}, 1e-6).epsilon
    assert run.summary["privacy"]["total_epsilon"] <= 1.0
    with pytest.raises(InputError, match=r"exhausted before the first round: .* one round costs epsilon"):
        train(tmp_path / "s", noise_multiplier=0.5)


def test_declarations_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^agents is 2, but 3 agents are named: north, south, west$"):
        train(tmp_path / "b", agents=2)
    with pytest.raises(InputError, match=r"^records-max leaves out agent 'west'"):
        train(tmp_path / "b", records_max="north=300,south=300")
    assert train(tmp_path / "c", records_max="north=300,south=300,west=300", agents=10).test_error is not None
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["c"]


def test_records_beyond_the_declared_number_are_used_and_only_the_owner_is_told(tmp_path: Path) -> None:
    """Stopping, or leaving some out, would let one record decide about others."""
    study = prepare(resolve(CLINICS | {"records_max": "north=50,south=300,west=300", "seed": 1}), key=3)
    whole = prepare(resolve(CLINICS | {"seed": 1}), key=3)
    assert len(study.dataset.train[0].x) > 50
    assert [s.x.tobytes() for s in study.dataset.train] == [s.x.tobytes() for s in whole.dataset.train]
    (note,) = [note for note in study.dataset.notes if "more than records-max" in note]
    assert f"agent 'north' has {len(study.dataset.train[0].x)} training records" in note
    assert study.facts is not None and note not in str(public_description(study.dataset, study.facts))


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_a_method_that_needs_the_bound_uses_as_many_records_and_is_charged_for_it(adjacency: str) -> None:
    """Adding a record can push another one out, so it counts as two; with replace-one it does so already."""
    given = CLINICS | {"records_max": "north=50,south=300,west=300", "seed": 1, "adjacency": adjacency}
    study = prepare(resolve(given | {"algorithm": "hidden,objp"}), key=3)
    hidden, objp = study.parts
    assert [len(s.x) for s in dataset_for(study, hidden).train][:1] == [50]
    assert dataset_for(study, objp).train is study.dataset.train
    (event,) = hidden.plans[0].events
    clip = gradient_bound(study.settings, study.problem, ALGORITHMS["hidden"])
    assert isinstance(event, Hidden) and event.l2 == pytest.approx(2 * clip / 600)


def test_the_plan_reads_no_record(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe not a table at all")
    study = plan_study(resolve(CLINICS | {"data": str(tmp_path / "t.csv"), "total_epsilon": [1, 2]}))
    assert [plan.total_epsilon for plan in study.parts[0].plans] == [1.0, 2.0]
    assert all(plan.bound.epsilon <= plan.total_epsilon for plan in study.parts[0].plans)


def test_runs_of_a_batch_are_the_single_runs(tmp_path: Path) -> None:
    """Each with its own budget, and so its own noise, rho and eta."""
    batch = train(tmp_path / "batch", total_epsilon="0.5,5", seeds=2)
    alone = train(tmp_path / "alone", total_epsilon="5", seed=2)
    np.testing.assert_allclose(batch.w[3], alone.w, rtol=1e-10)


def test_several_runs_cost_more_when_all_are_shown(tmp_path: Path) -> None:
    privacy = train(tmp_path / "r", seeds=4).summary["privacy"]
    assert privacy["total_epsilon"] <= 1.0
    assert 1.9 < privacy["all_runs_epsilon"] < 2.3  # four times in GDP is twice the multiplier


def test_what_was_drawn_twice_is_charged_twice(tmp_path: Path) -> None:
    """Hardened noise after a crash: the lost round was released once already, so the last one is not affordable."""
    asked = iter([False, False, True])
    with pytest.raises(Interrupted):
        train(tmp_path / "r", noise="hardened", rounds=8, stop=lambda: next(asked, True))
    folder = taciturn.open_run(tmp_path / "r").folder
    last = [row for row in folder.read_ledger() if row["kind"] == "release"][-3:]
    folder.chain.append([row | {"first": 4, "last": 4, "session": 9} for row in last])
    run = taciturn.resume(tmp_path / "r")
    assert run.runs[0]["rounds"] == 7
    totals = folder.read_ledger().totals
    assert totals["total_epsilon"] == pytest.approx(1.0, rel=1e-3) and totals["total_epsilon"] <= 1.0


def test_repeated_seeded_rounds_are_charged_once(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(tmp_path / "r", rounds=8, stop=lambda: True)
    folder = taciturn.open_run(tmp_path / "r").folder
    last = [row for row in folder.read_ledger() if row["kind"] == "release"][-3:]
    folder.chain.append([row | {"first": 2, "last": 2, "session": 1} for row in last])  # charged, then killed
    assert taciturn.resume(tmp_path / "r").summary["privacy"]["events"][0]["count"] == 8


def test_a_study_is_reserved_and_settled(tmp_path: Path) -> None:
    from taciturn.privacy.budget import BudgetLedger

    account = BudgetLedger.create(tmp_path / "l", "clinics", 2.0, 1e-6)
    hardened = {"noise": "hardened", "ledger": str(account.path)}
    train(tmp_path / "a", **hardened)
    state = account.state()
    assert state.epsilon_used == pytest.approx(1.0, rel=1e-3)
    assert state.studies[0].settled
    with pytest.raises(BudgetExhausted):
        train(tmp_path / "b", total_epsilon=1.9, **hardened)
    with pytest.raises(InputError, match="noise hardened"):
        train(tmp_path / "b", ledger=str(account.path))
    with pytest.raises(InputError, match="budget ledger"):
        train(tmp_path / "b", total_epsilon="inf", **hardened)
    with pytest.raises(InputError, match="records-max"):
        train(tmp_path / "b", records_max={"north": 50}, **hardened)
    assert account.state().epsilon_used == pytest.approx(1.0, rel=1e-3)  # what never began costs nothing
    assert not (tmp_path / "b").exists()


def test_no_two_runs_of_a_seed_share_their_noise(tmp_path: Path) -> None:
    """Else the difference of two budgets' models would be the gradient without noise."""
    steps = {"rounds": 1, "rho": 1.0, "eta": 1.0, "radius_scale": 1e9}
    run = train(tmp_path / "r", total_epsilon="0.1,0.2", algorithm="objp,objt", **steps)
    rows = [row / np.linalg.norm(row) for row in run.w.reshape(4, -1)]
    alike = [abs(float(rows[i] @ rows[j])) for i in range(4) for j in range(i)]
    assert max(alike) < 0.75  # 22 numbers with independent noise far above the gradient
    again = train(tmp_path / "s", total_epsilon="0.2,0.1", algorithm="objt,objp", **steps)
    np.testing.assert_array_equal(run.w, again.w[::-1])  # and each run's own does not depend on the others


def test_two_copies_of_a_folder_cannot_both_continue(tmp_path: Path) -> None:
    import shutil

    asked = iter([False, True])
    with pytest.raises(Interrupted):
        train(tmp_path / "r", noise="hardened", rounds=8, stop=lambda: next(asked, True))
    shutil.copytree(tmp_path / "r", tmp_path / "copy")
    taciturn.resume(tmp_path / "r")
    with pytest.raises(LedgerTampered, match="an old copy"):
        taciturn.resume(tmp_path / "copy")
    head = taciturn.open_run(tmp_path / "copy").folder.chain.state_head
    assert head is not None
    head.unlink()
    with pytest.raises(InputError, match="started on another machine"):
        taciturn.resume(tmp_path / "copy")


def test_a_method_with_one_update_is_calibrated_for_one(tmp_path: Path) -> None:
    privacy = train(tmp_path / "r", algorithm="objp,objt", local_updates=10).summary["privacy"]
    assert [run["spent_epsilon"] for run in privacy["runs"]] == pytest.approx([1.0, 1.0], rel=1e-3)
    assert {event["count"] for event in privacy["events"]} == {50, 5}


def test_the_last_checkpoint_is_the_result_when_lost_rounds_used_up_the_budget(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(tmp_path / "r", noise="hardened", rounds=2, evaluate_every=100, stop=lambda: True)
    folder = taciturn.open_run(tmp_path / "r").folder
    rows = [row for row in folder.read_ledger() if row["kind"] == "release"][-3:]
    folder.chain.append([row | {"first": 2, "last": 2, "session": 1} for row in rows])  # charged, then killed
    run = taciturn.resume(tmp_path / "r")
    assert run.runs[0]["rounds"] == 1
    assert run.summary["privacy"]["total_epsilon"] <= 1.0


def test_an_exhausted_budget_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(tmp_path / "r", noise="hardened", rounds=2, stop=lambda: True)
    folder = taciturn.open_run(tmp_path / "r").folder
    (folder.checkpoints / "dpgd.npz").unlink()
    rows = [row for row in folder.read_ledger() if row["kind"] == "release"][-3:]
    folder.chain.append([row | {"first": 2, "last": 2, "session": 1} for row in rows])
    with pytest.raises(BudgetExhausted, match="rounds lost in a crash used up its whole budget"):
        taciturn.resume(tmp_path / "r")


@pytest.mark.parametrize(
    "changes", [{}, {"eta_scale": 2.0}, {"algorithm": "hidden"}, {"algorithm": "hidden", "eta": 0.7}, {"rho": 0.3}]
)
def test_a_stored_plan_gives_the_same_plan(tmp_path: Path, changes: dict[str, Any]) -> None:
    import tomli_w

    from taciturn.planning.tradeoffs import plan_facts, planned_settings

    given = CLINICS | {"total_epsilon": 2.0} | changes
    view = taciturn.plan(**given)
    (tmp_path / "plan.toml").write_text(tomli_w.dumps(planned_settings(view, given)))
    direct, planned = (
        taciturn.run(out=str(tmp_path / "a"), **given),
        taciturn.run(tmp_path / "plan.toml", out=str(tmp_path / "b")),
    )
    np.testing.assert_allclose(direct.w, planned.w, rtol=1e-9)
    facts, first = plan_facts(view), direct.folder.read_metrics()[0]
    assert (facts["rho"], facts["eta"]) == pytest.approx((first["rho"], first["eta"]))
    chosen = next(pace for pace in facts["paces"] if pace["chosen"])
    if "eta" not in changes:
        assert chosen["noise_multiplier"] == pytest.approx(
            facts["noise"]["scale"] / facts["noise"]["l2_sensitivity"], rel=1e-3
        )


def test_a_run_can_be_resumed_only_with_its_local_only_folder(tmp_path: Path) -> None:
    import shutil

    with pytest.raises(Interrupted):
        train(tmp_path / "r", stop=lambda: True)
    shutil.rmtree(tmp_path / "r" / "local-only")
    with pytest.raises(InputError, match="local-only"):
        taciturn.resume(tmp_path / "r")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"noise_multiplier": 1e-300}, "the budget is exhausted before the first round"),
        ({"noise": "hardened", "clip": 1e-300}, "no integers for hardened noise"),
        ({"noise": "hardened", "noise_multiplier": 1e300}, "no integers for hardened noise"),
        ({"algorithm": "hidden", "rounds": 10**9}, "at most 100,000"),
    ],
)
def test_numbers_far_from_any_use_are_refused(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        train(tmp_path / "r", **changes)
    assert not (tmp_path / "r").exists()


def test_the_longest_plan_takes_no_time() -> None:
    view = taciturn.plan(**(CLINICS | {"rounds": 10**9, "mechanism": "laplace"}))
    assert view.part.plans[0].bound.epsilon == pytest.approx(1.0, rel=1e-3)


def test_a_given_noise_is_what_the_verdict_is_about() -> None:
    def noise(**changes: Any) -> float:
        return taciturn.plan(**(CLINICS | {"rounds": 300, "total_epsilon": 3.0} | changes)).proposal.noise_to_signal

    multiplier = taciturn.plan(**(CLINICS | {"rounds": 300, "total_epsilon": 3.0})).rounds_options
    planned = next(pace.noise_multiplier for pace in multiplier if pace.chosen)
    assert noise(noise_multiplier=planned) == pytest.approx(noise(), rel=1e-3)
    assert noise(noise_multiplier=4.0 * planned) == pytest.approx(4.0 * noise(), rel=1e-3)


def test_a_run_with_a_budget_stops_where_something_is_released_without_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method that adds less noise than planned is stopped."""
    monkeypatch.setattr(OutputNoise, "scale", lambda self, sensitivity: np.zeros(len(sensitivity)))
    with pytest.raises(PrivacyViolation, match="dp-fedavg released something without noise in round 1"):
        taciturn.run(**CLINICS | {"algorithm": "dp-fedavg", "rounds": 2, "out": str(tmp_path / "r")})
