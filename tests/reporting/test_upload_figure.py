"""What an agent sends, with and without noise: replayed from seeds and compared with the run's files."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taciturn
from taciturn.core.storage import read_arrays
from taciturn.errors import InputError
from taciturn.privacy.noise import SeededNoise
from taciturn.reporting.figures.summary_figures import Weights, sent_figure
from taciturn.settings import resolve
from taciturn.training.setup import prepare
from tests.cli.helpers import refused
from tests.cli.helpers import taciturn as command

TABLE: dict[str, Any] = {
    "data": "tests/data/clinics/records.csv", "schema": "tests/data/clinics/schema.toml", "test_share": 0.25,
    "total_records": 600, "agents": 3, "rounds": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> taciturn.Run:
    out = tmp_path_factory.mktemp("sent") / "r"
    return taciturn.run(**TABLE, algorithm="objp,objpm", total_epsilon="1,inf", seed=1, seeds=2, out=str(out))


def test_what_is_sent_is_what_is_clean_and_the_effect_of_the_noise(run: taciturn.Run) -> None:
    study = prepare(resolve(run.folder.read_config()))
    part, p, t = study.parts[0], 1, 3
    found = run.sent(run_index=1, agent="south", round=t)
    assert (found.agent, found.round, found.last, found.label["seed"]) == ("south", 3, 4, 2)
    algorithm: Any = part.algorithm
    like = np.zeros((len(found.features), part.batch.size, len(found.classes)))
    noise = SeededNoise(part.batch.seeds, p, t, part.batch.streams)
    xi = algorithm.release.mechanism.draw(0, like, noise)[0][:, 1]
    step = float(algorithm.rho(t)[1, 0]) + 1.0 / float(algorithm.eta(t)[1, 0])
    assert np.abs(xi).max() > 0.0
    np.testing.assert_allclose(found.noisy - found.clean, -xi / step, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("index", [1, 2, 5, 6])
def test_the_replay_ends_with_the_runs_own_model(run: taciturn.Run, index: int) -> None:
    found = run.sent(run_index=index)
    assert found.differs == 0.0
    assert found.model.tobytes() == run.w[index].tobytes()
    assert (found.clean == found.noisy).all() == (index in {2, 6})  # epsilon inf


def test_the_last_upload_is_in_the_checkpoint(run: taciturn.Run) -> None:
    kept = read_arrays(run.folder.checkpoints / "objp.npz")["agents_z"]  # objp keeps what it sent
    for p, agent in enumerate(("north", "south", "west")):
        assert run.sent(run_index=1, agent=agent, round=4).noisy.tobytes() == kept[p, :, 1].tobytes()


def test_an_unfinished_run_is_replayed_and_a_different_model_is_noticed(run: taciturn.Run, tmp_path: Path) -> None:
    going = tmp_path / "going"
    shutil.copytree(run.path, going)
    (going / "summary.json").unlink()
    assert taciturn.open_run(going).sent().differs is None
    other = tmp_path / "other"
    shutil.copytree(run.path, other)
    arrays = read_arrays(other / "model.npz")
    np.savez(other / "model.npz", allow_pickle=False, **(arrays | {"w": arrays["w"] + 1e-9}))
    assert taciturn.open_run(other).sent().differs == pytest.approx(1e-9, rel=1e-3)


def test_what_cannot_be_shown_is_refused_with_the_reason(run: taciturn.Run, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no agent 'noth' .did you mean 'north'"):
        run.sent(agent="noth")
    with pytest.raises(InputError, match="there is no round 5: this run has rounds 1 to 4"):
        run.sent(round=5)
    with pytest.raises(InputError, match=r"there is no run 8 in .*: its runs are 0 to 7"):
        run.sent(run_index=8)
    fresh = taciturn.run(**(TABLE | {"rounds": 2}), noise="hardened", out=str(tmp_path / "fresh"))
    with pytest.raises(InputError, match="hardened noise cannot be drawn again"):
        fresh.sent()
    shutil.copytree(run.path, tmp_path / "away")
    shutil.rmtree(tmp_path / "away" / "local-only")
    with pytest.raises(InputError, match="local-only"):
        taciturn.open_run(tmp_path / "away").sent()
    shutil.copytree(run.path, tmp_path / "changed")
    with (tmp_path / "changed" / "config.toml").open("a") as file:
        file.write("\n")
    with pytest.raises(InputError, match="was changed after the run began"):
        taciturn.open_run(tmp_path / "changed").sent()


def test_a_table_by_the_names_of_its_features(run: taciturn.Run, tmp_path: Path) -> None:
    command("plot", run.path, "--what", "sent", "--agent", "west", "--round", "2", "--out", tmp_path / "a.svg")
    text = " ".join(re.sub(r"<[^>]+>", " ", (tmp_path / "a.svg").read_text()).split())
    assert "taciturn plot r --what sent</code>" in (run.folder.local / "report.html").read_text()
    assert "--what sent" not in run.folder.report.read_text()
    said = ("What west sends in round 2 of 4", "Computed without noise: for the owner of the records")
    again = ("the rounds before had theirs", "w is identical to the run's model")
    for words in (*said, *again, "concave_points", "class malignant"):
        assert words in text, words
    assert "need --what sent" in refused("plot", run.path, "--round", "2")
    assert "takes one run folder" in refused("plot", run.path, run.path, "--what", "sent")


def test_digits_as_images_in_mode_paper_too(tmp_path: Path) -> None:
    run = taciturn.run(data="mnist14", mode="paper", epsilon=1.0, rounds=1, averages=False, out=str(tmp_path / "r"))
    assert not run.folder.local.exists()
    done = command("plot", run.path, "--what", "sent")
    assert done.stdout.strip() == str(run.folder.local / "sent.png")
    assert (run.folder.local / "sent.png").read_bytes()[:4] == b"\x89PNG"
    assert "must not leave your organisation" in (run.folder.local / "README.txt").read_text()


def test_images_are_the_weights_row_by_row_on_one_scale() -> None:
    clean, noisy, model = np.random.default_rng(0).normal(size=(3, 7, 12))  # 2 x 3 pixels and an intercept
    weights = Weights(clean, noisy, model, tuple("abcdefg"), tuple("0123456789xy"))
    drawn = sent_figure(weights, (2, 3), "title", "caption")
    images = [np.asarray(axes.images[0].get_array()) for axes in drawn.axes if axes.images]
    assert [image.shape for image in images] == [(2, 3)] * 40
    for row, values in enumerate((clean, noisy - clean, noisy, model)):
        np.testing.assert_array_equal(images[10 * row + 3].ravel(), values[:6, 3])
    limits = [axes.images[0].get_clim() for axes in drawn.axes if axes.images]
    assert len(set(limits[:30])) == 1  # one scale for all that is compared
    assert all(low == -high for low, high in limits)
    assert "The first 10 of 12 classes are shown." in drawn.get_supxlabel().replace("\n", " ")
