"""The low-level interface: the parts that sessions are made of, for callers that need them singly.

Everything here reads or plans. Only `apply` writes, and it checks before and after. Importing this
module imports all of them.
"""

from __future__ import annotations

from markerjit.abi import Geometry
from markerjit.elf import FileImage, MappedImage, parse_format, read_notes
from markerjit.memory import FakeMemory, Mapping, Memory, ProcessMemory, read_maps
from markerjit.model import Change
from markerjit.patch.apply import Applied, apply
from markerjit.patch.plan import Binding, Edit, Plan, Refusal, SiteState, plan_off, plan_on
from markerjit.patch.protocol import PROTOCOLS, Context, Protocol, plan_change
from markerjit.quiesce.strategies import STRATEGIES, Strategy
from markerjit.remote.native import NativeTarget
from markerjit.ring.clock import Calibration
from markerjit.ring.drain import RingDrain
from markerjit.ring.reader import SharedRing
from markerjit.ring.types import RecordType, Time
from markerjit.sites import Objects, discover_file, discover_process
from markerjit.sites.verify import code_mode, verify

__all__ = [
    "PROTOCOLS",
    "STRATEGIES",
    "Applied",
    "Binding",
    "Calibration",
    "Change",
    "Context",
    "Edit",
    "FakeMemory",
    "FileImage",
    "Geometry",
    "MappedImage",
    "Mapping",
    "Memory",
    "NativeTarget",
    "Objects",
    "Plan",
    "ProcessMemory",
    "Protocol",
    "RecordType",
    "Refusal",
    "RingDrain",
    "SharedRing",
    "SiteState",
    "Strategy",
    "Time",
    "apply",
    "code_mode",
    "discover_file",
    "discover_process",
    "parse_format",
    "plan_change",
    "plan_off",
    "plan_on",
    "read_maps",
    "read_notes",
    "verify",
]
