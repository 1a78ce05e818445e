"""The server's part of a job: it conducts the study with the sites of the job, from the coordinator's run folder."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from tacit.errors import InputError
from tacit.federation.conduct import open_study
from tacit.federation.coordinator import FAILED, WAITING, Lost
from tacit.federation.flare.names import PAYLOAD, RUN_VARIABLE, TASK, TERMS_VARIABLE
from tacit.federation.flare.outcome import write_outcome
from tacit.federation.terms import read_terms
from tacit.results.folder import RunFolder

PATIENCE = 30.0  # seconds


class StudyController(Controller):
    """One job: a stretch of a study with the sites that are there."""

    def __init__(self, leg: int, sites: list[str], poll_seconds: float) -> None:
        super().__init__()
        self._leg, self._sites, self._poll = leg, sites, poll_seconds

    def start_controller(self, fl_ctx: FLContext) -> None:
        """The loop that looks for answers reads this private value of its communicator; the setting has no effect."""
        self.communicator._task_check_period = self._poll

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Everything is on the disk already."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Conduct the study as far as it goes; how it ended is left in the run folder."""
        folder = RunFolder.open(Path(os.environ[RUN_VARIABLE]))
        try:
            outcome, reason = self._conduct(FlareExchange(self, fl_ctx, abort_signal), folder), ""
        except Lost:
            outcome, reason = WAITING, ""
        except Exception as error:  # the coordinator's command shows it
            outcome, reason = FAILED, f"{error if isinstance(error, InputError) else repr(error)}"
        write_outcome(folder, self._leg, outcome, reason)

    def _conduct(self, exchange: FlareExchange, folder: RunFolder) -> str:
        end = time.monotonic() + PATIENCE
        while folder.busy and time.monotonic() < end:  # the job before this one is still on its way out
            time.sleep(0.1)
        with folder.locked():
            coordinator = open_study(read_terms(Path(os.environ[TERMS_VARIABLE])), folder.path)
            return coordinator.conduct(exchange, self._sites)

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """An answer that came too late is not used: the site rolls back to what was accepted."""


class FlareExchange:
    """Messages as tasks of NVFlare's."""

    def __init__(self, controller: Controller, fl_ctx: FLContext, abort_signal: Signal) -> None:
        self._controller, self._context, self._abort = controller, fl_ctx, abort_signal

    def ask(self, data: bytes, sites: Sequence[str], seconds: float) -> Mapping[str, bytes]:
        """Broadcast, and wait for everybody or for the time to be over."""
        replies: dict[str, bytes] = {}

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
            result = client_task.result
            good = result is not None and result.get_return_code() == ReturnCode.OK
            found = result.get(PAYLOAD) if good else b""
            replies[client_task.client.name] = found if isinstance(found, bytes) else b""

        message = Shareable()
        message[PAYLOAD] = data
        task = Task(TASK, message, timeout=max(1, math.ceil(seconds)), result_received_cb=received)
        self._controller.broadcast_and_wait(
            task, self._context, targets=list(sites), min_responses=len(sites), abort_signal=self._abort
        )
        if self._abort.triggered:
            raise Lost
        return replies
