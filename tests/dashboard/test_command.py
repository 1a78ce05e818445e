"""The command `taciturn dashboard` in its own process."""

from __future__ import annotations

import http.client
import signal
import subprocess
from pathlib import Path

from tests.cli.helpers import COMMAND, PATIENCE, environment, refused


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert refused("dashboard", tmp_path / "nowhere").startswith(f"there is no folder {tmp_path / 'nowhere'}")


def test_on_another_host_it_warns_asks_for_its_token_and_ends_with_ctrl_c(made: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "dashboard", str(made), "--host", "0.0.0.0", "--port", "0", "--no-open"],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    address = process.stdout.readline().split()[0]
    port, token = int(address.split(":")[2].split("/")[0]), address.split("?token=")[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    answers = {}
    for query in ("", f"?token={token}"):
        connection.request("GET", f"/api/runs{query}")
        reply = connection.getresponse()
        answers[query] = (reply.status, reply.read())
    assert [status for status, _ in answers.values()] == [401, 200]
    assert b'"local": false' in answers[f"?token={token}"][1]
    process.send_signal(signal.SIGINT)  # the connection is still open
    _, errors = process.communicate(timeout=PATIENCE)
    connection.close()
    assert process.returncode == 0
    assert "not encrypted" in errors.splitlines()[0]
    assert "Traceback" not in errors
