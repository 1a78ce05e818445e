from __future__ import annotations

import hashlib
import importlib.util
import lzma
import time
from importlib import resources
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from taciturn.data import DataOptions, describe, load
from taciturn.data.datasets import mnist14
from taciturn.errors import CorruptFile
from taciturn.types import Dataset

from .helpers import real_data, stack_x

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_mnist14.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_mnist14", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load(DataOptions())


def test_shapes(digits: Dataset) -> None:
    assert digits.name == "mnist14"
    assert [shard.x.shape for shard in digits.train] == [(6000, 196)] * 10
    assert [shard.y.shape for shard in digits.train] == [(6000, 10)] * 10
    assert digits.test is not None and digits.test.x.shape == (10000, 196)
    assert digits.features[0] == "pixel_0_0" and digits.features[-1] == "pixel_13_13"


def test_label_counts_are_those_of_mnist(digits: Dataset) -> None:
    facts = describe(digits)
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    test = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert facts["classes"] == {str(k): n for k, n in enumerate(train)}
    assert facts["test_classes"] == {str(k): n for k, n in enumerate(test)}
    assert digits.train[0].y[:10].argmax(axis=1).tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]


def test_features_take_sixteen_levels(digits: Dataset) -> None:
    assert digits.test is not None
    levels = np.unique(np.concatenate([stack_x(digits.train), digits.test.x]))
    assert levels.tolist() == [q / 15 for q in range(16)]
    assert describe(digits)["nonzero_share"] == pytest.approx(0.237307, abs=1e-6)


def test_the_file_is_the_one_the_checksum_names() -> None:
    packed = resources.files("taciturn.data").joinpath("mnist14.bin.xz").read_bytes()
    assert hashlib.sha256(packed).hexdigest() == mnist14.SHA256
    assert len(packed) < 3_000_000


def test_a_damaged_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mnist14, "SHA256", "0" * 64)
    with pytest.raises(CorruptFile, match=r"^the bundled data set mnist14 is damaged"):
        load(DataOptions())


def test_a_missing_file_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    with pytest.raises(CorruptFile, match=r"^the bundled data set mnist14 cannot be read"):
        load(DataOptions())


def test_loading_is_fast() -> None:
    start = time.process_time()
    load(DataOptions())
    assert time.process_time() - start < 1.5


@settings(deadline=None, max_examples=30)
@given(hnp.arrays(np.uint8, (2, 28, 28)))
def test_shrinking_rounds_the_mean_of_four_pixels_half_up(script: ModuleType, images: NDArray[np.uint8]) -> None:
    levels = script.shrink(images)
    for n, r, c in np.ndindex(2, 14, 14):
        total = int(images[n, 2 * r : 2 * r + 2, 2 * c : 2 * c + 2].sum(dtype=int))
        whole, rest = divmod(total * 15, 1020)  # mean * 15 / 255
        assert levels[n, r, c] == whole + (rest >= 510)


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_unpacking_undoes_packing(script: ModuleType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 16, (4, 14, 14), dtype=np.uint8)
    images = np.repeat(np.repeat(small * 17, 2, axis=1), 2, axis=2)
    labels = rng.integers(0, 10, 4, dtype=np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mnist14, "TRAIN", 3)
        patch.setattr(mnist14, "TEST", 1)
        back = mnist14.unpack(script.pack(images, labels))
    np.testing.assert_array_equal(back.images, small)
    np.testing.assert_array_equal(back.labels, labels)


@pytest.mark.real_data
def test_the_script_makes_the_embedded_file(script: ModuleType) -> None:
    """Compare before compression, which takes long and depends on the version of liblzma."""
    packed = resources.files("taciturn.data").joinpath("mnist14.bin.xz").read_bytes()
    assert script.make(real_data("mnist")) == lzma.decompress(packed)


def test_the_script_takes_only_the_canonical_files(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"other")
    with pytest.raises(SystemExit, match=r"has no train-images-idx3-ubyte .* with the canonical MD5"):
        script.main([str(tmp_path), str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
