from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from taciturn.data import SOURCES, DataOptions, load
from taciturn.data.mnist_files import MD5, TEST_IMAGES, TEST_LABELS, TRAIN_IMAGES, TRAIN_LABELS
from taciturn.errors import InputError

from .helpers import idx_bytes, real_data, stack_x


def put_mnist(folder: Path, train: int = 20, test: int = 5, zipped: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for images, labels, n in ((TRAIN_IMAGES, TRAIN_LABELS, train), (TEST_IMAGES, TEST_LABELS, test)):
        contents = {
            images: idx_bytes(rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)),
            labels: idx_bytes(rng.integers(0, 10, n, dtype=np.uint8)),
        }
        for name, content in contents.items():
            if zipped:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / name).write_bytes(content)


@pytest.mark.parametrize("below", ["", "mnist"])
@pytest.mark.parametrize("zipped", [False, True])
def test_it_is_found_in_either_place_zipped_or_not(tmp_path: Path, below: str, zipped: bool) -> None:
    put_mnist(tmp_path / below, zipped=zipped)
    dataset = load(DataOptions(data="mnist", data_dir=str(tmp_path), agents=4, partition="shuffled"))
    assert [shard.x.shape for shard in dataset.train] == [(5, 784)] * 4
    assert dataset.test is not None and dataset.test.x.shape == (5, 784)
    assert dataset.features[29] == "pixel_1_1"


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_mnist(tmp_path / "mnist")
    monkeypatch.setenv("TACITURN_DATA", str(tmp_path))
    assert load(DataOptions(data="mnist", agents=2)).records == 20


def test_missing_files_are_named(tmp_path: Path) -> None:
    options = DataOptions(data="mnist", data_dir=str(tmp_path))
    with pytest.raises(InputError) as caught:
        load(options)
    assert str(caught.value) == (
        f"MNIST is not complete: put {', '.join(MD5)} (uncompressed or as .gz) into {tmp_path / 'mnist'},"
        " or run `taciturn data fetch mnist`"
    )
    put_mnist(tmp_path)
    (tmp_path / TEST_LABELS).unlink()
    with pytest.raises(
        InputError, match=rf"^MNIST is not complete: put {TEST_LABELS} \(uncompressed .* into {tmp_path}, or"
    ):
        load(options)


def test_counts_must_agree(tmp_path: Path) -> None:
    put_mnist(tmp_path)
    (tmp_path / TRAIN_LABELS).write_bytes(idx_bytes(np.zeros(19, dtype=np.uint8)))
    with pytest.raises(InputError, match=r"holds 20 images, but .* holds 19 labels"):
        load(DataOptions(data="mnist", data_dir=str(tmp_path)))


def test_labels_must_be_digits(tmp_path: Path) -> None:
    put_mnist(tmp_path)
    (tmp_path / TEST_LABELS).write_bytes(idx_bytes(np.full(5, 10, dtype=np.uint8)))
    with pytest.raises(InputError, match=r"^the label of test record 1 is 10: it must be within 0\.\.9$"):
        load(DataOptions(data="mnist", data_dir=str(tmp_path), agents=2))


def test_what_it_says_about_itself() -> None:
    source = SOURCES["mnist"]
    assert source.fetch is not None
    assert "agents" in source.takes
    assert source.paper["rounds"] == 300 and source.paper["rho"] == "dynamic"
    assert "LeCun" in source.attribution


@pytest.mark.real_data
def test_the_real_files() -> None:
    real_data("mnist", "train-images-idx3-ubyte.gz")
    dataset = load(DataOptions(data="mnist", precision="float32"))
    x = stack_x(dataset.train)
    assert x.shape == (60000, 784) and x.dtype == np.float32
    assert float(x.mean(dtype=np.float64)) == pytest.approx(0.13066, abs=1e-5)  # the mean everybody normalises with
    assert [len(shard.x) for shard in dataset.train] == [6000] * 10
