"""The allocations of a process, for a while, as a value.

What this does not do: print it (facts/allocations.py), or write files (files.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import markerjit.abi as abi
from markerjit.allocations.heap import Heap
from markerjit.tuples import NamedTuple
from markerjit.unwind.frames import WalkedStack


class CallSite(NamedTuple):
    """Where allocations are asked for.

    address   of the instruction behind the call; 0 of a marker
    function  the function's symbol, the marker's name, or a place in an object where no symbol is
              known
    offset    from where the function begins
    object    the path of its object; "" where none is known
    stack     the frames from there on, where allocations are told apart by them; else None
    """

    address: int
    function: str
    offset: int = 0
    object: str = ""
    stack: WalkedStack | None = None

    @property
    def order(self) -> tuple[int | str | tuple[int, ...], ...]:
        """What sites are put in order by."""
        frames = self.stack.frames if self.stack else ()
        end = str(self.stack.end) if self.stack else ""
        return (*self[:4], tuple(frame.address for frame in frames), end)


class AllocationSite(NamedTuple):
    """The allocations of a call site. Bytes are those that were asked for, and those that the
    allocator gave for them.

    site          where it is
    allocations   how many, of `asked` and `given` bytes
    failed        how many more gave no block
    frees         how many were freed since
    live          blocks that were not, with `live_asked` and `live_given` bytes
    oldest_ns     how long the oldest of these has lived; None without one
    other_thread  frees by another thread than the allocation, and `other_cpu` on another CPU
    mean_ns, longest_ns, median_ns
                  lifetimes of the blocks that were freed; None without one. The median is that of a
                  histogram: up to a power of two that is not below it
    lost_frees    blocks whose address was given out again without a free that was seen
    untracked     blocks that found no room in the table of live ones: they are in no number of
                  frees or live blocks
    """

    site: CallSite
    allocations: int
    asked: int
    given: int
    failed: int
    frees: int
    live: int
    live_asked: int
    live_given: int
    oldest_ns: int | None
    other_thread: int
    other_cpu: int
    mean_ns: float | None
    longest_ns: int | None
    median_ns: int | None
    lost_frees: int
    untracked: int

    @property
    def wasted(self) -> int:
        """Bytes that were given in all and not asked for: internal fragmentation."""
        return self.given - self.asked


class Allocations(NamedTuple):
    """The allocations of a process.

    seconds        how long it was looked at
    sites          by call site, the one with the most live bytes first
    most_given     bytes that were live at most, of those that were seen to be allocated, and
                   `most_s` when, in seconds from the begin
    unknown_frees  frees of blocks that are not known: from before, or `untracked`
    unseen         allocations whose address is not known
    no_site        allocations whose site found no room: they are at no site
    unmatched      returns whose entries were not seen: of calls that had begun before
    threads        how many threads allocated or freed
    allocator      "glibc", "jemalloc", or "" of others
    read           whether the given bytes were read in the process; otherwise they follow the rules
                   of the allocator
    functions      what was on, and `left_out` sentences about what was not
    children       processes that it has started meanwhile, whose allocations are not here
    pid            the process, and `command` its command line
    depth          frames of a stack at most; 0 where a site is an immediate caller
    lost_stacks    allocations without a stack, since there was no room for more
    """

    seconds: float
    sites: tuple[AllocationSite, ...]
    most_given: int
    most_s: float
    unknown_frees: int
    unseen: int
    no_site: int
    unmatched: int
    threads: int
    allocator: str
    read: bool
    functions: tuple[str, ...]
    left_out: tuple[str, ...]
    children: int
    pid: int
    command: str
    depth: int = 0
    lost_stacks: int = 0

    @property
    def allocations(self) -> int:
        """How many there were."""
        return sum(each.allocations for each in self.sites)

    @property
    def live(self) -> int:
        """Blocks that were not freed."""
        return sum(each.live for each in self.sites)

    @property
    def live_given(self) -> int:
        """Bytes of these, as they were given."""
        return sum(each.live_given for each in self.sites)

    @property
    def leaks(self) -> tuple[AllocationSite, ...]:
        """The sites with blocks that were not freed, the one with the most bytes first."""
        return tuple(each for each in self.sites if each.live)


def sites_of(
    heap: Heap, sites: Mapping[int, CallSite], now_ns: int, monotonic: Callable[[int], int]
) -> tuple[AllocationSite, ...]:
    """All sites, the one with the most live bytes first. `sites` are by their numbers, and several
    numbers may have one. `monotonic` makes nanoseconds of the times of blocks."""
    numbers: dict[CallSite, list[int]] = {}
    for number, site in sites.items():
        numbers.setdefault(site, []).append(number)
    made = [_site(heap, site, each, now_ns, monotonic) for site, each in numbers.items()]
    used = [each for each in made if each.allocations or each.failed]
    return tuple(sorted(used, key=lambda each: (-each.live_given, -each.given, each.site.order)))


def _site(
    heap: Heap,
    site: CallSite,
    numbers: list[int],
    now_ns: int,
    monotonic: Callable[[int], int],
) -> AllocationSite:
    rows = heap.counts[numbers]
    counts = [int(count) for count in rows.sum(axis=0)]
    live, live_asked, live_given = (
        int(column[numbers].sum()) for column in (heap.live, heap.live_asked, heap.live_given)
    )
    frees = counts[abi.BLOCK_FREES]
    return AllocationSite(
        site,
        allocations=counts[abi.BLOCK_ALLOCATIONS],
        asked=counts[abi.BLOCK_ASKED],
        given=counts[abi.BLOCK_GIVEN],
        failed=counts[abi.BLOCK_FAILED],
        frees=frees,
        live=live,
        live_asked=live_asked,
        live_given=live_given,
        oldest_ns=max(now_ns - monotonic(int(heap.oldest[numbers].min())), 0) if live else None,
        other_thread=counts[abi.BLOCK_THREADS],
        other_cpu=counts[abi.BLOCK_CPUS],
        mean_ns=counts[abi.BLOCK_LIFE] / frees if frees else None,
        longest_ns=int(rows[:, abi.BLOCK_LONGEST].max()) if frees else None,
        median_ns=_median(counts[abi.BLOCK_LIVES :]) if frees else None,
        lost_frees=counts[abi.BLOCK_REUSED],
        untracked=counts[abi.BLOCK_UNTRACKED],
    )


def _median(lives: Sequence[int]) -> int:
    """The upper end of the power of two in which the median is."""
    half, below = (sum(lives) + 1) // 2, 0
    for bits, count in enumerate(lives):
        below += count
        if below >= half:
            return (1 << bits) - 1
    return 0
