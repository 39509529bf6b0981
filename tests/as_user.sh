#!/bin/sh
# Runs the tests marked `user` as an ordinary user; root calls it, from `make test`. Arguments, if
# any, go to pytest in the place of `-m user`.
#
# The user is nobody, without capabilities, in the environment of a fresh login. It has a copy of
# the checkout, because root alone may be able to enter this one, and because tests make things.
# Its Python is Debian's, in a virtual environment without packages; .venv lends it its own.
# Where this is not possible, the reason is printed, and nothing fails.
set -eu

skip() {
	echo "user    skipped: $1"
	exit 0
}

as_user() {
	setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all \
		env -i HOME="$own/home" PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 "$@"
}

# The files of a folder of root's, which the user owns afterwards. What pytest has compiled names root's sources, the
# cache of mypy is being written, and newer Pythons are large.
hand_over() {
	as_user mkdir "$2"
	tar -C "$1" --exclude=./.venv --exclude=./.git --exclude=./.mypy_cache --exclude=./build/pythons \
		--exclude='*-pytest-*.pyc' -c . | as_user tar -C "$2" -x
}

test $# -gt 0 || set -- -m user
checkout=$(cd "$(dirname "$0")/.." && pwd)
command -v setpriv >/dev/null || skip "needs setpriv (Debian package util-linux)"
yama=$(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null || echo 0)
test "$yama" = 0 || skip "kernel.yama.ptrace_scope is $yama, and a user may trace its children only"

own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
trap 'exit 1' HUP INT TERM
chown 65534:65534 "$own"
cd "$own"
why=$(as_user mkdir "$own/home" 2>&1) || skip "cannot become an ordinary user here: $why"

version=$("$checkout/.venv/bin/python" -c 'import sys; print(*sys.version_info[:2])')
same='import sys; sys.exit(list(map(int, sys.argv[1:])) != [*sys.version_info[:2]])'
for python in /usr/bin/python3 "$(readlink -f "$checkout/.venv/bin/python")" ''; do
	test -z "$python" || ! as_user "$python" -c "$same" $version 2>/dev/null || break
done
test -n "$python" || skip "no Python $version that a user may run, neither Debian's nor .venv's"

hand_over "$checkout" checkout
packages=$("$checkout/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
as_user test -r "$packages/pytest" || { hand_over "$packages" packages; packages=$own/packages; }
as_user "$python" -m venv --without-pip venv
echo "$packages" | as_user tee "$(echo venv/lib/python*/site-packages)/lent.pth" >/dev/null

cd checkout
echo "user    uid 65534, $(as_user ../venv/bin/python --version)"
as_user ../venv/bin/python -m pytest -p no:cacheprovider --basetemp="$own/tmp" "$@"
