"""Feature maps: the features of a record depend on that record only, to the bit."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from taciturn.data import DataOptions, describe, load, load_unmapped
from taciturn.data.feature_mapping import mapped_names, mapped_rows
from taciturn.data.feature_maps import MAPS, NONE, InputShape, build_map, check_map, width_of
from taciturn.data.feature_maps.feature_map import FINE, normalize_rows, whole_weights
from taciturn.data.feature_maps.images import gaussian, grid, strokes
from taciturn.data.feature_maps.pixels import Pixels
from taciturn.data.feature_maps.scattering import (
    COARSE,
    DIRECTIONS,
    FLOOR,
    LEVELS,
    PLACES,
    WHOLE,
    WIDTH,
    Scattering,
    whitening,
)
from taciturn.errors import InputError

SIDE = 14
IMAGES = InputShape(SIDE * SIDE, (SIDE, SIDE))
TABLE = InputShape(7)
GENERAL = [name for name in MAPS if not MAPS[name].tables]  # test_bins has the others
ALL = [(name, raw) for name in GENERAL for raw in (IMAGES, TABLE) if raw.image or not MAPS[name].images]


@cache
def records(raw: InputShape) -> NDArray[np.float64]:
    """Return records as a source does: 8-bit images, one of them blank, or values in [-1, 1] with a row of zeros."""
    if raw.image is None:
        found = np.random.default_rng(3).uniform(-1.0, 1.0, (600, raw.width))
    else:
        found = strokes(raw.image[0])[:600].copy()
    found[5] = 0.0
    return found


@pytest.mark.parametrize(("name", "raw"), ALL)
def test_a_record_is_mapped_the_same_whatever_the_other_records(name: str, raw: InputShape) -> None:
    phi, x = build_map(name, raw), records(raw)
    whole = phi(x)
    assert whole.shape == (len(x), width_of(name, raw))

    @settings(max_examples=10)
    @given(st.lists(st.integers(0, len(x) - 1), min_size=1, max_size=70))
    def law(rows: list[int]) -> None:
        np.testing.assert_array_equal(phi(x[rows]), whole[rows])

    law()
    np.testing.assert_array_equal(phi(x[::-1]), whole[::-1])
    np.testing.assert_array_equal(phi(np.asfortranarray(x)), whole)
    if raw.image is not None:
        np.testing.assert_array_equal(phi(x.astype(np.float32)), whole)


def digests() -> str:
    """Return digests of all features, to compare with another process."""
    return " ".join(hashlib.sha256(build_map(name, raw)(records(raw)).tobytes()).hexdigest()[:16] for name, raw in ALL)


def test_the_number_of_threads_changes_no_bit() -> None:
    code, here = "from tests.data.test_maps import digests; print(digests())", digests()
    for threads in ("1", "2"):
        own = os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        done = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == here


@pytest.mark.parametrize(("name", "raw"), ALL)
def test_records_have_length_1_or_0_and_features_within_1(name: str, raw: InputShape) -> None:
    x = np.concatenate([records(raw), np.ones((1, raw.width)), np.eye(raw.width)[:3], 1e-9 * np.ones((1, raw.width))])
    for intercept in (False, True):
        given = np.column_stack([x, np.ones(len(x))]) if intercept else x
        found = mapped_rows(given, name, raw, intercept)
        assert found.shape[1] == len(mapped_names(name, tuple(map(str, range(raw.width))), raw, intercept))
        assert np.abs(found).max() <= 1.0  # what hardened noise builds on
        lengths = np.linalg.norm(found, axis=1)
        empty = ~build_map(name, raw)(x).any(axis=1)
        share = math.sqrt(0.5) if intercept else 0.0
        np.testing.assert_allclose(lengths, np.where(empty, share, 1.0), atol=1e-12)
        if intercept:
            np.testing.assert_array_equal(found[:, -1], 1.0 / math.sqrt(2.0))
    blank = build_map(name, raw)(np.zeros((1, raw.width)))
    assert np.linalg.norm(blank) == pytest.approx(0.0 if name == "unit" else 1.0)
    assert mapped_rows(x.astype(np.float32), name, raw, False).dtype == np.float32


@pytest.mark.parametrize("side", [14, 28])
def test_no_partial_sum_can_be_rounded(side: int) -> None:
    """The largest sum of absolute values is exact in float32, so the order of addition does not matter."""
    phi = build_map("scattering", InputShape(side * side, (side, side)))
    pixels = build_map("pixels", InputShape(side * side, (side, side)))
    assert isinstance(phi, Scattering) and isinstance(pixels, Pixels)
    sums = [(255, phi.image.weights), (255, pixels.blur)]
    sums += [(255, wavelets.weights) for wavelets in phi.first]
    sums += [(LEVELS, wavelets.weights) for wavelets in phi.second.values()]
    sums += [(LEVELS, blur.weights) for blur in phi.blurs]
    for largest, weights in sums:
        assert (weights == np.rint(weights)).all()
        assert 2**22 < largest * np.abs(weights.astype(np.float64)).sum(axis=0).max() < 2**24
    assert PLACES**2 * (2**24) ** 2 <= 2**53  # lengths of channels, in float64
    assert (phi.whitening == np.rint(phi.whitening)).all() and np.abs(phi.whitening).max() < 2**15
    assert 2 * FINE * np.abs(phi.whitening).sum(axis=0).max() < 2**53  # no channel is longer than 1, nor is its mean


def modulus(
    image: NDArray[np.float64], size: int, angle: float, places: NDArray[np.float64], side: int
) -> NDArray[np.float64]:
    """Return |image * psi| at the places by definition, with loops over places and pixels."""
    step = side / len(image)
    points = (np.arange(len(image)) + 0.5) * step - 0.5
    sigma, xi, slant = 0.8 * 2.0**size, 0.75 * math.pi / 2.0**size, 4.0 / DIRECTIONS

    def hill(r: float, c: float) -> tuple[float, float]:
        along, across = r * math.cos(angle) + c * math.sin(angle), c * math.cos(angle) - r * math.sin(angle)
        return math.exp(-(along**2 + (slant * across) ** 2) / (2.0 * sigma**2)), along

    far = range(-8 * 2**size, 8 * 2**size + 1)
    waves = [(h, h * np.exp(1j * xi * along)) for r in far for c in far for h, along in [hill(r, c)]]
    constant = sum(wave for _, wave in waves) / sum(h for h, _ in waves)
    found = np.zeros((len(places), len(places)))
    for i, row in enumerate(places):
        for j, column in enumerate(places):
            total = 0j
            for a, b in zip(*np.nonzero(image), strict=True):
                h, along = hill(points[a] - row, points[b] - column)
                total += image[a, b] * h * (np.exp(1j * xi * along) - constant)
            found[i, j] = abs(total) * step**2
    return found


def test_scattering_is_what_its_definition_says() -> None:
    """Compare one channel of every kind with a direct computation, without integers or matrices."""
    side, image = 16, strokes(16)[7].reshape(16, 16)
    phi = build_map("scattering", InputShape(side * side, (side, side)))
    assert isinstance(phi, Scattering) and len(phi.first) == 2
    channels = phi.channels(image.reshape(1, -1))[0].reshape(-1, PLACES, PLACES)
    coarse, fine = grid(side, PLACES), np.arange(16.0)
    for direction in (1, 4):
        angle = direction * math.pi / DIRECTIONS
        first = modulus(image, 0, angle, fine, side)
        second = modulus(first, 1, math.pi / 3, grid(side, 8), side)
        kinds = (
            (0, image),
            (1 + direction, first),
            (1 + DIRECTIONS + direction * DIRECTIONS + 2, second),
            (1 + DIRECTIONS + DIRECTIONS**2 + direction, modulus(image, 1, angle, grid(side, 8), side)),
        )
        for number, u in kinds:
            points = (np.arange(len(u)) + 0.5) * side / len(u) - 0.5
            line = np.exp(-((points[:, None] - coarse) ** 2) / (2.0 * 1.6**2))
            blurred = line.T @ u @ line
            expected = blurred / np.linalg.norm(blurred)
            found = channels[number] / np.linalg.norm(channels[number])
            assert np.abs(found - expected).max() < 0.02, (number, direction)
    assert (np.linalg.norm(channels, axis=(1, 2)) < 1.0).all()


@pytest.mark.parametrize("side", [8, 14])
def test_the_features_of_drawn_strokes_have_about_the_same_variance_and_no_correlation(side: int) -> None:
    """Compare the whitening with its definition, in floating point and by another decomposition."""
    phi = build_map("scattering", InputShape(side * side, (side, side)))
    assert isinstance(phi, Scattering)
    deviations, found = phi.deviations(strokes(side)), phi.steps(strokes(side))
    width = found.shape[1]
    assert width == min(WIDTH, deviations.shape[1]) == phi.whitening.shape[1]
    lengths = np.linalg.svd(deviations, compute_uv=False)[:width]
    shares = lengths**2 / (lengths**2).sum()
    expected = (WHOLE * COARSE) ** 2 * lengths**2 / (shares + FLOOR)
    moments = found.T @ found
    assert np.abs(moments - np.diag(expected)).max() < 0.01 * expected.max()
    strong = shares > FLOOR
    np.testing.assert_allclose(np.diag(moments)[strong], expected[strong], rtol=0.01)
    assert np.abs(found).max() < 2**15  # so that steps can be kept in 16 bits


def test_whitening_does_not_depend_on_the_signs_that_a_decomposition_chooses() -> None:
    steps = np.rint(np.random.default_rng(3).normal(0.0, 100.0, (50, 6)))
    found = whitening(steps - np.rint(steps.mean(axis=0)), 4)
    assert found.shape == (6, 4)
    assert (found[np.abs(found).argmax(axis=0), np.arange(4)] > 0.0).all()


def test_pixels_and_fourier_are_what_their_definitions_say() -> None:
    x = records(IMAGES)[:20]
    blurred = x @ gaussian(np.arange(14.0), np.arange(14.0), 0.5)
    phi = build_map("pixels", IMAGES)
    assert isinstance(phi, Pixels)
    u = normalize_rows(blurred)
    expected = u - phi.centre
    np.testing.assert_allclose(phi(x), expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=0.01)
    near = np.random.default_rng(0).uniform(-0.5, 0.5, (30, TABLE.width))
    waves = build_map("fourier", TABLE)(near)
    distance = np.linalg.norm(near[:, None] - near, axis=2)
    kernel = np.exp(-(distance**2) / (2.0 * TABLE.width * 0.5**2))  # what products of random features come near to
    assert np.abs(waves @ waves.T - kernel).max() < 0.15


@pytest.mark.parametrize("side", [4, 5, 8, 20])
def test_images_of_any_size_have_a_map(side: int) -> None:
    raw = InputShape(side * side, (side, side))
    for name in ("scattering", "pixels"):
        found = build_map(name, raw)(strokes(side)[:3])
        assert found.shape == (3, width_of(name, raw))
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)


def test_the_strokes_are_the_same_everywhere() -> None:
    """Models depend on the mean of these images, so they must never change."""
    found = np.rint(255 * strokes(14)).astype(np.uint8)
    assert hashlib.sha256(found.tobytes()).hexdigest()[:16] == "23ff834b18ec8bf7"
    assert 0.05 < strokes(28).mean() < 0.3


def test_image_maps_are_refused_for_other_records() -> None:
    with pytest.raises(
        InputError, match=r"features is scattering.*records are not images: use none, bins, fourier, unit"
    ):
        load(DataOptions("table.csv", schema="s.toml", features="scattering"))
    with pytest.raises(InputError, match="records are images of 14 x 28 pixels"):
        check_map("pixels", (14, 28))
    with pytest.raises(InputError, match="no feature map 'scatter'"):
        load(DataOptions("mnist14", features="scatter"))
    check_map(NONE, None)


def test_a_data_set_after_its_map() -> None:
    options = DataOptions("mnist14", agents=3, features="unit", intercept=True, precision="float32")
    plain, found = load_unmapped(options), load(options)
    assert found.features_by == "unit" and found.features[0] == "unit_pixel_0_0" and found.features[-1] == "intercept"
    assert [len(shard.x) for shard in found.train] == [20000] * 3
    x, y = plain.train[2].x[77:78].astype(np.float64), plain.train[2].y[77]
    expected = math.sqrt(0.5) * x[0, :-1] / np.linalg.norm(x[0, :-1])
    np.testing.assert_allclose(found.train[2].x[77, :-1], expected, atol=1e-3)
    np.testing.assert_array_equal(found.train[2].y[77], y)
    assert found.test is not None and found.test.x.shape == (10000, 197)
    assert describe(found)["features"] == 197


@pytest.mark.parametrize("inputs", [10, 1000, 32_896, 60_000, 65_000, 200_000])
def test_sums_stay_exact_however_many_weights_are_rounded(inputs: int) -> None:
    """The worst case are weights slightly above 1/2, which all round up: the sum nearly doubles."""
    weights = whole_weights(np.full((inputs, 1), 0.3), 255)[0].astype(np.float64)
    assert 255 * np.abs(weights).sum() <= 2**24
