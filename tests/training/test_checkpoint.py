"""A simulation stopped anywhere and taken up again ends in the same bytes."""

from __future__ import annotations

import numpy as np
import pytest

from taciturn.algorithms import ALGORITHMS
from taciturn.errors import InputError
from taciturn.privacy.noise import SeededNoise
from taciturn.training.checkpoint import from_arrays, to_arrays
from taciturn.training.simulate import simulate, start
from tests.random_problems import build, problem, run, shards

PARTS = shards(5)
SEEDS = (1, 2)
EPSILON = [0.5, np.inf]


@pytest.mark.parametrize("server", ["full", "sums"])
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if ALGORITHMS[name].batched])  # test_additive has it
def test_state_survives_the_trip(name: str, server: str) -> None:
    algorithm = build(name, problem(PARTS), EPSILON)
    halfway = run(algorithm, PARTS, SEEDS, 6, server)
    arrays = {key: np.array(value) for key, value in to_arrays(halfway.state).items()}
    state = from_arrays(arrays, start(PARTS, 2, server))
    *_, last = simulate(algorithm, PARTS, lambda p, t: SeededNoise(SEEDS, p, t), 12, state)
    straight = run(algorithm, PARTS, SEEDS, 12, server)
    assert last.t == straight.t == 12
    assert last.w.tobytes() == straight.w.tobytes()
    for a, b in zip(to_arrays(last.state).values(), to_arrays(straight.state).values(), strict=True):
        assert np.array(a).tobytes() == np.array(b).tobytes()


def test_a_checkpoint_of_another_run_is_refused() -> None:
    arrays = to_arrays(run(build("objp", problem(PARTS), EPSILON), PARTS, SEEDS, 1).state)
    with pytest.raises(InputError, match="shapes differ"):
        from_arrays(arrays, start(PARTS, 3))
    with pytest.raises(InputError, match="shapes differ"):
        from_arrays(arrays, start(PARTS[:2], 2))
    del arrays["mean_w_plain"]
    with pytest.raises(InputError, match="lacks the array 'mean_w_plain'"):
        from_arrays(arrays, start(PARTS, 2))
