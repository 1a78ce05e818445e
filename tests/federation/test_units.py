"""The units and container files: they parse, are restricted as required, and allow what the confinement needs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import ROOT, environment

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
CONTAINERS = sorted((DEPLOY / "container").glob("Containerfile.*"))
HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
ANALYZE = shutil.which("systemd-analyze")
HARDENED = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "CapabilityBoundingSet": "",
    "SystemCallArchitectures": "native",
    "LimitCORE": "0",
    "UMask": "0077",
    "Restart": "always",
}


def settings(unit: Path) -> dict[str, list[str]]:
    """Return every setting of a unit with all of its values, which systemd accumulates."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_asks_for_what_it_must(unit: Path) -> None:
    found = settings(unit)
    for name, value in HARDENED.items():
        assert found[name] == [value], name
    assert {"SystemCallFilter", "RestrictAddressFamilies", "LimitNOFILE", "TasksMax", "MemoryMax", "User"} <= set(found)
    assert set(found["RestrictAddressFamilies"][0].split()) == {"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"}
    assert {"user", "mnt", "pid", "ipc", "uts", "cgroup"} <= set(found["RestrictNamespaces"][0].split())
    assert "ProtectHostname" not in found, "the confinement gives its own namespace a name"
    assert "PrivateUsers" not in found and "MemoryDenyWriteExecute" not in found
    if "page" not in unit.name:
        assert found["LimitNOFILE"] == ["65536"] and found["StateDirectoryMode"] == ["0700"]


def test_the_commands_of_the_units_and_containers_exist() -> None:
    for file in (*UNITS, *CONTAINERS):
        text = file.read_text()
        words = re.search(r"ExecStart=\S+ (.*)|CMD \[(\"federation.*)\]", text)
        assert words is not None, file
        command = [word for word in re.split(r"[\s,\"]+", words[1] or words[2]) if word and "/" not in word]
        group = command[: 3 if command[1] == "site" else 2]
        done = subprocess.run(
            [sys.executable, "-m", "taciturn", *group, "--help"],
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        for option in (word for word in command if word.startswith("--")):
            assert option in done.stdout, f"{file.name}: {option}"


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        text = unit.read_text().replace("/opt/taciturn/bin/taciturn", "/bin/true")
        (tmp_path / unit.name.replace("@", "@north")).write_text(text)
    made = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run([str(ANALYZE), "verify", *made], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    for path in made:
        words = [str(ANALYZE), "security", "--offline=true", "--threshold=30", path]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-200:]


UNDER = """
import ctypes, os, struct, sys
allowed = set(map(int, sys.argv[1].split(",")))
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
code = [(LOAD, 0, 0, 0)]
for number in sorted(allowed):
    code += [(EQUAL, 0, 1, number), (RETURN, 0, 0, 0x7FFF0000)]
code.append((RETURN, 0, 0, 0x00050001))
raw = b"".join(struct.pack("=HBBI", *one) for one in code)
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(code), raw))) == 0, ctypes.get_errno()
from pathlib import Path
from taciturn.federation.confinement import try_confinement
secret = Path(sys.argv[2])
trial = try_confinement({"records": [secret]})
print(sorted(trial.missing), [barrier.name for barrier in trial.broken])
"""


@pytest.mark.skipif(ANALYZE is None or not HEADER.is_file(), reason="needs systemd-analyze and the kernel's headers")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_confinement_works_under_a_units_filter_of_system_calls(unit: Path, tmp_path: Path) -> None:
    """Apply the unit's filter as a real one, and all mechanisms of the confinement inside it."""
    numbers = dict(re.findall(r"#define __NR_(\w+) (\d+)", HEADER.read_text()))
    names: set[str] = set()
    for line in settings(unit)["SystemCallFilter"]:
        listed = expanded(line.lstrip("~").split())
        names = names - listed if line.startswith("~") else names | listed
    allowed = ",".join(number for name, number in numbers.items() if name in names)
    secret = tmp_path / "secret"
    secret.write_text("x")
    done = subprocess.run(
        [sys.executable, "-c", UNDER, allowed, str(secret)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "[] []", done.stdout + done.stderr


def expanded(names: list[str]) -> set[str]:
    """Return system calls by name; a name may be that of a set."""
    found: set[str] = set()
    for name in names:
        if not name.startswith("@"):
            found.add(name)
            continue
        done = subprocess.run([str(ANALYZE), "syscall-filter", name], capture_output=True, text=True, check=True)
        inner = [line.strip() for line in done.stdout.splitlines()[1:] if line.strip() and "#" not in line]
        found |= expanded(inner)
    return found


@pytest.mark.parametrize("file", CONTAINERS, ids=lambda file: file.name)
def test_a_container_file_is_of_known_instructions_and_rootless(file: Path) -> None:
    joined = re.sub(r"\\\n", " ", file.read_text())
    lines = [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]
    instructions = [line.split()[0] for line in lines]
    known = {
        "FROM",
        "RUN",
        "COPY",
        "ENV",
        "USER",
        "WORKDIR",
        "VOLUME",
        "EXPOSE",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "CMD",
        "ENTRYPOINT",
    }
    assert set(instructions) <= known | {"CMD"}
    last = lines[max(i for i, name in enumerate(instructions) if name == "FROM") :]
    user = [line for line in last if line.startswith("USER")]
    assert user == ["USER 10001:10001"]
    assert any(line.startswith('VOLUME ["/var/lib/taciturn"]') for line in last)
    assert any("XDG_STATE_HOME=/var/lib/taciturn/xdg" in line for line in last)
    for line in lines:
        if line.startswith("COPY") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), source
    assert "--read-only" in joined and "--cap-drop=all" in joined
