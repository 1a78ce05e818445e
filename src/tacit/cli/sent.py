"""`tacit plot --what sent`: what an agent sends, with and without noise."""

from __future__ import annotations

from pathlib import Path

from tacit import api
from tacit.cli.output import stderr
from tacit.cli.watch import Watcher
from tacit.data import source_for
from tacit.data.maps import keeps_places
from tacit.results.files import make_folder, write_text
from tacit.results.folder import LOCAL_ONLY, RunFolder
from tacit.study.sent import Sent
from tacit.telling import listening
from tacit.views.curves import full_label


def draw_sent(folder: RunFolder, run: int, agent: str | None, t: int, out: Path | None) -> Path:
    """Make the run again and draw the upload; the picture lies in local-only unless the user names another place."""
    from tacit.views.sent_picture import Weights, sent_figure  # noqa: PLC0415  matplotlib takes its time, and most commands draw nothing
    from tacit.views.style import check_place, save  # noqa: PLC0415

    if out is not None:
        check_place(out)
    watcher = Watcher(stderr)
    try:
        with listening(watcher.told):
            found = api.sent(folder.path, run=run, agent=agent, round=t, watch=watcher)
    finally:
        watcher.close()
    config = folder.read_config()
    image = source_for(config["data"]).image if keeps_places(config["features"]) else None
    weights = Weights(found.clean, found.noisy, found.model, found.features, found.classes)
    title = f"What {found.agent} sends in round {found.round} of {found.last}"
    path = out or own_place(folder) / "sent.png"
    save(sent_figure(weights, image, title, caption(found)), path, private=True)
    return path


def caption(found: Sent) -> str:
    """What the picture is, what it is not, and for whom."""
    before = "; the rounds before had theirs" if found.round > 1 else ""
    silent = " This run has no noise." if (found.clean == found.noisy).all() else ""
    return (
        "Computed without noise: for the owner of the records alone. "
        f"{full_label(found.label)}. Without noise means without that of this round{before}.{silent} " + _checked(found)
    )


def _checked(found: Sent) -> str:
    if found.differs is None:
        return f"The run has not ended: w is the model of round {found.last}, made again."
    if found.differs == 0.0:
        return f"All {found.last} rounds were made again, and w is the run's model to the byte."
    return f"All {found.last} rounds were made again; w differs from the run's model by at most {found.differs:.1g}."


def own_place(folder: RunFolder) -> Path:
    """The folder for the owner of the records alone; a run in mode paper gets one here."""
    if not folder.local.is_dir():
        make_folder(folder.local)
        write_text(folder.local / "README.txt", LOCAL_ONLY)
    return folder.local
