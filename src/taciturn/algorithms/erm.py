"""Central references: empirical risk minimisation by a trusted curator, with objective or output perturbation."""

from __future__ import annotations

from dataclasses import replace

from taciturn.algorithms.admm import ADMM_OBJP, ADMM_OUTP, AdmmObjp, AdmmOutp
from taciturn.algorithms.base import ALGORITHMS, Agent, AveragingServer, Step
from taciturn.algorithms.perturbed_objectives import objective_perturbation
from taciturn.algorithms.schedules import CentralSolution
from taciturn.algorithms.subproblem import solver_for
from taciturn.core.arrays import namespace
from taciturn.privacy.noise import NoiseSource
from taciturn.types import Array, Shard


class CuratorStep(AveragingServer):
    """The step of exact ADMM with w = lambda = 0, as the only step of a curator who holds all records."""

    def agent_step(self, t: int, w: Array, agent: Agent, shard: Shard, noise: NoiseSource) -> Step:
        """Solve the curator's problem, which does not depend on w."""
        zero = namespace(w).zeros_like(w)
        step = super().agent_step(t, zero, Agent(agent.z, zero), shard, noise)
        return step._replace(agent=Agent(step.agent.z, agent.lam))


class ErmObjp(CuratorStep, AdmmObjp):
    """w = argmin F(w) + <b, w> + (rho/2) ||w||^2; rho is added to the strong convexity of F."""


class ErmOutp(CuratorStep, AdmmOutp):
    """w = argmin F(w) + (rho/2) ||w||^2, plus xi; rho is added to the strong convexity of F."""


CENTRAL_GUARANTEE = "approximate, in total, against all but the curator; pure with --mechanism laplace, as published"
ERM_OBJP = replace(
    ADMM_OBJP,
    summary=(
        "a central reference: a trusted curator with all records solves the problem with a random linear term in it"
    ),
    equation="w = argmin_w F(w) + ⟨b, w⟩ + (ρ/2)‖w‖²,  b ~ N(0, σ²)",
    build=lambda config: ErmObjp(objective_perturbation("erm-objp", config), config.rho),
    guarantee=CENTRAL_GUARANTEE,
    reference="Chaudhuri, Monteleoni and Sarwate, JMLR 2011, Algorithm 2; Kifer, Smith and Thakurta, COLT 2012",
    step_kind=CentralSolution,
    central=True,
    rounds=1,
)
ERM_OUTP = replace(
    ADMM_OUTP,
    summary=(
        "a central reference: a trusted curator with all records solves the problem, and adds noise to the solution"
    ),
    equation="w = argmin_w F(w) + (ρ/2)‖w‖² + ξ,  σ ∝ 1/(ρ + α)",
    build=lambda config: ErmOutp.from_config(config, solver=solver_for("erm-outp", config)),
    guarantee=CENTRAL_GUARANTEE,
    reference="Chaudhuri, Monteleoni and Sarwate, JMLR 2011, Algorithm 1",
    step_kind=CentralSolution,
    central=True,
    rounds=1,
)
ALGORITHMS.register("erm-objp")(ERM_OBJP)
ALGORITHMS.register("erm-outp")(ERM_OUTP)
