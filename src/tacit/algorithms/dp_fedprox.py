"""DP-FedProx: FedProx with noise on what every agent sends (output perturbation)."""

from __future__ import annotations

from tacit.algorithms.base import ALGORITHMS, Method
from tacit.algorithms.charges import Public, every_upload
from tacit.algorithms.dp_fedavg import build
from tacit.algorithms.local_training import moved_by_training


def _moved(public: Public, t: int) -> float:
    return float(moved_by_training(public.moved.l2, public.eta(t), public.updates, public.rho(t)))


ALGORITHMS.register("dp-fedprox")(
    Method(
        "fedprox with noise on what every agent sends (output perturbation)",
        "z ← Proj_W((ρw − f'(z) + z/η) / (ρ + 1/η)),  E times from z = w;  z + ξ is sent,  ξ ~ N(0, σ²),  ηL ≤ 2",
        lambda recipe: build(recipe, pull=True),
        10,
        modes=("certified",),
        guarantee="approximate, in total; pure as well with --mechanism laplace",
        reference="Wei et al., IEEE TIFS 2020; sensitivity as in Wu et al., SIGMOD 2017",
        charge=every_upload(_moved),
        noise_on="uploads",
        bounded=True,
        contracts=True,
        hardened=False,
    )
)
