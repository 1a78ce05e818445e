"""The records of all agents as one array, short ones filled up with rows of zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from tacit.engine.torch_backend import on_device
from tacit.types import Shard


class Stack(NamedTuple):
    """Every agent's records side by side; a row of zeros adds nothing to a gradient and has no norm."""

    x: torch.Tensor  # [P, n, J]  n the most records any agent has, rounded up
    labels: torch.Tensor  # [P, n]  class numbers
    norm1: torch.Tensor  # [P, n]  ||x||_1
    records: torch.Tensor  # [P]  I_p
    keys: torch.Tensor  # [P]  what each agent's noise is keyed by
    classes: int  # K


def stack(shards: Sequence[Shard], device: str, half: bool) -> Stack:
    """The shards on the device, features in half or in single precision."""
    counts = [len(shard.x) for shard in shards]
    rows = -(-max(counts) // 8) * 8
    x = np.zeros((len(shards), rows, shards[0].x.shape[1]), np.float32)
    labels = np.zeros(x.shape[:2], np.int32)
    norm1 = np.zeros(x.shape[:2], np.float32)
    for p, (shard, count) in enumerate(zip(shards, counts, strict=True)):
        x[p, :count], labels[p, :count], norm1[p, :count] = shard.x, shard.y.argmax(axis=1), shard.norm1

    sizes, keys = np.array(counts, np.float32), np.arange(len(shards), dtype=np.int64)
    arrays = (x.astype(np.float16 if half else np.float32), labels, norm1, sizes, keys)
    return Stack(*on_device(arrays, device), classes=shards[0].y.shape[1])
