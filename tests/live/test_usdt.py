"""USDT probes of programs that nobody prepared: switched, traced, and off again byte for byte."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import markerjit
from markerjit import Mode
from markerjit.elf import FileImage
from markerjit.session import openings
from markerjit.spans import Code
from tests.support.c_probes import values
from tests.support.choice import spacing
from tests.support.code_bytes import code_of
from tests.support.commands import cli, facts, one_line
from tests.support.pictures import rows
from tests.support.timing import Limited, wait_until
from tests.support.usdt import build, debian

pytestmark = pytest.mark.live

PYTHON = "/usr/bin/python3.11"
COUNTED = """
#include <markerjit/probe.h>

MJ_COUNTER(turns);
MJ_COUNTER(sum);

void count(struct mj_slot *slot, int i, unsigned long n) {
    mj_count(&turns);
    mj_add(&sum, (uint64_t)i + n);
}

void look(struct mj_slot *slot, signed char small, short medium, double wide, double narrow,
          unsigned seven, unsigned long text) {
    mj_emit(looked, "small %d medium %d wide %g narrow %g seven %u", small, medium, wide,
            narrow, seven);
}
"""


def test_second_program_of_a_build_is_switched_without_a_scan(
    target: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scans = []

    def code(image: FileImage) -> Code:
        scans.append(image.name)
        return Code(image)

    monkeypatch.setattr(openings, "Code", code)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("truth:turn", "truth:*"):  # the first scan answers for all of them
        program = target("truth_usdt")
        before = code_of(program)

        with markerjit.attach(program.pid) as session:
            session.enable(name)
            raised = program.ask("run 1000")["turns_raised"]
            (on,) = session.statistics("truth:turn")
            session.disable(name)

        assert (on.hits, raised, code_of(program)) == (1000, 1, before)

    assert len(scans) == 1


def test_probe_is_counted_and_off_again_byte_for_byte(target: Callable) -> None:
    program = target("truth_usdt")
    before = code_of(program)

    with markerjit.attach(program.pid) as session:
        session.enable("truth:turn")
        raised = program.ask("run 1000")["turns_raised"]
        (on,) = session.statistics("truth:turn")
        opened = code_of(program)
        session.disable("truth:turn")
        after = program.ask("run 500")
        (off,) = session.statistics("truth:turn")

    assert (on.mode, on.hits, on.probe) == (Mode.JUMP, 1000, "count")
    assert raised == 1
    assert opened != before
    assert (off.mode, after["turns_raised"]) == (None, 0)
    assert off.total == 1000
    assert code_of(program) == before


@pytest.mark.parametrize("mode", [Mode.JUMP, Mode.INT3])
def test_events_have_the_values_that_the_program_passed(target: Callable, mode: Mode) -> None:
    program = target("truth_usdt")

    with (
        markerjit.attach(program.pid) as session,
        session.trace("truth:*", mode=mode) as stream,
    ):
        counts = program.ask("run 100")
        events = list(stream.drain())
    by_name: dict[str, list[dict[str, object]]] = {}
    for event in events:
        by_name.setdefault(event.name, []).append(event.fields)

    assert counts["guarded"] == 100
    assert by_name.keys() == {"truth:turn", "truth:guarded", "truth:values"}
    assert by_name["truth:turn"] == [{"arg0": i, "arg1": i + 1} for i in range(100)]
    assert by_name["truth:guarded"] == [{"arg0": i} for i in range(100)]
    for i, fields in enumerate(by_name["truth:values"]):
        *numbers, address = fields.values()
        assert numbers == [-i, (i * 1000 + 32768) % 65536 - 32768, i + 0.5, i - 0.25, 7]
        assert isinstance(address, int)
    assert program.ask("counts")["turns_raised"] == 0


def test_thread_at_full_speed_is_switched_again_and_again(target: Callable) -> None:
    program = target("truth_usdt")
    before = code_of(program)
    program.command("resume")

    with markerjit.attach(program.pid) as session:
        for _ in range(100 // spacing(3)):
            session.enable("truth:spin")
            session.disable("truth:spin")
        session.enable("truth:spin")
        start = program.ask("counts")["spin"]
        while program.ask("counts")["spin"] < start + 1000:
            pass
        program.command("pause")
        (spin,) = session.statistics("truth:spin")
        session.disable("truth:spin")

    assert spin.hits >= 1000
    assert code_of(program) == before


def test_another_controller_switches_off_what_one_has_left_on(target: Callable) -> None:
    program = target("truth_usdt")
    before = code_of(program)
    with markerjit.attach(program.pid) as session:
        session.enable("truth:*")

    with markerjit.attach(program.pid) as other:
        assert {statistic.name for statistic in other.statistics() if statistic.mode} == {
            f"truth:{name}" for name in ("child", "guarded", "spin", "turn", "values")
        }
        other.disable("truth:*")

    assert code_of(program) == before
    assert program.ask("counts")["guarded_raised"] == 0


def test_use_of_a_semaphore_by_another_tool_survives(target: Callable) -> None:
    program = target("truth_usdt")

    with markerjit.attach(program.pid) as session:
        (probe,) = session.usdt("truth:guarded").probes
        semaphore = probe.states[0].site.recipe.semaphore
        session._target.memory.write(semaphore, (5).to_bytes(2, "little"))
        session.enable("truth:guarded")
        on = program.ask("counts")["guarded_raised"]
        session._target.memory.write(semaphore, (8).to_bytes(2, "little"))
        session.disable("truth:guarded")
        off = program.ask("counts")["guarded_raised"]

    assert (on, off) == (6, 7)


def test_child_of_a_fork_runs_on_and_records_nothing(target: Callable) -> None:
    program = target("truth_usdt")

    with markerjit.attach(program.pid) as session, session.trace("truth:child") as stream:
        answer = program.ask("fork 100")
        events = list(stream.drain())

    assert answer["children"] == 1
    assert events == []


def test_unknown_probe_is_named_with_its_nearest(target: Callable) -> None:
    program = target("truth_usdt")

    with markerjit.attach(program.pid) as session:
        with pytest.raises(markerjit.UnknownMarker, match="truth:turn"):
            session.enable("truth:turm")
        assert not session.has_runtime


def test_child_of_a_fork_is_switched_by_itself(target: Callable) -> None:
    program = target("truth_usdt")
    before = code_of(program)

    with markerjit.attach(program.pid) as session:
        session.enable("truth:turn")
        session.enable("truth:guarded", mode=Mode.INT3)
        child = int(program.command("child").removeprefix("ready pid="))
        inherited = program.ask("run 10")
        with markerjit.attach(child) as other:
            modes = {marker.name: marker.mode for marker in other.statistics("truth:[gt]*")}
            assert modes == {
                "truth:guarded": Mode.INT3, "truth:turn": Mode.JUMP,
            }  # fmt: skip
            with other.trace("truth:turn") as stream:
                program.ask("run 20")
                events = list(stream.drain())
            other.disable("truth:*")
            off = program.ask("run 5")
            assert not other.stray_heads()
            spans = [
                (each.start, each.end) for each in other._target.seen.maps
                if each.executable and each.path.endswith("truth_usdt")
            ]  # fmt: skip
            code = b"".join(other.read(start, end - start) for start, end in spans)
        program.command("quit")
        program.ask("run 7")
        parents = {
            statistic.name: statistic.hits for statistic in session.statistics("truth:[gt]*")
        }
        session.disable("truth:*")

    assert (inherited["turns_raised"], inherited["guarded_raised"]) == (1, 1)
    assert [event.fields["arg0"] for event in events] == [*range(20)]
    assert (off["turns_raised"], off["guarded_raised"]) == (0, 0)
    assert code == before
    assert parents == {"truth:guarded": 7, "truth:turn": 7}
    assert code_of(program) == before


def test_probe_in_c_gets_the_values_with_their_types(target: Callable, probe: Callable) -> None:
    program = target("truth_usdt")

    with markerjit.attach(program.pid) as session:
        session.enable("truth:turn", probe=probe(COUNTED, "count"))
        program.ask("run 10")
        counted = values(program.pid)
        session.disable("truth:turn")
        with session.trace("truth:values", probe=probe(COUNTED, "look", "other.c")) as stream:
            program.ask("run 3")
            events = [event.fields for event in stream.drain()]

    assert counted["turns"] == 10
    assert counted["sum"] == sum(range(10)) + sum(range(1, 11))
    assert [list(fields.values()) for fields in events] == [
        [-i, i * 1000, i + 0.5, i - 0.25, 7] for i in range(3)
    ]


def test_flight_recorder_keeps_the_newest_events(target: Callable) -> None:
    program = target("truth_usdt")

    with markerjit.attach(program.pid, ring_size=1 << 16) as session:
        session.record("truth:turn")
        program.ask("run 10000")
        picture = session.flight().picture()
        session.disable("truth:turn")
    kept = [turn for columns in picture.batch.columns for _, turn, _ in rows(columns)]

    assert kept
    assert sorted(kept) == [*range(10000 - len(kept), 10000)]


# ---- what commands say ---------------------------------------------------------------------------


def test_explain_says_how_a_site_would_be_opened_and_then_how_it_is(target: Callable) -> None:
    program = target("truth_usdt")

    before = cli("explain", program.pid, "truth:turn")
    switched = cli("on", program.pid, "truth:turn")
    after = cli("explain", program.pid, "truth:turn")

    assert before.returncode == switched.returncode == after.returncode == 0
    assert "no plan yet: truth:turn" in before.stdout
    assert "is opened by a jump over 90 " in before.stdout
    assert switched.stdout.startswith("truth:turn: on (jump, count), 1 site\n")
    assert "  body, its beginning:\n" in after.stdout
    assert "the counter of this CPU is found" in after.stdout
    assert "now       on (jump)" in after.stdout
    assert "nothing to write" in after.stdout


def test_explain_of_all_ways_needs_a_stub_and_of_a_file_a_process(target: Callable) -> None:
    program = target("truth_usdt")

    one_line(cli("explain", program.pid, "truth:turn", "--all"), "gets its stub when")
    one_line(cli("explain", program.path, "truth:turn"), "in a running process USDT probes")
    cli("on", program.pid, "truth:turn")
    ways = cli("explain", program.pid, "truth:turn", "--all")

    assert (ways.returncode, ways.stderr) == (0, "")
    assert "--quiesce stop" in ways.stdout


def test_list_and_status_say_that_a_probe_is_on(target: Callable) -> None:
    program = target("truth_usdt")
    cli("on", program.pid, "truth:turn")

    listed = cli("list", program.pid, "truth:turn", "--usdt")
    (probe,) = facts("list", program.pid, "truth:turn", "--usdt")["probes"]
    status = cli("status", program.pid, "truth:*")
    off = cli("off", program.pid, "truth:*")

    assert "1 site, semaphore raised (1), on (jump), in truth_usdt" in listed.stdout
    assert "altered" not in listed.stdout
    assert (probe["sites"][0]["mode"], probe["sites"][0]["altered"]) == ("jump", None)
    assert "truth:turn  on (jump, count)" in status.stdout
    assert "truth:turn: off, 1 site\n" in off.stdout
    assert off.stderr == ""


def test_a_pattern_for_markers_names_no_usdt_probe(target: Callable) -> None:
    program = target("truth_usdt")

    one_line(cli("on", program.pid, "turn"), "has no markers")
    one_line(cli("on", program.pid, "truth:nothing"), "no USDT probe matches")


# ---- refusals ------------------------------------------------------------------------------------


@contextmanager
def started(tmp_path: Path, probes: list[str]) -> Iterator[int]:
    """A program of these lines of assembly that sleeps, by its pid."""
    path = build(tmp_path, [*START, *probes, *END], "-no-pie", "-Wl,--build-id")
    with Limited([path]) as process:
        sleeps = Path(f"/proc/{process.pid}/syscall")
        try:
            # An execve has begun when Popen returns; what it maps may come later.
            wait_until(lambda: sleeps.read_text().startswith("34 "), "a program that sleeps")
            yield process.pid
        finally:
            process.kill()


START = [".cfi_startproc"]
END = ["again: mov $34, %eax", "syscall", "jmp again", ".cfi_endproc"]


def test_probe_that_another_tool_has_hooked_is_left_out_and_named(target: Callable) -> None:
    program = target("truth_usdt")

    with markerjit.attach(program.pid) as session:
        (probe,) = session.usdt("truth:child").probes
        site = probe.states[0].site
        session._target.memory.write(site.address, b"\xcc")
        applied = session.enable("truth:*")
        with pytest.raises(markerjit.Refused, match="a breakpoint of another tool"):
            session.enable("truth:child")
        session.disable("truth:*")
        assert session.read(site.address, 1) == b"\xcc"
        session._target.memory.write(site.address, b"\x90")

    assert [refusal.marker for refusal in applied.left_out] == ["truth:child"]
    assert "a breakpoint of another tool" in applied.left_out[0].sentence


def test_operand_that_is_not_understood_leaves_out_its_probe_only(tmp_path: Path) -> None:
    lines = ['PROBE good, "8@%rdi"', "nop; nop; nop; nop", 'PROBE bad, "8@%fs:(%rax)"']
    with started(tmp_path, lines) as pid, markerjit.attach(pid) as session:
        applied = [session.enable("made:*") for _ in range(3)]
        view = session.usdt("made:*")
        session.disable("made:*")
        (problem,) = session.usdt_problems("made:*")
        none = session.usdt_problems("made:good,func:main")
        excluded = session.usdt_problems("made:*,!made:b*")
        with session.trace("made:*") as stream:
            pass
        with session.trace("made:*,!made:bad") as rest:
            pass
        with pytest.raises(markerjit.UnknownMarker, match=r"left out: .*made:bad .* segment"):
            session.enable("made:bad")
        switched = cli("on", pid, "made:*")
        shown = json.loads(cli("on", pid, "made:*", "--json").stdout)
        counted = cli("count", pid, "made:*", "--follow", "-d", "0.1s")

    assert applied[0].written
    left = markerjit.LeftOut("made:bad", markerjit.Reason.BAD_NOTE, str(problem), lasts=True)
    assert {each.left_out for each in applied} == {stream.unswitched} == {(left,)}
    reason = {"marker": "made:bad", "kind": str(left.reason), "reason": str(problem)}
    assert shown["left_out"] == [reason]
    assert (excluded, rest.unswitched) == ((), ())
    assert [probe.name for probe in view.probes] == ["made:good"]
    assert problem in view.problems
    assert (problem.name, none) == ("made:bad", ())
    left_out = f"markerjit: left out: {problem}\n"
    assert (switched.returncode, switched.stderr) == (0, left_out)
    assert left_out in counted.stderr


def test_semaphore_that_is_none_is_refused(tmp_path: Path) -> None:
    lines = ['PROBE one, "8@%rdi", raised+1', "nop; nop; nop; nop"]
    with started(tmp_path, lines) as pid, markerjit.attach(pid) as session:
        with pytest.raises(markerjit.Refused, match="no count of this process"):
            session.enable("made:one")
        assert not session.has_runtime


def test_site_in_bytes_that_no_function_covers_is_refused(tmp_path: Path) -> None:
    lines = ["jmp again", ".cfi_endproc", 'PROBE one, "8@%rdi"', "ret", ".cfi_startproc"]
    with (
        started(tmp_path, lines) as pid,
        markerjit.attach(pid) as session,
        pytest.raises(markerjit.Refused, match="no unwind table has it"),
    ):
        session.enable("made:one")


def test_file_that_was_replaced_since_is_named(tmp_path: Path) -> None:
    lines = ['PROBE one, "8@%rdi"', "nop; nop; nop; nop"]
    with started(tmp_path, lines) as pid:
        (tmp_path / "made").unlink()
        build(tmp_path, [*START, *lines, "nop", *END], "-no-pie", "-Wl,--build-id")
        with markerjit.attach(pid) as session:
            view = session.usdt()

    # Root reads the image that was deleted; nobody takes the new file for it.
    assert view.probes or any("replaced" in str(problem) for problem in view.problems)


def test_our_own_process_is_refused(tmp_path: Path) -> None:
    import ctypes

    path = build(tmp_path, ['PROBE own, "8@%rdi"'], "-shared", "-nostdlib", name="libown.so")
    ctypes.CDLL(str(path))

    with (
        markerjit.attach() as session,
        pytest.raises(markerjit.Refused, match="from another process"),
    ):
        session.enable("made:own")


def test_steps_are_refused(target: Callable) -> None:
    program = target("truth_usdt")

    with markerjit.attach(program.pid) as session:
        with pytest.raises(markerjit.Unsupported, match="in stages"):
            session.stepping("truth:turn").__enter__()
        with pytest.raises(markerjit.Refused, match="--quiesce stop"):
            session.enable("truth:spin", quiesce="membarrier")
        session.enable("truth:spin", quiesce="membarrier", mode="int3")
        assert program.ask("run 1")["turn"] == 1
        session.disable("truth:spin", quiesce="membarrier")


# ---- Debian's own programs -----------------------------------------------------------------------

SCRIPT = """
import gc, sys
def called(n):
    return n
def generates():
    yield 1
print("ready", flush=True)
for line in sys.stdin:
    for n in range(50):
        called(n)
    for n in range(3):
        gc.collect()
    for n in range(4):
        generator = generates()
        next(generator)
        try:
            generator.throw(KeyError)
        except KeyError:
            pass
    print("done", flush=True)
"""


def test_python_tells_of_functions_and_collections(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    pipe = subprocess.PIPE
    program = [debian(PYTHON), "-I", script]
    with Limited(program, stdin=pipe, stdout=pipe, text=True, bufsize=1) as process:
        assert process.stdin and process.stdout
        try:
            assert process.stdout.readline() == "ready\n"
            with markerjit.attach(process.pid, breakpoints=True) as session:
                before = [
                    session.read(site.address, 16)
                    for probe in session.usdt("python:*").probes
                    for site in [probe.states[0].site]
                ]
                with session.trace("python:*") as stream:
                    process.stdin.write("go\n")
                    process.stdin.flush()
                    assert process.stdout.readline() == "done\n"
                    events = list(stream.drain())
                probes = session.usdt("python:*").probes
                after = [session.read(probe.states[0].site.address, 16) for probe in probes]
        finally:
            process.kill()
    of_script = [event for event in events if event.fields.get("file") == str(script)]
    returns = [e.fields for e in of_script if e.name == "python:function__return"]
    entries = [e.fields for e in of_script if e.name == "python:function__entry"]
    collections = [event.name for event in events if event.name.startswith("python:gc")]

    # Python 3.11 passes `function__entry` only while `line` is looked at, too.
    called = {"file": str(script), "function": "called"}
    for calls, line in ((entries, 3), (returns, 4)):
        of_called = [fields for fields in calls if fields["function"] == "called"]
        assert of_called == [{**called, "line": line}] * 50
    assert collections == ["python:gc__start", "python:gc__done"] * 3
    assert after == before
