"""Tables on the terminal: numbers are whole and names take the lines that they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from taciturn.cli import output
from taciturn.reporting.tables import EFFECT_HEADINGS, EFFECT_TEXTS, effect_rows
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


@pytest.mark.parametrize("width", [68, 80])
def test_numbers_are_whole(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output.stdout, "width", width)
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
        "7.629e-05",
        "1e-05",
        "test error",
        "63.34 RMSE",
    ):
        assert whole in said
    assert max(map(len, said.splitlines())) <= width


@pytest.mark.parametrize("width", [20, 60])
def test_a_table_that_cannot_fit_is_not_cut(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output.stdout, "width", width)
    headings = ("rounds", "local updates", "noise multiplier", "noise of an update", "sent by an agent")
    with output.stdout.capture() as captured:
        output.print_table(headings, [("100", "1", "29.87", "4.51", "279 kB")])
    shown, cells = captured.get().splitlines()
    assert shown == "  ".join(headings) and cells.split() == ["100", "1", "29.87", "4.51", "279", "kB"]
    assert output.stdout.width == width


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
