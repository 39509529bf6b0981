"""Sources of probes in C: which are refused, and what the user is told. And how they are named."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_uint64
from pathlib import Path

import pytest

from markerjit.probes.c.compile import compile_probe
from markerjit.probes.c.examine import NoProbe
from markerjit.probes.c.link import link_probe
from markerjit.probes.c.unit import (
    BadProbe,
    Compiled,
    DoesNotCompile,
    Forbidden,
    NoSuchFunction,
    NoTool,
    UndefinedSymbols,
    split_probe,
)
from tests.support.compilers import INCLUDE
from tests.support.probe_host import EVERYTHING, HEAD, NOWHERE, Host, compile_everything

# ---- what is refused -----------------------------------------------------------------------------


def test_undefined_functions_are_named_with_their_lines(
    compiler: str, build_one: Callable[..., Compiled]
) -> None:
    text = (
        "#include <stdio.h>\n" + HEAD + 'printf("%ld", n);\n'
        'if (n) fputs("no", stderr);\n'
        "undeclared(n);\n}\n"
    )

    with pytest.raises(UndefinedSymbols) as caught:
        build_one(text, compiler=compiler)

    assert "printf is called in probe.c:4" in str(caught.value)
    assert "there is no libc for it" in str(caught.value)
    assert [(symbol.name, symbol.line, symbol.called) for symbol in caught.value.symbols] == [
        ("printf", 4, True),
        ("fputs", 5, True),
        ("stderr", 5, False),
        ("undeclared", 6, True),
    ]


FORBIDDEN = [
    ('__asm__ volatile("syscall" ::: "rcx", "r11", "memory");', "may not leave the program"),
    ('__asm__ volatile("int3");', "may not leave the program"),
    ('__asm__ volatile("int $0x80");', "may not leave the program"),
    ('__asm__ volatile("sysenter");', "may not leave the program"),
    ("__builtin_trap();", "would kill the program"),
    ('__asm__ volatile("hlt");', "only the kernel"),
    ('__asm__ volatile("cli");', "only the kernel"),
    ('__asm__ volatile("outb %al, $0x80");', "only the kernel"),
    ('__asm__ volatile("rep insb");', "only the kernel"),
    ('__asm__ volatile("wrmsr");', "only the kernel"),
    ('__asm__ volatile("movq $0, %fs:0x100");', "thread-local"),
    ('__asm__ volatile("lock incl %gs:0x100");', "thread-local"),
    ('__asm__ volatile("wrfsbase %rax");', "relies on that state"),
    ('__asm__ volatile("mov %ax, %fs");', "relies on that state"),
    ("unsigned csr = 0x1f80; __builtin_ia32_ldmxcsr(csr);", "relies on that state"),
    ('short word = 0; __asm__ volatile("fldcw %0" :: "m"(word));', "relies on that state"),
    ('__asm__ volatile("std");', "relies on that state"),
    ('__asm__ volatile("push %0; popfq" :: "r"(n));', "relies on that state"),
    ('__asm__ volatile("wrpkru");', "relies on that state"),
    ('__asm__ volatile("movq %rax, %mm0");', "relies on that state"),
    ('__asm__ volatile("vmcall");', "may not leave the program"),
    ('__asm__ volatile("lcall *%0" :: "m"(n));', "may not leave the program"),
    ('__asm__ volatile("ljmp *%0" :: "m"(n));', "may not leave the program"),
    ('__asm__ volatile("lretq");', "may not leave the program"),
    ('__asm__ volatile("iretq");', "only the kernel"),
    ('__asm__ volatile(".byte 0x06");', "cannot be decoded"),
    ("char big[2000]; mj_read(big, (void *)n, sizeof big); mj_emit(e, \"%s\", big);", "1024 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "why"), FORBIDDEN, ids=[body[:40] for body, _ in FORBIDDEN])
def test_instructions_that_do_harm_are_refused_with_their_line(
    build_one: Callable[..., Compiled], body: str, why: str
) -> None:
    with pytest.raises(Forbidden, match=why) as caught:
        build_one(f"{HEAD}\n{body}\n}}\n")

    assert caught.value.file == "probe.c"
    assert caught.value.line in (2, 4)  # a frame is made where the function begins


@pytest.mark.parametrize(
    "assembly", ["mov %fs:0, %rax", "rdtscp", "vzeroupper", "vpxorq %zmm0, %zmm0, %zmm0", "fld1"]
)
def test_what_any_function_may_do_a_probe_may_do(
    build_one: Callable[..., Compiled], assembly: str
) -> None:
    build_one(
        f'{HEAD} __asm__ volatile("{assembly.replace("%", "%%")}" ::: "rax", "rcx", "rdx"); }}'
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("__thread int t;\n" + HEAD + "t += n; }", "t is thread-local"),
        ("extern __thread int t;\n" + HEAD + "t += n; }", "t is thread-local"),
        (
            "int v;\n__attribute__((constructor)) static void c(void) { v = 1; }\n" + HEAD + "}",
            "constructor or destructor",
        ),
        ('int v __attribute__((section("mine"))) = 1;\n' + HEAD + "}", "section mine"),
        (
            '__attribute__((section(".data.code"))) void g(void) {}\n' + HEAD + "}",
            "mixes code and data",
        ),
        (
            "static void a(void) {}\nstatic void *pick(void) { return a; }\n"
            'void g(void) __attribute__((ifunc("pick")));\n' + HEAD + "}",
            "ifunc",
        ),
        (HEAD + "for (;;); }", "f never returns"),
        ("char page[8192] __attribute__((aligned(8192))) = {1};\n" + HEAD + "}", "alignment"),
        (HEAD + '__asm__ volatile("mov $here, %eax; here:"); }', "cannot be linked: .*R_X86_64_32"),
        (
            HEAD + 'mj_emit(e, "n %ld", n); mj_emit(e, "n %lu", (unsigned long)n); }',
            "e is emitted with another format or other types in probe.c:3 than in probe.c:3",
        ),
        (HEAD + 'mj_emit(e, "%2$ld %1$ld", n, n); }', "the event e in probe.c:3"),
        (
            HEAD + "MJ_COUNTER(c); mj_count(&c); }\nvoid g(struct mj_slot *slot) "
            "{ MJ_COUNTER(c); mj_count(&c); }",
            "several counters or histograms c",
        ),
    ],
)
def test_what_has_no_place_in_another_program_is_refused(
    build_one: Callable[..., Compiled], text: str, why: str
) -> None:
    with pytest.raises(BadProbe, match=why):
        build_one(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (HEAD + "n +; }", "probe.c:3:.* expected expression"),
        (HEAD + "char a[n]; mj_read(a, slot, n); }", "variable.length array"),
        (HEAD + "mj_read(__builtin_alloca(n), slot, n); }", "alloca"),
        (HEAD + 'mj_emit(e, "n %s", n); }', "expects|specifies"),
        (HEAD + 'mj_emit(e, "n %d"); }', "expects a matching|more '%' conversions"),
        (HEAD + 'mj_emit("e", "n"); }', "identifier|pasting"),
        (HEAD + 'mj_emit(e, "x", *slot); }', "error: "),
        ("#include <no/such.h>\n" + HEAD + "}", "no/such.h"),
    ],
)
def test_source_that_does_not_compile_is_told_in_the_compilers_words(
    compiler: str, build_one: Callable[..., Compiled], text: str, why: str
) -> None:
    with pytest.raises(DoesNotCompile, match=why) as caught:
        build_one(text, compiler=compiler)

    assert "\n" not in str(caught.value)
    assert caught.value.output.count("error:") >= 1


def test_function_that_is_not_there_is_told_with_those_that_are(compiler: str) -> None:
    with pytest.raises(NoSuchFunction, match="no function on_got; it has on_any, on_count, ") as e:
        compile_probe(EVERYTHING, "on_got", compiler, include=INCLUDE)

    assert "returns" not in e.value.candidates


@pytest.mark.parametrize(
    "text",
    [
        "#include <markerjit/probe.h>\nstatic void f(struct mj_slot *slot) { }",
        "#include <markerjit/probe.h>\nstatic void f(struct mj_slot *slot) { slot->data = 0; }\n"
        "void g(struct mj_slot *slot) { f(slot); }",
        "#include <markerjit/probe.h>\n__attribute__((noinline)) static void f(struct mj_slot *s) "
        "{ s->data = 0; }\nvoid g(struct mj_slot *slot) { f(slot); f(slot); }",
    ],
)
def test_static_function_is_told_to_be_static(
    compiler: str, build_one: Callable[..., Compiled], text: str
) -> None:
    with pytest.raises(NoSuchFunction, match="f is static") as caught:
        build_one(text, compiler=compiler)

    assert caught.value.is_static


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("int f(struct mj_slot *slot) { return 1; }", "f in probe.c:2 returns int"),
        ("void f(void) { }", "first parameter"),
        ("void f(void *slot) { }", "first parameter"),
        ("void f(struct mj_slot slot) { }", "first parameter"),
    ],
)
def test_function_that_is_no_probe_is_refused(
    build_one: Callable[..., Compiled], text: str, why: str
) -> None:
    with pytest.raises(NoProbe, match=why):
        build_one(f"#include <markerjit/probe.h>\n{text}")


def test_slot_may_be_constant(build_one: Callable[..., Compiled]) -> None:
    build_one("#include <markerjit/probe.h>\nvoid f(const struct mj_slot *const slot) { }")


def test_missing_file_and_missing_tools_are_told_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = compile_everything("gcc")  # while there is a gcc
    with pytest.raises(BadProbe, match="there is no file"):
        compile_probe(tmp_path / "no.c", "f")

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)

    with pytest.raises(NoTool, match=r"a C compiler \(cc, gcc, clang\).*apt-get install gcc"):
        compile_probe(EVERYTHING, "on_count", include=INCLUDE)
    with pytest.raises(NoTool, match=r"\(tcc -x\)"):
        compile_probe(EVERYTHING, "on_count", "tcc -x", include=INCLUDE)
    with pytest.raises(NoTool, match="apt-get install binutils"):
        link_probe(compiled, code_address=0, data_address=0, runtime=NOWHERE)


def test_compiler_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -m64")

    with pytest.raises(NoTool, match="no-such-compiler -m64"):
        compile_probe(EVERYTHING, "on_count", include=INCLUDE)


def test_options_reach_the_compiler_and_warnings_the_user(
    build_one: Callable[..., Compiled],
) -> None:
    compiled = build_one(HEAD + 'int unused; mj_emit(e, "%d", NUMBER); }', options=["-DNUMBER=3"])

    assert "unused variable" in compiled.warnings


@pytest.mark.product
@pytest.mark.parametrize(
    "options",
    [
        "-O0 -std=c99",
        "-O3 -march=native -flto",
        "-fno-PIE -mcmodel=large",
        "-fstack-protector-all -fcf-protection=full -fexceptions -D_FORTIFY_SOURCE=2",
    ],
)
def test_no_option_of_the_user_makes_a_probe_that_does_not_run(
    host: Host, compiler: str, options: str
) -> None:
    compiled = compile_probe(
        EVERYTHING, "on_count", compiler, options=options.split(), include=INCLUDE
    )
    probe = host.load(compiled)

    probe.call("on_count", c_uint64(7))

    assert probe.counters() == {"hits": 1, "bytes": 7}


# ---- names ---------------------------------------------------------------------------------------


def test_probe_is_named_by_file_and_function() -> None:
    assert split_probe("dir/my:probe.c:on_get") == (Path("dir/my:probe.c"), "on_get")


@pytest.mark.parametrize("text", ["count", "a.c", "a.c:", "a.cc:f", ":f", "a.c:1f", "a.c:f.g"])
def test_what_is_no_probe_in_c_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"FILE\.c:function"):
        split_probe(text)
