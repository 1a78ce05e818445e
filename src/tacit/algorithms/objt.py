"""The published code's trust-region variant, which the paper's text does not describe."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.algorithms.base import ALGORITHMS, Agent, Consensus, Method, Recipe, Step, Upload
from tacit.algorithms.releases import Release
from tacit.algorithms.schedules import Schedule
from tacit.algorithms.steps import dual_step
from tacit.arrays import namespace
from tacit.errors import InputError, no_such
from tacit.privacy.noise import NoiseSource
from tacit.problems import Problem
from tacit.problems.sets.l2_ball import L2Ball
from tacit.types import Array, Shard

RADII = ("constant", "decreasing")


@dataclass(frozen=True, eq=False)
class TrustRegion(Consensus):
    """Objective perturbation without a proximal term, z kept within an infinity-norm ball around the last iterate."""

    problem: Problem
    rho: Schedule
    release: Release
    radius: str  # constant: a, as coded; decreasing: a / t^2, as its text says
    radius_scale: float  # a
    closing: bool = False

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """z = clip((rho w + lambda - g - xi) / rho, z - d, z + d), and the dual."""
        xp, rho, d = namespace(w), self.rho(t), self.radius_at(t)
        noisy, event, size = self.release(0, self.problem, agent.z, shard, noise)
        z: Array = xp.clip((rho * w + agent.lam - noisy) / rho, agent.z - d, agent.z + d)
        z = self.problem.feasible.project(z)  # exact for a box, which meets the trust region in a box
        lam = dual_step(agent.lam, rho, w, z)
        return Step(Agent(z, lam), Upload(z), (event,), size, xp.full_like(rho, d))

    def radius_at(self, t: int) -> float:
        """The radius d of round t."""
        return self.radius_scale if self.radius == "constant" else self.radius_scale / t**2


def _build(recipe: Recipe) -> TrustRegion:
    if recipe.radius not in RADII:
        raise no_such("radius", recipe.radius, RADII)
    if isinstance(recipe.problem.feasible, L2Ball):
        raise InputError("objt knows the sets all and box: its step onto an l2-ball has no closed form")
    r = recipe
    return TrustRegion(r.problem, r.rho, r.release, r.radius, r.radius_scale, r.closing)


ALGORITHMS.register("objt")(
    Method(
        "the published code's variant of objp: a trust region instead of the proximal term",
        "z⁺ = clip((ρw + λ − f'(z) − ξ) / ρ, z − d, z + d),  d = a or a/t²",
        _build,
        modes=("certified", "paper"),
        reference="Ryu and Kim, the code published with the paper",
    )
)
