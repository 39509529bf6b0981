"""USDT probes of programs of Debian, against what each program knows of itself: PHP, Ruby, libvirt
and OpenJDK. Where one is not installed its tests are skipped; `make test` installs none of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import markerjit
from tests.support.timing import Limited, wait_until
from tests.support.usdt import debian

pytestmark = [pytest.mark.live, pytest.mark.slow]

PHP, RUBY, LIBVIRT, JAVA = (
    "/usr/bin/php8.2",
    "/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1.2",
    "/usr/lib/x86_64-linux-gnu/libvirt.so.0",
    "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so",
)
PHP_SCRIPT = """<?php
class Wrong extends Exception {}
function step($x) {
    if ($x % 100 == 0) { try { throw new Wrong("at $x"); } catch (Wrong $e) {} }
    return $x + 1;
}
echo "ready\n"; fgets(STDIN);
for ($turn = 0; $turn < 3; $turn++) {
    for ($i = 1, $sum = 0; $i <= 1000; $i++) $sum += step($i);
    echo "$sum\n"; fgets(STDIN);
}
"""
RUBY_SCRIPT = """
class Wrong < StandardError; end
class Made; end
STDOUT.sync = true
puts "ready"; gets
3.times do
  1000.times { Made.new }
  25.times { begin; raise Wrong; rescue Wrong; end }
  GC.start
  puts 1000; gets
end
"""
JAVA_SOURCE = """
public class Loads {
    static class A0 {} static class A1 {} static class A2 {} static class A3 {} static class A4 {}
    public static void main(String[] words) throws Exception {
        System.out.println("ready"); System.in.read();
        for (int i = 0; i < 5; i++) Class.forName("Loads$A" + i);
        for (int i = 0; i < 3; i++) System.gc();
        for (int i = 0; i < 7; i++) {
            Thread thread = new Thread(() -> {}, "worker" + i);
            thread.start(); thread.join();
        }
        System.out.println("done"); System.in.read();
    }
}
"""


class Program:
    """A program that does a part of its work for each line, and says a line after it."""

    def __init__(self, words: Sequence[str], environment: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self.process = Limited(
            words, stdin=pipe, stdout=pipe, text=True, bufsize=1, env={**os.environ, **environment}
        )
        self.pid = self.process.pid

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def ask(self, line: str = "") -> str:
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n")
        return self.line()


@contextmanager
def running(*words: object, **environment: str) -> Iterator[Program]:
    program = Program([*map(str, words)], environment)
    try:
        yield program
    finally:
        program.process.kill()
        program.process.communicate()


def code_of(session: markerjit.Session, pattern: str) -> dict[int, tuple[bytes, int | None]]:
    """The bytes at each site, with those behind it, and the count in its semaphore."""
    states = [state for probe in session.usdt(pattern).probes for state in probe.states]
    return {
        state.site.address: (session.read(state.site.address, 16), state.raised) for state in states
    }


def by_name(events: Sequence[markerjit.Event]) -> Counter[str]:
    return Counter(event.name for event in events)


def traced_and_counted(
    program: Program, pattern: str, *, answer: str
) -> tuple[list[markerjit.Event], dict[str, int]]:
    """The events of one turn of a program, and the hits of the next, by name. It answers as ever,
    and all of its code is as before."""
    with markerjit.attach(program.pid) as session:
        before = code_of(session, pattern)
        with session.trace(pattern) as stream:
            assert program.ask() == answer
            events = list(stream.drain())
        after = code_of(session, pattern)
        applied = session.on(pattern)
        assert program.ask() == answer
        hits = {status.name: status.hits for status in session.statistics(pattern)}
        session.off(pattern)

        assert code_of(session, pattern) == after == before
    assert program.ask() == answer
    assert not applied.left_out
    return events, hits


@pytest.fixture
def php(tmp_path: Path) -> Iterator[Program]:
    (tmp_path / "work.php").write_text(PHP_SCRIPT)
    with running(debian(PHP), tmp_path / "work.php", USE_ZEND_DTRACE="1") as program:
        assert program.line() == "ready"
        yield program


@pytest.fixture
def ruby(tmp_path: Path) -> Iterator[Program]:
    debian(RUBY)
    (tmp_path / "work.rb").write_text(RUBY_SCRIPT)
    with running("/usr/bin/ruby3.1", tmp_path / "work.rb") as program:
        assert program.line() == "ready"
        yield program


def test_functions_and_exceptions_of_php_are_as_many_as_it_makes(php: Program) -> None:
    events, hits = traced_and_counted(php, "php:*", answer="501500")
    counts = by_name(events)
    assert counts["php:function__entry"] == counts["php:function__return"] == 1000
    assert counts["php:exception__thrown"] == counts["php:exception__caught"] == 10
    entries = [event.fields for event in events if event.name == "php:function__entry"]
    assert {(fields["function"], fields["class"], fields["line"]) for fields in entries} == {
        ("step", "", 4)  # its first statement
    }
    thrown = [event.fields for event in events if event.name == "php:exception__thrown"]
    assert thrown == [{"class": "Wrong"}] * 10
    assert hits["php:function__entry"] == 1000


def test_objects_and_exceptions_of_ruby_are_as_many_as_it_makes(ruby: Program) -> None:
    events, hits = traced_and_counted(ruby, "ruby:*", answer="1000")
    classes = Counter(
        (event.name, event.fields["class"])
        for event in events
        if event.name in ("ruby:object__create", "ruby:raise")
    )
    assert classes["ruby:object__create", "Made"] == 1000
    assert classes["ruby:object__create", "Wrong"] == classes["ruby:raise", "Wrong"] == 25
    counts = by_name(events)
    assert counts["ruby:gc__mark__begin"] == counts["ruby:gc__mark__end"] >= 1
    assert hits["ruby:raise"] == 25


def domains_of(virsh: Program) -> None:
    """Have it ask for all domains: the only one of its own, in memory, that the driver makes."""
    assert virsh.ask("list --name").endswith("list --name")
    assert virsh.line() == "test"


def test_objects_of_libvirt_are_those_that_its_client_asks_for() -> None:
    debian(LIBVIRT)
    if not shutil.which("virsh"):
        pytest.skip("needs virsh (Debian package libvirt-clients)")
    with running("virsh", "-q", "-c", "test:///default") as virsh:
        domains_of(virsh)
        with markerjit.attach(virsh.pid) as session:
            before = code_of(session, "libvirt:*")
            with session.trace("libvirt:object_*") as stream:
                for _ in range(20):
                    domains_of(virsh)
                events = list(stream.drain())
            assert code_of(session, "libvirt:*") == before
        new = [event.fields for event in events if event.name == "libvirt:object_new"]
        domains = [fields["object"] for fields in new if fields["class"] == "virDomain"]

    assert len(domains) == 20


def test_classes_collections_and_threads_of_java_are_those_of_its_log(tmp_path: Path) -> None:
    debian(JAVA)
    if not shutil.which("javac"):
        pytest.skip("needs javac (Debian package openjdk-17-jdk-headless)")
    (tmp_path / "Loads.java").write_text(JAVA_SOURCE)
    subprocess.run(["javac", "Loads.java"], cwd=tmp_path, check=True)
    log = tmp_path / "gc.log"
    words = "/usr/lib/jvm/java-17-openjdk-amd64/bin/java", f"-Xlog:gc:file={log}", "-Xmx128m"
    with running(*words, "-cp", tmp_path, "Loads") as java:
        assert java.line() == "ready"
        collected = len(log.read_text().splitlines())
        with markerjit.attach(java.pid) as session:
            before = code_of(session, "hotspot:*")
            pattern = "hotspot:{class__loaded,gc__*,thread__*}"
            with session.trace(pattern) as stream:
                assert java.ask() == "done"
                wait_until(lambda: len(log.read_text().splitlines()) == collected + 3, "the log")
                events = list(stream.drain())
            assert code_of(session, "hotspot:*") == before

    counts = by_name(events)
    assert counts["hotspot:gc__begin"] == counts["hotspot:gc__end"] == 3
    started = [event.fields["name"] for event in events if event.name == "hotspot:thread__start"]
    assert [name for name in started if name.startswith("worker")] == [
        f"worker{number}" for number in range(7)
    ]
    loaded = [event.fields["name"] for event in events if event.name == "hotspot:class__loaded"]
    assert [name for name in loaded if name.startswith("Loads$A")] == [
        f"Loads$A{number}" for number in range(5)
    ]
