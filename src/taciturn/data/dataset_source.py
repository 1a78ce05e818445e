"""Data sets: their options, memory limit and registry."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from taciturn.core.registry import Registry
from taciturn.data.feature_maps import NONE, check_map
from taciturn.errors import InputError, unknown_name
from taciturn.types import Dataset

UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kMGT]B)", re.IGNORECASE)
CONTAINER = Path("/sys/fs/cgroup/memory.max")  # what a container may take, on Linux


def check_memory(name: str, given: Any) -> str:
    """A size as it was given, where it is one."""
    if given != "auto":
        _bytes(name, given)
    return str(given)


def memory_limit(given: str) -> int:
    """The bytes a size stands for; auto: half of the machine's memory, shared by the ranks torchrun started on it."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return machine_memory() // (2 * ranks) if given == "auto" else _bytes("memory", given)


def machine_memory() -> int:
    """The bytes of memory that the machine has, or the container it runs in; 2^63 where the system does not say."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        physical = 2**63
    try:
        return min(physical, int(CONTAINER.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit: "max"
        return physical


def size_text(size: float) -> str:
    """Bytes for a person.

    >>> size_text(8_240_000_000)
    '8.24 GB'
    """
    unit = next((unit for unit in reversed(UNITS) if size >= UNITS[unit]), "kB")
    return f"{size / UNITS[unit]:.3g} {unit}"


def _bytes(name: str, given: Any) -> int:
    found = SIZE.fullmatch(given.strip()) if isinstance(given, str) else None
    scale = {unit.lower(): factor for unit, factor in UNITS.items()}
    size = 0 if found is None else round(float(found[1]) * scale[found[2].lower()])
    if size < 1:
        raise InputError(
            f"{name} is {given!r}: it must be auto, or a size above 0 in {', '.join(UNITS)}, as 500MB or 2GB"
        )
    return size


PRECISIONS: dict[str, type[np.floating[Any]]] = {"float64": np.float64, "float32": np.float32}

Progress: TypeAlias = Callable[[str, int, int | None], None]  # file name, bytes so far, bytes in all if known
Fetch: TypeAlias = Callable[[Path, str, Progress], list[Path]]  # folder, source ("" for the usual ones), progress


@dataclass(frozen=True)
class DataOptions:
    """Which records to load, and how they are dealt out to the agents."""

    data: str = "mnist14"  # a data set's name, or a table: a .csv or .parquet file, or a folder of them, one per agent
    data_dir: str = ""  # where data sets lie; empty: TACITURN_DATA, else taciturn in the user's cache folder
    schema: str = ""  # tables: the schema file
    test: str = ""  # tables: a test table (file or folder)
    test_share: float = 0.0  # tables: share of each agent's records held out for testing, 0 <= s < 1
    agents: int = 10  # for the data sets that need a partition
    partition: str = "in-order"  # in-order, shuffled, hashed, dirichlet or column
    dirichlet_alpha: float = 0.5  # small: each agent has few classes
    partition_key: int = 0  # of the partition, the hold-out and LEAF's sampling
    sample_fraction: float = 0.05  # femnist all_data: LEAF's --sf
    train_share: float = 0.9  # femnist all_data: LEAF's -t fraction
    intercept: bool = False  # a last feature that is always 1
    features: str = NONE  # a public feature map
    precision: str = "float64"  # float64 or float32
    memory: str = (
        "auto"  # what the records may take of it, as 2GB; beyond, they lie in files. auto: half of the machine's
    )
    private: bool = False  # a table in certified mode: who holds a record depends on that record and the key alone
    agent_names: tuple[str, ...] = ()  # tables: the agents of the agent column, where the schema does not name them
    one_owner: bool = False  # tables: every row is the one agent's, and whatever says otherwise is not read


PARTITION_OPTIONS = frozenset({"agents", "partition", "dirichlet_alpha", "partition_key"})
UNSAID = frozenset({"data", "precision", "private", "agent_names", "one_owner"})  # in the list of what may be given
COMMON_OPTIONS = frozenset(
    {"data", "data_dir", "intercept", "features", "precision", "memory", "private", "agent_names"}
)


@dataclass(frozen=True, eq=False)
class Source:
    """A data set by name: what it is, whom to thank, and how to load it."""

    name: str
    summary: str  # one line
    attribution: str
    origin: str  # where it comes from
    load: Callable[[DataOptions], Dataset]
    preset: Mapping[str, object] = field(default_factory=dict)  # the settings it wants unless the user says otherwise
    paper: Mapping[str, object] = field(default_factory=dict)  # those it wants beside them in the paper's mode only
    find: Callable[[Path], Path] | None = None  # its files in the data folder; refuses where they are not complete
    known: Callable[[Path], bool] | None = (
        None  # whether its files in the data folder are the published ones, or absent
    )
    fetch: Fetch | None = None  # puts the files in a folder, where they can be downloaded
    takes: frozenset[str] = PARTITION_OPTIONS  # the options it heeds, beside those every data set does
    published: bool = False  # a research data set whose sizes are public
    features: str = NONE  # the public feature map that is best for it
    image: tuple[int, int] | None = None  # rows and columns, where the features are an image's pixels, row by row
    unprotected: str = ""  # whom the privacy of single records leaves unprotected in this data set


SOURCES: Registry[Source] = Registry("data set", "taciturn.data.datasets")


def data_folder(data_dir: str = "") -> Path:
    """Where data sets lie: the folder given, else TACITURN_DATA, else taciturn in the user's cache folder."""
    given = data_dir or os.environ.get("TACITURN_DATA", "")
    if given:
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if cache else Path.home() / ".cache") / "taciturn"


def pixel_names(image: tuple[int, int]) -> tuple[str, ...]:
    """The features of an image, row by row."""
    return tuple(f"pixel_{r}_{c}" for r in range(image[0]) for c in range(image[1]))


def is_table_path(data: str) -> bool:
    """Whether this is the path of a table: it has a separator or a table's ending, or is a folder that is there."""
    separators = {os.sep, os.altsep or os.sep, "/"}
    return (
        any(sign in data for sign in separators)
        or data.lower().endswith((".csv", ".parquet"))
        or (bool(data) and Path(data).is_dir())
    )


def source_for(data: str) -> Source:
    """The source that loads this name or path; a data set's own name goes before a folder of the same name."""
    if data in SOURCES:
        return SOURCES[data]
    if is_table_path(data):
        return SOURCES["table"]
    if Path(data).is_file():
        raise InputError(f"{data} is not a table: give a .csv or .parquet file, or a folder of them")
    return SOURCES[data]


def check_options(options: DataOptions) -> None:
    """Refuse the settings no data set can use, and those this one would not heed."""
    if options.precision not in PRECISIONS:
        raise unknown_name("precision", options.precision, PRECISIONS)
    check_memory("memory", options.memory)
    check_map(options.features, source_for(options.data).image)
    _within("test_share", options.test_share, 0 <= options.test_share < 1, "at least 0 and below 1")
    _within("sample_fraction", options.sample_fraction, 0 < options.sample_fraction <= 1, "above 0 and at most 1")
    _within("train_share", options.train_share, 0 < options.train_share < 1, "above 0 and below 1")
    _within("partition_key", options.partition_key, options.partition_key >= 0, "0 or more")
    takes = COMMON_OPTIONS | source_for(options.data).takes
    for option in fields(DataOptions):
        if option.name not in takes and getattr(options, option.name) != option.default:
            heeded = ", ".join(sorted(takes - UNSAID)).replace("_", "-")
            name = option.name.replace("_", "-")
            raise InputError(f"{name} means nothing to {options.data}: the data options it takes are {heeded}")


def _within(name: str, value: float, good: bool, rule: str) -> None:
    if not good:
        raise InputError(f"{name.replace('_', '-')} is {value}: it must be {rule}")
