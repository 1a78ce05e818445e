from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn.data import DataOptions, describe, load
from taciturn.data.datasets.femnist import sample_writers
from taciturn.errors import InputError
from taciturn.types import Dataset

from .helpers import real_data, write


def images(n: int, tag: float = 1.0) -> list[list[float]]:
    """Return blank images that differ in their first pixel."""
    return [[round(tag - i / 1000, 3)] + [1.0] * 783 for i in range(n)]


def shard(path: Path, users: dict[str, Any]) -> Path:
    content = {"users": list(users), "num_samples": [len(u["y"]) for u in users.values()], "user_data": users}
    return write(path, json.dumps(content))


def writer(n: int, label: int = 0, tag: float = 1.0) -> dict[str, Any]:
    return {"x": images(n, tag), "y": [label] * n}


def read(folder: Path, **changes: Any) -> Dataset:
    return load(DataOptions(data="femnist", data_dir=str(folder), **changes))


@pytest.mark.parametrize("below", ["", "femnist"])
def test_train_and_test_shards(tmp_path: Path, below: str) -> None:
    root = tmp_path / below
    shard(root / "train" / "b.json", {"f02": writer(2, 61, 0.5), "f01": writer(3, 10)})
    shard(root / "train" / "a.json", {"f03": writer(1), "f01": writer(1, 11)})
    shard(root / "test" / "a.json", {"f09": writer(2, 5), "f01": writer(1)})
    dataset = read(tmp_path)
    assert dataset.agents == ("f01", "f02", "f03")
    assert [len(s.x) for s in dataset.train] == [4, 2, 1]
    assert dataset.train[1].x[:, 0].tolist() == [0.5, 1 - 0.499]  # inverted: 0 is the background
    assert (dataset.train[1].x[:, 1:] == 0).all()
    assert dataset.train[1].y.argmax(axis=1).tolist() == [61, 61]
    assert dataset.train[0].y.argmax(axis=1).tolist() == [11, 10, 10, 10]
    assert dataset.test is not None and dataset.test.y.argmax(axis=1).tolist() == [0, 5, 5]
    assert len(dataset.features) == 784 and dataset.target.width == 62


def test_the_classes_are_digits_and_letters(tmp_path: Path) -> None:
    shard(tmp_path / "train" / "a.json", {"f": writer(1, 36)})
    dataset = read(tmp_path)
    classes = describe(dataset)["classes"]
    assert isinstance(classes, dict) and classes["a"] == 1
    assert "".join(classes) == "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert dataset.test is None


@pytest.mark.parametrize("seed", range(6))
def test_sampling_takes_whole_writers_and_cuts_the_last(tmp_path: Path, seed: int) -> None:
    sizes = {f"w{i:02}": 5 + i for i in range(10)}  # 95 records
    file = shard(tmp_path / "all_data" / "a.json", {user: writer(n) for user, n in sizes.items()})
    sample = sample_writers([file], 0.5, 0.9, seed)
    found = {user: len(sample.train[user].y) + len(sample.test[user].y) for user in sample.train}
    assert sum(found.values()) + sample.dropped == 47
    assert all(found[user] == sizes[user] for user in list(found)[:-1])
    for user, n in found.items():
        assert len(sample.train[user].y) == max(1, int(0.9 * n))
        pixels = sorted([*sample.train[user].x[:, 0], *sample.test[user].x[:, 0]], reverse=True)
        assert pixels == [image[0] for image in images(n)]  # the first n records, each once


def test_sampling_is_fixed_by_its_seed(tmp_path: Path) -> None:
    names = {s: [f"{s}{i}" for i in range(8)] for s in "ab"}
    files = [shard(tmp_path / f"{s}.json", {user: writer(6, tag=0.9) for user in names[s]}) for s in "ab"]
    one, again, other = (sample_writers(files, 0.5, 0.5, seed) for seed in (0, 0, 1))
    assert list(one.train) == list(again.train) != list(other.train)
    for user in one.train:
        np.testing.assert_array_equal(one.train[user].x, again.train[user].x)
    rng, split_rng = random.Random(0), random.Random(0)  # half of each shard, one generator for all of them
    for s in "ab":
        rng.shuffle(names[s])
    expected = names["a"][:4] + names["b"][:4]
    assert list(one.train) == expected
    for user in expected:
        kept = sorted(split_rng.sample(range(6), 3))
        assert one.train[user].x[:, 0].tolist() == [images(6, 0.9)[i][0] for i in kept]


def test_few_records_are_dropped_or_halved(tmp_path: Path) -> None:
    shard(tmp_path / "all_data" / "a.json", {"one": writer(1), "two": writer(2), "three": writer(3)})
    dataset = read(tmp_path, sample_fraction=1.0)
    assert dataset.agents == ("three", "two")
    assert [len(s.x) for s in dataset.train] == [2, 1]
    assert dataset.test is not None and len(dataset.test.x) == 2
    assert dataset.notes == ("1 writers with fewer than 2 records were dropped",)


def test_a_fraction_that_leaves_nothing(tmp_path: Path) -> None:
    shard(tmp_path / "all_data" / "a.json", {"w": writer(10)})
    with pytest.raises(InputError, match=r"^sample_fraction is 0\.05, which leaves no writer with two records"):
        read(tmp_path)


def test_the_packed_file_goes_first_then_the_sampled_shards(tmp_path: Path) -> None:
    shard(tmp_path / "all_data" / "a.json", {"unsampled": writer(4)})
    assert read(tmp_path, sample_fraction=1.0).agents == ("unsampled",)
    shard(tmp_path / "train" / "a.json", {"sampled": writer(4)})
    assert read(tmp_path).agents == ("sampled",)
    save_packed(tmp_path)
    assert read(tmp_path).agents == ("a", "b")


def save_packed(folder: Path, **changes: Any) -> Path:
    arrays: dict[str, Any] = {"writers": np.array(["b", "a"])}
    for part in ("train", "test"):
        arrays[f"{part}_images"] = np.full((3, 784), 51, dtype=np.uint8)
        arrays[f"{part}_labels"] = np.array([0, 1, 61], dtype=np.uint8)
        arrays[f"{part}_writer"] = np.array([0, 1, 0], dtype=np.uint16)
    arrays = {name: value for name, value in (arrays | changes).items() if value is not None}
    np.savez(folder / "femnist_195_writers.npz", **arrays)
    return folder / "femnist_195_writers.npz"


def test_the_packed_file(tmp_path: Path) -> None:
    save_packed(tmp_path)
    dataset = read(tmp_path)
    assert [s.y.argmax(axis=1).tolist() for s in dataset.train] == [[1], [0, 61]]
    assert (dataset.train[0].x == 0.2).all()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"test_writer": None}, "npz cannot be read: "),
        ({"train_images": np.zeros((3, 700), dtype=np.uint8)}, r"train_images is uint8 of shape \(3, 700\): it must"),
        ({"train_images": np.zeros((3, 784))}, "train_images is float64 of shape"),
        ({"test_writer": np.array([0, 1, 2])}, r"test_writer must hold whole numbers within 0\.\.1$"),
        ({"train_labels": np.array([0, 1, 62])}, r"^the label of training record 3 is 62: it must be within 0\.\.61$"),
        ({"train_writer": np.array([0, 0, 0])}, "^agent 'a' has no training records"),
    ],
)
def test_a_wrong_packed_file(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    save_packed(tmp_path, **changes)
    with pytest.raises(InputError, match=sentence):
        read(tmp_path)


def test_a_damaged_packed_file(tmp_path: Path) -> None:
    path = save_packed(tmp_path)
    for content in (b"", b"PK\x03\x04 no", path.read_bytes()[:500]):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"npz cannot be read: "):
            read(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^there is no FEMNIST: put LEAF's json files into .*femnist/train and .*test,"
    ):
        read(tmp_path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "a.json is not a LEAF shard: Expecting"),
        ("\xff", "a.json is not a LEAF shard: "),
        ("[]", "a.json is not a LEAF shard: it needs a list 'users' and an object 'user_data'"),
        (
            '{"users": ["f"], "user_data": {}}',
            "a.json: writer 'f' needs lists 'x' and 'y' of equal length in user_data",
        ),
        ('{"users": ["f"], "user_data": {"f": {"x": [], "y": [1]}}}', "a.json: writer 'f' needs lists"),
        ('{"users": [1], "user_data": {}}', "a.json: writer '1' needs lists"),
    ],
)
def test_a_malformed_shard(tmp_path: Path, content: str, sentence: str) -> None:
    write(tmp_path / "train" / "a.json", content)
    with pytest.raises(InputError, match=sentence):
        read(tmp_path)


@pytest.mark.parametrize(
    ("row", "label", "sentence"),
    [
        ([1.0] * 783, 0, "has an image that is not 784 numbers"),
        (1.0, 0, "has an image that is not 784 numbers"),
        (["x"] + [1.0] * 783, 0, "has a pixel that is not a number"),
        ([[1.0]] + [1.0] * 783, 0, "has a pixel that is not a number"),
        ([1.5] + [1.0] * 783, 0, r"has a pixel of 1\.5: pixels must be within 0\.\.1"),
        ([float("nan")] + [1.0] * 783, 0, "has a pixel of nan: "),
        ([1.0] * 784, 62, r"has the label 62: labels must be within 0\.\.61"),
        ([1.0] * 784, -1, "has the label -1: "),
        ([1.0] * 784, 1.0, r"has the label 1\.0: "),
        ([1.0] * 784, True, "has the label True: "),
    ],
)
@pytest.mark.parametrize("kind", ["train", "all_data"])
def test_a_wrong_record_is_named_with_its_writer(
    tmp_path: Path, kind: str, row: object, label: object, sentence: str
) -> None:
    shard(tmp_path / kind / "a.json", {"f07": {"x": [row], "y": [label]}})
    with pytest.raises(InputError, match=rf"a\.json: writer 'f07' {sentence}"):
        read(tmp_path, sample_fraction=1.0)


@pytest.mark.real_data
def test_the_real_packed_file() -> None:
    real_data("femnist", "femnist_195_writers.npz")
    dataset = load(DataOptions(data="femnist"))
    assert len(dataset.agents) == 195 and list(dataset.agents) == sorted(dataset.agents)
    assert dataset.records == 26804
    assert dataset.test is not None and len(dataset.test.x) == 3067
    assert min(len(s.x) for s in dataset.train) >= 1
    assert float(np.concatenate([s.x for s in dataset.train]).mean()) == pytest.approx(0.0365, abs=0.003)  # 0 is paper
