"""Training with torch: checks, moving values to a device, and the precision of matrix products."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, util
from typing import Any, TypeVar

import numpy as np

from taciturn.core.arrays import backing_file
from taciturn.errors import InputError
from taciturn.types import Dataset

T = TypeVar("T")
EXTRA = "pip install 'taciturn[torch]'"


def check_device(device: str) -> None:
    """Raise InputError if torch is not installed or does not find the device."""
    cuda = _torch().cuda
    if device == "cpu":
        return
    if not cuda.is_available():
        raise InputError(f"--device is {device}, but torch finds no CUDA device; the choices are cpu")
    number, count = int(device.partition(":")[2] or 0), cuda.device_count()
    if util.find_spec("triton") is None:
        raise InputError(f"--device is {device}, but noise on a GPU needs triton, which is not installed: {EXTRA}")
    if number >= count:
        names = ", ".join(f"cuda:{i}" for i in range(count))
        raise InputError(f"--device is {device}, which torch does not find; the choices are cpu, {names}")


def on_device(value: T, device: str) -> T:
    """Return the value with every numpy array, also inside dataclasses and tuples, as a tensor on the device."""
    converted: Any = value
    if isinstance(value, np.ndarray):
        converted = _torch().as_tensor(np.require(value, requirements=("C", "W")), device=device)
    elif type(value) is tuple:
        converted = tuple(on_device(item, device) for item in converted)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        converted = dataclasses.replace(converted, **{name: on_device(item, device) for name, item in held.items()})
    found: T = converted
    return found


def check_in_memory(dataset: Dataset) -> None:
    """Raise InputError if records are memory-mapped: torch needs them in memory."""
    if any(backing_file(shard.x) is not None for shard in dataset.train):
        raise InputError(
            "the records are memory-mapped, and torch needs them in memory; raise --memory, or use --backend compiled "
            "or numpy"
        )


@contextmanager
def matmul_precision(tf32: bool) -> Iterator[None]:
    """Set whether a GPU may round the factors of float32 matrix products to TF32's 11 bits, within the block.

    Raises
    ------
    InputError
        If the GPU runs out of memory in the block.
    """
    torch = _torch()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise InputError(
            "the GPU's memory is too small for so many runs at once: use fewer seeds or budgets"
        ) from error
    finally:
        torch.set_float32_matmul_precision(before)


def _torch() -> Any:
    try:
        return import_module("torch")
    except ImportError as error:
        raise InputError(f"--backend torch needs torch, which is not installed: {EXTRA}") from error
