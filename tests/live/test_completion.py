"""Tab is pressed in real shells, with the scripts that `markerjit completion` prints."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.choice import share
from tests.support.commands import ENVIRONMENT, server_name
from tests.support.programs import ROOT
from tests.support.replay import client
from tests.support.shells import need_shell, shell

pytestmark = pytest.mark.live

COMMAND = f"{sys.executable} -P -m markerjit complete"
PRINT = f"{sys.executable} -m markerjit completion"
"""bash has candidates by COMMAND, as it stands in the script. The other shells have them forked."""
# What is typed, and the words of the line after Tab. PID is a process with the markers truth_birth
# and truth_loop, whose only file is in the folder, besides one that is called some-file.
CASES = [
    ("tra", ["trace"]),
    ("trace --mod", ["trace", "--mode"]),
    ("trace --mode ju", ["trace", "--mode", "jump"]),
    ("trace --mode=ju", ["trace", "--mode=jump"]),
    ("on PID truth_l", ["on", "PID", "truth_loop"]),
    ("on PID 'truth_l", ["on", "PID", "truth_loop"]),
    ("on PID truth_birth,truth_l", ["on", "PID", "truth_birth,truth_loop"]),
    ("status PID --in truth_th", ["status", "PID", "--in", "truth_threads"]),
    ("read some-f", ["read", "some-file"]),
    ("trace PID -o some-f", ["trace", "PID", "-o", "some-file"]),
    ("list some-f", ["list", "some-file"]),
    ("trace 'x' -- ./some-pr", ["trace", "x", "--", "./some-program"]),
]


def forked(name: str) -> str:
    """A shell's script, whose command is forked from a Python that has imported markerjit."""
    return f"{PRINT} {name} | sed 's#{COMMAND}#{client()} complete#'"


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMAND_SERVER", server_name())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "some-file").write_text("")
    program = tmp_path / "some-program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_tab_completes_a_command_line(
    name: str, folder: Path, target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = str(target("truth_threads", "1", "--rate", "100").pid)
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    cases = share(CASES, 3, 1) if name == "bash" else CASES  # there an interpreter starts for each

    with shell(name, folder) as terminal:
        if name == "zsh":
            terminal.run("autoload -U compinit && compinit -D -u")
        script = f"{PRINT} bash" if name == "bash" else forked(name)
        terminal.run(f'eval "$({script})"')
        completed = {
            typed: terminal.completed(f"markerjit {typed.replace('PID', pid)}")
            for typed, _ in cases
        }

    assert completed == {
        typed: ["markerjit", *(word.replace("PID", pid) for word in words)]
        for typed, words in cases
    }


def test_fish_completes_a_command_line(folder: Path, target: Callable) -> None:
    need_shell("fish")
    pid = str(target("truth_threads", "1", "--rate", "100").pid)
    cases = [(typed, words) for typed, words in CASES if "'" not in typed]
    lines = [f"complete -C 'markerjit {typed.replace('PID', pid)}'; echo end" for typed, _ in cases]
    script = "\n".join([f"{forked('fish')} | source", *lines])

    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        cwd=folder, env={**ENVIRONMENT, "COMMAND_SERVER": server_name(), "HOME": str(folder)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    answers = done.stdout.split("end\n")[: len(cases)]
    completed = [answer.split("\t")[0].strip() for answer in answers]
    assert completed == [words[-1] for _, words in cases]


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_pids_are_listed_with_the_names_of_their_programs(
    name: str, folder: Path, target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = [target("truth_threads", "1", "--rate", "100").pid, target("truth_threads").pid]
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])

    with shell(name, folder) as terminal:
        if name == "zsh":
            terminal.run("autoload -U compinit && compinit -D -u; LISTMAX=1000")
            terminal.run("setopt no_list_ambiguous no_auto_menu")
        else:
            terminal.run("bind 'set show-all-if-ambiguous on' 'set page-completions off'")
            terminal.run("bind 'set completion-query-items 0'")
        terminal.run(f'eval "$({forked(name)})"')
        form = "{}  (truth_threads)" if name == "bash" else "{}  -- truth_threads"
        terminal.wait_for_list("markerjit watch ", *map(form.format, pids))


def test_no_program_of_the_folder_is_run_by_a_tab(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a program called markerjit, nor a module in the folder."""
    (folder / "markerjit").write_text(f"#!/bin/sh\ntouch {folder}/was-run\n")
    (folder / "markerjit").chmod(0o755)
    (folder / "argparse.py").write_text(f"open({str(folder / 'was-run')!r}, 'w')\n")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    with shell("bash", folder) as terminal:
        terminal.run(f'eval "$({sys.executable} -P -m markerjit completion bash)"')
        completed = terminal.completed("./markerjit tra")

    assert completed == ["./markerjit", "trace"]
    assert not (folder / "was-run").exists()
