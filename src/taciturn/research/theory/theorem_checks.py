"""Comparison of measurements with bounds, on the small problems and on the records of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from taciturn.errors import InputError
from taciturn.planning.study import Study, StudyPart, local_updates
from taciturn.research.theory.assumptions import (
    ViolatedAssumption,
    implied_constants,
    match_steps,
    violated_assumptions,
)
from taciturn.research.theory.bounds import Setting, TheoremBound, right_side
from taciturn.research.theory.measure import (
    MeanInterval,
    Measured,
    exponent_in_epsilon,
    exponent_in_rounds,
    log_spaced,
    mean_interval,
    measure,
)
from taciturn.research.theory.optimum import Optimum, optimum
from taciturn.research.theory.small_problems import TheoremCase, simulate_case
from taciturn.research.theory.theorems import (
    NONSMOOTH,
    THEOREMS,
    Theorem,
    TheoremConstants,
    check_epsilons,
    constants,
    extent,
)
from taciturn.settings import Settings
from taciturn.training.loop import on_backend, training_rounds
from taciturn.training.process_group import SINGLE_PROCESS
from taciturn.training.simulate import start

UPDATES = (1, 2, 5, 10)  # E, for the corollary
SHARE = 4  # of the rounds, one in so many is enough to see what E does


class TheoremFinding(NamedTuple):
    """One theorem at one epsilon and E, at several T."""

    theorem: Theorem
    setting: Setting
    seeds: int
    rounds: tuple[int, ...]  # [n]
    measured: tuple[MeanInterval, ...]  # [n]
    corrected: tuple[TheoremBound, ...]  # [n]
    stated: tuple[TheoremBound, ...]  # [n]
    exponent: MeanInterval | None  # a of T^-a, where it could be fitted
    broken: tuple[ViolatedAssumption, ...]

    @property
    def above(self) -> tuple[int, ...]:
        """The T at which the measured mean exceeds the repaired bound by more than its interval."""
        pairs = zip(self.rounds, self.measured, self.corrected, strict=True)
        return tuple(t for t, mean, bound in pairs if (mean.low if self.seeds > 1 else mean.value) > bound.total)

    @property
    def verdict(self) -> str:
        """The outcome."""
        if self.above:
            return "above the bound"
        return "not covered" if self.uncovered else "holds"

    @property
    def uncovered(self) -> bool:
        """Whether an assumption of the repaired bound fails."""
        return any(one.needed for one in self.broken)

    @property
    def ratio(self) -> float:
        """Measured over bound, at the last T."""
        return self.measured[-1].value / self.corrected[-1].total


class Result(NamedTuple):
    """A theorem on one problem."""

    theorem: Theorem
    constants: TheoremConstants
    optimum: Optimum
    gamma: float
    findings: tuple[TheoremFinding, ...]  # one for each epsilon
    in_epsilon: MeanInterval | None  # b of epsilon^-b at the last T, where it could be fitted
    by_updates: tuple[TheoremFinding, ...] = ()  # one for each E

    @property
    def shown(self) -> TheoremFinding:
        """The finding at the epsilon nearest to 1."""
        return min(self.findings, key=lambda one: abs(math.log(min(one.setting.epsilon, 1e9))))

    @property
    def verdict(self) -> str:
        """The worst of all findings; if they hold, whether the promised rate was seen and what was not fitted."""
        found = [one.verdict for one in (*self.findings, *self.by_updates)]
        worst = next((words for words in ("above the bound", "not covered") if words in found), "holds")
        if worst != "holds":
            return worst
        slow = ", rate not seen" if self.rate_kept is False else ""
        return f"holds{slow}, no exponent in {' and '.join(self.unfitted)}" if self.unfitted else f"holds{slow}"

    @property
    def unfitted(self) -> tuple[str, ...]:
        """Those of T and epsilon with too few points for an exponent, or a gap that is not positive."""
        return tuple(name for name, found in (("T", self.shown.exponent), ("ε", self.in_epsilon)) if found is None)

    @property
    def rate_kept(self) -> bool | None:
        """Whether the gap falls with T, and its rounds grow with 1 / epsilon, at least as well as promised.

        None if no exponent in T could be fitted. A bound C epsilon^-b T^-a promises epsilon^(-b/a) rounds for a given
        gap. The exponents are compared in this form, because a gap that falls faster with T than promised may grow
        faster as epsilon falls.
        """
        a, b = self.shown.exponent, self.in_epsilon
        if a is None:
            return None
        if a.high < self.theorem.in_rounds:
            return False
        return b is None or b.low / a.high <= self.theorem.in_epsilon / self.theorem.in_rounds


def compare_with_bounds(
    theorem: Theorem,
    c: TheoremConstants,
    found: Optimum,
    gamma: float,
    measured: Measured,
    epsilon: float,
    updates: int,
) -> TheoremFinding:
    """Compare runs of one epsilon with the bounds of their problem."""
    steps = match_steps(theorem, measured.eta[:, 0], epsilon)
    own, rho = implied_constants(c, steps), measured.rho[:, 0]
    gaps = measured.gaps(found.value, gamma)
    rounds = tuple(int(t) for t in measured.rounds)
    settings = [
        Setting(epsilon, updates, float(rho[0]), float(rho[:t].max()), gamma, 0.0, float(dual.max()))
        for t, dual in zip(rounds, measured.dual, strict=True)
    ]
    pairs = list(zip(settings, rounds, strict=True))
    corrected = tuple(right_side(theorem, own, at, t) for at, t in pairs)
    stated = tuple(right_side(theorem, own, at, t, corrected=False) for at, t in pairs)
    wrong = violated_assumptions(theorem, c, settings[-1], steps, measured, found.dual_norm)
    exponent = exponent_in_rounds(measured.rounds, gaps)
    means = tuple(mean_interval(gaps))
    return TheoremFinding(
        theorem, settings[-1], gaps.shape[1], rounds, means, corrected, stated, exponent, tuple(wrong)
    )


def compare_epsilons(
    theorem: Theorem,
    c: TheoremConstants,
    found: Optimum,
    gamma: float | None,
    measured: Measured,
    epsilons: Sequence[float],  # [R]
    updates: int,
) -> Result:
    """Compare runs of several epsilons; gamma is 2 ||lambda*|| unless it is given."""
    gamma = 2.0 * found.dual_norm if gamma is None else gamma
    budgets = list(dict.fromkeys(epsilons))
    parts = [measured.of(np.flatnonzero(np.asarray(epsilons) == budget)) for budget in budgets]
    findings = tuple(
        compare_with_bounds(theorem, c, found, gamma, part, budget, updates)
        for part, budget in zip(parts, budgets, strict=True)
    )
    last = [part.gaps(found.value, gamma)[-1] for part in parts]
    finite = [(budget, gap) for budget, gap in zip(budgets, last, strict=True) if math.isfinite(budget)]
    in_epsilon = exponent_in_epsilon([budget for budget, _ in finite], [gap for _, gap in finite]) if finite else None
    return Result(theorem, c, found, gamma, findings, in_epsilon)


def check(
    case: TheoremCase,
    epsilons: Sequence[float],
    seeds: int,
    rounds: int,
    gamma: float | None = None,
    watch: Callable[[int], None] = lambda t: None,
) -> Result:
    """Check a case at every epsilon with E = 1, and at the epsilon nearest to 1 with every E of UPDATES."""
    c, found = constants(case.problem, case.shards), optimum(case.problem, case.shards)
    runs = np.repeat(np.array(epsilons), seeds)
    result = compare_epsilons(
        case.theorem, c, found, gamma, simulate_case(case, epsilons, seeds, rounds, 1, watch), runs.tolist(), 1
    )
    epsilon = result.shown.setting.epsilon
    few = max(1, rounds // SHARE)
    by_updates = tuple(
        compare_with_bounds(
            case.theorem, c, found, result.gamma, simulate_case(case, (epsilon,), seeds, few, e, watch), epsilon, e
        )
        for e in UPDATES
    )
    return result._replace(by_updates=by_updates)


def count_rounds(rounds: int) -> int:
    """Return the number of rounds of a check, for progress displays."""
    return rounds + len(UPDATES) * max(1, rounds // SHARE)


def summary(result: Result) -> dict[str, object]:
    """Return all numbers for JSON."""
    theorem = result.theorem
    return {
        "theorem": theorem.number,
        "functions": theorem.functions,
        "gamma": result.gamma,
        "constants": result.constants._asdict(),
        "optimum": {
            "value": result.optimum.value,
            "accuracy": result.optimum.accuracy,
            "dual_norm": result.optimum.dual_norm,
            "method": result.optimum.method,
        },
        "in_rounds": {"promised": theorem.in_rounds, "measured": _interval(result.shown.exponent)},
        "in_epsilon": {"promised": theorem.in_epsilon, "measured": _interval(result.in_epsilon)},
        "rate_kept": result.rate_kept,
        "verdict": result.verdict,
        "findings": [_finding(one) for one in result.findings],
        "by_updates": [_finding(one) for one in result.by_updates],
    }


def _finding(one: TheoremFinding) -> dict[str, object]:
    return {
        "epsilon": one.setting.epsilon,
        "updates": one.setting.updates,
        "seeds": one.seeds,
        "rounds": list(one.rounds),
        "measured": [_interval(mean) for mean in one.measured],
        "corrected": [bound.total for bound in one.corrected],
        "stated": [bound.total for bound in one.stated],
        "terms": [term._asdict() for term in one.corrected[-1].terms],
        "exponent": _interval(one.exponent),
        "broken": [wrong._asdict() for wrong in one.broken],
        "above": list(one.above),
        "verdict": one.verdict,
    }


def _interval(found: MeanInterval | None) -> dict[str, float | None] | None:
    if found is None:
        return None
    return {name: value if math.isfinite(value) else None for name, value in found._asdict().items()}


COVERED = ("objp", "objpm")  # Algorithm 1


class CheckedAlgorithm(NamedTuple):
    """One algorithm of a run."""

    algorithm: str
    result: Result


def check_covered(settings: Settings) -> None:
    """Check that the theorems apply to a run, before any record is read.

    Raises
    ------
    InputError
        If the mode, the algorithms, the set or the epsilons are not covered.
    """
    if settings.mode != "paper":
        raise InputError("the theorems apply to the paper's noise: they need a run of --mode paper")
    if not set(settings.algorithm) & set(COVERED):
        raise InputError(
            f"the theorems are about Algorithm 1, which is {' and '.join(COVERED)}; "
            f"this run has {', '.join(settings.algorithm)}"
        )
    if settings.set == "all":
        raise InputError("the theorems need a compact W, and this run has --set all: use --set box or l2-ball")
    check_epsilons(epsilon for epsilon in settings.epsilon if math.isfinite(epsilon))


def theorem_for(settings: Settings) -> Theorem:
    """Return the theorem whose step the run uses; any other step is compared with theorem 2, which assumes least."""
    return THEOREMS.get(str(settings.eta), NONSMOOTH)


def check_run(
    study: Study, gamma: float | None = None, watch: Callable[[StudyPart, int], None] = lambda part, t: None
) -> list[CheckedAlgorithm]:
    """Check every algorithm of a run to which the theorems apply, at its epsilons, seeds and rounds."""
    check_covered(study.settings)
    if any(shard.weights is not None for shard in study.dataset.train):
        raise InputError(
            "the records have weights, and the theorems are about losses without: remove them from the schema"
        )
    shards, problem = study.dataset.train, study.problem
    extent(problem.feasible, shards[0].x.shape[1] * shards[0].y.shape[1])
    c, found, theorem = constants(problem, shards), optimum(problem, shards), theorem_for(study.settings)
    checked = []
    with on_backend(study, SINGLE_PROCESS) as there:
        for part in there.parts:
            name, batch = part.batch.algorithm, part.batch
            if name not in COVERED:
                continue
            state = start(there.dataset.train, batch.size, study.settings.server, averages=True)
            steps = training_rounds(there, part, there.dataset.train, part.rounds, state)
            at = log_spaced(part.rounds)
            measured = measure(theorem, there.problem, there.dataset.train, steps, at, partial(watch, part))
            updates = local_updates(study.settings, name)
            checked.append(
                CheckedAlgorithm(name, compare_epsilons(theorem, c, found, gamma, measured, batch.budgets, updates))
            )
    return checked
