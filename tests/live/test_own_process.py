"""attach() without a pid: markers of a library in this very process, loaded with ctypes. Then
programs that are not from this repository's build: one of a user's own, and some that are spoiled.

Each test runs in a process of its own, so that a crash is a failure and not the end of pytest.
"""

from __future__ import annotations

import json
import re
import struct
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.support.commands import cli, python, running
from tests.support.markers import wait_on
from tests.support.processes import text_of
from tests.support.programs import ROOT
from tests.support.server import Client
from tests.support.timing import HANG_S, Limited, joined

pytestmark = pytest.mark.also_user

MODES = ["jump", "nop", "pointer", "immediate", "sentinel"]

LIBRARY = r"""
#include <markerjit/marker.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

static atomic_long evaluated, spun;
static atomic_int stop;

static long evaluate(long n) { atomic_fetch_add(&evaluated, 1); return n; }
long own_evaluated(void) { return atomic_load(&evaluated); }

void own_call(int times) {
    for (int i = 0; i < times; i++)
        MARK(own_call, "i %d n %ld name %s", i, evaluate(-i), "own");
}
static void *spin(void *argument) {
    while (!atomic_load(&stop)) {
        MARK(own_spin, "n %ld", (long)atomic_load(&spun));
        atomic_fetch_add(&spun, 1);
    }
    return argument;
}
static pthread_t threads[4];
void own_start(void) {
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, spin, 0);
}
long own_stop(void) {
    atomic_store(&stop, 1);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    return atomic_load(&spun);
}
void own_trap(void) { __asm__ __volatile__("int3"); }
"""

PRELUDE = """
import ctypes, faulthandler, os, sys
import markerjit
from markerjit import Mode
from tests.support.processes import text_of

faulthandler.enable()
library = ctypes.CDLL(sys.argv[1])
library.own_evaluated.restype = library.own_stop.restype = ctypes.c_long
text = text_of(os.getpid())


def unchanged():  # what was loaded since is not compared
    now = text_of(os.getpid())
    return all(now[where] == code for where, code in text.items())
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("own")
    source = folder / "own.c"
    source.write_text(LIBRARY)
    built = {mode: folder / f"libown-{mode}.so" for mode in MODES}
    for mode, path in built.items():
        flags = ["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-pthread", f"-DMJ_MODE={mode}"]
        command = ["cc", *flags, f"-I{ROOT}/native/include", "-o", path, source]
        subprocess.run(command, check=True, timeout=HANG_S)
    return built


def run_own(library: Path, body: str) -> None:
    """Run the body in a Python process of its own, with the library loaded."""
    done = python(PRELUDE + textwrap.dedent(body), library)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@pytest.mark.user
@pytest.mark.parametrize("mode", MODES)
def test_events_of_our_own_library_are_what_it_was_called_with(
    libraries: dict[str, Path], mode: str
) -> None:
    run_own(
        libraries[mode],
        """
        with markerjit.attach() as session:
            with session.trace("own_call") as events:
                library.own_call(1000)
                library.own_call(2)
            seen = events.drain()
        assert [event.fields for event in seen] == [
            {"i": i, "n": -i, "name": "own"} for i in [*range(1000), 0, 1]
        ]
        assert {event.tid for event in seen} == {os.getpid()}
        assert unchanged()
        """,
    )


@pytest.mark.user
def test_a_switch_of_our_own_markers_asks_nothing_that_is_about_a_stop(
    libraries: dict[str, Path],
) -> None:
    """We are never stopped: neither a tracer nor a seccomp filter would be in the way."""
    run_own(
        libraries["jump"],
        """
        with markerjit.attach() as session:
            session.enable("own_call")
            asked = []

            def note(event, arguments):
                if event in ("open", "os.listdir", "os.readlink"):
                    asked.append(str(arguments[0]))

            sys.addaudithook(note)
            session.disable("own_call")
            session.enable("own_call")
            files = {name for name in asked if name.startswith("/proc/")}
        process = f"/proc/{os.getpid()}"
        assert f"{process}/maps" in files
        assert not files & {f"{process}/status", f"{process}/task", "/proc/self"}, files
        """,
    )


def test_an_object_that_is_loaded_meanwhile_is_seen_by_a_switch_that_comes_again(
    libraries: dict[str, Path],
) -> None:
    run_own(
        libraries["jump"],
        """
        from markerjit.session.turn import Turns

        taken = []
        take = Turns.take
        Turns.take = lambda self, **options: taken.append(self) or take(self, **options)
        copy = sys.argv[1].replace("-jump", "-nop")
        with markerjit.attach() as session:
            for _ in range(3):
                session.on("own_call")
                session.off("own_call")
            taken.clear()
            session.on("own_call")
            session.off("own_call")
            assert not taken
            other = ctypes.CDLL(copy)
            session.on("own_call")
            assert taken
            other.own_call(3)
            assert other.own_evaluated() == 3
        """,
    )


def test_breakpoints_in_between_are_for_a_turn_to_judge(libraries: dict[str, Path]) -> None:
    run_own(
        libraries["jump"],
        """
        from markerjit.session.turn import Turns

        taken = []
        take = Turns.take
        Turns.take = lambda self, **options: taken.append(self) or take(self, **options)
        with markerjit.attach() as session:
            for mode in ("jump", "int3") * 3:
                session.on("own_call", mode=mode)
                library.own_call(1)
                session.off("own_call")
            assert session.status("own_call")[0].total == 6
            taken.clear()
            session.on("own_call", mode="jump")
            assert taken
            session.off("own_call")
            for _ in range(4):
                taken.clear()
                session.on("own_call", mode="jump")
                session.off("own_call")
            assert not taken
        """,
    )


@pytest.mark.parametrize("mode", MODES)
def test_arguments_are_evaluated_only_while_the_marker_is_on(
    libraries: dict[str, Path], mode: str
) -> None:
    run_own(
        libraries[mode],
        """
        always = 10 if "sentinel" in sys.argv[1] else 0  # it calls an empty function while off
        with markerjit.attach() as session:
            library.own_call(10)
            assert library.own_evaluated() == always
            for turn in range(1, 100):
                session.enable("own_*")
                library.own_call(3)
                session.disable("own_*")
                library.own_call(10)
                assert library.own_evaluated() == always + turn * (3 + always)
            (own_call,) = session.statistics("own_call")
            assert own_call.total == 99 * 3
            assert own_call.mode is None
        assert unchanged()
        """,
    )


@pytest.mark.user
@pytest.mark.parametrize("mode", ["jump", "nop"])
def test_breakpoints_work_in_our_own_process_and_leave_ours_alone(
    libraries: dict[str, Path], mode: str
) -> None:
    run_own(
        libraries[mode],
        """
        import signal
        trapped = []
        signal.signal(signal.SIGTRAP, lambda *_: trapped.append(1))
        with markerjit.attach() as session:
            for turn in range(50):
                session.enable("own_call", mode=Mode.INT3)
                library.own_call(7)
                library.own_trap()
                session.disable("own_call")
                library.own_call(7)
            assert session.statistics("own_call")[0].total == 350
        library.own_trap()
        assert len(trapped) == 51
        assert unchanged()
        """,
    )


@pytest.mark.slow
@pytest.mark.parametrize("turns", [25, pytest.param(250, marks=pytest.mark.long)])
@pytest.mark.parametrize("mode", MODES)
def test_many_switches_with_our_own_threads_inside(
    libraries: dict[str, Path], mode: str, turns: int
) -> None:
    run_own(
        libraries[mode],
        f"""
        turns = {turns}
        library.own_start()
        ways = [None, Mode.INT3] if "jump" in sys.argv[1] or "nop" in sys.argv[1] else [None]
        with markerjit.attach() as session:
            for turn in range(turns):
                probe = ("count", "record")[turn % 3 == 2]
                session.enable("own_spin", mode=ways[turn % len(ways)], probe=probe)
                session.disable("own_spin")
            while not session.statistics("own_spin")[0].total:  # on for as long as it takes
                session.enable("own_spin")
                session.disable("own_spin")
        assert library.own_stop() > 0
        assert unchanged()
        """,
    )


def test_every_event_of_our_own_threads_is_seen_or_counted_as_lost(
    libraries: dict[str, Path],
) -> None:
    run_own(
        libraries["jump"],
        """
        with markerjit.attach(ring_size=1 << 16) as session:
            with session.trace("own_spin") as events:
                library.own_start()
                seen = 0
                for event in events:
                    seen += 1
                    if seen > 20000:
                        break
                spun = library.own_stop()
            events.drain()
            told = events.statistics()
        assert told.events + told.lost == spun
        """,
    )


@pytest.mark.user
def test_foreign_sites_of_our_own_process_are_switched_by_another_process(
    libraries: dict[str, Path],
) -> None:
    """By a child, as the refusal says. Our threads go on, and the code is as before."""
    run_own(
        libraries["jump"],
        """
        import subprocess
        import pytest

        pid, name = os.getpid(), "func:own_evaluated"
        with markerjit.attach() as session:
            with pytest.raises(markerjit.Refused, match=f"markerjit on {pid} PATTERN") as refused:
                session.on(name, mode=Mode.INT3)
        ctypes.CDLL(None).prctl(0x59616D61, -1, 0, 0, 0)  # any process of ours may trace us
        library.own_start()
        for command in "on", "off":
            words = ["-m", "markerjit.cli.main", command, str(pid), name]
            done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr  # it says, too, if it waited for a CPU
            for _ in range(5):
                library.own_evaluated()
        assert library.own_stop() > 0
        with markerjit.View(pid) as view:
            (status,) = view.statistics(name)
        assert (status.mode, status.hits) == (None, 5)
        assert unchanged()
        """,
    )


@pytest.mark.user
def test_a_thread_may_not_trace_another_one_of_its_process() -> None:
    """So nothing stops all others here, which an opening of several instructions needs."""
    import ctypes
    import errno
    import threading

    end = threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()
    seize, libc = 0x4206, ctypes.CDLL(None, use_errno=True)

    answer = libc.ptrace(seize, other.native_id, None, None)
    error = ctypes.get_errno()
    end.set()
    joined(other)

    assert (answer, error) == (-1, errno.EPERM)


def test_unknown_marker_names_the_nearest(libraries: dict[str, Path]) -> None:
    run_own(
        libraries["jump"],
        """
        with markerjit.attach() as session:
            try:
                session.enable("own_cal")
            except markerjit.UnknownMarker as error:
                assert "own_call" in error.nearest, error
            else:
                raise AssertionError("own_cal is not a marker")
        """,
    )


def test_process_without_markers_says_so() -> None:
    program = "import markerjit\nwith markerjit.attach() as s: print(s.sites()); s.enable('*')"
    done = python(program)

    assert done.returncode == 1
    assert done.stdout == "()\n"
    assert "NoMarkers" in done.stderr.splitlines()[-1]


@pytest.mark.user
def test_library_that_comes_into_a_process_without_markers_is_seen(build: Path) -> None:
    """A session is open before there is anything to switch."""
    program = (
        "import ctypes, markerjit\n"
        "with markerjit.attach() as session:\n"
        "    before = session.sites()\n"
        f"    library = ctypes.CDLL({str(build / 'truth_plugin.so')!r})\n"
        "    session.enable('*')\n"
        "    print(before, [marker.name for marker in session.statistics() if marker.mode])\n"
    )
    done = python(program)

    assert (done.stdout, done.stderr) == ("() ['truth_plugin']\n", "")


def test_program_outside_the_repository_needs_only_cflags(tmp_path: Path) -> None:
    source = tmp_path / "outside.c"
    source.write_text(
        "#include <markerjit/marker.h>\n#include <unistd.h>\n"
        "int main(void) { char c; for (int i = 0; read(0, &c, 1) == 1; i++)\n"
        '{ MARK(outside, "i %d c %c", i, c); if (write(1, &c, 1) < 0) return 1; } return 0; }\n'
    )
    flags = cli("--cflags")
    command = ["cc", "-O2", *flags.stdout.split(), "-o", tmp_path / "outside", source]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=HANG_S)

    with Limited([tmp_path / "outside"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        with running("trace", program.pid, "outside", "--json", "--events", 3) as tracer:
            wait_on(program.pid, "outside", tracer)
            program.stdin.write(b"xyz")
            program.stdin.flush()
            out, errors = tracer.communicate()
        program.stdin.close()
        assert program.wait(HANG_S) == 0

    fields = [json.loads(line)["fields"] for line in out.splitlines()[:3]]
    assert fields == [{"i": n, "c": c} for n, c in enumerate("xyz")], errors


def spoil(path: Path, spoiled: Path, offset: int, value: bytes) -> None:
    """Copy a program with one note damaged, `offset` bytes from its header."""
    image = bytearray(path.read_bytes())
    notes = [
        match.start() - 12
        for match in re.finditer(rb"markerjit\0", image)
        if image[match.start() - 12 : match.start() - 8] == struct.pack("<I", 10)
    ]
    assert len(notes) == 7
    at = notes[3] + offset
    image[at : at + len(value)] = value
    spoiled.write_bytes(image)
    spoiled.chmod(0o755)


@pytest.mark.parametrize(
    ("offset", "value"),
    [(24, b"\x63"), (25, b"\x63"), (26, b"\xff"), (28, b"\xff\xff"), (32, b"\x7f" * 4)],
    ids=["version", "kind", "argc", "size", "site"],
)
def test_corrupt_note_is_named_and_the_others_serve(
    build: Path, tmp_path: Path, offset: int, value: bytes
) -> None:
    spoil(build / "kvserver", tmp_path / "spoiled", offset, value)
    with Limited([tmp_path / "spoiled"], stdout=subprocess.PIPE) as program:
        try:
            ready = dict(re.findall(r"(\w+)=(\d+)", program.stdout.readline().decode()))
            listed = cli("list", program.pid)
            text = text_of(program.pid)
            on, off = cli("on", program.pid, "kv_*"), cli("off", program.pid, "kv_*")
            assert text_of(program.pid) == text
            with Client(ready["port"]) as client:
                assert client.ask("PING") == b"PONG"
        finally:
            program.kill()

    assert (listed.returncode, on.returncode, off.returncode) == (0, 0, 0), on.stderr
    assert len(listed.stderr.splitlines()) == 1
    assert "left out" in listed.stderr
    assert len(re.findall("^kv_", listed.stdout, re.MULTILINE)) == 6


def test_truncated_notes_end_the_list_and_not_the_target(build: Path, tmp_path: Path) -> None:
    spoil(build / "kvserver", tmp_path / "spoiled", 4, struct.pack("<I", 0x7FFFFFF0))
    with Limited([tmp_path / "spoiled"], stdout=subprocess.PIPE) as program:
        try:
            program.stdout.readline()
            listed, on = cli("list", program.pid), cli("on", program.pid, "*")
            assert program.poll() is None
        finally:
            program.kill()

    for done in (listed, on):
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 1)
    assert len(listed.stderr.splitlines()) == 1
