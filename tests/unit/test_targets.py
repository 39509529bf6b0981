"""Processes by what people know of them: words, control groups, and sentences where there is none.

The control groups are those of Docker 24 (both drivers), podman 4, containerd and CRI-O under
Kubernetes, with systemd, under versions 1 and 2, as /proc/PID/cgroup shows them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from markerjit.errors import BadArgument, NoMatch, Refused
from markerjit.proc.cgroup import Group, groups_of
from markerjit.targets import find
from markerjit.targets.containers import (
    containers_of,
    in_container,
    in_group,
    paths_of_group,
)
from markerjit.targets.find import MOST, choose_one, find_processes
from markerjit.targets.processes import Process, process_of, processes
from markerjit.targets.request import Targets, parse_targets

ID = "0123456789abcdef" * 4
OTHER_ID = "fedcba9876543210" * 4
POD = "kubepods-burstable-pod1c2d3e4f_0000_4000_8000_123456789abc"

DOCKER = {
    "version 1, cgroupfs": f"12:pids:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/\n",
    "version 1, systemd": f"5:memory:/system.slice/docker-{ID}.scope\n0::/system.slice\n",
    "version 2, cgroupfs": f"0::/docker/{ID}\n",
    "version 2, systemd": f"0::/system.slice/docker-{ID}.scope\n",
    "seen from another container": f"0::/../{ID}\n",
    "with groups of its own": f"0::/system.slice/docker-{ID}.scope/system.slice/cron.service\n",
}
PODMAN = {
    "root": f"0::/machine.slice/libpod-{ID}.scope/container\n",
    "version 1": f"9:cpu,cpuacct:/machine.slice/libpod-{ID}.scope\n",
    "rootless": "0::/user.slice/user-1000.slice/user@1000.service/user.slice/"
    f"libpod-{ID}.scope/container\n",
    "cgroupfs": f"0::/libpod_parent/libpod-{ID}\n",
}
KUBERNETES = {
    "cgroupfs": f"0::/kubepods/burstable/pod1c2d3e4f-0000-4000-8000-123456789abc/{ID}\n",
    "containerd": "0::/kubepods.slice/kubepods-burstable.slice/"
    f"{POD}.slice/cri-containerd-{ID}.scope\n",
    "CRI-O": f"0::/kubepods.slice/kubepods-burstable.slice/{POD}.slice/crio-{ID}.scope\n",
    "CRI-O with conmon inside": f"0::/kubepods.slice/{POD}.slice/crio-{ID}.scope/container\n",
    "version 1": f"11:devices:/kubepods/besteffort/pod1c2d3e4f-0000/{ID}\n0::/\n",
    "driver and service differ": "0::/system.slice/containerd.service/"
    f"{POD}.slice:cri-containerd:{ID}\n",
    "Docker below": f"0::/kubepods.slice/{POD}.slice/docker-{ID}.scope\n",
}
OUTSIDE = {
    "a service": "0::/system.slice/nginx.service\n",
    "podman's monitor": f"0::/machine.slice/libpod-conmon-{ID}.scope\n",
    "CRI-O's monitor": f"0::/kubepods.slice/{POD}.slice/crio-conmon-{ID}.scope\n",
    "the root": "0::/\n",
    "nothing": "",
    "nonsense": f"docker-{ID}.scope\n\x00:\n",
    "a shorter number": f"0::/docker/{ID[:63]}\n",
    "a longer number": f"0::/docker/{ID}0\n",
    "an ID within a name": f"0::/system.slice/backup-{ID}.service\n",
}
INSIDE = {
    f"{engine}, {kind}": text
    for engine, kinds in (("Docker", DOCKER), ("podman", PODMAN), ("Kubernetes", KUBERNETES))
    for kind, text in kinds.items()
}

MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate
31 22 0:27 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory
32 22 0:28 /lxc/web /mnt/group rw - cgroup cgroup rw,pids
"""


# ---- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("3106", Targets((3106,))),
        ("3106,12", Targets((3106, 12))),
        ("postgres", Targets(name="postgres")),
        ("7z", Targets(name="7z")),
        ("postgres: writer", Targets(name="postgres: writer")),
        ("größe", Targets(name="größe")),
    ],
)
def test_word_is_pids_or_a_name(text: str, targets: Targets) -> None:
    assert parse_targets(text) == targets


@pytest.mark.parametrize(
    "text",
    ["", "0", "-1", "1,", ",1", "1,1", "1,x", "x,y", "3.5", "\uff15", "/bin/true", "a/b", "1" * 99],
)
def test_word_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(BadArgument, match=r"^target is "):
        parse_targets(text)


def test_request_is_said_in_words() -> None:
    assert str(Targets((1, 2))) == "1,2"
    assert str(Targets(name="nginx", user="www")) == "named nginx of user www"


# ---- control groups ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", INSIDE)
def test_container_is_known_by_its_group(kind: str) -> None:
    groups = groups_of(INSIDE[kind])

    assert containers_of(groups) == {ID}
    assert in_container(groups, ID)
    assert in_container(groups, ID[:12])
    assert not in_container(groups, OTHER_ID[:12])


@pytest.mark.parametrize("kind", OUTSIDE)
def test_what_is_outside_of_containers_is_in_none(kind: str) -> None:
    assert containers_of(groups_of(OUTSIDE[kind])) == set()


def test_container_in_a_container_is_in_both() -> None:
    groups = groups_of(f"0::/system.slice/docker-{ID}.scope/docker/{OTHER_ID}\n")

    assert containers_of(groups) == {ID, OTHER_ID}


@pytest.mark.parametrize(
    ("path", "is_in"),
    [
        ("/system.slice/nginx.service", True),
        ("/system.slice", True),
        ("/system.slice/", True),
        ("/", True),
        ("nginx.service", True),
        ("system.slice/nginx.service", True),
        ("/system.slice/nginx", False),
        ("/system.slice/nginx.service/worker", False),
        ("/nginx.service", False),
        ("nginx", False),
    ],
)
def test_group_counts_with_those_below(path: str, is_in: bool) -> None:
    assert in_group([Group("", "/system.slice/nginx.service")], [path]) is is_in


def test_group_with_a_colon_is_read_whole() -> None:
    assert groups_of("1:name=systemd:/a:b\n") == (Group("name=systemd", "/a:b"),)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/system.slice", ["/system.slice"]),
        ("/sys/fs/cgroup/system.slice", ["/sys/fs/cgroup/system.slice", "/system.slice"]),
        ("/sys/fs/cgroup", ["/sys/fs/cgroup", "/"]),
        ("/sys/fs/cgroup/memory/a", ["/sys/fs/cgroup/memory/a", "/memory/a", "/a"]),
        ("/mnt/group/a", ["/mnt/group/a", "/lxc/web/a"]),
        ("/mnt/groups", ["/mnt/groups"]),
        ("nginx.service", ["nginx.service"]),
    ],
)
def test_path_below_a_mount_is_that_of_the_group(path: str, expected: list[str]) -> None:
    assert paths_of_group(path, MOUNTS) == expected


# ---- processes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "is_named"),
    [
        ("postgres", True),
        ("a_very_long_name", True),
        ("a_very_long_nam", True),
        ("a_very_long_name_of_another", True),
        ("a_very", False),
        ("/usr/lib/postgres", False),
    ],
)
def test_process_has_the_name_of_its_file_and_that_of_ps(name: str, is_named: bool) -> None:
    process = Process(1, "a_very_long_nam", 0, "/usr/lib/postgres")

    assert process.is_named(name) is is_named


def test_list_of_processes_leaves_ours_out() -> None:
    pids = [process.pid for process in processes()]

    assert os.getpid() not in pids
    assert pids == sorted(pids)


def test_kernel_thread_is_no_process_with_a_program() -> None:
    """Of a pid that nobody has as well."""
    assert process_of(1 << 30) is None


def made(number: int, name: str = "postgres", uid: int = 1000) -> Process:
    return Process(number, name, uid, f"/usr/bin/{name}")


def there_are(monkeypatch: pytest.MonkeyPatch, some: Sequence[Process], caller: int = 1000) -> None:
    monkeypatch.setattr(find, "processes", lambda: iter(some))
    monkeypatch.setattr(os, "geteuid", lambda: caller)


def test_name_means_all_processes_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    there_are(monkeypatch, [made(5), made(6, "nginx"), made(7), made(8, uid=26)])

    assert find_processes(parse_targets("postgres")) == [5, 7]


def test_root_means_everyones(monkeypatch: pytest.MonkeyPatch) -> None:
    there_are(monkeypatch, [made(5), made(8, uid=26)], caller=0)

    assert find_processes(Targets(name="postgres")) == [5, 8]
    assert find_processes(Targets(name="postgres", user="26")) == [8]


def test_pids_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    there_are(monkeypatch, [])

    assert find_processes(Targets((1 << 30, 3))) == [1 << 30, 3]
    assert choose_one(Targets((1 << 30,))) == 1 << 30


def test_name_of_nobody_is_refused_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    there_are(monkeypatch, [made(5), made(6, "nginx")])

    with pytest.raises(NoMatch, match=r"^no process is named postgre; did you mean postgres\?$"):
        find_processes(Targets(name="postgre"))
    with pytest.raises(NoMatch, match=r"^no process is named x; pgrep -l -f x looks for it"):
        find_processes(Targets(name="x"))
    with pytest.raises(NoMatch, match=r"; pgrep -l -f 'x y' looks for it"):
        find_processes(Targets(name="x y"))
    with pytest.raises(NoMatch, match=r"^no process is in container 0123; ps -e -o pid,"):
        find_processes(Targets(container="0123"))


def test_name_of_another_users_program_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    there_are(monkeypatch, [made(5, uid=26), made(6, uid=26)])

    with pytest.raises(NoMatch, match=r"and ours, and 2 of other users would be; .* with sudo"):
        find_processes(Targets(name="postgres"))


def test_name_of_five_hundred_is_refused_with_the_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    there_are(monkeypatch, [made(number) for number in range(1, 501)])

    with pytest.raises(Refused, match=rf"^500 processes are named postgres, .* {MOST} at most; na"):
        find_processes(Targets(name="postgres"))
    there_are(monkeypatch, [made(number) for number in range(1, MOST + 1)])
    assert len(find_processes(Targets(name="postgres"))) == MOST


def test_one_of_several_is_to_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    big = 1 << 30  # nobody has these, so that the command line is the name
    there_are(monkeypatch, [made(big + number) for number in range(7)])

    with pytest.raises(Refused, match=r"^7 processes are named postgres, and this is for one: "):
        choose_one(Targets(name="postgres"))
    with pytest.raises(Refused, match=rf"{big} \(postgres\), .* and 2 more; give its PID$"):
        choose_one(Targets(name="postgres"))
    with pytest.raises(Refused, match=r"one process at a time, and not for 1,2"):
        choose_one(Targets((1, 2)))
    there_are(monkeypatch, [made(big)])
    assert choose_one(Targets(name="postgres")) == big


@pytest.mark.parametrize(
    ("targets", "why"),
    [
        (Targets(user="1" * 99), "user is '1+…; it must be the name or the number of a user"),
        (Targets(user="no such user"), "user is 'no such user'; it must be the name or the"),
        (Targets(container="web"), "container is 'web'; it must be an ID, or its start, as"),
        (Targets(container="012"), "container is '012'; it must be an ID"),
        (Targets(container="ABCDEF"), "container is 'ABCDEF'; it must be an ID"),
        (Targets(exe="/no/such/file"), "exe is '/no/such/file'; it must be the path of a file"),
    ],
)
def test_criterion_that_cannot_be_is_refused(targets: Targets, why: str) -> None:
    with pytest.raises(BadArgument, match=rf"^{why}"):
        find_processes(targets)


def test_start_of_two_ids_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    there_are(monkeypatch, [made(5), made(6)])
    ids = {5: f"{ID[:8]}{'a' * 56}", 6: f"{ID[:8]}{'b' * 56}"}
    monkeypatch.setattr(
        Process, "groups", lambda process: groups_of(f"0::/docker/{ids[process.pid]}\n")
    )

    with pytest.raises(Refused, match=r"^2 containers have an ID that starts so: 01234567aaaa, "):
        find_processes(Targets(container=ID[:8]))
    assert find_processes(Targets(container=f"{ID[:8]}a")) == [5]
