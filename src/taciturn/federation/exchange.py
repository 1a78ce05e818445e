"""The coordinator's message exchange with the sites: sealed, over the link to an engine that is not trusted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from taciturn.federation.identity import Identity
from taciturn.federation.link import Frame, Kind, Link
from taciturn.federation.logs import LOG, AuditLog, RateLimit, is_noted, no_audit
from taciturn.federation.seal import HANDSHAKE, QUESTION, Header, InvalidSeal, open_answer, reply_header, seal_question
from taciturn.federation.status import CoordinatorStatus
from taciturn.federation.terms import Terms

FRAMES_AT_ONCE = 256  # frames that are handled before the clock is checked again
RECONNECT_SECONDS = 0.5  # two connections of a site within this time count as one


class Exchange(Protocol):
    """A message exchange with the sites: `SealedExchange` over a network, or a function call in tests."""

    def connected(self) -> Mapping[str, float]:
        """Return the connected sites, and since when."""

    def request(self, questions: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        """Send questions, and return the answers that arrive in time; a site that disconnects is not waited for.

        Parameters
        ----------
        questions : mapping of str to bytes
            The encoded question of each site.
        seconds : float
            Time limit for each answer.
        """

    def invite(self, data: bytes, site: str, seconds: float) -> None:
        """Send an invitation without waiting for the reply."""

    def invitation_replies(self) -> Mapping[str, bytes | None]:
        """Return the replies to invitations since the last call; None for a site that disconnected or was too slow."""

    def set_version(self, site: str, version: int) -> None:
        """Use this message version for a site."""

    def wait(self, seconds: float) -> bool:
        """Wait for an event, at most for some seconds; return whether events are still possible."""


class PendingQuestion(NamedTuple):
    """A question that a site has not answered yet."""

    expected: Header
    deadline: float
    invitation: bool


@dataclass
class SealedExchange:
    """Questions and answers over a link; see `Exchange` for the methods.

    Anything that is not a site's own answer to the last question is dropped and counted; the site may still answer.

    Parameters
    ----------
    link : Link
        The link to the engine.
    terms : Terms
        The study's terms, with all identities.
    identity : Identity
        The coordinator's identity.
    experiment : str
        The study.
    limit : int
        Maximum size of an answer in bytes.
    """

    link: Link
    terms: Terms
    identity: Identity
    experiment: str
    limit: int
    versions: dict[str, int] = field(default_factory=dict)  # message version of each site
    status: CoordinatorStatus = field(default_factory=CoordinatorStatus)
    audit: AuditLog = no_audit
    listening: bool = False
    last_heartbeat: float = field(default_factory=time.monotonic)  # last heartbeat of the engine
    rate_limit: RateLimit = field(default_factory=RateLimit)
    _connected: dict[str, float] = field(default_factory=dict)
    _connected_at: dict[str, float] = field(default_factory=dict)  # also of sites that have disconnected
    _pending: dict[str, PendingQuestion] = field(default_factory=dict)
    _answers: dict[str, bytes] = field(default_factory=dict)
    _invitation_replies: dict[str, bytes | None] = field(default_factory=dict)

    def connected(self) -> Mapping[str, float]:
        """Return the connected sites, and since when."""
        self._receive(0.0)
        return self._connected

    def request(self, questions: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        """Send each site its question, and return the answers that arrive in time."""
        self._answers.clear()
        for site, data in questions.items():
            self._send(data, site, seconds, self.versions.get(site, HANDSHAKE), invitation=False)
        while deadlines := [self._pending[site].deadline for site in questions if site in self._pending]:
            self._receive(min(deadlines) - time.monotonic())
            self._expire()
        return {site: self._answers[site] for site in questions if site in self._answers}

    def invite(self, data: bytes, site: str, seconds: float) -> None:
        """Send an invitation without waiting for the reply."""
        self._send(data, site, seconds, HANDSHAKE, invitation=True)

    def invitation_replies(self) -> Mapping[str, bytes | None]:
        """Return the replies to invitations since the last call; None for a site that disconnected or was too slow."""
        self._receive(0.0)
        self._expire()
        replies, self._invitation_replies = self._invitation_replies, {}
        return replies

    def set_version(self, site: str, version: int) -> None:
        """Use this message version for every later question to a site."""
        self.versions[site] = version

    def wait(self, seconds: float) -> bool:
        """Wait until something arrives, at most for some seconds."""
        self._receive(seconds)
        return True

    def _send(self, data: bytes, site: str, seconds: float, version: int, invitation: bool) -> None:
        if site not in self._connected:
            if invitation:
                self._invitation_replies[site] = None
            return
        header = Header(version, QUESTION, bytes.fromhex(self.terms.digest), bytes.fromhex(self.experiment), site)
        sealed = seal_question(data, header, self.identity, self.terms.identities[site])
        self._pending[site] = PendingQuestion(reply_header(sealed), time.monotonic() + seconds, invitation)
        self.link.send(Frame(Kind.MESSAGE, site, sealed))

    def _receive(self, seconds: float) -> None:
        """Handle the frames that are there, or wait for the first one; an endless stream is interrupted."""
        for number in range(FRAMES_AT_ONCE):
            frame = self.link.receive(0.0 if number else max(0.0, seconds))
            if frame is None:
                return
            self.last_heartbeat, self.status.heartbeat = time.monotonic(), time.time()
            self._handle(frame)

    def _handle(self, frame: Frame) -> None:
        site = frame.peer
        match frame.kind:
            case Kind.LISTENING:
                self.listening = True
                self.status.listening = time.time()
            case Kind.UP if site in self.terms.sites:
                self._connect(site)
                self._record_connection(site, up=True)
            case Kind.DOWN:
                self._connected.pop(site, None)
                self._record_connection(site, up=False)
                self._lose(site)
            case Kind.MESSAGE:
                self._accept(site, frame.data)

    def _record_connection(self, site: str, up: bool) -> None:
        if up == (site in self.status.sites):
            return
        if up:
            self.status.sites[site] = time.time()
        else:
            del self.status.sites[site]
        if self.rate_limit.allows():
            self.audit("connected" if up else "disconnected", site=site)

    def _connect(self, site: str) -> None:
        """Record a connection; an engine that reports a site again and again does not cause an invitation each time."""
        now, before = time.monotonic(), self._connected_at.get(site)
        if before is None or now - before > RECONNECT_SECONDS:
            self._connected_at[site] = now
        self._connected[site] = self._connected_at[site]

    def _accept(self, site: str, data: bytes) -> None:
        pending = self._pending.get(site)
        try:
            if pending is None:
                raise InvalidSeal("there was no question")
            sender = self.terms.identities[site]
            body = open_answer(data, self.identity, sender, self.limit, pending.expected).body
        except InvalidSeal as error:
            self._drop(site, error)
            return
        del self._pending[site]
        if pending.invitation:
            self._invitation_replies[site] = body
        else:
            self._answers[site] = body

    def _drop(self, site: str, error: InvalidSeal) -> None:
        self.status.dropped += 1
        count = self.status.dropped
        if is_noted(count):
            self.audit("dropped", site=site, messages=count)
            LOG.info(f"dropped {count} messages that no site sealed for this coordinator, last from '{site}': {error}")

    def _lose(self, site: str) -> None:
        """Give up a question that will not be answered."""
        pending = self._pending.pop(site, None)
        if pending is not None and pending.invitation:
            self._invitation_replies[site] = None

    def _expire(self) -> None:
        now = time.monotonic()
        for site in [site for site, pending in self._pending.items() if pending.deadline <= now]:
            self._lose(site)
