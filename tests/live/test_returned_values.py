"""What functions return, with the types that debugging information gives it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import markerjit
from tests.support import answering
from tests.support.compilers import Compiler
from tests.support.processes import text_of

pytestmark = pytest.mark.live
pytest.importorskip("drgn", reason="drgn is not installed: pip install 'markerjit[debug]'")

PROGRAM = r"""
#include <unistd.h>

#define FUNCTION __attribute__((noinline, noipa))

struct pair { int first, second; };

/* Long enough that the entry and the exit need no bytes in common. */
#define LONG_ENOUGH(n) __asm__ volatile("lea 1(%0), %0\n lea -1(%0), %0" : "+r"(n))

FUNCTION double half(int n) { LONG_ENOUGH(n); return n / 2.0; }
FUNCTION float quarter(int n) { LONG_ENOUGH(n); return n / 4.0f; }
FUNCTION const char *word(int n) { LONG_ENOUGH(n); return n == '?' ? "question" : "other"; }
FUNCTION long far(int n) { LONG_ENOUGH(n); return -(1l << 40) - n; }
FUNCTION unsigned long top(int n) { LONG_ENOUGH(n); return (1ul << 63) + n; }
FUNCTION unsigned char byte(int n) { LONG_ENOUGH(n); return n + 200; }
FUNCTION _Bool is_odd(int n) { LONG_ENOUGH(n); return n & 1; }
FUNCTION void *place(int n) { LONG_ENOUGH(n); return (void *)(long)n; }
FUNCTION void nothing(int n) { LONG_ENOUGH(n); }
FUNCTION struct pair both(int n) { LONG_ENOUGH(n); return (struct pair){n, -n}; }

int main(void) {
    if (write(1, "r", 1) < 0)
        return 1;
    for (char c; read(0, &c, 1) == 1;) {
        half(c), quarter(c), word(c), far(c), top(c);
        byte(c), is_odd(c), place(c), nothing(c), both(c);
        if (write(1, &c, 1) < 0)
            return 2;
    }
}
"""
N = ord("?")
VALUES = {
    "half": {"ret": N / 2},
    "quarter": {"ret": N / 4},
    "word": {"ret": "question"},
    "far": {"ret": -(1 << 40) - N, "rax": (1 << 64) - (1 << 40) - N},
    "top": {"ret": (1 << 63) + N, "rax": (1 << 63) + N},
    "byte": {"ret": (N + 200) % 256},
    "is_odd": {"ret": True},
    "place": {"ret": N, "rax": N},
    "nothing": {},
    "both": {"ret": N, "rax": ((1 << 32) - N) << 32 | N},
}


@pytest.fixture(scope="module")
def returning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("returning")
    source, path = folder / "returning.c", folder / "returning"
    source.write_text(PROGRAM)
    made = Compiler("gcc").run("-O2", "-g", source, "-o", path)
    assert made.returncode == 0, made.stderr
    return path


@pytest.mark.product
@pytest.mark.parametrize("with_entry", [True, False], ids=["with arguments", "without"])
@pytest.mark.parametrize("name", VALUES)
def test_a_returned_value_has_its_type(returning: Path, name: str, with_entry: bool) -> None:
    with answering.started(returning) as program:
        text = text_of(program.pid)
        fields = None if with_entry else list(VALUES[name])
        with (
            markerjit.attach(program.pid) as session,
            session.trace(f"func:returning:{name}:return", fields=fields) as stream,
        ):
            assert program.answers()
            (event,) = stream.drain()

        assert {key: event.fields[key] for key in VALUES[name]} == VALUES[name]
        assert type(event.fields.get("ret")) is type(VALUES[name].get("ret"))
        if with_entry:
            assert event.fields["n"] == N
            assert set(event.fields) - set(VALUES[name]) <= {"n", "dur", "rax"}
        assert text_of(program.pid) == text


def test_questions_are_about_typed_values(returning: Path) -> None:
    chosen = "func:returning:{half,quarter}:return"
    with answering.started(returning) as program, markerjit.attach(program.pid) as session:
        with session.trace(chosen, where="ret > 20.5") as stream:
            assert program.answers()
            assert [event.name for event in stream.drain()] == ["func:half:return"]
        with session.trace("func:returning:word:return", where='ret == "question"') as stream:
            assert program.answers()
            assert len(list(stream.drain())) == 1
        with session.aggregate("func:returning:word:return", by="ret") as adding:
            assert program.answers()
        assert [row.key for row in adding.read().rows] == [("question",)]


def test_a_function_that_returns_nothing_lacks_the_name(returning: Path) -> None:
    with (
        answering.started(returning) as program,
        markerjit.attach(program.pid) as session,
        pytest.raises(markerjit.BadQuestion, match="ret"),
        session.trace("func:returning:nothing:return", where="ret == 0"),
    ):
        pass


def test_list_shows_the_fields_of_a_return(returning: Path) -> None:
    (function,) = markerjit.list_file_functions(
        str(returning), "func:returning:half:return"
    ).functions

    assert [(field.name, field.conversion) for field in function.fields][:2] == [
        ("ret", "g"),
        ("dur", "u"),
    ]


def test_a_controller_without_debugging_information_closes_what_one_with_it_opened(
    returning: Path,
) -> None:
    with answering.started(returning) as program:
        text = text_of(program.pid)
        with markerjit.attach(program.pid) as session:
            session.enable("func:returning:half:return", probe="record")
            script = (
                "import sys; sys.modules['drgn'] = None; import markerjit\n"
                f"with markerjit.attach({program.pid}) as session:\n"
                "    session.disable('func:*:return')"
            )
            subprocess.run([sys.executable, "-c", script], check=True)

        assert program.answers()
        assert text_of(program.pid) == text
