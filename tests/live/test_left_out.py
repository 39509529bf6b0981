"""A pattern that matches markers which cannot be switched: the others are, and these are named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import markerjit
from markerjit import Mode
from markerjit.remote.mappings import Mappings
from tests.support import answering
from tests.support.answering import Answering
from tests.support.commands import cli, one_line
from tests.support.markers import altered, modes_of
from tests.support.processes import text_of
from tests.support.programs import ROOT
from tests.support.timing import HANG_S

TELLS_MAPPINGS = pytest.mark.skipif(
    Mappings(os.getpid()).now() is None, reason="needs a kernel that tells mappings (6.11)"
)

MAIN = r"""
#include <markerjit/marker.h>
#include <markerjit/probes.h>
#include <unistd.h>

void always(int number);

static int own_calls;

static void count_own(struct mj_slot *slot, ...) { (void)slot, own_calls++; }

int main(void) {
    if (marker_set_probe("owned", count_own, MARKER_CALL))
        return 2;
    if (write(1, "r", 1) < 0)
        return 1;
    for (char c; read(0, &c, 1) == 1;) {
        if (c == 'd' && marker_disable_probe("owned"))
            return 3;
        MARK(plain, "c %c", c);
        MARK(other, "c %c", c);
        MARK(owned, "c %c", c);
        MARK(two, "a %d", 1);
        MARK(two, "b %s", "x");
        always(own_calls);
        if (write(1, own_calls ? &c : "!", 1) < 0) /* its own probe stays connected */
            return 1;
    }
    return 0;
}
"""

DIRECT = r"""
#define MJ_MODE direct
#include <markerjit/marker.h>

void always(int number) { MARK(direct, "number %d", number); }
"""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    for name, text in (("main.c", MAIN), ("direct.c", DIRECT)):
        (folder / name).write_text(text)
    library = ROOT / "markerjit" / "_native" / "libmarkerjit.a"
    sources = [folder / "main.c", folder / "direct.c", library]
    flags = ["-O2", "-w", "-pthread", f"-I{ROOT}/native/include", "-o", folder / "mixed"]
    subprocess.run(["cc", *flags, *sources], check=True, timeout=HANG_S)
    return folder / "mixed"


@pytest.fixture
def program(mixed: Path) -> Iterator[Answering]:
    with answering.started(mixed) as program:
        assert program.ready == b"r"
        yield program


UNSWITCHABLE = {
    "direct": "compiled as direct .*: it always calls its probe",
    "owned": "has a probe of the program itself",
    "two": "has sites with different formats",
}


def names(left_out: tuple[markerjit.LeftOut, ...]) -> set[str]:
    return {marker.marker for marker in left_out}


def on_now(pid: int) -> set[str]:
    """Markers that somebody can switch and that are on; the program's own is always."""
    return {name for name, mode in modes_of(pid).items() if mode} - {"owned"}


@pytest.mark.parametrize("mode", [None, Mode.INT3])
def test_all_markers_are_switched_but_those_that_cannot_be(
    program: Answering, mode: Mode | None
) -> None:
    text = text_of(program.pid)
    with markerjit.attach(program.pid) as session:
        on = session.enable("*", mode=mode)
        assert on_now(program.pid) == {"plain", "other"}
        assert program.answers()
        hits = {marker.name: marker.hits for marker in session.statistics()}
        off = session.disable("*")

    assert names(on.left_out) == set(UNSWITCHABLE)
    assert names(off.left_out) == {"direct", "owned"}
    assert (hits["plain"], hits["other"], hits["two"]) == (1, 1, 0)
    assert on_now(program.pid) == set()
    assert text_of(program.pid) == text
    assert program.answers()


def test_all_markers_are_traced_but_those_that_cannot_be(program: Answering) -> None:
    with markerjit.attach(program.pid) as session:
        with session.trace("*") as stream:
            assert program.answers()
        assert {event.name for event in stream.drain()} == {"plain", "other"}
        assert names(stream.unswitched) == set(UNSWITCHABLE)

        flight = session.record("*")
        assert names(flight.left_out) == set(UNSWITCHABLE)
        session.disable("*")
    assert on_now(program.pid) == set()


@pytest.mark.parametrize("name", UNSWITCHABLE)
def test_a_pattern_that_matches_nothing_else_is_refused_with_the_reason(
    program: Answering, name: str
) -> None:
    text = text_of(program.pid)

    one_line(cli("on", program.pid, name), UNSWITCHABLE[name])
    one_line(cli("trace", program.pid, name), UNSWITCHABLE[name])
    if name != "two":  # which is off
        one_line(cli("off", program.pid, name), UNSWITCHABLE[name])

    assert text_of(program.pid) == text
    assert program.answers()


def test_the_commands_name_what_they_leave_out(program: Answering) -> None:
    by_command = {}
    for command in (["on"], ["flight start"], ["off"], ["trace", "--duration", "0.1"]):
        for json_too in ([], ["--json"]):
            name, *options = command
            done = cli(*name.split(), program.pid, "*", *options, *json_too)
            assert done.returncode == 0, done
            lines = done.stderr.splitlines()
            expected = {"direct", "owned"} if name == "off" else set(UNSWITCHABLE)
            sentences = [line for line in lines if line.startswith("markerjit: left out: ")]
            assert {line.split()[3] for line in sentences} == expected
            if json_too:
                document = json.loads(done.stdout.splitlines()[-1])
                by_command[name] = document.get("summary", document)["left_out"]
        if name == "flight start":
            with markerjit.attach(program.pid) as session:
                session.disable("*")

    for name, left_out in by_command.items():
        assert len(left_out) == (2 if name == "off" else 3)
        assert all(entry["marker"] in entry["reason"] for entry in left_out)


@pytest.mark.parametrize("options", [[], ["--recent", "3"]])
def test_an_export_names_what_it_leaves_out(program: Answering, options: list[str]) -> None:
    done = cli("export", program.pid, "!owned", "--duration", "0.1", *options)

    assert done.returncode == 0, done
    lines = done.stderr.splitlines()
    assert {line.split()[3] for line in lines} == {"direct", "two"}
    assert all(line.startswith("markerjit: left out: ") for line in lines)
    assert on_now(program.pid) == set()


def test_explain_shows_what_on_would_leave_out(mixed: Path, program: Answering) -> None:
    for target in (program.pid, mixed):
        done = cli("explain", target, "*")
        document = json.loads(cli("explain", target, "*", "--json").stdout)

        assert "cannot be switched on" not in done.stdout
        assert "left out: direct is compiled as direct" in done.stdout
        left_out = {entry["marker"] for entry in document["plan"]["left_out"]}
        assert left_out == set(UNSWITCHABLE) - ({"owned"} if target is mixed else set())


def test_an_altered_site_is_left_out_when_all_are_switched_off(program: Answering) -> None:
    with markerjit.attach(program.pid) as session:
        session.enable("*")
        site = session.sites("other")[0]

        with altered(program.pid, site.address):
            text = text_of(program.pid)
            with pytest.raises(markerjit.UnexpectedBytes, match="other"):
                session.disable("other")
            assert text_of(program.pid) == text
            off = session.disable("*")
            assert on_now(program.pid) == set()
        reasons = {refusal.marker: refusal.sentence for refusal in off.left_out}

        assert set(reasons) == {"direct", "owned", "other"}
        assert f"{site.address:#x}" in reasons["other"]
        assert on_now(program.pid) == {"other"}  # as it was left
        session.disable("other")
    assert on_now(program.pid) == set()


def test_a_trace_whose_site_was_altered_ends_the_others_and_says_which_is_on(
    program: Answering,
) -> None:
    with markerjit.attach(program.pid) as session:
        trace = session.trace("*")
        trace.__enter__()
        site = session.sites("other")[0]

        with altered(program.pid, site.address):
            with pytest.raises(markerjit.Refused, match=f"{site.address:#x}.*STILL ON"):
                trace.__exit__(None, None, None)
            assert on_now(program.pid) == set()
        assert on_now(program.pid) == {"other"}
        session.disable("*")
    assert on_now(program.pid) == set()


SHARING = r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <markerjit/marker.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The plugin's code again, from its file, shared. */
static void share_text(const char *path) {
    char line[512], permissions[8];
    unsigned long start, end, offset;
    int fd = open(path, O_RDONLY);
    FILE *maps = fopen("/proc/self/maps", "r");

    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s %lx", &start, &end, permissions, &offset) == 4 &&
            permissions[2] == 'x' && strstr(line, path))
            mmap((void *)start, end - start, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED, fd,
                 (long)offset);
    fclose(maps);
}

int main(int argc, char **argv) {
    if (argc < 2 || !dlopen(argv[1], RTLD_NOW))
        return 2;
    share_text(argv[1]);
    if (write(1, "r", 1) < 0)
        return 1;
    for (char c; read(0, &c, 1) == 1;) {
        MARK(plain, "c %c", c);
        if (write(1, &c, 1) < 0)
            return 1;
    }
    return 0;
}
"""


def test_what_is_in_a_shared_mapping_is_left_out(tmp_path: Path, build: Path) -> None:
    source = tmp_path / "sharing.c"
    source.write_text(SHARING)
    flags = ["-O2", "-w", f"-I{ROOT}/native/include", "-o", tmp_path / "sharing"]
    subprocess.run(["cc", *flags, source, "-ldl"], check=True, timeout=HANG_S)
    plugin = Path(shutil.copy(build / "truth_plugin.so", tmp_path / "plugin.so"))
    before = plugin.read_bytes()

    with answering.started(tmp_path / "sharing", plugin) as program:
        assert program.ready == b"r"
        with markerjit.attach(program.pid) as session:
            on = session.enable("*")
            assert on_now(program.pid) == {"plain"}
            off = session.disable("*")
            shared = {site.marker for site in session.sites() if "plugin" in site.object.path}

            with pytest.raises(markerjit.Refused, match="shared mapping"):
                session.enable(min(shared))
        assert program.answers()

    assert names(on.left_out) == names(off.left_out) == shared
    assert plugin.read_bytes() == before


@TELLS_MAPPINGS
@pytest.mark.parametrize("pattern", ["plain,direct,two", "plain,two"])
def test_markers_that_can_never_be_switched_are_left_out_without_asking_again(
    program: Answering, asked: list[str], pattern: str
) -> None:
    with markerjit.attach(program.pid) as session:
        for number in range(6):
            if number == 3:
                asked.clear()
            assert names(session.on(pattern).left_out) == {*pattern.split(",")} - {"plain"}
            assert program.answers()
            assert session.status("plain", look=False)[0].hits == 1
            session.off(pattern)

    assert not asked


def test_a_probe_of_the_programs_own_is_asked_for_until_the_program_takes_it_away(
    program: Answering,
) -> None:
    with markerjit.attach(program.pid) as session:
        for _ in range(4):
            assert names(session.on("plain,owned").left_out) == {"owned"}
            assert program.answers()
            session.off("plain,owned")
        assert program.answers(b"d")

        assert not session.on("plain,owned").left_out

        assert program.answers()
        assert {status.hits for status in session.status("plain,owned")} == {1}
        session.off("plain,owned")
