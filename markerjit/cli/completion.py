"""`markerjit completion SHELL`: print a script that has a shell complete our command lines.

The script is small and says only how the shell is spoken to. The candidates come from `complete`, a
hidden command, so that a script which was saved serves later versions, too. It starts the Python
that printed it by its path, and never what stands first on the command line: a Tab after
`./markerjit` in a foreign folder runs no foreign program.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

import markerjit
from markerjit.cli import output

_BASH = """\
# For ~/.bashrc: eval "$(markerjit completion bash)"
_markerjit() {
    local files first
    mapfile -t COMPREPLY < <(COLUMNS= @COMPLETE@ bash \\
        "${COMP_LINE:0:COMP_POINT}" "$COMP_TYPE" "$COMP_WORDBREAKS" 2>/dev/null)
    first=${COMPREPLY[0]}
    COMPREPLY=("${COMPREPLY[@]:1}")
    case $first in
        files) mapfile -t files < <(compgen -f -- "$2") ;;
        commands) mapfile -t files < <(compgen -c -- "$2") ;;
    esac
    if [[ ${#files[@]} -gt 0 ]]; then
        compopt -o filenames
        COMPREPLY+=("${files[@]}")
    fi
}
complete -F _markerjit markerjit
"""

_ZSH = """\
#compdef markerjit
# For ~/.zshrc, after compinit: eval "$(markerjit completion zsh)"
_markerjit() {
    local first line
    local -a lines values shown
    lines=("${(@f)$(@COMPLETE@ words \\
        "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    first=$lines[1]
    for line in "${(@)lines[2,-1]}"; do
        values+=("${line%%$'\\t'*}")
        shown+=("${line/$'\\t'/  -- }")
    done
    (( $#values )) && compadd -l -d shown -a values
    case $first in
        files) _files ;;
        commands) _command_names -e ;;
    esac
}
compdef _markerjit markerjit
"""

_FISH = """\
# For ~/.config/fish/completions/markerjit.fish, or: markerjit completion fish | source
function __markerjit_complete
    set -l given (commandline -opc) (commandline -ct)
    set -l lines (@COMPLETE@ words $given[2..-1] 2>/dev/null)
    set -l first $lines[1]
    set -e lines[1]
    test (count $lines) -gt 0; and printf '%s\\n' $lines
    switch "$first"
        case files
            __fish_complete_path (commandline -ct)
        case commands
            __fish_complete_command
    end
end
complete -c markerjit -f -a '(__markerjit_complete)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
"""The script for each shell, with @COMPLETE@ for the command that prints candidates."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("shell", metavar="SHELL", choices=SCRIPTS, help="bash, zsh or fish")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    # -P: else the folder where Tab is pressed would come first among those of modules.
    command = shlex.join([*_found_at(), sys.executable, "-P", "-m", "markerjit", "complete"])
    output.print_checked(SCRIPTS[options.shell].replace("@COMPLETE@", command).rstrip("\n"))
    return 0


def _found_at() -> list[str]:
    """How the interpreter is told where this package is, where it does not know by itself: in a
    folder that was copied."""
    root = str(Path(markerjit.__file__).parent.parent)
    # The first is the folder of the program, or the present one.
    given = [sys.path[0], *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    is_given = any(os.path.realpath(entry) == os.path.realpath(root) for entry in given if entry)
    return ["env", f"PYTHONPATH={root}"] if is_given else []
