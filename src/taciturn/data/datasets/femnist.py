"""FEMNIST: handwritten characters, one agent per writer, read from LEAF files."""

from __future__ import annotations

import hashlib
import json
import random
import string
import zipfile
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.data.assemble import RawRecords, assemble
from taciturn.data.dataset_source import SOURCES, DataOptions, Source, data_folder, pixel_names
from taciturn.data.partition import Agents
from taciturn.errors import InputError, TaciturnError
from taciturn.types import Classes, Dataset

PIXELS = 28 * 28
CLASSES = 62


class Writer(NamedTuple):
    """One writer's records, as LEAF stores them."""

    x: NDArray[np.float64]  # [n, 784] in [0, 1], 1 = background
    y: NDArray[np.int64]  # [n]


class Sample(NamedTuple):
    """What sampling leaves: writers with training and test records, and how many had too few for both."""

    train: dict[str, Writer]
    test: dict[str, Writer]
    dropped: int


def read_writers(files: Iterable[Path]) -> dict[str, Writer]:
    """All writers of some shards; a writer's records in several shards are joined."""
    writers: dict[str, Writer] = {}
    for file in files:
        for user, data in read_shard(file).items():
            new = parse_writer(file, user, data)
            old = writers.get(user)
            writers[user] = (
                new if old is None else Writer(np.concatenate([old.x, new.x]), np.concatenate([old.y, new.y]))
            )
    return writers


def read_shard(file: Path) -> dict[str, dict[str, Any]]:
    """The raw data of each user, in the order of the shard's `users`."""
    try:
        shard = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:  # ValueError: bad json, or bytes that are not text
        raise InputError(f"{file} is not a LEAF shard: {error}") from None
    if not (
        isinstance(shard, dict) and isinstance(shard.get("users"), list) and isinstance(shard.get("user_data"), dict)
    ):
        raise InputError(f"{file} is not a LEAF shard: it needs a list 'users' and a table 'user_data'")
    users: dict[str, dict[str, Any]] = {}
    for user in shard["users"]:
        data = shard["user_data"].get(user) if isinstance(user, str) else None
        x, y = (data.get("x"), data.get("y")) if isinstance(data, dict) else (None, None)
        if not (isinstance(x, list) and isinstance(y, list) and len(x) == len(y)):
            raise InputError(f"{file}: writer '{user}' needs lists 'x' and 'y' of one length in user_data")
        users[user] = {"x": x, "y": y}
    return users


def parse_writer(file: Path, user: str, data: dict[str, Any]) -> Writer:
    """Arrays of one writer's lists, checked."""
    n = len(data["y"])
    if any(not isinstance(row, list) or len(row) != PIXELS for row in data["x"]):
        raise InputError(f"{file}: writer '{user}' has an image that is not {PIXELS} numbers")
    try:
        x = np.array(data["x"], dtype=np.float64).reshape(n, PIXELS)
    except (TypeError, ValueError):
        raise InputError(f"{file}: writer '{user}' has a pixel that is not a number") from None
    if not ((x >= 0) & (x <= 1)).all():
        bad = x[~((x >= 0) & (x <= 1))][0]
        raise InputError(f"{file}: writer '{user}' has a pixel of {bad:g}: pixels must be within 0..1")
    for label in data["y"]:
        if type(label) is not int or not 0 <= label < CLASSES:
            raise InputError(f"{file}: writer '{user}' has the label {label!r}: labels must be within 0..{CLASSES - 1}")
    return Writer(x, np.array(data["y"], dtype=np.int64))


def sample_writers(files: Iterable[Path], fraction: float, train_share: float, seed: int) -> Sample:
    """LEAF's `preprocess.sh -s niid --sf fraction -k 0 -t sample --tf train_share` on its all_data shards."""
    rng, split_rng = random.Random(seed), random.Random(seed)
    train: dict[str, Writer] = {}
    test: dict[str, Writer] = {}
    dropped = 0
    for file in files:
        for user, writer in _sample_shard(file, fraction, rng):
            if len(writer.y) < 2:
                dropped += 1
                continue
            train[user], test[user] = _split_writer(writer, train_share, split_rng)
    return Sample(train, test, dropped)


def _sample_shard(file: Path, fraction: float, rng: random.Random) -> list[tuple[str, Writer]]:
    """Whole writers in random order until a fraction of the shard's records is reached; the last is cut to fit."""
    shard = read_shard(file)
    left = int(fraction * sum(len(data["y"]) for data in shard.values()))
    users = list(shard)
    rng.shuffle(users)
    sampled = []
    for user in users:
        if left <= 0:
            break
        writer = parse_writer(file, user, shard[user])
        if len(writer.y) > left:
            first = rng.sample(range(left), left)  # LEAF permutes the first records, which the split below sees
            writer = Writer(writer.x[first], writer.y[first])
        left -= len(writer.y)
        sampled.append((user, writer))
    return sampled


def _split_writer(writer: Writer, train_share: float, rng: random.Random) -> tuple[Writer, Writer]:
    """At least one record on each side, drawn without replacement."""
    n = len(writer.y)
    train = sorted(rng.sample(range(n), max(1, int(train_share * n))))
    test = sorted(set(range(n)) - set(train))
    return Writer(writer.x[train], writer.y[train]), Writer(writer.x[test], writer.y[test])


CHARACTERS = Classes(tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase))
FEATURES = pixel_names((28, 28))
PACKED = "femnist_195_writers.npz"
PACKED_SHA256 = "f33417f06a66c071f42b0433bd1ea7f0822a99a7ef53ca09a6e472f61da89c0b"
ARRAYS = ("writers", *(f"{part}_{what}" for part in ("train", "test") for what in ("images", "labels", "writer")))


def load(options: DataOptions) -> Dataset:
    """The packed file if there is one, else LEAF's train and test shards, else a sample of LEAF's all_data."""
    place = find(data_folder(options.data_dir))
    if place.name == PACKED:
        return _load_packed(place, options)
    if place.name == "train":
        return _from_writers(read_writers(_shards(place)), read_writers(_shards(place.parent / "test")), options)
    return _load_sample(_shards(place), options)


def find(root: Path) -> Path:
    """The packed file, the folder train or the folder all_data: in root/femnist, or in the root itself."""
    for folder in (root / "femnist", root):
        if (folder / PACKED).is_file():
            return folder / PACKED
        for place in (folder / "train", folder / "all_data"):
            if _shards(place):
                return place
    raise InputError(
        f"FEMNIST is not there: put LEAF's json files into {root / 'femnist' / 'train'} and"
        f" {root / 'femnist' / 'test'}, or its unsampled ones into {root / 'femnist' / 'all_data'},"
        f" or {PACKED} into {root / 'femnist'}"
    )


def is_known(root: Path) -> bool:
    """Whether the files are known to be published: the packed ones by their checksum; LEAF's have none.

    Where there are none, loading says so.
    """
    try:
        place = find(root)
    except TaciturnError:
        return True
    return place.name == PACKED and hashlib.sha256(place.read_bytes()).hexdigest() == PACKED_SHA256


def _shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _load_sample(files: list[Path], options: DataOptions) -> Dataset:
    sample = sample_writers(files, options.sample_fraction, options.train_share, options.partition_key)
    if not sample.train:
        raise InputError(
            f"sample_fraction is {options.sample_fraction:g}: of the shards in {files[0].parent} it leaves"
            " no writer with two records; use a larger one"
        )
    notes = [f"{sample.dropped} writers with fewer than 2 records were dropped"] if sample.dropped else []
    return _from_writers(sample.train, sample.test, options, notes)


def _from_writers(
    train: dict[str, Writer], test: dict[str, Writer], options: DataOptions, notes: Sequence[str] = ()
) -> Dataset:
    names = tuple(sorted(train))
    ends = np.cumsum([0, *(len(train[name].y) for name in names)])
    blocks = [np.arange(start, end) for start, end in pairwise(ends)]
    return assemble(
        "femnist",
        options,
        _join(train),
        Agents(names, blocks),
        features=FEATURES,
        target=CHARACTERS,
        test=_join(test) if test else None,
        notes=notes,
    )


def _join(writers: dict[str, Writer]) -> RawRecords:
    """Writers in sorted order, 0 = background."""
    ordered = [writers[name] for name in sorted(writers)]
    x = np.concatenate([writer.x for writer in ordered])
    np.subtract(1.0, x, out=x)
    return RawRecords(x, np.concatenate([writer.y for writer in ordered]))


def _load_packed(path: Path, options: DataOptions) -> Dataset:
    if (options.sample_fraction, options.train_share) != (DataOptions.sample_fraction, DataOptions.train_share):
        raise InputError(f"sample-fraction and train-share mean nothing to {path}, which is sampled already")
    arrays = _read_packed(path)
    writers = [str(name) for name in arrays["writers"]]
    owners = arrays["train_writer"].astype(np.intp)
    order = sorted(range(len(writers)), key=writers.__getitem__)
    agents = Agents(tuple(writers[w] for w in order), [np.flatnonzero(owners == w) for w in order])
    train = RawRecords(arrays["train_images"], arrays["train_labels"], unit=255)
    test = RawRecords(arrays["test_images"], arrays["test_labels"], unit=255)
    return assemble("femnist", options, train, agents, features=FEATURES, target=CHARACTERS, test=test)


def _read_packed(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ARRAYS}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    count = len(arrays["writers"])
    for part in ("train", "test"):
        images, owners = arrays[f"{part}_images"], arrays[f"{part}_writer"]
        if images.dtype != np.uint8 or images.shape != (len(owners), PIXELS):
            raise InputError(
                f"{path}: {part}_images is {images.dtype} of shape {images.shape}:"
                f" it must be uint8 of shape ({len(owners)}, {PIXELS})"
            )
        if owners.dtype.kind not in "iu" or (len(owners) and not 0 <= owners.min() <= owners.max() < count):
            raise InputError(f"{path}: {part}_writer must hold whole numbers within 0..{count - 1}")
    return arrays


SOURCES.register("femnist")(
    Source(
        name="femnist",
        summary="handwritten characters of 28 x 28 pixels, 62 classes, one agent for each writer",
        attribution=(
            "FEMNIST of the LEAF benchmark by Sebastian Caldas and others (arXiv:1812.01097),"
            " made from NIST's Special Database 19"
        ),
        origin="your own LEAF download: its folders train/ and test/, or all_data/, in the folder femnist/",
        load=load,
        find=find,
        known=is_known,
        unprotected="The writer: every party is one writer, and protecting single characters does not hide him or her.",
        features="scattering",
        preset={"averages": False},  # 195 agents' z are many
        paper={
            "rounds": 300,
            "rho": "dynamic",
            "rho_c1": 0.005,
            "rho_c2": 0.05,
            "rho_tc": 2000,
            "eta": "nonsmooth",
        },
        takes=frozenset({"sample_fraction", "train_share", "partition_key"}),
        published=True,
        image=(28, 28),
    )
)
