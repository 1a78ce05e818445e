"""The coordinator's line to its own server: who is there, and jobs."""

from __future__ import annotations

import contextlib
import io
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tacit.errors import InputError
from tacit.federation.flare.names import ADMIN


class Server:
    """What the coordinator asks of the server."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def sites(self) -> dict[str, float]:
        """The sites that are connected, and when they were heard of last."""
        info = self._session.get_system_info()
        return {client.name: float(client.last_connect_time) for client in info.client_info}

    def submit(self, job: Path) -> str:
        """Start a job; its name."""
        return str(self._session.submit_job(str(job)))

    def status(self, job: str) -> str:
        """How a job is, in the engine's words."""
        return str(self._session.get_job_meta(job).get("status", ""))

    def detail(self, job: str) -> list[str]:
        """What the engine says about a job's deployment."""
        return [str(line) for line in self._session.get_job_meta(job).get("job_deploy_detail", [])]

    def abort(self, job: str) -> None:
        """End a job."""
        self._session.abort_job(job)


@contextmanager
def connect(kit: Path, patience: float = 60.0) -> Iterator[Server]:
    """A session of the coordinator's, closed whatever happens."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session  # noqa: PLC0415

    logging.getLogger("nvflare").setLevel(logging.CRITICAL + 1)  # what matters is said in sentences of ours
    end, session, reason = time.monotonic() + patience, None, ""
    while session is None:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                session = new_secure_session(ADMIN, str(kit), timeout=10.0)
        except Exception as error:  # the engine's own kinds, of which there are many
            reason = str(error)
            if time.monotonic() > end:
                raise InputError(f"the coordinator cannot log in to its server: {reason}") from None
            time.sleep(0.5)
    try:
        yield Server(session)
    finally:
        with contextlib.suppress(Exception):  # a server that is gone cannot be told
            session.close()
