"""Laws of down-sampling: the ends and all extremes are kept, and the number of points is limited."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taciturn.dashboard.metric_curves import POINTS, downsample


@given(st.integers(1, 5000), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_ends_and_extremes_stay_and_points_are_few(n: int, lines: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [rng.standard_cauchy(n) for _ in range(lines)]
    places = downsample(values)
    assert len(places) <= POINTS
    assert (np.diff(places) > 0).all()
    assert (places[0], places[-1]) == (0, n - 1)
    for line in values:
        assert line[places].min() == line.min()
        assert line[places].max() == line.max()
    if n <= POINTS:
        assert len(places) == n


def test_a_single_peak_among_twenty_thousand_rounds_is_seen_where_it_is() -> None:
    flat = np.ones(20_000)
    for peak in (1, 9_999, 10_000, 19_998):
        line = flat.copy()
        line[peak] = 7.0
        places = downsample([line])
        assert peak in places
        assert len(places) <= POINTS


def test_no_stretch_of_the_line_is_left_out() -> None:
    places = downsample([np.sin(np.arange(20_000.0))])
    assert np.diff(places).max() <= 3 * 20_000 / (POINTS / 2)
