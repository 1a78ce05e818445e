"""MNIST at 14 x 14 pixels and 16 grey levels, bundled with the package."""

from __future__ import annotations

import hashlib
import lzma
from importlib import resources
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taciturn.data.assemble import RawRecords, assemble
from taciturn.data.dataset_source import SOURCES, DataOptions, Source, pixel_names
from taciturn.data.mnist_files import ATTRIBUTION
from taciturn.data.partition import partition_records
from taciturn.errors import CorruptFile
from taciturn.types import Classes, Dataset

SHA256 = "b8698c15f7e81535479a83858b1f6c6f218133b0ea4e308c62f6f5bb1e049273"
TRAIN, TEST, SIDE = 60_000, 10_000, 14
DIGITS = Classes(tuple("0123456789"))


class Digits(NamedTuple):
    """The training images, followed by the test images."""

    images: NDArray[np.uint8]  # [70000, 14, 14] grey levels 0..15
    labels: NDArray[np.uint8]  # [70000]


def load(options: DataOptions) -> Dataset:
    """Load 60,000 training and 10,000 test images; features are level / 15."""
    images, labels = unpack(read_content())
    x = images.reshape(TRAIN + TEST, SIDE * SIDE)
    train = RawRecords(x[:TRAIN], labels[:TRAIN], unit=15)
    test = RawRecords(x[TRAIN:], labels[TRAIN:], unit=15)
    partition, features = partition_records(options, train.labels, DIGITS), pixel_names((SIDE, SIDE))
    return assemble("mnist14", options, train, partition, features=features, target=DIGITS, test=test)


def read_content() -> bytes:
    """Read, check and decompress the bundled file.

    Raises
    ------
    CorruptFile
        If it is missing or has the wrong checksum.
    """
    try:
        packed = resources.files("taciturn.data").joinpath("mnist14.bin.xz").read_bytes()
    except OSError as error:
        raise CorruptFile(f"the bundled data set mnist14 cannot be read ({error}): reinstall Taciturn") from error
    if hashlib.sha256(packed).hexdigest() != SHA256:
        raise CorruptFile("the bundled data set mnist14 is damaged (wrong SHA-256): reinstall Taciturn")
    return lzma.decompress(packed)


def unpack(content: bytes) -> Digits:
    """Decode the content that scripts/make_mnist14.py writes.

    A byte holds a pixel (high half) and the pixel below it (low half); after the images, a byte holds two labels.
    """
    raw = np.frombuffer(content, np.uint8)
    pairs = (TRAIN + TEST) * SIDE * SIDE // 2
    bytes_ = raw[:pairs].reshape(-1, SIDE // 2, 1, SIDE)  # [n, 7, 1, 14]
    images = np.concatenate([bytes_ >> 4, bytes_ & 15], axis=2)  # [n, 7, 2, 14]
    labels = np.stack([raw[pairs:] >> 4, raw[pairs:] & 15], axis=1)
    return Digits(images.reshape(-1, SIDE, SIDE), labels.reshape(-1))


SOURCES.register("mnist14")(
    Source(
        name="mnist14",
        summary="70,000 handwritten digits of 14 x 14 pixels, 10 classes",
        attribution=ATTRIBUTION + "; averaged over 2 x 2 pixels and cut to 16 grey levels",
        origin="bundled with the package",
        load=load,
        features="scattering",
        paper={"rounds": 20, "rho": 0.002, "eta": "nonsmooth", "eta_scale": 80.0},
        published=True,
        open_records=True,
        image=(SIDE, SIDE),
    )
)
