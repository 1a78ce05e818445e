"""The model that an export is about."""

from __future__ import annotations

from tacit.export.base import Request
from tacit.privacy.guarantee import headline
from tacit.privacy.statement import PAPER_HEADLINE
from tacit.results.folder import RunFolder
from tacit.study.use import Model, read_model


def chosen_model(request: Request) -> tuple[Model, list[str]]:
    """The run asked for, else the first, with a word on which one it is where the folder has several."""
    count = len(request.folder.read_summary()["runs"])
    index = request.run or 0
    model = read_model(request.folder, index)
    said = [f"using run {index} of {count}: {model.label} (--run-index chooses)"] if count > 1 else []
    return model, said


def privacy_sentence(folder: RunFolder) -> str:
    """What the run promises, in one line."""
    summary = folder.read_summary(local=False)
    return PAPER_HEADLINE if summary["mode"] == "paper" else headline(summary["privacy"])
