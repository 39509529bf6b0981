"""The two programs: where our markers stand in them, how they are built, and what they have to do.

A marker has the arguments that somebody would want who traces the program there. They are evaluated
only while it is on, so none of them is paid for before.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from markerjit.errors import Refused
from real.patching import Mark

HERE = Path(__file__).resolve().parent
SCRATCH = "{scratch}"
"""In arguments: a file that does not exist yet."""


class Workload(NamedTuple):
    """Real work: the program's arguments for a tenth of a second of it, and for a hundredth;
    `active` are the markers that are switched on in it one after the other."""

    name: str
    arguments: tuple[str, ...]
    little: tuple[str, ...]
    active: tuple[str, ...] = ()


class Program(NamedTuple):
    """Files are relative to the tree of the source.

    prepare     what is made of the tree once, after the markers are in it
    marked      files with markers, compiled in every form
    others      the rest, compiled once
    """

    name: str
    package: str
    marks: tuple[Mark, ...]
    prepare: Callable[[Path], None]
    marked: tuple[str, ...]
    others: tuple[str, ...]
    flags: tuple[str, ...]
    libraries: tuple[str, ...]
    workloads: tuple[Workload, ...]

    @property
    def markers(self) -> list[str]:
        """Their names."""
        return list(dict.fromkeys(mark.line.partition("(")[2].partition(",")[0]
                                  for mark in self.marks))  # fmt: skip


# ---- Lua -----------------------------------------------------------------------------------------

_LUA_MARKS = (
    Mark("src/ldo.c", "CallInfo *luaD_precall", "checkstackGCp(L, fsize, func);",
         'REAL_MARK(lua_call, "source %s line %d args %d", '
         'p->source ? getstr(p->source) : "?", p->linedefined, narg);'),
    Mark("src/ldo.c", "int luaD_pretailcall", "checkstackGCp(L, fsize - delta, func);",
         'REAL_MARK(lua_call, "source %s line %d args %d", '
         'p->source ? getstr(p->source) : "?", p->linedefined, narg1 - 1);'),
    Mark("src/ldo.c", "l_sinline int precallC", "lua_unlock(L);",
         'REAL_MARK(lua_call_c, "function %p results %d", (void *)f, nresults);'),
    Mark("src/lvm.c", "void luaV_execute", "ret:  /* return from a Lua function */",
         'REAL_MARK(lua_return, "line %d results %d", cl->p->linedefined, ci->nresults);'),
    Mark("src/lgc.c", "void luaC_step", "global_State *g = G(L);",
         'REAL_MARK(lua_gc_step, "kind %d bytes %zu", g->gckind, (size_t)gettotalbytes(g));'),
    Mark("src/lgc.c", "void luaC_fullgc", "global_State *g = G(L);",
         'REAL_MARK(lua_gc_full, "emergency %d bytes %zu", isemergency, '
         "(size_t)gettotalbytes(g));"),
    Mark("src/lgc.c", "static lu_mem singlestep",
         "g->gcstopem = 1;  /* no emergency collections while collecting */",
         'REAL_MARK(lua_gc_phase, "phase %d bytes %zu", g->gcstate, (size_t)gettotalbytes(g));'),
    Mark("src/lgc.c", "static void freeobj", "static void freeobj (lua_State *L, GCObject *o) {",
         'REAL_MARK(lua_gc_free, "type %d object %p", o->tt, (void *)o);'),
)  # fmt: skip
_LUA_PARTS = (
    "lapi lcode lctype ldebug ldump lfunc llex lmem lobject lopcodes lparser lstate lstring ltable "
    "ltm lundump lzio lauxlib lbaselib lcorolib ldblib liolib lmathlib loadlib loslib lstrlib "
    "ltablib lutf8lib linit lua"
)


def _script(name: str, size: int, little: int, *active: str) -> Workload:
    path = str(HERE / "lua" / f"{name}.lua")
    return Workload(f"Lua, {name}", (path, str(size)), (path, str(little)), active)


LUA = Program(
    name="lua",
    package="lua5.4",
    marks=_LUA_MARKS,
    prepare=lambda tree: None,
    marked=("src/ldo.c", "src/lvm.c", "src/lgc.c"),
    others=tuple(f"src/{name}.c" for name in _LUA_PARTS.split()),
    # The seed: else the order of tables, and with it the work, is another in every run.
    flags=("-D_GNU_SOURCE", "-DLUA_COMPAT_5_3", "-DLUA_USE_LINUX", "-Dluai_makeseed(L)=1u"),
    libraries=("-Wl,-E", "-lm", "-ldl"),
    workloads=(
        _script("calls", 29, 24, "lua_call"),
        _script("tables", 10, 9),
        _script("strings", 15_000, 2_000),
        _script("trees", 14, 10, "lua_gc_free"),
    ),
)


# ---- SQLite --------------------------------------------------------------------------------------

_SQLITE_MARKS = (
    Mark("src/vdbeapi.c", "static int sqlite3Step", "db->nVdbeExec++;",
         'REAL_MARK(sqlite_step, "sql %s pc %d", p->zSql, p->pc);'),
    Mark("src/vdbe.c", "int sqlite3VdbeExec(", "nVmStep++;",
         'REAL_MARK(sqlite_op, "opcode %d pc %d", pOp->opcode, (int)(pOp - aOp));'),
    Mark("src/pager.c", "static int getPageNormal(", "pPager->aStat[PAGER_STAT_HIT]++;",
         'REAL_MARK(sqlite_page_hit, "page %u pager %p", pgno, (void *)pPager);'),
    Mark("src/pager.c", "static int getPageNormal(", "pPager->aStat[PAGER_STAT_MISS]++;",
         'REAL_MARK(sqlite_page_read, "page %u pager %p", pgno, (void *)pPager);'),
    Mark("src/btree.c", "int sqlite3BtreeTableMoveto(", "assert( pCur->pKeyInfo==0 );",
         'REAL_MARK(sqlite_move, "root %u key %lld", pCur->pgnoRoot, (long long)intKey);'),
    Mark("src/btree.c", "int sqlite3BtreeIndexMoveto(", "assert( pCur->pKeyInfo!=0 );",
         'REAL_MARK(sqlite_move_index, "root %u fields %d", pCur->pgnoRoot, pIdxKey->nField);'),
)  # fmt: skip


def _amalgamate(tree: Path) -> None:
    """All of SQLite in one file, sqlite3.c, as its makers recommend it. Raises Refused."""
    if shutil.which("tclsh") is None:
        raise Refused("tclsh is not here, which makes sqlite3.c; apt-get install tcl")
    for command in (["sh", "./configure", "--disable-tcl"], ["make", "sqlite3.c"]):
        done = subprocess.run(
            command, cwd=tree, check=False, stdin=subprocess.DEVNULL, capture_output=True,
            text=True,
        )  # fmt: skip
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            raise Refused(f"{' '.join(command)} of SQLite says: {' '.join(last)}")


def _speedtest(size: int) -> tuple[str, ...]:
    """SQLite's own, on a file that does not fit into its cache."""
    return ("--size", str(size), "--cachesize", "50", "--nosync", "--stats", SCRATCH)


SQLITE = Program(
    name="sqlite",
    package="sqlite3",
    marks=_SQLITE_MARKS,
    prepare=_amalgamate,
    marked=("sqlite3.c",),
    others=("test/speedtest1.c",),
    flags=("-D_GNU_SOURCE", "-I."),
    libraries=("-lm", "-ldl", "-pthread"),
    workloads=(
        Workload("SQLite, speedtest1", _speedtest(2), _speedtest(1),
                 ("sqlite_page_read", "sqlite_step")),
    ),
)  # fmt: skip

PROGRAMS = {program.name: program for program in (LUA, SQLITE)}
