"""Linking a probe to its addresses in a target, with the system's linker.

A probe is linked twice: for nowhere, when it is compiled, to see whether it can be and how large it
is, before anything is done to a process; and for the addresses that the arena gives it. A linker
script says what goes where:

    code     entries, functions; constants; numbers that hold for the target (mj_link_…)
    data     variables with a first value, and the events; what CPU 0 counts, and as much for each
             other CPU; variables that are zero at first

Counters and histograms describe themselves in a section that stays here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from markerjit.errors import MarkerError
from markerjit.probes.c.object import EVENT, ObjectFile
from markerjit.probes.c.unit import (
    ALIGNMENT,
    RUNTIME_FUNCTIONS,
    Compiled,
    Linked,
    NoTool,
    Runtime,
    Sizes,
)
from markerjit.probes.c.vet import objections, uses_vectors

_CODE = (".text", ".rodata", ".mj_link")
_DATA = (".data", ".mj_events")
_ZEROS = (".mj_per_cpu", ".bss")

# A place where nothing ever is, as far from 0 as in a real process, so that whatever is not
# position-independent fails here already.
NOWHERE = 0x7F00_0000_0000
NOWHERE_DATA = NOWHERE + 0x1000_0000
_ELSEWHERE = NOWHERE - 0x1000_0000
_NOTHING_KNOWN = Runtime(
    {}, _ELSEWHERE, cpus=1, has_rdpid=False, tid_offset=-1, tick_hz=0, count_probe=_ELSEWHERE
)  # fmt: skip
_TIMEOUT_S = 60
_EVENT_LINE = slice(24, 28)  # in struct mj_event

_SCRIPT = """
SECTIONS
{{
    . = {code:#x};
    .text : {{ *(.text.mj_entry) *(.text .text.*) }}
    .rodata : {{ *(.rodata .rodata.*) *(.data.rel.ro .data.rel.ro.*) }}
    .mj_link : ALIGN(8)
    {{
        mj_link_cpus = .; QUAD({cpus})
        mj_link_stride = .; QUAD(SIZEOF(.mj_per_cpu))
        mj_link_has_rdpid = .; QUAD({has_rdpid})
        mj_link_tid_offset = .; QUAD({tid_offset:#x})
        mj_link_tick_ns = .; QUAD({tick_ns:#x})
    }}
    . = {data:#x};
    .data : {{ *(.data .data.*) }}
    .mj_events : {{ KEEP(*(.mj_events)) }}
    .mj_per_cpu : ALIGN(64) {{ *(.bss.mj_per_cpu) . = ALIGN(64); }}
    . = . + SIZEOF(.mj_per_cpu) * ({cpus} - 1);
    .bss : {{ *(.bss .bss.*) *(COMMON) }}
    .mj_variables 0 (INFO) : {{ KEEP(*(.mj_variables)) }}
    .got : {{ *(.got .got.*) }}
    /DISCARD/ : {{ *(.comment) *(.note.GNU-stack) *(.note.gnu.*) *(.eh_frame) *(.llvm_addrsig) }}
{symbols}
}}
"""


class DoesNotLink(MarkerError):
    """The linker refuses; `output` is all that it says."""

    def __init__(self, output: str) -> None:
        lines = [line.removeprefix("ld: ") for line in output.splitlines() if line.strip()]
        super().__init__(f"the probe cannot be linked: {lines[-1] if lines else 'no reason given'}")
        self.output = output


def link_for_nowhere(objects: Sequence[bytes], undefined: Sequence[str]) -> ObjectFile:
    """An image at NOWHERE and NOWHERE_DATA that keeps its relocations and debug information, to be
    looked at. Undefined symbols are at an arbitrary address. Raises NoTool, DoesNotLink."""
    runtime = _NOTHING_KNOWN._replace(functions=dict.fromkeys(undefined, _ELSEWHERE))
    return _run_linker(objects, _script(NOWHERE, NOWHERE_DATA, runtime), "--emit-relocs")


def digest_of(compiled: Compiled) -> str:
    """A name for what a target would get: the same wherever the file was compiled, and whatever its
    comments say. Lines of events are left out, because a comment moves them. Raises NoTool,
    DoesNotLink."""
    # Each at a place of its own, so that it makes a difference which one is called.
    functions = {name: _ELSEWHERE + 64 * at for at, name in enumerate(RUNTIME_FUNCTIONS, 1)}
    script = _script(NOWHERE, NOWHERE_DATA, _NOTHING_KNOWN._replace(functions=functions))
    image = _run_linker(compiled.objects, script, "--strip-debug")
    entries = sorted((function.name, function.entry) for function in compiled.functions)
    events = sorted((*event.signature, event.words) for event in compiled.events)
    hashed = hashlib.sha256(
        ascii((compiled.source.name, entries, events, sorted(compiled.variables))).encode()
    )
    for name, section in sorted(image.loaded.items()):
        data = bytearray(section.data)
        for at in range(0, len(data) if name == ".mj_events" else 0, EVENT.size):
            data[at + _EVENT_LINE.start : at + _EVENT_LINE.stop] = bytes(4)
        hashed.update(ascii((name, section.address, section.size, section.alignment)).encode())
        hashed.update(data)
    return hashed.hexdigest()


def link_probe(
    compiled: Compiled, *, code_address: int, data_address: int, runtime: Runtime
) -> Linked:
    """The bytes of a probe for these addresses in a target, which must be multiples of what
    `compiled.sizes` asks for, and within 2 GiB of each other and of the runtime's functions.

    Raises NoTool; DoesNotLink where they are not; MarkerError for something that the probe needs
    and the target has not.
    """
    name, sizes = compiled.source.name, compiled.sizes
    if code_address % sizes.code_alignment or data_address % sizes.data_alignment:
        raise MarkerError(
            f"{name}: the code has to be at a multiple of {sizes.code_alignment}, "
            f"the data of {sizes.data_alignment}"
        )
    _check_needs(compiled, runtime)
    script = _script(code_address, data_address, runtime)
    image = _run_linker(compiled.objects, script, "--strip-debug")
    code, data = _gather(image, _CODE, code_address), _gather(image, _DATA, data_address)
    if measure(image, code_address, data_address) != sizes or any(image.relocations()):
        raise MarkerError(f"{name}: the linker did not make of it what it made before")
    for objection in objections(code[: sizes.text], code_address):
        raise MarkerError(f"{name}: the linker made {objection.text} of it; {objection.why}")
    entries = {
        function.name: code_address + function.entry
        for function in compiled.functions
        if not function.unfit
    }
    return Linked(
        code=code,
        code_address=code_address,
        data=data,
        data_address=data_address,
        bss_size=sizes.whole_data(runtime.cpus) - len(data),
        entry=entries[compiled.function.name],
        entries=entries,
        events=tuple(
            event._replace(words=tuple(data_address + word for word in event.words))
            for event in compiled.events
        ),
        variables=tuple(
            variable._replace(place=data_address + variable.place)
            for variable in compiled.variables
        ),
        cpus=runtime.cpus,
        stride=sizes.per_cpu,
        vectors=uses_vectors(code[: sizes.text], code_address),
    )


def measure(image: ObjectFile, code_address: int, data_address: int) -> Sizes:
    """The room that an image takes. Raises MarkerError for a part that it should not have."""
    loaded = image.loaded
    for name in loaded.keys() - {*_CODE, *_DATA, *_ZEROS}:
        raise MarkerError(f"the linker added a part {name} to the probe")

    def end(names: Sequence[str], start: int) -> int:
        ends = [loaded[name].address + loaded[name].size for name in names if name in loaded]
        return max(ends, default=start) - start

    def alignment(*names: str) -> int:
        return max([ALIGNMENT, *(loaded[name].alignment for name in names if name in loaded)])

    def size(name: str) -> int:
        return loaded[name].size if name in loaded else 0

    return Sizes(
        text=size(".text"),
        code=end(_CODE, code_address),
        data=end(_DATA, data_address),
        per_cpu=size(".mj_per_cpu"),
        zero=size(".bss"),
        code_alignment=alignment(*_CODE),
        data_alignment=alignment(*_DATA, *_ZEROS),
        zero_alignment=alignment(".bss"),
    )


def _check_needs(compiled: Compiled, runtime: Runtime) -> None:
    name = compiled.source.name
    if "mj_link_tick_ns" in compiled.needs and not runtime.tick_hz:
        raise MarkerError(f"{name} uses mj_ns, but how long a tick takes is not known here")
    for need in sorted(compiled.needs - runtime.functions.keys()):
        if not need.startswith("mj_link_"):
            raise MarkerError(f"{name} needs {need}, which the runtime has not")


def _gather(image: ObjectFile, names: Sequence[str], start: int) -> bytes:
    """The bytes of these sections as they will be in memory, from `start` on."""
    memory = bytearray()
    for section in sorted(
        (image.loaded[name] for name in names if name in image.loaded),
        key=lambda section: section.address,
    ):
        memory += bytes(section.address - start - len(memory)) + section.data
    return bytes(memory)


def _script(code: int, data: int, runtime: Runtime) -> str:
    functions = {
        **runtime.functions, "mj_alive": runtime.alive, "mj_count_block": runtime.count_probe,
    }  # fmt: skip
    return _SCRIPT.format(
        code=code,
        data=data,
        cpus=runtime.cpus,
        has_rdpid=int(runtime.has_rdpid),
        tid_offset=runtime.tid_offset & (1 << 64) - 1,
        tick_ns=round(10**9 * (1 << 32) / runtime.tick_hz) if runtime.tick_hz else 0,
        symbols="\n".join(f'    "{name}" = {at:#x};' for name, at in functions.items()),
    )


def _run_linker(objects: Sequence[bytes], script: str, option: str) -> ObjectFile:
    linker = shutil.which("ld")
    if linker is None:
        raise NoTool("a linker (ld)", "binutils")
    with tempfile.TemporaryDirectory(prefix="markerjit-") as folder:
        files = [Path(folder) / f"probe{number}.o" for number in range(len(objects))]
        for file, data in zip(files, objects, strict=True):
            file.write_bytes(data)
        (Path(folder) / "probe.ld").write_text(script)
        try:
            done = subprocess.run(
                [linker, "-static", "-nostdlib", "-m", "elf_x86_64", "--build-id=none", option,
                 "--entry=0", "-z", "noexecstack", "-T", "probe.ld", "-o", "probe",
                 *map(str, files)],
                cwd=folder, env={**os.environ, "LC_ALL": "C"}, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, errors="replace", check=False, timeout=_TIMEOUT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise DoesNotLink(f"{linker} was not done after {_TIMEOUT_S} s") from None
        if done.returncode:
            raise DoesNotLink(done.stderr.replace(f"{folder}/", ""))
        return ObjectFile((Path(folder) / "probe").read_bytes())
