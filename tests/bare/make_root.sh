#!/bin/sh
# make_root.sh DIR SUITE: a bare Debian in DIR, with Python and nothing that could compile. As root.
set -eu
mirror=$("$(dirname "$0")/../support/debian_mirror.sh")
rm -rf "$1"
mkdir -p "$(dirname "$1")"
debootstrap --variant=minbase --include=python3,python3-venv "$2" "$1.new" "$mirror"
rm -rf "$1.new/var/cache/apt/archives" "$1.new/var/lib/apt/lists"
mv "$1.new" "$1"
