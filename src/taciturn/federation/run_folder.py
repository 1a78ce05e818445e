"""The run folder of a federated study, at the coordinator and at every site, and the coordinator's model signature."""

from __future__ import annotations

import base64
import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from taciturn.core.storage import flushed_size, move_folder, to_json, write_arrays, write_text
from taciturn.errors import CorruptFile
from taciturn.federation import messages as wire
from taciturn.federation.agreement import Agreement
from taciturn.federation.identity import PublicIdentity
from taciturn.federation.messages import CloseRequest
from taciturn.federation.seal import QUESTION, Opened, verify_evidence
from taciturn.objectives.metrics import test_error
from taciturn.planning.study import Study
from taciturn.privacy.trust import SECURE_SUM, Caveat
from taciturn.reporting.report import write_report
from taciturn.runs.folder import RunFolder, append_lines, read_lines
from taciturn.runs.records import FederationNote, LedgerEntry, MetricsRow
from taciturn.training.finish import finish, sign
from taciturn.training.setup import initial_files
from taciturn.types import Array, Dataset, Shard

MODEL_SIGNATURE = "model.signed.json"


class RoundLine(NamedTuple):
    """One line of rounds.jsonl: who answered in a round."""

    round: int
    of: int  # number of rounds of the study
    answered: list[str]
    missing: list[str]
    rejected: dict[str, str]  # site -> reason
    bytes_up: int
    bytes_down: int
    slot: str = ""  # "epoch/slot" whose sum was opened, in a secure sum


class ParticipationTotals(NamedTuple):
    """Totals over all rounds of a federated run."""

    rounds: int
    answered: dict[str, int]  # site -> number of rounds
    rejected: int  # number of answers
    bytes_up: int
    bytes_down: int


def read_rounds(folder: RunFolder) -> list[RoundLine]:
    """Return the lines of rounds.jsonl, in order."""
    return [RoundLine(**row) for row in read_lines(rounds_path(folder.path))]


def rounds_path(folder: Path) -> Path:
    """Return the file of a coordinator's run folder that has a line for each round."""
    return folder / "rounds.jsonl"


def participation_totals(folder: RunFolder) -> ParticipationTotals:
    """Sum up rounds, answers and bytes from the public files of a run folder."""
    rounds = read_rounds(folder)
    return ParticipationTotals(
        rounds=len(rounds),
        answered=dict(Counter(site for line in rounds for site in line.answered)),
        rejected=sum(len(line.rejected) for line in rounds),
        bytes_up=sum(line.bytes_up for line in rounds),
        bytes_down=sum(line.bytes_down for line in rounds),
    )


def federated_study(agreement: Agreement, data: str = "", test: Shard | None = None) -> Study:
    """Return the study of a run folder; it contains no training records.

    Parameters
    ----------
    agreement : Agreement
        The study.
    data : str, optional
        The site's own data, at a site. A site has no test records.
    test : Shard, optional
        The coordinator's public test records.
    """
    settings, facts = agreement.study_plan.settings, agreement.facts
    if data:
        settings, facts = replace(settings, data=data), facts._replace(test="none")
    dataset = Dataset(
        name=agreement.terms.name,
        agents=agreement.terms.agents,
        train=(),
        test=test,
        features=agreement.features,
        target=agreement.target,
        features_by=settings.features,
    )
    return Study(settings, dataset, agreement.study_plan.problem, agreement.study_plan.parts, facts)


def create_study_folder(
    path: Path,
    study: Study,
    reservation: str = "",
    files: Mapping[str, str] | None = None,
    ledger: Sequence[LedgerEntry] = (),
) -> RunFolder:
    """Create a run folder atomically: a crash leaves either the whole folder or none.

    Its ledger says that messages were carried by a transport and, with a secure sum, that a protocol opened the sums.

    Parameters
    ----------
    path : Path
        The new folder.
    study : Study
        The study; see `federated_study`.
    reservation : str, optional
        The study's reservation in the site's budget ledger.
    files : Mapping[str, str], optional
        Name and content of additional files.
    ledger : sequence of ledger entries, optional
        Entries that follow the plan in the study's ledger.
    """
    begun, temporary = initial_files(study, reservation), path.with_name(f".{path.name}.new")
    caveats, sums = (*(begun.header.doubts or ()), Caveat.CARRIED), study.settings.trust == SECURE_SUM
    header = replace(begun.header, doubts=caveats, sum_protocol=sums or None)
    shutil.rmtree(temporary, ignore_errors=True)  # left over from a crash
    RunFolder.create(temporary, {**begun.files, **(files or {})}, [header, *begun.plans, *ledger], begun.local)
    move_folder(temporary, path)
    return RunFolder.open(path)


def record_round(
    folder: RunFolder, study: Study, t: int, w: Array, residual: float, sent: tuple[int, int], test: Shard | None
) -> None:
    """Append the metrics of a round. They are public, so they contain no times.

    Parameters
    ----------
    folder, study
        The run.
    t : int
        The round.
    w : ndarray of shape [J, 1, K]
        The model.
    residual : float
        The consensus residual.
    sent : tuple of int
        Bytes of messages so far, from and to the sites.
    test : Shard or None
        Public test records.
    """
    part = study.parts[0]
    algorithm: Any = part.algorithm
    row = MetricsRow(
        **vars(part.batch.labels()[0]),
        round=t,
        test_error=float(test_error(w, test, study.dataset.target)[0]) if test else None,
        train_objective=None,
        consensus_residual=residual,
        noise=float(np.asarray(algorithm.release.mechanism.magnitude)[0]),  # of one component of a gradient
        rho=float(algorithm.rho(t)[0, 0]),
        eta=float(part.eta(t)[0, 0]),
        seconds=None,
        bytes_up=sent[0],
        bytes_down=sent[1],
    )
    append_lines(folder.metrics, [row])


def finish_study_folder(
    study: Study,
    folder: RunFolder,
    w: Array,
    title: str,
    lines: Sequence[str],
    measured: Mapping[str, Array] | None = None,
) -> None:
    """Write the model, the summary and the report of a study that has ended.

    Parameters
    ----------
    study, folder
        The run.
    w : ndarray of shape [J, 1, K]
        The model.
    title : str
        Title of the report.
    lines : sequence of str
        Sentences about the federation, for the report.
    measured : mapping of str to Array, optional
        What the coordinator knows besides the model: `server_statistics`, the last `round`, and how many sites
        `answered` in each.
    """
    file = folder.checkpoints / study.parts[0].batch.checkpoint
    if not file.exists():
        write_arrays(file, {"w": w, **(measured or {})})
    flushed_size(folder.metrics)  # the metrics are on disk before the summary says that they are complete
    finish(study, folder, FederationNote(title=title, lines=tuple(lines)))
    sign(folder)
    write_report(folder)
    folder.reset_file_times()


def store_model_signature(folder: RunFolder, opened: Opened, coordinator: PublicIdentity, site: PublicIdentity) -> None:
    """Write the coordinator's signature of the final model to `model.signed.json`; it is on disk on return.

    Call it before the study ends at the site, so that no crash can separate a model from its signature.

    Parameters
    ----------
    folder : RunFolder
        The study's folder at a site; nothing is written if the study has ended there.
    opened : Opened
        The authenticated close request.
    coordinator, site : PublicIdentity
        The sender and the receiver.
    """
    if folder.finished:
        return
    content = {
        "signed": opened.signed.to_json(),
        "coordinator": str(coordinator),
        "site": str(site),
        "close": base64.b64encode(opened.body).decode(),
    }
    write_text(folder.path / MODEL_SIGNATURE, to_json(content) + "\n")


def verify_model_signature(folder: RunFolder, experiment: str, terms: str) -> PublicIdentity | None:
    """Return who signed the model in a study folder, or None if there is no signature.

    Parameters
    ----------
    folder : RunFolder
        The study's folder at a site.
    experiment, terms : str
        The study and the hash of its terms, from the site's journal.

    Raises
    ------
    CorruptFile
        If the signature is invalid, or belongs to another model, study or site.
    """
    path = folder.path / MODEL_SIGNATURE
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        coordinator, site = (PublicIdentity.parse(record[name]) for name in ("coordinator", "site"))
        body = base64.b64decode(record["close"], validate=True)
        header = verify_evidence(record["signed"], body, coordinator, site)
        message = wire.decode_question(body, len(body))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"{path} does not contain a valid signature of the coordinator: {error}") from error
    if (header.kind, header.experiment.hex(), header.terms.hex()) != (QUESTION, experiment, terms):
        raise CorruptFile(f"{path} is the signature of another study")
    if not isinstance(message, CloseRequest) or folder.read_model()["w"].tobytes() != message.w.tobytes():
        raise CorruptFile(f"{path} is the signature of another model")
    return coordinator
