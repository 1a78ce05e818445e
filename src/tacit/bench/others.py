"""What Tacit's round is held against: bare matrix products, a bare read, and the gradients of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.threads import cores
from tacit.types import Array

Work: TypeAlias = Callable[[], Any]

NUMPY_PRODUCTS, TORCH_PRODUCTS = "two matrix products, numpy", "two matrix products, torch"
SKLEARN_GRADIENT, TORCH_GRADIENT = "gradient alone, scikit-learn", "gradient alone, torch"


def products(x: Array, columns: int) -> dict[str, Work]:
    """x w and x^T r for w [J, columns], the two products no step can do without; by numpy and, if there, torch."""
    generator = np.random.default_rng(2)
    w = generator.random((x.shape[1], columns), np.float32)
    r = generator.random((len(x), columns), np.float32)
    found: dict[str, Work] = {NUMPY_PRODUCTS: lambda: (x @ w, x.T @ r)}
    if find_spec("torch") is not None:
        import torch  # noqa: PLC0415

        tx, tw, tr = (torch.from_numpy(a) for a in (x, w, r))
        found[TORCH_PRODUCTS] = lambda: (tx @ tw, tx.T @ tr)
    return found


def gradients(x: Array, labels: NDArray[np.int64], classes: int) -> dict[str, Work]:
    """The gradient of the same loss by those libraries that are installed: no agents, no noise, no update."""
    found: dict[str, Work] = {}
    if find_spec("sklearn") is not None:
        found[SKLEARN_GRADIENT] = _sklearn(x, labels, classes)
    if find_spec("torch") is not None:
        found[TORCH_GRADIENT] = _torch(x, labels, classes)
    return found


def _sklearn(x: Array, labels: NDArray[np.int64], classes: int) -> Work:
    from sklearn._loss import HalfMultinomialLoss  # noqa: PLC0415
    from sklearn.linear_model._linear_loss import LinearModelLoss  # noqa: PLC0415

    loss = LinearModelLoss(base_loss=HalfMultinomialLoss(n_classes=classes), fit_intercept=False)
    coef = np.zeros((classes, x.shape[1]), np.float32, order="F")
    y, threads = labels.astype(np.float32), cores()
    return lambda: loss.loss_gradient(coef, x, y, n_threads=threads)


def _torch(x: Array, labels: NDArray[np.int64], classes: int) -> Work:
    import torch  # noqa: PLC0415

    tx, ty = torch.from_numpy(x), torch.from_numpy(labels)
    w = torch.zeros((x.shape[1], classes), requires_grad=True)

    def step() -> Any:
        loss = torch.nn.functional.cross_entropy(tx @ w, ty)
        return torch.autograd.grad(loss, w)

    return step


def read(size: int) -> Work:
    """Read that many bytes once, on all cores: nothing that looks at every record is faster."""
    buffer = np.arange(max(1, size // 8), dtype=np.uint64)
    parts = np.array_split(buffer, cores())
    pool = ThreadPoolExecutor(cores())
    return lambda: list(pool.map(np.bitwise_or.reduce, parts))


SQUARE = 1536  # rows and columns: large enough that the processor multiplies as fast as it can


def square_product() -> Work:
    """A product of two square matrices: the pace at which this machine multiplies."""
    a = np.random.default_rng(3).random((SQUARE, SQUARE), np.float32)
    return lambda: a @ a


def without(*packages: str) -> tuple[str, ...]:
    """A line for each of these packages that is not installed."""
    lacking = [name for name in packages if find_spec(name) is None]
    return tuple(f"{name} is not installed: left out" for name in lacking)
