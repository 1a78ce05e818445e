"""The planner's rule: rounds, clip, rho and eta from public facts, and the noise that the model will have.

With m the mean of the agents' z, Algorithm 1 with E = 1 gives m⁺ = m - (mean of g) / (rho + 1/eta) exactly: gradient
descent on clipped gradients. The noise multiplier grows as the root of the number k of updates, so that for a given
path, k times the step, the noise of the final model does not depend on k; more rounds mean smaller steps and less noise
per agent. Only the length of the path is left to choose: as long as the noise that it adds to a score allows
(`score_scale` of the loss), and no longer than is stable. docs/explanation/planner.md explains the constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from taciturn.algorithms.curve_noise import CLASS_SPREAD
from taciturn.algorithms.schedules import falling_share
from taciturn.data import Facts
from taciturn.objectives import Loss
from taciturn.privacy.calibration import calibrate
from taciturn.privacy.events import Event, Noise, Nominal, Sampled
from taciturn.privacy.mechanisms import DEVIATION
from taciturn.privacy.sensitivity import Sensitivity, gradient_sensitivity
from taciturn.types import ColumnBlock

MAX_ROUNDS, MIN_ROUNDS = 300, 50
TABLE_ROUNDS = 100  # of additive models; more gain nothing
CLIP_SHARE = 3.0 / 40.0  # of the typical length of a record; the error is flat from half of it to twice
TABLE_KAPPA = 0.57  # the noise that one of several scores of an additive model may have
VALUE_KAPPA = 0.84  # the noise that its one value may have, over the spread of the label
VALUE_CLIP, LARGEST_VALUE_CLIP = 0.0126, 2.1  # of a number's residual, over the spread of the label
TABLE_STABILITY = 2.4
MIN_ETA = 1e-100  # for noise so large that no step is useful
QUIET = 4.0  # more than QUIET / nu rounds gain nothing
CALIBRATED_RELEASES = 100  # enough for the noise to grow as the root of their number
VERDICT_WORDS = (
    "no noise, no privacy",
    "privacy is nearly free",
    "a small loss",
    "a visible loss",
    "a heavy loss",
    "poor",
    "hopeless: mostly noise",
)
VERDICT_LIMITS = (0.0, 0.001, 0.003, 0.02, 0.06, 0.3, math.inf)
TABLE_LIMITS = (0.0, 0.0005, 0.004, 0.03, 0.15, 0.5, math.inf)  # about 0.003, 0.008, 0.02 and 0.05 of AUROC
USUAL_LEVELS = 60  # up to which TABLE_LIMITS hold
RARE_SHARES = (0.1, 0.02)  # of the rarest class, for which a plan has its own verdicts
CURVE_LEVELS = 5  # a curve counts as this many categories: neighbours share their evidence
VALUE_LIMITS = (0.0, 0.00001, 0.0003, 0.0015, 0.015, 0.05, math.inf)  # about 5, 10, 20 and 50 % of RMSE, and the mean


class PlanRequest(NamedTuple):
    """What the settings fix of one run.

    Parameters
    ----------
    total_epsilon, delta : float
        The budget.
    updates : int
        E.
    mechanism, adjacency : str
        The noise distribution, and a key of `ADJACENCIES`.
    hardened : bool
        Whether the noise is discrete.
    rounds, clip, noise_multiplier : number, optional
        None where the planner chooses.
    sampling : float
        q, if updates use samples of the records.
    max_step : float, optional
        The largest dimensionless step, if it is not that of gradient steps.
    noise_share : float
        The fraction of the noise that one agent adds (`privacy.trust`).
    reserve : int
        Uploads beyond the rounds that the budget pays for.
    """

    total_epsilon: float
    delta: float
    updates: int = 1
    mechanism: str = "gaussian"
    adjacency: str = "add-remove"
    hardened: bool = False
    rounds: int | None = None
    clip: float | None = None
    noise_multiplier: float | None = None
    sampling: float = 1.0
    max_step: float | None = None
    noise_share: float = 1.0
    reserve: int = 0


class Hyperparameters(NamedTuple):
    """The planner's choice for one run.

    Parameters
    ----------
    rounds : int
        T.
    clip : float
        The L2 clip of a gradient.
    rho, eta : float
        eta is that of most rounds; over the last ones it falls linearly to nearly 0.
    noise_to_signal : float
        nu, of the model.
    release_noise : float
        sigma_1; see `release_noise`.
    verdict : str
        What noise of this size does to a model, in words.
    """

    rounds: int
    clip: float
    rho: float
    eta: float
    noise_to_signal: float
    release_noise: float
    verdict: str


def verdict_limits(facts: Facts, rarest: float | None = None) -> tuple[float, ...]:
    """Return the largest noise-to-signal ratio of each verdict.

    Parameters
    ----------
    facts : Facts
        The public facts about the data.
    rarest : float, optional
        The share of the rarest class of a table; None: all classes have the same share.

    Returns
    -------
    tuple of float
        A limit for each of VERDICT_WORDS.

    Notes
    -----
    Additive models of tables tolerate more noise if they predict classes, and less if they predict a number: a class
    needs only the sign of a score. Where there is much to learn, each part of it has fewer records and a smaller share
    of the path, so classes tolerate less noise. With limits that fall as the number of levels to the power 3/2, the
    verdict was at most one step away from the measured loss on tables of 1 to 200 columns and up to 1000 categories.

    The same power holds for a rare class: a gradient tells as much as the variance r (1 - r) of the class's indicator.
    With it the verdict was at most one step away on tables of 2,000 to 30,000 records with a share of 2 to 50 %.

    Examples
    --------
    >>> age = ColumnBlock("ordered", 9, True)
    >>> facts = Facts("x", 10, 2, True, 5, 9000, 1800, "row", 1, True, "schema", blocks=(age,))
    >>> verdict(0.003, verdict_limits(facts)), verdict(0.003, verdict_limits(facts, rarest=0.02))
    ('a small loss', 'a heavy loss')
    """
    if not facts.blocks:
        return VERDICT_LIMITS
    if not facts.classes:
        return VALUE_LIMITS
    much, equal = max(1.0, _levels(facts.blocks) / USUAL_LEVELS), 1.0 / facts.outputs
    rare = 1.0 if rarest is None else max(1.0, equal * (1.0 - equal) / (rarest * (1.0 - rarest)))
    return tuple(limit / (much * rare) ** 1.5 for limit in TABLE_LIMITS)


def rare_shares(facts: Facts) -> tuple[float, ...]:
    """Return the shares of the rarest class for which a plan has verdicts; none but for the classes of a table."""
    return tuple(share for share in RARE_SHARES if facts.blocks and facts.classes and share * facts.outputs < 1.0)


def _levels(blocks: Sequence[ColumnBlock]) -> int:
    """Return how much there is to learn: all categories of columns and pairs, and at most CURVE_LEVELS of a curve."""
    counts: list[int] = []
    for block in blocks:  # pairs come last
        if block.of:
            counts.append(math.prod(counts[column] for column in block.of))
        else:
            curve = block.kind == "ordered"
            counts.append(min(block.width - block.missing, CURVE_LEVELS) + block.missing if curve else block.width)
    return sum(counts)


def verdict(noise_to_signal: float, limits: tuple[float, ...] = VERDICT_LIMITS) -> str:
    """Return what noise of this size does to a model, in words.

    >>> verdict(0.002)
    'a small loss'
    """
    return next(words for limit, words in zip(limits, VERDICT_WORDS, strict=True) if noise_to_signal <= limit)


def propose(facts: Facts, loss: Loss, request: PlanRequest) -> Hyperparameters:
    """Return the planner's values for one run, from public facts alone.

    Parameters
    ----------
    facts : Facts
        The public facts about the data.
    loss : Loss
        The loss.
    request : PlanRequest
        What the settings fix of a run.

    Returns
    -------
    Hyperparameters
        With the request's rounds and clip, where it has them.

    Raises
    ------
    InputError
        If no noise keeps the budget.
    """
    noise = release_noise(facts, request)
    summed = _summed_noise(facts, request)
    nu = noise_to_signal(facts, request)
    rounds, clip = propose_rounds(facts, request), request.clip or default_clip(facts, loss, request)
    step = path_step(facts, loss, nu, summed, rounds * request.updates, request.max_step)
    eta = max(_over_mean(rounds) * step * facts.agents / (facts.typical * clip), MIN_ETA)
    rho = 1.0 / (request.updates * eta)  # E pulls towards w, each 1/E as strong
    return Hyperparameters(rounds, clip, rho, eta, nu, noise, verdict(nu, verdict_limits(facts)))


def propose_rounds(facts: Facts, request: PlanRequest) -> int:
    """Return the request's rounds, or as many as still reduce the noise of an agent."""
    if request.rounds or request.noise_multiplier is not None:
        return request.rounds or MAX_ROUNDS
    nu = noise_to_signal(facts, request)
    wanted = math.ceil(QUIET / nu) if nu * MAX_ROUNDS > QUIET else MAX_ROUNDS
    return min(MAX_ROUNDS, max(MIN_ROUNDS, 2 * facts.agents, wanted))


def noise_to_signal(facts: Facts, request: PlanRequest) -> float:
    """Return nu, the noise of the model relative to its signal."""
    return facts.outputs * _summed_noise(facts, request) / facts.total_records


def _summed_noise(facts: Facts, request: PlanRequest) -> float:
    """Return sqrt(P) sigma_1, the noise in the sum over all agents."""
    return math.sqrt(facts.agents) * request.noise_share * release_noise(facts, request)


def _over_mean(rounds: int) -> float:
    """Return (1 - ln 2) over the mean of 1 / (rho + 1 / eta), so that the mean step is the wanted one to 1 %."""
    return 8.0 / (13.0 - 5.0 * falling_share(rounds))


def default_clip(facts: Facts, loss: Loss, request: PlanRequest) -> float:
    """Return the clip: a fixed share of the typical norm of a record, or for a table's levels one that noise lowers.

    In the coordinates of an additive model a record has norm 1 on average, and a residual is at most the loss's bound.
    Clipping below that biases the model and lowers the noise; the more noise there is, the more it pays. The exponents
    were fitted to the error of four tables at four budgets, where the error is flat around them.
    """
    if not facts.blocks:
        return float(f"{CLIP_SHARE * facts.typical:.4g}")
    noise = max(_summed_noise(facts, request) / facts.total_records, 1e-9)
    if math.isfinite(loss.residual_bound):
        return float(f"{loss.residual_bound * min(1.0, 0.14 * noise**-0.2):.4g}")
    return float(f"{_label_spread(facts) * min(LARGEST_VALUE_CLIP, VALUE_CLIP / math.sqrt(noise)):.4g}")


def _label_spread(facts: Facts) -> float:
    """Return the spread of a label in the unit in which it is trained: numbers are trained in units of their spread."""
    return CLASS_SPREAD if facts.classes else 1.0


def momentum_step(facts: Facts, loss: Loss, request: PlanRequest, clip: float, rounds: int, momentum: float) -> float:
    """Return the step of an additive model: as long as the noise in a score allows, and no longer than is stable.

    Parameters
    ----------
    facts, loss, request
        As for `propose`.
    clip : float
        The L2 clip of a gradient.
    rounds : int
        The rounds that train.
    momentum : float
        beta, with which a step moves the model by 1 / (1 - beta) of its length.

    Returns
    -------
    float
        The step of the mean model, in coordinates in which a record has norm 1 on average.
    """
    curvature = loss.curvature if math.isfinite(loss.curvature) else 0.5
    stable = TABLE_STABILITY / curvature  # heavy-ball steps are stable below 2 (1 + beta) / curvature
    noise = clip * _summed_noise(facts, request) / facts.total_records  # in a score, for a path of length 1
    if noise == 0.0:
        return stable
    kappa = TABLE_KAPPA if math.isfinite(loss.residual_bound) else VALUE_KAPPA * _label_spread(facts)
    mean = 1.0 - falling_share(rounds) / 2.0
    return min(kappa * (1.0 - momentum) / (noise * rounds * mean), stable)


def release_noise(facts: Facts, request: PlanRequest) -> float:
    """Return sigma_1: the standard deviation over C / I of a single release's noise that uses the whole budget.

    Parameters
    ----------
    facts : Facts
        The public facts about the data.
    request : PlanRequest
        What the settings fix of a run.

    Returns
    -------
    float
        0 for an infinite budget.
    """
    if math.isinf(request.total_epsilon):
        return 0.0
    rounds = request.rounds or MAX_ROUNDS
    if request.noise_multiplier is not None:  # given for each update
        l2 = gradient_sensitivity(1.0, 1.0, 1, request.adjacency, facts.max_records).l2
        root = math.sqrt(rounds * request.updates)
        return DEVIATION[request.mechanism] * request.noise_multiplier * l2 / (request.sampling * root)
    if request.sampling < 1.0:
        scale = _sampled_scale(request.total_epsilon, request.delta, request.sampling, rounds + request.reserve)
        return scale / (request.sampling * math.sqrt(rounds))
    kind = "discrete-laplace" if request.hardened and request.mechanism == "laplace" else request.mechanism
    sensitivity = gradient_sensitivity(wide_l1(facts), 1.0, 1, request.adjacency, facts.max_records)  # C = 1, I = 1
    scale = _release_scale(kind, sensitivity, request.total_epsilon, request.delta)
    reserved = math.sqrt(1.0 + request.reserve / rounds)  # the budget pays for more uploads than there are rounds
    return reserved * DEVIATION[request.mechanism] * scale / math.sqrt(CALIBRATED_RELEASES)


@lru_cache(maxsize=256)
def _release_scale(kind: str, sensitivity: Sensitivity, total_epsilon: float, delta: float) -> float:
    """Calibrate the noise of many gradient releases."""

    def events(scale: float) -> dict[Event, int]:
        return {Noise(kind, scale, *sensitivity): CALIBRATED_RELEASES}

    return calibrate(events, total_epsilon, delta)


@lru_cache(maxsize=256)
def _sampled_scale(total_epsilon: float, delta: float, sampling: float, rounds: int) -> float:
    """Calibrate the noise of the gradients of samples; it takes a second."""

    def events(scale: float) -> dict[Event, int]:
        return {Sampled(scale, 1.0, sampling): rounds}

    return calibrate(events, total_epsilon, delta)


def noise_of_step(event: Event) -> float:
    """Return the scale of an event's noise where it enters the model; a sample's is scaled up to all records."""
    if isinstance(event, Nominal):
        return 0.0
    return event.scale / event.rate if isinstance(event, Sampled) else event.scale


def wide_l1(facts: Facts) -> float:
    """Return sqrt(J), the default L1 clip over the L2 clip: it rarely clips, and zCDP uses the L2 bound."""
    return math.sqrt(facts.features)


def path_step(facts: Facts, loss: Loss, nu: float, noise: float, updates: int, most: float | None) -> float:
    """Return a, the dimensionless step: kappa I / (sqrt(P) sigma_1 k), where kappa is the noise that a score may have.

    Parameters
    ----------
    facts : Facts
        The public facts about the data.
    loss : Loss
        The loss.
    nu : float
        The noise-to-signal ratio.
    noise : float
        sqrt(P) sigma_1.
    updates : int
        k, the local updates of all rounds.
    most : float, optional
        The largest step.

    Returns
    -------
    float
    """
    scale = loss.score_scale(facts.outputs)
    if math.isfinite(loss.residual_bound):
        kappa, largest = scale * min(1.0, 0.15 / nu if nu else 1.0), 50.0 * facts.outputs
    else:
        kappa, largest = scale * min(1.0, 0.1 / math.sqrt(nu) if nu else 1.0), 0.5
    largest = most or largest
    if noise == 0.0:
        return largest
    return min(kappa * facts.total_records / (noise * updates), largest)


def agent_noise(facts: Facts, multiplier: float) -> float:
    """Return the norm of an upload's noise over the largest norm of its gradient: m C sqrt(JK)/I over C I_p/I."""
    return multiplier * math.sqrt(facts.features * facts.outputs) * facts.agents / facts.total_records
