"""The coordinator's line to its own server: who is there, and jobs."""

from __future__ import annotations

import contextlib
import io
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tacit.errors import InputError
from tacit.federation.flare.names import ADMIN

PATIENCE = 120.0  # seconds for a busy server to answer
T = TypeVar("T")


class Server:
    """What the coordinator asks of the server; a line that breaks is taken up again."""

    def __init__(self, kit: Path, alive: Callable[[], bool] = lambda: True) -> None:
        self._kit, self._alive = kit, alive
        self._session: Any = None

    def sites(self) -> dict[str, float]:
        """The sites that are connected, and when they were heard of last."""
        info = self._ask(lambda session: session.get_system_info())
        return {client.name: float(client.last_connect_time) for client in info.client_info}

    def submit(self, job: Path) -> str:
        """Start a job; its name."""
        return str(self._ask(lambda session: session.submit_job(str(job))))

    def status(self, job: str) -> str:
        """How a job is, in the engine's words."""
        return str(self._ask(lambda session: session.get_job_meta(job)).get("status", ""))

    def detail(self, job: str) -> list[str]:
        """What the engine says about a job's deployment."""
        return [str(line) for line in self._ask(lambda session: session.get_job_meta(job)).get("job_deploy_detail", [])]

    def abort(self, job: str) -> None:
        """End a job; one that has ended is left alone."""
        with contextlib.suppress(Exception):
            self._ask(lambda session: session.abort_job(job), patience=5.0)

    def close(self) -> None:
        """Log out; a server that is gone cannot be told."""
        with contextlib.suppress(Exception):
            self._session.close()
        self._session = None

    def _ask(self, question: Callable[[Any], T], patience: float = PATIENCE) -> T:
        """An answer, over a new session where the old one fails; a server that has ended is not waited for."""
        end = time.monotonic() + patience
        while True:
            try:
                if self._session is None:
                    self._session = _session(self._kit)
                return question(self._session)
            except Exception as error:  # the engine's own kinds, of which there are many
                self.close()
                if not self._alive():
                    raise ConnectionError("the server has ended") from None
                if time.monotonic() > end:
                    raise InputError(f"the server does not answer its coordinator: {error}") from None
                time.sleep(1.0)


def _session(kit: Path) -> Any:
    from nvflare.fuel.flare_api.flare_api import new_secure_session  # noqa: PLC0415

    logging.getLogger("nvflare").setLevel(logging.CRITICAL + 1)  # what matters is said in sentences of ours
    with contextlib.redirect_stdout(io.StringIO()):
        return new_secure_session(ADMIN, str(kit), timeout=20.0)


@contextmanager
def connect(kit: Path, alive: Callable[[], bool] = lambda: True) -> Iterator[Server]:
    """A line that is closed whatever happens."""
    server = Server(kit, alive)
    try:
        yield server
    finally:
        server.close()
