"""What a borrowed thread needs of the target's own code, looked for in made-up mappings."""

from __future__ import annotations

import os

import pytest

from markerjit.errors import Unsupported
from markerjit.memory import FakeMemory, Mapping, ProcessMemory, read_maps
from markerjit.memory.maps import parse_maps
from markerjit.model import RemoteAddress
from markerjit.remote.gadgets import find_gadgets
from markerjit.x86.forms import POP_RAX_RET, SIGRETURN, SYSCALL_RET

SIZE = 4096
PROGRAM, LIBC, VDSO = 0x10000, 0x20000, 0x30000
PADDING = b"\x90" * 64


def mapping(start: int, path: str = "/bin/kv", *, access: str = "r-xp") -> Mapping:
    (mapping,) = parse_maps(f"{start:x}-{start + SIZE:x} {access} 00000000 00:00 0 {path}\n")
    return mapping


def memory_of(**codes: bytes) -> FakeMemory:
    """`at_PLACE=code`; the code is in the middle of its page."""
    places = {"program": PROGRAM, "libc": LIBC, "vdso": VDSO}
    return FakeMemory(
        {places[n]: (PADDING + code).ljust(SIZE, b"\x90") for n, code in codes.items()}
    )


MAPS = [mapping(PROGRAM), mapping(LIBC, "/lib/libc.so.6"), mapping(VDSO, "[vdso]")]


@pytest.mark.parametrize("sigreturn", SIGRETURN)
def test_what_is_there_is_found_where_it_is(sigreturn: bytes) -> None:
    memory = memory_of(program=b"", libc=SYSCALL_RET + sigreturn + POP_RAX_RET, vdso=b"")

    gadgets = find_gadgets(memory.read, MAPS)

    start = LIBC + len(PADDING)
    assert gadgets == (start, start + 3, start + 3 + len(sigreturn))


def test_the_c_library_is_looked_through_first() -> None:
    everything = SYSCALL_RET + SIGRETURN[0] + POP_RAX_RET
    memory = memory_of(program=everything, libc=everything, vdso=everything)

    assert all(LIBC < at < LIBC + SIZE for at in find_gadgets(memory.read, MAPS))


@pytest.mark.parametrize(
    "path",
    [
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "/lib/x86_64-linux-gnu/libc-2.31.so",
        "/lib/ld-musl-x86_64.so.1",
        "/lib/libc.musl-x86_64.so.1",
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/x86_64-linux-gnu/ld-2.31.so",
        "/system/lib64/libc.so",
        "/home/libcurl/libc.so.6",
    ],
)
def test_a_c_library_is_known_by_its_name(path: str) -> None:
    everything = SYSCALL_RET + SIGRETURN[0]
    memory = memory_of(program=everything, libc=everything)
    maps = [mapping(PROGRAM), mapping(LIBC, path)]

    assert find_gadgets(memory.read, maps).syscall_ret == LIBC + len(PADDING)


@pytest.mark.parametrize(
    "path",
    [
        "/lib/libcrypto.so.3",
        "/lib/libcurl.so.4",
        "/lib/libcap.so.2.66",
        "/lib/libc++.so.1",
        "/lib/libc_malloc_debug.so.0",
        "/opt/libc/plugin.so",
        "/lib/libc-client.so.2007e",
        "/lib/ld-plugin.so",
        "",
        "/memfd:libc",
    ],
)
def test_a_library_that_may_be_unloaded_is_looked_through_after_the_program(path: str) -> None:
    everything = SYSCALL_RET + SIGRETURN[0]
    memory = memory_of(program=everything, libc=everything)
    maps = [mapping(PROGRAM), mapping(LIBC, path)]

    assert find_gadgets(memory.read, maps).syscall_ret == PROGRAM + len(PADDING)


@pytest.mark.parametrize("path", ["/lib/libcrypto.so.3", "", "[anon:jit]"])
def test_the_vdso_comes_before_what_may_be_unloaded(path: str) -> None:
    everything = SYSCALL_RET + SIGRETURN[0]
    memory = memory_of(libc=everything, vdso=everything)
    maps = [mapping(LIBC, path), mapping(VDSO, "[vdso]")]

    assert find_gadgets(memory.read, maps).syscall_ret == VDSO + len(PADDING)


def test_memory_without_a_file_is_looked_through_last() -> None:
    """A compiler's code comes and goes; but all code of a packed program is there."""
    everything = SYSCALL_RET + SIGRETURN[0]
    memory = memory_of(program=everything, libc=everything)
    maps = [mapping(PROGRAM, ""), mapping(LIBC, "/lib/libcrypto.so.3")]

    assert find_gadgets(memory.read, maps).syscall_ret == LIBC + len(PADDING)
    assert find_gadgets(memory.read, maps[:1]).syscall_ret == PROGRAM + len(PADDING)


def test_parts_may_come_from_several_mappings() -> None:
    memory = memory_of(program=POP_RAX_RET, libc=b"", vdso=SYSCALL_RET)

    gadgets = find_gadgets(memory.read, MAPS)

    assert (gadgets.syscall_ret, gadgets.sigreturn) == (VDSO + len(PADDING), 0)
    assert gadgets.pop_rax_ret == PROGRAM + len(PADDING)


@pytest.mark.parametrize(
    "code",
    [b"", SYSCALL_RET, SIGRETURN[0] + POP_RAX_RET, POP_RAX_RET, SIGRETURN[1]],
)
def test_a_process_without_a_way_back_is_refused(code: bytes) -> None:
    with pytest.raises(Unsupported, match="so none is borrowed"):
        find_gadgets(memory_of(program=code).read, MAPS[:1])


def test_only_code_is_looked_through_and_not_the_page_that_the_kernel_emulates() -> None:
    everything = SYSCALL_RET + SIGRETURN[0]
    memory = memory_of(program=everything, libc=everything, vdso=everything)
    maps = [
        mapping(PROGRAM, access="rw-p"),
        mapping(LIBC, "[vsyscall]", access="--xp"),
        mapping(VDSO, access="r--p"),
    ]

    with pytest.raises(Unsupported):
        find_gadgets(memory.read, maps)


def test_a_mapping_that_cannot_be_read_is_passed_over() -> None:
    memory = memory_of(vdso=SYSCALL_RET + SIGRETURN[0])

    assert find_gadgets(memory.read, MAPS).syscall_ret == VDSO + len(PADDING)


def of_file(start: int, inode: int) -> Mapping:
    (mapping,) = parse_maps(f"{start:x}-{start + SIZE:x} r-xp 0 08:01 {inode} /lib/libc.so.6\n")
    return mapping


def test_the_next_process_with_the_same_file_is_asked_at_these_places_alone() -> None:
    memory = memory_of(program=b"", libc=SYSCALL_RET + SIGRETURN[0] + POP_RAX_RET)
    other = FakeMemory({VDSO: memory.read(RemoteAddress(LIBC), SIZE)})
    sizes: list[int] = []

    def read(address: RemoteAddress, size: int) -> bytes:
        sizes.append(size)
        return other.read(address, size)

    first = find_gadgets(memory.read, [of_file(LIBC, 7)])
    second = find_gadgets(read, [of_file(VDSO, 7)])

    assert [at - VDSO for at in second] == [at - LIBC for at in first]
    assert max(sizes) < len(PADDING)


def test_another_file_under_the_same_number_is_looked_through() -> None:
    """Such as one that was written over, or of a file system that gives a number twice."""
    before = memory_of(libc=SYSCALL_RET + SIGRETURN[0])
    after = memory_of(libc=SIGRETURN[1] + SYSCALL_RET)
    find_gadgets(before.read, [of_file(LIBC, 8)])

    gadgets = find_gadgets(after.read, [of_file(LIBC, 8)])

    start = LIBC + len(PADDING)
    assert gadgets == (start + len(SIGRETURN[1]), start, 0)


def test_a_part_that_is_not_there_any_more_is_not_taken_from_before() -> None:
    before = memory_of(libc=SYSCALL_RET + SIGRETURN[0])
    after = memory_of(libc=SYSCALL_RET)
    find_gadgets(before.read, [of_file(LIBC, 9)])

    with pytest.raises(Unsupported):
        find_gadgets(after.read, [of_file(LIBC, 9)])


def test_this_very_process_has_what_is_needed() -> None:
    with ProcessMemory(os.getpid()) as memory:
        gadgets = find_gadgets(memory.read, read_maps("self"))

        assert memory.read(gadgets.syscall_ret, 3) == SYSCALL_RET
        back = memory.read(gadgets.sigreturn, 9) if gadgets.sigreturn else SIGRETURN[0]
        assert back == SIGRETURN[0] or back[: len(SIGRETURN[1])] == SIGRETURN[1]
