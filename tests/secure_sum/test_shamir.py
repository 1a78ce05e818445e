"""Shamir's secret sharing: any tau shares give the secret, fewer say nothing, and others read our shares."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taciturn.errors import InputError
from taciturn.secure_sum.shamir import PRIME, evaluate, join, lagrange_weights, read_elements, split


@pytest.mark.parametrize(
    ("prime", "threshold", "points"), [(7, 2, (1, 2, 3, 6)), (7, 3, (1, 3, 4, 5)), (11, 3, (2, 5, 10))]
)
def test_exhaustively_over_small_fields(prime: int, threshold: int, points: tuple[int, ...]) -> None:
    seen: dict[tuple[int, ...], dict[int, Counter[tuple[int, ...]]]] = {}
    for secret in range(prime):
        for rest in product(range(prime), repeat=threshold - 1):
            shares = dict(zip(points, evaluate([secret, *rest], points, prime), strict=True))
            for chosen in permutations(points, threshold):
                assert join(lagrange_weights(chosen, prime), [shares[x] for x in chosen], prime) == secret
            for fewer in combinations(points, threshold - 1):
                counts = seen.setdefault(fewer, {}).setdefault(secret, Counter())
                counts[tuple(shares[x] for x in fewer)] += 1
    for by_secret in seen.values():  # each value of tau - 1 shares is equally frequent, whatever the secret
        assert all(counts == by_secret[0] for counts in by_secret.values())
        assert set(by_secret[0].values()) == {1} and len(by_secret[0]) == prime ** (threshold - 1)


@given(st.integers(0, PRIME - 1), st.sets(st.integers(1, 1000), min_size=1, max_size=30), st.randoms())
def test_any_tau_shares_in_any_order_give_the_secret(secret: int, found: set[int], rng: object) -> None:
    points = sorted(found)
    threshold = rng.randint(1, len(points))  # type: ignore[attr-defined]
    shares = dict(zip(points, split(secret, threshold, points), strict=True))
    chosen = rng.sample(points, threshold)  # type: ignore[attr-defined]
    assert join(lagrange_weights(chosen), [shares[x] for x in chosen]) == secret
    if threshold > 1:
        fewer = chosen[:-1]
        assert join(lagrange_weights(fewer), [shares[x] for x in fewer]) != secret  # but for one case in 2^255


def test_a_known_polynomial() -> None:
    # 42 + 7 x + (2^255 - 20) x^2 = 42 + 7 x - x^2, and shares that the package shamirs 4.0.0 made of 123456789
    assert evaluate([42, 7, PRIME - 1], [1, 2, 10, 200]) == [48, 52, 12, PRIME - 38558]
    assert join(lagrange_weights(sorted(THEIRS)), [THEIRS[x] for x in sorted(THEIRS)]) == 123456789


def test_another_implementation_reads_our_shares_and_we_read_its() -> None:
    shamirs = pytest.importorskip("shamirs", reason="the extra test installs shamirs")
    shares = split(31415926535, 5, range(1, 10))
    theirs = [shamirs.share(x, value, PRIME) for x, value in zip(range(1, 10), shares, strict=True)]
    assert int(shamirs.interpolate(theirs[2:8], threshold=5)) == 31415926535
    made = shamirs.shares(27182818284, quantity=9, modulus=PRIME, threshold=5)
    points = [int(one[0]) for one in made][1:6]
    assert join(lagrange_weights(points), [int(one[1]) for one in made][1:6]) == 27182818284


@pytest.mark.parametrize("points", [[], [0, 1], [1, 1], [1, PRIME + 1], [-1, 2], [1, True]])
def test_points_that_repeat_or_are_not_in_the_field_are_refused(points: list[int]) -> None:
    with pytest.raises(InputError, match="distinct whole numbers"):
        lagrange_weights(points)


def test_numbers_that_are_not_field_elements_are_refused_and_not_shown() -> None:
    for wrong in (PRIME, PRIME + 5, 2**256 - 1):
        with pytest.raises(InputError, match="not a field element") as error:
            read_elements(wrong.to_bytes(32, "big"))
        assert str(wrong) not in str(error.value) and f"{wrong:x}" not in str(error.value)
    with pytest.raises(InputError, match="33 bytes are not field elements"):
        read_elements(bytes(33))
    for secret, threshold in ((PRIME, 2), (-1, 2), (1, 4), (1, 0)):
        with pytest.raises(InputError, match="cannot be split among 3 sites"):
            split(secret, threshold, [1, 2, 3])


THEIRS = {
    2: 26734293545270504196264937831026214411501228029893813385497843727833599357523,
    4: 27224909942021993962509957997829370152190154414051023720468109305917394244216,
    6: 1471849190254469298735060500409467222066779152471631004910796734251508116868,
}
