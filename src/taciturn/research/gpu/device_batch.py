"""Batches of runs on a GPU: the records of all agents in one array, and the gradients of all agents at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from taciturn.errors import InputError
from taciturn.research.gpu.triton_kernels import softmax_residual
from taciturn.training.torch_backend import on_device
from taciturn.types import Shard


class Stack(NamedTuple):
    """The records of all agents in padded arrays; a padding row of zeros contributes nothing to a gradient."""

    x: torch.Tensor  # [P, n, J]  n the most records any agent has, rounded up
    labels: torch.Tensor  # [P, n]  class numbers
    norm1: torch.Tensor  # [P, n]  ||x||_1
    records: torch.Tensor  # [P]  I_p
    keys: torch.Tensor  # [P]  what each agent's noise is keyed by
    classes: int  # K


def stack(shards: Sequence[Shard], device: str, half: bool) -> Stack:
    """Copy shards to the device.

    Parameters
    ----------
    shards : sequence of Shard
        The records of each agent.
    device : str
        A torch device.
    half : bool
        Whether features are stored in half instead of single precision.

    Raises
    ------
    InputError
        If records have weights.
    """
    if any(shard.weights is not None for shard in shards):
        raise InputError("the records have weights, which the fused engine does not support: use the plain one")
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


COLUMNS = 128  # the matrix products are fastest with a multiple of this many columns
NARROW, WIDE = (8, 8, 4), (8, 4, 4)  # records, runs and warps of a program of the softmax, with few and many classes
BLOCKS = 64  # Philox blocks, of four numbers each, that one program of an update draws


@dataclass(frozen=True, eq=False)
class DeviceBatch:
    """Runs that share every pass over the records, with their work arrays on the device."""

    stack: Stack
    seeds: tuple[int, ...]  # [R]

    @property
    def device(self) -> torch.device:
        """The device of the arrays."""
        return self.stack.x.device

    @property
    def runs(self) -> int:
        """Number of runs R."""
        return len(self.seeds)

    @property
    def size(self) -> int:
        """Number of parameters of a run, J K."""
        return int(self.stack.x.shape[2]) * self.stack.classes

    @cached_property
    def columns(self) -> int:
        """Number of columns C of the matrix products: R K, padded."""
        return -(-self.runs * self.stack.classes // COLUMNS) * COLUMNS

    @cached_property
    def stride(self) -> int:
        """Columns from one run to the next: K, or the next multiple of four if that fits."""
        aligned = -(-self.stack.classes // 4) * 4
        return aligned if self.runs * aligned <= self.columns else self.stack.classes

    @cached_property
    def tiles(self) -> int:
        """Number of programs that share the parameters of one run."""
        return -(-self.size // (4 * BLOCKS))

    @cached_property
    def keys(self) -> torch.Tensor:
        """The seed of every run, [R]."""
        return self.put(np.array(self.seeds, np.int64))

    @cached_property
    def scores(self) -> torch.Tensor:
        """Scores of every record, [P, n, C]."""
        return torch.zeros((*self.stack.x.shape[:2], self.columns), device=self.device)

    @cached_property
    def residual(self) -> torch.Tensor:
        """Residuals of every record in the layout of the matrix products, [P, n, C]; padding is 0."""
        return torch.zeros_like(self.scores, dtype=self.stack.x.dtype)

    @cached_property
    def gradient(self) -> torch.Tensor:
        """sum_i x_i r_i^T of every agent, [P, J, C]."""
        agents, _, features = self.stack.x.shape
        return torch.empty((agents, features, self.columns), device=self.device)

    def put(self, values: NDArray[Any]) -> torch.Tensor:
        """Copy an array to the device."""
        tensor: torch.Tensor = on_device(values, str(self.device))
        return tensor

    def factor(self, z: torch.Tensor) -> torch.Tensor:
        """Return z [P, R, J, K] in the layout of the matrix products, [P, J, C]; the updates keep that layout."""
        wide = torch.zeros_like(self.gradient, dtype=self.stack.x.dtype)
        by_run = wide[:, :, : self.runs * self.stride].unflatten(2, (self.runs, self.stride))
        by_run[..., : self.stack.classes] = z.transpose(1, 2)
        return wide

    def differentiate(self, factor: torch.Tensor, largest: torch.Tensor) -> None:
        """Compute `gradient` at z.

        Parameters
        ----------
        factor : tensor [P, J, C]
            z in the layout that `factor` returns.
        largest : tensor [P, R]
            Must be 0; becomes max_i ||x_i||_1 ||r_i||_1.
        """
        x, (agents, rows, columns), classes = self.stack.x, self.scores.shape, self.stack.classes
        _product(x, factor, self.scores)
        wide = triton.next_power_of_2(classes)
        records, side, warps = NARROW if wide <= 16 else WIDE
        softmax_residual[(-(-rows // records), -(-self.runs // side), agents)](
            *(self.scores, self.residual, self.stack.labels, self.stack.norm1, largest),
            *(rows, self.runs, classes, columns, self.stride, wide, records, side),
            num_warps=warps,
        )
        _product(x.transpose(1, 2), self.residual, self.gradient)


def _product(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Compute a batched matrix product that is accumulated in single precision."""
    if a.dtype == torch.float32:
        torch.bmm(a, b, out=out)
    elif a.is_cuda:
        torch.bmm(a, b, out_dtype=torch.float32, out=out)
    else:
        torch.bmm(a.float(), b.float(), out=out)
