"""Sites that are alike, as one value: what is made of them is what each one alone would be."""

from __future__ import annotations

from itertools import chain

import pytest

from markerjit.abi import PAGE
from markerjit.errors import MemoryFault
from markerjit.memory import FakeMemory
from markerjit.model import Kind, Mode, RemoteAddress, Site
from markerjit.sites import Lot, Lots
from markerjit.sites.verify import code_of, read_each
from tests.support.made_sites import SWITCHABLE, has_head, make_lot, make_site


def memory_with(lot: Lot, heads: dict[int, bytes]) -> FakeMemory:
    """The code of a lot: dormant, but for some of the sites, by their indices."""
    memory = FakeMemory()
    memory.add(lot.addresses[0], bytes(lot.addresses[-1] + PAGE - lot.addresses[0]))
    for index, site in enumerate(lot.sites()):
        memory.write(site.address, heads.get(index, site.form.head) + site.form.tail)
    return memory


def none_is_ours(*addresses: RemoteAddress) -> bool:
    return False


@pytest.mark.parametrize("kind", [kind for kind in SWITCHABLE if kind is not Kind.SENTINEL])
def test_each_site_of_a_lot_is_the_one_that_it_was_made_of(kind: Kind) -> None:
    lot = make_lot(kind, 5)

    made = list(lot.sites())

    assert made == [make_site(kind, address=site.address) for site in made]
    assert len({site.address for site in made}) == lot.size == 5


def test_a_part_of_a_lot_has_the_sites_that_were_asked_for() -> None:
    lot = make_lot(Kind.JUMP, 6)
    sites = list(lot.sites())

    assert list(lot.part([1, 4]).sites()) == [sites[1], sites[4]]
    assert list(lot.part([3]).sites()) == [sites[3]]
    assert lot.part(range(6)) is lot


def test_sites_of_several_lots_are_a_sequence_by_address() -> None:
    lot = make_lot(Kind.JUMP, 6)
    whole = list(lot.sites())
    sites = Lots([lot.part([0, 2, 4]), lot.part([1, 3, 5])])

    assert list(sites) == whole
    assert len(sites) == 6 and sites[0] == whole[0] and sites[-1] == whole[-1]
    assert sites == tuple(whole) and sites == Lots([lot]) and sites != tuple(whole[1:])
    assert sites[1:3] == tuple(whole[1:3])
    assert hash(sites) == hash(Lots([lot]))
    assert sites.markers == {"kv_get"}


def test_single_sites_stay_in_their_order() -> None:
    sites = [make_site(Kind.NOP, address=address) for address in (0x3000, 0x1000, 0x2000)]

    assert list(Lots.of(sites)) == sites
    assert [lot.first for lot in Lots.of(sites).lots] == sites
    assert Lots.of(Lots.of(sites)).lots == Lots.of(sites).lots


def test_sites_that_are_found_alike_stay_together() -> None:
    lot = make_lot(Kind.JUMP, 8)
    active = lot.first.form.ways[Mode.JUMP]

    codes = code_of(memory_with(lot, {2: active, 5: active}).read, lot, none_is_ours)

    assert {code.mode: list(code.lot.sites()) for code in codes} == {
        None: [site for at, site in enumerate(lot.sites()) if at not in (2, 5)],
        Mode.JUMP: [lot.site(2), lot.site(5)],
    }
    assert {code.mode: code.head for code in codes} == {
        None: lot.first.form.head,
        Mode.JUMP: active,
    }


@pytest.mark.parametrize("kind", [kind for kind in SWITCHABLE if has_head(kind)])
def test_each_altered_site_of_a_lot_is_named_alone(kind: Kind) -> None:
    lot = make_lot(kind, 4)
    strange = b"\x42" * len(lot.first.form.head)

    codes = code_of(memory_with(lot, {1: strange, 3: strange}).read, lot, none_is_ours)

    problems = [code.problem.address for code in codes if code.problem]
    assert problems == [lot.addresses[1], lot.addresses[3]]
    assert [list(code.lot.addresses) for code in codes if not code.problem] == [
        [lot.addresses[0], lot.addresses[2]]
    ]


def test_each_breakpoint_of_a_lot_is_asked_about_by_its_own_addresses() -> None:
    lot = make_lot(Kind.JUMP, 4)
    planted = lot.first.form.ways[Mode.INT3]
    ours = {(site.address, site.body.entry, site.slot) for site in list(lot.sites())[:3]}

    codes = code_of(
        memory_with(lot, dict.fromkeys(range(4), planted)).read,
        lot,
        lambda *addresses: addresses in ours,
    )

    opened, foreign = codes
    assert opened.mode is Mode.INT3 and list(opened.lot.addresses) == lot.addresses[:3]
    assert foreign.problem and foreign.problem.is_breakpoint
    assert foreign.problem.address == lot.addresses[3]


def test_a_tail_that_was_changed_is_seen_at_its_site() -> None:
    lot = make_lot(Kind.NOP, 3)
    memory = memory_with(lot, {})
    memory.write(RemoteAddress(lot.addresses[1] + 2), b"\xff")

    codes = code_of(memory.read, lot, none_is_ours)

    assert [code.problem.address for code in codes if code.problem] == [lot.addresses[1]]


class Pages:
    """Memory of some pages, which notes the pages that are touched."""

    def __init__(self, pages: set[int]) -> None:
        self.pages = pages
        self.touched: set[int] = set()
        self.reads = 0

    def read(self, address: RemoteAddress, size: int) -> bytes:
        touched = set(range(address // PAGE, (address + size - 1) // PAGE + 1))
        if not touched <= self.pages:
            raise MemoryFault(address, size, "read", "not mapped")
        self.touched |= touched
        self.reads += 1
        return bytes((at // 7) % 251 for at in range(address, address + size))


def test_addresses_near_to_each_other_are_read_together_and_no_other_page_is() -> None:
    near = [RemoteAddress(0x10000 + 40 * number) for number in range(600)]
    far = [RemoteAddress(0x80000 + number * 3 * PAGE) for number in range(3)]
    edge = [RemoteAddress(0xA0000 + PAGE - 4), RemoteAddress(0xA0000 + 2 * PAGE - 4)]
    addresses = [*near, *far, *edge]
    pages = Pages({page for at in addresses for page in (at // PAGE, (at + 6) // PAGE)})

    code = read_each(pages.read, addresses, 7)

    assert code == [bytes((at // 7) % 251 for at in range(start, start + 7)) for start in addresses]
    assert pages.touched == pages.pages
    assert pages.reads < 10


def test_no_site_is_made_of_a_lot_that_is_only_counted_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred thousand of them would take longer than all else."""
    sites = Lots([make_lot(Kind.JUMP, 3)])

    def refuse(lot: Lot, index: int) -> Site:
        raise AssertionError("a site was made")

    monkeypatch.setattr(Lot, "site", refuse)

    assert len(sites) == 3
    assert sites[0].marker == "kv_get"
    assert len(list(chain.from_iterable(lot.addresses for lot in sites.lots))) == 3
