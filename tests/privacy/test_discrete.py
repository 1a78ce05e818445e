"""The discrete samplers draw from the exact distribution, independently, and decide boundary cases exactly."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from taciturn.errors import InputError
from taciturn.privacy import discrete
from taciturn.privacy.discrete import Entropy, SeededEntropy, SystemEntropy, discrete_gaussian, discrete_laplace

Sampler = Callable[[float, int, Entropy], NDArray[np.int64]]
Floats = NDArray[np.float64]
SAMPLERS = [discrete_laplace, discrete_gaussian]
SCALES = [0.05, 0.3, 1.0, 2.5, 17.3, 1e4, 3e8, 1e13]
N = 1_000_000
FILL = 1 << 62  # a word far from every boundary: its uniform is 1/4


class Script:
    """An entropy whose calls begin with the given words, one list per call, and continue with FILL."""

    def __init__(self, *calls: list[int]) -> None:
        self.calls = list(calls)
        self.asked: list[int] = []

    def words(self, count: int) -> NDArray[np.uint64]:
        first = self.calls.pop(0) if self.calls else []
        self.asked.append(count)
        return np.array(first + [FILL] * (count - len(first)), np.uint64)


def masses(sampler: Sampler, scale: float) -> tuple[Floats, Floats]:
    """Integers and their probabilities, up to a tail below 1e-17."""
    reach = math.ceil((40 if sampler is discrete_laplace else 9) * scale) + 2
    x = np.arange(-reach, reach + 1.0)
    weights = np.exp(-np.abs(x) / scale if sampler is discrete_laplace else -(x**2) / (2 * scale**2))
    return x, weights / weights.sum()


def below(sampler: Sampler, scale: float, edges: NDArray[np.int64]) -> Floats:
    """P(X < edge). The Laplace sum is closed; the Gaussian one of a large scale is its integral up to 1 / scale^2."""
    if sampler is discrete_laplace:
        tail = np.exp(-np.abs(np.where(edges > 0, edges, 1.0 - edges)) / scale) / (1 + math.exp(-1 / scale))
        return np.where(edges > 0, 1 - tail, tail)
    if scale > 1e5:
        return np.asarray(stats.norm.cdf((edges - 0.5) / scale))
    x, p = masses(sampler, scale)
    return np.concatenate([[0.0], np.cumsum(p)])[np.searchsorted(x, edges)]


def p_value(sampler: Sampler, scale: float, samples: NDArray[np.int64]) -> float:
    """Chi-square of the counts between about 40 edges, each bin having at least 10 samples expected."""
    spread = np.linspace(-6, 6, 41) if sampler is discrete_laplace else np.linspace(-3.5, 3.5, 41)
    edges = np.unique(np.round(spread * scale).astype(np.int64)) if scale > 5 else np.arange(-40, 41)
    while True:  # drop edges at the ends until all bins are large enough
        p = np.diff(below(sampler, scale, edges), prepend=0.0, append=1.0)
        if min(p[0], p[-1]) * len(samples) >= 10:
            break
        edges = edges[int(p[0] * len(samples) < 10) : len(edges) - int(p[-1] * len(samples) < 10)]
    counts = np.bincount(np.searchsorted(edges, samples, side="right"), minlength=len(p))
    return float(stats.chisquare(counts, p * len(samples)).pvalue)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("scale", SCALES)
def test_mass_function(sampler: Sampler, scale: float) -> None:
    samples = sampler(scale, N, SeededEntropy(1, round(100 * scale)))
    assert samples.dtype == np.int64
    if scale == 0.05:  # P(X != 0) is 4e-9 or less
        assert np.count_nonzero(samples) == 0
    else:
        assert p_value(sampler, scale, samples) > 1e-3


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("scale", [0.3, 17.3, 1e4, 1e13])
def test_one_percent_would_be_noticed(sampler: Sampler, scale: float) -> None:
    """The test above can fail: a scale 1 % off does not pass it."""
    assert p_value(sampler, scale, sampler(1.01 * scale, N, SeededEntropy(2, round(100 * scale)))) < 1e-5


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("scale", [0.3, 2.5, 1e4])
def test_moments_and_symmetry(sampler: Sampler, scale: float) -> None:
    """Mean, variance, sign and third moment within 4 standard errors of the exact sums."""
    samples = sampler(scale, N, SeededEntropy(3, round(100 * scale))).astype(np.float64)
    x, p = masses(sampler, scale)
    for moment in (lambda v: v, lambda v: v**2, np.sign, lambda v: (v / scale) ** 3):
        mean = float(p @ moment(x))
        error = math.sqrt(float(p @ moment(x) ** 2) - mean**2)
        assert abs(moment(samples).mean() - mean) < 4 * error / math.sqrt(N)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("scale", [1.0, 1e4, 1e13])
@pytest.mark.parametrize("lag", [1, 2])
def test_samples_are_independent(sampler: Sampler, scale: float, lag: int) -> None:
    """Signs and magnitudes of neighbours, in a contingency table of pairs that do not overlap."""
    samples = sampler(scale, 300_000, SeededEntropy(4, round(scale)))
    bins = np.searchsorted(np.array([-1.5, -0.7, 0.1, 1.1]) * scale, samples)
    pairs = bins[: len(bins) // (2 * lag) * 2 * lag].reshape(-1, 2, lag)
    table = np.zeros((5, 5))
    np.add.at(table, (pairs[:, 0].ravel(), pairs[:, 1].ravel()), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-3


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("scale", [1e6, 1e9, 1e13])
def test_low_bits_are_uniform(sampler: Sampler, scale: float) -> None:
    """Eight low bits at a time, the eight across the seam of the two parts, and independent of sign and size."""
    samples = sampler(scale, 300_000, SeededEntropy(5, round(scale)))
    magnitudes = np.abs(samples)
    for bits in (magnitudes, magnitudes >> 6, magnitudes >> (10 if scale > 1e12 else 3)):
        assert stats.chisquare(np.bincount(bits & 255, minlength=256)).pvalue > 1e-3
    for other in (samples < 0, magnitudes > scale, (magnitudes >> 4) & 7, np.roll(magnitudes, 1) & 7):
        table = np.zeros((8, 8))
        np.add.at(table, (magnitudes & 7, other.astype(np.int64)), 1)
        assert stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue > 1e-3


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("scale", [0.3, 17.3, 1e9, 1e13])
def test_every_fast_decision_is_the_exact_one(sampler: Sampler, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every decision in doubt, the same words give the same samples."""
    fast = sampler(scale, 300, SeededEntropy(6))
    monkeypatch.setattr(discrete, "ERROR", 1.0)
    monkeypatch.setattr(discrete, "ERROR_32", 1e300)
    np.testing.assert_array_equal(fast, sampler(scale, 300, SeededEntropy(6)))


def test_the_error_bound_of_the_logarithm() -> None:
    """At random, at the ends of the table's cells, and at both ends of the range."""
    random = SeededEntropy(7).words(1500) >> np.uint64(1)
    uniforms = [int(u) >> i % 15 for i, u in enumerate(random)]
    uniforms += [(256 + i << 40 + power) - j for power in range(15) for i in range(0, 256, 15) for j in (0, 1)]
    uniforms = [u for u in uniforms if u >= discrete.FLOOR] + [discrete.FLOOR, 2**63 - 1]
    computed = discrete._exponential(np.array(uniforms))
    for u, e in zip(uniforms, computed.tolist(), strict=True):
        for end in (u, u + 1):
            exact = discrete._bound(end, 63, 1)
            assert abs(Fraction(e) - exact) < discrete.ERROR


def test_the_exact_interval_holds_the_logarithm() -> None:
    """Both bounds lie on their sides of -ln(n / 2^bits) known to 150 digits, nearer than the last bit of n counts."""
    for bits, n in [(32, 1), (32, 3**20), (63, 7), (63, 2**63 - 1), (127, 5**50), (320, 3**200)]:
        with localcontext(prec=150):
            exact = Fraction(Decimal(1 << bits).ln() - Decimal(n).ln())
        assert discrete._bound(n, bits, -1) < exact < discrete._bound(n, bits, 1)
        assert discrete._bound(n, bits, 1) - discrete._bound(n, bits, -1) < Fraction(1, 1 << bits)


def boundary(q: Fraction, bits: int) -> int:
    """exp(-q) 2^bits, rounded down."""
    with localcontext(prec=120):
        return int((-(Decimal(q.numerator) / Decimal(q.denominator))).exp() * (1 << bits))


@pytest.mark.parametrize("scale", [0.3, 1.0, 17.3, 1e6, 1e9])
@pytest.mark.parametrize("times", [0.4, 2.0, 30.0])
def test_geometric_at_its_boundary(scale: float, times: float) -> None:
    """|X| >= g if U < exp(-g / scale): the bits beyond the 63 first decide, at one part in 2^127."""
    g = max(1, round(times * scale))
    exact = boundary(g / Fraction(scale), 127)
    for nudge, expected in ((-1, g), (1, g - 1)):
        first, more = divmod(exact + nudge, 1 << 64)
        entropy = Script([first << 1], [more])
        sample = discrete_laplace(scale, 1, entropy)[0]
        assert (sample, entropy.asked[1:]) == (expected, [1])
    if times < 10:  # so that the next uniform of 63 bits is near enough to give g too
        decided = Script([(exact >> 64) - 1 << 1])
        assert discrete_laplace(scale, 1, decided)[0] == g
        assert len(decided.asked) == 1


@pytest.mark.parametrize("sigma", [0.7, 3.0, 1e6 / 3, 1e9])
@pytest.mark.parametrize("times", [0.2, 1.5, 3.5, 6.5])
def test_bell_at_its_boundary(sigma: float, times: float) -> None:
    """A proposal stands if V < exp(-q): the bits beyond the 32 first decide, at one part in 2^96."""
    x = max(1, round(times * sigma))
    proposal = (boundary((x + Fraction(1, 2)) / Fraction(sigma), 63) << 1) | 1  # and the sign is minus
    exact = boundary((x / Fraction(sigma) - 1) ** 2 / 2, 96)
    for nudge, stands in ((-1, True), (1, False)):
        first, more = divmod(exact + nudge, 1 << 64)
        entropy = Script([proposal], [first], [more])
        assert (discrete_gaussian(sigma, 1, entropy)[0] == -x) == stands
        assert entropy.asked[2:] == [1]


def test_low_part_at_its_boundary() -> None:
    """With a scale above 2^30, the low part l is kept if W < exp(-l / scale)."""
    scale, shift, low = 1e13, 14, 16000
    high = boundary(Fraction(5 << shift) / Fraction(scale) + Fraction(1 << shift - 1) / Fraction(scale), 63) << 1
    exact = boundary(low / Fraction(scale), 64 - shift + 64)
    for nudge, stands in ((-1, True), (1, False)):
        first, more = divmod(exact + nudge, 1 << 64)
        entropy = Script([high], [(first << shift) | low], [more])
        sample = discrete_laplace(scale, 1, entropy)[0]
        assert (sample == (5 << shift) + low) == stands
        assert entropy.asked[2:] == [1]


def test_a_uniform_of_zeros_is_drawn_further() -> None:
    """The far tail: no bit among the 63 first is set, so more are drawn, and again."""
    entropy = Script([0], [0], [1 << 40])
    expected = math.floor(2.5 * (63 + 64 + 24) * math.log(2))
    assert discrete_laplace(2.5, 1, entropy)[0] == expected
    assert entropy.asked[1:] == [1, 1]


@pytest.mark.parametrize("scale", [discrete.SMALLEST, 0.3, 1.0, 1e6])
def test_a_uniform_of_ones_gives_zero(scale: float) -> None:
    """-ln U is 0 within its error, which may be below 0."""
    assert discrete_laplace(scale, 1, Script([2**64 - 2]))[0] == 0


def test_minus_zero_is_rejected() -> None:
    """U = 1/2 gives 0 at scale 1; with the minus sign it does not count, and the next word does."""
    half = 1 << 63
    assert discrete_laplace(1.0, 2, Script([half, half | 1, 1 << 60])).tolist() == [0, 2]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, -math.inf, 1e-4, 1e16])
def test_bad_scales_are_refused(sampler: Any, bad: float) -> None:
    with pytest.raises(InputError, match=re.escape(f" is {bad}; it must be")):
        sampler(bad, 1, SystemEntropy())


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_sizes(sampler: Sampler) -> None:
    with pytest.raises(InputError, match="size is -1"):
        sampler(1.0, -1, SystemEntropy())
    for scale in (discrete.SMALLEST, 1.0, discrete.LARGEST):
        for size in (0, 1, discrete.BLOCK, discrete.BLOCK + 1):
            assert sampler(scale, size, SystemEntropy()).shape == (size,)


def test_seeded_entropy_depends_on_its_key_alone() -> None:
    keys = [(), (0,), (1,), (1, 0), (0, 1), (1 << 32,), (1 << 32, 0), (1, 0, 0)]
    streams = {SeededEntropy(*key).words(2).tobytes() for key in keys}
    assert len(streams) == len(keys)
    again = SeededEntropy(1)
    np.testing.assert_array_equal(np.concatenate([again.words(3), again.words(4)]), SeededEntropy(1).words(7))
    with pytest.raises(InputError, match="a part of the key is -1"):
        SeededEntropy(-1)


@pytest.mark.parametrize("count", [40, 1000, 2 * discrete.PART + 3])
def test_system_entropy_is_uniform_and_fresh(count: int) -> None:
    entropy = SystemEntropy()
    assert entropy.words(0).shape == (0,)
    words = entropy.words(count)
    assert words.dtype == np.uint64 and not words.flags.writeable
    assert len(np.unique(np.concatenate([words, entropy.words(count)]))) == 2 * count
    assert abs(int(np.bitwise_count(words).sum()) - 32 * count) < 8 * math.sqrt(16 * count)


def test_a_long_request_is_a_fresh_key_expanded_by_chacha20(monkeypatch: pytest.MonkeyPatch) -> None:
    """One key of 32 bytes from the system for each part, used once; RFC 8439's key stream of the key of zeros."""
    asked: list[int] = []

    def urandom(size: int) -> bytes:
        asked.append(size)
        return bytes([len(asked) - 1]) * size

    monkeypatch.setattr(os, "urandom", urandom)
    words = SystemEntropy().words(discrete.PART + 5)
    assert asked == [32, 32]
    assert words[:2].tobytes().hex() == "76b8e0ada0f13d90405d6ae55386bd28"  # RFC 8439, A.1, vector 1
    assert not np.isin(words[-5:], words[:-5]).any()


@pytest.mark.parametrize(("scale", "primes"), [(4.0, (2, 3, 5)), (1e8, (2, 3, 5, 7, 11, 13, 251))])
def test_shares_add_up_to_one_discrete_gaussian(scale: float, primes: tuple[int, ...]) -> None:
    """What a secure sum opens: three shares, of the smallest scale that planning allows and of a usual one."""
    count, shares = 40_000, 3

    def total(factor: float) -> NDArray[np.int64]:
        drawn = discrete_gaussian(factor * scale, shares * count, SeededEntropy(6, round(scale)))
        return np.asarray(drawn.reshape(shares, count).sum(axis=0))

    assert p_value(discrete_gaussian, scale * math.sqrt(shares), total(1.0)) > 1e-3
    assert p_value(discrete_gaussian, scale * math.sqrt(shares), total(0.97)) < 1e-5  # it would be noticed
    for prime in primes:
        assert stats.chisquare(np.bincount(total(1.0) % prime, minlength=prime)).pvalue > 1e-3
