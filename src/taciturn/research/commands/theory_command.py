"""`taciturn theory`: compare the paper's theorems with measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from click.exceptions import Exit

from taciturn.cli.output import (
    JSON,
    PATH,
    check_figure,
    note,
    print_json,
    print_table,
    save_figure,
    say,
    stderr,
    stdout,
)
from taciturn.errors import InputError
from taciturn.runs.folder import RunFolder, make_local_folder
from taciturn.settings import resolve
from taciturn.training.setup import rebuild_study
from taciturn.training_display import LogLines, progress_bars

if TYPE_CHECKING:
    from taciturn.research.theory.measure import MeanInterval
    from taciturn.research.theory.theorem_checks import CheckedAlgorithm, Result, TheoremFinding

EPSILONS, SEEDS, ROUNDS = "0.25,0.5,1,2", 10, 2000
NAMES_WIDE, NUMBER_WIDE = 40, 11  # columns that a term with its formula takes, and each of its numbers
OWNER = "computed from the records without noise: for their owner only"


@click.command()
@click.argument("run", required=False, type=PATH)
@click.option("--epsilon", metavar="LIST", help=f"epsilons of one local update  [default: {EPSILONS}]")
@click.option("--seeds", type=click.IntRange(2), metavar="NUMBER", help=f"noise seeds  [default: {SEEDS}]")
@click.option("--rounds", type=click.IntRange(10), metavar="NUMBER", help=f"T  [default: {ROUNDS}]")
@click.option("--gamma", type=float, metavar="NUMBER", help="weight of the disagreement  [default: twice ‖λ*‖]")
@click.option(
    "--out",
    type=PATH,
    metavar="FILE",
    help="the picture (.png, .svg, .pdf)  [default: theory.png here, or in the run's local-only]",
)
@JSON
def theory(
    run: Path | None,
    epsilon: str | None,
    seeds: int | None,
    rounds: int | None,
    gamma: float | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Compare the paper's three convergence theorems with measurements of Algorithm 1.

    Without RUN it uses three small problems, one for each theorem. It compares the measured gap with the theorem's
    bound, as printed and as the repaired proof gives it, shows how fast the gap falls with rounds, epsilon and local
    updates, and checks propositions 1 and 2 on a small example each. With RUN, a folder of --mode paper with objp or
    objpm and --set box or l2-ball, it repeats the run on its own records; the result is for the owner of the records
    only. Assumptions that do not hold are named. The exit code is 1 if a mean is above its bound although all
    assumptions hold.

    \b
    Examples:
      taciturn theory
      taciturn theory --epsilon 0.1,1 --seeds 20 --rounds 5000 --out theorems.svg
      taciturn theory runs/paper
      taciturn theory runs/paper --gamma 2 --json
    """
    from taciturn.research.theory.theorems import check_gamma

    check_figure(out)
    check_gamma(gamma)
    if run is None:
        results = _on_problems(epsilon or EPSILONS, seeds or SEEDS, rounds or ROUNDS, gamma, out, as_json)
    else:
        given = {"--epsilon": epsilon, "--seeds": seeds, "--rounds": rounds}
        if extra := [name for name, value in given.items() if value is not None]:
            raise InputError(f"{' and '.join(extra)} cannot be given with RUN, which has its own settings")
        results = _on_run(run, gamma, out, as_json)
    if any(one.verdict == "above the bound" and not one.uncovered for result in results for one in _all(result)):
        note("a measured mean is above its bound although all assumptions hold")
        raise Exit(1)


def _on_problems(
    epsilon: str, seeds: int, rounds: int, gamma: float | None, out: Path | None, as_json: bool
) -> list[Result]:
    from taciturn.research.theory.propositions import proposition_1, proposition_2
    from taciturn.research.theory.small_problems import cases
    from taciturn.research.theory.theorem_checks import check, count_rounds, summary
    from taciturn.research.theory.theory_figure import figure

    epsilons = _numbers(epsilon)
    found, results = cases(), []
    with _display(len(found) * count_rounds(rounds)) as watch:
        for case in found:
            step = watch(f"theorem {case.theorem.number}")
            results.append(check(case, epsilons, seeds, rounds, gamma, step))
    approach, ratios = proposition_1(), proposition_2()
    path = out or Path("theory.png")
    save_figure(figure(results), path)
    if as_json:
        propositions = {"proposition_1": approach.summary(), "proposition_2": ratios._asdict()}
        print_json({"picture": str(path), "theorems": [summary(result) for result in results], **propositions})
    else:
        _print(results)
        say(f"proposition 1: {approach.words}")
        say(f"proposition 2: {ratios.words}")
        say(f"picture  {path}")
    return results


def _on_run(run: Path, gamma: float | None, out: Path | None, as_json: bool) -> list[Result]:
    from taciturn.research.theory.theorem_checks import check_covered, check_run, summary
    from taciturn.research.theory.theory_figure import run_figure

    folder = RunFolder.open(run)
    check_covered(resolve(folder.read_config()))
    study = rebuild_study(folder)
    with _display(sum(part.rounds for part in study.parts)) as watch:
        steps = {part.batch.algorithm: watch(part.batch.algorithm) for part in study.parts}
        checked = check_run(study, gamma, lambda part, t: steps[part.batch.algorithm](t))
    path = out or make_local_folder(folder.local) / "theory.png"
    save_figure(run_figure(checked, f"{OWNER[0].upper()}{OWNER[1:]}."), path, private=True)
    if as_json:
        found = [{"algorithm": one.algorithm, **summary(one.result)} for one in checked]
        print_json({"picture": str(path), "note": OWNER, "theorems": found})
    else:
        _print_run(checked, path)
        note(f"note: all of this is {OWNER}")
    return [one.result for one in checked]


def _numbers(text: str) -> tuple[float, ...]:
    from taciturn.research.theory.theorems import check_epsilons

    try:
        found = tuple(float(word) for word in text.split(","))
    except ValueError as error:
        raise InputError(f"--epsilon is '{text}'; it must be numbers separated by commas, such as 0.5,1") from error
    check_epsilons(found)
    return tuple(dict.fromkeys(found))


HEADINGS = ("theorem", "measured", "bound", "ratio", "in T", "in ε", "promised")


def _print(results: Sequence[Result]) -> None:
    from taciturn.research.theory.measure import FEWEST

    one = results[0].shown
    at = f"ε = {one.setting.epsilon:g}, T = {one.rounds[-1]:,}, {one.seeds} seeds"
    say(f"E[F(z) − F(z*) + γ‖Aw − z‖] at {at}")
    say("it falls as T^−a and grows as ε^−b: a in T, b in ε, ± half the interval\n")
    print_table(HEADINGS, [_row(result) for result in results])
    say()
    for result in results:
        name = f"theorem {result.theorem.number}"
        why = f": a fit takes {FEWEST} points, each above 0" if "no exponent" in result.verdict else ""
        say(f"{name}: {result.verdict}{why}")
        _print_violations(name, _all(result))


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


def _print_run(checked: Sequence[CheckedAlgorithm], path: Path) -> None:
    for algorithm, result in checked:
        ones = result.findings
        first = ones[0]
        head = f"{algorithm}, theorem {result.theorem.number}, T = {first.rounds[-1]:,}, E = {first.setting.updates}, "
        say(f"{head}{_seeds(first.seeds)}, γ = {result.gamma:.4g}, F(z*) = {_least(result)}\n")
        across = max(1, (stdout.width - NAMES_WIDE) // NUMBER_WIDE)
        for start in range(0, len(ones), across):
            _print_terms(ones[start : start + across])
        for verdict in dict.fromkeys(one.verdict for one in ones):
            at = ", ".join(f"{one.setting.epsilon:g}" for one in ones if one.verdict == verdict)
            say(f"{algorithm}: {verdict} at ε = {at}")
        _print_violations(algorithm, ones)
    say(f"picture  {path}")


def _print_terms(ones: Sequence[TheoremFinding]) -> None:
    """Print the terms of the bound, with a column for each epsilon."""
    terms = zip(*(one.corrected[-1].terms for one in ones), strict=True)
    rows = [(term[0].name, term[0].formula, *(f"{each.value:.3g}" for each in term)) for term in terms]
    rows += [
        ("bound", "the sum", *(f"{one.corrected[-1].total:.3g}" for one in ones)),
        ("as printed", "", *(f"{one.stated[-1].total:.3g}" for one in ones)),
        ("measured", "F(z) − F(z*) + γ‖Aw − z‖", *(f"{one.measured[-1].value:.3g}" for one in ones)),
    ]
    print_table(("term", "formula", *(f"ε = {one.setting.epsilon:g}" for one in ones)), rows, left=2)
    say()


def _least(result: Result) -> str:
    """Return F(z*), with the solver's accuracy if that is visible."""
    value, accuracy = result.optimum.value, result.optimum.accuracy
    return f"{value:.6g}" if accuracy < 1e-6 * abs(value) else f"{value:.6g} (or less, by at most {accuracy:.1g})"


def _seeds(number: int) -> str:
    return f"{number} seeds" if number > 1 else "1 seed"


def _print_violations(name: str, ones: Sequence[TheoremFinding]) -> None:
    """Print the assumptions that do not hold, each once, with the settings at which they fail."""
    seen: dict[str, str] = {}
    for one in ones:
        where = f"ε = {one.setting.epsilon:g}, E = {one.setting.updates}"
        for wrong in one.broken:
            seen.setdefault(wrong.assumption, f"{wrong.words} ({where})")
        for t in one.above[:1]:
            seen.setdefault("above", f"the mean is above the bound, first at T = {t} ({where})")
    for assumption, words in seen.items():
        label = "" if assumption == "above" else f"assumption {assumption}: " if assumption[0].isdigit() else ""
        say(f"{name}: {label}{words}")


def _all(result: Result) -> tuple[TheoremFinding, ...]:
    return (*result.findings, *result.by_updates)


@contextmanager
def _display(total: int) -> Iterator[Callable[[str], Callable[[int], None]]]:
    """Show a bar over all rounds; the yielded function returns a callback for each part of the work."""
    done, lines = 0, LogLines(stderr)
    with progress_bars(stderr) as bars:
        task = bars.add_task("optimum", total=total)

        def named(name: str) -> Callable[[int], None]:
            def step(t: int) -> None:
                nonlocal done
                done += 1
                bars.update(task, completed=done, description=name)
                lines.print(f"{name}: {done:,} of {total:,} rounds")

            return step

        yield named
