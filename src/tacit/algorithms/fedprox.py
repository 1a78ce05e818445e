"""FedProx: FedAvg whose local training is pulled back to the common model."""

from __future__ import annotations

from tacit.algorithms.base import ALGORITHMS, Method, Recipe
from tacit.algorithms.fedavg import FedAvg
from tacit.algorithms.local_training import LocalTraining


def _build(recipe: Recipe) -> FedAvg:
    r = recipe
    return FedAvg(LocalTraining(r.problem, r.eta, r.local_updates, r.rho, r.sampling), r.rho, r.closing)


ALGORITHMS.register("fedprox")(
    Method(
        "federated averaging with a pull towards the common model in every agent's objective, no noise",
        "z ← Proj_W((ρw − f'(z) + z/η) / (ρ + 1/η)),  E times from z = w;  w⁺ = mean of z",
        _build,
        10,
        1.0,
        noisy=False,
        modes=("certified", "paper"),
        reference="Li et al., MLSys 2020",
        pace="plain",
    )
)
