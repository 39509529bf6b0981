#!/bin/sh
# Tests with newer Pythons than the oldest one that is supported; `make test` calls it, with the Pythons.
#
#     newer_pythons.sh ready PYTHON...   makes an environment for each in build/pythons, all at once
#     newer_pythons.sh run PYTHON...     runs a choice of the tests marked `pythons` in each of these, all at once: those of
#                                        tests/live with the newest Python alone, which is the last one
#     newer_pythons.sh all PYTHON...     runs all of them
#
# An environment has wheels of what markerjit and its smaller extras need, and the checkout on its path. It is kept, and made
# again when setup.cfg asks for something else. Where it cannot be made, `run` prints the reason, and nothing fails.
set -u

work=$1
shift
checkout=$(cd "$(dirname "$0")/.." && pwd)
cd "$checkout" || exit 1
mkdir -p build/pythons || exit 1

version_of() {
	"$1" -c 'import ensurepip, ssl, sys, venv; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

# What setup.cfg asks for, as pip reads it.
needs='
import configparser
file = configparser.ConfigParser()
file.read("setup.cfg")
extras = file["options.extras_require"]
print("pytest", "hypothesis", file["options"]["install_requires"], *map(extras.get, ("parquet", "perfetto", "watch", "web")), sep="\n")
'

make_ready() {
	version=$(version_of "$1") || return 0
	place=build/pythons/$version
	"$1" -c "$needs" >"$place.needs" || return 1
	cmp -s "$place.needs" "$place/.ready" && "$place/bin/python" -c '' && return 0
	echo "python  $place"
	{
		"$1" -m venv --clear "$place" &&
			"$place/bin/python" -m pip --disable-pip-version-check -q install --retries 1 --no-compile \
				--only-binary=:all: -r "$place.needs" &&
			echo "$checkout" >"$(echo "$place"/lib/python*/site-packages)/checkout.pth" &&
			cp "$place.needs" "$place/.ready"
	} >"$place.log" 2>&1 </dev/null
}

# The output of all, one after the other: each has its own file while they run. Bytecode is written also where that is
# not wanted (PYTHONDONTWRITEBYTECODE): each command would compile what it imports, and take several times as long.
# Arguments: the Python, a folder of tests, and what else pytest is to be told.
test_with() {
	version=$(version_of "$1") || { echo "pythons skipped: $1 cannot be run, or has no venv"; return 0; }
	place=build/pythons/$version
	test -e "$place/.ready" || {
		echo "pythons skipped: pip cannot get what Python $version needs ($place.log)"
		return 0
	}
	folder=$2
	shift 2
	env -u PYTHONDONTWRITEBYTECODE "$place/bin/python" -m pytest -p no:cacheprovider -q --processes 1 -m 'pythons and not slow' "$@" \
		$(grep -rl --include='test_*.py' 'mark\.pythons' "$folder") >"$place.tests" 2>&1
	code=$?
	test $code = 0 || cat "$place.tests"
	echo "python  $version: $(tail -n 1 "$place.tests")"
	return $code
}

case $work in
ready)
	for python in "$@"; do
		make_ready "$python" &
	done
	wait
	;;
run | all)
	test $# -gt 0 || {
		echo "pythons skipped: no newer Python is here (python3.12 to python3.14 on the path, or in ~/.pyenv/versions)"
		exit 0
	}
	eval newest=\${$#}
	processes=
	for python in "$@"; do
		if test "$work" = all; then
			test_with "$python" tests &
		elif test "$python" = "$newest"; then
			test_with "$python" tests --choice &
		else
			test_with "$python" tests/unit --choice &
		fi
		processes="$processes $!"
	done
	code=0
	for process in $processes; do
		wait "$process" || code=1
	done
	exit $code
	;;
esac
