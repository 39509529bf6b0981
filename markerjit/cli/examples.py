"""Examples of each command, as `--help` and the manual pages show them below the options.

PID stands for the number of a process. The names of markers are those of the demo's server.
"""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "ps": (
        ("markerjit ps", "your processes that have markers"),
        ("markerjit ps --usdt", "those that have USDT probes, too"),
    ),
    "list": (
        ("markerjit list PID", "the markers of a process"),
        ("markerjit list ./kvserver 'kv_*'", "some markers of a file"),
        (
            "markerjit list PID 'func:pg_*'",
            "functions, whose entries can be switched like markers",
        ),
    ),
    "status": (
        ("markerjit status PID", "what is on, since when, and its hits"),
        (
            "markerjit status postgres --watch",
            "all processes of a program, again each second",
        ),
    ),
    "top": (
        ("markerjit top PID", "the busiest markers"),
        ("markerjit top PID kv_command --by name", "the busiest values of a field"),
    ),
    "watch": (
        ("markerjit watch PID 'kv_*'", "in the terminal"),
        ("markerjit watch PID --web", "in a browser"),
    ),
    "on": (
        (
            "markerjit on PID 'kv_*'",
            "count executions; `markerjit status PID` shows them",
        ),
        (
            "markerjit on PID func:malloc --where 'arg0 > 65536' --for 10m",
            "count large allocations, for ten minutes",
        ),
    ),
    "off": (
        ("markerjit off PID", "whatever is on in a process"),
        ("markerjit off PID kv_miss --force", "also if a trace records it"),
    ),
    "replace": (
        (
            "markerjit replace PID func:checksum fixed.c:checksum",
            "call the function in fixed.c",
        ),
        ("markerjit replace PID func:checksum --revert", "call the old function again"),
    ),
    "trace": (
        ("markerjit trace PID kv_command -d 10s", "print the events of ten seconds"),
        (
            "markerjit trace PID kv_store --where 'size > 4096' -o large.ctf",
            "write some events to a file, until Ctrl-C",
        ),
        ("markerjit trace func:malloc -- ls", "trace a program from its start"),
    ),
    "flight": (
        (
            "markerjit flight start PID 'kv_*' --ring-size 4MiB",
            "keep the newest events",
        ),
        ("markerjit flight dump PID -o newest.ctf", "save what was kept"),
        ("markerjit flight stop PID", "switch the markers off"),
    ),
    "read": (
        ("markerjit read large.ctf --where 'size > 100000'", "print some events"),
        ("markerjit read large.ctf --stats", "counts, rates, percentiles"),
        ("markerjit read large.ctf -o large.parquet", "convert it"),
    ),
    "export": (
        ("markerjit export PID", "the hits of all markers"),
        ("markerjit export PID kv_command --by name", "events by the value of a field"),
    ),
    "count": (
        ("markerjit count PID kv_command --by name -d 10s", "commands by name"),
        ("markerjit count PID kv_miss --by stack -d 10s", "misses by call path"),
    ),
    "stat": (
        (
            "markerjit stat PID kv_store size --by 'key[:4]'",
            "sizes by the beginning of keys",
        ),
    ),
    "hist": (
        ("markerjit hist PID kv_store size -d 10s", "the sizes of values"),
        (
            "markerjit hist func:malloc arg0 -- ls",
            "the sizes that a program allocates",
        ),
    ),
    "quantiles": (("markerjit quantiles PID kv_store size --by tid", "sizes by thread"),),
    "latency": (
        (
            "markerjit latency PID kv_command kv_store",
            "from one marker to the next of a thread",
        ),
        ("markerjit latency PID func:read --slower 5ms", "calls, and each slow one"),
    ),
    "recipe": (
        ("markerjit recipe list", "the recipes, and what they need"),
        ("markerjit recipe run libc-malloc PID -d 10s", "run one"),
        ("markerjit recipe run libc-read-times -- ls", "from the start of a program to its end"),
    ),
    "calls": (
        ("markerjit calls PID 'kv_*' -d 10s", "a table of functions"),
        ("markerjit calls PID -d 10s -o calls.html", "all functions, as a flame graph"),
        ("markerjit calls --tree -- ls", "a program from its start to its end"),
    ),
    "alloc": (
        ("markerjit alloc PID --leaks -d 1min", "blocks that were not freed"),
        (
            "markerjit alloc PID --by stack -o blocks.html",
            "a flame graph, until Ctrl-C",
        ),
        ("markerjit alloc --leaks -- ls", "what a program never frees"),
    ),
    "stack": (
        ("markerjit stack PID", "the stacks as they are now"),
        ("markerjit stack PID -n 200 -o stacks.html", "a flame graph of 200 samples"),
    ),
    "doctor": (
        ("markerjit doctor", "this machine"),
        ("markerjit doctor PID", "a process"),
    ),
    "coverage": (
        ("markerjit coverage /usr/bin/python3", "a program"),
        ("markerjit coverage PID --in 'libc.so*'", "a library of a process"),
    ),
    "repair": (("markerjit repair PID", "safe at any time: it says what it found"),),
    "demo": (("markerjit demo", "needs no program of your own"),),
    "explain": (
        ("markerjit explain PID kv_miss", "what `markerjit on PID kv_miss` would do"),
        (
            "markerjit explain PID kv_store --where 'size > 100'",
            "the code of a question",
        ),
    ),
    "lab": (
        ("markerjit lab list", "the experiments"),
        ("markerjit lab run a", "one of them"),
    ),
    "bench": (
        (
            "markerjit bench dormant --seconds 30",
            "a first look at markers that are off",
        ),
        ("markerjit bench compare before.json after.json", "two results side by side"),
    ),
    "config": (("markerjit config", "what is set, and where"),),
    "completion": (('eval "$(markerjit completion bash)"', "in ~/.bashrc"),),
}
"""For each command some lines to type, each with what it does."""
