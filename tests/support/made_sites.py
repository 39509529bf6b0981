"""Sites that were made up, in every state, and plans for them."""

from __future__ import annotations

from collections.abc import Sequence

from markerjit.memory import FakeMemory
from markerjit.model import Body, Kind, MappedObject, Mode, Place, RemoteAddress, Signature, Site
from markerjit.patch.plan import Binding, Plan, SiteState, plan_off, plan_on
from markerjit.quiesce.strategies import STOP, Strategy
from markerjit.sites import Lot
from markerjit.x86.forms import marker_form

SLOT = 0x9000
PROBE = RemoteAddress(0x7000)
OTHER_PROBE = RemoteAddress(0x7100)
ENTRY = RemoteAddress(0x8000)
OURS = frozenset((PROBE, OTHER_PROBE))
BINDING = Binding(PROBE, ENTRY)
SWITCHABLE = [kind for kind in Kind if marker_form(kind, 0, 0).ways]


def make_site(
    kind: Kind, *, address: int = 0x1000, slot: int = SLOT, marker: str = "kv_get"
) -> Site:
    body = 0 if kind in (Kind.IMMEDIATE, Kind.DIRECT) else address + 0x400
    form = marker_form(kind, address, body)
    end = address + (len(form.head + form.tail) or 14)
    return Site(
        Signature(marker, "", ()),
        Place(MappedObject("/bin/kv", 0, None, False), address, "kv.c:7"),
        RemoteAddress(address),
        form,
        Body(
            RemoteAddress(0 if kind is Kind.DIRECT else slot),
            RemoteAddress(body),
            RemoteAddress(end),
            RemoteAddress(body if kind is Kind.SENTINEL else 0),
        ),
    )


def make_lot(kind: Kind, size: int) -> Lot:
    """Sites of a marker that are alike, each with a body of its own."""
    sites = [make_site(kind, address=0x400000 + 0x800 * number) for number in range(size)]
    return Lot(
        sites[0],
        [site.address for site in sites],
        [site.body.entry for site in sites],
        [site.body.end for site in sites],
        [7] * size,
        [site.form.tail for site in sites],
    )


def modes(kind: Kind) -> tuple[Mode, ...]:
    """The modes of a kind of site, the best first."""
    return marker_form(kind, 0, 0).modes


def has_head(kind: Kind) -> bool:
    """Whether code decides, and not the slot."""
    return bool(marker_form(kind, 0, 0).head)


def make_state(
    kind: Kind,
    current: Mode | None,
    *,
    site: Site | None = None,
    probe: RemoteAddress = PROBE,
    data: RemoteAddress = ENTRY,
) -> SiteState:
    """A site that is off and untouched, or on with our probe."""
    site = site or make_site(kind)
    code = current if site.form.head else None
    if current is None:
        return SiteState(site, code, site.body.idle, RemoteAddress(0))
    return SiteState(site, code, probe, data)


def memory_of(*states: SiteState) -> FakeMemory:
    """What the sites and their slots hold."""
    memory = FakeMemory()
    for state in states:
        site = state.site
        head = site.form.ways[state.code_mode] if state.code_mode else site.form.head
        code = head + site.form.tail
        memory.add(site.address, code or bytes(14))
        if site.slot and site.slot not in memory.segments:
            words = (state.probe, state.data)
            memory.add(site.slot, b"".join(word.to_bytes(8, "little") for word in words))
    return memory


def on(
    states: Sequence[SiteState],
    mode: Mode | None = None,
    *,
    strategy: Strategy = STOP,
    own: bool = False,
) -> Plan:
    bindings = {s.site.slot: BINDING for s in states}
    plan = plan_on(states, bindings, mode=mode, ours=OURS, strategy=strategy, own=own)
    assert isinstance(plan, Plan)
    return plan


def off(states: Sequence[SiteState], *, strategy: Strategy = STOP, own: bool = False) -> Plan:
    plan = plan_off(states, ours=OURS, strategy=strategy, own=own)
    assert isinstance(plan, Plan)
    return plan
