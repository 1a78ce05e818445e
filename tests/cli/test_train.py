"""Training from the command line, for a user with a table."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from tests.cli.helpers import CLINICS, EXAMPLE, refused, taciturn, taciturn_json

RUN_KEYS = {
    "algorithm", "epsilon", "seed", "rounds", "test_error", "train_objective", "consensus_residual", "seconds",
    "bytes_up", "bytes_down",
}  # fmt: skip


def test_json_is_one_object_with_the_promised_keys(tmp_path: Path) -> None:
    found = taciturn_json("run", *CLINICS, "--rounds", "3", "--epsilon", "1,inf", "--out", tmp_path / "r")
    assert found["run"] == str(tmp_path / "r")
    assert len(found["runs"]) == 2
    for entry in found["runs"]:
        assert set(entry) >= RUN_KEYS
    assert [entry["epsilon"] for entry in found["runs"]] == [1.0, "inf"]


def test_the_whole_journey(tmp_path: Path) -> None:
    """Draft a schema, train, look, compare, draw, report, predict, evaluate."""
    records = EXAMPLE / "records.csv"
    drafted = tmp_path / "schema.toml"
    draft = taciturn("data", "schema", records, "--label", "diagnosis", "--agent", "clinic", "--out", drafted)
    assert "not private" in draft.stderr
    assert "NOT PRIVATE" in drafted.read_text()
    assert "exists" in refused("data", "schema", records, "--label", "diagnosis", "--out", drafted)

    run = ("run", "--data", records, "--schema", drafted, "--test-share", "0.25", "--rounds", "30", "--mode", "paper")
    done = taciturn(*run, "--epsilon", "inf", "--out", tmp_path / "a")
    assert "objpm, no noise" in done.stdout
    assert str(tmp_path / "a" / "report.html") in done.stdout
    taciturn(*run, "--epsilon", "1", "--seeds", "2", "--out", tmp_path / "b")

    assert "objpm, no noise" in taciturn("show", tmp_path / "a").stdout
    assert taciturn("show", tmp_path / "a", tmp_path / "b").stdout.count("seed") == 3
    compared = taciturn("compare", tmp_path / "a", tmp_path / "b").stdout
    assert "epsilon" in compared
    assert "seeds" in compared
    settings = taciturn_json("compare", tmp_path / "a", tmp_path / "b")["settings"]
    assert settings == {"epsilon": [["inf"], [1.0]], "seeds": [1, 2]}

    taciturn("plot", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "both.svg")
    assert (tmp_path / "both.svg").read_text().count("<svg") == 1
    assert taciturn("plot", tmp_path / "a").stdout.strip() == str(tmp_path / "a" / "curves.png")
    report = (tmp_path / "a" / "report.html").read_text()
    (tmp_path / "a" / "report.html").unlink()
    taciturn("report", tmp_path / "a")
    assert (tmp_path / "a" / "report.html").read_text() == report

    predicted = taciturn("predict", tmp_path / "a", records).stdout.splitlines()
    assert predicted[0] == "prediction,probability_benign,probability_malignant"
    assert len(predicted) == 570
    truth = [line.rsplit(",", 1)[1] for line in records.read_text().splitlines()[1:]]
    wrong = sum(line.split(",")[0] != label for line, label in zip(predicted[1:], truth, strict=True))
    kept = taciturn("predict", tmp_path / "b", records, "--keep", "clinic", "--run-index", "1")
    assert kept.stdout.startswith("clinic,prediction,")
    assert "using run 1 of 2: objpm, epsilon 1, seed 2" in kept.stderr
    assert "benign  malignant" in taciturn("evaluate", tmp_path / "a", records).stdout
    quality = taciturn_json("evaluate", tmp_path / "a", records)
    assert quality["error"] == pytest.approx(wrong / 569)
    assert quality["error"] < 0.12
    assert quality["auroc"] > 0.95
    assert sum(map(sum, quality["confusion"])) == 569


def test_flags_override_the_config_file(tmp_path: Path) -> None:
    taciturn("config", "init", tmp_path / "study.toml")
    assert "exists" in refused("config", "init", tmp_path / "study.toml")
    (tmp_path / "study.toml").write_text('rounds = 4\nalgorithm = ["objp", "iadmm"]\nepsilon = [2.0]\nbeta = 1e-4\n')
    taciturn("run", tmp_path / "study.toml", *CLINICS, "--rounds", "2", "--out", tmp_path / "r")
    config = tomllib.loads((tmp_path / "r" / "config.toml").read_text())
    assert (config["rounds"], config["algorithm"], config["beta"]) == (2, ["objp", "iadmm"], 1e-4)
    assert Path(config["data"]).is_absolute()
    assert isinstance(config["rho"], float)  # what auto came to is spelled out


def test_values_of_a_repeated_flag_are_joined(tmp_path: Path) -> None:
    found = taciturn_json(
        "run", *CLINICS, "--rounds", "1", "--epsilon", "1", "--epsilon", "inf", "--out", tmp_path / "r"
    )
    assert [entry["epsilon"] for entry in found["runs"]] == [1.0, "inf"]


def test_what_taciturn_run_does_with_no_argument(tmp_path: Path) -> None:
    """The embedded data, total epsilon 1, the planner's choice but for fewer rounds, to save time."""
    found = taciturn_json("run", "--rounds", "20", "--evaluate-every", "20", cwd=tmp_path)
    (run,) = found["runs"]
    assert (run["algorithm"], run["epsilon"]) == ("dpgd", 1.0)
    assert run["test_error"] <= 0.045  # of 20 rounds; of the planner's 300 it is 0.025
    assert found["mode"] == "certified"
    assert 0.999 <= found["privacy"]["runs"][0]["spent_epsilon"] <= 1.0
    assert found["data"]["records"] == 60000
    assert len(found["data"]["agents"]) == 10
    folder = tmp_path / found["run"]
    assert folder.parent.name == "runs"
    assert "scattering" in (folder / "report.html").read_text()


def test_one_file_for_each_agent_and_parquet(tmp_path: Path) -> None:
    """The same records as one CSV with an agent column, as a folder of CSVs and as Parquet give the same model."""
    import pyarrow.csv
    import pyarrow.parquet

    records = EXAMPLE / "records.csv"
    header, *lines = records.read_text().splitlines()
    folder = tmp_path / "sites"
    folder.mkdir()
    for site in ("north", "south", "west"):
        rows = [line for line in lines if line.startswith(site)]
        (folder / f"{site}.csv").write_text("\n".join([header, *rows]) + "\n")
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(records), tmp_path / "records.parquet")
    models = []
    for i, data in enumerate((records, folder, tmp_path / "records.parquet")):
        out = tmp_path / f"r{i}"
        taciturn(
            "run", "--data", data, "--schema", EXAMPLE / "schema.toml", "--rounds", "3", "--mode", "paper", "--out", out
        )
        with np.load(out / "model.npz") as stored:
            models.append(stored["w"])
    np.testing.assert_array_equal(models[0], models[1])
    np.testing.assert_array_equal(models[0], models[2])


def test_a_model_of_images_predicts_and_is_evaluated(tmp_path: Path) -> None:
    taciturn(
        "run", "--data", "mnist14", "--algorithm", "objp", "--rounds", "2", "--mode", "paper", "--out", tmp_path / "r"
    )
    quality = taciturn_json("evaluate", tmp_path / "r", "mnist14")
    assert quality["records"] == 10000
    assert "10,000 records\n" in taciturn("evaluate", tmp_path / "r", "mnist14").stdout
    assert quality["error"] == pytest.approx(taciturn_json("show", tmp_path / "r")["runs"][0]["test_error"])
    names = [f"pixel_{r}_{c}" for r in range(14) for c in range(14)]
    (tmp_path / "digits.csv").write_text(",".join(names) + "\n" + ",".join(["0.5"] * 196) + "\n")
    predicted = taciturn("predict", tmp_path / "r", tmp_path / "digits.csv").stdout.splitlines()
    assert len(predicted) == 2
    (tmp_path / "half.csv").write_text(",".join(names[:100]) + "\n" + ",".join(["0.5"] * 100) + "\n")
    assert "no column 'pixel_7_2'" in refused("predict", tmp_path / "r", tmp_path / "half.csv")
