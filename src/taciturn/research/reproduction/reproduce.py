"""One data set's part of the paper: from a plan to a folder with its summary."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable

from taciturn.data import DataOptions, fingerprint, load
from taciturn.errors import InputError, unknown_name
from taciturn.research.reproduction.compute import ReproductionProgress, compute
from taciturn.research.reproduction.paper_runs import ReproductionPlan
from taciturn.research.reproduction.published import Summary
from taciturn.research.reproduction.results import ReproductionFolder, summarise
from taciturn.research.reproduction.stages import PRODUCTS, FusedEngine, PlainEngine, StageEngine
from taciturn.settings.checks import check_device as checked_device
from taciturn.training import torch_backend
from taciturn.types import Dataset
from taciturn.version import VERSION


def reproduce(
    plan: ReproductionPlan,
    folder: ReproductionFolder,
    device: str = "cpu",
    products: str | None = None,
    data_dir: str = "",
    watch: Callable[[ReproductionProgress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> Summary:
    """Compute the stages that are missing, and write the summary."""
    check_device(device, products)
    dataset = load(DataOptions(data=plan.data, data_dir=data_dir, precision="float32"))
    engine: StageEngine = (
        PlainEngine(dataset) if device == "cpu" else FusedEngine(dataset, device, products or PRODUCTS[0])
    )
    with folder.locked():
        folder.begin(_facts(dataset, engine) | plan.as_dict())
        compute(plan, dataset, engine, folder, watch, stop)
        summary = summarise(folder)
        folder.write_summary(summary)
    return summary


def has_gpu() -> bool:
    """Return whether the fused engine can run on this machine."""
    if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
        return False
    return bool(importlib.import_module("torch").cuda.is_available())


def check_device(device: str, products: str | None) -> None:
    """Check the device and its arithmetic.

    Raises
    ------
    InputError
        If the device does not exist, or matrix products are chosen where there is no choice.
    """
    if products is not None and products not in PRODUCTS:
        raise unknown_name("products", products, PRODUCTS)
    if checked_device("device", device) == "cpu":
        if products is not None:
            raise InputError(f"--products is {products}, which needs a GPU; a CPU uses float32")
        return
    if importlib.util.find_spec("triton") is None:
        raise InputError(f"--device is {device}, which needs torch and triton: pip install 'taciturn[torch]'")
    torch_backend.check_device(device)


def _facts(dataset: Dataset, engine: StageEngine) -> dict[str, object]:
    return {
        "taciturn": VERSION,
        "device": engine.place,
        "digest": fingerprint(dataset),
        "agents": len(dataset.agents),
        "records": dataset.records,
        "test_records": 0 if dataset.test is None else len(dataset.test.x),
    }
