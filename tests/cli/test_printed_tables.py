"""Tables on the terminal: numbers are whole and names take the lines that they need."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from taciturn.cli import output
from taciturn.reporting.tables import EFFECT_HEADINGS, EFFECT_TEXTS, effect_rows, level_rows
from taciturn.runs.effects import ColumnEffect, RunEffects
from tests.cli.helpers import environment, taciturn


def effects(name: str, knots: tuple[float, ...], effect: tuple[float, ...]) -> RunEffects:
    """Effects of one numeric column."""
    column = ColumnEffect(
        column=name,
        form="numeric",
        names=(),
        knots=knots,
        missing=False,
        shares=(1.0 / len(knots),) * len(knots),
        effect=(effect,),
        error=((1000.0,) * len(knots),),
    )
    return RunEffects(
        run=0,
        algorithm="additive",
        epsilon=1.0,
        seed=None,
        unit="dollars",
        outputs=("price",),
        intercept=(0.0,),
        released_shares=True,
        columns=(column,),
    )


def terminal(monkeypatch: pytest.MonkeyPatch, width: int, real: bool = True) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output.stdout, "_force_terminal", real)
    monkeypatch.setattr(output.stdout, "width", width)


@pytest.mark.parametrize("width", [68, 80])
def test_numbers_are_whole(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal(monkeypatch, width)
    found = effects("median_income_of_the_block", (1e-5, 7.62939e-05, 14.37512), (-91412.34, 59412.3, 0.0))
    with output.stdout.capture() as captured:
        output.print_table(EFFECT_HEADINGS, effect_rows(found), texts=EFFECT_TEXTS)
        output.print_table(
            ("", "run", "test error"), [("0", "additive with a long name, ε = 0.5", "63.34 RMSE")], left=2
        )
    said = captured.get()
    assert "…" not in said
    for whole in (
        "column",
        "strength",
        "noise",
        "33 % within",
        "-91400",
        "+59400",
        "7.63e-05",
        "1e-05",
        "test error",
        "63.34 RMSE",
    ):
        assert whole in said
    assert max(map(len, said.splitlines())) <= width


def test_crowded_knots_are_shown_as_one() -> None:
    found = effects("age", (20.0, 20.0011, 20.0021, 54.66667, 89.9), (1.0, 2.0, 3.0, -5.0, 3.0))
    rows = level_rows(found, found.columns[0])
    assert [row[:3] for row in rows] == [("20", "60.0 %", "+2"), ("54.7", "20.0 %", "-5"), ("89.9", "20.0 %", "+3")]
    (row,) = effect_rows(found)
    assert row[2:6] == ("-5", "54.7", "+3", "20")
    dose = replace(found.columns[0], scale="log")
    assert len(level_rows(found, dose)) == 5  # 1 % of a range in a logarithmic scale is not near


@pytest.mark.parametrize("width", [20, 60])
def test_a_table_that_cannot_fit_is_not_cut(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output.stdout, "width", width)
    headings = ("rounds", "local updates", "noise multiplier", "noise of an update", "sent by an agent")
    with output.stdout.capture() as captured:
        output.print_table(headings, [("100", "1", "29.87", "4.51", "279 kB")])
    shown, cells = captured.get().splitlines()
    assert shown == "  ".join(headings) and cells.split() == ["100", "1", "29.87", "4.51", "279", "kB"]
    assert output.stdout.width == width


def test_a_narrow_terminal_leaves_out_what_can_be_spared_and_breaks_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    row = ("sealed key shares for the next sums", "additive, ε = 0.5", "18.30 %", "15.02 %", "21.11 %", "0.0056")
    headings = ("what", "run", "test error", "lowest", "highest", "objective")
    shown = {}
    for real, width in ((True, 80), (True, 60), (True, 40), (False, 60)):
        terminal(monkeypatch, width, real)
        with output.stdout.capture() as captured:
            output.print_table(headings, [row], left=2, spare=(3, 4))
        shown[real, width] = captured.get()
        assert "additive, ε = 0.5" in captured.get() and "shares" in captured.get()
    assert "lowest" in shown[True, 80] and max(map(len, shown[True, 80].splitlines())) <= 80
    assert (
        "lowest" not in shown[True, 60]
        and "highest" not in shown[True, 60]
        and max(map(len, shown[True, 60].splitlines())) <= 60
    )
    assert "highest" not in shown[True, 40] and "18.30 %" in shown[True, 40] and "0.0056" in shown[True, 40]
    assert len(shown[False, 60].splitlines()) == 2  # into a pipe, a row is a line


def test_the_bounds_of_a_label_are_a_range(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("""[label]
column = "y"
bounds = [0, 450]
[columns.a]
kind = "numeric"
bounds = [0, 1]
""")
    (tmp_path / "t.csv").write_text("a,y\n0.5,20\n0.1,449\n")
    done = taciturn("data", "info", "t.csv", "--schema", "s.toml", cwd=tmp_path)
    assert "bounds        0 to 450\n" in done.stdout


def test_a_terminal_without_greek_shows_escapes() -> None:
    words = [sys.executable, "-m", "taciturn", "algorithms"]
    done = subprocess.run(words, env=environment(PYTHONIOENCODING="ascii"), capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "\\u03b7" in done.stdout, done.stderr
