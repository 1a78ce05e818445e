"""A confined program reaches only what it is given; each mechanism is tested with the others switched off."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import taciturn
from taciturn.errors import InputError
from taciturn.federation.confinement import Trial, launch, seccomp, try_confinement
from taciturn.federation.confinement.inside import MECHANISMS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces, Landlock and seccomp are Linux's")
ROOT = os.geteuid() == 0
SOURCES = str(Path(taciturn.__file__).parent.parent)
NOBODY = 65534


@pytest.fixture
def tmp_path(on_disk: Path) -> Path:
    """A folder that a confined program can be shown."""
    return Path(tempfile.mkdtemp(dir=on_disk))


def others(*kept: str) -> set[str]:
    """Return all mechanisms except those kept."""
    return set(MECHANISMS) - set(kept)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[dict[str, list[Path]]]:
    """Yield a site's secrets: two files, of which one is open, a folder, and a file that does not exist yet."""
    records, identity, journal = tmp_path / "records.csv", tmp_path / "identity.key", tmp_path / "journal"
    records.write_text("age,ill\n44,1\n")
    identity.write_text("secret")
    identity.chmod(0o600)
    journal.mkdir()
    (journal / "round-1.json").write_text("{}")
    with records.open():
        yield {
            "records": [records],
            "identity": [identity],
            "journal": [journal, journal / "round-1.json"],
            "ledger": [tmp_path / "ledger.json"],
        }


def kept(trial: Trial) -> set[str]:
    return {each.name for each in trial.barriers if each.holds}


def run(code: str, tmp_path: Path, **options: object) -> tuple[int, str]:
    """Run Python code confined; return its exit status and output."""
    log = tmp_path / "log"
    log.unlink(missing_ok=True)
    process = launch([sys.executable, "-c", code], log=log, **options)  # type: ignore[arg-type]
    return process.wait(30), log.read_text()


# Barriers


def test_every_barrier_holds(site: dict[str, list[Path]]) -> None:
    trial = try_confinement(site)
    assert not trial.missing
    assert [(each.name, each.through) for each in trial.barriers if not each.holds] == []
    assert set(site) | {"damage", "tracing", "signals", "buses", "code", "descriptors"} == set(trial.required)
    assert all(each.attempts for each in trial.barriers)
    trial.require()


ALONE = {
    "namespaces": {"secrets", "damage", "tracing", "signals", "code", "processes", "writing", "programs"},
    "landlock": {"secrets", "tracing", "code", "processes", "writing", "programs", "ports"},
    "seccomp": {"signals", "buses"},
    "landlock seccomp": {"secrets", "damage", "tracing", "signals", "buses"}
    | {"code", "processes", "writing", "programs", "ports"},
}


@pytest.mark.parametrize("mechanism", [*ALONE, "none"])
def test_each_mechanism_alone(mechanism: str, site: dict[str, list[Path]]) -> None:
    """Exactly its own barriers hold, so every barrier fails without its mechanisms."""
    trial = try_confinement(site, _without=others(*mechanism.split()))
    expected = set().union(*(site if name == "secrets" else {name} for name in ALONE.get(mechanism, set())))
    uncertain = {"privileges", "tracing"} if mechanism != "none" else {"tracing"}  # Yama may forbid tracing everywhere
    uncertain |= set() if ROOT else {"code"}  # an installation that belongs to another user
    assert kept(trial) - {"descriptors"} - uncertain == expected - uncertain
    assert expected <= kept(trial)
    if mechanism == "none":
        with pytest.raises(
            InputError, match=r"could open the records .*Choices: .*user namespaces.*Landlock.*virtual machine"
        ):
            trial.require()
        assert not list(site["records"][0].parent.glob(".taciturn-trial-*"))  # the files that it created were removed


@pytest.mark.skipif(not ROOT, reason="only root has privileges to lose")
@pytest.mark.parametrize(("mechanisms", "held"), [(("privileges", "seccomp"), True), (("seccomp",), False)])
def test_capabilities_are_dropped(mechanisms: tuple[str, ...], held: bool, site: dict[str, list[Path]]) -> None:
    assert ("privileges" in kept(try_confinement(site, _without=others(*mechanisms)))) is held


def test_namespaces_and_landlock_each_leave_a_socket_open_that_the_filter_closes(site: dict[str, list[Path]]) -> None:
    """A mount namespace hides sockets with a path, Landlock closes abstract ones: neither does both."""
    through = {
        name: next(
            each.through for each in try_confinement(site, _without=others(name)).barriers if each.name == "buses"
        )
        for name in ("namespaces", "landlock")
    }
    assert through["namespaces"]
    assert all("abstract" in each for each in through["namespaces"])
    assert through["landlock"]
    assert not any("abstract" in each for each in through["landlock"])


# Other users


def reachable_python() -> str | None:
    """Return a Python that the user nobody can run; the one running the tests is often in root's home."""
    for python in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            code = "import sys; print(sys.version_info >= (3, 11))"
            found = subprocess.run(
                [python, "-I", "-c", code], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=True
            )
            if found.stdout == b"True\n":
                return python
    return None


SCRIPT = """
import json, sys, pathlib
sys.path = [path for path in sys.path if path]
{before}
from taciturn.federation.confinement import try_confinement
trial = try_confinement({{"records": [pathlib.Path({records!r})]}}, **{options!r})
broken = [[each.name for each in group if not each.holds] for group in (trial.barriers, trial.broken)]
print(json.dumps([dict(trial.missing), *broken]))
"""


def reachable_sources(folder: Path) -> str:
    """Return where the user nobody can import Taciturn from: a copy, if the checkout is in a private folder."""
    who: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    if subprocess.run(["/usr/bin/test", "-r", taciturn.__file__], check=False, **who).returncode == 0:
        return SOURCES
    copy = folder / "sources"
    if not copy.exists():
        shutil.copytree(Path(taciturn.__file__).parent, copy / "taciturn", ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run(["/bin/chmod", "-R", "a+rX", str(copy)], check=True)
    return str(copy)


def elsewhere(
    python: str, records: Path, before: str = "", as_user: int | None = None, **options: object
) -> tuple[dict[str, str], list[str], list[str]]:
    """Run a trial in another process; return missing mechanisms, broken barriers, and broken required barriers."""
    code = SCRIPT.format(before=before, records=str(records), options=options)
    who = {} if as_user is None else {"user": as_user, "group": as_user, "extra_groups": []}
    said = subprocess.run(
        [python, "-c", code],
        check=False,
        env={"PYTHONPATH": reachable_sources(records.parent)},
        cwd="/",
        capture_output=True,
        text=True,
        **who,  # type: ignore[call-overload]
    )
    assert said.returncode == 0, said.stderr
    missing, broken, required = json.loads(said.stdout)
    return missing, broken, required


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Yield a folder that other users can reach; those of pytest are private."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


needs_root = pytest.mark.skipif(not ROOT, reason="only root can become another user")


@needs_root
def test_every_barrier_holds_without_privileges(open_folder: Path) -> None:
    """The user nobody runs the trial and owns the records."""
    python = reachable_python()
    if python is None:
        pytest.skip("no Python that nobody can run")
    records = open_folder / "records.csv"
    records.write_text("1")
    os.chown(records, NOBODY, NOBODY)
    assert elsewhere(python, records, as_user=NOBODY) == ({}, [], [])
    assert "records" in elsewhere(python, records, as_user=NOBODY, _without=tuple(MECHANISMS))[2]


@needs_root
def test_a_shielded_process_cannot_be_traced_by_its_own_user(open_folder: Path) -> None:
    python = reachable_python()
    if python is None:
        pytest.skip("no Python that nobody can run")
    records = open_folder / "records.csv"
    records.write_text("1")
    before = "from taciturn.federation.confinement import shield; shield()"
    bare = {"as_user": NOBODY, "_without": tuple(MECHANISMS)}
    assert "tracing" in elsewhere(python, records, **bare)[1]  # type: ignore[arg-type]
    assert "tracing" not in elsewhere(python, records, before, **bare)[1]  # type: ignore[arg-type]
    assert elsewhere(python, records, before, as_user=NOBODY) == ({}, [], [])


@needs_root
def test_another_user_alone_is_enough(open_folder: Path) -> None:
    """As on macOS: files, processes and the user's bus are out of reach; sockets open to all users are not."""
    python = reachable_python()
    if python is None:
        pytest.skip("no Python that nobody can run")
    records = open_folder / "records.csv"
    records.write_text("1")
    records.chmod(0o600)
    open_folder.chmod(0o711)
    missing, broken, required = elsewhere(python, records, user="nobody", _without=tuple(others("user")))
    assert (missing, required) == ({}, [])
    assert "sockets" in broken


@needs_root
def test_root_without_privileges_falls_back_to_the_rest(open_folder: Path) -> None:
    """As in a container that forbids namespaces: the other mechanisms suffice, and the trial names the missing one."""
    records = open_folder / "records.csv"
    records.write_text("1")
    before = "from taciturn.federation.confinement import kernel; kernel.drop_capabilities()"
    missing, broken, required = elsewhere(sys.executable, records, before)
    assert set(missing) == {"namespaces"}
    assert "not permitted" in missing["namespaces"]
    assert (broken, required) == ([], [])


LESS = """
import sys
from taciturn.errors import InputError
from taciturn.federation.confinement import kernel, launch
kernel.drop_capabilities()
for may_lack in (("namespaces",), ()):
    try:
        print(launch([sys.executable, "-c", ""], log=2, may_lack=may_lack).wait())
    except InputError as error:
        print(error)
"""


@needs_root
def test_nothing_starts_with_less_than_was_tried() -> None:
    """A mechanism that worked in the trial may fail later, for example if its resources are exhausted."""
    said = subprocess.run(
        [sys.executable, "-c", LESS], check=True, env={"PYTHONPATH": SOURCES}, capture_output=True, text=True
    )
    first, second = said.stdout.splitlines()
    assert first == "0"
    assert second.startswith(
        "a program was not started because it would be less confined than in the trial: namespaces"
    )


@needs_root
def test_roots_programs_run_as_nobody(tmp_path: Path) -> None:
    code = "import os; print(os.getuid(), os.getgid(), os.getgroups())"
    assert run(code, tmp_path) == (0, f"{NOBODY} {NOBODY} []\n")
    assert run(code, tmp_path, _without={"user"})[1].startswith("0 0")


@needs_root
def test_a_user_can_be_named(tmp_path: Path) -> None:
    import pwd

    entry = next(each for each in pwd.getpwall() if each.pw_uid not in (0, NOBODY))
    assert run("import os; print(os.getuid())", tmp_path, user=entry.pw_name) == (0, f"{entry.pw_uid}\n")


def test_a_user_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no system user 'no-such-user'"):
        run("", tmp_path, user="no-such-user")


# What is given


def test_a_file_that_is_given_is_a_copy_that_can_only_be_read(tmp_path: Path) -> None:
    """It is a copy, so the program's user need not be able to read the original."""
    key = tmp_path / "client.key"
    key.write_text("secret")
    key.chmod(0o600)
    code = f"""
import os
path = {str(key)!r}
print(open(path).read())
for change, *more in ((open, "a"), (os.chmod, 0o666), (os.unlink,), (os.rename, path + "x"), (os.truncate, 0)):
    try:
        change(path, *more)
        print("did it")
    except OSError:
        pass
print(os.listdir(os.path.dirname(path)))
"""
    for without in (set(), {"landlock", "seccomp"}):
        assert run(code, tmp_path, readable=[key], _without=without) == (0, "secret\n['client.key']\n")
    assert key.read_text() == "secret"
    status, said = run(f"print(open({str(key)!r}).read())", tmp_path)
    assert status == 1
    assert "PermissionError" in said or "FileNotFoundError" in said


def test_links_lead_where_they_led(tmp_path: Path) -> None:
    folder = tmp_path / "real"
    folder.mkdir()
    (folder / "ca.pem").write_text("authority")
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "second").symlink_to(folder)
    (tmp_path / "loop").symlink_to("loop")
    code = f"print(open({str(tmp_path / 'first' / 'ca.pem')!r}).read())"
    for given in (tmp_path / "first", tmp_path / "first" / "ca.pem"):
        assert run(code, tmp_path, readable=[given, tmp_path / "loop", tmp_path / "absent"]) == (0, "authority\n")


def test_only_the_descriptors_and_variables_that_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "1")
    one, other = socket.socketpair()
    with one, other, (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        code = f"""
import os, socket
socket.socket(fileno={other.fileno()}).sendall(b"hello")
found = []
for number in range(3, 1024):
    try:
        os.fstat(number)
        found.append(number)
    except OSError:
        pass
print(found, sorted(os.environ))
"""
        status, said = run(code, tmp_path, fds=[other.fileno()], environment={"LC_CTYPE": "C.UTF-8"})
        assert one.recv(5) == b"hello"
    given = ["HOME", "LANG", "LC_CTYPE", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "TMPDIR"]
    assert (status, said) == (0, f"[] {given}\n")


def test_ports(tmp_path: Path) -> None:
    """It can connect to and listen on the permitted ports only."""
    with socket.create_server(("127.0.0.1", 0)) as mine, socket.create_server(("127.0.0.1", 0)) as foreign:
        with socket.create_server(("127.0.0.1", 0)) as free:
            listen = free.getsockname()[1]
        ports = [each.getsockname()[1] for each in (mine, foreign)]
        code = f"""
import socket
for port in {ports}:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        print("connected")
    except PermissionError:
        print("refused")
for port in ({listen}, 0):
    try:
        socket.create_server(("127.0.0.1", port)).close()
        print("listened")
    except PermissionError:
        print("refused")
"""
        names = (0, "connected\nrefused\nlistened\nrefused\n")
        assert run(code, tmp_path, connect=ports[:1], listen=[listen]) == names
        without = run(code, tmp_path, connect=ports[:1], listen=[listen], _without={"landlock"})
        assert without == (0, "connected\nconnected\nlistened\nlistened\n")


@pytest.mark.parametrize("without", [set(), {"namespaces"}, {"seccomp"}, {"namespaces", "seccomp"}])
def test_no_network(without: set[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]})).close()"
        status, _ = run(code, tmp_path, network=False, _without=without)
    assert (status == 0) is (without == {"namespaces", "seccomp"})


def test_limits(tmp_path: Path) -> None:
    code = """
import os, resource
print(resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_NOFILE))
try:
    bytearray(1 << 28)
except MemoryError:
    print("no memory")
try:
    with open("/tmp/full", "wb", buffering=0) as file:
        for _ in range(64):
            file.write(bytes(1 << 16))
except OSError as error:
    print(error.errno)
print(oct(os.umask(0)), os.getcwd(), os.getsid(0) == os.getpid())
"""
    said = f"(0, 0) (200, 200)\nno memory\n{errno.ENOSPC}\n0o77 / True\n"
    assert run(code, tmp_path, files=200, memory=1 << 27, scratch=1 << 20) == (0, said)


def test_the_log_is_private_and_is_not_a_link(tmp_path: Path) -> None:
    run("print('said')", tmp_path)
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "records.csv")
    with pytest.raises(OSError, match="symbolic links"):
        launch([sys.executable, "-c", ""], log=tmp_path / "link")


def test_what_cannot_be_run(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    with pytest.raises(InputError, match="script is not an executable file"):
        launch([script], log=2)
    script.chmod(0o755)
    with pytest.raises(InputError, match="script is not a program for this machine"):
        launch([script], log=2)


# Life cycle


@contextlib.contextmanager
def alive(code: str, **options: object) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], bytes]]]:
    """Start a program that holds the write end of a pipe, which closes when the last of its processes has ended."""
    read, write = os.pipe()
    os.set_blocking(read, True)
    try:
        source = "import os, signal, sys, time\n" + code.replace("READY", f"os.write({write}, b'.')")
        process = launch([sys.executable, "-c", source], fds=[write], log=2, **options)  # type: ignore[arg-type]
        os.close(write)
        assert os.read(read, 1) == b"."
        yield process, lambda: os.read(read, 1)
    finally:
        process.kill()
        process.wait()
        os.close(read)


@pytest.mark.parametrize("without", [set(), {"namespaces"}])
def test_it_ends_as_any_program(without: set[str], tmp_path: Path) -> None:
    assert run("raise SystemExit(7)", tmp_path, _without=without)[0] == 7
    with alive("READY; time.sleep(60)", _without=without) as (process, rest):
        process.terminate()
        assert process.wait(10) in (-signal.SIGTERM, -signal.SIGKILL)
        assert rest() == b""
    code = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); READY; time.sleep(60)"
    with alive(code, _without=without) as (process, _):
        process.terminate()
        assert process.wait(10) == 5


def test_a_signal_that_the_starter_blocks_still_ends_it() -> None:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with alive("READY; time.sleep(60)") as (process, _):
            process.terminate()
            assert process.wait(10) < 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def test_killing_the_watcher_kills_the_program() -> None:
    with alive("READY; time.sleep(60)") as (process, rest):
        process.kill()
        assert rest() == b""


FORK = """
if os.fork() == 0:
    os.setsid()
    READY
    time.sleep(1.5)
    os._exit(0)
time.sleep(60)
"""


@pytest.mark.parametrize("namespaces", [True, False])
def test_a_child_that_ran_away_ends_with_it(namespaces: bool) -> None:
    """The pid namespace ends all processes; without it the child survives."""
    with alive(FORK, _without=set() if namespaces else {"namespaces"}) as (process, rest):
        process.kill()
        process.wait()
        start = time.monotonic()
        assert rest() == b""
        assert (time.monotonic() - start < 1) is namespaces


def test_it_ends_when_the_process_that_started_it_is_killed() -> None:
    """The launcher needs no code for this, so it also holds after SIGKILL."""
    code = """
import sys, time
from taciturn.federation.confinement import launch
program = f"import os, time; os.write({fd}, b'.'); time.sleep(60)"
process = launch([sys.executable, "-c", program], fds=[{fd}], log=2)
time.sleep(60)
"""
    read, write = os.pipe()
    starter = subprocess.Popen(
        [sys.executable, "-c", code.replace("{fd}", str(write))], pass_fds=[write], env={"PYTHONPATH": SOURCES}
    )
    os.close(write)
    try:
        assert os.read(read, 1) == b"."
        starter.kill()
        starter.wait()
        assert os.read(read, 1) == b""
    finally:
        starter.kill()
        os.close(read)


def test_it_outlives_the_thread_that_started_it() -> None:
    found: list[contextlib.AbstractContextManager[tuple[subprocess.Popen[bytes], Callable[[], bytes]]]] = []
    entered = []

    def start() -> None:
        found.append(alive("READY; time.sleep(60)"))
        entered.append(found[0].__enter__())

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert entered[0][0].poll() is None
    found[0].__exit__(None, None, None)


# The filter

CALLS = """
import ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
found = {}
for name, arguments in json.loads(sys.argv[1]).items():
    ctypes.set_errno(0)
    result = libc.syscall(*(ctypes.c_long(os.getppid() if each == "parent" else each) for each in arguments))
    found[name] = errno.errorcode.get(ctypes.get_errno(), "") if result == -1 else "done"
print(json.dumps(found))
"""
ARGUMENTS: dict[str, tuple[tuple[int, int], list[int]]] = {
    "kill another": (seccomp._KILL, [2, 0]),
    "kill all": (seccomp._KILL, [-1, 0]),
    "limit another": (seccomp._PRLIMIT64, [2, 7, 0, 0]),
    "outlive the watcher": (seccomp._PRCTL, [1, 0]),
    "type into a terminal": (seccomp._IOCTL, [0, 0x5412, 0]),
    "choose who gets signals": (seccomp._FCNTL, [1, 8, 0]),
    "choose the signal": (seccomp._FCNTL, [1, 10, 0]),
    "unix socket": (seccomp._SOCKET, [1, 1, 0]),
    "vsock": (seccomp._SOCKET, [40, 1, 0]),
    "packet socket": (seccomp._SOCKET, [17, 3, 0]),
    "netlink audit": (seccomp._SOCKET, [16, 3, 9]),
    "multipath TCP": (seccomp._SOCKET, [2, 1, 262]),
    "pair for datagrams": (seccomp._SOCKETPAIR, [1, 2, 0, 0]),
    "pair for datagrams, closed on exec": (seccomp._SOCKETPAIR, [1, 0x80002, 0, 0]),
    "connect while sending": (seccomp._SENDTO, [-1, 0, 0, 0x2000_0000, 0, 0]),
    "connect while sending a message": (seccomp._SENDMSG, [-1, 0, 0x2000_0000]),
    "connect while sending messages": (seccomp._SENDMMSG, [-1, 0, 0, 0x2000_0000]),
}
ALLOWED: dict[str, tuple[tuple[int, int], list[int]]] = {
    "limit itself": (seccomp._PRLIMIT64, [0, 7, 0, 0]),
    "routing table": (seccomp._SOCKET, [16, 3, 0]),
    "TCP": (seccomp._SOCKET, [2, 1, 0]),
    "UDP": (seccomp._SOCKET, [10, 2, 17]),
    "a descriptor's flags": (seccomp._FCNTL, [1, 1, 0]),
}


SPECIAL = """
SOCKET SOCKETPAIR SENDTO SENDMSG SENDMMSG CLONE CLONE3 KILL TGKILL RT_SIGQUEUEINFO RT_TGSIGQUEUEINFO PRLIMIT64 PRCTL
IOCTL FCNTL
"""


def column() -> int:
    return 0 if os.uname().machine == "x86_64" else 1


def test_system_calls_that_are_refused(tmp_path: Path) -> None:
    """The arguments are harmless without the filter; clone3 must look absent, so that the C library uses clone."""
    harmless = {
        name: numbers[column()] for name, numbers in seccomp._REFUSED.items() if name not in ("vhangup", "reboot")
    }
    calls = {name: [number, -1, 0, -1, -1, -1] for name, number in harmless.items() if number is not None}
    calls |= {name: [numbers[column()], *arguments] for name, (numbers, arguments) in {**ARGUMENTS, **ALLOWED}.items()}
    calls["clone3"] = [seccomp._CLONE3[column()], 0, 0]
    calls["clone into a namespace"] = [seccomp._CLONE[column()], 0x1000_0000 | signal.SIGCHLD, 0, 0, 0, 0]
    script = tmp_path / "calls.py"
    script.write_text(CALLS)
    process = launch([sys.executable, script, json.dumps(calls)], readable=[script], log=tmp_path / "log")
    assert process.wait(30) == 0, (tmp_path / "log").read_text()
    found = json.loads((tmp_path / "log").read_text())
    assert {name: found.pop(name) for name in ALLOWED} == dict.fromkeys(ALLOWED, "done")
    assert found.pop("clone3") == "ENOSYS"
    assert set(found.values()) == {"EPERM"}, found


REFUSED = """
ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd pidfd_send_signal kcmp tkill setpriority
ioprio_set sched_setscheduler sched_setparam sched_setattr sched_setaffinity migrate_pages move_pages perf_event_open
chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat truncate setxattr lsetxattr fsetxattr setxattrat
removexattr lremovexattr fremovexattr removexattrat file_setattr inotify_add_watch
mount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr
unshare setns name_to_handle_at open_by_handle_at bpf add_key request_key keyctl userfaultfd io_uring_setup
io_uring_enter io_uring_register fanotify_init kexec_load kexec_file_load init_module finit_module delete_module
"""


def test_no_call_is_missing_from_the_list() -> None:
    assert set(REFUSED.split()) <= set(seccomp._REFUSED)


HEADERS = ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm-generic/unistd.h")


@pytest.mark.parametrize(("which", "header"), list(enumerate(HEADERS)))
def test_numbers_are_the_kernels(which: int, header: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"{header} is not installed")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text())
    known = {name: int(number) for name, number in found}
    ours = {name: numbers[which] for name, numbers in seccomp._REFUSED.items()}
    ours |= {name.lower(): getattr(seccomp, f"_{name}")[which] for name in SPECIAL.split()}
    assert {name: number for name, number in ours.items() if name in known} == {
        name: known[name] for name in ours if name in known
    }


def answer(program: list[seccomp.Instruction], words: dict[int, int]) -> int:
    """Run a filter as the kernel does, on the words that the kernel passes to it."""
    at, loaded = 0, 0
    while True:
        code, yes, no, constant = program[at]
        at += 1
        if code == seccomp._LOAD:
            loaded = words.get(constant, 0)
        elif code == seccomp._AND:
            loaded &= constant
        elif code == seccomp._RETURN:
            return constant
        else:
            tests = {seccomp._EQUAL: loaded == constant, seccomp._AT_LEAST: loaded >= constant}
            at += yes if {**tests, seccomp._ANY_BIT: bool(loaded & constant)}[code] else no


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_of_each_machine(machine: str) -> None:
    """Interpret the filter in Python, so that both machines are tested on either."""
    allow, refuse, kill = seccomp._ALLOW[3], seccomp._REFUSE[3], seccomp._KILL_PROCESS[3]
    which = 0 if machine == "x86_64" else 1
    program = seccomp.program(machine, pid=77)
    assert len(program) < 4096  # the kernel's limit

    def call(number: int | None, *arguments: int, architecture: int = seccomp._ARCHITECTURE[machine]) -> int:
        words = {16 + 8 * i: each & 0xFFFF_FFFF for i, each in enumerate(arguments)}
        return answer(program, {0: number or 0, 4: architecture, **words})

    assert call(0, architecture=0x4000_0003) == kill  # a 32-bit call
    refused = [numbers[which] for numbers in seccomp._REFUSED.values() if numbers[which] is not None]
    assert {call(number) for number in refused} == {refuse}
    special = [getattr(seccomp, f"_{name}")[which] for name in SPECIAL.split()]
    rest = set(range(500)) - set(refused) - set(special)
    assert {call(number) for number in rest} == {allow}
    assert {call(numbers[which], *given) for numbers, given in ARGUMENTS.values()} == {refuse}
    assert {call(numbers[which], *given) for numbers, given in ALLOWED.values()} == {allow}
    assert call(seccomp._KILL[which], 77, 9) == call(seccomp._TGKILL[which], 77, 78, 6) == allow
    assert call(seccomp._SOCKETPAIR[which], 1, 0x80001) == call(seccomp._SENDTO[which], 5, 0, 0, 0x4000) == allow
    assert call(seccomp._CLONE[which], 0x003D_0F00) == allow  # a thread
    assert (
        answer(
            seccomp.program(machine, 77, network=False),
            {0: seccomp._SOCKET[which], 4: seccomp._ARCHITECTURE[machine], 16: 2},
        )
        == refuse
    )
    if machine == "x86_64":
        assert call(seccomp._X32 + 1) == refuse


# A real program


@pytest.mark.parametrize("without", [(), ("namespaces",)])
def test_packages_are_found_wherever_they_are(tmp_path: Path, without: tuple[str, ...]) -> None:
    """As with an installation from a checkout: Python lists the folder and reads only the package in it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:  # a confined program has a private /tmp
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "ours").mkdir()
        (folder / "ours" / "__init__.py").write_text("where = 'outside'")
        (folder / "theirs.py").write_text("where = 'secret'")
        code = "import ours; print(ours.where)\ntry:\n    import theirs\nexcept Exception as e:\n    print('shut')"
        given = {"environment": {"PYTHONPATH": str(folder)}, "readable": [folder / "ours"], "_without": without}
        assert run(code, tmp_path, **given) == (0, "outside\nshut\n")


@pytest.mark.federation
def test_the_engine_runs_inside(tmp_path: Path) -> None:
    """NVFlare's cells with gRPC import, and a connection reaches a server."""
    pytest.importorskip("nvflare")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"""
import grpc, numpy, nvflare.fuel.f3.cellnet.core_cell, socket, taciturn.federation.messages, tempfile
socket.create_connection(("localhost", {port})).sendall(b"here")
tempfile.TemporaryFile().write(b"scratch")
channel = grpc.insecure_channel("127.0.0.1:{port}")
print("works")
"""
        assert run(code, tmp_path, connect=[port]) == (0, "works\n")
        connection, _ = server.accept()
        with connection:
            assert connection.recv(4) == b"here"
