"""Seccomp filters for tests: put together, compiled from a profile, and installed in a child."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from markerjit.proc.bpf import ALLOW, Instruction, encode_filter

KILL = 0x80000000
ERRNO = 0x00050000

PROFILE = Path(__file__).parent / "container_profile.json"

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER_MODE = 38, 22, 2
_ACTIONS = {"allow": 0x7FFF0000, "errno": ERRNO}
_COMPARISONS = {"!=": 1, "==": 4, "masked": 7}


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


class Comparison(ctypes.Structure):
    """struct scmp_arg_cmp."""

    _fields_ = [
        ("index", ctypes.c_uint),
        ("kind", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    ]


def answers(actions: dict[int, int], otherwise: int = ALLOW) -> bytes:
    """A filter with an action for each of these calls."""
    code = [Instruction(0x20, 0, 0, 0)]
    for number, action in actions.items():
        code += [Instruction(0x15, 0, 1, number), Instruction(0x06, 0, 0, action)]
    return encode_filter([*code, Instruction(0x06, 0, 0, otherwise)])


def only(numbers: Iterable[int], otherwise: int = KILL) -> bytes:
    """A filter that allows these calls."""
    return answers(dict.fromkeys(numbers, ALLOW), otherwise)


def install(*filters: bytes) -> None:
    """Put ourselves under filters, for good. For a child."""
    libc = ctypes.CDLL(None, use_errno=True)
    for code in filters:
        program = Program(len(code) // 8, code)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
            _PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0
        ):
            raise OSError(ctypes.get_errno(), "the filter was not accepted")


@functools.cache
def container_filter() -> bytes:
    """The profile of a container, compiled by libseccomp."""
    return compiled(json.loads(PROFILE.read_text()))


def compiled(profile: dict[str, Any]) -> bytes:
    """A profile as a filter. Raises OSError where libseccomp is not installed."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(ERRNO | profile["errno"])))
    try:
        for name in ("x86", "x32"):
            number = library.seccomp_arch_resolve_name(name.encode())
            assert not library.seccomp_arch_add(context, ctypes.c_uint32(number))
        for rule in profile["rules"]:
            action = _ACTIONS[rule["action"]] | rule.get("errno", 0)
            for name in rule["names"].split():
                _add(library, context, action, name, rule.get("args", []))
        with tempfile.TemporaryFile() as file:
            assert not library.seccomp_export_bpf(context, file.fileno())
            return os.pread(file.fileno(), 1 << 20, 0)
    finally:
        library.seccomp_release(context)


def _add(
    library: ctypes.CDLL, context: ctypes.c_void_p, action: int, name: str, args: Sequence[Any]
) -> None:
    number = library.seccomp_syscall_resolve_name(name.encode())
    assert number != -1, f"libseccomp knows no {name}"
    comparisons = (Comparison * len(args))(
        *(
            (index, _COMPARISONS[kind], value, 0)
            for index, kind, value in args
        )
    )  # fmt: skip
    error = library.seccomp_rule_add_array(
        context, ctypes.c_uint32(action), number, len(args), comparisons
    )
    assert not error, f"{name}: {error}"
