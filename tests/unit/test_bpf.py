"""Filters of seccomp: our interpreter does what the kernel does, and accepts what it accepts."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from markerjit.proc.bpf import (
    ALLOW,
    Action,
    BadFilter,
    CallData,
    Instruction,
    LooksAtUnknown,
    encode_filter,
    parse_filter,
    run_filter,
    run_filters,
)
from markerjit.remote import native
from tests.support.choice import examples
from tests.support.filters import ERRNO, KILL, answers, container_filter, install
from tests.support.timing import reaped

NUMBER = 5000  # no system call: allowed, it is ENOSYS
WORDS = st.integers(0, 2**32 - 1)
SMALL = st.one_of(st.integers(0, 40), WORDS)
ARITHMETIC = (0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x64, 0x74, 0xA4)

RETURN_11_BITS = [  # of A, as an errno
    Instruction(0x54, 0, 0, 0x7FF),
    Instruction(0x44, 0, 0, ERRNO),
    Instruction(0x16, 0, 0, 0),
]


STORES = [Instruction(kind, 0, 0, place) for place in range(16) for kind in (0x02, 0x03)]
OPERATIONS = (
    *[0x20] * 3, 0x00, 0x01, 0x80, 0x81, 0x02, 0x03, 0x60, 0x61, 0x07, 0x87, 0x84, 0x05,
    *ARITHMETIC, *[operation | 8 for operation in ARITHMETIC],
    *(0x15, 0x25, 0x35, 0x45, 0x1D, 0x2D, 0x3D, 0x4D),
)  # fmt: skip
DRAWN = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 255), st.integers(0, 255), SMALL),
    min_size=1,
    max_size=25,
)


def calculation(drawn: list[tuple[int, int, int, int]]) -> list[Instruction]:
    """Instructions but returns. Jumps stay within them, and no load is of what was not stored."""
    code = list(STORES)
    for index, (operation, if_true, if_false, constant) in enumerate(drawn):
        left = len(drawn) - index
        if operation == 0x20:  # not the instruction pointer, which differs
            constant = (0, 4, *range(16, 64, 4))[constant % 14]
        elif operation in (0x02, 0x03, 0x60, 0x61):
            constant %= 16
        elif operation in (0x34, 0x64, 0x74):
            constant = 1 + constant % 31
        elif operation == 0x05:
            constant %= left
        jumps = operation & 7 == 5 and operation != 0x05
        code.append(
            Instruction(operation, jumps * if_true % left, jumps * if_false % left, constant)
        )
    return code


ARGS = st.tuples(*[st.integers(0, 2**64 - 1)] * 6)


def in_kernel(code: bytes, number: int, args: tuple[int, ...]) -> Action:
    """What the kernel makes of a call under a filter, which allows all other calls."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            install(code)
            ctypes.set_errno(0)
            libc.syscall(ctypes.c_long(number), *map(ctypes.c_uint64, args))
            os.write(writing, struct.pack("<i", ctypes.get_errno()))
        finally:
            os._exit(0)
    os.close(writing)
    answer = os.read(reading, 4)
    os.close(reading)
    status = os.waitstatus_to_exitcode(reaped(child))
    if not answer:
        assert status == -signal.SIGSYS
        return Action(KILL, 0)
    return Action(ERRNO, struct.unpack("<i", answer)[0])


def under_any_call(code: list[Instruction]) -> bytes:
    """All calls but one are allowed before the filter begins."""
    guard = [
        Instruction(0x20, 0, 0, 0),
        Instruction(0x15, 1, 0, NUMBER),
        Instruction(0x06, 0, 0, ALLOW),
        Instruction(0x00, 0, 0, 0),
    ]
    return encode_filter([*guard, *code])


@settings(max_examples=examples(60), deadline=None)
@given(DRAWN.map(calculation), ARGS)
def test_a_filter_returns_what_it_returns_in_the_kernel(
    code: list[Instruction], args: tuple[int, ...]
) -> None:
    program = under_any_call([*code, *RETURN_11_BITS])

    action = run_filter(parse_filter(program), CallData(NUMBER, args))

    kernel = in_kernel(program, NUMBER, args)
    if action.kind == 0:  # a thread is killed, and it is the only one
        action = Action(KILL, 0)
    assert (action.kind, action.data) == (kernel.kind, kernel.data)


@settings(max_examples=examples(100), deadline=None)
@given(DRAWN.map(calculation), ARGS, WORDS, st.integers(0, 2**64 - 1))
def test_the_interpreter_of_the_stop_says_the_same(
    code: list[Instruction], args: tuple[int, ...], number: int, pointer: int
) -> None:
    program = encode_filter([*code, Instruction(0x16, 0, 0, 0)])
    data = struct.pack("<IIQ6Q", number, 0xC000003E, pointer, *args)

    ours = run_filter(parse_filter(program), CallData(number, args, pointer))

    value = native.library().mj_run_filter(program, len(program) // 8, data) & 0xFFFFFFFF
    known = parse_filter(encode_filter([Instruction(0x06, 0, 0, value)]))
    assert run_filter(known, CallData(0)) == ours


@pytest.mark.parametrize(
    "action", [ALLOW, 0x7FFC0000, ERRNO | 1, ERRNO | 4095, 0x00030000, 0, KILL, 0x12340000]
)
def test_an_action_is_what_the_kernel_does(action: int) -> None:
    code = answers({NUMBER: action})

    ours = run_filter(parse_filter(code), CallData(NUMBER))

    kernel = in_kernel(code, NUMBER, ())
    expected = {ALLOW: errno.ENOSYS, 0x7FFC0000: errno.ENOSYS, ERRNO: ours.data}
    assert ours.allows == (action in (ALLOW, 0x7FFC0000))
    assert (kernel.kind == ERRNO) == (ours.kind in expected)
    if ours.kind in expected:
        assert kernel.data == expected[ours.kind]


def test_the_most_restrictive_filter_decides_and_the_newest_of_equals() -> None:
    actions = [ERRNO | 5, ALLOW, ERRNO | 7]
    filters = [parse_filter(answers({9: action})) for action in actions]
    killing = parse_filter(answers({9: KILL}))

    assert run_filters(filters, CallData(9)) == Action(ERRNO, 7)
    assert run_filters([killing, *filters], CallData(9)) == Action(KILL, 0)
    assert run_filters(filters, CallData(10)).allows
    assert run_filters([], CallData(9)).allows


def test_what_is_not_known_is_not_guessed() -> None:
    def looks_at(word: int) -> list[Instruction]:
        return [Instruction(0x20, 0, 0, 4 * word), Instruction(0x16, 0, 0, 0)]

    call = CallData(9, (7, None))

    run_filter(parse_filter(encode_filter(looks_at(4))), call)
    for word, part in ((2, "instruction pointer"), (6, "argument 1"), (9, "argument 2")):
        with pytest.raises(LooksAtUnknown, match=part):
            run_filter(parse_filter(encode_filter(looks_at(word))), call)


RETURN = Instruction(0x06, 0, 0, ALLOW)


@pytest.mark.parametrize(
    "code",
    [
        [],
        [RETURN] * 4097,
        [Instruction(0x20, 0, 0, 64), RETURN],  # behind the data
        [Instruction(0x20, 0, 0, 2), RETURN],  # not a whole word
        [Instruction(0x28, 0, 0, 0), RETURN],  # a half word
        [Instruction(0x40, 0, 0, 0), RETURN],  # indirect
        [Instruction(0x94, 0, 0, 3), RETURN],  # modulo
        [Instruction(0x34, 0, 0, 0), RETURN],  # by zero
        [Instruction(0x64, 0, 0, 32), RETURN],
        [Instruction(0x60, 0, 0, 16), RETURN],
        [Instruction(0x05, 0, 0, 1), RETURN],  # jumps behind the end
        [Instruction(0x15, 1, 0, 0), RETURN],
        [Instruction(0x15, 0, 1, 0), RETURN],
        [Instruction(0xFFFF, 0, 0, 0), RETURN],
        [RETURN, Instruction(0x00, 0, 0, 0)],  # no return at the end
    ],
)
def test_what_the_kernel_refuses_is_no_filter(code: list[Instruction]) -> None:
    data = encode_filter(code)

    with pytest.raises(BadFilter):
        parse_filter(data)

    child = os.fork()
    if not child:
        try:
            install(data)
        except OSError:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(reaped(child)) == 1


def test_half_an_instruction_is_no_filter() -> None:
    with pytest.raises(BadFilter):
        parse_filter(encode_filter([RETURN])[:-1])


@given(st.binary(max_size=80))
def test_any_bytes_are_a_filter_that_ends_or_none(data: bytes) -> None:
    try:
        code = parse_filter(data)
    except BadFilter:
        return
    run_filter(code, CallData(1, (0,) * 6, 0))


def test_a_profile_of_a_container_is_read_as_the_kernel_reads_it() -> None:
    code = container_filter()
    filters = [parse_filter(code)]

    assert run_filters(filters, CallData(219)).allows  # restart_syscall
    assert run_filters(filters, CallData(435)) == Action(ERRNO, 38)  # clone3
    for call, args in ((135, (8,)), (135, (9,)), (135, (2**33,)), (41, (40, 0, 0)), (9999, ())):
        action = run_filters(filters, CallData(call, (*args, *[0] * (6 - len(args)))))
        kernel = in_kernel(code, call, args)
        assert action.allows or kernel == Action(ERRNO, action.data)
