"""Training on torch, where it is installed: what it needs, and the way of values onto its devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from taciturn.core.arrays import backing_file
from taciturn.errors import InputError
from taciturn.types import Dataset

T = TypeVar("T")


def check_device(device: str) -> None:
    """Refuse a device that is not here, before anything is read or written."""
    cuda = _torch().cuda
    if device == "cpu":
        return
    if not cuda.is_available():
        raise InputError(f"device is {device}, but torch finds no CUDA device here: there is cpu")
    number, there = int(device.partition(":")[2] or 0), cuda.device_count()
    if number >= there:
        names = ", ".join(f"cuda:{i}" for i in range(there))
        raise InputError(f"device is {device}, but torch does not find it here: there are cpu, {names}")


def on_device(value: T, device: str) -> T:
    """The same value with every numpy array in it a tensor on the device; dataclasses and tuples are gone through."""
    moved: Any = value
    if isinstance(value, np.ndarray):
        moved = _torch().as_tensor(np.require(value, requirements=("C", "W")), device=device)
    elif type(value) is tuple:
        moved = tuple(on_device(item, device) for item in moved)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        moved = dataclasses.replace(moved, **{name: on_device(item, device) for name, item in held.items()})
    found: T = moved
    return found


def refuse_files(dataset: Dataset) -> None:
    """torch computes with what is in memory."""
    if any(backing_file(shard.x) is not None for shard in dataset.train):
        raise InputError(
            "the records lie in files, and torch needs them in memory: raise --memory, "
            "or use --backend compiled or numpy"
        )


@contextmanager
def matrix_products(tf32: bool) -> Iterator[None]:
    """Within it, whether a GPU may round the factors of float32 matrix products to TF32's 11 bits.

    A GPU whose memory is too small is named in one sentence.
    """
    torch = _torch()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    except torch.OutOfMemoryError:
        raise InputError("the GPU's memory is too small for so many runs at once: use fewer seeds or budgets") from None
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def current(device: str) -> Iterator[None]:
    """Within it, what is launched without naming a device goes to this one."""
    if device == "cpu":
        yield
        return
    with _torch().cuda.device(device):
        yield


def _torch() -> Any:
    try:
        return import_module("torch")
    except ImportError:
        raise InputError("backend torch needs torch, which is not installed: pip install 'taciturn[torch]'") from None
