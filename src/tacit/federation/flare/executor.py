"""The only program a site runs for a job: it hands messages to the site's own agent."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from tacit.federation.agent import SiteAgent
from tacit.federation.flare.names import PAYLOAD, SEED_VARIABLE, SITE_VARIABLE, TASK
from tacit.federation.journal import Journal
from tacit.federation.policy import read_site


class SiteExecutor(Executor):
    """It takes nothing from the job: no noise, no clip, no budget. All of that is in the site's own files."""

    def __init__(self) -> None:
        super().__init__()
        self._open = contextlib.ExitStack()
        self._agent: SiteAgent | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """The journal is open while a job runs."""
        if event_type == EventType.START_RUN:
            path = Path(os.environ[SITE_VARIABLE])
            seed = os.environ.get(SEED_VARIABLE, "")
            journal = self._open.enter_context(Journal.open(read_site(path).state))
            self._agent = SiteAgent(path, journal, int(seed) if seed else None, self.logger.info)
        elif event_type == EventType.END_RUN:
            self._agent = None
            self._open.close()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """The agent's answer to a message."""
        data = shareable.get(PAYLOAD)
        if task_name != TASK or self._agent is None or not isinstance(data, bytes):
            return make_reply(ReturnCode.BAD_TASK_DATA)
        reply = Shareable()
        reply[PAYLOAD] = self._agent.answer(data)
        return reply
