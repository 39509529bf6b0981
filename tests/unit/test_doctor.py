"""What doctor says of machines that this one is not, from files that are made up here.

Walls that can be built are in tests/live/test_walls.py, where `on` has to agree.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from markerjit.cli import main
from markerjit.doctor import GOOD, WALL, WARNING, Finding, machine, process, room, verdict, works
from markerjit.doctor.finding import split
from markerjit.errors import NoSuchProcess
from markerjit.memory import Mapping
from markerjit.model import RemoteAddress
from markerjit.proc import cgroup
from markerjit.proc.cgroup import MemoryLeft

pytestmark = pytest.mark.user

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "doctor.md"

GOOD_FINDING = Finding(GOOD, "clock", "ticks")
WALL_FINDING = Finding(WALL, "tracer", "gdb is there", "end it")


class Machine:
    """A machine where nothing is in the way, until a test puts something there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files = {
            "/proc/self/status": "Name:\tx\nSeccomp:\t0\n",
            "/proc/self/mounts": "proc /proc proc rw,nosuid 0 0\n",
            "/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu tsc rdpid rtm\n",
            "/proc/cmdline": "quiet\n",
            "/sys/devices/system/cpu/possible": "0-1\n",
            "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
            "/sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet\n",
        }
        self.scope: int | None = None
        self.capable = False
        self.user_namespace = False
        self.modules = ["lockdown", "yama"]
        self.release = "6.1.0"
        self.forced = True
        self.trouble = ""
        change = monkeypatch.setattr
        change(machine, "text_of", lambda path: self.files.get(path, ""))
        change(machine, "yama_scope", lambda: self.scope)
        change(machine, "has_capability", lambda _: self.capable)
        change(machine, "in_user_namespace", lambda: self.user_namespace)
        change(machine, "security_modules", lambda: self.modules)
        change(machine, "forced_writes", lambda: self.forced)
        change(machine, "proc_trouble", lambda: self.trouble)
        change(machine.platform, "release", lambda: self.release)
        change(machine.os.path, "exists", lambda _: True)

    def finding(self, what: str) -> Finding:
        """The last finding of a kind, or a failure."""
        return [finding for finding in machine.examine_machine() if finding.what == what][-1]

    def not_good(self) -> list[Finding]:
        return [finding for finding in machine.examine_machine() if finding.level != GOOD]


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


# ---- findings ------------------------------------------------------------------------------------


def test_a_verdict_names_the_first_wall_and_counts_the_others() -> None:
    other = Finding(WALL, "room", "full", "empty it")

    assert verdict([GOOD_FINDING, Finding(WARNING, "a", "b", "c")]) == "this will work"
    assert verdict([GOOD_FINDING, WALL_FINDING]) == "this cannot work: gdb is there"
    assert verdict([WALL_FINDING, other]).endswith("gdb is there (and 1 more in the way)")
    assert [works([GOOD_FINDING]), works([GOOD_FINDING, other])] == [True, False]


def test_the_way_round_of_an_error_is_what_follows_its_last_semicolon() -> None:
    assert split(WALL, "a", "x; y; do z") == Finding(WALL, "a", "x; y", "do z")
    assert split(WALL, "a", "x").found == "x"
    assert split(WALL, "a", "x").way_round


# ---- the machine ---------------------------------------------------------------------------------


def test_nothing_is_in_the_way_of_a_usual_machine(box: Machine) -> None:
    assert box.not_good() == []


@pytest.mark.parametrize(
    ("scope", "capable", "level"),
    [
        (None, False, GOOD),
        (0, False, GOOD),
        (1, False, WARNING),
        (1, True, GOOD),
        (2, False, WALL),
        (2, True, GOOD),
        (3, False, WALL),
        (3, True, WALL),
    ],
)
def test_yama_is_a_wall_where_it_has_no_exceptions(
    box: Machine, scope: int | None, capable: bool, level: str
) -> None:
    """Scope 1 has: our own children, and those that allow it. They are asked one by one."""
    box.scope, box.capable = scope, capable

    finding = box.finding("ptrace")

    assert finding.level == level
    assert ("sudo" in finding.way_round) == (level != GOOD and scope != 3)


def test_a_capability_of_a_user_namespace_is_told_as_one(box: Machine) -> None:
    box.capable = box.user_namespace = True

    assert "not outside of it" in box.finding("ptrace").found


@pytest.mark.parametrize(
    ("path", "text", "level", "word"),
    [
        ("/sys/fs/selinux/booleans/deny_ptrace", "1 1", WALL, "deny_ptrace"),
        ("/sys/fs/selinux/booleans/deny_ptrace", "0 0", None, ""),
        ("/sys/fs/selinux/enforce", "1", WARNING, "execmem"),
        ("/sys/fs/selinux/enforce", "0", None, ""),
        ("/proc/self/attr/apparmor/current", "snap.x (enforce)\n", WARNING, "snap.x"),
        ("/proc/self/attr/apparmor/current", "unconfined\n", None, ""),
        ("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n", None, ""),
        ("/proc/self/status", "Name:\tx\nSeccomp:\t2\n", WARNING, "seccomp filter ourselves"),
        ("/proc/self/mounts", "proc /proc proc ro 0 0\n", WALL, "read-only"),
        ("/proc/self/mounts", "proc /proc proc rw,hidepid=2 0 0\n", WARNING, "hidepid=2"),
        ("/proc/self/mounts", "proc /proc proc rw,hidepid=invisible 0 0\n", WARNING, "invisible"),
        ("/proc/self/mounts", "p /proc proc ro 0 0\np /proc proc rw 0 0\n", None, ""),
        ("/sys/devices/system/cpu/possible", "", WALL, "cannot be read"),
        ("/proc/cpuinfo", "flags\t: fpu rtm\n", WALL, "no time stamp counter"),
        ("/proc/cpuinfo", "flags\t: fpu tsc\n", None, ""),
        (
            "/sys/devices/system/clocksource/clocksource0/available_clocksource",
            "hpet acpi_pm",
            WARNING,
            "does not offer the time stamp counter",
        ),
    ],
)
def test_a_file_of_the_kernel_is_understood(
    box: Machine, path: str, text: str, level: str | None, word: str
) -> None:
    box.files[path] = text

    findings = box.not_good()

    assert [finding.level for finding in findings] == ([level] if level else [])
    assert all(word in finding.found and finding.way_round for finding in findings)


@pytest.mark.parametrize(
    ("sources", "level", "words"),
    [("tsc hpet", GOOD, "known to be readable"), ("hpet acpi_pm", WARNING, "takes a system call")],
)
def test_strings_without_memory_transactions_need_a_counter_that_is_trusted(
    box: Machine, sources: str, level: str, words: str
) -> None:
    box.files["/proc/cpuinfo"] = "flags\t: fpu tsc\n"
    box.files["/sys/devices/system/clocksource/clocksource0/available_clocksource"] = sources

    finding = box.finding("strings")

    assert finding.level == level
    assert words in finding.found


def test_security_modules_are_named(box: Machine) -> None:
    box.files["/sys/kernel/security/lockdown"] = "none [integrity] confidentiality\n"

    sentence = box.finding("security").found

    assert sentence.startswith("security modules: lockdown, yama; lockdown is integrity")


@pytest.mark.parametrize(
    ("release", "level"), [("5.12.9-x", WARNING), ("5.13.0", GOOD), ("6.1", GOOD)]
)
def test_an_old_kernel_does_not_tell_of_restartable_sequences(
    box: Machine, release: str, level: str
) -> None:
    box.release = release

    assert box.finding("kernel").level == level


def test_a_kernel_without_pidfd_is_a_wall(box: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(machine.os, "pidfd_open", missing)

    assert (box.finding("kernel").level, "5.3" in box.finding("kernel").way_round) == (WALL, True)


@pytest.mark.parametrize("cmdline", ["a proc_mem.force_override=never b", "a"])
def test_a_kernel_that_keeps_code_from_being_written_is_told(box: Machine, cmdline: str) -> None:
    box.forced = False
    box.files["/proc/cmdline"] = cmdline

    finding = box.finding("code writes")

    assert finding.level == WARNING
    assert ("no code can be written" in finding.found) == ("never" in cmdline)
    assert "pointer" in finding.way_round


def test_forced_writes_are_tried_on_a_page_of_our_own() -> None:
    """As the kernel configures it; where a write is not forced, the try has to say so."""
    assert isinstance(machine.forced_writes(), bool)


def test_a_write_that_is_refused_is_not_taken_for_a_forced_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(machine.os, "pwrite", refused)

    assert machine.forced_writes() is False


# ---- room in a process ---------------------------------------------------------------------------


LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max data size             {data:<20} unlimited            bytes
Max open files            {files:<20} 4096                 files
Max address space         {space:<20} unlimited            bytes
"""
MAPS = tuple(
    Mapping(RemoteAddress(start), RemoteAddress(start + (1 << 20)), True, False, False, False,
            0, "0:0", 0, "", False)
    for start in (0, 1 << 30)
)  # fmt: skip


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Finding]]:
    """The findings about room in a process with these limits: 2 MiB mapped, 4 descriptors."""
    monkeypatch.setattr(room.os, "listdir", lambda _: ["0", "1", "2", "4"])

    def examine(left: MemoryLeft | None = None, **facts: Any) -> list[Finding]:
        usual = {"data": "unlimited", "files": "1024", "space": "unlimited"}
        files = {
            "/proc/7/limits": LIMITS.format(**usual | facts),
            "/proc/7/status": "Name:\tx\nVmData:\t     512 kB\n",
            "/proc/sys/vm/max_map_count": f"{facts.get('maps', 65530)}\n",
            "/proc/sys/vm/overcommit_memory": f"{facts.get('overcommit', 0)}\n",
            "/proc/meminfo": "CommitLimit:    1000000 kB\nCommitted_AS:    999999 kB\n",
            "/sys/devices/system/cpu/possible": "0-3\n",
        }
        monkeypatch.setattr(room, "text_of", lambda path: files.get(path, ""))
        monkeypatch.setattr(room, "memory_left", lambda _: left)
        return list(room.examine_room(7, MAPS))

    return examine


def test_a_process_without_limits_has_room(limited: Callable) -> None:
    (finding,) = limited()

    assert (finding.level, finding.what) == (GOOD, "room")


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({"files": "3"}, "RLIMIT_NOFILE allows 3"),
        ({"data": str(512 << 10)}, "RLIMIT_DATA allows 512"),
        ({"space": str(3 << 20)}, "RLIMIT_AS allows 3072 KiB of addresses, 2048 are used"),
        ({"maps": 4}, "max_map_count allows 4"),
    ],
)
def test_a_limit_that_the_arena_would_break_is_a_wall(
    limited: Callable, facts: dict[str, Any], word: str
) -> None:
    (finding,) = limited(**facts)

    assert finding.level == WALL
    assert finding.found.startswith(word) or word in finding.found
    assert finding.way_round.startswith(("prlimit --pid 7 --", "sudo sysctl "))


def test_the_lowest_free_descriptor_counts_and_not_how_many_there_are(limited: Callable) -> None:
    (finding,) = limited(files="4")

    assert finding.level == GOOD


def test_a_memory_group_near_its_limit_is_a_warning(limited: Callable) -> None:
    (finding,) = limited(left=MemoryLeft(4096, 1 << 26))

    assert (finding.level, finding.what) == (WARNING, "memory")
    assert limited(left=MemoryLeft(1 << 40, 1 << 41))[0].level == GOOD


def test_a_machine_that_promises_no_more_than_it_has_is_a_warning(limited: Callable) -> None:
    (finding,) = limited(overcommit=2)

    assert (finding.level, "overcommit" in finding.found) == (WARNING, True)


# ---- control groups ------------------------------------------------------------------------------


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Files of control groups: a container that sees its own part of both hierarchies."""
    cgroup._mounts.cache_clear()
    cgroup._freezers.cache_clear()
    files = {
        "/proc/self/mountinfo": (
            "30 25 0:26 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "31 25 0:27 / /sys/fs/cgroup/freezer rw shared:9 - cgroup cgroup rw,freezer\n"
            "32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        ),
        "/proc/7/cgroup": "4:memory:/docker/1/app\n3:freezer:/a/b\n0::/app:x\n",
        "/sys/fs/cgroup/freezer/a/b/freezer.state": "THAWED\n",
        "/sys/fs/cgroup/unified/app:x/cgroup.events": "populated 1\nfrozen 0\n",
    }
    monkeypatch.setattr(cgroup, "_read", lambda path: files.get(path, ""))
    yield files
    cgroup._mounts.cache_clear()
    cgroup._freezers.cache_clear()


@pytest.mark.parametrize(
    ("path", "text", "version"),
    [
        ("/sys/fs/cgroup/freezer/a/b/freezer.state", "FROZEN\n", 1),
        ("/sys/fs/cgroup/freezer/a/b/freezer.state", "FREEZING\n", 1),
        ("/sys/fs/cgroup/unified/app:x/cgroup.events", "populated 1\nfrozen 1\n", 2),
    ],
)
def test_a_frozen_group_is_found_in_both_versions(
    groups: dict[str, str], path: str, text: str, version: int
) -> None:
    assert cgroup.frozen_by(7) == 0
    groups[path] = text

    assert cgroup.frozen_by(7) == version


def test_the_tightest_of_all_groups_above_says_how_much_memory_is_left(
    groups: dict[str, str],
) -> None:
    assert cgroup.memory_left(7) is None
    inner, outer = "/sys/fs/cgroup/memory/app", "/sys/fs/cgroup/memory"
    groups[f"{inner}/memory.limit_in_bytes"] = "9223372036854771712\n"
    groups[f"{inner}/memory.usage_in_bytes"] = "5000\n"
    groups[f"{outer}/memory.limit_in_bytes"] = "10000\n"
    groups[f"{outer}/memory.usage_in_bytes"] = "9000\n"
    groups[f"{outer}/memory.stat"] = "inactive_file 1\ntotal_inactive_file 500\n"
    assert cgroup.memory_left(7) == (1500, 10000)

    groups["/sys/fs/cgroup/unified/app:x/memory.max"] = "7000\n"
    groups["/sys/fs/cgroup/unified/app:x/memory.current"] = "6900\n"
    assert cgroup.memory_left(7) == (100, 7000)


def test_a_group_that_our_mounts_do_not_show_says_nothing(groups: dict[str, str]) -> None:
    groups["/proc/7/cgroup"] = "4:memory:/docker/12/app\n3:freezer:/../x\n"

    assert (cgroup.frozen_by(7), cgroup.memory_left(7)) == (0, None)


# ---- the command ---------------------------------------------------------------------------------


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Finding]]:
    findings = [GOOD_FINDING]
    import markerjit.cli.doctor as command

    monkeypatch.setattr(command, "examine_machine", lambda: iter(findings[:1]))
    monkeypatch.setattr(command, "examine_process", lambda _, *, seccomp: iter(findings[1:]))
    yield findings


def test_the_last_line_is_the_verdict_and_the_exit_code_says_the_same(
    findings: list[Finding], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "this machine: this will work"
    findings.append(WALL_FINDING)

    assert main.run(["doctor", "7"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "process 7: this cannot work: gdb is there"
    assert lines[-2].split() == ["way", "round:", "end", "it"]


def test_json_has_the_keys_that_are_promised(
    findings: list[Finding], capsys: pytest.CaptureFixture[str]
) -> None:
    findings.append(WALL_FINDING)

    assert main.run(["doctor", "7", "--json"]) == 1

    document = json.loads(capsys.readouterr().out)
    keys = ("level", "what", "found", "way_round")
    assert document == {
        "pid": 7,
        "works": False,
        "findings": [
            dict(zip(keys, finding, strict=True)) for finding in (GOOD_FINDING, WALL_FINDING)
        ],
    }


def test_a_path_with_a_newline_makes_no_second_line(
    findings: list[Finding], capsys: pytest.CaptureFixture[str]
) -> None:
    findings.append(Finding(WARNING, "object", "/a\nwall  b", "c"))

    assert main.run(["doctor", "7"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_a_process_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(NoSuchProcess):
        list(process.examine_process(1 << 30))


# ---- the page ------------------------------------------------------------------------------------


def test_the_reference_has_every_word_that_a_finding_may_have() -> None:
    """`what` is a promise to programs: each is in the page's tables, and nothing else is."""
    import re

    sources = [path.read_text() for path in sorted((ROOT / "markerjit" / "doctor").glob("*.py"))]
    levels = r"(?:GOOD|WARNING|WALL|WALL if[^,]*|GOOD if[^,]*)"
    used = {
        word
        for source in sources
        for word in re.findall(rf'(?:Finding|split)\(\s*{levels},\s*"([^"]+)"', source)
    }
    described = set(re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE))

    assert used == described


def test_our_own_process_is_examined_without_stopping_anything() -> None:
    findings = list(process.examine_process(os.getpid()))

    assert [finding.what for finding in findings[:2]] == ["process", "tracer"]
