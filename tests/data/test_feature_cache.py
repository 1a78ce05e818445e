"""Features that were kept have the bits of computed ones; nothing private is kept, and damage costs only time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn.data import SOURCES, DataOptions, Source, feature_cache, feature_mapping, fingerprint, load
from taciturn.data.assemble import RawRecords, assemble
from taciturn.data.dataset_source import pixel_names
from taciturn.data.feature_maps import InputShape, build_map
from taciturn.data.partition import partition_records
from taciturn.errors import InputError
from taciturn.types import Classes, Dataset
from tests.cli.helpers import taciturn

RECORDS, SIDE = 40, 8


def _load(options: DataOptions) -> Dataset:
    rng = np.random.default_rng(7)
    x = np.where(rng.random((RECORDS, SIDE * SIDE)) < 0.5, 0, rng.integers(0, 256, (RECORDS, SIDE * SIDE)))
    x[0] = 0  # an empty image: rows of zeros, of both signs
    records, target = RawRecords(x, np.arange(RECORDS) % 2, unit=255), Classes(("no", "yes"))
    partition = partition_records(options, records.labels, target)
    return assemble("drawn", options, records, partition, features=pixel_names((SIDE, SIDE)), target=target)


@pytest.fixture
def open_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Registers a data set of small images, and gives it a cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def register(open_records: bool = True, **more: Any) -> None:
        drawn = Source("drawn", "", "", "", _load, open_records=open_records, image=(SIDE, SIDE), **more)
        monkeypatch.setattr(SOURCES, "_items", {name: SOURCES[name] for name in SOURCES} | {"drawn": drawn})

    return register


OPTIONS = DataOptions(data="drawn", features="scattering", agents=2)


def entries() -> list[Path]:
    return sorted(feature_cache.folder().glob("*"))


def forbid_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, shape: InputShape) -> None:
        raise AssertionError(f"{name} was computed again")

    monkeypatch.setattr(feature_mapping, "build_map", refuse)


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_second_run_reads_the_bits_that_the_first_computed(
    open_source: Callable[..., None], monkeypatch: pytest.MonkeyPatch, precision: str, intercept: bool
) -> None:
    open_source()
    options = DataOptions(data="drawn", features="scattering", agents=2, precision=precision, intercept=intercept)
    monkeypatch.setenv(feature_cache.LIMIT, "off")
    computed = fingerprint(load(options))
    assert not entries()
    monkeypatch.delenv(feature_cache.LIMIT)
    assert fingerprint(load(options)) == computed
    forbid_maps(monkeypatch)
    assert fingerprint(load(options)) == computed
    assert len(entries()) == 1


def test_the_number_of_agents_does_not_matter_but_the_order_of_the_records_does(
    open_source: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_source()
    load(OPTIONS)
    load(DataOptions(data="drawn", features="scattering", agents=4))
    assert len(entries()) == 1
    load(DataOptions(data="drawn", features="scattering", agents=2, partition="shuffled"))
    assert len(entries()) == 2
    monkeypatch.setattr(feature_cache, "code_digest", lambda: "other code")
    load(OPTIONS)
    assert len(entries()) == 3


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: bytes([content[0] ^ 1]) + content[1:],
        lambda content: content[:-1] + bytes([content[-1] ^ 128]),
    ],
    ids=["empty", "cut", "longer", "a bit of the features", "a bit of the digest"],
)
def test_a_damaged_entry_is_computed_again_and_replaced(
    open_source: Callable[..., None], damage: Callable[[bytes], bytes]
) -> None:
    open_source()
    computed = fingerprint(load(OPTIONS))
    (entry,) = entries()
    content = entry.read_bytes()
    entry.write_bytes(damage(content))
    assert fingerprint(load(OPTIONS)) == computed
    assert entries() == [entry] and entry.read_bytes() == content


def test_records_that_are_not_public_are_not_kept(open_source: Callable[..., None]) -> None:
    open_source(open_records=False, published=True)
    load(OPTIONS)
    assert not entries()


def test_files_that_are_not_the_published_ones_are_not_kept(open_source: Callable[..., None]) -> None:
    open_source(known=lambda folder: False)
    load(OPTIONS)
    assert not entries()


def test_only_the_packages_published_data_sets_are_public() -> None:
    assert {name for name in SOURCES if SOURCES[name].open_records} == {"mnist14", "mnist", "femnist"}


def test_cheap_maps_are_not_kept(open_source: Callable[..., None]) -> None:
    open_source()
    load(DataOptions(data="drawn", features="pixels"))
    load(DataOptions(data="drawn"))
    assert not entries()


def test_the_oldest_entries_make_room(open_source: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    open_source()
    load(OPTIONS)
    (first,) = entries()
    os.utime(first, (1, 1))
    monkeypatch.setenv(feature_cache.LIMIT, f"{2.5 * first.stat().st_size / 1000:g}kB")
    for key in range(2):
        load(DataOptions(data="drawn", features="scattering", agents=2, partition="shuffled", partition_key=key))
    assert len(entries()) == 2 and first not in entries()


def test_a_run_continues_without_room_or_a_writable_cache_folder(
    open_source: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    open_source()
    monkeypatch.setenv(feature_cache.LIMIT, "1kB")
    computed = fingerprint(load(OPTIONS))
    assert not entries()
    monkeypatch.delenv(feature_cache.LIMIT)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert fingerprint(load(OPTIONS)) == computed
    monkeypatch.setenv(feature_cache.LIMIT, "much")
    with pytest.raises(InputError, match="TACITURN_FEATURE_CACHE is 'much'"):
        load(OPTIONS)


def test_the_embedded_digits_are_kept_as_the_map_gives_them() -> None:
    raw = load(DataOptions())
    phi = build_map("scattering", InputShape(196, (14, 14)))
    for _ in range(2):  # computed, unless a test before did, then read
        found = load(DataOptions(features="scattering"))
        for shard, original in zip((*found.train, found.test), (*raw.train, raw.test), strict=True):
            assert shard is not None and original is not None
            assert shard.x[:100].tobytes() == phi(original.x[:100]).tobytes()


def test_the_cache_can_be_cleared(open_source: Callable[..., None]) -> None:
    open_source()
    load(OPTIONS)
    assert f"removed from {feature_cache.folder()}" in taciturn("data", "clear-cache").stdout
    assert not entries()
    assert "is empty" in taciturn("data", "clear-cache").stdout
