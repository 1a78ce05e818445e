"""FEMNIST: handwritten characters, one agent for each writer, from the user's own LEAF files."""

from __future__ import annotations

import hashlib
import string
import zipfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.assemble import Records, assemble
from tacit.data.base import SOURCES, DataOptions, Source, data_folder, pixel_names
from tacit.data.leaf import PIXELS, Writer, read_writers, sample_writers
from tacit.data.partition import Agents
from tacit.errors import InputError
from tacit.types import Classes, Dataset

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
    except InputError:
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


def _join(writers: dict[str, Writer]) -> Records:
    """Writers in sorted order, 0 = background."""
    ordered = [writers[name] for name in sorted(writers)]
    x = np.concatenate([writer.x for writer in ordered])
    np.subtract(1.0, x, out=x)
    return Records(x, np.concatenate([writer.y for writer in ordered]))


def _load_packed(path: Path, options: DataOptions) -> Dataset:
    if (options.sample_fraction, options.train_share) != (DataOptions.sample_fraction, DataOptions.train_share):
        raise InputError(f"sample-fraction and train-share mean nothing to {path}, which is sampled already")
    arrays = _read_packed(path)
    writers = [str(name) for name in arrays["writers"]]
    owners = arrays["train_writer"].astype(np.intp)
    order = sorted(range(len(writers)), key=writers.__getitem__)
    agents = Agents(tuple(writers[w] for w in order), [np.flatnonzero(owners == w) for w in order])
    train = Records(arrays["train_images"], arrays["train_labels"], unit=255)
    test = Records(arrays["test_images"], arrays["test_labels"], unit=255)
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
