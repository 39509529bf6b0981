"""How far the start of a program has come, as its loader tells debuggers.

  1  The kernel maps the program and its loader, and then writes the auxiliary vector. Until then
     execve is at work, and nothing of the program may be mapped yet.
  2  The loader writes the address of its `r_debug` into the program's dynamic section (DT_DEBUG).
  3  The state in `r_debug` is RT_CONSISTENT when the list of the objects is complete. At first
     that is so when all of them are mapped and relocated, before anything of the program runs.
     musl fills the structure in at that moment. glibc calls it consistent for a few instructions
     before it begins, too: the list then has nothing but the program, the vDSO and the loader.
  4  A later dlopen or dlclose sets the state to RT_ADD or RT_DELETE while it is at work.

A program without a loader, and one that its loader was started with, say nothing of all that.

Authority: gABI, chapter 5; glibc, elf/link.h, elf/rtld.c and elf/dl-debug.c; musl,
ldso/dynlink.c; Linux, create_elf_tables in fs/binfmt_elf.c.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from enum import Enum, auto

from markerjit.elf.image import PF_W
from markerjit.elf.imports import DT_NEEDED, PT_DYNAMIC
from markerjit.errors import MarkerError, MemoryFault, TargetGone
from markerjit.memory import ProcessMemory
from markerjit.memory.base import is_ending, proc_error
from markerjit.memory.stat import read_proc
from markerjit.model import RemoteAddress
from markerjit.proc.permission import why_not
from markerjit.tuples import NamedTuple

_Read = Callable[[RemoteAddress, int], bytes]

_PT_INTERP, _PT_PHDR = 3, 6
_DT_NULL, _DT_DEBUG = 0, 21
_AT_PHDR, _AT_PHENT, _AT_PHNUM, _AT_BASE, _AT_ENTRY, _AT_SYSINFO_EHDR = 3, 4, 5, 7, 9, 33
_RT_CONSISTENT = 0
_PAIR = struct.Struct("<QQ")  # of the auxiliary vector, and of a dynamic section
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DEBUG = struct.Struct("<i4xQQi4xQ")  # r_version, r_map, r_brk, r_state, r_ldbase
_LINK = struct.Struct("<QQQQ")  # l_addr, l_name, l_ld, l_next
_MOST_SEGMENTS = 4096
_MOST_ENTRIES = 4096
_MOST_LINKS = 4
"""The program, the vDSO and the loader, and one more, in whatever order."""
_LONGEST_PATH = 4096


class Loading(Enum):
    """What a loader says.

    AT_WORK  objects are missing still, or are being mapped or taken away just now
    DONE     the objects that are mapped are complete
    SILENT   it says nothing: there is none, or it tells debuggers nothing
    """

    AT_WORK = auto()
    DONE = auto()
    SILENT = auto()


class _Program(NamedTuple):
    """What the kernel and the linker say about a program in memory.

    dynamic  the address of its dynamic section, and `size` the bytes of that
    loader   the path of its loader, as the linker has written it
    vdso     the address of the vDSO, 0 without one
    """

    dynamic: int
    size: int
    loader: bytes
    vdso: int


def loading(pid: int) -> Loading:
    """What the loader of a process says now. DONE of a process that cannot be looked at: an attempt
    to begin says why."""
    try:
        return _loading(pid)
    except MarkerError:
        return Loading.DONE


def _loading(pid: int) -> Loading:
    """Raises NoSuchProcess, NotPermitted, Unsupported and MarkerError."""
    with ProcessMemory(pid, why_not=why_not) as memory:
        try:
            vector = read_proc(f"/proc/{pid}/auxv")
        except OSError as error:
            raise proc_error(pid, error, why_not) from None
        if not vector and is_ending(pid):
            return Loading.SILENT
        try:
            return loading_of(vector, memory.read)
        except TargetGone:
            if memory.alive():
                return Loading.AT_WORK  # it executes another file just now
            raise


def loading_of(vector: bytes, read: _Read) -> Loading:
    """What the loader of a program says that has this auxiliary vector. Raises what `read` raises,
    other than MemoryFault."""
    if vector[:8] in (b"", bytes(8)):
        return Loading.AT_WORK
    whole = len(vector) // _PAIR.size * _PAIR.size
    facts = dict(_PAIR.iter_unpack(vector[:whole]))
    if facts.get(_AT_PHENT) not in (None, _SEGMENT.size):
        return Loading.SILENT  # of 32 bits
    if _AT_ENTRY not in facts:
        return Loading.AT_WORK  # the kernel writes it just now
    try:
        program = _program(facts, read)
        return Loading.SILENT if program is None else _state(program, read)
    except MemoryFault:
        return Loading.SILENT


def _program(facts: dict[int, int], read: _Read) -> _Program | None:
    """None where no loader will say anything."""
    at, count = facts.get(_AT_PHDR, 0), facts.get(_AT_PHNUM, 0)
    if not facts.get(_AT_BASE) or not at or not 0 < count <= _MOST_SEGMENTS:
        return None
    segments = {
        kind: (flags, address, size)
        for kind, flags, _, address, _, _, size, _ in _SEGMENT.iter_unpack(
            read(RemoteAddress(at), count * _SEGMENT.size)
        )
    }
    if not {_PT_PHDR, _PT_INTERP, PT_DYNAMIC} <= segments.keys():
        return None
    bias = at - segments[_PT_PHDR][1]
    flags, dynamic, size = segments[PT_DYNAMIC]
    if not flags & PF_W:
        return None  # the loader cannot write there
    _, path_at, path_size = segments[_PT_INTERP]
    path = read(RemoteAddress(path_at + bias), min(path_size, _LONGEST_PATH))
    return _Program(dynamic + bias, size, path.rstrip(b"\0"), facts.get(_AT_SYSINFO_EHDR, 0))


def _state(program: _Program, read: _Read) -> Loading:
    """What the loader of this program says."""
    size = min(program.size, _MOST_ENTRIES * _PAIR.size) // _PAIR.size * _PAIR.size
    needs_others, debug_at = False, None
    for tag, value in _PAIR.iter_unpack(read(RemoteAddress(program.dynamic), size)):
        if tag == _DT_NULL:
            break
        needs_others |= tag == DT_NEEDED
        if tag == _DT_DEBUG:
            debug_at = value
    if debug_at is None:
        return Loading.SILENT
    if not debug_at:
        return Loading.AT_WORK
    version, first, _, state, loader = _DEBUG.unpack(read(RemoteAddress(debug_at), _DEBUG.size))
    if version < 1 or not first or state != _RT_CONSISTENT:
        return Loading.AT_WORK
    is_glibc = os.path.basename(program.loader).startswith(b"ld-linux")
    if is_glibc and needs_others and not _has_others(first, loader, program, read):
        return Loading.AT_WORK
    return Loading.DONE


def _has_others(first: int, loader: int, program: _Program, read: _Read) -> bool:
    """Whether the list of objects, from the first one, has more than those that the kernel has
    mapped."""
    at = first
    for _ in range(_MOST_LINKS):
        if not at:
            return False
        start, _, dynamic, at = _LINK.unpack(read(RemoteAddress(at), _LINK.size))
        if dynamic != program.dynamic and start not in (loader, program.vdso):
            return True
    return True
