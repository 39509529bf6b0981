"""The machine and markerjit's own installation: kernel, processor, /proc, what forbids ptrace.

Most rules here have exceptions, so they are walls only where they have none. What a rule means for
one process is found out in process.py.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
from collections.abc import Iterator

from markerjit.doctor.finding import GOOD, WALL, WARNING, Finding
from markerjit.doctor.text import text_of
from markerjit.errors import refuse_own_shortage
from markerjit.proc.permission import (
    CAP_SYS_PTRACE,
    has_capability,
    in_user_namespace,
    proc_trouble,
    round_yama,
    security_modules,
    yama_scope,
)
from markerjit.remote.native import package_file
from markerjit.ring import counter

_BUILT = ("libmjstop.so", "runtime.bin", "include/markerjit/marker.h")
_PAGE = 4096
_SYS_MEMBARRIER = 324
_SYNC_CORE = {"SYNC_CORE": 1 << 5, "its registration": 1 << 6}


def examine_machine() -> Iterator[Finding]:
    """The machine, and markerjit's own installation."""
    yield _machine()
    yield _kernel()
    missing = [name for name in _BUILT if not os.path.exists(package_file(name))]
    if missing:
        yield Finding(WALL, "native part", f"{missing[0]} is missing", "run make native")
    else:
        yield Finding(GOOD, "native part", "built")
    yield _proc()
    yield from _cpu_numbers()
    yield _ptrace_rule()
    yield from _own_seccomp()
    yield from _modules()
    yield _code_writes()
    yield _clock()
    yield _strings()
    yield _membarrier()


def _machine() -> Finding:
    machine, system = platform.machine(), platform.system()
    facts = f"{system} {platform.release()}, {machine}"
    if (machine, system) != ("x86_64", "Linux"):
        return Finding(WALL, "machine", facts, "markerjit is for Linux on x86-64")
    return Finding(GOOD, "machine", facts)


def _kernel() -> Finding:
    """The kernel, tested by a try where that is possible, because distributions carry features
    back."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return Finding(
                WALL, "kernel", "it has no pidfd_open", "use Linux 5.3 or later, best 5.13"
            )
        refuse_own_shortage(error)
        return Finding(
            WALL,
            "kernel",
            f"pidfd_open is forbidden to us ({error.strerror})",
            "run markerjit outside of this container, or allow the call in its seccomp profile",
        )
    numbers = [int(number) for number in re.findall(r"\d+", platform.release())[:2]]
    if numbers < [5, 13]:
        return Finding(
            WARNING,
            "kernel",
            "it does not tell where restartable sequences (rseq) are, so a thread could be "
            "borrowed inside one",
            "use Linux 5.13 or later where programs use rseq (glibc 2.35 does)",
        )
    return Finding(GOOD, "kernel", "has pidfd_open, and tells of restartable sequences")


def _proc() -> Finding:
    trouble = proc_trouble()
    if trouble:
        return Finding(WALL, "/proc", trouble, "mount the /proc of our own pid namespace")
    options = _proc_options()
    if "ro" in options:
        return Finding(
            WALL,
            "/proc",
            "it is mounted read-only: code is written through /proc/PID/mem",
            "run markerjit where /proc is writable, outside of this container",
        )
    hiding = next((option for option in options if option.startswith("hidepid=")), "hidepid=0")
    if hiding not in ("hidepid=0", "hidepid=off") and not has_capability(CAP_SYS_PTRACE):
        return Finding(
            WARNING,
            "/proc",
            f"it is mounted with {hiding}: processes of others are hidden from us",
            "run markerjit as the process's user, or with sudo",
        )
    return Finding(GOOD, "/proc", "is that of our pid namespace, and can be written")


def _proc_options() -> list[str]:
    options: list[str] = []
    for line in text_of("/proc/self/mounts").splitlines():
        _, mount, _, mounted, *_ = line.split(" ")
        if mount == "/proc":
            options = mounted.split(",")  # of several the last one is on top
    return options


def _cpu_numbers() -> Iterator[Finding]:
    if not text_of("/sys/devices/system/cpu/possible"):
        yield Finding(
            WALL,
            "/sys",
            "/sys/devices/system/cpu/possible cannot be read: it says how many rings to make",
            "mount /sys: mount -t sysfs sysfs /sys",
        )


def _ptrace_rule() -> Finding:
    scope = yama_scope() or 0
    capable = has_capability(CAP_SYS_PTRACE)
    if scope >= 3 or (scope == 2 and not capable):
        fact = f"kernel.yama.ptrace_scope is {scope}"
        return Finding(WALL, "ptrace", fact, round_yama(scope))
    if capable and in_user_namespace():
        return Finding(
            GOOD, "ptrace", "we have CAP_SYS_PTRACE in our own user namespace, not outside of it"
        )
    if capable:
        return Finding(GOOD, "ptrace", "we have CAP_SYS_PTRACE")
    if scope == 1:
        fact = "kernel.yama.ptrace_scope is 1: only our own children"
        return Finding(WARNING, "ptrace", fact, round_yama(scope))
    return Finding(GOOD, "ptrace", "allowed for processes of our own user")


def _own_seccomp() -> Iterator[Finding]:
    if "\nSeccomp:\t2" in text_of("/proc/self/status"):
        yield Finding(
            WARNING,
            "own seccomp",
            "we run under a seccomp filter ourselves (a container's?), which may forbid ptrace",
            "run markerjit outside of the container, or allow ptrace and membarrier in its profile",
        )


def _modules() -> Iterator[Finding]:
    active = security_modules()
    if text_of("/sys/fs/selinux/booleans/deny_ptrace").startswith("1"):
        yield Finding(
            WALL,
            "security",
            "SELinux forbids ptrace to every process (deny_ptrace)",
            "sudo setsebool deny_ptrace off",
        )
    elif text_of("/sys/fs/selinux/enforce").startswith("1"):
        yield Finding(
            WARNING,
            "security",
            "SELinux enforces its policy, which may forbid ptrace, or new code in a domain "
            "(execmem)",
            "if `on` is refused, ausearch -m avc names the rule",
        )
    profile = text_of("/proc/self/attr/apparmor/current").strip("\0\n ")
    if profile.endswith("(enforce)"):
        yield Finding(
            WARNING,
            "security",
            f"AppArmor confines us ({profile}), and may forbid ptrace",
            "run markerjit outside of that profile",
        )
    # Lockdown is named because people ask. It restricts /dev/mem, kprobes and BPF, and not this.
    lockdown = re.search(r"\[(\w+)]", text_of("/sys/kernel/security/lockdown"))
    names = ", ".join(active) if active else "none that the kernel tells of"
    remark = f"; lockdown is {lockdown[1]}, which does not matter here" if lockdown else ""
    yield Finding(GOOD, "security", f"security modules: {names}{remark}")


def _code_writes() -> Finding:
    if forced_writes():
        return Finding(GOOD, "code writes", "/proc/PID/mem writes to code")
    if not writes_are_forbidden():
        return Finding(
            WARNING,
            "code writes",
            "/proc/PID/mem does not write to our own code: the kernel may allow that to a tracer "
            "only, or not at all (proc_mem.force_override)",
            "start the kernel with proc_mem.force_override=always, or use markers compiled as "
            "pointer",
        )
    return Finding(
        WARNING,
        "code writes",
        "the kernel was started with proc_mem.force_override=never: no code can be written",
        "start it without that, or use markers compiled as pointer, which need no code written",
    )


def writes_are_forbidden() -> bool:
    """Whether not even a tracer may write to code, by the command line of the kernel."""
    return "proc_mem.force_override=never" in text_of("/proc/cmdline").split()


def forced_writes() -> bool:
    """Whether /proc/PID/mem writes to pages that are not writable, tried on one of our own.

    Since Linux 6.12 the kernel's configuration or its command line may forbid it; only a try tells.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    read_only, private_anonymous = 1, 0x22
    page = libc.mmap(None, _PAGE, read_only, private_anonymous, -1, 0)
    if page in (None, ctypes.c_void_p(-1).value):
        return True  # no memory: then nothing is known, and nothing is said
    try:
        memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
        try:
            return os.pwrite(memory, b"\1", page) == 1
        finally:
            os.close(memory)
    except OSError as error:
        return error.errno != errno.EIO
    finally:
        libc.munmap(ctypes.c_void_p(page), ctypes.c_size_t(_PAGE))


def _cpu_flags() -> list[str]:
    """The features of the first processor, as /proc/cpuinfo names them."""
    lines = text_of("/proc/cpuinfo").splitlines()
    return next((line.split() for line in lines if line.startswith("flags")), [])


def _clock() -> Finding:
    source = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    name = text_of(source).strip() or "unknown"
    flags = _cpu_flags()
    if flags and "tsc" not in flags:
        way = "trace on a processor with a time stamp counter"
        return Finding(WALL, "clock", "the processor has no time stamp counter", way)
    if counter.is_trusted(text_of(counter.SOURCES)):
        trusted = f"the kernel trusts the time stamp counter (its clock is {name})"
        return Finding(GOOD, "clock", trusted)
    return Finding(
        WARNING,
        "clock",
        f"the kernel's clock is {name}, and it does not offer the time stamp counter as one",
        "nothing to do: trace takes the system's clock instead, which costs more",
    )


def _strings() -> Finding:
    has_transactions = "rtm" in _cpu_flags()
    if counter.is_trusted(text_of(counter.SOURCES)):
        otherwise = (
            "reads them in memory transactions (RTM)" if has_transactions
            else "has the kernel read them"
        )  # fmt: skip
        return Finding(
            GOOD,
            "strings",
            f"are read from pages that are known to be readable; trace --strings careful "
            f"{otherwise}",
        )
    if has_transactions:
        return Finding(GOOD, "strings", "are read in memory transactions (RTM)")
    return Finding(
        WARNING,
        "strings",
        "there are no memory transactions (RTM), and the time stamp counter is not trusted: an "
        "event with a string takes a system call",
        "where a microsecond is too much, record other fields only: trace --fields",
    )


def _membarrier() -> Finding:
    """MEMBARRIER_CMD_QUERY, membarrier(2)."""
    commands = ctypes.CDLL(None).syscall(_SYS_MEMBARRIER, 0, 0, 0)
    missing = [name for name, bit in _SYNC_CORE.items() if commands < 0 or not commands & bit]
    if missing:
        return Finding(
            WARNING,
            "membarrier",
            f"{' and '.join(missing)} are missing: a program cannot switch its own markers",
            "switch them from outside, or use Linux 4.16 or later",
        )
    return Finding(GOOD, "membarrier", "SYNC_CORE is there")
