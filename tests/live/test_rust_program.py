"""A program of Rust, compiled with the newer mangling, is looked at by the names of its source."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import markerjit
from markerjit.sites.names import written_name
from tests.support.commands import cli
from tests.support.programs import Target
from tests.support.rust_symbols import need_rustc

pytestmark = pytest.mark.live

SOURCE = r"""
use std::fmt;
use std::hint::black_box;

pub mod store {
    pub struct Store<V> {
        pub values: Vec<V>,
    }

    impl<V: Clone> Store<V> {
        #[inline(never)]
        pub fn put(&mut self, value: V) -> usize {
            self.values.push(value);
            self.values.len()
        }
    }
}

struct Entry<const N: usize>([u8; N]);

impl<const N: usize> fmt::Debug for Entry<N> {
    #[inline(never)]
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}", self.0[0])
    }
}

#[inline(never)]
fn größe(store: &store::Store<u64>) -> usize {
    black_box(store.values.len())
}

fn main() {
    let mut store = store::Store { values: vec![] };
    let mut other = store::Store { values: vec![] };
    let mut line = String::new();
    println!("ready");
    while std::io::stdin().read_line(&mut line).unwrap() > 0 && line != "quit\n" {
        for _ in 0..5 {
            store.put(1);
        }
        for _ in 0..3 {
            other.put("text");
        }
        println!("put whole={} text={:?}", größe(&store), Entry([7u8; 5]));
        line.clear();
    }
}
"""
PUT = "func:kv::store::Store::put"
WHOLE, TEXT = "func:<kv::store::Store<u64>>::put", "func:<kv::store::Store<&str>>::put"
CALL = "call:kv::main->kv::store::Store::put"
FMT, SIZE = "func:<kv::Entry<5> as core::fmt::Debug>::fmt", "func:kv::größe"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_rustc()
    folder = tmp_path_factory.mktemp("rust")
    (folder / "kv.rs").write_text(SOURCE)
    options = ["-C", "symbol-mangling-version=v0", "-C", "opt-level=1"]
    subprocess.run(["rustc", *options, "kv.rs"], cwd=folder, check=True)
    return folder / "kv"


@pytest.fixture
def running(program: Path) -> Iterator[Target]:
    target = Target(program)
    target.wait_ready()
    yield target
    target.end()


def test_entries_are_counted_by_the_names_of_the_source(running: Target) -> None:
    with markerjit.attach(running.pid) as session:
        for name in (PUT, FMT, SIZE):
            session.on(name)
        running.command("put")
        hits = {written_name(each.name): each.hits for each in session.statistics("func:*")}
        session.off("func:*")

    assert hits == {WHOLE: 5, TEXT: 3, FMT: 1, SIZE: 1}


def test_commands_show_and_take_the_names_of_the_source(running: Target) -> None:
    pid = running.pid

    assert f"{TEXT}: on" in cli("on", pid, TEXT, "--where", 'caller == "kv::main"').stdout
    running.command("put")

    assert TEXT in cli("status", pid).stdout
    with markerjit.attach(pid) as session:
        (marker,) = session.statistics(TEXT)
    assert (written_name(marker.name), marker.hits) == (TEXT, 3)
    assert "kv::main+0x" in cli("stack", pid).stdout
    assert "kv::main-><kv::store::Store<u64>>::put" in cli("list", pid, CALL).stdout
    refused = cli("on", pid, "func:kv::Store::puut")
    assert (refused.returncode, PUT in refused.stderr) == (1, True)
