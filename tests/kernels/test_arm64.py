"""The kernels on ARM processors, in an emulator that scripts/arm64.sh installs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from taciturn.algorithms.noisy_gradient import BELOW, on_grid
from taciturn.kernels.library import FOLDER
from taciturn.kernels.row_pass import LOSSES as NUMBERED
from taciturn.objectives import LOSSES
from taciturn.objectives.clipping import GradientClipping
from taciturn.types import GRID, Array, Shard
from tests.kernels.test_exact import BITS, J, edges, tipping

COMPILER, EMULATOR = (shutil.which(name) for name in ("aarch64-linux-gnu-gcc", "qemu-aarch64-static"))

pytestmark = pytest.mark.skipif(
    not (COMPILER and EMULATOR), reason="no arm64 compiler and emulator here: scripts/arm64.sh installs them"
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("arm64") / "one_pass"
    sources = [Path(__file__).with_name("one_pass.c"), FOLDER / "rows.c", FOLDER / "pack.c"]
    options = ["-O3", "-fno-math-errno", "-fno-strict-aliasing", "-static", f"-I{FOLDER}"]
    subprocess.run([str(COMPILER), *options, *map(str, sources), "-lm", "-o", str(made)], check=True)
    return made


def whole_sum(program: Path, shard: Shard, loss: str, z: Array, l2: Array, sparse: bool) -> Array:
    """What HardenedRelease.sum asks of the compiled pass."""
    (whole, step), own = on_grid(z), shard.on_grid
    sizes = [*own.x.shape, z.shape[1], z.shape[2], NUMBERED.index(loss), sparse]
    parts = [own.x, own.y, own.norm1, own.norm2, GRID * l2, step / GRID, whole]
    path = program.with_name("given")
    path.write_bytes(
        np.array(sizes, np.int64).tobytes()
        + np.array([2.0**BITS * BELOW, *np.concatenate([np.ravel(part) for part in parts])]).tobytes()
    )
    done = subprocess.run([str(EMULATOR), str(program), str(path)], check=True, capture_output=True)
    return np.frombuffer(done.stdout).reshape(z.shape)


@pytest.mark.parametrize("classes", [3, 20])
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_a_record_adds_its_own_term_and_changes_no_other(program: Path, loss: str, classes: int) -> None:
    """At the edge of a cut, dense and sparse, with columns beyond 16: exactly, and numpy's numbers up to that edge."""
    base, one = tipping(loss, classes, 40)
    both = Shard(np.concatenate([base.x, one.x]), np.concatenate([base.y, one.y]))
    for seed, size in enumerate((0.0, 0.3)):
        z = np.random.default_rng(seed).normal(size=(J, 1, classes)) * size
        l2 = edges(loss, z, base)
        z = np.repeat(z, len(l2), axis=1)
        dense, sparse = (whole_sum(program, base, loss, z, l2, sparse) for sparse in (False, True))
        np.testing.assert_array_equal(dense, sparse)
        after, alone = (whole_sum(program, each, loss, z, l2, False) for each in (both, one))
        np.testing.assert_array_equal(after - sparse, alone)
        assert (dense == np.rint(dense)).all()
        clip = GradientClipping(GRID * l2, np.full(len(l2), np.inf))
        whole, step = on_grid(z)
        own = base.on_grid
        scored = (own.x @ whole.reshape(J, -1)).reshape(len(own.x), *z.shape[1:]) * (step / GRID)[:, None]
        exact = clip.residual(LOSSES[loss]().residual(scored, own.y), own) * 2.0**BITS * BELOW
        expected = (own.x.T @ exact.reshape(len(own.x), -1)).reshape(z.shape)
        np.testing.assert_allclose(dense, expected, atol=1.001 * 40 * GRID)
