"""The planner's rule: rounds, clip, rho and eta from public facts, and how much noise the model will feel.

With m the mean of the agents' z, Algorithm 1 with E = 1 gives m⁺ = m - (mean of g) / (rho + 1/eta) exactly: gradient
descent on clipped gradients. The noise's multiplier grows as the root of the number k of updates, so that for a given
path, k times the step, the noise of the final model does not depend on k; more rounds mean smaller steps and quieter
agents. What remains to be chosen is the path. It is as long as the noise it collects in a score may be (`score_scale`
of the loss), and no longer than is stable. docs/explanation/planner.md says how the constants were chosen.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

from taciturn.algorithms.schedules import falling_share
from taciturn.data import Facts
from taciturn.objectives import Loss
from taciturn.privacy.calibration import calibrate
from taciturn.privacy.events import Event, Noise, Nominal, Sampled
from taciturn.privacy.sensitivity import sensitivity

MOST_ROUNDS, FEWEST_ROUNDS = 300, 50
CLIP_SHARE = 3.0 / 40.0  # of the usual length of a record: the error is flat from half of it to twice
SMALLEST_ETA = 1e-100  # of noise beyond any use
QUIET = 4.0  # rounds beyond QUIET / nu gain nothing
NOISE_STD = {"gaussian": 1.0, "laplace": math.sqrt(2.0)}  # standard deviation over scale
VERDICTS = (
    (0.0, "no noise, no privacy"),
    (0.001, "privacy is nearly free"),
    (0.003, "a small loss"),
    (0.02, "a visible loss"),
    (0.06, "a heavy loss"),
    (0.3, "poor"),
    (math.inf, "hopeless: mostly noise"),
)


class PlanRequest(NamedTuple):
    """What a proposal is made for."""

    total_epsilon: float
    delta: float
    updates: int = 1  # E
    mechanism: str = "gaussian"
    adjacency: str = "add-remove"
    hardened: bool = False
    rounds: int | None = None  # where they are given
    clip: float | None = None
    noise_multiplier: float | None = None
    sampling: float = 1.0  # q, where updates see samples of the records
    largest: float | None = None  # dimensionless step, where it is not the one that explicit steps take
    share: float = 1.0  # of the noise, that an agent adds (privacy.trust)


class Hyperparameters(NamedTuple):
    """What the planner would run."""

    rounds: int
    clip: float
    rho: float
    eta: float  # of most rounds; over the last ones it falls linearly to nearly 0
    noise_to_signal: float  # nu: of the model; see verdict

    @property
    def verdict(self) -> str:
        """What noise of this size does to a model, in words."""
        return next(words for limit, words in VERDICTS if self.noise_to_signal <= limit)


def propose(facts: Facts, loss: Loss, asked: PlanRequest) -> Hyperparameters:
    """The rule, from public facts alone."""
    spread = release_noise(facts, asked)
    felt = math.sqrt(facts.agents) * asked.share * spread  # by the sum
    nu = facts.outputs * felt / facts.total_records
    rounds = asked.rounds or (_rounds(facts, nu) if asked.noise_multiplier is None else MOST_ROUNDS)
    clip = asked.clip or default_clip(facts)
    step = path_step(facts, loss, nu, felt, rounds * asked.updates, asked.largest)
    eta = max(_over_mean(rounds) * step * facts.agents / (facts.typical * clip), SMALLEST_ETA)
    return Hyperparameters(rounds, clip, 1.0 / (asked.updates * eta), eta, nu)  # E pulls towards w, each E times weaker


def _over_mean(rounds: int) -> float:
    """What makes the mean of 1 / (rho + 1 / eta) over all rounds the step wanted, to 1 %: (1 - ln 2) over that mean."""
    return 8.0 / (13.0 - 5.0 * falling_share(rounds))


def default_clip(facts: Facts) -> float:
    """A share of how long a record usually is."""
    return float(f"{CLIP_SHARE * facts.typical:.4g}")


def release_noise(facts: Facts, asked: PlanRequest) -> float:
    """sigma_1: the standard deviation of a single release's noise over C / I, if all of the budget went into it."""
    if math.isinf(asked.total_epsilon):
        return 0.0
    if asked.noise_multiplier is not None:  # given for each of the updates, which are then all there are
        one = sensitivity(1.0, 1.0, 1, asked.adjacency, facts.max_records).l2
        updates = (asked.rounds or MOST_ROUNDS) * asked.updates
        return NOISE_STD[asked.mechanism] * asked.noise_multiplier * one / (asked.sampling * math.sqrt(updates))
    if asked.sampling < 1.0:
        return _sampled_noise(asked.total_epsilon, asked.delta, asked.sampling, asked.rounds or MOST_ROUNDS)
    kind = "discrete-laplace" if asked.hardened and asked.mechanism == "laplace" else asked.mechanism
    moved = sensitivity(wide_l1(facts), 1.0, 1, asked.adjacency, facts.max_records)  # of clip 1, I = 1
    many = 100  # for many releases noise grows as the root of their number; so many are asked, and one is returned

    def events(scale: float) -> dict[Event, int]:
        return {Noise(kind, scale, moved.l1, moved.l2): many}

    scale = calibrate(events, asked.total_epsilon, asked.delta)
    return NOISE_STD[asked.mechanism] * scale / math.sqrt(many)


@cache  # a second of work, asked for several times
def _sampled_noise(total_epsilon: float, delta: float, sampling: float, rounds: int) -> float:
    """The same of the noise that gradients of samples collect over the rounds, scaled to all records."""

    def events(scale: float) -> dict[Event, int]:
        return {Sampled(scale, 1.0, sampling): rounds}

    return calibrate(events, total_epsilon, delta) / (sampling * math.sqrt(rounds))


def noise_of_step(event: Event) -> float:
    """The scale of an event's noise where it enters the model; what a sample gives is scaled up to all records."""
    if isinstance(event, Nominal):
        return 0.0
    return event.scale / event.rate if isinstance(event, Sampled) else event.scale


def wide_l1(facts: Facts) -> float:
    """sqrt(J), the L1 bound over the L2 bound by default: it hardly ever clips, and zCDP goes by the L2 bound."""
    return math.sqrt(facts.features)


def path_step(facts: Facts, loss: Loss, nu: float, felt: float, updates: int, most: float | None = None) -> float:
    """a, the dimensionless step: kappa I / (sqrt(P) sigma_1 k), where kappa is the noise a score may carry."""
    scale = loss.score_scale(facts.outputs)
    if math.isfinite(loss.residual_bound):
        kappa, largest = scale * min(1.0, 0.15 / nu if nu else 1.0), 50.0 * facts.outputs
    else:
        kappa, largest = scale * min(1.0, 0.1 / math.sqrt(nu) if nu else 1.0), 0.5
    largest = most or largest
    if felt == 0.0:
        return largest
    return min(kappa * facts.total_records / (felt * updates), largest)


def _rounds(facts: Facts, nu: float) -> int:
    wanted = math.ceil(QUIET / nu) if nu * MOST_ROUNDS > QUIET else MOST_ROUNDS
    return min(MOST_ROUNDS, max(FEWEST_ROUNDS, 2 * facts.agents, wanted))


def agent_noise(facts: Facts, multiplier: float) -> float:
    """The norm of one upload's noise over the largest norm its gradient can have: m C sqrt(JK)/I against C I_p/I."""
    return multiplier * math.sqrt(facts.features * facts.outputs) * facts.agents / facts.total_records
