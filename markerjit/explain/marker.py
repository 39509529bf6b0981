"""One site explained: its note, its bytes dormant and active, its body, and the plan to switch it.

The plan is the object that `enable` would apply, not a description of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from markerjit.elf import FileImage, Read, parse_format
from markerjit.elf.symbols import function_at
from markerjit.errors import MemoryFault, NoMarkers, UnexpectedBytes
from markerjit.explain.path import ActivePath
from markerjit.model import Field, Mode, RemoteAddress, Site
from markerjit.patch.plan import Plan, Refusal, SiteState, plan_on
from markerjit.quiesce.strategies import STRATEGIES, default_strategy
from markerjit.session.status import dormant
from markerjit.session.view import View
from markerjit.sites import Lot, discover_file, matching, parse_name
from markerjit.sites.names import check_is_marker
from markerjit.sites.verify import dormant_code, verify
from markerjit.tuples import NamedTuple
from markerjit.x86.decode import Instruction, disassemble
from markerjit.x86.forms import STUBBED, is_breakpoint

_BODY_BYTES = 160
_BODY_INSTRUCTIONS = 24
_LONGEST_INSTRUCTION = 15


class Explanation(NamedTuple):
    """A site explained.

    function   the function that it is in, None without symbols
    mode       how it is on now; None while it is off, and in a file
    problem    what is wrong with its code, None where the code is off or on
    dormant    its hot path while off
    active     its hot path while on, by mode
    body       the code that evaluates the arguments, up to and including the call; the beginning of
               a stub, which counts and records without a call
    plan       what would be written; a Refusal where it cannot be switched
    remarks    further remarks, a line each
    path       its active path; None for a file
    """

    site: Site
    fields: tuple[Field, ...]
    function: str | None
    mode: Mode | None
    dormant: tuple[Instruction, ...]
    active: dict[Mode, tuple[Instruction, ...]]
    body: tuple[Instruction, ...]
    plan: Plan | Refusal
    remarks: tuple[str, ...]
    problem: UnexpectedBytes | None = None
    path: ActivePath | None = None


def explain_process(
    view: View,
    pattern: str,
    plan: Plan | Refusal,
    paths: Mapping[RemoteAddress, ActivePath],
) -> list[Explanation]:
    """Every site of a process whose marker matches, with the plan that a session made for them, and
    the active paths by the addresses of sites.

    Raises UnknownMarker.
    """
    remarks = []
    if not view.has_runtime:
        remarks.append(
            "the runtime is not in the process yet: `on` puts it there first, and then knows what "
            "the slot is to hold"
        )
    # In another mount namespace the path means another file here, or none.
    root = f"/proc/{view.pid}/root"
    states = view.states(view.sites(pattern))
    return [
        _explain(view.read, state, plan, remarks, root=root)._replace(
            path=paths.get(state.site.address)
        )
        for state in states
    ]


def explain_file(
    path: str, pattern: str, *, mode: Mode | None = None, quiescence: str | None = None
) -> list[Explanation]:
    """Every site of an executable or library whose marker matches, with the plan for a process that
    was just started. Raises BadFile, NoMarkers, UnknownMarker."""
    states = states_of_file(path, pattern)
    strategy = STRATEGIES[quiescence] if quiescence else default_strategy(own=False)
    plan = plan_on(states, None, mode=mode, strategy=strategy)
    remarks = ["addresses are those of the file; in a process its load address is added"]
    with FileImage(path) as image:

        def read(address: RemoteAddress, size: int) -> bytes:
            return image.read(address, size)

        verify(read, [state.site for state in states])
        return [_explain(read, state, plan, remarks) for state in states]


def states_of_file(path: str, pattern: str) -> list[SiteState]:
    """Every site that matches, as it is in a process that was just started. Raises as above, and
    Unsupported for a name of USDT probes."""
    name = parse_name(pattern)
    check_is_marker(name)
    objects = discover_file(path)
    if not objects.sites:
        raise NoMarkers(f"{path} has no markers; was it built with marker.h?")
    return [dormant(Lot.of(site)) for site in matching(objects.sites, name)]


def _explain(
    read: Read,
    state: SiteState,
    plan: Plan | Refusal,
    remarks: Sequence[str],
    *,
    root: str = "",
) -> Explanation:
    site = state.site
    start, code = dormant_code(read, site)
    own = [*remarks]
    if isinstance(plan, Plan) and any(edit.code for edit in plan.edits) and not site.object.deleted:
        own.append(
            "writing to a page of code gives the process a private copy of it: the file and other "
            "processes do not change; it is written through /proc/PID/mem, which leaves the "
            "protection of the page as it is"
        )
    if site.object.deleted:
        own.append(f"{site.object.path} was deleted or replaced; this is what the process runs")
    return Explanation(
        site=site,
        fields=parse_format(site.signature.format, site.signature.args),
        function=function_at(root + site.object.path, site.object.build_id, site.offset),
        mode=state.mode,
        dormant=_dormant(read, site, start, code),
        active=_active_forms(site, start, code),
        body=_body(read, site),
        plan=plan,
        remarks=tuple(own),
        problem=state.problem,
    )


def _dormant(read: Read, site: Site, start: RemoteAddress, code: bytes) -> tuple[Instruction, ...]:
    """The instructions of a site. The head of code that nobody prepared may end inside of one."""
    if site.form.name not in STUBBED:
        return tuple(disassemble(code, start))
    end = start + len(code)
    with suppress(MemoryFault):  # the last page of the object may end before
        code += read(RemoteAddress(end), _LONGEST_INSTRUCTION)
    return tuple(each for each in disassemble(code, start) if each.address < end)


def hot_path(view: View, site: Site) -> tuple[Instruction, ...]:
    """The hot path of a site as it is in memory at this moment. Behind a breakpoint nothing is
    executed, so those bytes are one line without assembly. Raises MemoryFault, TargetGone."""
    start, dormant = dormant_code(view.read, site)
    code = view.read(start, len(dormant))
    first = code[site.form.lead :]
    if not site.form.head or not is_breakpoint(first):
        return tuple(disassemble(code, start))
    return (
        Instruction(site.address, first[:1], "int3"),
        Instruction(site.address + 1, first[1:], "(not executed)"),
    )


def _active_forms(
    site: Site, start: RemoteAddress, code: bytes
) -> dict[Mode, tuple[Instruction, ...]]:
    forms = {}
    for mode, head in site.form.ways.items():
        if not head:
            forms[mode] = tuple(disassemble(code, start))  # the code does not change, the slot does
            continue
        at = site.form.lead
        changed = code[:at] + head + code[at + len(head) :]
        if mode is Mode.INT3:
            changed = head[:1]  # what follows is not executed
        forms[mode] = tuple(disassemble(changed, start))
    return forms


def _body(read: Read, site: Site) -> tuple[Instruction, ...]:
    """The instructions of the body up to its call of the probe, as far as they lie in one piece."""
    if not site.body.entry or site.body.idle:  # there it is what the idle slot calls
        return ()
    code = b""
    for size in (_BODY_BYTES, _BODY_BYTES // 4):
        try:
            code = read(site.body.entry, size)
            break
        except MemoryFault:
            continue
    shown: list[Instruction] = []
    for instruction in disassemble(code, site.body.entry)[:_BODY_INSTRUCTIONS]:
        shown.append(instruction)
        if instruction.text.startswith("call"):
            break
    return tuple(shown)
