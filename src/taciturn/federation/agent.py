"""A site's reply to a message: it decides, records the reply in its journal, and only then returns it."""

from __future__ import annotations

import errno
import sqlite3
import threading
from dataclasses import dataclass, field
from pathlib import Path

from taciturn.errors import InputError, PrivacyViolation
from taciturn.federation import MESSAGE_VERSIONS, site_session
from taciturn.federation import messages as wire
from taciturn.federation.agreement import StudyLoader, find_objections
from taciturn.federation.journal import DAILY_LINES, Experiment, Journal, timestamp
from taciturn.federation.logs import LOG
from taciturn.federation.messages import (
    Closed,
    CloseRequest,
    Invitation,
    MeasureRequest,
    Question,
    Ready,
    Refusal,
    Reply,
    RoundRequest,
    SumRequest,
    SumRoundRequest,
)
from taciturn.federation.policy import Site, read_site
from taciturn.federation.site_session import Refused
from taciturn.federation.sum_session import SumSession
from taciturn.federation.terms import read_terms
from taciturn.federation.upload_session import UploadSession
from taciturn.privacy.signatures import HEX_ID

REASON_LENGTH = 2000  # characters
INTERNAL_ERROR = "internal error at this site; see the site's log"
TOO_MANY_REFUSALS = "too many refusals at this site today; the first reasons are in the site's log and transcript"
STUDY_BROKEN = "a privacy violation ended this study at this site; see the site's log"
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)  # may disappear without action at the site
NEW_STUDIES_PER_DAY = 20  # each leaves a folder and lines in two ledgers


@dataclass
class SiteAgent:
    """One site. It records every byte string in its journal before it returns it.

    Parameters
    ----------
    path : Path
        site.toml. It is read again for every message, so that its owner can change it at any time.
    journal : Journal
        The site's open journal.
    seed : int or None
        A seed for the noise, for tests: it gives no protection.
    """

    path: Path
    journal: Journal
    seed: int | None = None
    versions: range = MESSAGE_VERSIONS  # supported message versions
    loader: StudyLoader = field(default_factory=StudyLoader)
    disk_error: str = ""  # at the last message: another attempt may succeed
    _session: UploadSession | SumSession | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _refusals_muted: bool = False  # whether the log says that refusals are only counted now

    def answer(self, data: bytes) -> bytes:
        """Return the bytes that may leave, for untrusted bytes that arrived; one message is handled at a time."""
        with self._lock:
            return self._answer(data)

    def refuse(self, experiment: str, reason: str) -> bytes:
        """Return a refusal for a question that is not considered, because its sender has other terms."""
        with self._lock:
            return self._refuse(experiment, read_site(self.path).name, reason)

    def abort_study(self, experiment: str, violation: PrivacyViolation) -> str:
        """End a study at this site, also after a restart, and return the reason for the coordinator."""
        self._session = None
        LOG.info(f"PRIVACY VIOLATION in study {experiment}: {violation}. No request in this study is answered now.")
        self.journal.mark_broken(experiment)
        return STUDY_BROKEN

    @property
    def active_study(self) -> str:
        """The name of the study in session, or ""."""
        return self._session.experiment.study if self._session else ""

    @property
    def message_limit(self) -> int:
        """The maximum size in bytes of a message: a header, and the parameters of the study in session."""
        return self._session.agreement.message_limit if self._session else wire.message_limit()

    def _answer(self, data: bytes) -> bytes:
        name, experiment, self.disk_error = "", "", ""
        try:
            site = read_site(self.path)
            name = site.name
            message = wire.decode_question(data, self.message_limit)
            if not HEX_ID.fullmatch(message.experiment):
                raise Refused("the name of an experiment must have 32 hexadecimal digits")
            experiment = message.experiment
            return self._handle(site, message)
        except (Refused, wire.Malformed) as refused:
            return self._refuse(experiment, name, str(refused))
        except PrivacyViolation as violation:
            return self._refuse(experiment, name, self.abort_study(experiment, violation))
        except Exception as error:  # its message may reveal records, so it stays in the log
            if isinstance(error, sqlite3.OperationalError) or (
                isinstance(error, OSError) and error.errno in DISK_ERRORS
            ):
                self.disk_error = str(error)
            return self._refuse(experiment, name, INTERNAL_ERROR, f"{type(error).__name__}: {error}")

    def _refuse(self, experiment: str, site: str, reason: str, *details: str) -> bytes:
        """Record and return a refusal, and log its reason; on a day with too many, refusals are only counted."""
        refusal = wire.encode(Refusal(experiment, site, reason[:REASON_LENGTH]))
        fallback = wire.encode(Refusal("", site, TOO_MANY_REFUSALS))
        recorded = self.journal.record_repeatable(experiment, "refusal", None, refusal, fallback)
        if recorded.has_line:
            lines = [*details, f"refused: {reason}"]
        else:
            lines = [f"more than {DAILY_LINES} repeated replies today; from now on they are only counted"]
            lines = [] if self._refusals_muted else lines
        self._refusals_muted = not recorded.has_line
        for line in lines:
            LOG.info(line)
        return recorded.data

    def _handle(self, site: Site, message: Question) -> bytes:
        begun = self.journal.experiment(message.experiment)
        if begun is not None and begun.violated_at:
            raise Refused(STUDY_BROKEN)
        if isinstance(message, Invitation):
            self._session = None  # a site that refuses now does not continue with what it agreed to before
            version = self._choose_version(message)
            self._session = self._join(site, message)
            return self._record(
                Ready(message.experiment, site.name, site_session.non_private_reason(self.seed), version)
            )
        if isinstance(message, CloseRequest) and begun and self._has_ended(site, begun):
            return self._record(Closed(message.experiment, site.name))
        if self._session is None or self._session.experiment.id != message.experiment:
            raise Refused("this study is not in session here; the coordinator must invite this site first")
        if isinstance(message, CloseRequest):
            self._session.close(message.w)
            self._session = None
            return self._record(Closed(message.experiment, site.name))
        if self._session.agreed_files != site_session.read_agreed_files(site):  # the site must decide again
            terms, self._session = read_terms(site.study).digest, None
            self._session = self._join(site, Invitation(message.experiment, terms))
        if isinstance(message, RoundRequest | MeasureRequest) and isinstance(self._session, UploadSession):
            return self._session.answer(message)
        if isinstance(message, SumRequest | SumRoundRequest) and isinstance(self._session, SumSession):
            return self._session.answer(message)
        trust = self._session.agreement.terms.settings.trust
        raise Refused(f"this study has trust {trust}; the request belongs to another trust model")

    def _choose_version(self, message: Invitation) -> int:
        try:
            return wire.choose_version(message.speaks, self.versions)
        except InputError as error:
            raise Refused(str(error)) from error

    def _join(self, site: Site, message: Invitation) -> UploadSession | SumSession:
        """Check the study against the site's own files and open a session; the message only names the study."""
        agreement = self.loader.agreement(site)
        ours, theirs = agreement.terms.digest, message.terms
        if ours != theirs:
            raise Refused(
                f"the coordinator's study is {theirs[:12]}…; this site agreed to {agreement.terms.name} "
                f"{ours[:12]}…: the two copies of federation.toml differ"
            )
        begun = self.journal.experiment(message.experiment)
        if begun is not None:
            self._check_resumable(site, begun, ours)
        elif site_session.is_known_to_ledger(site, agreement.terms.name, message.experiment):
            raise Refused("this study was started here before, and this site has lost its journal of it")
        else:
            self._check_new_study(site, ours)
        reserved = begun is not None and site_session.find_reservation(site, begun) is not None
        if reasons := find_objections(site, agreement, reserved):
            raise Refused("; ".join(reasons))
        kind: type[UploadSession | SumSession] = UploadSession if agreement.sum_parameters is None else SumSession
        dataset = self.loader.dataset(site)
        return site_session.open_session(kind, site, self.journal, message.experiment, agreement, dataset, self.seed)

    def _check_resumable(self, site: Site, begun: Experiment, terms: str) -> None:
        if begun.terms != terms:
            raise Refused("this study was started here under other terms")
        if self._has_ended(site, begun):
            raise Refused("this study has ended here")
        if begun.non_private != site_session.non_private_reason(self.seed):
            raise Refused("this study was started with the other kind of noise; seeded and hardened noise do not mix")

    def _check_new_study(self, site: Site, terms: str) -> None:
        """Raise if the site's policy or the daily limit does not allow another study: each reserves a whole plan."""
        most, running = site.accepts.open_studies_max, site_session.open_studies(site, self.journal, terms)
        if len(running) >= most:
            names = ", ".join(begun.id[:8] for begun in running)
            raise Refused(
                f"open studies of these terms: {names}; this site accepts at most {most} at a time: end one, or ask "
                "the site's operator to close it"
            )
        today = timestamp()[:10]
        if sum(begun.started_at[:10] == today for begun in self.journal.experiments()) >= NEW_STUDIES_PER_DAY:
            raise Refused(f"{NEW_STUDIES_PER_DAY} studies were started here today; that is the daily limit")

    def _has_ended(self, site: Site, begun: Experiment) -> bool:
        return begun.closed_at is not None or site_session.close_if_settled(site, self.journal, begun)

    def _record(self, message: Reply) -> bytes:
        kind = wire.KINDS[type(message)]
        return self.journal.record_repeatable(message.experiment, kind, None, wire.encode(message)).data
