"""The paper's theorems, measured: the table, the picture and the counterexamples of docs/explanation/theorems.md.

    taciturn bench theory

Algorithm 1 with the paper's noise on three small problems with seeds, one for each theorem, against the theorem's bound
as printed and as repaired. Writes benchmarks/results/theory.json and docs/images/theory.png.

Takes a minute.
"""

from __future__ import annotations

from benchmarks.program import DOCS, arguments, rounded, write_results

from taciturn.reporting.figures.style import save
from taciturn.research.theory.bounds import per_update, right_side
from taciturn.research.theory.counterexamples import dual_norms, stated_bound_violation, two_means
from taciturn.research.theory.propositions import proposition_1
from taciturn.research.theory.small_problems import cases
from taciturn.research.theory.theorem_checks import UPDATES, Result, check, summary
from taciturn.research.theory.theorems import THEOREMS
from taciturn.research.theory.theory_figure import figure

EPSILONS, SEEDS, ROUNDS = (0.25, 0.5, 1.0, 2.0), 12, 4000
TOTAL = 10.0  # epsilon of everything, for what E does at equal privacy
PICTURE = DOCS / "images" / "theory.png"
DIGITS = 5  # the rest depends on the machine


def equal_privacy(result: Result) -> dict[str, dict[str, float]]:
    """The repaired bound at one total epsilon over T = 100 rounds, for every E."""
    found: dict[str, dict[str, float]] = {}
    for composition in ("basic", "root"):
        found[composition] = {}
        for updates in UPDATES:
            epsilon = per_update(TOTAL, 100, updates, composition)
            at = result.shown.setting._replace(epsilon=epsilon, updates=updates)
            found[composition][str(updates)] = right_side(result.theorem, result.constants, at, 100).total
    return found


def main() -> None:
    """Measure, draw, write."""
    given = arguments(__doc__, "theory").parse_args()
    results = [check(case, EPSILONS, SEEDS, ROUNDS) for case in cases()]
    save(figure(results), PICTURE)
    lengths = dual_norms(100)
    found = {
        "what": f"Algorithm 1 on the three seeded problems of taciturn theory, {SEEDS} seeds, {ROUNDS} rounds",
        "theorems": [summary(result) for result in results],
        "at_equal_privacy": {
            "what": f"the repaired bounds over 100 rounds at a total epsilon of {TOTAL:g}, for E local updates",
            **{str(result.theorem.number): equal_privacy(result) for result in results},
        },
        "stated_bounds_broken": {str(t.number): stated_bound_violation(t)._asdict() for t in THEOREMS.values()},
        "two_means": {str(updates): two_means(updates)._asdict() for updates in (1, 2, 5, 10)},
        "dual_lengths_under_one_course_of_noise": {str(t): lengths[t - 1] for t in (1, 10, 100)},
        "proposition_1": proposition_1().summary(),
    }
    write_results(given.out, rounded(found, DIGITS))
    for result in results:
        one = result.shown
        print(result.theorem.number, result.verdict, one.measured[-1], one.corrected[-1].total, one.stated[-1].total)
        print(" in T", one.exponent, "in epsilon", result.in_epsilon)


if __name__ == "__main__":
    main()
