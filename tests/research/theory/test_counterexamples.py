"""The printed theorems and their proofs fail, and the repaired ones do not."""

from __future__ import annotations

import numpy as np
import pytest

from taciturn.privacy.noise import SeededNoise
from taciturn.research.theory.counterexamples import dual_norms, stated_bound_violation, two_means
from taciturn.research.theory.theorems import NONSMOOTH, SMOOTH, STRONG, Theorem


@pytest.mark.parametrize(
    ("theorem", "left", "stated", "corrected"),
    [(SMOOTH, 10.0, 4.0, 80.0), (NONSMOOTH, 10.0, 7.2, 49.0), (STRONG, 20.98, 15.37, 511.1)],
)
def test_each_printed_bound_is_broken_by_agents_that_all_agree(
    theorem: Theorem, left: float, stated: float, corrected: float
) -> None:
    found = stated_bound_violation(theorem)
    assert found == pytest.approx((left, stated, corrected), rel=1e-3)
    assert found.left > found.stated and found.left < found.corrected


def test_for_several_updates_the_proof_averages_something_else_than_the_statement() -> None:
    assert two_means(1).difference < 1e-12
    for updates in (2, 5):
        found = two_means(updates)
        assert found.difference > 0.01
        assert found.repaired < 1e-12  # going from z^{t+1} to the mean of z^{t,e} telescopes


def test_noise_can_make_the_dual_as_long_as_one_likes() -> None:
    lengths = dual_norms(100)
    assert lengths[99] == pytest.approx(10.0 * lengths[9], rel=1e-6)
    assert lengths[99] > 50.0 * lengths[0]


def test_the_noise_of_an_update_has_epsilon_squared_below_it_as_the_statement_says() -> None:
    """Theorem 2 has 2 J K U_3^2 / epsilon^2, the last line of its proof only epsilon: at 0.1 that is ten times less."""
    epsilon, sensitivity, like = 0.1, 0.3, np.zeros((400, 1, 50))
    xi = SeededNoise((1,), 0, 1).continuous(0, "laplace", np.array([sensitivity / epsilon]), like)
    energy = float((xi**2).sum())
    assert energy == pytest.approx(2 * like.size * (sensitivity / epsilon) ** 2, rel=0.1)
    assert energy > 5.0 * 2 * like.size * sensitivity**2 / epsilon


def test_a_function_that_is_flat_on_w_may_have_a_steep_subgradient_at_its_edge() -> None:
    """f(u) = max(0, u) on W = [-1, 0] is 0-Lipschitz over W, and 1 is a subgradient at 0: U_1 is 1, not H = 0."""
    inside, everywhere = np.linspace(-1.0, 0.0, 101), np.linspace(-3.0, 3.0, 601)

    assert np.ptp(np.maximum(0.0, inside)) == 0.0
    assert (np.maximum(0.0, everywhere) >= 1.0 * everywhere).all()
