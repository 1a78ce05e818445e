"""Bad input gives exit code 2 and one sentence, and nothing is written."""

from __future__ import annotations

import gzip
import re
import struct
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from taciturn import api
from tests.cli.helpers import CLINICS, DECLARED, EXAMPLE, PAPER, TABLE, messages, refused, taciturn


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("rum",), "no command 'rum' (did you mean 'run'?)"),
        (("data", "lst"), "no command 'lst' (did you mean 'list'?)"),
        (("run", "--epsilon", "0"), "epsilon is 0: it must be above 0, or inf"),
        (("run", "--epsilon", "-1"), "epsilon is -1: it must be above 0, or inf"),
        (("run", "--local-updates", "0"), "local-updates is 0"),
        (("run", "--rounds", "0"), "rounds is 0"),
        (("run", "--algorithm", "objpx"), "no algorithm 'objpx' (did you mean 'objp'?)"),
        (("run", "--data", "mnist41"), "no data set 'mnist41' (did you mean 'mnist14'?)"),
        (("run", "--data", "nothing.csv"), "nothing.csv"),
        (("run", "nothing.toml"), "there is no config file nothing.toml"),
        (("run", "--agents", "70000"), "70000"),
        (("run", "--schema", "s.toml"), "schema has no effect on mnist14"),
        (("run", "--rounds", "inf"), "rounds is inf: it must be a whole number"),
        (("run", *TABLE, *PAPER, "--partition", "shuffled"), "the table names its agents"),
        (("run", *TABLE, *PAPER, "--agents", "7"), "agents is 7, but the table names 3 agents"),
        (("config", "init", "no/such/folder/c.toml"), "there is no folder no/such/folder"),
        (("show", "nowhere"), "there is no run folder nowhere"),
        (("resume", "nowhere"), "there is no run folder nowhere"),
        (("plot", "nowhere"), "there is no run folder nowhere"),
        (("data", "fetch", "mnist14"), "mnist14 cannot be fetched"),
    ],
)
def test_it_ends_with_one_sentence(tmp_path: Path, args: tuple[str, ...], sentence: str) -> None:
    assert sentence in refused(*args, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_flag_names_the_nearest(tmp_path: Path) -> None:
    assert "'--epsilon'" in refused("run", "--epsilom", "1", cwd=tmp_path)
    assert "requires an argument" in refused("run", "--epsilon", cwd=tmp_path)
    assert "missing argument" in refused("show", cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_key_in_a_file_stops_the_run(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("epsilom = 1\n")
    assert "no setting 'epsilom' (did you mean 'epsilon'?)" in refused("run", "c.toml", cwd=tmp_path)
    (tmp_path / "c.toml").write_text("epsilon = = 1\n")
    assert "is not a TOML file" in refused("run", "c.toml", cwd=tmp_path)
    (tmp_path / "c.toml").write_bytes(b'name = "\xff"')
    assert "is not a TOML file" in refused("run", "c.toml", cwd=tmp_path)
    assert "is the schema of a table" in refused("run", EXAMPLE / "schema.toml", cwd=tmp_path)
    assert "is a folder" in refused("run", tmp_path, cwd=tmp_path)


CHANGES = [
    ("17.99,", "nan,", "radius: 1 missing value became"),
    ("17.99,", "wide,", "radius: 1 value that is not a finite number became"),
    (",malignant\n", ",unclear\n", "diagnosis: 1 record without a label that the schema allows was left out"),
]


def test_bad_cells_of_a_table_stop_no_run_and_are_shown_to_their_owner(tmp_path: Path) -> None:
    """`taciturn data info` names column and line; what a run says to everybody is the same with and without them.

    Only stderr, which nobody else sees, says how many rows are used if not all are.
    """
    text = (EXAMPLE / "records.csv").read_text()
    schema, said = ("--schema", str(EXAMPLE / "schema.toml")), set()
    for number, (old, new, note) in enumerate((("17.99,", "17.99,", "area: 1 value outside"), *CHANGES)):
        (tmp_path / "t.csv").write_text(text.replace(old, new, 1))
        shown = taciturn("data", "info", "t.csv", *schema, cwd=tmp_path).stdout
        assert note in shown and ("line 2 of t.csv" in shown or old == new)
        words = ("run", "--data", "t.csv", *schema, *DECLARED, "--rounds", "2", "--total-epsilon", "1")
        done = taciturn(*words, "--out", f"run-{number}", cwd=tmp_path)
        own = [line for line in done.stderr.splitlines() if "rows are used" in line]
        said.add(tuple(messages(done.stderr)))
        assert own == ([f"note: 568 of 569 rows are used; {note}"] if "left out" in note else [])
        assert f"run-{number}/local-only/report.html (for the owner of the records" in done.stdout
        assert "line 2" not in done.stdout + done.stderr and "rows are used" not in done.stdout
    assert len(said) == 1
    taciturn("run", "--data", "t.csv", *schema, *PAPER, "--rounds", "1", "--out", tmp_path / "paper", cwd=tmp_path)


def test_a_column_that_cannot_be_read_is_named_to_the_owner_alone(tmp_path: Path) -> None:
    """A file with decimal commas would otherwise be trained on in silence."""
    header, *rows = (EXAMPLE / "records.csv").read_text().splitlines()
    place = header.split(",").index("radius")
    cells = [[f'"{c.replace(".", ",")}"' if i == place else c for i, c in enumerate(row.split(","))] for row in rows]
    (tmp_path / "t.csv").write_text("\n".join([header, *map(",".join, cells), ""]))
    words = ("run", "--data", "t.csv", "--schema", EXAMPLE / "schema.toml", *DECLARED, "--rounds", "2")
    done = taciturn(*words, "--total-epsilon", "1", "--out", "run", cwd=tmp_path)
    sentence = "most values of column 'radius' do not fit its declaration: 561 of 569 are texts where a number belongs"
    assert [line for line in done.stderr.splitlines() if line.startswith(f"note: {sentence}")]
    assert "17,99" not in done.stdout + done.stderr and "most values" not in done.stdout
    public = [file for file in (tmp_path / "run").rglob("*") if file.is_file() and "local-only" not in file.parts]
    assert [file.name for file in public if b"most values" in file.read_bytes()] == []
    assert "561 of 569 are texts" in (tmp_path / "run" / "local-only" / "report.html").read_text()


def test_a_run_on_no_record_says_so_to_the_owner_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Classes that no row has are the commonest mistake, and a private run cannot refuse it."""
    schema = (EXAMPLE / "schema.toml").read_text().replace('["benign", "malignant"]', '["Benign", "Malignant"]')
    (tmp_path / "s.toml").write_text(schema)
    words = ("run", "--data", EXAMPLE / "records.csv", "--schema", "s.toml", *DECLARED, "--rounds", "2")
    done = taciturn(*words, "--total-epsilon", "1", "--out", "run", cwd=tmp_path)
    sentence = "0 of 569 rows are used; diagnosis: 569 records without a label that the schema allows were left out"
    assert f"note: {sentence}" in done.stderr.splitlines() and "rows are used" not in done.stdout
    warning = "the model has learned nothing: none of the 569 rows is a record"
    assert f"note: {warning}" in done.stderr.splitlines() and "learned nothing" not in done.stdout
    public = [file for file in (tmp_path / "run").rglob("*") if file.is_file() and "local-only" not in file.parts]
    assert [file.name for file in public if re.search(b"left out|learned nothing", file.read_bytes())] == []
    own = (tmp_path / "run" / "local-only" / "report.html").read_text()
    assert "569 records without a label" in own and f"<strong>Check:</strong> {warning}" in own
    frame = pd.read_csv(EXAMPLE / "records.csv")
    declared: dict[str, Any] = {"total_records": 600, "agents": 3, "rounds": 2, "total_epsilon": 1, "seed": 1}
    api.run(data=frame, schema=tmp_path / "s.toml", out=tmp_path / "frame", **declared)
    assert sentence in caplog.messages


def test_a_total_that_is_far_from_the_records_is_named_to_the_owner_alone(tmp_path: Path) -> None:
    words = ("run", "--data", EXAMPLE / "records.csv", "--schema", EXAMPLE / "schema.toml", "--agents", "3")
    for total, out in (("60000", "far"), ("1000", "near")):
        done = taciturn(*words, "--total-records", total, "--rounds", "2", "--out", out, cwd=tmp_path)
        assert ("note: total-records is 60,000, but 569 records train" in done.stderr) == (out == "far")
        alone = r"(?<![\w.,])569(?![\w.,]*\d)"  # not within another number, such as a noisy objective
        page = (tmp_path / out / "report.html").read_text()
        shown = re.sub(r"<(style|svg)\b.*?</\1>|data:[^\"']*", " ", page, flags=re.S)  # pictures hold any numbers
        assert "1,000" in shown or "60,000" in shown
        assert re.search(alone, done.stderr) or out == "near"
        assert not re.search(alone, done.stdout) and not re.search(alone, shown)


def test_a_class_that_was_never_seen(tmp_path: Path) -> None:
    schema = (EXAMPLE / "schema.toml").read_text().replace('["benign", "malignant"]', '["benign", "malignant", "rare"]')
    (tmp_path / "s.toml").write_text(schema)
    sentence = refused("run", "--data", EXAMPLE / "records.csv", "--schema", "s.toml", *PAPER, cwd=tmp_path)
    assert "class 'rare' has no training record" in sentence


def test_a_truncated_idx_file(tmp_path: Path) -> None:
    folder = tmp_path / "mnist"
    folder.mkdir()
    for part, n in (("train", 20), ("t10k", 10)):
        images = struct.pack(">iiii", 2051, n, 28, 28) + bytes(n * 784)
        labels = struct.pack(">ii", 2049, n) + bytes(i % 10 for i in range(n))
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images[:-5] if part == "t10k" else images))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    sentence = refused("run", "--data", "mnist", "--data-dir", tmp_path, "--seed", "1", "--out", tmp_path / "r")
    assert "t10k-images-idx3-ubyte" in sentence
    assert not (tmp_path / "r").exists()


def test_missing_mnist_says_what_to_put_where(tmp_path: Path) -> None:
    sentence = refused("run", "--data", "mnist", "--data-dir", tmp_path)
    assert "taciturn data fetch mnist" in sentence
    assert "train-images-idx3-ubyte" in sentence


def test_a_model_and_a_table_that_do_not_fit(tmp_path: Path) -> None:
    taciturn("run", *CLINICS, "--rounds", "1", "--out", tmp_path / "r")
    (tmp_path / "t.csv").write_text("radius,texture\n1,2\n")
    assert "column" in refused("predict", tmp_path / "r", tmp_path / "t.csv")
    assert "does not fit" in refused("evaluate", tmp_path / "r", "mnist14")
    assert "there is no run 5" in refused("predict", tmp_path / "r", EXAMPLE / "records.csv", "--run-index", "5")
    regression = (
        (EXAMPLE / "schema.toml").read_text().replace('classes = ["benign", "malignant"]', "bounds = [0.0, 1.0]")
    )
    regression = regression.replace('column = "diagnosis"', 'column = "radius"').replace("[0.0, 1.0]", "[0.0, 40.0]")
    regression = regression.replace('[columns.radius]\nkind = "numeric"\nbounds = [0.0, 30.0]\n', "")
    (tmp_path / "s.toml").write_text(regression)
    numbers = ("--data", EXAMPLE / "records.csv", "--schema", tmp_path / "s.toml")
    taciturn("run", *numbers, *PAPER, "--rounds", "1", "--out", tmp_path / "n")
    assert "cannot be compared" in refused("compare", tmp_path / "r", tmp_path / "n")
    assert "cannot be compared" in refused("plot", tmp_path / "r", tmp_path / "n", "--out", tmp_path / "p.png")
    (tmp_path / "r" / "model.npz").write_bytes(b"PK broken")
    assert "model.npz is damaged" in refused("predict", tmp_path / "r", EXAMPLE / "records.csv")
