"""The allocations of a process, for a while, as a value.

What this does not do: print it (facts/allocations.py), or write files (files.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import markerjit.abi as abi
from markerjit.allocations.heap import Heap
from markerjit.printable import counted
from markerjit.tuples import NamedTuple, brief
from markerjit.unwind.frames import WalkedStack


class CallSite(NamedTuple):
    """A place that asks for allocations.

    address   the address of the instruction after the call; 0 for a marker
    function  the function's symbol, the marker's name, or a place in an object where no symbol is
              known
    offset    bytes from the start of the function
    object    the path of its object; "" where none is known
    stack     the frames from there on, where sites are distinguished by stacks; else None
    """

    address: int
    function: str
    offset: int = 0
    object: str = ""
    stack: WalkedStack | None = None

    def __repr__(self) -> str:
        return brief(self)

    @property
    def order(self) -> tuple[int | str | tuple[int, ...], ...]:
        """The key by which sites are sorted."""
        frames = self.stack.frames if self.stack else ()
        end = str(self.stack.end) if self.stack else ""
        return (*self[:4], tuple(frame.address for frame in frames), end)


class AllocationSite(NamedTuple):
    """The allocations of a call site. `asked` are bytes that the program asked for, and `given`
    those that the allocator gave for them.

    site          the call site
    allocations   the number of allocations, of `asked` and `given` bytes
    failed        the number of other allocations, which gave no block
    frees         the number of these blocks that were freed
    live          the number of blocks that were not freed, of `live_asked` and `live_given` bytes
    oldest_ns     the age of the oldest live block; None without one
    other_thread  frees by another thread than that of the allocation
    other_cpu     frees on another CPU than that of the allocation
    mean_ns, longest_ns, median_ns
                  lifetimes of the freed blocks; None without one. The median comes from a
                  histogram of powers of two, and is the upper end of its bucket
    lost_frees    blocks whose address was given out again without a free that was seen
    untracked     blocks that found no room in the table of live blocks. They count neither as
                  freed nor as live
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

    def __repr__(self) -> str:
        return brief(self)

    @property
    def wasted(self) -> int:
        """The bytes, of all allocations, that were given and not asked for: internal
        fragmentation."""
        return self.given - self.asked


class Allocations(NamedTuple):
    """The allocations of a process.

    seconds        the duration of the measurement
    sites          the call sites, the one with the most live bytes first
    most_given     the peak of live bytes, of blocks whose allocation was seen
    most_s         the moment of the peak, in seconds from the start of the measurement
    unknown_frees  frees of blocks that are not known: allocated before, or `untracked`
    unseen         allocations whose address is not known
    no_site        allocations whose site found no room; no site has them
    unmatched      returns whose entries were not seen, of calls that had begun before
    threads        the number of threads that allocated or freed
    allocator      "glibc", "jemalloc", or "" for others
    read           whether the given bytes were read in the process; otherwise they follow the rules
                   of the allocator
    functions      the functions that were observed
    left_out       sentences about the functions that were not
    children       the number of processes started meanwhile, whose allocations are not included
    pid            the process
    command        its command line
    depth          the most frames of a stack; 0 where a site is an immediate caller
    lost_stacks    allocations without a stack, for which there was no room
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

    def __repr__(self) -> str:
        return (
            f"<Allocations of process {self.pid}: {counted(self.allocations, 'allocation')} at "
            f"{counted(len(self.sites), 'site')} in {self.seconds:.3f} s, {self.live:,} live>"
        )

    @property
    def allocations(self) -> int:
        """The number of allocations at all sites."""
        return sum(each.allocations for each in self.sites)

    @property
    def live(self) -> int:
        """The number of blocks that were not freed."""
        return sum(each.live for each in self.sites)

    @property
    def live_given(self) -> int:
        """The bytes that the allocator gave for the blocks that were not freed."""
        return sum(each.live_given for each in self.sites)

    @property
    def leaks(self) -> tuple[AllocationSite, ...]:
        """The sites with blocks that were not freed, the one with the most bytes first."""
        return tuple(each for each in self.sites if each.live)


def sites_of(
    heap: Heap, sites: Mapping[int, CallSite], now_ns: int, monotonic: Callable[[int], int]
) -> tuple[AllocationSite, ...]:
    """All sites with an allocation, the one with the most live bytes first. `sites` maps numbers to
    sites, and several numbers may have the same site. `monotonic` converts the times of blocks to
    nanoseconds of the clock of `now_ns`."""
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
    """The upper end of the bucket that has the median; buckets are powers of two."""
    half, below = (sum(lives) + 1) // 2, 0
    for bits, count in enumerate(lives):
        below += count
        if below >= half:
            return (1 << bits) - 1
    return 0
