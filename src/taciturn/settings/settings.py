"""The table of settings. A config file's keys, the command line's flags and Python's keywords are these names."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taciturn.algorithms import ALGORITHMS
from taciturn.algorithms.iadmm import RADII
from taciturn.algorithms.outp import NOISE_LEVELS
from taciturn.algorithms.server import SERVERS
from taciturn.data import DataOptions, source_for
from taciturn.data.dataset_source import check_memory
from taciturn.data.feature_maps import MAPS, NONE
from taciturn.data.partition import PARTITIONS
from taciturn.objectives import LOSSES, REGULARISERS, SETS
from taciturn.privacy.mechanisms import MECHANISMS
from taciturn.privacy.noise import HARDENED
from taciturn.privacy.noise import SOURCES as NOISE_SOURCES
from taciturn.privacy.sensitivity import ADJACENCIES
from taciturn.privacy.trust import TRUST
from taciturn.settings.checks import BACKENDS, COLLUDERS, MODES, device
from taciturn.settings.rules import (
    Rule,
    boolean,
    counts,
    integer,
    number_or,
    one_of,
    optional,
    path,
    real,
    several,
    text,
)

RHO_NAMES = ("auto", "dynamic")
ETA_NAMES = ("auto", "smooth", "nonsmooth", "strong", "level")


def setting(default: Any, rule: Rule, group: str, help: str) -> Any:  # noqa: A002
    """A field with its rule, its place in the help and its explanation."""
    return field(default=default, metadata={"rule": rule, "group": group, "help": help})


@dataclass(frozen=True)
class Settings:
    """Every setting of a run."""

    data: str = setting(
        "mnist14",
        path,
        "Data",
        "data set (taciturn data list), or a table: a .csv or .parquet file, or a folder with one file for each agent",
    )
    data_dir: str = setting(
        "", path, "Data", "folder the data sets lie in; empty: $TACITURN_DATA, else the user's cache folder"
    )
    schema: str = setting("", path, "Data", "schema file of a table")
    test: str = setting("", path, "Data", "table to test on, under the same schema")
    test_share: float = setting(
        0.0,
        real(0.0, 1.0, open_low=False),
        "Data",
        "about this share of the records is held out for testing",
    )
    agents: int = setting(10, integer(1), "Data", "number of agents, where the data set leaves it open")
    partition: str = setting(
        "auto",
        optional(one_of("partition", lambda: PARTITIONS)),
        "Data",
        "how records are dealt to agents: in-order, shuffled, hashed, dirichlet or column; auto: hashed for tables in "
        "certified mode, else in-order",
    )
    dirichlet_alpha: float = setting(0.5, real(0.0), "Data", "label skew of partition dirichlet: small is skewed")
    partition_key: int | str = setting(
        "auto",
        optional(integer(0, 2**128 - 1)),
        "Data",
        "key of partition, hold-out and sampling; auto: drawn for tables in certified mode into local-only, else 0",
    )
    sample_fraction: float = setting(
        0.05,
        real(0.0, math.nextafter(1.0, 2.0)),
        "Data",
        "femnist from all_data: share of the records drawn, writer by writer",
    )
    train_share: float = setting(
        0.9, real(0.0, 1.0), "Data", "femnist from all_data: share of a writer's records to train on"
    )
    intercept: bool = setting(False, boolean, "Data", "add a constant feature (on by default for tables)")
    features: str = setting(
        "auto",
        optional(one_of("feature map", lambda: (NONE, *MAPS))),
        "Data",
        "public feature map of every record: none, unit, fourier, for images pixels, scattering; auto: scattering for "
        "images, none in mode paper and for tables",
    )
    memory: str = setting(
        "auto",
        check_memory,
        "Data",
        "memory for the records, as 500MB or 2GB; what is more lies in files in $TMPDIR; auto: half of the machine's",
    )

    loss: str = setting(
        "auto",
        optional(one_of("loss", lambda: LOSSES)),
        "Problem",
        "softmax, hinge or squared; auto: softmax for classes, squared for numbers",
    )
    regulariser: str = setting(
        "l2", one_of("regulariser", lambda: REGULARISERS), "Problem", "l2 (sum of squares) or l1"
    )
    beta: float = setting(1e-6, real(0.0, open_low=False), "Problem", "weight of the regulariser")
    set: str = setting(
        "all", one_of("set", lambda: SETS), "Problem", "feasible set of the parameters: all, box or l2-ball"
    )
    set_size: float = setting(1.0, real(0.0), "Problem", "half the side of the box, or the radius of the ball")

    algorithm: tuple[str, ...] = setting(
        (),
        several(one_of("algorithm", lambda: ALGORITHMS), empty=True),
        "Algorithm",
        "one or more of taciturn algorithms, with commas between; by default dpgd, in mode paper objpm",
    )
    rounds: int | str = setting(
        "auto", optional(integer(1, 10**9)), "Algorithm", "T, communication rounds; auto: as planned (taciturn plan)"
    )
    local_updates: int | str = setting(
        "auto", optional(integer(1)), "Algorithm", "E, local updates a round; auto: the method's own (objp 1, objpm 10)"
    )
    rho: float | str = setting(
        "auto",
        number_or("rho", RHO_NAMES),
        "Algorithm",
        "penalty (erm methods: added convexity): a number, dynamic, or auto",
    )
    rho_c1: float = setting(
        2.0, real(0.0, open_low=False), "Algorithm", "dynamic rho: c1 of min(max, c1 growth^floor(t/tc) + c2/epsilon)"
    )
    rho_c2: float = setting(5.0, real(0.0, open_low=False), "Algorithm", "dynamic rho: c2")
    rho_tc: int = setting(10000, integer(1), "Algorithm", "dynamic rho: tc, rounds between two growths")
    rho_growth: float = setting(1.2, real(1.0, open_low=False), "Algorithm", "dynamic rho: growth")
    rho_max: float = setting(1e9, real(0.0), "Algorithm", "dynamic rho: max")
    eta: float | str = setting(
        "auto",
        number_or("eta", ETA_NAMES),
        "Algorithm",
        "proximity: smooth, nonsmooth or strong as in the theorems, level (a, falling at the end), a number, or auto",
    )
    eta_scale: float = setting(1.0, real(0.0), "Algorithm", "a, which multiplies eta")
    smoothness: float | str = setting(
        "auto",
        optional(real(0.0)),
        "Algorithm",
        "L of eta smooth; auto: from public bounds, in mode paper from data",
    )
    strong_convexity: float | str = setting(
        "auto", optional(real(0.0)), "Algorithm", "alpha of eta strong; auto: the regulariser's"
    )
    radius: str = setting(
        "constant",
        one_of("radius", lambda: RADII),
        "Algorithm",
        "objt: trust region of radius a (constant) or a/t^2 (decreasing)",
    )
    radius_scale: float = setting(1.0, real(0.0), "Algorithm", "objt: a")
    tolerance: float = setting(
        1e-8, real(0.0), "Algorithm", "admm and erm methods: where the subproblem's gradient counts as zero"
    )
    sampling_rate: float | str = setting(
        "auto",
        optional(real(0.0, math.nextafter(1.0, 2.0))),
        "Algorithm",
        "dpsgd, fedavg, fedprox: probability of a record to be in an update's sample; auto: dpsgd 0.1, the others 1",
    )
    plugins: tuple[str, ...] = setting(
        (),
        several(path, empty=True),
        "Algorithm",
        "Python files that add algorithms, losses or other components of your own, with commas between",
    )

    mode: str = setting(
        "certified",
        one_of("mode", lambda: MODES),
        "Privacy",
        "certified: a total (epsilon, delta) that holds; paper: epsilon per local update, no end-to-end guarantee",
    )
    total_epsilon: tuple[float, ...] = setting(
        (),
        several(real(0.0, infinite=True), empty=True),
        "Privacy",
        "certified: budget of the whole run, one or more, by default 1; inf: no noise",
    )
    delta: float = setting(
        1e-6, real(0.0, 1.0), "Privacy", "certified: delta of the whole run; paper: nominal delta of outp's releases"
    )
    mechanism: str = setting(
        "gaussian", one_of("mechanism", lambda: MECHANISMS), "Privacy", "certified: gaussian or laplace noise"
    )
    adjacency: str = setting(
        "add-remove",
        one_of("adjacency", lambda: ADJACENCIES),
        "Privacy",
        "certified: neighbours differ by one unit being there (add-remove) or being another (replace-one)",
    )
    clip: float | str = setting(
        "auto", optional(real(0.0)), "Privacy", "certified: L2 bound on a record's gradient; auto: as planned"
    )
    clip_l1: float | str = setting(
        "auto",
        optional(real(0.0, infinite=True)),
        "Privacy",
        "certified, laplace: L1 bound on a record's gradient; auto: sqrt(features) times clip",
    )
    noise: str = setting(
        "auto",
        optional(one_of("noise", lambda: NOISE_SOURCES)),
        "Privacy",
        "certified: hardened (exact, from the operating system) or seeded (a simulation, which protects nobody); auto: "
        "seeded for the published data sets and where a seed is given, else hardened",
    )
    seed: int | str = setting(
        "auto",
        optional(integer(0, 2**62)),
        "Privacy",
        "the first seed of the noise, which makes a simulation; auto: 1 where noise is seeded",
    )
    noise_multiplier: float | str = setting(
        "auto",
        optional(real(0.0)),
        "Privacy",
        "certified: noise scale over L2 sensitivity; auto: calibrated to spend the whole budget in all rounds",
    )
    trust: str = setting(
        "agents",
        one_of("trust", lambda: TRUST),
        "Privacy",
        "certified: agents (noise at each, nobody is trusted), secure-sum (only sums are seen) or server (is trusted)",
    )
    colluders: int = setting(
        COLLUDERS,
        integer(0),
        "Privacy",
        "secure-sum: how many agents may tell the server what they know; the noise of the others is enough",
    )
    total_records: int | str = setting(
        "auto",
        optional(integer(1)),
        "Privacy",
        "certified: public number of records in all, a normaliser; auto: a published data set's own",
    )
    records_max: int | Mapping[str, int] | str = setting(
        "auto",
        optional(counts),
        "Privacy",
        "certified: public bound on an agent's records, one number or north=300,south=400; auto: total-records",
    )
    ledger: str = setting(
        "",
        path,
        "Privacy",
        "certified: ledger of the data over all studies (taciturn ledger init) to reserve the plan in",
    )
    epsilon: tuple[float, ...] = setting(
        (),
        several(real(0.0, infinite=True), empty=True),
        "Privacy",
        "paper: nominal budget of every local update, one or more, by default 1; inf: no noise",
    )
    outp_noise: str = setting(
        "published",
        one_of("outp-noise", lambda: NOISE_LEVELS),
        "Privacy",
        "outp: noise as published, by the published formula, or calibrated to record-bound",
    )
    record_bound: float | str = setting(
        "auto",
        optional(real(0.0)),
        "Privacy",
        "public bound on a record's length, for methods that scale records instead of clipping; auto: a quarter of "
        "what the ranges allow",
    )

    seeds: int = setting(
        1, integer(1, 10**6), "Engine", "number of noise seeds, run side by side, where noise is seeded"
    )
    precision: str = setting(
        "float64", one_of("precision", lambda: ("float32", "float64")), "Engine", "float64 (reference) or float32"
    )
    backend: str = setting(
        "auto",
        one_of("backend", lambda: BACKENDS),
        "Engine",
        "compiled, numpy (the reference) or torch (pip install 'taciturn[torch]'); auto: compiled where it was built",
    )
    threads: int | str = setting(
        "auto",
        optional(integer(1, 4096)),
        "Engine",
        "compiled: threads to use; auto: all cores. Results do not depend on it",
    )
    device: str = setting("cpu", device, "Engine", "torch: where it computes, cpu, cuda or cuda:N")
    tf32: bool = setting(
        False, boolean, "Engine", "torch on a GPU, mode paper: float32 matrix products in TF32, of 11 bits"
    )
    server: str = setting(
        "auto",
        optional(one_of("server state", lambda: SERVERS)),
        "Engine",
        "what the server keeps: full (every agent's z and dual) or sums; auto: sums, as every agent answers",
    )
    averages: bool = setting(False, boolean, "Engine", "write the theorems' averages of w and z to averages.npz")
    evaluate_every: int = setting(1, integer(1), "Engine", "rounds between two evaluations")
    checkpoint_seconds: float = setting(10.0, real(0.0, open_low=False), "Engine", "seconds between two checkpoints")

    name: str = setting("", text, "Output", "name in the run folder's default path")
    out: str = setting("", path, "Output", "the run folder itself; it must not exist. Default: runs/<time>-<name>")

    @property
    def private(self) -> bool:
        """Whether its records are private: a table in certified mode."""
        return self.mode == "certified" and not source_for(self.data).published

    @property
    def called(self) -> str:
        """What its run is called: the name it was given, that of its folder, or its data and algorithms."""
        return self.name or Path(self.out).name or f"{Path(self.data).stem}-{'-'.join(self.algorithm)}"

    @property
    def agent_names(self) -> tuple[str, ...]:
        """The agents that records-max names, if it does."""
        return tuple(self.records_max) if isinstance(self.records_max, Mapping) else ()

    def data_options(self, key: int | None = None) -> DataOptions:
        """The part the data layer asks for; `key`: the partition's, where it was drawn."""
        names = [option.name for option in dataclasses.fields(DataOptions) if option.name != "one_owner"]
        options: dict[str, Any] = {name: getattr(self, name) for name in names}
        if key is not None or self.partition_key == "auto":
            options["partition_key"] = key or 0
        return DataOptions(**options)

    def written(self) -> dict[str, Any]:
        """Every setting as it is written down: not where that is, and no seed where the noise has none."""
        left_out = {"out"} | ({"seed", "seeds"} if self.noise == HARDENED else set())
        values = {name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(self).items()}
        return {name: value for name, value in values.items() if name not in left_out}

    def to_toml(self) -> str:
        """The complete configuration, every default spelled out."""
        import tomli_w

        return tomli_w.dumps(self.written())


FIELDS = {entry.name: entry for entry in dataclasses.fields(Settings)}
