"""Other federated systems on the same task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from taciturn.types import Shard

SETTINGS = {
    "mode": "step",
    "num_local_steps": 1,
    "optim": "SGD",
    "optim_args": {"lr": 0.1},
    "init_penalty": 7.0,
    "use_dp": True,
    "epsilon": 1.0,
    "clip_value": 1.0,
    "clip_norm": 1,
    "train_data_shuffle": False,
}


class SilentLogger:
    """A logger that prints nothing."""

    def log_title(self, titles: Any) -> None:
        """Ignore the message."""

    def log_content(self, contents: Any) -> None:
        """Ignore the message."""


def installed() -> bool:
    """Return whether APPFL can run here."""
    return all(find_spec(name) is not None for name in ("appfl", "torch"))


def rounds(shards: Sequence[Shard]) -> Callable[[], Any]:
    """Return a function that runs one more round: all trainers, one step on all their records, then the aggregator."""
    from appfl.algorithm.aggregator.iiadmm_aggregator import IIADMMAggregator
    from omegaconf import DictConfig

    shape = shards[0].x.shape[1], shards[0].y.shape[1]
    trainers = [_trainer(shard, shape) for shard in shards]
    server = IIADMMAggregator(
        _model(shape), DictConfig({"optimize_memory": False}), SilentLogger()
    )  # True: collects garbage each round

    def play() -> Any:
        state = server.get_parameters()
        sent = {}
        for p, trainer in enumerate(trainers):
            trainer.load_parameters(state)
            trainer.train()
            sent[p] = trainer.get_parameters()
        return server.aggregate(sent)

    return play


def _trainer(shard: Shard, shape: tuple[int, int]) -> Any:
    import torch
    from appfl.algorithm.trainer.iiadmm_trainer import IIADMMTrainer
    from omegaconf import DictConfig

    x = torch.from_numpy(np.array(shard.x, np.float32))
    records = torch.utils.data.TensorDataset(x, torch.from_numpy(shard.y.argmax(axis=1)))
    trainer = IIADMMTrainer(
        _model(shape),
        torch.nn.CrossEntropyLoss(),
        lambda true, scores: float((scores.argmax(axis=1) == true).mean()),
        records,
        train_configs=DictConfig(SETTINGS | {"train_batch_size": len(x)}),
        logger=SilentLogger(),
    )
    trainer.set_weight(1.0)
    return trainer


def _model(shape: tuple[int, int]) -> Any:
    import torch

    return torch.nn.Linear(*shape, bias=False)
