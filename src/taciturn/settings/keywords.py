"""The settings as keywords with types, for editors and type checkers; a test compares them with the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

from taciturn.data.frames import Frames
from taciturn.data.schema import Schema
from taciturn.data.schema_builder import SchemaBuilder


class SettingKeywords(TypedDict, total=False):
    """Keywords of `taciturn.run`, `plan` and `dry_run`: every setting by name (see `Settings`).

    Python takes more for three of them: data frames for `data` and `test`, and a `Schema` for `schema`.
    """

    data: str | Path | Frames
    data_dir: str | Path
    schema: str | Path | Schema | SchemaBuilder
    test: str | Path | Frames
    test_share: float
    agents: int
    partition: str
    dirichlet_alpha: float
    partition_key: int | Literal["auto"]
    sample_fraction: float
    train_share: float
    intercept: bool
    features: str
    memory: str

    loss: str
    regulariser: str
    beta: float
    set: str
    set_size: float

    algorithm: str | Sequence[str]
    rounds: int | Literal["auto"]
    local_updates: int | Literal["auto"]
    rho: float | str
    rho_c1: float
    rho_c2: float
    rho_tc: int
    rho_growth: float
    rho_max: float
    eta: float | str
    eta_scale: float
    smoothness: float | Literal["auto"]
    strong_convexity: float | Literal["auto"]
    radius: str
    radius_scale: float
    tolerance: float
    sampling_rate: float | Literal["auto"]
    plugins: str | Path | Sequence[str | Path]

    mode: Literal["certified", "paper"]
    total_epsilon: float | str | Sequence[float]  # a text has commas: "1,inf"
    delta: float
    mechanism: str
    adjacency: str
    clip: float | Literal["auto"]
    clip_l1: float | Literal["auto"]
    noise: str
    seed: int | Literal["auto"]
    noise_multiplier: float | Literal["auto"]
    trust: str
    colluders: int
    missing: int
    reserve: int
    evaluations: int
    evaluation_epsilon: float | Literal["auto"]
    total_records: int | Literal["auto"]
    records_max: int | str | Mapping[str, int]
    ledger: str | Path
    epsilon: float | str | Sequence[float]
    outp_noise: str
    record_bound: float | Literal["auto"]

    seeds: int
    precision: Literal["float32", "float64"]
    backend: str
    threads: int | Literal["auto"]
    device: str
    tf32: bool
    server: str
    simulate: str
    averages: bool
    evaluate_every: int | Literal["auto"]
    checkpoint_seconds: float

    name: str
    out: str | Path
