"""Seeded noise inside a kernel: the words of numpy's Philox, and what they become."""

from __future__ import annotations

import triton
import triton.language as tl

MULTIPLIER_0 = tl.constexpr(0xD2E7470EE14C6C93)
MULTIPLIER_1 = tl.constexpr(0xCA5A826395121157)
WEYL_0 = tl.constexpr(0x9E3779B97F4A7C15)
WEYL_1 = tl.constexpr(0xBB67AE8584CAA73B)


@triton.jit
def _philox(block, stream, update, round, seed, agent):  # noqa: A002
    """Philox4x64-10 as numpy keys it: key (seed, agent), counter (block, stream, update, round); four words."""
    c0 = block.to(tl.uint64)
    c1 = tl.zeros_like(c0) + stream.to(tl.uint64)
    c2 = tl.zeros_like(c0) + update.to(tl.uint64)
    c3 = tl.zeros_like(c0) + round.to(tl.uint64)
    k0 = seed.to(tl.uint64)
    k1 = agent.to(tl.uint64)
    m0 = tl.zeros_like(c0) + tl.full((), MULTIPLIER_0, tl.uint64)
    m1 = tl.zeros_like(c0) + tl.full((), MULTIPLIER_1, tl.uint64)
    for _ in tl.static_range(10):
        high0, low0 = tl.umulhi(c0, m0), c0 * m0
        high1, low1 = tl.umulhi(c2, m1), c2 * m1
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 = k0 + tl.full((), WEYL_0, tl.uint64)
        k1 = k1 + tl.full((), WEYL_1, tl.uint64)
    return c0, c1, c2, c3


@triton.jit
def words(first, stream, update, round, seed, agent, BLOCKS: tl.constexpr):  # noqa: A002
    """Words 4 first .. 4 (first + BLOCKS) - 1 of a stream, in order, [4 BLOCKS]; numpy counts its blocks from 1."""
    block = first + 1 + tl.arange(0, BLOCKS)
    a, b, c, d = _philox(block, stream, update, round, seed, agent)
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (4 * BLOCKS,))


@triton.jit
def standard_laplace(word):
    """numpy's own inversion: with U = word / 2^64 in 53 bits, -ln(2 - 2U) from U = 1/2 on and ln(2U) below."""
    u = (word >> 11).to(tl.int64)
    half: tl.constexpr = 1 << 52
    upper = u >= half
    tail = tl.where(upper, 2 * half - u, u)
    size = tl.log(tl.maximum(tail, 1).to(tl.float32) * (1.0 / half))
    return tl.where(upper, -size, size)


@triton.jit
def standard_normal(word):
    """Box and Muller's cosine, from the two halves of a word."""
    radius = ((word >> 32).to(tl.uint32).to(tl.float32) + 0.5) * (1.0 / 4294967296.0)
    angle = (word & 0xFFFFFFFF).to(tl.uint32).to(tl.float32) * (6.283185307179586 / 4294967296.0)
    return tl.sqrt(-2.0 * tl.log(radius)) * tl.cos(angle)
