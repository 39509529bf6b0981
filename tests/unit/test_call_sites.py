"""Calls are found as objdump shows them: direct, through linkage tables, by slots, and at ends."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from markerjit.elf import FileImage
from markerjit.model import (
    CType,
    MappedObject,
    Memory,
    Place,
    Recipe,
    RemoteAddress,
    Signature,
    TypeClass,
    UsdtSite,
)
from markerjit.probes.stub import Displaced, Stub, stub_for
from markerjit.sites import parse_name
from markerjit.sites.calls import calls_of_file
from markerjit.spans.calls import best_opening_of_call
from markerjit.spans.code import Code
from markerjit.spans.openings import Opening, Way
from markerjit.x86.decode import decoder
from markerjit.x86.forms import CALL, TAIL_CALL, call_form, form_with_stub, stub_of
from tests.support.compilers import C_COMPILERS, Compiler, need

SOURCE = r"""
#include <stdlib.h>
#include <string.h>
#define F __attribute__((noinline))
F long leaf(long n) { __asm__ volatile("" : "+r"(n)); return n + 1; }
F static long own(long n) { __asm__ volatile("" : "+r"(n)); return leaf(n) + getppid_like(n); }
F long handed(long n) { return leaf(n * 3); }
F long chosen(long n) { if (n == 7) return leaf(n); return n * 9 + own(n); }
F long many(const char *text) { return atol(text) + labs(strtol(text, 0, 8)) + atol(text + 1); }
F long recursive(long n) {
    long m = n ? recursive(n - 1) : 0;
    __asm__ volatile("" : "+r"(m));
    return m + n;
}
F long rare(long n) {
    if (__builtin_expect(n == 77, 0)) { leaf(own(n)); abort(); }
    return n;
}
long (*volatile pointer)(long) = leaf;
int main(int argc, char **argv) {
    return (int)(handed(argc) + chosen(argc) + many(argv[0]) + recursive(argc) + rare(argc)
                 + pointer(argc));
}
""".replace("getppid_like(n)", "(long)strlen((const char *)n)")  # fmt: skip
OPTIONS = [
    ("-O2",), ("-O0",), ("-Os", "-fno-plt"), ("-O2", "-fcf-protection", "-fno-pie", "-no-pie"),
    ("-O2", "-fPIC", "-shared"), ("-O2", "-fno-plt", "-Wl,-z,lazy"),
]  # fmt: skip
_LINE = re.compile(
    r"^\s+([0-9a-f]+):\s+(?:bnd |notrack |addr32 )*(call|j[a-z]+)q?\s+(.*)$", re.MULTILINE
)
_TARGET = re.compile(r"<([\w.]+?)(?:@[\w.@]+)?>$")


def shown_by_objdump(path: Path, caller: str, callee: str) -> set[int]:
    """The addresses of the calls, and of jumps to another function's start."""
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True
    ).stdout
    addresses: set[int] = set()
    for block in text.split("\n\n"):
        title = re.match(r"[0-9a-f]+ <([\w.]+)>:", block.lstrip())
        if title is None or title[1].partition(".cold")[0] != caller:
            continue
        for address, name, operands in _LINE.findall(block):
            target = _TARGET.search(operands.strip())
            if target and target[1] == callee and (name == "call" or callee != caller):
                addresses.add(int(address, 16))
    return addresses


@pytest.mark.product
@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
@pytest.mark.parametrize("compiler", C_COMPILERS, ids=lambda compiler: compiler.name)
def test_calls_are_those_that_objdump_shows(
    compiler: Compiler, options: tuple[str, ...], tmp_path: Path
) -> None:
    need(compiler)
    (tmp_path / "source.c").write_text(SOURCE)
    path = compiler.build_once(tmp_path / "program", *options, tmp_path / "source.c")

    count = 0
    callees = ("leaf", "own", "strlen", "strtol", "atol", "recursive", "abort", "handed", "many")
    for caller in ("own", "handed", "chosen", "many", "recursive", "rare", "main"):
        for callee in callees:
            truth = shown_by_objdump(path, caller, callee)
            if truth:
                name = parse_name(f"call:{caller}->{callee}")
                sites = calls_of_file(str(path), name).sites
                assert {site.place.offset for site in sites} == truth
                assert {site.signature.name for site in sites} == {name.text}
                count += len(sites)
    assert count >= 12


def test_a_call_is_opened_by_its_target_and_leads_back_to_it(tmp_path: Path) -> None:
    compiler = C_COMPILERS[0]
    need(compiler)
    (tmp_path / "source.c").write_text(SOURCE)
    path = compiler.build_once(tmp_path / "program", "-O2", "-fno-plt", tmp_path / "source.c")
    sites = calls_of_file(str(path), parse_name("call:*->[los]*")).sites

    with FileImage(str(path)) as image:
        code = Code(image)
    for site in sites:
        opening = best_opening_of_call(code, site.place.offset)
        assert isinstance(opening, Opening)
        if site.form.name == CALL:
            assert opening.way is Way.TARGET
            assert opening.code == site.form.head
    assert {site.form.name for site in sites} == {CALL, TAIL_CALL}


@pytest.mark.parametrize(
    ("call", "by_slot"),
    [("e8 00 10 00 00", False), ("67 e8 00 10 00 00", False), ("ff 15 00 10 00 00", True)],
)
def test_the_stub_of_a_call_jumps_to_what_the_call_calls(call: str, by_slot: bool) -> None:
    at, place = RemoteAddress(0x401000), RemoteAddress(0x600000)
    code = bytes.fromhex(call)
    form = form_with_stub(CALL, code, at, place)
    (opened,) = form.ways.values()

    stub = stub_for(made_site(at, code), RemoteAddress(0x500000), Displaced(at, code), place,
                    head=code)  # fmt: skip

    assert isinstance(stub, Stub)
    (insn,) = decoder().disasm(opened, at)
    assert (insn.mnemonic, insn.size, int(insn.op_str, 16)) == ("call", len(code), place)
    assert stub_of(opened, at) == place
    last = list(decoder().disasm(stub.code, place))[-1]
    target = at + len(code) + 0x1000
    if by_slot:
        assert (last.mnemonic, last.address + last.size + last.disp) == ("jmp", target)
    else:
        assert (last.mnemonic, int(last.op_str, 16)) == ("jmp", target)
    assert not stub.places


def test_the_operands_of_a_call_by_a_breakpoint_stand_a_word_lower() -> None:
    at, place, slot = RemoteAddress(0x401000), RemoteAddress(0x600000), RemoteAddress(0x500000)
    code = bytes.fromhex("e8 00 10 00 00")
    site = made_site(at, code, Memory("rsp", 16))

    by_target = stub_for(site, slot, Displaced(at, code), place, head=code)
    by_breakpoint = stub_for(site, slot, Displaced(at, code), place, head=code[:1])

    assert isinstance(by_target, Stub)
    assert isinstance(by_breakpoint, Stub)
    lower = stub_for(
        made_site(at, code, Memory("rsp", 8)), slot, Displaced(at, code), place, head=code
    )
    assert isinstance(lower, Stub)
    operands = by_breakpoint.parts[2]
    assert by_breakpoint.parts[:6] == lower.parts[:6]
    size = operands.end - place
    assert by_breakpoint.code[:size] == lower.code[:size] != by_target.code[:size]
    assert at in by_breakpoint.places


def made_site(at: RemoteAddress, code: bytes, *operands: Memory) -> UsdtSite:
    word = CType(TypeClass.UNSIGNED, 8)
    text = " ".join(f"a{number} %lu" for number in range(len(operands)))
    signature = Signature("call:a->b", text, (word,) * len(operands))
    mapped = Place(MappedObject("/made", 0, None, False), at, "made")
    return UsdtSite(signature, mapped, at, call_form(code, pushes=True), Recipe(operands))
