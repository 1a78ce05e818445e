"""The same study in one process: what a federation came to is compared with it, number by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tacit.engine.simulate import simulate, start
from tacit.federation.agreement import Agreement
from tacit.privacy.noise import SeededNoise
from tacit.results.folder import RunFolder, read_lines
from tacit.types import Array, Shard


class Replayed(NamedTuple):
    """After the last round."""

    w: Array  # [J, 1, K]  the model
    lam: Array  # [P, J, 1, K]  the duals


def replay(agreement: Agreement, shards: Sequence[Shard], seed: int, answered: Sequence[Sequence[str]]) -> Replayed:
    """Simulate with seeded sites and the recorded participation: `answered` are the sites of each round."""
    agents, batch = agreement.terms.agents, agreement.part.batch
    rounds = simulate(
        agreement.algorithm,
        shards,
        lambda p, t: SeededNoise((seed,), p, t, batch.streams),
        len(answered),
        start(shards, 1, averages=False),
        lambda t: [agents.index(site) for site in answered[t - 1]],
    )
    *_, last = rounds
    return Replayed(last.w, last.state.server.lam)


def participation(folder: RunFolder) -> list[list[str]]:
    """Who answered in each round of a federated run."""
    return [row["answered"] for row in read_lines(folder.path / "rounds.jsonl")]
