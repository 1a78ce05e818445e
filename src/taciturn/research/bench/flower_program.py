"""Flower's simulation: federated averaging with one full-batch gradient step at every client, without noise.

`main` runs in a separate process, because Ray starts others and both print a lot. It reads the shards x0.npy, y0.npy
and so on from a folder, and writes the time and the model's size after every round to rounds.json there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.errors import InputError
from taciturn.kernels.threads import cores
from taciturn.types import Shard

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
STEP = 0.1


def installed() -> bool:
    """Return whether Flower's simulation can run here."""
    return all(find_spec(name) is not None for name in ("flwr", "ray", "torch"))


def seconds_of_rounds(shards: Sequence[Shard], rounds: int, folder: Path) -> list[float]:
    """Simulate, and return the seconds of every round."""
    for p, shard in enumerate(shards):
        np.save(folder / f"x{p}.npy", np.asarray(shard.x, np.float32))
        np.save(folder / f"y{p}.npy", shard.y.argmax(axis=1))
    program = f"from {__name__} import main; main({str(folder)!r}, {len(shards)}, {rounds})"  # workers import it too
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | QUIET, check=False)
    if done.returncode or not (folder / "rounds.json").is_file():
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise InputError(f"Flower's simulation did not work: {last}")
    ticks: list[tuple[float, float]] = json.loads((folder / "rounds.json").read_text(encoding="utf-8"))
    if len({size for _, size in ticks}) < rounds + 1:  # it goes on when all its clients fail
        raise InputError("Flower's simulation did not work: there are rounds after which its model is the same")
    return [end - begin for (begin, _), (end, _) in pairwise(ticks)]


@cache
def _records(folder: str, client: int) -> tuple[Any, Any]:
    """Return a client's records; a worker caches those it has read."""
    import torch

    x, y = (np.load(Path(folder) / f"{name}{client}.npy") for name in "xy")
    return torch.from_numpy(x), torch.from_numpy(y)


def _client(folder: str) -> Any:
    import torch
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator, unused-ignore]
    def train(message: Any, context: Any) -> Any:
        x, y = _records(folder, int(context.node_config["partition-id"]))
        w = message.content["arrays"].to_torch_state_dict()["w"].requires_grad_()
        (gradient,) = torch.autograd.grad(torch.nn.functional.cross_entropy(x @ w, y), w)
        arrays = ArrayRecord({"w": (w - STEP * gradient).detach()})
        return Message(
            content=RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": len(x)})}), reply_to=message
        )

    return app


def _server(rounds: int, features: int, classes: int, clock: list[tuple[float, float]]) -> Any:
    import torch
    from flwr.app import ArrayRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg

    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def main(grid: Any, context: Any) -> None:
        first = ArrayRecord({"w": torch.zeros((features, classes))})
        strategy = FedAvg(fraction_evaluate=0.0)
        strategy.start(grid=grid, initial_arrays=first, num_rounds=rounds, evaluate_fn=tick)

    def tick(t: int, arrays: Any) -> None:
        """Called before the first round, and after each."""
        clock.append((time.perf_counter(), float(arrays.to_torch_state_dict()["w"].abs().sum())))

    return app


def main(folder: str, clients: int, rounds: int) -> None:
    """Simulate with one worker for each core."""
    from flwr.simulation import run_simulation

    clock: list[tuple[float, float]] = []
    features = np.load(Path(folder) / "x0.npy", mmap_mode="r").shape[1]
    classes = 1 + max(int(np.load(Path(folder) / f"y{p}.npy").max()) for p in range(clients))
    resources = {"init_args": {"num_cpus": cores()}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(_server(rounds, features, classes, clock), _client(folder), clients, backend_config=resources)
    (Path(folder) / "rounds.json").write_text(json.dumps(clock), encoding="utf-8")
