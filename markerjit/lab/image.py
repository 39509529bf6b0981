"""The code of a sacrificial child, assembled here, so that no compiler is needed.

The rest of an image is `hlt`, which no program may execute: a thread that goes astray dies at once,
by SIGSEGV. Counters and other words are apart from the code, in memory that the parent maps too.

What this does not do: run anything (child.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from markerjit.abi import PAGE
from markerjit.x86.assemble import assemble
from markerjit.x86.forms import POP_RAX_RET, SIGRETURN, SYSCALL_RET

CODE = 0x510000000000
DATA = CODE + 0x100000
SCRATCH = DATA + 8 * PAGE  # of abi.SCRATCH_SIZE
DATA_SIZE = 32 * PAGE

WORDS = ("old", "new", "torn", "trapped", "goes_on", "inside", "left", "hold", "held")
"""The words of eight bytes from DATA on, which code names as `[rip + old]`."""

ENTRY = CODE + 0x100
HANDLER = CODE + 0x400
GADGETS = CODE + 0x800
_HLT = b"\xf4"
_RIP_IN_CONTEXT = 0xA8  # of struct ucontext, the third argument of a signal handler


class Image:
    """The code at CODE, of some pages. `labels` are the addresses that it may name, and `gadgets`
    those of the instructions that the product's remote calls need. `handler` is the address of the
    SIGTRAP handler, 0 without one."""

    def __init__(self, pages: int = 1) -> None:
        self.bytes = bytearray(_HLT * (pages * PAGE))
        self.labels = {word: DATA + 8 * index for index, word in enumerate(WORDS)}
        self.handler = 0
        gadget = GADGETS
        self.gadgets = {}
        for name, code in (
            ("syscall_ret", SYSCALL_RET),
            ("sigreturn", SIGRETURN[0]),
            ("pop_rax_ret", POP_RAX_RET),
        ):
            self.gadgets[name] = gadget
            self.put(gadget, code)
            gadget += 16

    def put(self, address: int, code: bytes) -> None:
        """Place bytes at an address."""
        self.bytes[address - CODE : address - CODE + len(code)] = code

    def add(self, address: int, *source: str) -> int:
        """Assemble lines at an address, and return the address after them."""
        code = assembled(address, source, self.labels)
        self.put(address, code)
        return address + len(code)

    def add_handler(self, site: int) -> None:
        """Add a SIGTRAP handler that works as the product's does: a thread that met a breakpoint
        at the site goes on at the address in `goes_on`. Any other breakpoint ends the child."""
        rip = f"qword ptr [rdx + {_RIP_IN_CONTEXT:#x}]"
        self.handler = HANDLER
        self.labels["behind"] = site + 1
        self.add(
            HANDLER,
            f"mov rax, {rip}",
            "lea rcx, [rip + behind]",
            "cmp rax, rcx",
            "jne foreign",
            "lock inc qword ptr [rip + trapped]",
            "mov rax, qword ptr [rip + goes_on]",
            f"mov {rip}, rax",
            "ret",
            "foreign:",
            "ud2",
        )


def assembled(address: int, source: Sequence[str], labels: dict[str, int] | None = None) -> bytes:
    """The code of lines that are assembled for an address."""
    return assemble(source, address, labels or {}).code
