"""Forms of sites: made for a marker, recognised in what stands there, and what a form says of a
site without knowing its kind."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from markerjit.elf import AlikeNotes
from markerjit.elf.notes import Columns
from markerjit.errors import UnexpectedBytes
from markerjit.memory import FakeMemory
from markerjit.model import (
    Body,
    Form,
    Kind,
    MappedObject,
    Mode,
    Place,
    RemoteAddress,
    Signature,
    Site,
)
from markerjit.patch.plan import Binding, Plan, Refusal, SiteState, plan_off, plan_on
from markerjit.sites import discover
from markerjit.sites.verify import code_mode, dormant_code
from markerjit.x86.forms import marker_form, mode_of
from tests.support.made_sites import OURS, PROBE, SLOT, has_head, make_site, make_state, memory_of

HERE = RemoteAddress(0x1000)
WITH_HEAD = [kind for kind in Kind if has_head(kind)]
# A no-op of five bytes that becomes a jump, as no marker has it; an instruction begins inside.
FOREIGN = Form(
    "filler",
    bytes.fromhex("0f1f440000"),
    bytes.fromhex("c3"),
    {Mode.JUMP: bytes.fromhex("0f1f44ffff")},
    inside=(3,),
)


def foreign_site(form: Form = FOREIGN) -> Site:
    return Site(
        Signature("filler", "", ()),
        Place(MappedObject("/bin/kv", 0, None, False), HERE, "kv.c:7"),
        HERE,
        form,
        Body(RemoteAddress(SLOT), RemoteAddress(0x2000), RemoteAddress(HERE + 5)),
    )


def memory_with(code: bytes) -> FakeMemory:
    memory = FakeMemory()
    memory.add(HERE, code)
    return memory


@pytest.mark.parametrize("kind", WITH_HEAD)
def test_every_byte_of_a_site_counts_when_it_is_recognised(kind: Kind) -> None:
    """A head that is neither dormant nor open, and any other tail, is what another tool did."""
    site = make_site(kind)
    code = site.form.head + site.form.tail
    known = {site.form.head, *site.form.ways.values()}

    for at in range(len(code)):
        altered = bytearray(code)
        altered[at] ^= 0x10
        assert bytes(altered[: len(site.form.head)]) not in known or at >= len(site.form.head)
        with pytest.raises(UnexpectedBytes):
            code_mode(memory_with(bytes(altered)).read, site)
    assert code_mode(memory_with(code).read, site) is None


@pytest.mark.parametrize("kind", Kind)
def test_a_form_is_named_as_its_kind_and_begins_with_the_mode_it_was_made_for(kind: Kind) -> None:
    form = marker_form(kind, 0x1000, 0x1400)

    assert form.name == kind == str(kind)
    assert form.inside == ()
    assert form.is_decided_by_slot == (kind in (Kind.POINTER, Kind.SENTINEL))
    assert bool(form.ways) == (kind is not Kind.DIRECT)


@pytest.mark.parametrize("kind", [Kind.JUMP, Kind.NOP])
def test_a_tail_leads_to_the_body_and_no_further_than_it_can(kind: Kind) -> None:
    form = marker_form(kind, 0x1000, 0x1400)
    size = len(form.head) + len(form.tail)

    assert 0x1000 + size + int.from_bytes(form.tail[-4:], "little", signed=True) == 0x1400
    with pytest.raises(OverflowError):
        marker_form(kind, 0x1000, 0x1000 + (1 << 32))


def test_forms_and_sites_can_be_in_sets() -> None:
    sites = [make_site(kind, address=address) for kind in Kind for address in (0x1000, 0x2000)]

    assert len({site.form for site in sites}) == len(Kind) * 1  # the same way to the body
    assert len(set(sites)) == len(sites)
    assert make_site(Kind.JUMP) in set(sites)
    assert make_site(Kind.JUMP)._replace(form=FOREIGN) not in set(sites)


def test_forms_that_are_shared_are_not_made_again() -> None:
    assert marker_form(Kind.SYMBOL, 1, 2) is marker_form(Kind.SYMBOL, 3, 4)


# ---- a form that is no marker's ------------------------------------------------------------------


def test_a_site_of_another_form_is_recognised_by_the_same_code() -> None:
    site = foreign_site()
    code = FOREIGN.head + FOREIGN.tail

    assert code_mode(memory_with(code).read, site) is None
    assert code_mode(memory_with(FOREIGN.ways[Mode.JUMP] + b"\xc3").read, site) is Mode.JUMP
    assert dormant_code(memory_with(code).read, site) == (HERE, code)
    for altered in (b"\x90" + code[1:], code[:-1] + b"\xc2", b"\xcc" + code[1:]):
        with pytest.raises(UnexpectedBytes) as caught:
            code_mode(memory_with(altered).read, site)
        assert not caught.value.is_breakpoint  # no way of this form is one


def test_a_site_of_another_form_is_planned_by_the_same_code() -> None:
    off = SiteState(foreign_site(), None, RemoteAddress(0), RemoteAddress(0), FOREIGN.head)
    bindings = {RemoteAddress(SLOT): Binding(PROBE, RemoteAddress(0x8000))}

    plan = plan_on([off], bindings, ours=OURS)

    assert isinstance(plan, Plan)
    (change,) = [edit for edit in plan.edits if edit.code]
    assert (change.address, change.old, change.new) == (HERE + 3, b"\0\0", b"\xff\xff")
    assert change.what == "filler: filler site jump"

    on = off._replace(code_mode=Mode.JUMP, probe=PROBE, head=FOREIGN.ways[Mode.JUMP])
    back = plan_off([on], ours=OURS)

    assert isinstance(back, Plan)
    (change,) = [edit for edit in back.edits if edit.code]
    assert (change.old, change.new) == (b"\xff\xff", b"\0\0")


def test_a_breakpoint_leads_nobody_on_who_is_behind_its_first_byte() -> None:
    """With an instruction inside of the head a thread may go on there: nothing but a stop of all
    threads, in which each is looked for, covers that."""
    several = FOREIGN._replace(ways={Mode.JUMP: b"\xe9\1\2\3\4"})
    whole = several._replace(inside=())
    open_trap = make_state(Kind.JUMP, Mode.INT3, site=make_site(Kind.JUMP, address=0x3000))
    bindings = {RemoteAddress(SLOT): Binding(PROBE, RemoteAddress(0x8000))}

    def edits_for(form: Form) -> Plan | Refusal:
        closed = SiteState(foreign_site(form), None, PROBE, RemoteAddress(0x8000), form.head)
        return plan_on([closed, open_trap], bindings, ours=OURS)

    inside, alone = edits_for(several), edits_for(whole)

    assert isinstance(inside, Plan) and isinstance(alone, Plan)
    assert len([edit for edit in inside.edits if edit.address == HERE and edit.code]) == 1
    assert len([edit for edit in alone.edits if edit.address == HERE and edit.code]) == 2


def test_a_form_without_bytes_and_ways_is_never_switched() -> None:
    site = foreign_site(Form("bare", b"", b"", {}))
    state = SiteState(site, None, RemoteAddress(0), RemoteAddress(0))

    answer = plan_on([state], {}, ours=OURS)

    assert isinstance(answer, Refusal)
    assert state.mode is None


@pytest.mark.parametrize("kind", WITH_HEAD)
def test_a_site_that_is_open_is_recognised_by_its_form(kind: Kind) -> None:
    for mode in make_site(kind).form.modes:
        state = make_state(kind, mode)

        head = memory_of(state).read(state.site.address, len(state.site.form.head))

        assert mode_of(state.site.form, head) is mode


def test_behind_a_breakpoint_are_only_bytes_of_the_form() -> None:
    form = make_site(Kind.JUMP).form
    opcode = form.ways[Mode.INT3][:1]
    heads = (form.head, *form.ways.values())
    known = {head[1] for head in heads}

    for byte in range(256):
        if byte in known:
            assert mode_of(form, opcode + bytes([byte])) is Mode.INT3
        else:
            with pytest.raises(ValueError, match=f"cc {byte:02x}"):
                mode_of(form, opcode + bytes([byte]))


def test_a_site_out_of_reach_of_its_body_is_a_bad_note_and_the_others_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signature = Signature("near", "", ())
    far, near = (0x200, 0x2000, 0x2000 + (1 << 32), 0x2007, 8), (0x100, 0x1000, 0x1400, 0x1007, 7)
    both = Columns(*map(list, zip(far, near, strict=True)))
    alike = AlikeNotes(signature, Kind.JUMP, False, "kv.c", 0x9000, True, both)
    others = alike._replace(signature=Signature("far", "", ()), columns=both.part([0]))
    image = SimpleNamespace(bias=0x10000, build_id=lambda: None, note_segments=list)
    monkeypatch.setattr(discover, "read_alike", lambda image: ((alike, others), ()))
    collector = discover._Collector()

    collector.add(image, "/bin/kv", False, None)  # type: ignore[arg-type]

    objects = collector.objects()
    assert [site.marker for site in objects.sites] == ["near"]
    assert [site.address for site in objects.sites] == [0x11000]
    assert [str(problem).split(" at ")[:2] for problem in objects.problems] == [
        ["/bin/kv: the site of near", "0x2000 is too far from its body"],
        ["/bin/kv: the site of far", "0x2000 is too far from its body"],
    ]
