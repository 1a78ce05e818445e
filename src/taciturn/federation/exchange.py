"""The coordinator's way to the sites: every message is sealed for its site, and goes through an engine's link."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from taciturn.federation.identity import Identity
from taciturn.federation.link import Frame, Kind, Link
from taciturn.federation.logs import AuditLog, RateLimit, no_audit
from taciturn.federation.seal import HANDSHAKE, QUESTION, Header, Unsealed, open_answer, reply_header, seal_question
from taciturn.federation.status import RunLife
from taciturn.federation.terms import Terms

AT_ONCE = 256  # frames that are taken before there is another look at the clock
CALM = 0.5  # seconds between two connections of one site, the second of which counts as the first


@dataclass
class Pending:
    """A question that a site has not answered."""

    expected: Header
    deadline: float
    invitation: bool


@dataclass
class SealedExchange:
    """Questions and answers over a link to an engine that nobody has to trust.

    What an engine brings that is not a site's own answer to the last question is dropped, and counted: the site may
    still answer.
    """

    link: Link
    terms: Terms
    identity: Identity
    experiment: str
    limit: int  # bytes of an answer
    say: Callable[[str], None] = lambda line: None
    versions: dict[str, int] = field(default_factory=dict)
    dropped: int = 0
    listening: bool = False
    heard: float = field(default_factory=time.monotonic)  # when the engine last gave a sign of life
    life: RunLife = field(default_factory=RunLife)
    audit: AuditLog = no_audit
    seldom: RateLimit = field(default_factory=RateLimit)
    _present: dict[str, float] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)
    _pending: dict[str, Pending] = field(default_factory=dict)
    _answers: dict[str, bytes] = field(default_factory=dict)
    _posted: dict[str, bytes | None] = field(default_factory=dict)

    def present(self) -> Mapping[str, float]:
        """The sites that are connected, and since when."""
        self._take(0.0)
        return self._present

    def ask(self, data: bytes, sites: Sequence[str], seconds: float) -> Mapping[str, bytes]:
        """Send a question to each site, and wait for all answers or for the time to be over."""
        self._answers.clear()
        for site in sites:
            self._send(data, site, seconds, self.versions.get(site, HANDSHAKE), invitation=False)
        while any(site in self._pending for site in sites):
            self._take(min(self._pending[site].deadline for site in sites if site in self._pending) - time.monotonic())
            self._expire()
        return {site: self._answers[site] for site in sites if site in self._answers}

    def post(self, data: bytes, site: str, seconds: float) -> None:
        """Send an invitation, and do not wait for the answer."""
        self._send(data, site, seconds, HANDSHAKE, invitation=True)

    def posted(self) -> Mapping[str, bytes | None]:
        """The answers to invitations since the last call."""
        self._take(0.0)
        self._expire()
        found, self._posted = self._posted, {}
        return found

    def agreed(self, site: str, version: int) -> None:
        """Every later question to this site is of this version."""
        self.versions[site] = version

    def wait(self, seconds: float) -> bool:
        """Wait until something comes, at most for some seconds."""
        self._take(seconds)
        return True

    def _send(self, data: bytes, site: str, seconds: float, version: int, invitation: bool) -> None:
        if site not in self._present:
            if invitation:
                self._posted[site] = None
            return
        header = Header(version, QUESTION, bytes.fromhex(self.terms.digest), bytes.fromhex(self.experiment), site)
        sealed = seal_question(data, header, self.identity, self.terms.identities[site])
        self._pending[site] = Pending(reply_header(sealed), time.monotonic() + seconds, invitation)
        self.link.send(Frame(Kind.MESSAGE, site, sealed))

    def _take(self, seconds: float) -> None:
        """What is there; where nothing is, wait for the first of it. An engine that never stops is not listened to."""
        for number in range(AT_ONCE):
            frame = self.link.receive(0.0 if number else max(0.0, seconds))
            if frame is None:
                return
            self.heard, self.life.heartbeat = time.monotonic(), time.time()
            self._handle(frame)

    def _handle(self, frame: Frame) -> None:
        site = frame.peer
        match frame.kind:
            case Kind.LISTENING:
                self.listening = True
                self.life.listening = time.time()
            case Kind.UP if site in self.terms.sites:
                self._connect(site)
                self._note(site, up=True)
            case Kind.DOWN:
                self._present.pop(site, None)
                self._note(site, up=False)
                self._lose(site)
            case Kind.MESSAGE:
                self._answer(site, frame.data)

    def _note(self, site: str, up: bool) -> None:
        """What the engine says of a site's connection, for those who watch."""
        if up == (site in self.life.sites):
            return
        if up:
            self.life.sites[site] = time.time()
        else:
            del self.life.sites[site]
        if self.seldom():
            self.audit("connected" if up else "disconnected", site=site)

    def _connect(self, site: str) -> None:
        """An engine that has a site come and go without end must not have it invited each time."""
        now, before = time.monotonic(), self._since.get(site)
        if before is None or now - before > CALM:
            self._since[site] = now
        self._present[site] = self._since[site]

    def _answer(self, site: str, data: bytes) -> None:
        pending = self._pending.get(site)
        try:
            if pending is None:
                raise Unsealed("nothing was asked")
            sender = self.terms.identities[site]
            body = open_answer(data, self.identity, sender, self.limit, pending.expected).body
        except Unsealed as error:
            self.dropped += 1
            self.life.dropped += 1
            if self.dropped & (self.dropped - 1) == 0:  # the 1st, 2nd, 4th, 8th...
                self.audit("dropped", site=site, messages=self.dropped)
                self.say(
                    f"dropped {self.dropped} messages that no site sealed for us, the last as if from {site}: {error}"
                )
            return
        del self._pending[site]
        if pending.invitation:
            self._posted[site] = body
        else:
            self._answers[site] = body

    def _lose(self, site: str) -> None:
        """A question that will have no answer."""
        pending = self._pending.pop(site, None)
        if pending is not None and pending.invitation:
            self._posted[site] = None

    def _expire(self) -> None:
        now = time.monotonic()
        for site in [site for site, pending in self._pending.items() if pending.deadline <= now]:
            self._lose(site)
