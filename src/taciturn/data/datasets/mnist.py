"""MNIST as published: images of 28 x 28 pixels, from files in the data folder."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from taciturn.data.assemble import RawRecords, assemble
from taciturn.data.dataset_source import SOURCES, DataOptions, Source, data_folder, pixel_names
from taciturn.data.downloads import fetch_mnist
from taciturn.data.mnist_files import (
    ATTRIBUTION,
    MD5,
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    is_canonical,
    read_images,
    read_labels,
    variants,
)
from taciturn.data.partition import partition_records
from taciturn.errors import InputError, TaciturnError
from taciturn.types import Classes, Dataset

DIGITS = Classes(tuple("0123456789"))


def load(options: DataOptions) -> Dataset:
    """Load 60,000 training and 10,000 test images; features are pixel / 255."""
    files = find_files(data_folder(options.data_dir))
    train = _read(files[TRAIN_IMAGES], files[TRAIN_LABELS])
    test = _read(files[TEST_IMAGES], files[TEST_LABELS])
    partition = partition_records(options, train.labels, DIGITS)
    return assemble("mnist", options, train, partition, features=pixel_names((28, 28)), target=DIGITS, test=test)


def find_files(folder: Path) -> dict[str, Path]:
    """Return MNIST's four files, by name, in folder/mnist or in the folder itself.

    Raises
    ------
    InputError
        If one of them is missing.
    """
    places = (folder / "mnist", folder)
    for place in places:
        found = {name: paths[0] for name in MD5 if (paths := variants(place, name))}
        if len(found) == len(MD5):
            return found
    best = max(places, key=lambda place: sum(bool(variants(place, name)) for name in MD5))
    missing = ", ".join(name for name in MD5 if not variants(best, name))
    raise InputError(
        f"MNIST is not complete: put {missing} (uncompressed or as .gz) into {best}, or run `taciturn data fetch mnist`"
    )


def is_known(folder: Path) -> bool:
    """Return whether the files are the published ones; true if they are incomplete, which loading reports."""
    try:
        files = find_files(folder)
    except TaciturnError:
        return True
    return all(_is_known(path, name, path.stat().st_mtime_ns, path.stat().st_size) for name, path in files.items())


@cache
def _is_known(path: Path, name: str, changed: int, size: int) -> bool:
    """Check a file once for every state of it."""
    return is_canonical(path, name)


def _read(images: Path, labels: Path) -> RawRecords:
    x, y = read_images(images), read_labels(labels)
    if len(x) != len(y):
        raise InputError(f"{images} holds {len(x)} images, but {labels} holds {len(y)} labels: the numbers must agree")
    return RawRecords(x.reshape(len(x), 28 * 28), y, unit=255)


SOURCES.register("mnist")(
    Source(
        name="mnist",
        summary="70,000 handwritten digits of 28 x 28 pixels, 10 classes",
        attribution=ATTRIBUTION,
        origin="taciturn data fetch mnist, or the four idx files in the folder mnist/",
        load=load,
        features="scattering",
        paper={"rounds": 300, "rho": "dynamic", "rho_c1": 2.0, "rho_c2": 5.0, "rho_tc": 10000, "eta": "nonsmooth"},
        find=lambda folder: find_files(folder)[TRAIN_IMAGES].parent,
        known=is_known,
        fetch=fetch_mnist,
        published=True,
        open_records=True,
        image=(28, 28),
    )
)
