"""The first bytes of many functions are those of each, up to the end of the code."""

from __future__ import annotations

import os

from markerjit.elf.heads import heads_of
from markerjit.elf.image import PF_X, PT_LOAD, FileImage

SIZE = 9


def test_the_first_bytes_at_many_addresses_are_those_at_each() -> None:
    with FileImage(os.path.realpath("/proc/self/exe")) as image:
        code = next(s for s in image.segments if s.type == PT_LOAD and s.flags & PF_X)
        addresses = [*range(code.address, code.address + 100)]
        addresses += range(code.file_end - 2 * SIZE, code.file_end + SIZE)

        heads = heads_of(image, addresses, SIZE)

        assert heads == [heads_of(image, [each], SIZE)[0] for each in addresses]
        whole = image.read(code.address, code.file_size)
        assert heads[1] == whole[1 : 1 + SIZE]
        assert heads[-SIZE - 1] == whole[-1:]
        assert set(heads[-SIZE:]) == {b""}
