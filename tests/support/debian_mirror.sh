#!/bin/sh
# The mirror of Debian that apt is configured for here.
set -eu
place='$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)'
mirror=$(apt-get indextargets --format "$place" 'Created-By: Packages' |
	awk -F'|' '$1 == "Debian" && $2 == "Debian" && $3 == "main" { print $4; exit }')
test -n "$mirror" || { echo "no mirror of Debian is configured" >&2; exit 1; }
echo "$mirror"
