"""`taciturn theory`: the paper's theorems, measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from click.exceptions import Exit

from taciturn import api
from taciturn.cli.inspect_commands import own_place
from taciturn.cli.output import print_json, print_table, stderr, stdout
from taciturn.cli.progress_display import LINE_SECONDS, progress_bars
from taciturn.errors import InputError
from taciturn.runs.folder import RunFolder
from taciturn.settings import resolve

if TYPE_CHECKING:
    from taciturn.research.theory.measure import MeanInterval
    from taciturn.research.theory.theorem_checks import Checked, Result, TheoremFinding

EPSILONS, SEEDS, ROUNDS = "0.25,0.5,1,2", 10, 2000
NAMES_WIDE, NUMBER_WIDE = 40, 11  # columns that a term with its formula takes, and each of its numbers
OWNER = "computed from the records without noise: for their owner alone"


@click.command()
@click.argument("run", required=False, type=click.Path(path_type=Path))
@click.option("--epsilon", metavar="LIST", help=f"epsilons of one local update  [default: {EPSILONS}]")
@click.option("--seeds", type=click.IntRange(2), metavar="NUMBER", help=f"noise seeds  [default: {SEEDS}]")
@click.option("--rounds", type=click.IntRange(10), metavar="NUMBER", help=f"T  [default: {ROUNDS}]")
@click.option("--gamma", type=float, metavar="NUMBER", help="weight of the disagreement  [default: twice ‖λ*‖]")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="the picture (.png, .svg, .pdf)  [default: theory.png here, or in the run's local-only]",
)
@click.option("--json", "as_json", is_flag=True, help="print one JSON object, and nothing else, on stdout")
def theory(
    run: Path | None,
    epsilon: str | None,
    seeds: int | None,
    rounds: int | None,
    gamma: float | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Hold the paper's three convergence theorems against what Algorithm 1 does.

    Without RUN on three small problems with seeds, one for each theorem: the measured gap under the theorem's bound, as
    printed and as its proof gives it once repaired, and how fast it falls with rounds, with epsilon and with local
    updates; and propositions 1 and 2, each on a small example. With RUN, a folder of --mode paper with objp or objpm
    and --set box or l2-ball, on the run's own records: its rounds are made again, and what comes out is for the owner
    of the records alone. Assumptions that do not hold are named. A mean above its bound, where all assumptions hold,
    ends with exit code 1.

    \b
    Examples:
      taciturn theory
      taciturn theory --epsilon 0.1,1 --seeds 20 --rounds 5000 --out theorems.svg
      taciturn theory runs/paper
      taciturn theory runs/paper --gamma 2 --json
    """
    from taciturn.reporting.figures.style import check_place
    from taciturn.research.theory.theorems import check_gamma

    if out is not None:
        check_place(out)
    check_gamma(gamma)
    if run is None:
        results = _on_problems(epsilon or EPSILONS, seeds or SEEDS, rounds or ROUNDS, gamma, out, as_json)
    else:
        given = {"--epsilon": epsilon, "--seeds": seeds, "--rounds": rounds}
        if told := [name for name, value in given.items() if value is not None]:
            raise InputError(f"{' and '.join(told)} cannot be given with a run: its own settings say it")
        results = _on_run(run, gamma, out, as_json)
    if any(one.verdict == "above the bound" and not one.uncovered for result in results for one in _all(result)):
        stderr.print("a measured mean is above its bound, and all assumptions hold", soft_wrap=True, highlight=False)
        raise Exit(1)


def _on_problems(
    epsilon: str, seeds: int, rounds: int, gamma: float | None, out: Path | None, as_json: bool
) -> list[Result]:
    from taciturn.reporting.figures.style import save
    from taciturn.research.theory.propositions import (
        proposition_1,
        proposition_2,
    )
    from taciturn.research.theory.small_problems import cases
    from taciturn.research.theory.theorem_checks import (
        check,
        summary,
        work,
    )
    from taciturn.research.theory.theory_figure import figure

    epsilons = _numbers(epsilon)
    found, results = cases(), []
    with _watching(len(found) * work(rounds)) as watch:
        for case in found:
            step = watch(f"theorem {case.theorem.number}")
            results.append(check(case, epsilons, seeds, rounds, gamma, step))
    approach, ratios = proposition_1(), proposition_2()
    path = out or Path("theory.png")
    save(figure(results), path)
    if as_json:
        propositions = {"proposition_1": approach.summary(), "proposition_2": ratios._asdict()}
        print_json({"picture": str(path), "theorems": [summary(result) for result in results], **propositions})
    else:
        _print(results)
        _say(f"proposition 1: {approach.words}")
        _say(f"proposition 2: {ratios.words}")
        _say(f"picture  {path}")
    return results


def _on_run(run: Path, gamma: float | None, out: Path | None, as_json: bool) -> list[Result]:
    from taciturn.reporting.figures.style import save
    from taciturn.research.theory.theorem_checks import (
        check_run,
        refuse_uncovered,
        summary,
    )
    from taciturn.research.theory.theory_figure import run_figure

    refuse_uncovered(resolve(RunFolder.open(run).read_config()))
    folder, study = api.rebuild_study(run)
    with _watching(sum(part.rounds for part in study.parts)) as watch:
        steps = {part.batch.algorithm: watch(part.batch.algorithm) for part in study.parts}
        checked = check_run(study, gamma, lambda part, t: steps[part.batch.algorithm](t))
    path = out or own_place(folder) / "theory.png"
    save(run_figure(checked, f"{OWNER[0].upper()}{OWNER[1:]}."), path, private=True)
    if as_json:
        found = [{"algorithm": one.algorithm, **summary(one.result)} for one in checked]
        print_json({"picture": str(path), "note": OWNER, "theorems": found})
    else:
        _print_run(checked, path)
        stderr.print(f"note: all of this is {OWNER}", soft_wrap=True, highlight=False)
    return [one.result for one in checked]


def _numbers(text: str) -> tuple[float, ...]:
    from taciturn.research.theory.theorems import check_epsilons

    try:
        found = tuple(float(word) for word in text.split(","))
    except ValueError:
        raise InputError(f"epsilon is '{text}': it must be numbers with commas between them, such as 0.5,1") from None
    check_epsilons(found)
    return tuple(dict.fromkeys(found))


HEADINGS = ("theorem", "measured", "bound", "ratio", "in T", "in ε", "promised")


def _print(results: Sequence[Result]) -> None:
    from taciturn.research.theory.measure import FEWEST

    one = results[0].shown
    at = f"ε = {one.setting.epsilon:g}, T = {one.rounds[-1]:,}, {one.seeds} seeds"
    _say(f"E[F(z) − F(z*) + γ‖Aw − z‖] at {at}")
    _say("it falls as T^−a and grows as ε^−b: a in T, b in ε, ± half the interval\n")
    print_table(HEADINGS, [_row(result) for result in results])
    _say("")
    for result in results:
        name = f"theorem {result.theorem.number}"
        why = f": a fit takes {FEWEST} points, each above 0" if "no exponent" in result.verdict else ""
        _say(f"{name}: {result.verdict}{why}")
        _tell(name, _all(result))


def _row(result: Result) -> tuple[str, ...]:
    one, theorem = result.shown, result.theorem
    return (
        f"{theorem.number} {theorem.name}",
        f"{one.measured[-1].value:.3g}",
        f"{one.corrected[-1].total:.3g}",
        f"{one.ratio:.2g}",
        _exponent(one.exponent),
        _exponent(result.in_epsilon),
        f"{theorem.in_rounds:g}, {theorem.in_epsilon:g}",
    )


def _exponent(found: MeanInterval | None) -> str:
    if found is None:
        return ""
    return f"{found.value:.2f}±{(found.high - found.low) / 2.0:.2f}"


def _print_run(checked: Sequence[Checked], path: Path) -> None:
    for algorithm, result in checked:
        ones = result.findings
        first = ones[0]
        head = f"{algorithm}, theorem {result.theorem.number}, T = {first.rounds[-1]:,}, E = {first.setting.updates}, "
        _say(f"{head}{_seeds(first.seeds)}, γ = {result.gamma:.4g}, F(z*) = {_least(result)}\n")
        across = max(1, (stdout.width - NAMES_WIDE) // NUMBER_WIDE)
        for start in range(0, len(ones), across):
            _print_terms(ones[start : start + across])
        for verdict in dict.fromkeys(one.verdict for one in ones):
            at = ", ".join(f"{one.setting.epsilon:g}" for one in ones if one.verdict == verdict)
            _say(f"{algorithm}: {verdict} at ε = {at}")
        _tell(algorithm, ones)
    _say(f"picture  {path}")


def _print_terms(ones: Sequence[TheoremFinding]) -> None:
    """A column for each epsilon."""
    terms = zip(*(one.corrected[-1].terms for one in ones), strict=True)
    rows = [(term[0].name, term[0].formula, *(f"{each.value:.3g}" for each in term)) for term in terms]
    rows += [
        ("bound", "the sum", *(f"{one.corrected[-1].total:.3g}" for one in ones)),
        ("as printed", "", *(f"{one.stated[-1].total:.3g}" for one in ones)),
        ("measured", "F(z) − F(z*) + γ‖Aw − z‖", *(f"{one.measured[-1].value:.3g}" for one in ones)),
    ]
    print_table(("term", "formula", *(f"ε = {one.setting.epsilon:g}" for one in ones)), rows, left=2)
    _say("")


def _least(result: Result) -> str:
    """F(z*), and how far below the solver's point it may be at most, where that shows."""
    value, accuracy = result.optimum.value, result.optimum.accuracy
    return f"{value:.6g}" if accuracy < 1e-6 * abs(value) else f"{value:.6g} (or less, by at most {accuracy:.1g})"


def _seeds(number: int) -> str:
    return f"{number} seeds" if number > 1 else "1 seed"


def _tell(name: str, ones: Sequence[TheoremFinding]) -> None:
    """The assumptions that do not hold, each once, with the settings they were seen at."""
    seen: dict[str, str] = {}
    for one in ones:
        where = f"ε = {one.setting.epsilon:g}, E = {one.setting.updates}"
        for wrong in one.broken:
            seen.setdefault(wrong.assumption, f"{wrong.words} ({where})")
        for t in one.above[:1]:
            seen.setdefault("above", f"the mean is above the bound, first at T = {t} ({where})")
    for assumption, words in seen.items():
        label = "" if assumption == "above" else f"assumption {assumption}: " if assumption[0].isdigit() else ""
        _say(f"{name}: {label}{words}")


def _all(result: Result) -> tuple[TheoremFinding, ...]:
    return (*result.findings, *result.by_updates)


def _say(text: str) -> None:
    stdout.print(text, soft_wrap=True, highlight=False)


@contextmanager
def _watching(total: int) -> Iterator[Callable[[str], Callable[[int], None]]]:
    """A bar over all rounds on a terminal, a line now and then in a log."""
    spoke, done = time.monotonic(), 0
    with progress_bars(stderr) as bars:
        task = bars.add_task("optimum", total=total)

        def named(name: str) -> Callable[[int], None]:
            def step(t: int) -> None:
                nonlocal spoke, done
                done += 1
                bars.update(task, completed=done, description=name)
                if not stderr.is_terminal and time.monotonic() - spoke > LINE_SECONDS:
                    spoke = time.monotonic()
                    stderr.print(f"{name}: {done:,} of {total:,} rounds", soft_wrap=True, highlight=False)

            return step

        yield named
