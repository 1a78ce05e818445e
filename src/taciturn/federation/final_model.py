"""The coordinator's signature under the final model: every site keeps it, as `model.signed.json` beside the model."""

from __future__ import annotations

import base64
import json

from taciturn.core.storage import to_json, write_text
from taciturn.errors import InputError
from taciturn.federation import messages as wire
from taciturn.federation.identity import PublicIdentity
from taciturn.federation.messages import CloseRequest
from taciturn.federation.seal import QUESTION, Opened, verify_evidence
from taciturn.runs.folder import RunFolder

FILE = "model.signed.json"


def keep_evidence(folder: RunFolder, opened: Opened, coordinator: PublicIdentity, site: PublicIdentity) -> None:
    """Keep what shows others that the coordinator sent this model to this site; on the disk when this returns.

    Done before the study ends here, so that no crash can part a model from its signature.
    """
    if folder.finished:
        return
    content = {
        "signed": opened.signed.record(),
        "coordinator": str(coordinator),
        "site": str(site),
        "close": base64.b64encode(opened.body).decode(),
    }
    write_text(folder.path / FILE, to_json(content) + "\n")


def signer(folder: RunFolder, experiment: str, terms: str) -> PublicIdentity | None:
    """Who signed the model in a study folder; None where no signature was kept.

    Parameters
    ----------
    folder
        The study's, at a site.
    experiment, terms
        The study and the hash of its terms, as the site's journal knows them.

    Raises
    ------
    InputError
        There is a signature, and it is not one under this model, of this study, to this site.
    """
    path = folder.path / FILE
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        coordinator, site = (PublicIdentity.parse(record[name]) for name in ("coordinator", "site"))
        body = base64.b64decode(record["close"], validate=True)
        header = verify_evidence(record["signed"], body, coordinator, site)
        message = wire.question(body, len(body))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} shows no signature of the coordinator's: {error}") from error
    if (header.kind, header.experiment.hex(), header.terms.hex()) != (QUESTION, experiment, terms):
        raise InputError(f"{path} is about another study than the one in its folder")
    if not isinstance(message, CloseRequest) or folder.read_model()["w"].tobytes() != message.w.tobytes():
        raise InputError(f"{path} is about another model than the one in its folder")
    return coordinator
