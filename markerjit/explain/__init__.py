"""Teaching views: the parts of a marker, and the effects of switching it."""

from markerjit.explain.marker import Explanation, explain_file, explain_process, hot_path
from markerjit.explain.path import ActivePath, PathPart, paths_of_process
from markerjit.explain.ways import Way, plan_or_refusal, ways_of_file, ways_of_process
from markerjit.memory.pages import Page
from markerjit.probes.parts import Role
from markerjit.x86.decode import Instruction

__all__ = [
    "ActivePath",
    "Explanation",
    "Instruction",
    "Page",
    "PathPart",
    "Role",
    "Way",
    "explain_file",
    "explain_process",
    "hot_path",
    "paths_of_process",
    "plan_or_refusal",
    "ways_of_file",
    "ways_of_process",
]
