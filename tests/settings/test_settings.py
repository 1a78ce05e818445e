"""Settings: one table for files, flags and keywords; nothing unknown or impossible gets through."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from pathlib import Path

import pytest

from taciturn.cli.catalog_commands import commented_config
from taciturn.data import SOURCES, DataOptions
from taciturn.errors import InputError
from taciturn.settings import resolve
from taciturn.settings.settings import FIELDS


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"epsilonn": 1}, r"no setting 'epsilonn' \(did you mean 'epsilon'\?\)"),
        ({"epsilon": 0}, "epsilon is 0: it must be above 0, or inf"),
        ({"epsilon": -1}, "epsilon is -1: it must be above 0, or inf"),
        ({"epsilon": "one"}, "epsilon is 'one': it must be a number"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"epsilon": True}, "epsilon is True: it must be a number"),
        ({"total_epsilon": 0}, "total-epsilon is 0: it must be above 0, or inf"),
        ({"total_epsilom": 1}, r"no setting 'total_epsilom' \(did you mean 'total_epsilon'\?\)"),
        ({"epsilon": 1}, "epsilon is 1, the nominal budget of one local update, which is for --mode paper"),
        ({"mode": "paper", "total_epsilon": 2}, "total-epsilon has no effect in --mode paper"),
        ({"mode": "paper", "clip": 2}, "clip has no effect in --mode paper"),
        ({"mode": "paper", "noise": "hardened"}, "noise is hardened, which --mode paper does not support"),
        ({"mode": "paper", "algorithm": "hidden"}, "hidden is not one of the paper's methods"),
        ({"algorithm": "iadmm"}, "total-epsilon is 1, but iadmm adds no noise and cannot keep it"),
        ({"clip": 0}, "clip is 0: it must be above 0"),
        ({"clip": -1}, "clip is -1: it must be above 0"),
        ({"noise_multiplier": 0}, "noise-multiplier is 0: it must be above 0"),
        ({"adjacency": "replace"}, r"no adjacency 'replace' \(did you mean 'replace-one'\?\)"),
        ({"mechanism": "gausian"}, r"no mechanism 'gausian' \(did you mean 'gaussian'\?\)"),
        ({"noise": "hardend"}, r"no noise 'hardend' \(did you mean 'hardened'\?\)"),
        ({"noise": "hardened", "total_epsilon": "1,inf"}, "total-epsilon lists both inf and a finite budget"),
        ({"noise_multiplier": 9, "total_epsilon": "1,2"}, "noise-multiplier is given"),
        ({"noise": "hardened", "seed": 2}, "seed is 2, but noise is hardened, which has no seed"),
        ({"noise": "hardened", "seeds": 2}, "seeds is 2, but hardened noise has no seeds"),
        ({"total_records": 0}, "total-records is 0: it must be a whole number of at least 1"),
        ({"records_max": "a=3,b=0"}, "records-max of b is 0"),
        ({"records_max": "a=3,a=4"}, "records-max names an agent twice"),
        ({"records_max": "a=3,b"}, "records-max has 'b': each must be NAME=NUMBER"),
        ({"epsilon": [1, 1.0]}, "epsilon names 1.0 twice"),
        ({"delta": 0}, "delta is 0: it must be above 0 and below 1"),
        ({"delta": 1}, "delta is 1: it must be above 0 and below 1"),
        ({"rounds": 0}, "rounds is 0: it must be a whole number from 1 to 1000000000"),
        ({"rounds": 2.5}, "rounds is 2.5: it must be a whole number"),
        ({"local_updates": 0}, "local-updates is 0: it must be a whole number of at least 1"),
        ({"agents": 0}, "agents is 0"),
        ({"beta": -1}, "beta is -1: it must be at least 0"),
        ({"rho": 0}, "rho is 0: it must be above 0"),
        ({"rho": "dynamik"}, r"no rho 'dynamik' \(did you mean 'dynamic'\?\)"),
        ({"eta": "smoth"}, r"no eta 'smoth' \(did you mean 'smooth'\?\)"),
        ({"loss": "hing"}, r"no loss 'hing' \(did you mean 'hinge'\?\): there are hinge, softmax, squared"),
        ({"algorithm": "iadm"}, r"no algorithm 'iadm' \(did you mean 'iadmm'\?\)"),
        ({"mode": "certain"}, r"no mode 'certain'.*there are certified, paper"),
        ({"intercept": "maybe"}, "intercept is 'maybe': it must be true or false"),
        ({"data": 5}, "data is 5: it must be a string"),
        ({"data": "mnist15"}, r"no data set 'mnist15' \(did you mean 'mnist14'\?\)"),
        ({"algorithm": "iadmm", "local_updates": 3, "mode": "paper"}, "local-updates is given, but iadmm makes one"),
        ({"rho_growth": 0.5}, "rho-growth is 0.5: it must be at least 1"),
        ({"seed": -1}, "seed is -1"),
        ({"mode": "paper", "algorithm": "iadmm,admm", "epsilon": 1}, "epsilon is 1, but iadmm, admm adds no noise"),
        ({"backend": "pytorch"}, r"no backend 'pytorch' \(did you mean 'torch'\?\): there are auto, compiled,"),
        ({"backend": "numpy", "threads": 2}, "threads is 2, but backend numpy has its own threads"),
        ({"device": "gpu"}, "device is 'gpu': it must be cpu, cuda or cuda:N"),
        ({"device": "cuda:"}, "device is 'cuda:': it must be cpu, cuda or cuda:N"),
        ({"device": "cuda", "backend": "numpy"}, "device is cuda, but backend numpy supports only cpu: use"),
        ({"backend": "torch", "algorithm": "admm", "mode": "paper"}, "admm supports only numpy"),
        ({"backend": "torch", "noise": "hardened"}, "hardened noise is added to exact integer sums"),
        ({"device": "cuda:1", "noise": "hardened"}, "hardened noise is added to exact integer sums"),
        ({"tf32": True, "precision": "float32"}, "tf32 is for float32 matrix products on a GPU"),
        ({"tf32": True, "device": "cuda"}, "it needs --device cuda and --precision float32"),
        ({"tf32": True, "device": "cuda", "precision": "float32"}, "tf32 needs --mode paper"),
        ({"rounds": math.inf}, "rounds is inf: it must be a whole number"),
        ({"rounds": "1" + "0" * 30}, "it must be a whole number from 1 to 1000000000"),
    ],
)  # fmt: skip
def test_invalid_settings_are_refused_with_a_reason(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        resolve(given)


def test_methods_without_noise_have_no_budget() -> None:
    paper = {"mode": "paper"}
    assert resolve(paper | {"algorithm": "iadmm"}).epsilon == (math.inf,)
    assert resolve(paper | {"algorithm": "iadmm", "epsilon": "inf"}).epsilon == (math.inf,)
    assert resolve(paper | {"algorithm": "iadmm,objp", "epsilon": 2}).epsilon == (2.0,)
    written = tomllib.loads(resolve(paper | {"algorithm": "iadmm"}).to_toml())
    assert resolve(written).epsilon == (math.inf,)  # a run's own configuration runs again
    assert resolve({"algorithm": "iadmm", "total_epsilon": "inf"}).total_epsilon == (math.inf,)


def test_without_the_compiled_library_only_an_explicit_request_for_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that was started with the library continues without it, unless backend compiled was given."""
    monkeypatch.setattr("taciturn.settings.checks.library", lambda: None)
    assert resolve({"backend": "auto"}).backend == "auto"
    with pytest.raises(
        InputError, match=r"backend is compiled, but there is no compiled library in .*--backend auto or"
    ):
        resolve({"backend": "compiled"})


def test_a_device_of_torchs_own_implies_torch() -> None:
    assert (resolve({}).backend, resolve({}).device) == ("auto", "cpu")
    implied = resolve({"device": "cuda:1", "precision": "float32", "tf32": "true", "mode": "paper"})
    assert (implied.backend, implied.device, implied.tf32) == ("torch", "cuda:1", True)
    assert resolve(tomllib.loads(implied.to_toml())) == implied  # to be read where there is neither torch nor a GPU


def test_certified_mode_is_the_default() -> None:
    settings = resolve({})
    assert (settings.mode, settings.algorithm, settings.total_epsilon) == ("certified", ("dpgd",), (1.0,))
    assert (settings.mechanism, settings.adjacency, settings.delta) == ("gaussian", "add-remove", 1e-6)
    assert resolve({"total_epsilon": [], "epsilon": []}).total_epsilon == (1.0,)
    assert resolve({"mode": "paper"}).algorithm == ("objpm",)
    assert resolve({"records_max": "north=300, south=400"}).records_max == {"north": 300, "south": 400}
    assert resolve({"records_max": {"north": 300}}).records_max == {"north": 300}
    assert resolve({"records_max": "400"}).records_max == 400


def test_the_data_layer_has_the_same_defaults() -> None:
    """A value that differs from the default counts as given, so both tables must have the same defaults."""
    for option in dataclasses.fields(DataOptions):
        if option.name == "private":  # follows from the mode and the data
            assert not any(resolve({"mode": mode}).private for mode in ("paper", "certified"))
        elif option.name == "agent_names":  # follow from records-max
            assert resolve({}).agent_names == option.default == ()
            assert resolve({"records_max": "b=3,a=4"}).data_options().agent_names == ("b", "a")
        elif option.name == "one_owner":  # at sites, which have no settings
            assert option.default is False
        elif FIELDS[option.name].default != "auto":  # which the data layer does not know
            assert FIELDS[option.name].default == option.default, option.name


def test_whole_numbers_are_exact() -> None:
    assert resolve({"seed": "4611686018427387903"}).seed == 4611686018427387903
    assert resolve({"seed": 2**60 + 1}).seed == 2**60 + 1
    assert resolve({"rounds": 5.0}).rounds == 5


def test_a_given_eta_is_not_scaled_by_the_preset() -> None:
    paper = {"mode": "paper"}
    assert resolve(paper | {"eta": 0.5}).eta_scale == 1.0
    assert resolve(paper | {"eta": 0.5, "eta_scale": 3}).eta_scale == 3.0
    assert resolve(paper).eta_scale == SOURCES["mnist14"].paper["eta_scale"]
    assert resolve({}).eta_scale == 1.0


def test_paths_may_be_paths_and_know_the_home() -> None:
    assert resolve({"data": Path("a/b.csv")}).data == "a/b.csv"
    assert resolve({"data": "a/b.csv", "schema": "~/s.toml"}).schema == str(Path.home() / "s.toml")


def test_later_layers_win_over_earlier_ones_and_over_the_preset() -> None:
    assert resolve({"mode": "paper"}).rounds == SOURCES["mnist14"].paper["rounds"]
    assert resolve({}).rounds == "auto"
    assert resolve({"rounds": 7}).rounds == 7
    assert resolve({"rounds": 7, "rho": 1}, {"rounds": 9}).rounds == 9
    assert resolve({"data": "mnist", "mode": "paper"}).rho == "dynamic"
    assert resolve({"data": "mnist"}).rho == "auto"
    assert resolve({"data": "some/table.csv"}).intercept is True
    assert resolve({"data": "mnist"}).intercept is False


@pytest.mark.parametrize("name", list(SOURCES))
def test_every_preset_keeps_the_rules(name: str) -> None:
    data = "some/table.csv" if name == "table" else name
    assert int(resolve({"data": data, "mode": "paper"}).rounds) >= 1
    assert resolve({"data": data}).mode == "certified"


@pytest.mark.parametrize(
    "given",
    [
        {"mode": "paper", "epsilon": [0.5, "inf"], "algorithm": "objp,outp", "eta": 2, "out": "x"},
        {"total_epsilon": [0.5, 2], "records_max": "a=3,b=4", "clip_l1": "inf", "noise": "hardened", "out": "x"},
    ],
)
def test_the_written_configuration_is_complete_and_reads_back(given: dict[str, object]) -> None:
    settings = resolve(given)
    written = tomllib.loads(settings.to_toml())
    without = {"out", "seed", "seeds"} if settings.noise == "hardened" else {"out"}
    assert set(written) == set(FIELDS) - without
    assert resolve(written) == dataclasses.replace(settings, out="")


def test_a_config_file_has_every_setting() -> None:
    text = commented_config()
    assert tomllib.loads(text) == {}  # everything is commented out
    lines = [line.removeprefix("# ") for line in text.splitlines() if " = " in line]
    assert resolve(tomllib.loads("\n".join(lines))) == resolve({})
    assert set(tomllib.loads("\n".join(lines))) == set(FIELDS)
