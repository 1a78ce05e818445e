"""Seeded noise drawn on a GPU: numpy's Philox words, and Laplace and normal numbers from them.

A number's place decides its words, so every draw can be repeated, whatever else is drawn beside it. Laplace numbers are
those of the CPU for the same key, up to rounding. Normal numbers have the same distribution; the CPU's method takes a
varying number of words for each, which does not suit a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

MULTIPLIER_0 = tl.constexpr(0xD2E7470EE14C6C93)
MULTIPLIER_1 = tl.constexpr(0xCA5A826395121157)
WEYL_0 = tl.constexpr(0x9E3779B97F4A7C15)
WEYL_1 = tl.constexpr(0xBB67AE8584CAA73B)
BLOCKS = 256  # blocks of four words that a program draws


@triton.jit
def _philox(block, stream, update, round, seed, agent):  # noqa: A002
    """Compute Philox4x64-10 as numpy does: key (seed, agent), counter (block, stream, update, round); four words."""
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
    """Return words 4 first to 4 (first + BLOCKS) - 1 of a stream, in order, [4 BLOCKS]; numpy counts blocks from 1."""
    block = first + 1 + tl.arange(0, BLOCKS)
    a, b, c, d = _philox(block, stream, update, round, seed, agent)
    return _in_order(a, b, c, d, BLOCKS)


@triton.jit
def _in_order(a, b, c, d, BLOCKS: tl.constexpr):
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (4 * BLOCKS,))


@triton.jit
def uniform(word):
    """Return the middle of one of 2^53 equal parts of (0, 1)."""
    return ((word >> 11).to(tl.int64).to(tl.float64) + 0.5) * (1.0 / 9007199254740992.0)


@triton.jit
def laplace(word, REAL: tl.constexpr):
    """Invert the Laplace distribution as numpy does: with U = word / 2^64, -ln(2 - 2U) for U >= 1/2, else ln(2U)."""
    u = (word >> 11).to(tl.int64)
    half: tl.constexpr = 1 << 52
    upper = u >= half
    tail = tl.where(upper, 2 * half - u, u)
    size = tl.log(tl.maximum(tail, 1).to(REAL) * (1.0 / half))
    return tl.where(upper, -size, size)


@triton.jit(do_not_specialize=["agent", "update", "round"])
def standard_noise(
    out,  # [J, R, K]
    scale,  # [R]
    seeds,  # [R]
    streams,  # [R]
    agent,
    update,
    round,  # noqa: A002
    JK: tl.constexpr,
    K: tl.constexpr,
    R: tl.constexpr,
    GAUSSIAN: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Write scale times standard numbers, run by run: normal (Box and Muller) or Laplace ones."""
    tile, run = tl.program_id(0), tl.program_id(1)
    block = tile.to(tl.int64) * BLOCKS + 1 + tl.arange(0, BLOCKS)
    a, b, c, d = _philox(block, tl.load(streams + run), update, round, tl.load(seeds + run), agent)
    if GAUSSIAN:
        turn: tl.constexpr = 6.283185307179586
        first, second = tl.sqrt(-2.0 * tl.log(uniform(a))), tl.sqrt(-2.0 * tl.log(uniform(c)))
        at, after = turn * uniform(b), turn * uniform(d)
        x = _in_order(first * tl.cos(at), first * tl.sin(at), second * tl.cos(after), second * tl.sin(after), BLOCKS)
    else:
        x = laplace(_in_order(a, b, c, d, BLOCKS), tl.float64)
    m = tile.to(tl.int64) * (4 * BLOCKS) + tl.arange(0, 4 * BLOCKS)
    place = (m // K) * (R * K) + run * K + m % K
    tl.store(out + place, (tl.load(scale + run) * x).to(out.dtype.element_ty), mask=m < JK)


def draw(
    mechanism: str,
    scale: Any,
    seeds: Sequence[int],
    streams: Sequence[int],
    place: tuple[int, int, int],
    like: torch.Tensor,
) -> torch.Tensor:
    """Draw noise of scale [R] where a tensor is, in its shape [J, R, K] and precision.

    Parameters
    ----------
    mechanism : str
        "gaussian" or "laplace".
    scale : tensor on the same device, or sequence of float, [R]
        The scale of every run.
    seeds, streams : sequence of int, [R]
        What a run's words are keyed by.
    place : tuple of int
        Agent, round and update, which key them too.
    like : tensor
        Gives shape, precision and device.
    """
    features, runs, classes = like.shape
    out, count = torch.zeros_like(like, memory_format=torch.contiguous_format), features * classes
    own_seeds, own_streams = _keys(tuple(seeds), tuple(streams), like.device)
    on_device = isinstance(scale, torch.Tensor)
    scales = scale.to(torch.float64) if on_device else _numbers(tuple(map(float, scale)), like.device)
    agent, t, update = place
    grid: Any = (triton.cdiv(count, 4 * BLOCKS), runs)
    with torch.cuda.device(like.device) if like.is_cuda else nullcontext():  # triton starts programs on the current one
        standard_noise[grid](
            out, scales, own_seeds, own_streams, agent, update, t,
            JK=count, K=classes, R=runs, GAUSSIAN=mechanism == "gaussian", BLOCKS=BLOCKS,
        )  # fmt: skip
    return out


@lru_cache(maxsize=64)
def _keys(seeds: tuple[int, ...], streams: tuple[int, ...], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what keys the noise of every run, on the device: the same in all rounds."""
    keys = torch.as_tensor(np.array([seeds, streams], np.uint64).view(np.int64), device=device)
    return keys[0], keys[1]


@lru_cache(maxsize=64)
def _numbers(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    return torch.as_tensor(np.array(values), device=device)
