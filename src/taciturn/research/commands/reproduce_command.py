"""`taciturn reproduce`: repeat the experiments of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import rich_click as click
from click.exceptions import Exit

from taciturn.cli.output import JSON, PATH, note, print_json, print_table, say, stderr
from taciturn.core.signals import stop_signals
from taciturn.errors import InputError
from taciturn.research import reproduction
from taciturn.research.reproduction.paper_runs import parse_figures
from taciturn.research.reproduction.paper_table import HEADINGS, comparison, markdown, notes, ordering, rows
from taciturn.research.reproduction.published import Summary
from taciturn.research.reproduction.reproduce import check_device, has_gpu
from taciturn.training_display import TrainingDisplay

WHOLE = "whole"  # the name of a bar


class ReproductionDisplay(TrainingDisplay):
    """A bar for the whole besides those of the studies; lines in a log give the time left of the whole."""

    def show_whole(self, done: int, total: int) -> None:
        """Show how much of all studies is done."""
        self._update(WHOLE, done, total, "")

    def _left(self, name: str) -> str:
        left = super()._left(WHOLE)
        return f"{left} of the whole" if left else ""


@click.command()
@click.argument("data", required=False, metavar="mnist|femnist")
@click.option(
    "--quick", is_flag=True, help="fewer rounds and one seed: shows the ordering of the algorithms in minutes"
)
@click.option("--figures", help="which of the paper's figures to draw  [default: 1,2,3,4; --quick: 1,2,3]")
@click.option("--device", help="cpu, cuda or cuda:N  [default: a GPU if there is one]")
@click.option("--products", help="matrix products on a GPU: half, tf32 or float32  [default: half]")
@click.option("--rounds", type=click.IntRange(1), help="T  [default: 20000, as in the paper]")
@click.option("--seeds", type=click.IntRange(1), help="noise seeds  [default: 10, as in the paper]")
@click.option("--data-dir", help="folder of the data sets  [default: $TACITURN_DATA]")
@click.option("--out", type=PATH, help="folder to write to  [default: runs/reproduce-DATA]")
@click.option("--from", "given", multiple=True, type=PATH, help="draw from folders that were computed elsewhere")
@JSON
def reproduce(
    data: str | None,
    quick: bool,
    figures: str | None,
    device: str | None,
    products: str | None,
    rounds: int | None,
    seeds: int | None,
    data_dir: str | None,
    out: Path | None,
    given: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Repeat the paper's experiments, draw its figures, and compare the results with the published ones.

    The grid is OutP, ObjP and ObjPM at four budgets over the seeds (figures 1 to 3), and OutP with other penalties
    (figure 4). The whole grid needs a GPU; --quick shows the ordering of the algorithms on a laptop. The same command
    continues a reproduction that was stopped or killed. The computation alone also runs where only Python, numpy, torch
    and triton are installed: python -m taciturn.research.reproduction; --from draws from its folder.

    \b
    Examples:
      taciturn reproduce mnist --quick
      taciturn reproduce mnist --device cuda
      taciturn reproduce femnist --device cuda --seeds 3 --figures 1,2
      taciturn reproduce --from runs/mnist --from runs/femnist --out figures
    """
    wanted = parse_figures(figures, quick)
    if given:
        if data or quick or rounds or seeds or device or products or data_dir:
            raise InputError(
                "--from draws existing results; the only other options it takes are --figures, --out and --json"
            )
        summaries = [reproduction.ReproductionFolder(path).read_summary() for path in given]
        if len({summary["data"] for summary in summaries}) < len(summaries):
            raise InputError("--from names two folders of one data set; give one folder for each data set")
        place = out or given[0] / "figures"
    else:
        folder = _compute(data, wanted, quick, device, products, rounds, seeds, data_dir or "", out)
        summaries, place = [folder.read_summary()], folder.figures
    place.mkdir(parents=True, exist_ok=True)
    _show(summaries, place, wanted, as_json)


def _compute(
    data: str | None,
    figures: Sequence[int],
    quick: bool,
    device: str | None,
    products: str | None,
    rounds: int | None,
    seeds: int | None,
    data_dir: str,
    out: Path | None,
) -> reproduction.ReproductionFolder:
    if data is None:
        raise InputError("no data set is given; choose mnist or femnist")
    plan = reproduction.make_plan(data, figures, quick, rounds, seeds)
    where = device or ("cuda" if has_gpu() else "cpu")
    check_device(where, products)
    if where == "cpu" and not quick and rounds is None:
        note("without a GPU the whole grid takes days; --quick shows the ordering in minutes")
    folder = reproduction.ReproductionFolder(out or Path("runs") / f"reproduce-{data}{'-quick' if quick else ''}")
    total = plan.done(plan.stages[-1], plan.rounds)
    try:
        with ReproductionDisplay(stderr) as display, stop_signals(stderr.print) as stop:

            def watch(progress: reproduction.ReproductionProgress) -> None:
                budgets = [case.epsilon for case in progress.stage.cases]
                display.show_whole(plan.done(progress.stage, progress.t), total)
                display.show(progress.stage.name, progress.t, progress.rounds, budgets, progress.test_error)

            reproduction.reproduce(plan, folder, where, products, data_dir, watch, stop)
    except (reproduction.ReproductionInterrupted, KeyboardInterrupt) as error:
        note(f"stopped: the same command continues {folder.path}")
        raise Exit(130) from error
    return folder


def _show(summaries: list[Summary], place: Path, figures: Sequence[int], as_json: bool) -> None:
    from taciturn.research.reproduction.paper_figures import draw

    drawn = draw(summaries, place, figures)
    for summary in summaries:
        (place / f"table-{summary['data']}.md").write_text(markdown(summary), encoding="utf-8")
    if as_json:
        print_json({"reproductions": [_numbers(summary) for summary in summaries], "figures": list(map(str, drawn))})
        return
    for summary in summaries:
        _print(summary)
    say(f"figures  {place}")


def _numbers(summary: Summary) -> dict[str, object]:
    return {
        "data": summary["data"],
        "quick": summary["quick"],
        "rounds": summary["rounds"],
        "seeds": summary["seeds"],
        "agents": summary["agents"],
        "records": summary["records"],
        "device": summary["device"],
        "ordering": {f"{epsilon:g}": holds for epsilon, holds in ordering(summary).items()},
        "stages": summary["stages"],
        "rows": comparison(summary),
    }


SHOWN = ("algorithm", "epsilon", "penalty", "best, %", "mean, %", "paper, %", "difference")  # in 80 columns
SHORT = ("algorithm", "ε", "penalty", "best %", "mean %", "paper", "diff.")


def _print(summary: Summary) -> None:
    seeds = "seed" if summary["seeds"] == 1 else "seeds"
    title = f"{summary['data'].upper()}, {summary['rounds']:,} rounds, {summary['seeds']} {seeds}"
    say(f"[bold]{title}[/bold]", markup=True)
    columns = [HEADINGS.index(name) for name in SHOWN]
    print_table(SHORT, [[row[i] for i in columns] for row in rows(summary)])
    for line in notes(summary):
        say(line)
    order = ordering(summary)
    for holds, words in ((True, "holds"), (False, "does not hold")):
        found = ", ".join(f"{epsilon:g}" for epsilon, kept in order.items() if kept is holds)
        if found:
            say(f"ObjPM < ObjP < OutP {words} at epsilon {found}")
    say()
