"""FEMNIST: handwritten characters, one agent per writer, read from LEAF files."""

from __future__ import annotations

import hashlib
import json
import random
import string
import zipfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.data.assemble import RawRecords, assemble
from taciturn.data.dataset_source import SOURCES, DataOptions, Source, data_folder, pixel_names
from taciturn.data.partition import Partition
from taciturn.errors import InputError, TaciturnError
from taciturn.types import Classes, Dataset, slices

CHARACTERS = Classes(tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase))
FEATURES = pixel_names((28, 28))
PIXELS, CLASSES = len(FEATURES), CHARACTERS.width
PACKED = "femnist_195_writers.npz"
PACKED_SHA256 = "f33417f06a66c071f42b0433bd1ea7f0822a99a7ef53ca09a6e472f61da89c0b"
ARRAYS = ("writers", *(f"{part}_{name}" for part in ("train", "test") for name in ("images", "labels", "writer")))
_assemble = partial(assemble, "femnist", features=FEATURES, target=CHARACTERS)


class Writer(NamedTuple):
    """One writer's records, as LEAF stores them."""

    x: NDArray[np.float64]  # [n, 784] in [0, 1], 1 = background
    y: NDArray[np.int64]  # [n]

    def rows(self, index: Sequence[int]) -> Writer:
        """Return some of the records."""
        return Writer(self.x[index], self.y[index])


class Sample(NamedTuple):
    """Sampled writers with training and test records, and the number of writers with too few records for both."""

    train: dict[str, Writer]
    test: dict[str, Writer]
    dropped: int


def read_writers(files: Iterable[Path]) -> dict[str, Writer]:
    """Read all writers of some shards; a writer's records in several shards are joined."""
    writers: dict[str, Writer] = {}
    for file in files:
        for user, data in _read_shard(file).items():
            new = _parse_writer(file, user, data)
            old = writers.get(user, Writer(new.x[:0], new.y[:0]))
            writers[user] = Writer(np.concatenate([old.x, new.x]), np.concatenate([old.y, new.y]))
    return writers


class _RawWriter(NamedTuple):
    """One writer's lists in a shard, not checked yet."""

    x: list[Any]
    y: list[Any]


def _read_shard(file: Path) -> dict[str, _RawWriter]:
    """Read a shard's lists by user, in the order of its `users`."""
    try:
        shard = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:  # ValueError: bad JSON, or bytes that are not text
        raise InputError(f"{file} is not a LEAF shard: {error}") from error
    users, user_data = (shard.get("users"), shard.get("user_data")) if isinstance(shard, dict) else (None, None)
    if not (isinstance(users, list) and isinstance(user_data, dict)):
        raise InputError(f"{file} is not a LEAF shard: it needs a list 'users' and an object 'user_data'")
    found: dict[str, _RawWriter] = {}
    for user in users:
        data = user_data.get(user) if isinstance(user, str) else None
        x, y = (data.get("x"), data.get("y")) if isinstance(data, dict) else (None, None)
        if not (isinstance(x, list) and isinstance(y, list) and len(x) == len(y)):
            raise InputError(f"{file}: writer '{user}' needs lists 'x' and 'y' of equal length in user_data")
        found[user] = _RawWriter(x, y)
    return found


def _parse_writer(file: Path, user: str, data: _RawWriter) -> Writer:
    """Convert one writer's lists to arrays and check them."""
    where = f"{file}: writer '{user}' has"
    if any(not isinstance(row, list) or len(row) != PIXELS for row in data.x):
        raise InputError(f"{where} an image that is not {PIXELS} numbers")
    try:
        x = np.array(data.x, dtype=np.float64).reshape(len(data.y), PIXELS)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where} a pixel that is not a number") from error
    outside = ~((x >= 0) & (x <= 1))
    if outside.any():
        raise InputError(f"{where} a pixel of {x[outside][0]:g}: pixels must be within 0..1")
    for label in data.y:
        if type(label) is not int or not 0 <= label < CLASSES:
            raise InputError(f"{where} the label {label!r}: labels must be within 0..{CLASSES - 1}")
    return Writer(x, np.array(data.y, dtype=np.int64))


def sample_writers(files: Iterable[Path], fraction: float, train_share: float, seed: int) -> Sample:
    """Sample as LEAF's `preprocess.sh -s niid --sf fraction -k 0 -t sample --tf train_share` does on all_data shards.

    Parameters
    ----------
    files
        The shards.
    fraction
        The share of each shard's records to sample, by whole writers; the last one is cut to fit.
    train_share
        The share of each writer's records to train on.
    seed
        The seed of both draws.
    """
    rng, split_rng = random.Random(seed), random.Random(seed)
    sample = Sample({}, {}, 0)
    for file in files:
        for user, writer in _sample_shard(file, fraction, rng):
            n = len(writer.y)
            if n < 2:
                sample = sample._replace(dropped=sample.dropped + 1)
                continue
            train = sorted(split_rng.sample(range(n), max(1, int(train_share * n))))
            sample.train[user] = writer.rows(train)
            sample.test[user] = writer.rows(sorted(set(range(n)) - set(train)))
    return sample


def _sample_shard(file: Path, fraction: float, rng: random.Random) -> list[tuple[str, Writer]]:
    shard = _read_shard(file)
    left = int(fraction * sum(len(data.y) for data in shard.values()))
    users = list(shard)
    rng.shuffle(users)
    sampled = []
    for user in users:
        if left <= 0:
            break
        writer = _parse_writer(file, user, shard[user])
        if len(writer.y) > left:
            writer = writer.rows(rng.sample(range(left), left))  # LEAF permutes the first records before it splits them
        left -= len(writer.y)
        sampled.append((user, writer))
    return sampled


def load(options: DataOptions) -> Dataset:
    """Load the packed file if it exists, else LEAF's train and test shards, else a sample of LEAF's all_data."""
    place = find(data_folder(options.data_dir))
    if place.name == PACKED:
        return _load_packed(place, options)
    if place.name == "train":
        return _from_writers(read_writers(_shards(place)), read_writers(_shards(place.parent / "test")), options)
    sample = sample_writers(_shards(place), options.sample_fraction, options.train_share, options.partition_key)
    if not sample.train:
        raise InputError(
            f"sample_fraction is {options.sample_fraction:g}, which leaves no writer with two records in {place}:"
            " increase it"
        )
    notes = [f"{sample.dropped} writers with fewer than 2 records were dropped"] if sample.dropped else []
    return _from_writers(sample.train, sample.test, options, notes)


def find(root: Path) -> Path:
    """Return the packed file, the folder train or the folder all_data, in root/femnist or in the root itself.

    Raises
    ------
    InputError
        If there is none of them.
    """
    for folder in (root / "femnist", root):
        if (folder / PACKED).is_file():
            return folder / PACKED
        for place in (folder / "train", folder / "all_data"):
            if _shards(place):
                return place
    folder = root / "femnist"
    raise InputError(
        f"there is no FEMNIST: put LEAF's json files into {folder / 'train'} and {folder / 'test'}, or its unsampled"
        f" ones into {folder / 'all_data'}, or {PACKED} into {folder}"
    )


def is_known(root: Path) -> bool:
    """Return whether the files are the packed ones with the known checksum; true if there are none.

    LEAF's own files have no published checksums. Loading reports missing files.
    """
    try:
        place = find(root)
    except TaciturnError:
        return True
    return place.name == PACKED and hashlib.sha256(place.read_bytes()).hexdigest() == PACKED_SHA256


def _shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _from_writers(
    train: dict[str, Writer], test: dict[str, Writer], options: DataOptions, notes: Sequence[str] = ()
) -> Dataset:
    names = tuple(sorted(train))
    own = slices(len(train[name].y) for name in names)
    partition = Partition(names, [np.arange(rows.start, rows.stop) for rows in own])
    return _assemble(options, _join(train), partition, test=_join(test) if test else None, notes=notes)


def _join(writers: dict[str, Writer]) -> RawRecords:
    """Join the writers in sorted order, with 0 for the background."""
    ordered = [writers[name] for name in sorted(writers)]
    x = np.concatenate([writer.x for writer in ordered])
    np.subtract(1.0, x, out=x)
    return RawRecords(x, np.concatenate([writer.y for writer in ordered]))


def _load_packed(path: Path, options: DataOptions) -> Dataset:
    if (options.sample_fraction, options.train_share) != (DataOptions.sample_fraction, DataOptions.train_share):
        raise InputError(f"sample-fraction and train-share have no effect on {path}, which is already sampled")
    arrays = _read_packed(path)
    writers = [str(name) for name in arrays["writers"]]
    owners = arrays["train_writer"].astype(np.intp)
    order = sorted(range(len(writers)), key=writers.__getitem__)
    partition = Partition(tuple(writers[w] for w in order), [np.flatnonzero(owners == w) for w in order])
    train, test = (
        RawRecords(arrays[f"{part}_images"], arrays[f"{part}_labels"], unit=255) for part in ("train", "test")
    )
    return _assemble(options, train, partition, test=test)


def _read_packed(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ARRAYS}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    count = len(arrays["writers"])
    for part in ("train", "test"):
        images, owners = arrays[f"{part}_images"], arrays[f"{part}_writer"]
        shape = (len(owners), PIXELS)
        if images.dtype != np.uint8 or images.shape != shape:
            found = f"{images.dtype} of shape {images.shape}"
            raise InputError(f"{path}: {part}_images is {found}: it must be uint8 of shape {shape}")
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
        paper={"rounds": 300, "rho": "dynamic", "rho_c1": 0.005, "rho_c2": 0.05, "rho_tc": 2000, "eta": "nonsmooth"},
        takes=frozenset({"sample_fraction", "train_share", "partition_key"}),
        published=True,
        open_records=True,
        image=(28, 28),
    )
)
