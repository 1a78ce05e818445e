"""The processes of NVFlare: started by Tacit, ended with it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tacit.errors import InputError
from tacit.federation.flare.names import organisation

PR_SET_PDEATHSIG = 1
SERVER = "nvflare.private.fed.app.server.server_train"
CLIENT = "nvflare.private.fed.app.client.client_train"


def die_with_parent() -> None:
    """Where Linux offers it: when the parent is killed, so is this process, and nobody is left behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(
    module: str, kit: Path, config: str, settings: Mapping[str, str], variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """A process of NVFlare in a kit; what it prints goes into the kit's output.txt."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TACIT_FEDERATION")}
    if environment.get("TACIT_DATA"):  # the engine works in a folder of its own
        environment["TACIT_DATA"] = str(Path(environment["TACIT_DATA"]).resolve())
    environment |= {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"), **variables}
    chosen = [f"{name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", __name__, module, "-m", str(kit), "-s", config, "--set", *chosen]
    (kit / "transfer").mkdir(exist_ok=True)
    with (kit / "output.txt").open("ab") as output:
        return subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )


def start_server(kit: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """The coordinator's server."""
    settings = {"secure_train": "true", "org": "consortium", "config_folder": "config"}
    return start(SERVER, kit, "fed_server.json", settings, variables)


def start_client(kit: Path, site: str, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A site's client."""
    settings = {"secure_train": "true", "uid": site, "org": organisation(site), "config_folder": "config"}
    return start(CLIENT, kit, "fed_client.json", settings, variables)


def stop(process: subprocess.Popen[bytes], patience: float = 10.0) -> None:
    """End a process, gently first."""
    for word in (process.terminate, process.kill):
        if process.poll() is None:
            word()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)


def check_free(port: int) -> None:
    """Refuse a port that somebody else listens on."""
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(("", port))
        except OSError as error:
            raise InputError(f"port {port} cannot be had ({error.strerror}): is another server running?") from None


def wait_for_port(host: str, port: int, process: subprocess.Popen[bytes], kit: Path, patience: float = 60.0) -> None:
    """Wait until a server listens; one that ended is an error with its last words."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if process.poll() is not None:
            raise InputError(f"the server ended before it listened: see {kit / 'output.txt'} and {kit / 'log.txt'}")
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0):
            return
        time.sleep(0.1)
    raise InputError(f"the server does not listen on {host}:{port} after {patience:g} s: see {kit / 'log.txt'}")


def main() -> None:
    """Run a module of NVFlare's as if it had been started by itself, but not longer than its parent."""
    die_with_parent()
    module = sys.argv[1]
    sys.argv = [module, *sys.argv[2:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
