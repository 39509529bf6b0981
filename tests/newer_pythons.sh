#!/bin/sh
# Tests with newer Pythons than the oldest one that is supported; `make test` calls it, with the Pythons.
#
#     newer_pythons.sh ready PYTHON...   makes an environment for each in build/pythons, all at once
#     newer_pythons.sh run PYTHON...     runs the tests marked `pythons` in each of these, all at once
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

# The output of all, one after the other: each has its own file while they run.
test_with() {
	version=$(version_of "$1") || { echo "pythons skipped: $1 cannot be run, or has no venv"; return 0; }
	place=build/pythons/$version
	test -e "$place/.ready" || {
		echo "pythons skipped: pip cannot get what Python $version needs ($place.log)"
		return 0
	}
	"$place/bin/python" -m pytest --choice -p no:cacheprovider -q -m 'pythons and not slow' \
		$(grep -rl --include='test_*.py' 'mark\.pythons' tests) >"$place.tests" 2>&1
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
run)
	test $# -gt 0 || {
		echo "pythons skipped: no newer Python is here (python3.12 to python3.14 on the path, or in ~/.pyenv/versions)"
		exit 0
	}
	processes=
	for python in "$@"; do
		test_with "$python" &
		processes="$processes $!"
	done
	code=0
	for process in $processes; do
		wait "$process" || code=1
	done
	exit $code
	;;
esac
