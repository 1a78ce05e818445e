"""A hostile w: a site sends finite values or nothing, with or without any one record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taciturn.algorithms import ALGORITHMS
from taciturn.federation.agreement import load_site_dataset
from taciturn.federation.messages import Ready, Refusal, RoundRequest
from taciturn.kernels import library
from taciturn.kernels.layout import Sparse
from taciturn.objectives.clipping import LARGEST_PARAMETER
from taciturn.types import Array
from tests.federation import helpers
from tests.federation.helpers import EXPERIMENT, SITES, Federation, answered, ask, invite, make_federation, refused
from tests.privacy.test_bit_patterns import patterns

FEDERATED = [name for name in ALGORITHMS if ALGORITHMS[name].federated]
DIAGNOSES = [*(f"d{n}" for n in range(12)), "hiv"]
SCHEMA = f"""\
[label]
column = "ill"
classes = ["no", "yes"]
[columns.diagnosis]
kind = "categorical"
categories = {DIAGNOSES}
"""


def clinic(folder: Path, monkeypatch: pytest.MonkeyPatch, hiv: bool, **study: Any) -> Federation:
    """A site with a sparse table, in which at most one record has the diagnosis hiv."""
    monkeypatch.setattr(helpers, "SCHEMA", SCHEMA)
    names = [study.get("algorithm", "objp")]
    made = make_federation(folder, {"study": study}, {"algorithms": names}, only=("north",))
    rows = [f"d{n % 12},{'yes' if n % 3 else 'no'}" for n in range(15)] + ["hiv,yes"] * hiv
    (folder / "north" / "table.csv").write_text("\n".join(["diagnosis,ill", *rows]) + "\n")
    return made


def asked(w: Array, t: int = 1) -> RoundRequest:
    return RoundRequest(EXPERIMENT, t, dict.fromkeys(SITES, t - 1), w)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # as in a site's own process
@pytest.mark.parametrize("hiv", [False, True])
@pytest.mark.parametrize("size", [1e306, 1e-300])
@pytest.mark.parametrize("name", FEDERATED)
def test_no_size_of_w_tells_of_a_record(
    name: str, size: float, hiv: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise is hardened; the second round covers algorithms whose gradient is taken at their own z."""
    federation = clinic(tmp_path / "f", monkeypatch, hiv, algorithm=name, noise_multiplier=90.0, features="bins")
    shard = load_site_dataset(federation.site("north"), federation.agreement).train[0]
    assert isinstance(shard.on_grid.layout, Sparse) or library.library() is None
    w = np.full_like(federation.agreement.zero, size)
    with federation.agent("north", None) as agent:
        assert isinstance(invite(agent, federation), Ready)
        for t in (1, 2):
            if size > 1.0:
                assert "finite values of at most" in refused(agent, asked(w, 1))
            else:
                assert np.isfinite(answered(agent, asked(w, t)).z).all()
        charged = len(federation.released("north"))
    assert charged == (0 if size > 1.0 else 2)


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_every_w_is_refused_or_has_a_finite_answer(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bits of w are arbitrary; within the bound, rounds repeat, so that w meets the site's own state."""
    rounds, rng = 40, np.random.default_rng(9)
    federation = clinic(
        tmp_path / "f", monkeypatch, True, precision=precision, rounds=rounds, noise_multiplier=70.0, algorithm="objp"
    )
    zero = federation.agreement.zero
    with federation.agent("north", None) as agent:
        assert isinstance(invite(agent, federation), Ready)
        for w in np.moveaxis(patterns(rng, (zero.size, 300, 1), zero.dtype), 1, 0):
            if not (np.abs(w) <= LARGEST_PARAMETER).all():
                assert "finite values of at most" in refused(agent, asked(w.reshape(zero.shape)))
        assert not federation.released("north")
        for t in range(1, rounds + 1):
            w = patterns(rng, (zero.size, 1, 1), zero.dtype).reshape(zero.shape)
            w = np.where(np.abs(w) <= LARGEST_PARAMETER, w, rng.choice([-1.0, 1.0]) * LARGEST_PARAMETER)
            assert np.isfinite(answered(agent, asked(w.astype(zero.dtype), t)).z).all()
        with federation.journal("north") as journal:
            state = journal.agent_state(EXPERIMENT, rounds, zero)
    assert all(np.isfinite(part).all() and np.abs(part).max() < 2.0**48 for part in state)


def test_what_is_not_finite_is_charged_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The terms name a penalty that is as large as single precision allows."""
    federation = clinic(tmp_path / "f", monkeypatch, True, precision="float32", rho=1e38, eta=1.0, algorithm="objp")
    w = np.full_like(federation.agreement.zero, LARGEST_PARAMETER)
    with federation.agent("north", None) as agent, np.errstate(all="ignore"):
        assert isinstance(invite(agent, federation), Ready)
        assert "not finite" in refused(agent, asked(w))
        assert len(federation.released("north")) == 1
        assert isinstance(ask(agent, asked(w)), Refusal)  # nor when it is asked again
        assert len(federation.released("north")) == 1
