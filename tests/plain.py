"""The plain reading of the paper, DP-IADMM and its baseline OutP, to check the library against.

One run at a time, a loop over the agents, float64, the paper's letters: P agents, I records in all, I_p of them at
agent p, J features, K classes; x is [I_p, J], y is one-hot [I_p, K], and w, z, lambda, xi are [J, K]. Everything also
runs on torch tensors when `xp` is torch and the noise comes as tensors.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import numpy
import numpy.typing as npt

Array = npt.NDArray[numpy.floating[Any]]
Shard = tuple[Array, Array]  # (x, y) of one agent
Shape = tuple[int, ...]


class Run(TypedDict):
    w: Array  # w^{T+1}, line 5 of the last round
    z: list[Array]  # z_p^{T+1}
    lam: list[Array]  # lambda_p^{T+1}, the agents' copies (line 23)
    lam_server: list[Array]  # lambda_p^{T+1}, the server's copies (line 8)
    w_average: Array  # w^(T) = 1/T sum_t w^{t+1}
    noise_mean: list[float]  # per round, the mean |xi| over p, e, j, k


class OutpRun(TypedDict):
    w: Array
    std: list[float]  # per round, agent 0's
    noise_mean: list[float]


def softmax_gradient(
    z: Array, x: Array, y: Array, records: int, agents: int, beta: float, xp: Any = numpy
) -> tuple[Array, Array]:
    """The gradient of f_p at z (appendix, eq. gradient) and the residual h - y in it."""
    logits = x @ z
    power = xp.exp(logits - xp.amax(logits, axis=1, keepdims=True))  # the same h, without overflow
    h = power / power.sum(axis=1, keepdims=True)
    residual = h - y
    return x.T @ residual / records + 2 * beta / agents * z, residual


def sensitivity(x: Array, residual: Array, records: int) -> float:
    """Delta-bar, max_i sum_jk |x_ij (h_ik - y_ik)| / I: the sum is (sum_j |x_ij|) (sum_k |h_ik - y_ik|)."""
    norms = abs(x).sum(axis=1) * abs(residual).sum(axis=1)
    return float(norms.max()) / records


def dp_iadmm(
    shards: Sequence[Shard],
    rounds: int,
    local_updates: int,
    rho: Callable[[int], float],
    eta: Callable[[int], float],
    epsilon: float,
    noise: Callable[[int, int, int, Shape], Array],
    beta: float = 1e-6,
    box: tuple[float, float] | None = None,
    xp: Any = numpy,
) -> Run:
    """Algorithm 1; `noise(p, t, e, shape)` is Laplace noise of scale 1 (p, e from 0, t from 1), not called at inf."""
    P, T, E = len(shards), rounds, local_updates
    I = sum(len(x) for x, _ in shards)  # noqa: E741
    zero: Array = shards[0][0].T @ shards[0][1] * 0.0
    J, K = zero.shape
    lam_server, z = [zero] * P, [zero] * P  # line 2
    lam = list(lam_server)  # lines 3 and 12
    z_last = list(z)  # line 13: z_p^{0,E+1}
    w, w_sum = zero, zero
    noise_mean = []
    for t in range(1, T + 1):  # lines 4 and 14
        rho_t, eta_t = rho(t), eta(t)
        w = sum((z[p] - lam_server[p] / rho_t for p in range(P)), zero) / P  # line 5
        w_sum = w_sum + w
        noise_total = 0.0
        for p, (x, y) in enumerate(shards):  # lines 6 and 15
            z_pe = z_last[p]  # line 16: z_p^{t,1} is z_p^{t-1,E+1}, not the average that was sent
            z_sum = zero
            for e in range(E):  # line 17
                gradient, residual = softmax_gradient(z_pe, x, y, I, P, beta, xp)
                xi = zero
                if epsilon != math.inf:  # line 18
                    xi = sensitivity(x, residual, I) / epsilon * noise(p, t, e, (J, K))
                # line 19: 0 = f'_p(z_pe) + (z - z_pe)/eta - rho (w - z) - (lambda - xi), solved for z
                z_pe = (z_pe / eta_t + rho_t * w + lam[p] - xi - gradient) / (1 / eta_t + rho_t)
                if box is not None:  # one curvature in every coordinate, so the projection is the constrained minimum
                    z_pe = xp.clip(z_pe, box[0], box[1])
                z_sum = z_sum + z_pe
                noise_total += float(abs(xi).sum())
            z_last[p] = z_pe
            z[p] = z_sum / E  # lines 21, 22 and 7
            lam[p] = lam[p] + rho_t * (w - z[p])  # line 23
        for p in range(P):
            lam_server[p] = lam_server[p] + rho_t * (w - z[p])  # line 8
        noise_mean.append(noise_total / (P * E * J * K))
    return Run(w=w, z=z, lam=lam, lam_server=lam_server, w_average=w_sum / T, noise_mean=noise_mean)


def outp(
    shards: Sequence[Shard],
    rounds: int,
    rho: Callable[[int], float],
    epsilon: float,
    delta: float,
    noise: Callable[[int, int, Shape], Array],
    level: str,
    beta: float = 1e-6,
    bound: float | None = None,
    xp: Any = numpy,
) -> OutpRun:
    """The baseline as the published code runs it; `noise(p, t, shape)` is standard normal, not called at inf.

    Levels: `published` (c1 = I_p, sigma^2 as the standard deviation), `published-formula` (c1 = I_p, sigma),
    `calibrated` (sigma, c1 = sqrt(2) bound, c3 = bound^2/2; `bound` is on the Euclidean norm of a record's features).
    """
    if level not in {"published", "published-formula", "calibrated"}:
        raise ValueError(f"unknown level: {level}")
    P = len(shards)
    zero: Array = shards[0][0].T @ shards[0][1] * 0.0
    J, K = zero.shape
    w, z, lam = zero, [zero] * P, [zero] * P
    std, noise_mean = [], []
    for t in range(1, rounds + 1):
        rho_t = rho(t)
        noise_total = 0.0
        for p, (x, y) in enumerate(shards):
            I_p = len(x)
            c1, c3, c_w = float(I_p), I_p / 4, math.sqrt(4 * J * K)
            if level == "calibrated":
                if bound is None:
                    raise ValueError("calibrated needs a bound")
                c1, c3 = math.sqrt(2) * bound, bound**2 / 2
            inverse_eta = c3 + 4 * c1 * math.sqrt(J * K * t * math.log(1.25 / delta)) / (I_p * epsilon * c_w)
            sigma = 2 * c1 * math.sqrt(2 * math.log(1.25 / delta)) / (I_p * epsilon * (rho_t + inverse_eta))
            std_p = sigma**2 if level == "published" else sigma
            gradient, _ = softmax_gradient(z[p], x, y, I_p, 1, beta, xp)  # 1/I_p, and 2 beta z at every agent
            xi = zero if epsilon == math.inf else std_p * noise(p, t, (J, K))
            z_p = (inverse_eta * z[p] + rho_t * w + lam[p] - gradient) / (rho_t + inverse_eta)
            z[p] = z_p + xi  # kept: the next round starts from the noisy z
            noise_total += float(abs(xi).sum())
            if p == 0:
                std.append(std_p)
        w = sum((z[p] - lam[p] / rho_t for p in range(P)), zero) / P
        for p in range(P):
            lam[p] = lam[p] + rho_t * (w - z[p])
        noise_mean.append(noise_total / (P * J * K))
    return OutpRun(w=w, std=std, noise_mean=noise_mean)


def test_error(w: Array, x: Array, labels: npt.NDArray[numpy.integer[Any]]) -> float:
    """The share of records whose largest logit is not at the label, between 0 and 1."""
    return float(((x @ w).argmax(1) != labels).sum()) / len(labels)


test_error.__test__ = False  # type: ignore[attr-defined]  # pytest is not to collect it where it is imported


def dynamic_rho(t: int, epsilon: float, c1: float, c2: float, tc: int) -> float:
    """Eq. dynamic_rho, the penalty of round t (from 1)."""
    return min(1e9, c1 * 1.2 ** (t // tc) + c2 / epsilon)
