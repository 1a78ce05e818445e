"""The table of settings. Config file keys, command-line flags and Python keywords all use these names."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from taciturn.algorithms import ALGORITHMS
from taciturn.algorithms.iadmm import RADII
from taciturn.algorithms.outp import NOISE_LEVELS
from taciturn.algorithms.server import SERVERS
from taciturn.data import DataOptions, source_for
from taciturn.data.dataset_source import check_memory
from taciturn.data.feature_maps import MAPS, NONE
from taciturn.data.memory_names import PREFIX
from taciturn.data.partition import PARTITIONS
from taciturn.objectives import LOSSES, REGULARISERS, SETS
from taciturn.privacy.mechanisms import MECHANISMS
from taciturn.privacy.noise import HARDENED
from taciturn.privacy.noise import SOURCES as NOISE_SOURCES
from taciturn.privacy.sensitivity import ADJACENCIES
from taciturn.privacy.trust import SECURE_SUM, TRUST, noise_share
from taciturn.settings.checks import BACKENDS, COLLUDERS, MODES, SIMULATIONS, SUMS, check_device
from taciturn.settings.rules import (
    Rule,
    boolean,
    counts,
    integer,
    list_of,
    number_or,
    one_of,
    optional,
    path,
    real,
    text,
)

RHO_NAMES = ("auto", "dynamic")
ETA_NAMES = ("auto", "smooth", "nonsmooth", "strong", "level")
EVALUATIONS = 100  # of a long study, about
AT_MOST_1 = math.nextafter(1.0, 2.0)


def _group(group: str) -> Callable[[Any, Rule], Any]:
    """Return a function that declares a setting of this group from its default and its rule."""
    return lambda default, rule: field(default=default, metadata={"rule": rule, "group": group})


_data, _problem, _algorithm, _privacy, _engine, _output = map(
    _group, ("Data", "Problem", "Algorithm", "Privacy", "Engine", "Output")
)


@dataclass(frozen=True)
class Settings:
    """All settings of a run.

    Create one with `resolve` or `resolve_given`, which parse values, add the defaults of the mode and of the data set,
    and refuse invalid combinations. The metadata of each field holds its `rule`, its `group`, and its description
    below as `help`.

    Parameters
    ----------
    data : str
        data set (taciturn data list), or a table: a .csv or .parquet file, or a folder with one file per agent
    data_dir : str
        folder of the data sets; empty: $TACITURN_DATA, else the user's cache folder
    schema : str
        schema file of a table
    test : str
        table to test on, with the same schema
    test_share : float
        share of the records to hold out for testing
    agents : int
        number of agents, if the data set does not determine it
    partition : str
        how records are partitioned among agents: in-order, shuffled, hashed, dirichlet or column; auto: hashed
        for tables in certified mode, else in-order
    dirichlet_alpha : float
        label skew of partition dirichlet: smaller is more skewed
    partition_key : int | str
        key of partition, hold-out, sampling; auto: for tables in certified mode random (kept in local-only),
        else 0
    sample_fraction : float
        femnist from all_data: share of the records to sample
    train_share : float
        femnist from all_data: share of a writer's records to train on
    intercept : bool
        add a constant feature (on by default for tables)
    features : str
        public feature map: none, unit, fourier, for tables bins, and for images pixels or scattering; auto: bins
        for tables and scattering for images in certified mode, else none
    memory : str
        memory limit for records, e.g. 500MB; larger data is memory-mapped from files in $TMPDIR; auto: half of
        the machine's memory
    loss : str
        softmax, hinge or squared; auto: softmax for classes, squared for numbers
    regulariser : str
        l2 (sum of squares) or l1
    beta : float
        weight of the regulariser
    set : str
        feasible set of the parameters: all, box or l2-ball
    set_size : float
        half the side of the box, or the radius of the ball
    algorithm : tuple[str, ...]
        one or more algorithms (taciturn algorithms), separated by commas; default: additive for tables, else
        dpgd; in mode paper objpm
    rounds : int | str
        T, communication rounds; auto: planned (taciturn plan)
    local_updates : int | str
        E, local updates per round; auto: the method's default (objp 1, objpm 10)
    rho : float | str
        penalty (erm methods: added convexity): a number, dynamic, or auto
    rho_c1 : float
        dynamic rho: c1 of min(max, c1 growth^floor(t/tc) + c2/epsilon)
    rho_c2 : float
        dynamic rho: c2
    rho_tc : int
        dynamic rho: tc, the rounds between two increases
    rho_growth : float
        dynamic rho: growth
    rho_max : float
        dynamic rho: max
    eta : float | str
        step size: smooth, nonsmooth or strong as in the theorems, level (a, falling at the end), a number, or
        auto
    eta_scale : float
        a, the factor on eta
    smoothness : float | str
        L of eta smooth; auto: from public bounds, in mode paper from the data
    strong_convexity : float | str
        alpha of eta strong; auto: the regulariser's
    radius : str
        objt: trust region of radius a (constant) or a/t^2 (decreasing)
    radius_scale : float
        objt: a
    tolerance : float
        admm and erm methods: gradient norm below which the subproblem counts as solved
    sampling_rate : float | str
        dpsgd, fedavg, fedprox: probability that a record is in an update's sample; auto: dpsgd 0.1, the others
        1
    plugins : tuple[str, ...]
        Python files that register your own algorithms, losses or other components, separated by commas
    mode : str
        certified: a total (epsilon, delta) guarantee; paper: epsilon per local update, no end-to-end guarantee
    total_epsilon : tuple[float, ...]
        certified: budget of the whole run, one or more values; default 1; inf: no noise
    delta : float
        certified: delta of the whole run; paper: nominal delta of outp's releases
    mechanism : str
        certified: gaussian or laplace noise
    adjacency : str
        certified: neighbouring data sets differ by adding or removing one unit (add-remove) or by replacing one
        (replace-one)
    clip : float | str
        certified: L2 bound on a record's gradient; auto: planned
    clip_l1 : float | str
        certified, laplace: L1 bound on a record's gradient; auto: sqrt(features) times clip
    noise : str
        certified: hardened (exact, from the operating system's randomness) or seeded (a simulation without
        protection); auto: seeded for published data sets and if a seed is given, else hardened
    seed : int | str
        first seed of the noise, which makes the run a simulation; auto: 1 if noise is seeded
    noise_multiplier : float | str
        certified: noise scale divided by L2 sensitivity; auto: calibrated to spend the whole budget in all
        rounds
    trust : str
        certified: who is trusted: agents (each adds its own noise), secure-sum (the server sees only sums) or
        server
    colluders : int
        secure-sum: number of agents that may collude with the server; the noise of the others suffices
    missing : int
        secure-sum: number of agents that may be missing from a sum; the noise of those left suffices
    reserve : int
        secure-sum: extra uploads, beyond the rounds, that the budget pays for; they replace those whose sum is lost
    evaluations : int
        certified: number of evaluations with noise on held-out records (test-share), evenly spaced over the
        rounds, the last one after the last round
    evaluation_epsilon : float | str
        certified: budget of all evaluations together; auto: total-epsilon, because held-out records are never
        trained on; with replace-one, where both costs add up, a quarter of it
    total_records : int | str
        certified: public total number of records, used to normalise; auto: that of a published data set
    records_max : int | Mapping[str, int] | str
        certified: public bound on an agent's records, one number or north=300,south=400; auto: total-records
    ledger : str
        certified: ledger of the data over all studies (taciturn ledger init), in which to reserve the plan
    epsilon : tuple[float, ...]
        paper: nominal budget of every local update, one or more values; default 1; inf: no noise
    outp_noise : str
        outp: noise as published, by the published formula, or calibrated to record-bound
    record_bound : float | str
        public bound on a record's norm, for methods that scale records instead of clipping; auto: a quarter of
        the largest norm that the bounds allow
    seeds : int
        number of noise seeds, trained together; only for seeded noise
    precision : str
        float64 (reference) or float32
    backend : str
        compiled, numpy (the reference) or torch (pip install 'taciturn[torch]'); auto: compiled if it was built
    threads : int | str
        compiled: number of threads; auto: all cores. Results do not depend on it
    device : str
        torch: device, one of cpu, cuda or cuda:N
    tf32 : bool
        torch on a GPU, mode paper: float32 matrix products in TF32 (11-bit mantissa)
    server : str
        what the server keeps: full (every agent's z and dual) or sums; auto: sums, because every agent answers
    simulate : str
        certified, seeded noise: agents (computes every agent's upload) or sums (one pass over all records and one
        draw of the summed noise per round; faster with many agents, but there are no single uploads)
    averages : bool
        write the theorems' averages of w and z to averages.npz
    evaluate_every : int | str
        rounds between two evaluations; auto: rounds / 100, rounded down, but at least 1
    checkpoint_seconds : float
        seconds between two checkpoints
    name : str
        name in the run folder's default path
    out : str
        the run folder; it must not exist. Default: runs/<time>-<name>
    """

    data: str = _data("mnist14", path)
    data_dir: str = _data("", path)
    schema: str = _data("", path)
    test: str = _data("", path)
    test_share: float = _data(0.0, real(0.0, 1.0, open_low=False))
    agents: int = _data(10, integer(1))
    partition: str = _data("auto", optional(one_of("partition", lambda: PARTITIONS)))
    dirichlet_alpha: float = _data(0.5, real(0.0))
    partition_key: int | str = _data("auto", optional(integer(0, 2**128 - 1)))
    sample_fraction: float = _data(0.05, real(0.0, AT_MOST_1))
    train_share: float = _data(0.9, real(0.0, 1.0))
    intercept: bool = _data(False, boolean)
    features: str = _data("auto", optional(one_of("feature map", lambda: (NONE, *MAPS))))
    memory: str = _data("auto", check_memory)

    loss: str = _problem("auto", optional(one_of("loss", lambda: LOSSES)))
    regulariser: str = _problem("l2", one_of("regulariser", lambda: REGULARISERS))
    beta: float = _problem(1e-6, real(0.0, open_low=False))
    set: str = _problem("all", one_of("set", lambda: SETS))
    set_size: float = _problem(1.0, real(0.0))

    algorithm: tuple[str, ...] = _algorithm((), list_of(one_of("algorithm", lambda: ALGORITHMS), empty=True))
    rounds: int | str = _algorithm("auto", optional(integer(1, 10**9)))
    local_updates: int | str = _algorithm("auto", optional(integer(1)))
    rho: float | str = _algorithm("auto", number_or("rho", RHO_NAMES))
    rho_c1: float = _algorithm(2.0, real(0.0, open_low=False))
    rho_c2: float = _algorithm(5.0, real(0.0, open_low=False))
    rho_tc: int = _algorithm(10000, integer(1))
    rho_growth: float = _algorithm(1.2, real(1.0, open_low=False))
    rho_max: float = _algorithm(1e9, real(0.0))
    eta: float | str = _algorithm("auto", number_or("eta", ETA_NAMES))
    eta_scale: float = _algorithm(1.0, real(0.0))
    smoothness: float | str = _algorithm("auto", optional(real(0.0)))
    strong_convexity: float | str = _algorithm("auto", optional(real(0.0)))
    radius: str = _algorithm("constant", one_of("radius", lambda: RADII))
    radius_scale: float = _algorithm(1.0, real(0.0))
    tolerance: float = _algorithm(1e-8, real(0.0))
    sampling_rate: float | str = _algorithm("auto", optional(real(0.0, AT_MOST_1)))
    plugins: tuple[str, ...] = _algorithm((), list_of(path, empty=True))

    mode: str = _privacy("certified", one_of("mode", lambda: MODES))
    total_epsilon: tuple[float, ...] = _privacy((), list_of(real(0.0, infinite=True), empty=True))
    delta: float = _privacy(1e-6, real(0.0, 1.0))
    mechanism: str = _privacy("gaussian", one_of("mechanism", lambda: MECHANISMS))
    adjacency: str = _privacy("add-remove", one_of("adjacency", lambda: ADJACENCIES))
    clip: float | str = _privacy("auto", optional(real(0.0)))
    clip_l1: float | str = _privacy("auto", optional(real(0.0, infinite=True)))
    noise: str = _privacy("auto", optional(one_of("noise", lambda: NOISE_SOURCES)))
    seed: int | str = _privacy("auto", optional(integer(0, 2**62)))
    noise_multiplier: float | str = _privacy("auto", optional(real(0.0)))
    trust: str = _privacy("agents", one_of("trust", lambda: TRUST))
    colluders: int = _privacy(COLLUDERS, integer(0))
    missing: int = _privacy(0, integer(0))
    reserve: int = _privacy(0, integer(0))
    evaluations: int = _privacy(0, integer(0, 10_000))
    evaluation_epsilon: float | str = _privacy("auto", optional(real(0.0, infinite=True)))
    total_records: int | str = _privacy("auto", optional(integer(1)))
    records_max: int | Mapping[str, int] | str = _privacy("auto", optional(counts))
    ledger: str = _privacy("", path)
    epsilon: tuple[float, ...] = _privacy((), list_of(real(0.0, infinite=True), empty=True))
    outp_noise: str = _privacy("published", one_of("outp-noise", lambda: NOISE_LEVELS))
    record_bound: float | str = _privacy("auto", optional(real(0.0)))

    seeds: int = _engine(1, integer(1, 10**6))
    precision: str = _engine("float64", one_of("precision", lambda: ("float32", "float64")))
    backend: str = _engine("auto", one_of("backend", lambda: BACKENDS))
    threads: int | str = _engine("auto", optional(integer(1, 4096)))
    device: str = _engine("cpu", check_device)
    tf32: bool = _engine(False, boolean)
    server: str = _engine("auto", optional(one_of("server state", lambda: SERVERS)))
    simulate: str = _engine("agents", one_of("simulation", lambda: SIMULATIONS))
    averages: bool = _engine(False, boolean)
    evaluate_every: int | str = _engine("auto", optional(integer(1)))
    checkpoint_seconds: float = _engine(10.0, real(0.0, open_low=False))

    name: str = _output("", text)
    out: str = _output("", path)

    @property
    def private(self) -> bool:
        """Whether the records are private: a table in certified mode."""
        return self.mode == "certified" and not source_for(self.data).published

    @property
    def hardened(self) -> bool:
        """Whether the noise comes from the operating system, and so cannot be drawn again."""
        return self.noise == HARDENED

    @property
    def integer_sums(self) -> bool:
        """Whether agents send integers that are added up before anyone sees them: a secure sum with hardened noise."""
        return self.trust == SECURE_SUM and self.hardened

    @property
    def pooled_sums(self) -> bool:
        """Whether a round is simulated as one pass over all records and one draw of the summed noise."""
        return self.simulate == SUMS

    def honest(self, agents: int) -> int:
        """Return h = P - c - d, how many of P agents certainly add their noise to a secure sum."""
        return agents - self.colluders - self.missing

    def noise_share(self, agents: int) -> float:
        """Return the share of the noise that each of P agents draws; see `taciturn.privacy.trust`."""
        return noise_share(self.trust, agents, self.colluders, self.missing)

    def evaluation_interval(self, rounds: int) -> int:
        """Return the rounds between two evaluations of a study of `rounds` rounds.

        Examples
        --------
        >>> Settings().evaluation_interval(20), Settings().evaluation_interval(300)
        (1, 3)
        """
        return max(1, rounds // EVALUATIONS) if self.evaluate_every == "auto" else int(self.evaluate_every)

    @property
    def display_name(self) -> str:
        """The run's name for people: its `name`, else that of its folder, else its data and algorithms."""
        return (
            self.name
            or Path(self.out).name
            or f"{Path(self.data.removeprefix(PREFIX)).stem}-{'-'.join(self.algorithm)}"
        )

    @property
    def agent_names(self) -> tuple[str, ...]:
        """The agents that records-max names, if any."""
        return tuple(self.records_max) if isinstance(self.records_max, Mapping) else ()

    def data_options(self, key: int | None = None) -> DataOptions:
        """Return the part of the settings that the data layer needs.

        Parameters
        ----------
        key
            The partition key, if a random one was drawn for this run.
        """
        names = [option.name for option in dataclasses.fields(DataOptions) if option.name != "one_owner"]
        options = {name: getattr(self, name) for name in names}
        if key is not None or self.partition_key == "auto":
            options["partition_key"] = key or 0
        return DataOptions(**options)

    def to_dict(self) -> dict[str, object]:
        """Return the settings to store with a run: without `out`, and without seeds if the noise has none."""
        left_out = {"out"} | ({"seed", "seeds"} if self.hardened else set())
        values = {name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(self).items()}
        return {name: value for name, value in values.items() if name not in left_out}

    def to_toml(self) -> str:
        """Return `to_dict` as TOML text, with every default spelled out."""
        import tomli_w

        return tomli_w.dumps(self.to_dict())


FIELDS = {entry.name: entry for entry in dataclasses.fields(Settings)}
"""The fields of Settings by name."""


def _add_help() -> None:
    """Add each parameter's description in the docstring of Settings to its field's metadata."""
    documented = re.findall(r"^(\w+) : .*\n((?:    .*\n?)+)", inspect.getdoc(Settings) or "", re.MULTILINE)
    texts = {name: " ".join(text.split()) for name, text in documented}
    for name, entry in FIELDS.items():
        entry.metadata = MappingProxyType({**entry.metadata, "help": texts.get(name, "")})


_add_help()
