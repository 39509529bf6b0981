"""Where threads are, from what the kernel says of them."""

from __future__ import annotations

import os

import pytest

from markerjit.errors import NoSuchProcess
from markerjit.facts.threads import where
from markerjit.memory.maps import parse_maps
from markerjit.proc.positions import ThreadPosition, parse_position, thread_positions

MAPS = parse_maps("1000-3000 r-xp 00002000 08:01 7 /lib/libc.so.6\n5000-6000 rw-p 0 00:00 0 \n")


@pytest.mark.parametrize(
    ("line", "pc", "call", "words"),
    [
        ("running", None, None, "runs, so its place is not known without a stop"),
        ("202 0x1 0x2 0x3 0x4 0x5 0x6 0x7f00 0x1234", 0x1234, 202,
         "in system call 202, at libc.so.6+0x2234"),
        ("-1 0x7f00 0x5010", 0x5010, None, "at anonymous memory+0x10"),
        ("-1 0x7f00 0x9999", 0x9999, None, "at 0x9999"),
        ("", None, None, "its place cannot be read"),
    ],
)  # fmt: skip
def test_a_position_is_read_and_said(
    line: str, pc: int | None, call: int | None, words: str
) -> None:
    thread = parse_position(7, "worker", line)

    assert thread == ThreadPosition(7, "worker", line == "running", pc, call)
    assert where(thread, MAPS) == words


def test_our_own_thread_is_among_ours() -> None:
    assert os.getpid() in [thread.tid for thread in thread_positions(os.getpid())]


def test_no_process_has_no_threads() -> None:
    with pytest.raises(NoSuchProcess):
        thread_positions(1 << 22)
