"""The runs behind the paper's figures, as data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from taciturn.data import SOURCES
from taciturn.errors import InputError, unknown_name
from taciturn.settings.resolve import parse

EPSILONS = (0.05, 0.1, 1.0, 5.0)
DYNAMIC = "dynamic"
PENALTIES = ("0.1", "1", "10", "dynamic/100")  # of the appendix, beside the one all algorithms are run with
FIGURES = (1, 2, 3, 4)  # testing errors, best errors, noise, OutP under other penalties


@dataclass(frozen=True)
class PaperConstants:
    """The paper's parameters for a data set, and the step scale that its sample needs."""

    c1: float  # of rho-hat^t = min(10^9, c1 1.2^floor(t / Tc) + c2 / epsilon)  (eq. dynamic_rho)
    c2: float
    tc: int
    scales: tuple[float, ...] = (1.0,)  # a of eta^t = a / sqrt(t): the one that is drawn, then others for the table
    levels: tuple[str, ...] = ("published-formula", "calibrated")  # other noise of OutP, for the table
    quick_rounds: int = 60
    quick_epsilons: tuple[float, ...] = EPSILONS  # where so few rounds tell the algorithms apart


def _constants(data: str, **more: Any) -> PaperConstants:
    """Return the constants with the rho-hat of the data set's preset for mode paper."""
    paper = parse(SOURCES[data].paper)
    return PaperConstants(paper["rho_c1"], paper["rho_c2"], paper["rho_tc"], **more)


DATA: Mapping[str, PaperConstants] = {
    "mnist": _constants("mnist"),
    "femnist": _constants("femnist", scales=(100.0, 1.0), levels=(), quick_rounds=10, quick_epsilons=(1.0, 5.0)),
}


class PaperCase(NamedTuple):
    """One run."""

    epsilon: float
    seed: int
    penalty: str = DYNAMIC
    eta_scale: float = 1.0  # a


@dataclass(frozen=True)
class Stage:
    """Runs of one algorithm that are computed together."""

    name: str
    algorithm: str
    cases: tuple[PaperCase, ...]
    outp_noise: str = ""  # of OutP
    local_updates: int = 1  # E


@dataclass(frozen=True)
class ReproductionPlan:
    """Everything that decides what a reproduction computes."""

    data: str
    rounds: int  # T
    seeds: int
    quick: bool
    stages: tuple[Stage, ...]

    def as_dict(self) -> dict[str, object]:
        """Return the plan as it is written to plan.json."""
        return dataclasses.asdict(self)

    def done(self, stage: Stage, t: int) -> int:
        """Return how much is done after round t of a stage, in local updates times runs, with the stages before."""
        before = self.stages[: self.stages.index(stage)]
        rounds = [*((other, self.rounds) for other in before), (stage, t)]
        return sum(count * other.local_updates * len(other.cases) for other, count in rounds)

    def evaluations(self) -> list[int]:
        """Return the rounds whose model is tested: the first hundred, then every tenth, and the last."""
        return sorted({*range(1, min(100, self.rounds) + 1), *range(10, self.rounds + 1, 10), self.rounds})


def parse_figures(text: str | None, quick: bool) -> tuple[int, ...]:
    """Parse the numbers of the paper's figures.

    Parameters
    ----------
    text : str or None
        Numbers separated by commas; None stands for all figures.
    quick : bool
        Whether None stands only for the figures that compare the algorithms.

    Examples
    --------
    >>> parse_figures("1,3", quick=False), parse_figures(None, quick=True)
    ((1, 3), (1, 2, 3))
    """
    if text is None:
        return FIGURES[:3] if quick else FIGURES
    names = [part.strip() for part in text.split(",")]
    if not set(names) <= {str(figure) for figure in FIGURES}:
        raise InputError(f"--figures is {text}; it must be numbers from 1 to 4, separated by commas")
    return tuple(sorted({int(name) for name in names}))


def make_plan(
    data: str,
    figures: Sequence[int] = FIGURES,
    quick: bool = False,
    rounds: int | None = None,
    seeds: int | None = None,
) -> ReproductionPlan:
    """Return the runs that the figures need; quick: fewer rounds, one seed, and no runs for the table alone."""
    if data not in DATA:
        raise unknown_name("reproduction of the data set", data, DATA)
    constants = DATA[data]
    rounds = (constants.quick_rounds if quick else 20000) if rounds is None else rounds
    seeds = (1 if quick else 10) if seeds is None else seeds
    for name, value in (("rounds", rounds), ("seeds", seeds)):
        if value < 1:
            raise InputError(f"--{name} is {value}; it must be at least 1")
    return ReproductionPlan(data, rounds, seeds, quick, tuple(_stages(constants, frozenset(figures), quick, seeds)))


def _stages(constants: PaperConstants, figures: frozenset[int], quick: bool, seeds: int) -> list[Stage]:
    main, *others = constants.scales
    grid = _grid(constants.quick_epsilons if quick else EPSILONS, seeds)
    silent = PaperCase(math.inf, 1)
    found = []
    if figures & {1, 2, 3}:
        cases = (*grid, silent)
        aside = [c._replace(eta_scale=a) for a in ([] if quick else others) for c in (*_grid((0.05, 1.0), 1), silent)]
        scaled = (*(case._replace(eta_scale=main) for case in cases), *aside)
        found += [Stage("outp", "outp", cases, "published"), Stage("objp", "objp", scaled)]
        found += [Stage("objpm", "objpm", scaled, local_updates=10)]
    elif figures:
        found += [Stage("outp", "outp", grid, "published")]
    if 2 in figures and not quick:
        found += [Stage(f"outp-{level}", "outp", grid, level) for level in constants.levels]
    if 4 in figures:
        penalised = tuple(case._replace(penalty=penalty) for penalty in PENALTIES for case in grid)
        found += [Stage("outp-penalties", "outp", penalised, "published")]
    return found


def _grid(epsilons: Sequence[float], seeds: int) -> tuple[PaperCase, ...]:
    return tuple(PaperCase(epsilon, seed) for epsilon in epsilons for seed in range(1, seeds + 1))
