"""All harnesses, by name."""

from tests.fuzz import (
    check_arena,
    check_elf,
    check_journal,
    check_ring,
    check_symbols,
    check_text,
    check_usdt,
)

HARNESSES = {
    harness.name: harness
    for room in (
        check_elf,
        check_usdt,
        check_symbols,
        check_text,
        check_ring,
        check_journal,
        check_arena,
    )
    for harness in room.HARNESSES
}
