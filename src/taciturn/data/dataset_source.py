"""Data sets by name: their options, their registry, and the memory limit for records."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from taciturn.core.registry import Registry
from taciturn.core.storage import cache_folder
from taciturn.data.feature_maps import NONE, check_map
from taciturn.data.memory_names import is_in_memory
from taciturn.errors import InputError, shown, unknown_name
from taciturn.types import Dataset

BYTE_UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kMGT]B)", re.IGNORECASE)
CONTAINER = Path("/sys/fs/cgroup/memory.max")  # a container's memory limit, on Linux
PRECISIONS: dict[str, type[np.floating[Any]]] = {"float64": np.float64, "float32": np.float32}

DownloadProgress: TypeAlias = Callable[[str, int, int | None], None]
"""(file name, bytes so far, total bytes or None if unknown)."""

Fetch: TypeAlias = Callable[[Path, str, DownloadProgress], list[Path]]
"""(folder, source or "" for the default ones, progress) -> the files."""


def check_memory(name: str, given: Any) -> str:
    """Accept a memory size such as 500MB, or auto; return it as given."""
    if given != "auto":
        _parse_size(name, given)
    return str(given)


def memory_limit(given: str) -> int:
    """Return a memory size in bytes; auto is half of the machine's memory, shared by torchrun's local processes.

    Examples
    --------
    >>> memory_limit("1.5 GB")
    1500000000
    """
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return machine_memory() // (2 * processes) if given == "auto" else _parse_size("memory", given)


def machine_memory() -> int:
    """Return the memory of the machine or of the container in bytes; 2^63 if the system does not report it."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        physical = 2**63
    try:
        return min(physical, int(CONTAINER.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit: "max"
        return physical


def _parse_size(name: str, given: Any) -> int:
    found = SIZE.fullmatch(given.strip()) if isinstance(given, str) else None
    factors = {unit.lower(): factor for unit, factor in BYTE_UNITS.items()}
    size = 0 if found is None else round(float(found[1]) * factors[found[2].lower()])
    if size < 1:
        units = ", ".join(BYTE_UNITS)
        raise InputError(
            f"{name} is {shown(given)}: it must be auto, or a size above 0 in {units}, such as 500MB or 2GB"
        )
    return size


@dataclass(frozen=True)
class DataOptions:
    """Which records to load and how to partition them among agents.

    Parameters
    ----------
    data : str
        A data set's name, or a table: a .csv or .parquet file, or a folder of them with one file per agent.
    data_dir : str
        The folder of the data sets; empty: $TACITURN_DATA, else the user's cache folder.
    schema, test : str
        For tables: the schema file, and a test table.
    test_share : float
        For tables: the share of each agent's records to hold out for testing, in [0, 1).
    agents : int
        P, the number of agents, for data sets without agents of their own.
    partition : str
        in-order, shuffled, hashed, dirichlet or column.
    dirichlet_alpha : float
        The skew of partition dirichlet; with a small value each agent has few classes.
    partition_key : int
        The key of the partition, the hold-out and LEAF's sampling.
    sample_fraction, train_share : float
        For femnist from all_data: LEAF's --sf and -t fraction.
    intercept : bool
        Whether to add a last feature that is always 1.
    features : str
        A public feature map.
    precision : str
        float64 or float32.
    memory : str
        The memory limit for records, such as 2GB; larger data is memory-mapped.
    private : bool
        A table in certified mode: who holds a record depends only on that record and the key.
    agent_names : tuple of str
        For tables: the agents of the agent column, if the schema does not name them.
    one_owner : bool
        For tables: all rows belong to one agent; an agent column is ignored.
    """

    data: str = "mnist14"
    data_dir: str = ""
    schema: str = ""
    test: str = ""
    test_share: float = 0.0
    agents: int = 10
    partition: str = "in-order"
    dirichlet_alpha: float = 0.5
    partition_key: int = 0
    sample_fraction: float = 0.05
    train_share: float = 0.9
    intercept: bool = False
    features: str = NONE
    precision: str = "float64"
    memory: str = "auto"
    private: bool = False
    agent_names: tuple[str, ...] = ()
    one_owner: bool = False


TABLE = "table"  # the source of the user's own tables
PARTITION_OPTIONS = frozenset({"agents", "partition", "dirichlet_alpha", "partition_key"})
INTERNAL_OPTIONS = frozenset({"data", "precision", "private", "agent_names", "one_owner"})  # not named in messages
COMMON_OPTIONS = INTERNAL_OPTIONS - {"one_owner"} | {"data_dir", "intercept", "features", "memory"}


@dataclass(frozen=True, eq=False)
class Source:
    """A data set: what it is, who made it, and how to load it.

    Register an instance in `SOURCES` to add a data set; a plugin may do so.

    Parameters
    ----------
    name, summary, attribution, origin : str
        Its name, a one-line description, the authors to credit, and where it comes from.
    load : callable
        Loads the records for given options, usually with `assemble`.
    preset, paper : mapping
        Settings that replace the defaults for this data set: always, and additionally in mode paper.
    find : callable, optional
        Returns the location of its files in the data folder, and raises InputError if they are incomplete.
    known : callable, optional
        Returns whether the files in the data folder are the published ones, or absent.
    fetch : callable, optional
        Downloads the files into a folder.
    takes : frozenset of str
        The data options it supports besides the common ones.
    published : bool
        Whether it is a research data set whose sizes are public.
    open_records : bool
        Whether its records are public too, so that their features may be kept in the user's cache folder.
    features : str
        The public feature map to use by default.
    image : (int, int), optional
        Rows and columns, if the features are an image's pixels, row by row.
    unprotected : str
        Who is not protected by the privacy of single records, in one sentence.

    Examples
    --------
    >>> from taciturn.data.assemble import RawRecords, assemble
    >>> from taciturn.data.partition import partition_records
    >>> from taciturn.types import Classes
    >>> def load(options: DataOptions) -> Dataset:
    ...     records, target = RawRecords(np.eye(4), np.array([0, 1, 0, 1])), Classes(("no", "yes"))
    ...     partition = partition_records(options, records.labels, target)
    ...     return assemble("toy", options, records, partition, features="abcd", target=target)
    >>> toy = Source("toy", "four records", "public domain", "computed", load)
    >>> toy.load(DataOptions(data="toy", agents=2)).records
    4
    """

    name: str
    summary: str
    attribution: str
    origin: str
    load: Callable[[DataOptions], Dataset]
    preset: Mapping[str, object] = field(default_factory=dict)
    paper: Mapping[str, object] = field(default_factory=dict)
    find: Callable[[Path], Path] | None = None
    known: Callable[[Path], bool] | None = None
    fetch: Fetch | None = None
    takes: frozenset[str] = PARTITION_OPTIONS
    published: bool = False
    open_records: bool = False
    features: str = NONE
    image: tuple[int, int] | None = None
    unprotected: str = ""

    @property
    def is_table(self) -> bool:
        """Whether these are the user's own tables."""
        return self.name == TABLE


SOURCES: Registry[Source] = Registry("data set", "taciturn.data.datasets")
"""Data sets by name. Register one with `SOURCES.register("toy")(Source(...))`."""


def data_folder(data_dir: str = "") -> Path:
    """Return the folder of the data sets: the given one, else $TACITURN_DATA, else that in the user's cache folder."""
    given = data_dir or os.environ.get("TACITURN_DATA", "")
    return Path(given).expanduser() if given else cache_folder()


def pixel_names(image: tuple[int, int]) -> tuple[str, ...]:
    """Return the feature names of an image, row by row.

    Examples
    --------
    >>> pixel_names((1, 2))
    ('pixel_0_0', 'pixel_0_1')
    """
    return tuple(f"pixel_{r}_{c}" for r in range(image[0]) for c in range(image[1]))


def source_for(data: str) -> Source:
    """Return the source that loads a name or a path; a data set's name takes precedence over a folder.

    Raises
    ------
    InputError
        If it is neither a data set nor the path of a table.
    """
    if data in SOURCES:
        return SOURCES[data]
    if is_in_memory(data):
        return SOURCES[TABLE]
    if "/" in data or os.sep in data or data.lower().endswith((".csv", ".parquet")) or (data and Path(data).is_dir()):
        return SOURCES[TABLE]
    if Path(data).is_file():
        raise InputError(f"{data} is not a table: give a .csv or .parquet file, or a folder of them")
    return SOURCES[data]


def check_options(options: DataOptions) -> None:
    """Raise InputError for an option whose value is invalid, or that the data set does not support."""
    if options.precision not in PRECISIONS:
        raise unknown_name("precision", options.precision, PRECISIONS)
    check_memory("memory", options.memory)
    source = source_for(options.data)
    check_map(options.features, source.image, table=source.is_table)
    for name, valid, rule in (
        ("test_share", 0 <= options.test_share < 1, "at least 0 and below 1"),
        ("sample_fraction", 0 < options.sample_fraction <= 1, "above 0 and at most 1"),
        ("train_share", 0 < options.train_share < 1, "above 0 and below 1"),
        ("partition_key", options.partition_key >= 0, "0 or more"),
    ):
        if not valid:
            raise InputError(f"{name.replace('_', '-')} is {getattr(options, name)}: it must be {rule}")
    supported = COMMON_OPTIONS | source.takes
    for option in fields(DataOptions):
        if option.name not in supported and getattr(options, option.name) != option.default:
            names = ", ".join(sorted(supported - INTERNAL_OPTIONS)).replace("_", "-")
            name = option.name.replace("_", "-")
            raise InputError(f"{name} has no effect on {options.data}: it supports {names}")
