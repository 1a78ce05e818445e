"""What a site says to a message: it decides, journals what it is about to say, and only then says it."""

from __future__ import annotations

import errno
import re
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from taciturn.errors import PrivacyViolation, TaciturnError
from taciturn.federation import SPEAKS
from taciturn.federation import messages as wire
from taciturn.federation.agreement import Prepared, objections
from taciturn.federation.departures import DAILY, now
from taciturn.federation.journal import Experiment, Journal
from taciturn.federation.messages import (
    Closed,
    CloseRequest,
    Invitation,
    Question,
    Ready,
    Refusal,
    Reply,
    RoundRequest,
    highest_common,
)
from taciturn.federation.policy import Site, read_site
from taciturn.federation.site_session import (
    Refused,
    SiteSession,
    agreed_files,
    begin,
    finish_closing,
    forgotten,
    mark,
    open_studies,
    reservation_of,
)
from taciturn.federation.terms import read_terms

EXPERIMENT = re.compile(r"[0-9a-f]{32}")  # it becomes the name of a folder
LONGEST_REASON = 2000  # characters
OWN_AFFAIR = "this site cannot do that for a reason of its own, which is in its log"
TOO_MANY = "this site has refused too much today to say why: its log and its transcript have the first reasons"
BROKEN = "this study broke its promise at this site: nothing more is answered in it, and its log says why"
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)  # what may pass without anybody at the site
BEGINNINGS = 20  # studies that may begin on one day: each leaves a folder and lines in two ledgers


@dataclass
class SiteAgent:
    """One site. Every byte string it returns has been noted in its journal before."""

    path: Path  # site.toml, which is read anew for every message: a site may change its mind
    journal: Journal
    seed: int | None = None  # noise from this seed: for tests, and of no protection
    log: Callable[[str], None] = lambda line: None  # what stays in the house
    speaks: range = SPEAKS  # versions of the messages
    prepared: Prepared = field(default_factory=Prepared)
    trouble: str = ""  # with the disk, at the last message: another try may succeed
    _at_work: SiteSession | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _quiet: bool = False  # whether the log knows that refusals are only counted now

    def answer(self, data: bytes) -> bytes:
        """The bytes that may leave, for the bytes that came; one message at a time, whatever an engine does at once."""
        with self._lock:
            return self._answer(data)

    def _answer(self, data: bytes) -> bytes:
        name, experiment, self.trouble = "", "", ""
        lines = []
        try:
            site = read_site(self.path)
            name = site.name
            message = wire.question(data, self.limit)
            if not EXPERIMENT.fullmatch(message.experiment):
                raise Refused("an experiment is named by 32 hexadecimal digits")
            experiment = message.experiment
            return self._consider(site, message)
        except (Refused, wire.Malformed) as refused:
            reason = str(refused)
        except PrivacyViolation as violation:
            reason = self.break_off(experiment, violation)
        except Exception as error:  # its words may tell of records
            lines.append(f"{type(error).__name__}: {error}")
            reason = OWN_AFFAIR
            if isinstance(error, sqlite3.OperationalError) or (isinstance(error, OSError) and error.errno in DISK):
                self.trouble = str(error)
        return self._refuse(Refusal(experiment, name, reason[:LONGEST_REASON]), [*lines, f"refused: {reason}"])

    def break_off(self, experiment: str, violation: PrivacyViolation) -> str:
        """The study is over at this site, now and after a restart; its owner has to look."""
        self._at_work = None
        self.log(f"PRIVACY VIOLATION in study {experiment}: {violation}. Nothing more is answered in this study.")
        self.journal.break_off(experiment)
        return BROKEN

    def _refuse(self, refusal: Refusal, lines: list[str]) -> bytes:
        """A refusal, with its reason in the log; on a day with too many they are only counted, in both."""
        spare = wire.encode(Refusal("", refusal.site, TOO_MANY))
        sent = self.journal.depart_again(refusal.experiment, "refusal", None, wire.encode(refusal), spare)
        if not sent.noted:
            lines = [] if self._quiet else [f"more than {DAILY} answers of no new content today: now they are counted"]
        self._quiet = not sent.noted
        for line in lines:
            self.log(line)
        return sent.data

    def _consider(self, site: Site, message: Question) -> bytes:
        begun = self.journal.experiment(message.experiment)
        if begun is not None and begun.broken:
            raise Refused(BROKEN)
        if isinstance(message, Invitation):
            self._at_work = None  # a site that refuses now does not go on with what it agreed to before
            version = self._version(message)
            self._at_work = self._take_part(site, message)
            return self._leave(Ready(message.experiment, site.name, mark(self.seed), version))
        if isinstance(message, CloseRequest) and self._has_closed(site, message):
            return self._leave(Closed(message.experiment, site.name))
        if self._at_work is None or self._at_work.experiment.id != message.experiment:
            raise Refused("this study is not at work here: the coordinator has to invite this site first")
        if isinstance(message, RoundRequest):
            if self._at_work.agreed != agreed_files(site):
                return self._reconsider(site, message)
            return self._at_work.answer(message)
        self._at_work.close(message.w)
        self._at_work = None
        return self._leave(Closed(message.experiment, site.name))

    def _version(self, message: Invitation) -> int:
        try:
            return highest_common(message.speaks, self.speaks)
        except TaciturnError as error:
            raise Refused(str(error)) from None

    def _reconsider(self, site: Site, message: RoundRequest) -> bytes:
        """The site's file or its copy of the terms has changed in the middle of a study: it decides anew."""
        terms, self._at_work = read_terms(site.study).digest, None
        self._at_work = self._take_part(site, Invitation(message.experiment, terms))
        return self._at_work.answer(message)

    def _take_part(self, site: Site, message: Invitation) -> SiteSession:
        """Hold the study against the site's own files; the message says only which study it is."""
        agreement = self.prepared.agreement(site)
        ours, theirs = agreement.terms.digest, message.terms
        if ours != theirs:
            raise Refused(
                f"the coordinator's study is {theirs[:12]}…, and this site agreed to {agreement.terms.name} "
                f"{ours[:12]}…: the two copies of federation.toml differ"
            )
        begun = self.journal.experiment(message.experiment)
        if begun is not None:
            self._check_same(site, begun, ours)
        elif forgotten(site, agreement.terms.name, message.experiment):
            raise Refused("this study was begun here before, and this site has lost its journal of it")
        else:
            self._check_open(site, ours)
        reserved = begun is not None and reservation_of(site, begun) is not None
        if reasons := objections(site, agreement, reserved):
            raise Refused("; ".join(reasons))
        return begin(site, self.journal, message.experiment, agreement, self.prepared.dataset(site).train[0], self.seed)

    def _check_same(self, site: Site, begun: Experiment, terms: str) -> None:
        if begun.terms != terms:
            raise Refused("this study was begun here under other terms")
        if begun.closed or finish_closing(site, self.journal, begun):
            raise Refused("this study has ended here")
        if begun.non_private != mark(self.seed):
            raise Refused("this study was begun with the other kind of noise: seeded and hardened do not mix")

    def _check_open(self, site: Site, terms: str) -> None:
        """An invitation sets a whole plan aside: one more study of the same terms needs the site's leave."""
        most, found = site.accepts.open_studies_max, open_studies(site, self.journal, terms)
        if len(found) >= most:
            names = ", ".join(begun.id[:8] for begun in found)
            raise Refused(
                f"of these terms {names} is open here, and this site accepts at most {most} at a time: end it, or ask "
                "the site's operator to close it"
            )
        today = now()[:10]
        if sum(begun.begun[:10] == today for begun in self.journal.experiments()) >= BEGINNINGS:
            raise Refused(f"{BEGINNINGS} studies were begun here today, and no more begin on one day")

    def _has_closed(self, site: Site, message: CloseRequest) -> bool:
        begun = self.journal.experiment(message.experiment)
        return begun is not None and (begun.closed is not None or finish_closing(site, self.journal, begun))

    def refuse(self, experiment: str, reason: str) -> bytes:
        """The refusal of a question that is not considered: its sender and this site do not agree on the terms."""
        with self._lock:
            name = read_site(self.path).name
            return self._refuse(Refusal(experiment, name, reason[:LONGEST_REASON]), [f"refused: {reason}"])

    @property
    def study(self) -> str:
        """The study at work; nothing where none is."""
        return self._at_work.experiment.study if self._at_work else ""

    @property
    def limit(self) -> int:
        """The longest message a site reads: a header and the parameters of the study at work."""
        return wire.HEADER_LIMIT + 1024 + (self._at_work.agreement.zero.nbytes if self._at_work else 0)

    def _leave(self, message: Reply) -> bytes:
        return self.journal.depart_again(message.experiment, wire.KINDS[type(message)], None, wire.encode(message)).data
