"""The dormant forms that are compared: the modes of marker.h, the peers, and the controls."""

from __future__ import annotations

from markerjit.apps.bench.sampling.form import AGAIN, BASELINE, BASELINE_CLANG, CALL, Form


def _mark(mode: str, what: str) -> Form:
    return Form(mode, ("-DBENCH_FORM=mark", f"-DMJ_MODE={mode}"), what)


def _other(form: str, name: str, what: str, **more: str | bool) -> Form:
    return Form(name, (f"-DBENCH_FORM={form}",), what, **more)  # type: ignore[arg-type]


FORMS = (
    _mark("none", "nothing is emitted")._replace(name=BASELINE),
    _mark("none", "the same once more: its difference is the noise")._replace(name=AGAIN),
    _mark("jump", "a 2-byte jump over the way to the call"),
    _mark("nop", "test eax, imm32, which becomes that jump"),
    _mark("symbol", "a one-byte no-op for a breakpoint"),
    _mark("immediate", "a byte operand, tested"),
    _mark("pointer", "a function pointer, compared with NULL"),
    _mark("sentinel", "always a call through a pointer"),
    _mark("direct", "always a call"),
    _other("nop2", "2-byte no-op", "the least that a 2-byte jump can be patched into",
           is_usual=False),
    _other("nop5", "5-byte no-op", "what a 5-byte jump can be patched into"),
    _other("usdt", "USDT", "the no-op of sys/sdt.h", needs="sys/sdt.h",
           package="systemtap-sdt-dev"),
    Form(BASELINE_CLANG, ("-DBENCH_FORM=nothing",), "the baseline of what needs clang",
         compiler="clang", package="clang"),
    Form("XRay event",
         ("-DBENCH_FORM=xray", "-fxray-instrument", "-fxray-instruction-threshold=1000000"),
         "the 2-byte jump of LLVM XRay", compiler="clang", package="clang",
         baseline=BASELINE_CLANG),
    Form("LTTng-UST", ("-DBENCH_FORM=lttng",), "a tracepoint, off", needs="lttng/tracepoint.h",
         package="liblttng-ust-dev", libraries=("lttng-ust",)),
    _other("call", CALL, "the control: a call of an empty function has to show"),
)  # fmt: skip
