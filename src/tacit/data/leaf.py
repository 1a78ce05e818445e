"""LEAF's json shards: reading them, and sampling by writer as LEAF's own scripts do."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InputError

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
