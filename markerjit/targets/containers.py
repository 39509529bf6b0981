"""Control groups of a process, and the container that they stand for: cgroups(7).

A container's manager names its group after the ID, 64 hexadecimal digits:

    Docker      /docker/ID   /system.slice/docker-ID.scope
    podman      /machine.slice/libpod-ID.scope   …/libpod-ID.scope/container
    Kubernetes  /kubepods/burstable/podUID/ID   …-podUID.slice/cri-containerd-ID.scope
                …/crio-ID.scope   /…-podUID.slice:cri-containerd:ID

Version 1 has a line for each controller in /proc/PID/cgroup, version 2 has a single one. Podman and
CRI-O also have a group for conmon, the monitor of a container. That runs outside of it, and is left
out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from markerjit.proc.cgroup import Group, mounts_of

_ID = re.compile(
    r"(?:docker-|libpod-|crio-|cri-containerd-|cri-containerd:|containerd-)?([0-9a-f]{64})"
    r"(?:\.scope)?"
)


def containers_of(groups: Iterable[Group]) -> set[str]:
    """The IDs of the containers, whole. A container in a container has two."""
    return {
        match[1]
        for group in groups
        for name in group.path.split("/")
        if (match := _ID.fullmatch(name.rpartition(".slice:")[2]))
    }


def in_container(groups: Iterable[Group], start: str) -> bool:
    """Whether a process of these groups is in a container whose ID starts so."""
    return any(container.startswith(start) for container in containers_of(groups))


def in_group(groups: Iterable[Group], paths: Sequence[str]) -> bool:
    """Whether a process of these groups is in one of `paths`, or below. A path without a slash at
    its start is the end of a group's path, such as nginx.service."""
    return any(_is_below(group.path, path.rstrip("/")) for group in groups for path in paths)


def _is_below(group: str, path: str) -> bool:
    if path.startswith("/") or not path:
        return f"{group}/".startswith(f"{path}/")
    return f"/{path}/" in f"{group}/"


def paths_of_group(path: str, mountinfo: str) -> list[str]:
    """The paths of a group as /proc/PID/cgroup has them, for a path as it is written: below a mount
    of `mountinfo`, the text of /proc/self/mountinfo, or below the root of the hierarchy."""
    below = (mount for mount in mounts_of(mountinfo) if f"{path}/".startswith(f"{mount.point}/"))
    return [
        path,
        *(f"{root.rstrip('/')}/{path[len(point) :].strip('/')}" for root, point, _ in below),
    ]
