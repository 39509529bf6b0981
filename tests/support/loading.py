"""A program that loads and unloads objects, compiled where it is asked for."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.timing import Limited

MAIN = """
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
__attribute__((noinline)) void leaf(void) { __asm__ volatile("nop; nop; nop; nop; nop; nop"); }
int main(void) {
    char line[300];
    void *handle = NULL;
    void (*through)(void (*)(void)) = NULL;
    puts("ready"); fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\\n")] = 0;
        if (!strcmp(line, "hit")) through(leaf);
        else if (!strcmp(line, "close")) { dlclose(handle); through = NULL; }
        else {
            handle = dlopen(line, RTLD_NOW);
            through = (void (*)(void (*)(void)))dlsym(handle, "through");
        }
        puts("done"); fflush(stdout);
    }
}
"""
OBJECT = """
__attribute__((noinline)) void NAME(void (*call)(void)) {
    char room[SIZE]; __asm__ volatile("" :: "r"(room) : "memory");
    call();
    __asm__ volatile("" :: "r"(room) : "memory");
}
void through(void (*call)(void)) { NAME(call); __asm__ volatile(""); }
"""


class Loading:
    """A program that calls `leaf` through objects that it loads and unloads."""

    def __init__(self, folder: Path) -> None:
        (folder / "main.c").write_text(MAIN)
        (folder / "object.c").write_text(OBJECT)
        build(folder, "main", "main.c")
        for name, size in (("one", 40), ("two", 4000), ("six", 40)):
            shared = ("-shared", "-fPIC", f"-DNAME={name}", f"-DSIZE={size}")
            build(folder, f"{name}.so", "object.c", *shared)
        self._folder = folder
        self._process = Limited(
            [folder / "main"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self._line()

    def ask(self, *lines: str) -> None:
        assert self._process.stdin
        for line in lines:
            text = str(self._folder / line) if line.endswith(".so") else line
            self._process.stdin.write(f"{text}\n")
            self._process.stdin.flush()
            self._line()

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def build(folder: Path, program: str, source: str, *options: str) -> None:
    command = ["gcc", "-O2", *options, "-o", folder / program, folder / source]
    subprocess.run(command, check=True)
