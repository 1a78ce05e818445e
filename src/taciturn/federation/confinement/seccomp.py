"""A seccomp filter: system calls that a program which only carries messages never needs fail with EPERM.

The filter is a program in the kernel's packet filter language. It denies tracing and reading other processes, mounts,
namespaces, keys, BPF, kernel modules and changes of file permissions. It denies signals to any other process, and all
sockets except TCP, UDP and queries of the routing table, so a session bus cannot be reached at any address.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from taciturn.federation.confinement import kernel

_ARCHITECTURE = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_X32 = 0x4000_0000  # where the system calls of x86_64's second interface start

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant


def _calls(*lines: str) -> dict[str, tuple[int, int | None]]:
    """Parse "name:number:number", the numbers on x86_64 and on aarch64; "-" if the machine has no such call."""
    entries = (entry.split(":") for line in lines for entry in line.split())
    return {name: (int(x86_64), None if aarch64 == "-" else int(aarch64)) for name, x86_64, aarch64 in entries}


_REFUSED = _calls(
    # other processes
    "ptrace:101:117 process_vm_readv:310:270 process_vm_writev:311:271 process_madvise:440:440",
    "process_mrelease:448:448 pidfd_getfd:438:438 pidfd_send_signal:424:424 kcmp:312:272 tkill:200:130",
    "setpriority:141:140 ioprio_set:251:30 sched_setparam:142:118 sched_setscheduler:144:119",
    "sched_setaffinity:203:122 sched_setattr:314:274 migrate_pages:256:238 move_pages:279:239",
    "perf_event_open:298:241",
    # what Landlock does not refuse on files, or not yet in its first versions
    "chmod:90:- fchmod:91:52 fchmodat:268:53 fchmodat2:452:452 chown:92:- fchown:93:55 lchown:94:-",
    "fchownat:260:54 truncate:76:45 setxattr:188:5 lsetxattr:189:6 fsetxattr:190:7 setxattrat:463:463",
    "removexattr:197:14 lremovexattr:198:15 fremovexattr:199:16 removexattrat:466:466 file_setattr:469:469",
    "inotify_add_watch:254:27",
    # mounts and namespaces
    "mount:165:40 umount2:166:39 pivot_root:155:41 chroot:161:51 open_tree:428:428 move_mount:429:429",
    "fsopen:430:430 fsconfig:431:431 fsmount:432:432 fspick:433:433 mount_setattr:442:442",
    "open_tree_attr:467:467 unshare:272:97 setns:308:268 name_to_handle_at:303:264 open_by_handle_at:304:265",
    # the kernel
    "bpf:321:280 add_key:248:217 request_key:249:218 keyctl:250:219 userfaultfd:323:282 io_uring_setup:425:425",
    "io_uring_enter:426:426 io_uring_register:427:427 fanotify_init:300:262 kexec_load:246:104",
    "kexec_file_load:320:294 init_module:175:105 finit_module:313:273 delete_module:176:106 iopl:172:-",
    "ioperm:173:- modify_ldt:154:- syslog:103:116 reboot:169:142 swapon:167:224 swapoff:168:225 acct:163:89",
    "quotactl:179:60 quotactl_fd:443:443 vhangup:153:58",
    # the machine's clock and name
    "settimeofday:164:170 clock_settime:227:112 clock_adjtime:305:266 adjtimex:159:171 sethostname:170:161",
    "setdomainname:171:162",
)
_SOCKET, _SOCKETPAIR, _CLONE, _CLONE3 = (41, 198), (53, 199), (56, 220), (435, 435)
_SENDTO, _SENDMSG, _SENDMMSG = (44, 206), (46, 211), (307, 269)
_SENDS = ((_SENDTO, 3), (_SENDMSG, 2), (_SENDMMSG, 3))  # with the argument that holds the flags
_KILL, _TGKILL, _RT_SIGQUEUEINFO, _RT_TGSIGQUEUEINFO = (62, 129), (234, 131), (129, 138), (297, 240)
_PRLIMIT64, _PRCTL, _IOCTL, _FCNTL = (302, 261), (157, 167), (16, 29), (72, 25)

_NAMESPACES = (
    kernel.NEWNS | kernel.NEWCGROUP | kernel.NEWUTS | kernel.NEWIPC | kernel.NEWUSER | kernel.NEWPID | kernel.NEWNET
)
_INET, _INET6, _NETLINK = 2, 10, 16  # socket families; the socket module is slow to import
_STREAM, _TYPES = 1, 0xF  # of socketpair; the other bits are flags
_UNNAMED, _TCP, _UDP = 0, 6, 17  # protocols
_FAST_OPEN = 0x2000_0000  # flag that connects while sending, which bypasses Landlock's ports
_TERMINAL = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX type into a terminal
_OWNER = (0x8901, 0x8902)  # FIOSETOWN and SIOCSPGRP choose who gets a socket's signals, as do these commands of fcntl:
_SET_OWNER = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW = (_RETURN, 0, 0, 0x7FFF_0000)
_REFUSE = (_RETURN, 0, 0, 0x0005_0000 | errno.EPERM)
_ABSENT = (_RETURN, 0, 0, 0x0005_0000 | errno.ENOSYS)
_KILL_PROCESS = (_RETURN, 0, 0, 0x8000_0000)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def restrict(network: bool) -> None:
    """Put this process, and all that it starts, under the filter permanently.

    Parameters
    ----------
    network
        Whether TCP and UDP sockets are allowed.

    Raises
    ------
    OSError
        If the kernel has no seccomp filters, or the system call numbers of this machine are not known.
    """
    instructions = program(kernel.machine(), os.getpid(), network)
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    filter_program = _Program(len(instructions), code)
    kernel.call("prctl", ctypes.c_int(kernel.PR_SET_SECCOMP), ctypes.c_ulong(2), ctypes.byref(filter_program), 0, 0)


def program(machine: str, pid: int, network: bool = True) -> list[Instruction]:
    """Return the filter.

    Parameters
    ----------
    machine
        "x86_64" or "aarch64".
    pid
        The process that will run under the filter.
    network
        Whether TCP and UDP sockets are allowed.
    """
    column = 0 if machine == "x86_64" else 1
    code = [_load(4), (_EQUAL, 1, 0, _ARCHITECTURE[machine]), _KILL_PROCESS, _load(0)]
    if machine == "x86_64":
        code += _case(_AT_LEAST, _X32, [_REFUSE])
    for number in (numbers[column] for numbers in _REFUSED.values()):
        code += [] if number is None else _case(_EQUAL, number, [_REFUSE])
    signals = _if_any(0, _EQUAL, (pid,), _ALLOW, _REFUSE)
    stream_only = [_argument(1), (_AND, 0, 0, _TYPES), (_EQUAL, 1, 0, _STREAM), _REFUSE, _ALLOW]
    cases = (
        (_CLONE3, [_ABSENT]),  # its flags are in memory; the C library falls back to clone
        (_CLONE, _if_any(0, _ANY_BIT, (_NAMESPACES,), _REFUSE, _ALLOW)),
        (_SOCKET, _families(network)),
        (_SOCKETPAIR, stream_only),  # one for datagrams could send to any other socket
        *((call, _if_any(flags, _ANY_BIT, (_FAST_OPEN,), _REFUSE, _ALLOW)) for call, flags in _SENDS),
        *((call, signals) for call in (_KILL, _TGKILL, _RT_SIGQUEUEINFO, _RT_TGSIGQUEUEINFO)),
        (_PRLIMIT64, _if_any(0, _EQUAL, (0, pid), _ALLOW, _REFUSE)),
        (_PRCTL, _if_any(0, _EQUAL, (kernel.PR_SET_PDEATHSIG,), _REFUSE, _ALLOW)),
        (_IOCTL, _if_any(1, _EQUAL, _TERMINAL + _OWNER, _REFUSE, _ALLOW)),
        (_FCNTL, _if_any(1, _EQUAL, _SET_OWNER, _REFUSE, _ALLOW)),
    )
    for numbers, body in cases:
        code += _case(_EQUAL, numbers[column], body)
    return [*code, _ALLOW]


def _load(offset: int) -> Instruction:
    """Load a word of the kernel's input: 0 the call's number, 4 the architecture, from 16 the arguments."""
    return (_LOAD, 0, 0, offset)


def _argument(index: int) -> Instruction:
    return _load(16 + 8 * index)


def _case(test: int, constant: int, body: list[Instruction]) -> list[Instruction]:
    """Run `body`, which always returns, if the loaded word passes the test; otherwise continue after it."""
    return [(test, 0, len(body), constant), *body]


def _if_any(
    index: int, test: int, constants: tuple[int, ...], hit: Instruction, miss: Instruction
) -> list[Instruction]:
    """Return `hit` if an argument passes the test with one of the constants, otherwise `miss`."""
    count = len(constants)
    return [_argument(index), *((test, count - i, 0, each) for i, each in enumerate(constants)), miss, hit]


def _families(network: bool) -> list[Instruction]:
    """Allow TCP and UDP if `network`, and the kernel's routing table, which name resolution queries."""
    internet = _if_any(2, _EQUAL, (_UNNAMED, _TCP, _UDP), _ALLOW, _REFUSE)
    routes = _if_any(2, _EQUAL, (_UNNAMED,), _ALLOW, _REFUSE)
    code = [_argument(0), *_case(_EQUAL, _NETLINK, routes)]
    for family in (_INET, _INET6) if network else ():
        code += _case(_EQUAL, family, internet)
    return [*code, _REFUSE]
