"""Room for code and data of ours in an arena: the one place that allocates it.

Recorders and the code of probes stand behind the runtime, the variables of probes in the data. What
was taken is kept for as long as the arena is there, because a thread may be in it.
"""

from __future__ import annotations

import markerjit.abi as abi
from markerjit.abi import CODE_SIZE, Geometry
from markerjit.arena.control import ControlBlock
from markerjit.errors import MarkerError, MemoryFault, Refused
from markerjit.model import RemoteAddress
from markerjit.ring.raw import Store


class Code:
    """The code and data of an arena that is mapped at `base`. The caller of what takes room must
    hold the target's lock."""

    def __init__(
        self,
        pid: int,
        base: RemoteAddress,
        store: Store,
        control: ControlBlock,
        geometry: Geometry,
    ) -> None:
        self._pid = pid
        self._base = base
        self._store = store
        self._control = control
        self._data = geometry.data

    def place(self, size: int, align: int = 32) -> RemoteAddress | None:
        """Where code of this size may be put, None when all is taken."""
        start = -(-max(self._control.now().code_used, abi.RUNTIME_SIZE) // align) * align
        return RemoteAddress(self._base + start) if start + size <= CODE_SIZE else None

    def place_for_data(self, size: int, align: int = 64) -> RemoteAddress | None:
        """The same for the variables of a probe. They are zeros."""
        start = -(-self._control.now().data_used // align) * align
        if start + size > self._data.size:
            return None
        return RemoteAddress(self._base + self._data.offset + start)

    @property
    def room(self) -> tuple[int, int]:
        """Bytes that are left of the code, and of the data."""
        control = self._control.now()
        code = CODE_SIZE - max(int(control.code_used), abi.RUNTIME_SIZE)
        return max(code, 0), max(self._data.size - int(control.data_used), 0)

    def put(self, address: RemoteAddress, code: bytes) -> None:
        """Write code where there is place for it, look whether it arrived, and take the place.

        Raises Refused where the process has closed its descriptor of the arena: its memory alone
        does not take code.
        """
        offset = address - self._base
        try:
            self._store.write(offset, code)  # over what somebody left who died before taking it
        except MemoryFault:
            raise Refused(
                f"process {self._pid} has closed its descriptor of the runtime's memory, so "
                "nothing can be added to it; restart the process"
            ) from None
        if self._store.read(offset, len(code)) != code:
            raise MarkerError("code for the runtime did not arrive in the target as it was written")
        self._control.write("code_used", offset + len(code))

    def take_data(self, address: RemoteAddress, data: bytes, size: int) -> None:
        """The first bytes of a probe's variables, and the place of all of them."""
        offset = address - self._base
        self._store.write(offset, data)
        self._control.write("data_used", offset - self._data.offset + size)
