"""Central references: empirical risk minimisation by a trusted curator, with objective or output perturbation."""

from __future__ import annotations

from taciturn.algorithms.admm import AdmmObjp, AdmmOutp, solution_sensitivity
from taciturn.algorithms.base import ALGORITHMS, Agent, AlgorithmSpec, AveragingServer, Step
from taciturn.algorithms.perturbed_objectives import objective_perturbation, per_objective_cost
from taciturn.algorithms.privacy_costs import per_upload_cost
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


ALGORITHMS.register("erm-objp")(
    AlgorithmSpec(
        "a central reference: a trusted curator with all records solves the problem with a random linear term in it",
        "w = argmin_w F(w) + ⟨b, w⟩ + (ρ/2)‖w‖²,  b ~ N(0, σ²)",
        lambda config: ErmObjp(objective_perturbation("erm-objp", config), config.rho),
        modes=("certified",),
        backends=("numpy",),
        guarantee="approximate, in total, against all but the curator; pure with --mechanism laplace, as published",
        reference="Chaudhuri, Monteleoni and Sarwate, JMLR 2011, Algorithm 2; Kifer, Smith and Thakurta, COLT 2012",
        privacy_cost=per_objective_cost,
        noise_on="objectives",
        scales_records=True,
        step_kind=CentralSolution,
        hardened=False,
        central=True,
        rounds=1,
    )
)

ALGORITHMS.register("erm-outp")(
    AlgorithmSpec(
        "a central reference: a trusted curator with all records solves the problem, and adds noise to the solution",
        "w = argmin_w F(w) + (ρ/2)‖w‖² + ξ,  σ ∝ 1/(ρ + α)",
        lambda config: ErmOutp.from_config(config, solver=solver_for("erm-outp", config)),
        modes=("certified",),
        backends=("numpy",),
        guarantee="approximate, in total, against all but the curator; pure with --mechanism laplace, as published",
        reference="Chaudhuri, Monteleoni and Sarwate, JMLR 2011, Algorithm 1",
        privacy_cost=per_upload_cost(solution_sensitivity),
        noise_on="uploads",
        scales_records=True,
        step_kind=CentralSolution,
        hardened=False,
        central=True,
        rounds=1,
    )
)
