"""The forms that are compared with a listener: our modes, each with several probes, and the peers.

A *listened* form is a place in native/bench/active/listen.c with its listener. The forms of
markerjit and the code without a marker are loops of one process. A debugger has a process of its
own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markerjit.apps.bench.sampling.form import AGAIN, BASELINE, BY_POINTER, CALL, Form
from markerjit.tuples import NamedTuple

NOBODY = ""
EMPTY = "empty"
COUNT = "count"
RECORD = "record"
FLIGHT = "flight"
FLIGHT_HOT = "hot"
FULL = "full"
USDT_COUNT = "usdt_count"
USDT_RECORD = "usdt_record"
UPROBE = "uprobe"
UPROBE_RECORD = "uprobe that records"
PTRACE = "ptrace"
GDB = "gdb"
LTTNG = "lttng"
LTTNG_TID = "lttng_tid"
LTTNG_NO = "lttng_no"
ENTRY_COUNT = "entry_count"
ENTRY = "entry"
LEAVING = "leaving"
HOOK = "hook"
XRAY_ENTRY = "xray_entry"
XRAY_BOTH = "xray_both"
UFTRACE = "uftrace"
FRIDA = "frida"
"""The names of listeners."""


class Probed(NamedTuple):
    """A uprobe at a place, or a uretprobe, and whether it records."""

    record: bool = False
    is_return: bool = False


OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "no_tid": {"thread_id": False},
    "no_time": {"time": "none"},
    "bare": {"time": "none", "thread_id": False},
    "coarse": {"time": "coarse"},
    "monotonic": {"time": "monotonic"},
    "one_field": {"fields": ["a"]},
    "careful": {"strings": "careful"},
    "with_stack": {"stack": 64},
    "with_4_frames": {"stack": 4},
}
"""Listeners with other options of Session.trace. Only a stack makes a record longer."""

FUNCTIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    ENTRY_COUNT: ("", {"probe": COUNT}),
    ENTRY: ("", {"fields": ["arg0", "arg1"]}),
    LEAVING: (":return", {"fields": ["ret", "dur", "arg0", "arg1"]}),
}
"""Listeners of functions: the end of the name of their event, and the options with which they are
switched on."""

UPROBES: Mapping[str, tuple[Probed, ...]] = {
    UPROBE: (Probed(),),
    UPROBE_RECORD: (Probed(record=True),),
    "uprobe entry": (Probed(),),
    "uprobe entry that records": (Probed(record=True),),
    "uretprobe": (Probed(is_return=True),),
    "uprobe and uretprobe that record": (
        Probed(record=True), Probed(record=True, is_return=True),
    ),
}  # fmt: skip
"""Listeners in the kernel: the probes at each place, whose counts must all be equal."""

NEVER = "a < -2000000000"
"""A condition that no event meets; LTTng's filters are written alike."""

DEPTHS = (5, 20, 60)
"""The depths of deep stacks, in frames. The cost of a frame is the difference between these."""

QUESTIONS: Mapping[str, tuple[Mapping[str, Any], bool]] = {
    "ask_no": ({"where": NEVER}, False),
    "ask_yes": ({"where": "a > -2000000000"}, True),
    "ask_text_no": ({"where": 'text == "12346"'}, False),
    "ask_text_yes": ({"where": 'text == "12345"'}, True),
    "ask_part_no": ({"where": 'text[1:4] == "235"'}, False),
    "ask_texts_no": ({"where": "text == other"}, False),
    "ask_length_no": ({"where": "len(text) == 9"}, False),
    "ask_search_no": ({"where": '"77" in text'}, False),
    "ask_part_length_no": ({"where": "len(text[:4]) == 9"}, False),
    "ask_part_search_no": ({"where": '"77" in text[:4]'}, False),
    "ask_among_no": ({"where": 'text in ("12346", "12347", "12348")'}, False),
    "ask_none": ({"where": "text is None"}, False),
    "stack_1": ({"where": "stack(1) != 0"}, True),
    "stack_4": ({"where": "stack(4) != 0"}, True),
    **{f"deep_{depth}": ({"where": f"stack({depth}) != 0"}, True) for depth in DEPTHS},
    "sample_no": ({"sample": "1/999999999999999999"}, False),
    "sample_yes": ({"sample": "1/1"}, True),
}
"""Listeners that count behind a question or brakes, as options of Session.on, and the answer: of
these markers always the same, but for one in 10 ** 18."""

ADDED: Mapping[str, tuple[str, str | None]] = {
    "added_by_int": ("count()", "a"),
    "added_by_text": ("count()", "text"),
    "added_by_part": ("count()", "text[1:4]"),
    "added_quantiles": ("quantiles(a)", None),
    "added_hist": ("hist(a)", None),
    **{f"added_{does}": (f"{does}(b)", "a") for does in ("sum", "min", "max", "avg", "stat")},
    "added_float_sum": ("sum(x)", "a"),
    "added_float_max": ("max(x)", "a"),
    "added_float_hist": ("hist(x)", None),
}
"""Listeners that add up: the aggregate, and its key."""

LATENCY = "latency"
"""The listener that pairs two markers."""

BPFTRACE: Mapping[str, str] = {
    "bpf_count": " = count()",
    "bpf_by_int": "[(int32)arg0] = count()",
    "bpf_by_text": "[str(arg0)] = count()",
    "bpf_hist": " = hist((int32)arg0)",
}
"""Listeners in the kernel that add up: how bpftrace changes a map."""

MODES = ("jump", "nop", "pointer")


class Listened(NamedTuple):
    """A form and its listener.

    marker     the beginning of its markers' names, "" where it has no marker
    size       the most bytes that one execution takes in a ring
    provider   the provider of its USDT probes
    exits      whether a marker is also hit at the exit
    is_shared  whether the objects of all layouts have one marker
    """

    form: Form
    by: str
    marker: str = ""
    size: int = 24
    provider: str = ""
    exits: bool = False
    is_shared: bool = False

    @property
    def does(self) -> str:
        """The work at each execution: EMPTY, COUNT, RECORD, or NOBODY."""
        if self.by in (NOBODY, EMPTY):
            return self.by
        in_kernel = UPROBES.get(self.by, ())
        is_recorded = self.records or any(probe.record for probe in in_kernel)
        return RECORD if is_recorded or self.by == FLIGHT_HOT else COUNT

    @property
    def is_counted(self) -> bool:
        """Whether the listener counts executions. It does not where the answer of a question, or of
        a filter, is no."""
        return self.by != LTTNG_NO and (self.by not in QUESTIONS or QUESTIONS[self.by][1])

    @property
    def records(self) -> bool:
        """Whether each execution takes room in a ring that is drained, or in a trace."""
        return self.by in (
            RECORD, USDT_RECORD, FLIGHT, LTTNG, LTTNG_TID, ENTRY, LEAVING, HOOK, XRAY_ENTRY,
            XRAY_BOTH, UFTRACE, FRIDA, *OPTIONS,
        )  # fmt: skip

    def name_of_marker(self, layout: int) -> str:
        """The name of the marker in the object of one layout."""
        return f"{self.marker}_{0 if self.is_shared else layout}"

    def name_of_event(self, layout: int) -> str:
        """The name of the event there, of a marker, a USDT probe or a function."""
        name = self.name_of_marker(layout)
        if self.provider:
            return f"{self.provider}:{name}"
        return f"func:{name}{FUNCTIONS[self.by][0]}" if self.by in FUNCTIONS else name


def _plain(name: str, flag: str, what: str, by: str = NOBODY, *, is_usual: bool = True) -> Listened:
    return Listened(Form(name, (f"-DBENCH_FORM={flag}",), what, is_usual=is_usual), by)


def _mark(name: str, mode: str, by: str, what: str, *, is_usual: bool = True) -> Listened:
    form = Form(name, ("-DBENCH_FORM=mark", f"-DMJ_MODE={mode}"), what, is_usual=is_usual)
    return Listened(form, by, f"{name.split(',')[0]}_{by or 'dormant'}")


def _usdt(name: str, by: str, what: str) -> Listened:
    form = Form(name, ("-DBENCH_FORM=usdt",), what, is_usual=False)
    return Listened(form, by, f"place_{by or 'dormant'}", provider="bench")


def _bpftrace(name: str, by: str, what: str, *flags: str) -> Listened:
    form = Form(f"bpftrace, {name}", ("-DBENCH_FORM=usdt", *flags), what, is_usual=False)
    return Listened(form, by, f"place_{by}", provider="bench")


_PROBES = (
    (NOBODY, "dormant", "the marker is off"),
    (EMPTY, "empty probe", "a probe in C that does nothing; the marker counts who is inside"),
    (COUNT, "count", "the runtime counts executions"),
    (RECORD, "record", "two ints, time and thread id into a ring that is drained"),
)

_EVENTS = (
    ("ints_1", "1 int", 24),
    ("ints_3", "3 ints", 32),
    ("ints_4", "4 ints", 32),
    ("ints_8", "8 ints", 48),
    ("text_5", "a text of 5", 32),
    ("text_40", "a text of 40", 64),
    ("text_200", "a text of 200", 224),
)
"""Their names in listen.c, and the bytes of a record (docs/explanation/ring.md)."""


def _event(by: str, name: str, event: str, size: int, what: str) -> Listened:
    """A form with an event of another size, recorded as the listener `by` does."""
    plain = _built(by, name, what, f"-DBENCH_EVENT={event}")
    return plain._replace(marker=f"{plain.marker}_{event}", size=size)


def _built(by: str, name: str, what: str, flag: str) -> Listened:
    """A form of mode jump that is compiled with another flag."""
    plain = _mark(name, "jump", by, what, is_usual=False)
    return plain._replace(form=plain.form._replace(flags=(*plain.form.flags, flag)))


_RECORDS = (
    ("no_tid", "record without thread id", "two ints and time"),
    ("no_time", "record without time", "two ints and thread id; no clock is read"),
    ("bare", "record without time and thread id", "two ints"),
    ("coarse", "record coarse time", "two ints, thread id, and a clock of the last tick"),
    ("monotonic", "record monotonic time", "two ints, thread id, and the system's clock"),
    ("one_field", "record one of two ints", "one int, time and thread id"),
)

_COMPARED = (
    ("clock_gettime", "clock", "the system's monotonic clock"),
    ("store of 32 bytes", "store", "into 1 MiB, from its beginning to its end"),
    ("record by hand", "by_hand", "the clock and the stores of a record of two ints, into 1 MiB, "
     "without anything that makes a ring"),
    ("record by hand, prefetched", "by_hand_ahead", "the same; lines are asked for in advance"),
    ("record by hand, in the cache", "by_hand_hot", "the same, into 16 KiB"),
    ("locked add", "locked_own", "to a word of the thread"),
    ("locked add, shared", "locked_shared", "to a word of all threads: has to show with several"),
)  # fmt: skip
"""Their names in listen.c."""


def _function(by: str, name: str, size: int, what: str) -> Listened:
    form = Form(name, ("-DBENCH_FORM=function", "-g0"), what, is_usual=False)
    return Listened(form, by, f"function_{by}", size)


SLEDS = ("-fxray-instrument", "-fxray-instruction-threshold=1000000", "-fxray-ignore-loops")
"""Flags for XRay's no-ops in the functions that ask for them, and in no others."""


def _hooked(
    name: str, by: str, hook: str, flags: Sequence[str], what: str,
    *, marker: str = "", events: int = 0, compiler: str = "",
) -> Listened:  # fmt: skip
    """A form with a function that compilers or other tools hook. Each event is that of a marker."""
    own = ("-DBENCH_FORM=hooked", f"-DBENCH_HOOK={hook}", f"-DBENCH_EVENTS={events}", *flags)
    package = compiler and "clang"
    form = Form(f"function by {name}", own, what, compiler, package=package, is_usual=False)
    return Listened(form, by, marker, 32 * max(events, 1), exits=events > 1)


def _linked(name: str, by: str, what: str, events: int) -> Listened:
    """A form whose objects are linked into the crew, as XRay's runtime needs it."""
    flags = (*SLEDS, "-DBENCH_LINKED", "-c", "-Wno-unused-command-line-argument")
    form = _hooked(f"XRay, {name}", by, "xray", flags, what, marker=f"hooked_{by}",
                   events=events, compiler="clang")  # fmt: skip
    return form._replace(is_shared=True)


_LTTNG_SIZE = 1 << 11
"""As if an event of LTTng, or of uftrace, had this size. All events are kept, so a run of its loop
is short."""


def _lttng(name: str, by: str, what: str) -> Listened:
    form = Form(name, ("-DBENCH_FORM=lttng",), what, needs="lttng/tracepoint.h",
                package="liblttng-ust-dev", libraries=("lttng-ust", "dl"),
                is_usual=False)  # fmt: skip
    return Listened(form, by, f"mj_{by}", _LTTNG_SIZE)


_ASKED = (
    ("ask_no", "a question that says no", "one comparison of an int"),
    ("ask_yes", "count behind a question", "the same comparison says yes, and it is counted"),
)
_SAMPLED = (
    ("sample_no", "sampled away", "the event is not in the sample"),
    ("sample_yes", "count of a sample", "it is, and it is counted"),
)
_STACKS = (
    ("stack_1", "count behind a stack of 1 frame", "its number is looked up, and it is counted"),
    ("stack_4", "count behind a stack of 4 frames", "the same of three frames more"),
)
_DEEP = tuple(
    (f"deep_{depth}", f"count behind {depth} of 70 frames", f"a stack of {depth} frames below 70 "
     "functions: its number is looked up, and it is counted")
    for depth in DEPTHS
)  # fmt: skip
_STACKS_RECORDED = (
    ("with_stack", "recorded with stack", "the number of its whole stack"),
    ("with_4_frames", "recorded with 4 frames", "the number of its stack of 4 frames"),
)
_ASKED_TEXTS = (
    ("ask_text_no", "a question about a text that says no", "equality of a text of 5"),
    ("ask_text_yes", "count behind a question about a text", "it says yes, and it is counted"),
    ("ask_part_no", "a question about a part of a text", "equality of three bytes; it says no"),
    ("ask_length_no", "a question about the length of a text", "of 5; it says no"),
    ("ask_search_no", "a question that searches a text", "two bytes in a text of 5; it says no"),
    ("ask_part_length_no", "a question about the length of a part", "of 4 of 5; it says no"),
    ("ask_part_search_no", "a question that searches a part", "two bytes in 4 of 5; it says no"),
    ("ask_among_no", "a question about a text among three", "equality with three of 5; it says no"),
    ("ask_none", "a question whether a text is there", "it is, so it says no"),
)
_ASKED_LENGTHS = (
    ("ask_length_no", "a question about the length of a text with one", "%.*s of 5; it says no"),
    ("ask_search_no", "a question that searches a text with a length", "%.*s of 5; it says no"),
)

_ADDED = (
    ("added_by_int", "count by an int", "the executions with each value of an int, of eight"),
    ("added_sum", "sum by an int", "the executions and the sum of another int, by each value"),
    ("added_min", "min by an int", "the executions and the least value of another int"),
    ("added_max", "max by an int", "the same with the largest"),
    ("added_avg", "avg by an int", "as a sum"),
    ("added_stat", "stat by an int", "sum, least and largest value"),
    ("added_quantiles", "quantiles of an int", "all its values, in buckets of 3 %"),
    ("added_hist", "histogram of an int", "all its values, by powers of two"),
)
_ADDED_TEXTS = (
    ("added_by_text", "count by a text of 5", "the executions with each text; there is one"),
    ("added_by_part", "count by a part of a text", "three bytes in its middle"),
)
_ADDED_FLOATS = (
    ("added_float_sum", "sum of a float by an int", "an int is made a double, and added"),
    ("added_float_max", "max of a float by an int", "an int is made a double"),
    ("added_float_hist", "histogram of a float", "an int is made a double; by powers of two"),
)

_BOTH = "a record at the entry and one at the exit"
_HOOKED = (
    _hooked("-finstrument-functions, hooks that do nothing", NOBODY, "cyg",
            ("-finstrument-functions",), "gcc calls an empty hook at the entry and at the exit"),
    _hooked("-finstrument-functions, entry recorded", HOOK, "cyg", ("-finstrument-functions",),
            "function and caller, by our recorder; the hook of the exit does nothing",
            marker="cyg_hook_entry", events=1),
    _hooked("-finstrument-functions, entry and exit recorded", HOOK, "cyg",
            ("-finstrument-functions",), f"the same; {_BOTH}", marker="cyg_hook_both", events=2),
    _hooked("-mfentry, handler that does nothing", NOBODY, "fentry", ("-pg", "-mfentry"),
            "gcc calls a handler at the entry, which saves registers and calls an empty function"),
    _hooked("-mfentry, entry recorded", HOOK, "fentry", ("-pg", "-mfentry"),
            "two arguments, by our recorder", marker="fentry_hook_entry", events=1),
    _hooked("uftrace, entry and exit recorded", UFTRACE, "none", ("-pg", "-mfentry"),
            "uftrace record: time at the entry and at the exit, into a file")._replace(
                size=_LTTNG_SIZE),
    _hooked("XRay, the compiler alone", NOBODY, "none", (), "the function as clang compiles it, "
            "which nothing hooks", compiler="clang"),
    _hooked("XRay, dormant", NOBODY, "xray", SLEDS, "the no-ops of clang's -fxray-instrument",
            compiler="clang"),
    _linked("entry recorded", XRAY_ENTRY, "patched; the number of the function, by our recorder; "
            "the handler is called at the exit, too", 1),
    _linked("entry and exit recorded", XRAY_BOTH, f"the same; {_BOTH}", 2),
    _hooked("Frida, entry recorded", FRIDA, "called", (), "a callback in C (CModule): two "
            "arguments, by our recorder", marker="entry_frida", events=1),
    _hooked("Frida, entry and exit recorded", FRIDA, "called", (), f"the same; {_BOTH}",
            marker="both_frida", events=2),
    _hooked("uprobe, entry counted", "uprobe entry", "push", (), "counted by the kernel, "
            "at a push, which the kernel emulates"),
    _hooked("uprobe, entry counted by a step", "uprobe entry", "none", (), "the same at another "
            "instruction, which the processor executes as a single step"),
    _hooked("uprobe, entry recorded", "uprobe entry that records", "push", (), "the same; "
            "two registers, time and thread id into a ring of perf that is overwritten"),
    _hooked("uretprobe, exit counted", "uretprobe", "push", (), "counted by the kernel, "
            "which is entered at the entry, too"),
    _hooked("uprobe and uretprobe, entry and exit recorded", "uprobe and uretprobe that record",
            "push", (), "a record of perf at the entry and one at the exit"),
)  # fmt: skip
"""Forms of functions that compilers and other tools hook. The forms that use our recorder hit a
marker, which is traced."""

FORMS = (
    _plain(BASELINE, "nothing", "nothing is there"),
    _plain(AGAIN, "nothing", "the same once more: its difference is the noise"),
    _plain(CALL, "call", "a direct call of an empty function: has to show"),
    _plain(BY_POINTER, "call_by_pointer", "the same, where the processor has to predict which: "
           "each body of a marker calls its probe so"),
    _plain("rdtsc", "rdtsc", "the time stamp counter alone, which a record with time reads"),
    _plain("two rdtsc", "two_rdtsc", "which an entry with its exit reads", is_usual=False),
    *(_plain(name, flag, what, is_usual=False) for name, flag, what in _COMPARED),
    *(_mark(f"{mode}, {name}", mode, by, what)
      for by, name, what in _PROBES for mode in MODES),
    *(_mark(f"jump, {name}", "jump", by, what, is_usual=by == "ask_no")
      for by, name, what in _ASKED),
    *(_event(by, f"jump, {name}", "text_5", 32, what) for by, name, what in _ASKED_TEXTS),
    *(_event(by, f"jump, {name}", "sized_5", 32, what) for by, name, what in _ASKED_LENGTHS),
    _event("ask_texts_no", "jump, a question about two texts", "texts_2", 32,
           "equality of two texts of 5, of which the last bytes differ"),
    *(_mark(f"jump, {name}", "jump", by, what, is_usual=False)
      for by, name, what in (*_ADDED, *_SAMPLED, *_STACKS)),
    *(_event(by, f"jump, {name}", "text_5", 32, what) for by, name, what in _ADDED_TEXTS),
    *(_event(by, f"jump, {name}", "float", 32, what) for by, name, what in _ADDED_FLOATS),
    _event(LATENCY, "jump, latency by tid", "pair", 32, "two markers, and the time between them"),
    *(_built(by, f"jump, {name}", what, "-DBENCH_DEEP") for by, name, what in _DEEP),
    _mark("jump, flight recorder", "jump", FLIGHT, "the same into a ring that is overwritten"),
    _mark("jump, flight recorder in the cache", "jump", FLIGHT_HOT,
          "the same into a ring of 64 KiB", is_usual=False),
    _mark("jump, full ring", "jump", FULL,
          "the same into a ring without room; every event is lost, and counted", is_usual=False),
    _event("careful", "jump, record a text of 5 carefully", "text_5", 32, "a text of 5, time and "
           "thread id; whether its page may be read is asked each time"),
    *(_mark(f"jump, {name}", "jump", by, f"{what}, into a ring that is drained",
            is_usual=by == "no_time") for by, name, what in _RECORDS),
    *(_mark(f"jump, {name}", "jump", by, f"two ints, time, thread id and {what}, into a ring that "
            "is drained", is_usual=False)._replace(size=32) for by, name, what in _STACKS_RECORDED),
    *(_event(RECORD, f"jump, record {name}", event, size, f"{name}, time and thread id")
      for event, name, size in _EVENTS),
    *(_event("no_time", f"jump, record {name} without time", event, size, f"{name}, thread id")
      for event, name, size in _EVENTS if event.startswith("ints")),
    _plain("function", "function", "a call of a function that nobody prepared", is_usual=False),
    _function(ENTRY_COUNT, "function, entry counted", 24, "that call, counted at the entry"),
    _function(ENTRY, "function, entry recorded", 32, "that call; at the entry two arguments, time "
              "and thread id into a ring that is drained"),
    _function(LEAVING, "function, entry and exit with entry arguments", 48, "that call; at the "
              "exit the value, the duration, two arguments of the entry, time and thread id"),
    *_HOOKED,
    *(_mark(f"int3, {name}", "symbol", by, f"a breakpoint, handled in the process; {what}"
            if by else "a one-byte no-op")
      for by, name, what in _PROBES),
    _usdt("USDT, dormant", NOBODY, "a no-op of one byte, with a note about two ints"),
    _usdt("USDT, count", USDT_COUNT, "the no-op is opened by a jump, and the runtime counts"),
    _usdt("USDT, record", USDT_RECORD, "the same; two ints, time and thread id into a ring that is "
          "drained"),
    _plain("uprobe, 1-byte no-op", "nop1", "counted by the kernel (perf_event_open), which "
           "emulates the no-op under its breakpoint", UPROBE),
    _plain("uprobe, 5-byte no-op", "nop5", "the same; since Linux 6.18 the kernel may put a call "
           "there that ends in a system call", UPROBE),
    _plain("uprobe, record", "nop1", "at a one-byte no-op: two registers, time and thread id into "
           "a ring of perf that is overwritten", UPROBE_RECORD),
    _bpftrace("count", "bpf_count", "the executions of a USDT probe, by BPF behind a uprobe"),
    _bpftrace("count by an int", "bpf_by_int", "the same by each value of an int"),
    _bpftrace("count by a text of 5", "bpf_by_text", "the same by each text", "-DBENCH_TEXT"),
    _bpftrace("histogram of an int", "bpf_hist", "all its values, by powers of two"),
    _lttng("LTTng-UST, record", LTTNG, "two ints and time into a ring that its consumer drains"),
    _lttng("LTTng-UST, record with thread id", LTTNG_TID, "the same, and the context vtid"),
    _lttng("LTTng-UST, a filter that says no", LTTNG_NO, "one comparison of an int"),
    _plain("ptrace", "nop1", "a breakpoint, counted by another process that does nothing else",
           PTRACE),
    _plain("gdb", "nop1", "a breakpoint with the commands silent and continue", GDB),
)  # fmt: skip
"""All forms, in the order of a report."""

FIRST = frozenset((
    BASELINE, AGAIN, CALL, BY_POINTER, "rdtsc", "jump, dormant", "jump, empty probe", "jump, count",
    "jump, record", "jump, a question that says no", "jump, flight recorder", "int3, count",
    "int3, record", "uprobe, 1-byte no-op", "ptrace",
))  # fmt: skip
"""The forms of a first look: the usual mode and probes, and of each kind a peer that starts
quickly."""
