"""Triton kernels: the residual of every record, and the update with its noise."""

from __future__ import annotations

import triton
import triton.language as tl

from taciturn.kernels.device_noise import laplace, words


@triton.jit
def standard_normal(word):
    """Return the cosine of Box and Muller, from the two halves of a word."""
    radius = ((word >> 32).to(tl.uint32).to(tl.float32) + 0.5) * (1.0 / 4294967296.0)
    angle = (word & 0xFFFFFFFF).to(tl.uint32).to(tl.float32) * (6.283185307179586 / 4294967296.0)
    return tl.sqrt(-2.0 * tl.log(radius)) * tl.cos(angle)


@triton.jit
def softmax_residual(
    scores,  # [P, n, C]  s
    residual,  # [P, n, C]  out: r = softmax(s) - y
    labels,  # [P, n]  class numbers
    norm1,  # [P, n]  ||x||_1, 0 for a row that is only there to fill up
    largest,  # [P, R]  max_i ||x_i||_1 ||r_i||_1, raised from 0
    n: tl.constexpr,
    R: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
    STRIDE: tl.constexpr,  # columns from one run to the next
    WIDTH: tl.constexpr,  # K rounded up to a power of two
    RECORDS: tl.constexpr,  # a program works on this many records
    RUNS: tl.constexpr,  # of this many runs
):
    """Compute r = softmax(s) - y (eq. gradient) and the factors of the data-dependent sensitivity (eq. Delta)."""
    p, first = tl.program_id(2), tl.program_id(1) * RUNS
    q = tl.arange(0, RECORDS * RUNS)
    i, run, k = tl.program_id(0) * RECORDS + q // RUNS, first + q % RUNS, tl.arange(0, WIDTH)
    start = p.to(tl.int64) * (n * C)
    place = (i * C + run * STRIDE)[:, None] + k[None, :]
    inside = ((i < n) & (run < R))[:, None] & (k < K)[None, :]
    s = tl.load(scores + start + place, mask=inside, other=-1e30) * 1.4426950408889634  # 1 / ln 2
    label = tl.load(labels + p * n + i, mask=i < n, other=0)
    norm = tl.load(norm1 + p * n + i, mask=i < n, other=0.0)
    h = tl.exp2(s - tl.max(s, axis=1)[:, None])
    share, true = 1.0 / tl.sum(h, axis=1), k[None, :] == label[:, None]
    r = h * share[:, None] - true.to(tl.float32)
    tl.store(residual + start + place, r, mask=inside)
    size = norm * share * (2.0 * tl.sum(tl.where(true, 0.0, h), axis=1))  # ||r||_1: what the other classes get, twice
    runs = first + tl.arange(0, RUNS)
    tl.atomic_max(largest + p * R + runs, tl.max(tl.reshape(size, (RECORDS, RUNS)), axis=0), mask=runs < R)


@triton.jit
def _places(tile, run, JK: tl.constexpr, K: tl.constexpr, C: tl.constexpr, STRIDE: tl.constexpr, BLOCKS: tl.constexpr):
    """Return mask, offsets in [R, J, K] and offsets in [J, C] of a tile of parameters, in the order of its words."""
    m = tile * (4 * BLOCKS) + tl.arange(0, 4 * BLOCKS)
    return m < JK, run * JK + m, (m // K) * C + run * STRIDE + m % K


@triton.jit
def _linearised_step(rho, per_eta, w, lam, z, g):
    """Return (rho w + lambda - g + z / eta) / (rho + 1 / eta), eq. DPADMM-2-Prox, as in algorithms/steps.py."""
    return (rho * w + lam - g + z * per_eta) * (1.0 / (rho + per_eta))


@triton.jit
def _dual_step(lam, rho, w, z):
    """Return lambda + rho (w - z), eq. ADMM-3, as in algorithms/steps.py."""
    return lam + rho * (w - z)


@triton.jit(do_not_specialize=["t", "update"])
def objective_update(
    z,  # [P, R, J, K]  in and out
    lam,  # [P, R, J, K]  in; out after the last local update
    total,  # [P, R, J, K]  sum of the local iterates so far
    factor,  # [P, J, C]  out: z for the next matrix product
    gradient,  # [P, J, C]  sum_i x_i r_i^T
    w,  # [R, J, K]
    z_sum,  # [R, J, K]  out, after the last local update
    lam_sum,  # [R, J, K]  out, after the last local update
    largest,  # [P, R]  I Delta
    rho,  # [R]
    eta,  # [R]
    epsilon,  # [R]
    seeds,  # [R]
    agents,  # [P]  what the noise of each is keyed by
    noise,  # [groups, tiles, R]  out: sum |xi| of the update
    silent,  # [1]  raised where noise is drawn for a sensitivity of 0, and so is none
    t,
    update,
    records,  # I
    shrinkage,  # 2 beta / P
    updates,  # E
    P: tl.constexpr,
    R: tl.constexpr,
    JK: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
    STRIDE: tl.constexpr,
    FIRST: tl.constexpr,
    LAST: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Compute lines 18-19 for one local update, including the noise; the last update also computes lines 21-23."""
    tile, run, group = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    there, own, wide = _places(tile, run, JK, K, C, STRIDE, BLOCKS)
    rho_t, per_eta, eps = tl.load(rho + run), 1.0 / tl.load(eta + run), tl.load(epsilon + run)
    seed, per_record = tl.load(seeds + run), 1.0 / records
    w_here = tl.load(w + own, mask=there, other=0.0)
    z_all = tl.zeros_like(w_here)
    lam_all = tl.zeros_like(w_here)
    size = tl.zeros_like(w_here)
    for a in range(P if LAST else 1):  # the last update adds all agents up, so that one program works for all of them
        p = group + a
        plane, sheet = tl.full((), R * JK, tl.int64) * p, tl.full((), JK // K * C, tl.int64) * p
        z_p = tl.load(z + plane + own, mask=there, other=0.0)
        lam_p = tl.load(lam + plane + own, mask=there, other=0.0)
        g = tl.load(gradient + sheet + wide, mask=there, other=0.0) * per_record + shrinkage * z_p
        if not FIRST:
            before = tl.load(total + plane + own, mask=there, other=0.0)
        if eps < float("inf"):
            word = words(tile * BLOCKS, tl.zeros_like(seed), update, t, seed, tl.load(agents + p), BLOCKS)
            delta = tl.load(largest + p * R + run) * per_record
            if delta == 0.0:
                tl.store(silent, 1)
            xi = delta / eps * laplace(word, tl.float32)
            g += xi
            size += tl.abs(xi)
        z_p = _linearised_step(rho_t, per_eta, w_here, lam_p, z_p, g)
        tl.store(z + plane + own, z_p, mask=there)
        tl.store(factor + sheet + wide, z_p, mask=there)
        out = z_p if FIRST else before + z_p
        if LAST:
            out = out / updates
            lam_p = _dual_step(lam_p, rho_t, w_here, out)
            tl.store(lam + plane + own, lam_p, mask=there)
            z_all += out
            lam_all += lam_p
        else:
            tl.store(total + plane + own, out, mask=there)
    if LAST:
        tl.store(z_sum + own, z_all, mask=there)
        tl.store(lam_sum + own, lam_all, mask=there)
    tl.store(noise + (group * tl.num_programs(0) + tile) * R + run, tl.sum(tl.where(there, size, 0.0)))


@triton.jit(do_not_specialize=["t"])
def output_update(
    z,  # [P, R, J, K]  in and out
    lam,  # [P, R, J, K]  in and out
    factor,  # [P, J, C]  out: z for the next matrix product
    gradient,  # [P, J, C]  sum_i x_i r_i^T
    w,  # [R, J, K]
    z_sum,  # [R, J, K]  out
    lam_sum,  # [R, J, K]  out
    rho,  # [R]
    rho_before,  # [R]  of the round before
    eta,  # [P, R]
    std,  # [P, R]
    seeds,  # [R]
    records,  # [P]  I_p
    agents,  # [P]  what the noise of each is keyed by
    noise,  # [tiles, R]  out: sum |xi|
    t,
    shrinkage,  # 2 beta
    P: tl.constexpr,
    R: tl.constexpr,
    JK: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Compute the dual step, the linearised step on the agent's mean loss, and the noise on its result."""
    tile, run = tl.program_id(0), tl.program_id(1)
    there, own, wide = _places(tile, run, JK, K, C, STRIDE, BLOCKS)
    rho_t, rho_last, seed = tl.load(rho + run), tl.load(rho_before + run), tl.load(seeds + run)
    w_here = tl.load(w + own, mask=there, other=0.0)
    z_all = tl.zeros_like(w_here)
    lam_all = tl.zeros_like(w_here)
    size = tl.zeros_like(w_here)
    for p in range(P):
        plane, sheet = tl.full((), R * JK, tl.int64) * p, tl.full((), JK // K * C, tl.int64) * p
        z_p = tl.load(z + plane + own, mask=there, other=0.0)
        lam_p = _dual_step(tl.load(lam + plane + own, mask=there, other=0.0), rho_last, w_here, z_p)
        per_record, per_eta = 1.0 / tl.load(records + p), 1.0 / tl.load(eta + p * R + run)
        g = tl.load(gradient + sheet + wide, mask=there, other=0.0) * per_record + shrinkage * z_p
        z_p = _linearised_step(rho_t, per_eta, w_here, lam_p, z_p, g)
        std_p = tl.load(std + p * R + run)
        if std_p > 0.0:
            word = words(tile * BLOCKS, tl.zeros_like(seed), tl.zeros_like(seed), t, seed, tl.load(agents + p), BLOCKS)
            xi = std_p * standard_normal(word)
            z_p += xi
            size += tl.abs(xi)
        tl.store(z + plane + own, z_p, mask=there)
        tl.store(factor + sheet + wide, z_p, mask=there)
        tl.store(lam + plane + own, lam_p, mask=there)
        z_all += z_p
        lam_all += lam_p
    tl.store(z_sum + own, z_all, mask=there)
    tl.store(lam_sum + own, lam_all, mask=there)
    tl.store(noise + tile * R + run, tl.sum(tl.where(there, size, 0.0)))
